"""Operations of one node: what each reads, computes and sends, and what all that make them need to know.

Operations are multiply-accumulates; activations are never counted as memory.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from simcore.generate.wse.settings import Groups, System, groups, local_batches, own_batches
from simcore.model.shape import Model
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


# Yields the operations of a part in order; returns the name of the tensor it leaves.
Rows = Generator[Operation, None, str]


class Step(Struct, frozen=True):
    """One step: `queries` new positions per sequence on top of `context` cached ones."""

    name: str
    context: int
    queries: int

    @property
    def prefill(self) -> bool:
        """Whether there is no cache yet: a prefill or a training step."""
        return self.name in {"prefill", "train"}


def index_of(name: str) -> int:
    """The number in a layer's name."""
    return int(name.removeprefix("decode"))


class Scope(Struct, frozen=True, dict=True):
    """One node in one step; `movement` adds the rows that only cut and join tensors, `owners` says whose rows are."""

    model: Model
    system: System
    step: Step
    batch: int
    element_bytes: int
    node: int
    movement: bool = True
    owners: bool = False

    @cached_property
    def groups(self) -> Groups:
        """The nodes that are with this one."""
        return groups(self.system, self.node)

    @cached_property
    def local(self) -> range:
        """Sequences that attention works on here."""
        return local_batches(self.system, self.batch, self.node)

    @cached_property
    def own(self) -> range:
        """Sequences that this node sends to the experts."""
        return own_batches(self.system, self.batch, self.node)

    def owned(self, layer: str, part: Part, rows: Rows) -> Rows:
        """The rows of a part of a layer, which say so where that is asked for."""
        if not self.owners:
            return (yield from rows)
        while True:
            try:
                row = next(rows)
            except StopIteration as end:
                return str(end.value)
            yield row if row.of else row._replace(of=Owner(layer, part))

    def window(self, layer: str) -> int:
        """Positions that attention of a layer sees, the step's where no window ends before them."""
        every = self.step.context + self.step.queries
        return min(self.model.kind(index_of(layer)).window or every, every)

    def beside(self, layer: str) -> bool:
        """Whether attention and feed-forward part of a layer read the same input: their outputs have one sum."""
        return self.model.parallel_block and layer != "lm_head" and self.model.dense(index_of(layer))

    @cached_property
    def tokens(self) -> int:
        """Rows of every local activation: sequences times positions."""
        return len(self.local) * self.step.queries

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """The shape of every local activation."""
        return (len(self.local), self.step.queries, self.model.hidden)


class Block(Struct, frozen=True):
    """A part of a layer on one node: makes its rows, whose names begin with `name`.

    Cost formulas: WSE Workload Generator, commit 85e1ae7.
    """

    scope: Scope
    name: str

    def at(self, uid: str) -> str:
        """The tensor that a row leaves on this node."""
        return f"{self.scope.node}:{self.name}_{uid}"

    def linear(self, uid: str, shape: tuple[int, ...], source: str) -> Operation:
        """[M, K] x [K, N], or G of them: the weights are read once from HBM."""
        *groups, _, inner, outer = shape
        size = prod(groups) * inner * outer * self.scope.element_bytes
        name, kind = f"{self.name}_{uid}", "GroupedLinear" if groups else "Linear"
        return Operation(name, kind, shape, (source,), (self.at(uid),), prod(shape), size, size)

    def move(self, uid: str, kind: str, shape: tuple[Any, ...], *sources: str) -> Operation:
        """A row that only renames, cuts, joins or adds vectors."""
        node, name = self.scope.node, f"{self.name}_{uid}"
        # Millions of them: as a plain tuple, in half the time.
        return tuple.__new__(Operation, (name, kind, shape, sources, (f"{node}:{name}",), 0, 0, 0, 0, None, None))

    def collective(self, uid: str, kind: str, shape: tuple[int, ...], group: tuple[int, ...], source: str) -> Operation:
        """AllReduce, AllGather or Multicast of a tensor ("" when it is empty): its bytes count once, for any group."""
        node, name, size = self.scope.node, f"{self.name}_{uid}", prod(shape) * self.scope.element_bytes
        many = kind == "Multicast"
        outputs = tuple(tensor(other, f"{name}_{node}") for other in group) if many else (tensor(node, name),)
        return Operation(name, kind, shape, (source,) if source else (), outputs, network_bytes=size, group=group)

    def unicast(self, uid: str, goal: int, shape: tuple[int, ...], *inputs: str) -> Operation:
        """A tensor to one node; what stays costs nothing."""
        size = 0 if goal == self.scope.node else prod(shape) * self.scope.element_bytes
        outputs = (tensor(goal, f"{uid}_{self.scope.node}"),)
        return Operation(uid, "Unicast", shape, inputs, outputs, network_bytes=size, group=(goal,))

    def barrier(self, uid: str, group: tuple[int, ...]) -> Operation:
        """Some nodes wait for each other."""
        return Operation(f"{self.name}_barrier_{uid}", "Barrier", (), group=group)
