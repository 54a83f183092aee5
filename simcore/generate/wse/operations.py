"""One operation of one node: what it reads, computes and sends.

Operations are multiply-accumulates; activations are never counted as memory.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from simcore.workload.model import PhaseName

Group = tuple[int, ...]
# Kinds of rows: those that cost nothing, for they only cut, join and rename tensors, and those of one meaning.
MOVEMENT = {"View", "Split", "Transpose", "Slice", "Concat", "Add", "Sum"}
LINEAR = {"Linear", "GroupedLinear"}
ATTENTION = {"MLAAbsorbAttention", "MLANaiveAttention", "SelfAttention"}
TOGETHER = {"AllReduce", "AllGather", "Barrier"}  # nobody goes on before all have come


class Part(Enum):
    """What of a layer an operation is: its attention, its feed-forward part, or what a mixture of experts has."""

    ATTENTION = "attention"
    DENSE = "dense"
    MIXTURE = "gate and exchange"
    EXPERT = "expert"
    SHARED = "shared"
    REJOINED = "outputs brought to the cluster"
    STAGES = "passed on between stages"


class Owner(NamedTuple):
    """The part of a layer that an operation is of, and of which of its passes; None: that is not known."""

    layer: str
    part: Part | None
    phase: PhaseName = PhaseName.FORWARD


class Operation(NamedTuple):
    """A row of a node's file.

    `shape` holds the numbers of the row's Dimensions column, its meaning depends on `kind`; `group` the nodes that
    take part in (or, for a multicast, receive) a communication. Tensors are named "node:uid". Where a backward
    pass or phases are made of them, operations that cost something say whose they are (`of`).
    """

    uid: str
    kind: str
    shape: tuple[Any, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    macs: int = 0
    memory_bytes: int = 0
    hbm_bytes: int = 0
    network_bytes: int = 0
    group: Group | None = None
    of: Owner | None = None


def tensor(node: int, uid: str) -> str:
    """The name of the tensor that operation `uid` leaves on `node`."""
    return f"{node}:{uid}"
