"""Run-time stream order: where several threads launch on one stream, the order of their launches decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simcore.replay.graph import EdgeKind, Graph, NodeKind, ordered
from simcore.replay.run import Schedule

__all__ = ["reordered"]

Column = NDArray[np.int64]
NOWHERE = -1


def reordered(graph: Graph, schedule: Schedule) -> Graph | None:
    """The graph with its streams in the launch order of a schedule's last copy; None when they are.

    A schedule of a graph whose streams are in its own launch order is what an event-driven run gives in which tasks
    queue up as they are launched. Streams whose recorded order is not that of the recorded launches stay as they are.
    """
    launcher, edge = _into(graph, EdgeKind.LAUNCH), _into(graph, EdgeKind.STREAM)
    source, back, moved = graph.source.copy(), graph.back.copy(), False
    for begins, ends in _chains(graph):
        calls = launcher[begins]
        if (calls == NOWHERE).any() or (edge[begins] == NOWHERE).any():
            continue
        calls = graph.source[calls]
        recorded, now = graph.measured_ns[calls], schedule.end_ns[-1, calls]
        current = _positions(graph, edge[begins], ends)
        wanted = np.lexsort((current, now))
        if (np.diff(recorded) < 0).any() or (np.diff(current[wanted]) > 0).all():
            continue
        moved = True
        source[edge[begins[wanted]]] = ends[np.roll(wanted, 1)]
        back[edge[begins[wanted]]] = np.arange(len(wanted)) == 0
    if not moved:
        return None
    changed = replace(graph, source=source, back=back, order=[])
    return replace(changed, order=ordered(changed))


def _into(graph: Graph, kind: EdgeKind) -> Column:
    """For each node the edge of a kind into it, -1 without; a collective's own halves do not count."""
    rows = np.flatnonzero((graph.edge_kind == kind) & (graph.kind[graph.source] != NodeKind.ARRIVAL))
    edges = np.full(len(graph.kind), NOWHERE)
    edges[graph.target[rows]] = rows
    return edges


def _chains(graph: Graph) -> list[tuple[Column, Column]]:
    """(nodes that begin, nodes that end) of the tasks of each stream with at least two, in recorded order."""
    chains = []
    for nodes in graph.ranks:
        begins, ends = np.array(nodes.begins, dtype=np.int64), np.array(nodes.ends, dtype=np.int64)
        lanes = graph.lane[begins]
        chains += [(begins[lanes == lane], ends[lanes == lane]) for lane in np.unique(lanes)]
    return [chain for chain in chains if len(chain[0]) > 1]


def _positions(graph: Graph, edges: Column, ends: Column) -> Column:
    """Where each task of a chain stands on its stream now, following the edges from the first."""
    after = dict(zip(graph.source[edges].tolist(), range(len(ends)), strict=True))
    first = int(np.flatnonzero(graph.back[edges])[0])
    places, at = np.empty(len(ends), dtype=np.int64), first
    for place in range(len(ends)):
        places[at] = place
        at = after[int(ends[at])]
    return places
