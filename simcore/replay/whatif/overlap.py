"""More or less overlap of communication and computation, as waits between streams that are added or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simcore.errors import SimulationError
from simcore.replay.graph import EDGE_COLUMNS, EdgeKind, Graph, ordered

__all__ = ["one_after_another", "without_waits"]

BETWEEN_STREAMS = (EdgeKind.INTERSTREAM, EdgeKind.INTERSTREAM_INFERRED)


def without_waits(graph: Graph, talks: NDArray[np.bool_]) -> Graph:
    """The graph without waits of one stream for another in which just one of the two tasks is communication."""
    between = np.isin(graph.edge_kind, BETWEEN_STREAMS) & (talks[graph.source] != talks[graph.target])
    return graph.kept(~between)


def one_after_another(graph: Graph, ranks: Sequence[Sequence[tuple[int, int, bool]]]) -> Graph:
    """The graph in which computation and communication take turns.

    `ranks` lists (first node, last node, communication) of each rank's tasks in launch order. A task waits for the
    last one of the other kind on every stream before it; the step's first ones for the previous copy's last. A wait for
    a kernel that was launched later and held the device is left out: it may not hold it any more.
    """
    graph = graph.kept(~_for_later_ones(graph, ranks))
    pairs = [pair for tasks in ranks for pair in _turns(graph, tasks)]
    source, target, back = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    new = dict.fromkeys(EDGE_COLUMNS, np.zeros(len(pairs), dtype=np.int64))
    new |= {"source": source, "target": target, "back": back, "edge_kind": np.full(len(pairs), EdgeKind.INTERSTREAM)}
    changed = replace(graph, **{name: np.r_[getattr(graph, name), new[name]] for name in EDGE_COLUMNS})
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
