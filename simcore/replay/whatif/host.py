"""What if the host were faster or slower, its data loader too, or launched and waited less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from simcore.replay.graph import EdgeKind, NodeKind, StepGraph
from simcore.replay.rank import RankView
from simcore.units import format_ranks

HOST_EDGES = (EdgeKind.PROGRAM_ORDER, EdgeKind.CROSS_THREAD)
HOST_TIMES = ("host", "launches", "loader")


@dataclass(frozen=True, slots=True)
class Host:
    """Host time takes `factor` times as long: all but the data loader ("host"), launching calls, or the data loader.

    `ranks` limits it to some ranks; () is all of them. Waiting for the device is no host time.
    """

    which: str
    factor: float
    ranks: tuple[range, ...] = ()

    def __str__(self) -> str:
        names = {"host": "host time", "launches": "launch calls", "loader": "the data loader"}
        where = f" on rank {format_ranks(list(chain(*self.ranks)))}" if self.ranks else ""
        return f"{names[self.which]}{where} x {self.factor:g}"

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """Host nodes and the host's way between them, scaled."""
        chosen = np.array([not self.ranks or within(rank, self.ranks) for rank in ranks])
        host = (graph.kind == NodeKind.HOST) & chosen[graph.rank]
        if self.which == "launches":
            host &= np.isin(np.arange(len(host)), graph.source[graph.edge_kind == EdgeKind.LAUNCH])
        between = np.isin(graph.edge_kind, HOST_EDGES) & chosen[graph.rank[graph.target]] & (graph.lag_ns > 0)
        loader = np.where(between, np.minimum(graph.loader_ns, graph.lag_ns), 0)
        own = {"host": np.where(between, graph.lag_ns - loader, 0), "loader": loader}.get(self.which, 0 * loader)
        less, idle = np.rint(own * (1 - self.factor)).astype(np.int64), np.minimum(graph.idle_ns, own)
        durations = graph.duration_ns
        if self.which != "loader":
            durations = np.where(host, np.rint(durations * self.factor).astype(np.int64), durations)
        return replace(
            graph,
            duration_ns=durations,
            lag_ns=graph.lag_ns - less,
            idle_ns=graph.idle_ns - np.rint(idle * (1 - self.factor)).astype(np.int64),
            loader_ns=graph.loader_ns - (less if self.which == "loader" else 0),
        )


@dataclass(frozen=True, slots=True)
class CudaGraphs:
    """One launch in place of many: behind each wait of a thread, and each stay in the data loader, one call is left.

    The host time between launches goes with them.
    """

    def __str__(self) -> str:
        return "CUDA graphs"

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """Launching calls that follow another one, and the way to them, take no time."""
        nodes = np.arange(len(graph.kind))
        launching = np.isin(nodes, graph.source[graph.edge_kind == EdgeKind.LAUNCH])
        waiting = np.isin(nodes, graph.target[graph.edge_kind == EdgeKind.SYNC])
        order = (graph.edge_kind == EdgeKind.PROGRAM_ORDER) & (graph.back == 0)
        way = order & (graph.loader_ns == 0) & launching[graph.source] & launching[graph.target]
        way &= ~waiting[graph.source] & ~waiting[graph.target]
        durations, nothing = graph.duration_ns.copy(), np.int64(0)
        durations[graph.target[way]] = 0
        lag = np.where(way, np.minimum(graph.lag_ns, nothing), graph.lag_ns)
        return replace(graph, duration_ns=durations, lag_ns=lag, idle_ns=np.where(way, nothing, graph.idle_ns))


@dataclass(frozen=True, slots=True)
class Unsynchronised:
    """The host waits for nothing that the device does; its launch queue still has an end."""

    def __str__(self) -> str:
        return "no synchronisation"

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """The graph without waits of the host."""
        return graph.kept(graph.edge_kind != EdgeKind.SYNC)


def within(rank: RankView, ranks: tuple[range, ...]) -> bool:
    """Whether a trace is of one of some ranks."""
    return any(rank.trace.rank in span for span in ranks)
