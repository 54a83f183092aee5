"""One operation of one node: what it reads, computes and sends.

Operations are multiply-accumulates; activations are never counted as memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import Any, NamedTuple

Group = tuple[int, ...]


class Part(Enum):
    """What of a layer an operation is: its attention, its feed-forward part, or what a mixture of experts has."""

    ATTENTION = "attention"
    DENSE = "dense"
    MIXTURE = "gate and exchange"
    EXPERT = "expert"
    SHARED = "shared"
    REJOINED = "outputs brought to the cluster"


class Owner(NamedTuple):
    """The part of a layer that an operation is of."""

    layer: str
    part: Part


class Operation(NamedTuple):
    """A row of a node's file.

    `shape` holds the numbers of the row's Dimensions column, its meaning depends on `kind`; `group` the nodes that
    take part in (or, for a multicast, receive) a communication. Tensors are named "node:uid". In training every
    operation within a stage says whose it is (`of`).
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


def collective(
    node: int, uid: str, kind: str, shape: Sequence[int], element_bytes: int, group: Group, source: str
) -> Operation:
    """AllReduce, AllGather or Multicast of a tensor ("" when it is empty): its bytes count once, for any number of
    members.
    """
    size = prod(shape) * element_bytes
    outputs = tuple(tensor(other, f"{uid}_{node}") for other in group) if kind == "Multicast" else (tensor(node, uid),)
    inputs = (source,) if source else ()
    return Operation(uid, kind, tuple(shape), inputs, outputs, network_bytes=size, group=group)


def move(node: int, uid: str, kind: str, shape: tuple[Any, ...], *sources: str) -> Operation:
    """An operation that only renames, cuts, joins or adds vectors: View, Split, Transpose, Slice, Concat, Sum, Add."""
    # Millions of them: as a plain tuple, in half the time.
    return tuple.__new__(Operation, (uid, kind, shape, sources, (f"{node}:{uid}",), 0, 0, 0, 0, None, None))
