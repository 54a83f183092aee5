"""More or less overlap of communication and computation, as waits between streams that are added or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simcore.errors import SimulationError
from simcore.replay.graph import EdgeKind, Graph, ordered

__all__ = ["one_after_another", "without_waits"]

BETWEEN_STREAMS = (EdgeKind.INTERSTREAM, EdgeKind.INTERSTREAM_INFERRED)


def without_waits(graph: Graph, talks: NDArray[np.bool_]) -> Graph:
    """The graph without waits of one stream for another in which just one of the two tasks is communication."""
    between = np.isin(graph.edge_kind, BETWEEN_STREAMS) & (talks[graph.source] != talks[graph.target])
    return _kept(graph, ~between)


def _kept(graph: Graph, keep: NDArray[np.bool_]) -> Graph:
    """The graph with some of its edges."""
    return replace(
        graph,
        source=graph.source[keep],
        target=graph.target[keep],
        edge_kind=graph.edge_kind[keep],
        lag_ns=graph.lag_ns[keep],
        idle_ns=graph.idle_ns[keep],
        residual_ns=graph.residual_ns[keep],
        back=graph.back[keep],
    )


def one_after_another(graph: Graph, ranks: Sequence[Sequence[tuple[int, int, bool]]]) -> Graph:
    """The graph in which computation and communication take turns.

    `ranks` lists (first node, last node, communication) of each rank's tasks in launch order. A task waits for the
    last one of the other kind on every stream before it; the step's first ones for the previous copy's last. A wait for
    a kernel that was launched later and held the device is left out: it may not hold it any more.
    """
    graph = _kept(graph, ~_for_later_ones(graph, ranks))
    pairs = [pair for tasks in ranks for pair in _turns(graph, tasks)]
    source, target, back = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    nothing = np.zeros(len(pairs), dtype=np.int64)
    changed = replace(
        graph,
        source=np.r_[graph.source, source],
        target=np.r_[graph.target, target],
        edge_kind=np.r_[graph.edge_kind, np.full(len(pairs), EdgeKind.INTERSTREAM)],
        lag_ns=np.r_[graph.lag_ns, nothing],
        idle_ns=np.r_[graph.idle_ns, nothing],
        residual_ns=np.r_[graph.residual_ns, nothing],
        back=np.r_[graph.back, back],
    )
    changed = replace(changed, order=ordered(changed))
    if len(changed.order) < len(graph.kind):
        raise SimulationError(
            "--overlap off: tasks would wait for each other in a circle: launches contradict the streams"
        )
    return changed


def _for_later_ones(graph: Graph, ranks: Sequence[Sequence[tuple[int, int, bool]]]) -> NDArray[np.bool_]:
    """Inferred waits for a task of the same copy that was launched after the one that waits."""
    place = np.zeros(len(graph.kind), dtype=np.int64)
    for tasks in ranks:
        for number, (begin, end, _) in enumerate(tasks):
            place[[begin, end]] = number
    inferred = (graph.edge_kind == EdgeKind.INTERSTREAM_INFERRED) & (graph.back == 0)
    later: NDArray[np.bool_] = inferred & (place[graph.source] > place[graph.target])
    return later


def _turns(graph: Graph, tasks: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int, int]]:
    """(source, target, copies back) between each task and the last ones of the other kind before it."""
    last: dict[bool, dict[int, tuple[int, int]]] = {False: {}, True: {}}
    for _, end, talks in tasks:
        last[talks][int(graph.lane[end])] = end, 1
    pairs = []
    for begin, end, talks in tasks:
        pairs += [(source, begin, back) for source, back in last[not talks].values()]
        last[talks][int(graph.lane[end])] = end, 0
    return pairs
