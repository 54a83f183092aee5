"""What runs on a wafer: phases of computing and flows between nodes, instructions of cores. Columns without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Ints = npt.NDArray[np.int64]


class Flows(Struct, frozen=True, eq=False):
    """Messages between nodes, one per row; those of one `tree` >= 0 are one multicast, which crosses a link once."""

    source: Ints
    target: Ints
    size_bytes: Ints
    tree: Ints


class Phase(Struct, frozen=True, eq=False):
    """Every node computes, then exchanges in rounds with its group; the nodes of a group leave the phase together.

    `macs` and `hbm_bytes` are per node. `layer` is the row of the model the phase belongs to, `part` "forward",
    "input_grad" or "weight_grad", `kind` the collective that ends it ("" where nothing is sent).
    """

    name: str
    macs: Ints
    hbm_bytes: Ints
    groups: tuple[tuple[int, ...], ...]
    rounds: tuple[Flows, ...]
    layer: str = ""
    part: str = "forward"
    kind: str = ""


class NodeStep(Struct, frozen=True, eq=False):
    """One step (prefill, one of decoding or of training) of all nodes; `tokens` new positions of the whole batch."""

    name: str
    tokens: int
    nodes: int
    phases: Sequence[Phase]


class Instruction(NamedTuple):
    """READ, WRITE (bank, bytes), GEMM (M, K, N), ADD (dimensions), COPY (bank, bank, bytes), MULTICAST (bank,
    banks.., bytes) or BARRIER (identifier). Banks count over the whole wafer; bank and core of a number belong
    together. `after` are places in the same core's list.
    """

    kind: str
    arguments: tuple[int | str, ...]
    after: tuple[int, ...]
    comment: str

    def ends(self, core: int) -> tuple[int, ...]:
        """Where the bytes come from that an instruction of a core moves, then where they go; () where it moves none."""
        if self.kind in {"GEMM", "ADD", "BARRIER"}:
            return ()
        banks = tuple(int(number) for number in self.arguments[:-1])
        if self.kind == "READ":
            return (banks[0], core)
        return (core, banks[0]) if self.kind == "WRITE" else banks


class CoreStep(Struct, frozen=True, eq=False):
    """One step as the instructions of all cores, in order of the wafer's numbers; a node has `cores` in a row."""

    name: str
    tokens: int
    cores: int
    traces: Sequence[Sequence[Instruction]]
