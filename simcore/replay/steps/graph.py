"""The dependency graph of one training step, in columns, and its builder.

A node is a stretch of host time, a point on a thread, or a task on a stream. It starts when every edge into it
allows: at the end of the edge's source plus its lag. `back` counts copies: an edge with back 1 comes from the previous
step's copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.workload.kineto import Column
from simcore.workload.order import topological


class NodeKind(IntEnum):
    """Where a node runs: HOST on a thread; TASK occupies a stream; ARRIVAL is a rank reaching a collective, where it is
    of no rank (-1) the last one of all.
    """

    HOST = 0
    ARRIVAL = 1
    TASK = 2


class EdgeKind(IntEnum):
    """Why one node waits for another; the names are the keys of the report."""

    PROGRAM_ORDER = 0
    CROSS_THREAD = 1
    LAUNCH = 2
    SYNC = 3
    STREAM = 4
    INTERSTREAM = 5
    INTERSTREAM_INFERRED = 6
    BACKPRESSURE = 7
    COLLECTIVE = 8


class RankNodes(Struct):
    """What the report needs of one rank: its step marks and where each of its tasks begins and ends.

    `tasks`, `begins`, `ends` are parallel: row of the trace's tasks, the nodes whose start and whose end bound it.
    """

    begin: int
    end: int
    tasks: list[int] = []
    begins: list[int] = []
    ends: list[int] = []


class StepGraph(Struct, frozen=True, eq=False):
    """Columns of nodes (`kind`, `duration_ns`, `rank`, `lane`, `name`, `measured_ns`) and of edges.

    `lane` is a thread of a HOST node, else a stream; `name` a number of the rank's names or -1. `lag_ns` includes
    `idle_ns` (host time in which nothing was recorded) and `loader_ns` (in the data loader) and leaves out
    `residual_ns` (delay nothing explains). `order` lists the nodes so that every source within the same copy comes
    first; `left_out` counts edges that contradicted the recorded times.
    """

    kind: Column
    duration_ns: Column
    rank: Column
    lane: Column
    name: Column
    measured_ns: Column
    source: Column
    target: Column
    edge_kind: Column
    lag_ns: Column
    idle_ns: Column
    loader_ns: Column
    residual_ns: Column
    back: Column
    order: list[int]
    ranks: tuple[RankNodes, ...]
    left_out: int = 0

    def kept(self, edges: NDArray[np.bool_]) -> StepGraph:
        """The graph with some of its edges."""
        return replace(self, **{name: getattr(self, name)[edges] for name in EDGE_COLUMNS})

    def lasting(self, factors: Sequence[NDArray[np.float64]]) -> StepGraph:
        """The graph in which each task takes its factor times as long; `factors` of each rank's trace, by its tasks."""
        durations = self.duration_ns.astype(float)
        for nodes, factor in zip(self.ranks, factors, strict=True):
            durations[nodes.ends] *= factor[nodes.tasks]
        return replace(self, duration_ns=np.rint(durations).astype(np.int64))

    def in_order(self) -> StepGraph:
        """The graph with its nodes in order; those on a circle are missing there."""
        within = self.back == 0
        return replace(self, order=topological(len(self.kind), self.source[within], self.target[within]))

    def same(self, other: StepGraph) -> bool:
        """Whether both say the same."""
        columns = (*NODE_COLUMNS, *EDGE_COLUMNS)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def edge_counts(self, rank: int) -> dict[str, int]:
        """Edges into the nodes of one rank, by kind."""
        counts = np.bincount(self.edge_kind[self.rank[self.target] == rank], minlength=len(EdgeKind))
        return {kind.name.lower(): int(counts[kind]) for kind in EdgeKind}


# In the order of the rows that the builder collects.
NODE_COLUMNS, EDGE_COLUMNS = StepGraph.__struct_fields__[:6], StepGraph.__struct_fields__[6:14]


class GraphBuilder:
    """Collects nodes and edges row by row."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, int, int, int, int]] = []
        self.edges: list[tuple[int, int, int, int, int, int, int, int]] = []
        self.ranks: list[RankNodes] = []

    def node(self, kind: NodeKind, duration_ns: int, rank: int, lane: int, measured_ns: int, name: int = -1) -> int:
        """Add a node; its number."""
        self.nodes.append((kind, duration_ns, rank, lane, name, measured_ns))
        return len(self.nodes) - 1

    def edge(
        self,
        kind: EdgeKind,
        source: int,
        target: int,
        lag_ns: int = 0,
        *,
        idle_ns: int = 0,
        loader_ns: int = 0,
        residual_ns: int = 0,
        back: int = 0,
    ) -> None:
        """Let `target` start no earlier than the end of `source`, `back` copies ago, plus the lag."""
        self.edges.append((source, target, kind, lag_ns, idle_ns, loader_ns, residual_ns, back))

    def graph(self, blocked: Callable[[list[int]], Exception]) -> StepGraph:
        """The finished graph.

        Where nodes wait for each other in a circle, because a trace's times contradict each other, edges of one rank
        that lead back in recorded time are left out; `blocked(nodes)` makes the error raised when that does not help.
        """
        nodes, edges = np.array(self.nodes, np.int64).reshape(-1, 6), np.array(self.edges, np.int64).reshape(-1, 8)
        columns = dict(zip((*NODE_COLUMNS, *EDGE_COLUMNS), (*nodes.T.copy(), *edges.T.copy()), strict=True))
        made = StepGraph(**columns, order=[], ranks=tuple(self.ranks)).in_order()
        if len(made.order) < len(nodes):
            source, target, recorded = made.source, made.target, made.measured_ns
            later = (recorded[source] > recorded[target]) | ((recorded[source] == recorded[target]) & (source > target))
            later &= (made.back == 0) & (made.rank[source] == made.rank[target])
            made = replace(made.kept(~later).in_order(), left_out=int(later.sum()))
        if len(made.order) < len(nodes):
            raise blocked(sorted(set(range(len(nodes))) - set(made.order)))
        return made
