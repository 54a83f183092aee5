"""Short ways to build AICB's rows, and the text of the file they make."""

from collections.abc import Sequence
from dataclasses import dataclass

from simcore.workload.model import Layer, Phase
from simcore.workload.text import TYPES, role_of, written_row

UPDATE_NS = 100
"""AICB's delay behind every collective."""


def phase(compute_ns: int, collective: str = "NONE", size_bytes: int = 0) -> Phase:
    """A phase from AICB's words, for example phase(1, 'ALLTOALL_EP', 8); the size stays also where there is nothing."""
    kind, group = TYPES[collective]
    return Phase(compute_ns, kind, size_bytes, group)


NOTHING = phase(1)
"""No communication, and the 1 ns that AICB writes for no computation."""


def row(name: str, forward: Phase = NOTHING, input_grad: Phase = NOTHING, weight_grad: Phase = NOTHING) -> Layer:
    """One row of the file."""
    return Layer(name, forward, input_grad, weight_grad, UPDATE_NS, role=role_of(name))


@dataclass(frozen=True, slots=True)
class TextFile:
    """A SimAI text file: its header line and its rows; a row that repeats is the same object."""

    header: str
    layers: Sequence[Layer]

    def rows(self) -> list[str]:
        """The tab-separated rows."""
        different = {id(layer): layer for layer in self.layers}
        written = {key: written_row(layer) for key, layer in different.items()}
        return [written[id(layer)] for layer in self.layers]

    def __str__(self) -> str:
        return "\n".join([self.header, str(len(self.layers)), *self.rows(), ""])
