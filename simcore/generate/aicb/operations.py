"""AICB's operation lists: one line per operation in program order, as its CSV files have them."""

from collections.abc import Iterable
from dataclasses import dataclass

from simcore.workload.model import Layer, PhaseName

HEADER = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective, a transfer or a matrix multiplication.

    `size` is in bytes (a float for DeepSeek's fp8 dispatch), for a multiplication the shapes of its two factors.
    AICB never fills in `elapsed_ms`. A transfer goes to or comes from the stage `away` stages on; `tag` is the same at
    both ends. `row` is that of a text workload, in this `phase`. None of these is written.
    """

    kind: str
    group: str | None = None
    group_size: int | None = None
    size: float | tuple[Shape, Shape] = 0
    stage: str = ""
    dst: int | None = None
    src: int | None = None
    additional: str = ""
    elapsed_ms: float | None = None
    away: int = 0
    tag: int = 0
    row: Layer | None = None
    phase: PhaseName | None = None

    def __str__(self) -> str:
        group = None if self.group is None else f"CommGroup.{self.group}"
        size = str(self.size).replace(",", "")
        fields = f"CommType.{self.kind},{group},{self.group_size},{size},{self.stage},{self.dst},{self.src}"
        return f"{fields},{self.additional},{self.elapsed_ms},None,None,1"


EPOCH_END = Operation("epoch_end")


def compute(left: Shape, right: Shape, stage: str) -> Operation:
    """A matrix multiplication of factors with these shapes."""
    return Operation("computation", size=(left, right), stage=stage)


def csv_text(operations: Iterable[Operation]) -> str:
    """The whole file; equal objects are written once."""
    written: dict[int, str] = {}
    lines = [HEADER]
    for operation in operations:
        if id(operation) not in written:
            written[id(operation)] = str(operation)
        lines.append(written[id(operation)])
    return "\n".join([*lines, ""])
