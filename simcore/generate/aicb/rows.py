"""Short ways to build AICB's rows, and the text of the file they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simcore.workload.columns import role_of
from simcore.workload.model import CollectiveKind, Group, Layer, Phase

__all__ = ["NOTHING", "TextFile", "phase", "row"]

_KINDS = {
    "ALLREDUCE": CollectiveKind.ALL_REDUCE,
    "ALLGATHER": CollectiveKind.ALL_GATHER,
    "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
    "ALLTOALL": CollectiveKind.ALL_TO_ALL,
}
_NAMES = {kind: name for name, kind in _KINDS.items()} | {None: "NONE"}
_SUFFIXES = {Group.LOOP: "", Group.EP: "_EP", Group.DP_EP: "_DP_EP"}
UPDATE_NS = 100
"""AICB's delay behind every collective."""


def phase(compute_ns: int, collective: str = "NONE", size_bytes: int = 0) -> Phase:
    """A phase from AICB's words, for example phase(1, 'ALLTOALL_EP', 8); the size stays also where there is nothing."""
    kind, _, group = collective.partition("_")
    return Phase(compute_ns, _KINDS.get(kind), size_bytes, Group(group.lower()))


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
        written: dict[int, str] = {}
        for layer in self.layers:
            if id(layer) not in written:
                written[id(layer)] = _columns(layer)
        return [written[id(layer)] for layer in self.layers]

    def __str__(self) -> str:
        return "\n".join([self.header, str(len(self.layers)), *self.rows(), ""])


def _columns(layer: Layer) -> str:
    phases = "\t".join(_phase_columns(phase) for phase in (layer.forward, layer.input_grad, layer.weight_grad))
    return f"{layer.name}\t{layer.reserved}\t{phases}\t{layer.update_ns}"


def _phase_columns(phase: Phase) -> str:
    return f"{phase.compute_ns}\t{_NAMES[phase.collective]}{_SUFFIXES[phase.group]}\t{phase.size_bytes}"
