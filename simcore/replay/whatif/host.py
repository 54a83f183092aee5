"""What if the host were faster or slower, its data loader too, or launched and waited less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from simcore.replay.graph import EdgeKind, NodeKind, StepGraph
from simcore.replay.rank import RankView
from simcore.replay.whatif.changes import Edit, within
from simcore.units import format_ranks

HOST_EDGES = (EdgeKind.PROGRAM_ORDER, EdgeKind.CROSS_THREAD)
HOST_TIMES = ("host", "launches", "loader")


def host(which: str, factor: float, ranks: tuple[range, ...] = ()) -> Edit:
    """Host time takes `factor` times as long: all but the data loader ("host"), launching calls, or the data loader.

    `ranks` limits it to some ranks; () is all of them. Waiting for the device is no host time.
    """

    def edit(graph: StepGraph, views: Sequence[RankView], _: Sequence[int]) -> StepGraph:
        chosen = np.array([not ranks or within(rank, ranks) for rank in views])
        calls = (graph.kind == NodeKind.HOST) & chosen[graph.rank]
        if which == "launches":
            calls &= np.isin(np.arange(len(calls)), graph.source[graph.edge_kind == EdgeKind.LAUNCH])
        between = np.isin(graph.edge_kind, HOST_EDGES) & chosen[graph.rank[graph.target]] & (graph.lag_ns > 0)
        loader = np.where(between, np.minimum(graph.loader_ns, graph.lag_ns), 0)
        own = {"host": np.where(between, graph.lag_ns - loader, 0), "loader": loader}.get(which, 0 * loader)
        less, idle = np.rint(own * (1 - factor)).astype(np.int64), np.minimum(graph.idle_ns, own)
        durations = graph.duration_ns
        if which != "loader":
            durations = np.where(calls, np.rint(durations * factor).astype(np.int64), durations)
        return replace(
            graph,
            duration_ns=durations,
            lag_ns=graph.lag_ns - less,
            idle_ns=graph.idle_ns - np.rint(idle * (1 - factor)).astype(np.int64),
            loader_ns=graph.loader_ns - (less if which == "loader" else 0),
        )

    names = {"host": "host time", "launches": "launch calls", "loader": "the data loader"}
    where = f" on rank {format_ranks(list(chain(*ranks)))}" if ranks else ""
    return Edit(f"{names[which]}{where} x {factor:g}", edit, ranks=ranks)


def cuda_graphs() -> Edit:
    """One launch in place of many: behind each wait of a thread, and each stay in the data loader, one call is left.

    The host time between launches goes with them: launching calls that follow another one, and the way to them, take
    no time.
    """

    def edit(graph: StepGraph, *_: object) -> StepGraph:
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

    return Edit("CUDA graphs", edit)


def unsynchronised() -> Edit:
    """The host waits for nothing that the device does; its launch queue still has an end."""
    return Edit("no synchronisation", lambda graph, *_: graph.kept(graph.edge_kind != EdgeKind.SYNC))
