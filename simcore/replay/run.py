"""Replaying a graph: copies of a step laid end to end, every node as early as its edges allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.replay.steps.graph import EdgeKind, NodeKind, StepGraph
from simcore.replay.steps.rank import LONG_AGO, NOWHERE
from simcore.workload.kineto import Column

LEAST_COPIES, MOST_COPIES = 4, 32
FURTHEST_NS = 1 << 56  # of one leap; 32 of them are still a number of 64 bits


class Changes(Struct, frozen=True):
    """What a replay leaves out or alters; the defaults change nothing."""

    interstream: bool = True
    sync: bool = True
    gaps: bool = True
    coupling: bool = True
    residual: bool = True

    def dropped(self) -> set[EdgeKind]:
        """Kinds of edges that are left out."""
        groups = (
            (self.interstream, {EdgeKind.INTERSTREAM, EdgeKind.INTERSTREAM_INFERRED}),
            (self.sync, {EdgeKind.SYNC, EdgeKind.BACKPRESSURE}),
            (self.coupling, {EdgeKind.COLLECTIVE}),
        )
        return {kind for kept, kinds in groups if not kept for kind in kinds}


UNAIDED = Changes(residual=False)  # dependencies alone
NULL = Changes(interstream=False, sync=False, coupling=False, residual=False)  # the null model: hardly any of them


class Timing(Struct, frozen=True, eq=False):
    """When each node starts and ends in each copy, shape (copies, nodes), in ns.

    `binding` is the edge that held the node, -1 when none did. `lasting`: all goes on for ever as in the last copies.
    """

    start_ns: Column
    end_ns: Column
    binding: Column
    lasting: bool

    @property
    def copies(self) -> int:
        """How many copies of the step were replayed."""
        return len(self.start_ns)

    def latest_ns(self, nodes: NDArray[np.bool_]) -> Column:
        """The latest end among some nodes, per copy."""
        latest: Column = self.end_ns[:, nodes].max(axis=1)
        return latest


def replay(
    graph: StepGraph,
    changes: Changes,
    *,
    begins_ns: Mapping[int, int] | None = None,
    before_ns: Mapping[int, int] | None = None,
    copies: int = 0,
) -> Timing:
    """Replay copies of a step until all of it repeats, or exactly `copies` of them.

    Copies in which every node only moves on are not played, however many: those from before them are then left out.
    `begins_ns` are starts of nodes in the first copy, `before_ns` ends of nodes in a copy before it. Every time is the
    largest over the edges of (end of the source + lag), which an event-driven run of the same dependencies gives too
    (tests/replay/test_engines.py); where launches at run time decide, `reordered` says so.
    """
    program, edges, lag_ns = _program(graph, changes)
    reach = max(int(graph.back[edges].max(initial=0)), 2)  # copies before its own that a node waits for, or tell a pace
    made, ends, played, lasting = list[Column](), list[list[int]](), 0, False
    while played < (copies or LEAST_COPIES) or not (copies or lasting or played == MOST_COPIES):
        rows = _one_copy(program, ends, {} if ends else begins_ns or {}, before_ns or {})
        made.append(np.array(rows, dtype=np.int64))
        ends.append(rows[1])
        played += 1
        ahead_ns = None if copies or played <= reach else _ahead(made[-1 - reach :], graph, edges, lag_ns)
        lasting = ahead_ns is not None and not ahead_ns.any()
        if ahead_ns is not None and ahead_ns.any():
            made = [each + np.array([ahead_ns, ahead_ns, 0 * ahead_ns]) for each in made[-1 - reach :]]
            ends = [each[1].tolist() for each in made]
    start_ns, end_ns, binding = np.stack(made, axis=1)
    return Timing(start_ns, end_ns, binding, lasting)


Program = list[tuple[int, int, list[tuple[int, int, int, int]]]]


def _program(graph: StepGraph, changes: Changes) -> tuple[Program, Column, Column]:
    """Nodes in order: (node, duration, [(source, lag, back, edge)]); the edges that are kept, their rows and lags."""
    kept = ~np.isin(graph.edge_kind, [int(kind) for kind in changes.dropped()])
    lag = graph.lag_ns + (graph.residual_ns if changes.residual else 0) - (0 if changes.gaps else graph.idle_ns)
    # No task begins before the one it overlaps, however short that one is made; a full queue holds the call's end.
    overlapping = graph.edge_kind != EdgeKind.BACKPRESSURE
    lag = np.where(overlapping, np.maximum(lag, -graph.duration_ns[graph.source]), lag)
    into: list[list[tuple[int, int, int, int]]] = [[] for _ in range(len(graph.kind))]
    rows = np.flatnonzero(kept)
    columns = (graph.target, graph.source, lag, graph.back)
    for target, source, edge_lag, back, edge in zip(*(c[rows].tolist() for c in columns), rows.tolist(), strict=True):
        into[target].append((source, edge_lag, back, edge))
    lengths = graph.duration_ns.tolist()
    return [(node, lengths[node], into[node]) for node in graph.order], rows, lag[rows]


def _one_copy(
    program: Program, ends: Sequence[list[int]], begins_ns: Mapping[int, int], before_ns: Mapping[int, int]
) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and binding edges of the next copy; `ends` are those of the copies before."""
    count, copy = len(program), len(ends)
    start, end, binding = [0] * count, [0] * count, [-1] * count
    for node, length, edges in program:
        at, held = begins_ns.get(node, 0), -1
        for source, lag, back, edge in edges:
            if not back:
                ready = end[source] + lag
            elif back <= copy:
                ready = ends[copy - back][source] + lag
            elif back == 1 and source in before_ns:
                ready = before_ns[source] + lag
            else:
                continue
            if ready > at:
                at, held = ready, edge
        start[node], binding[node], end[node] = at, held, at + length
    return start, end, binding


def _ahead(made: Sequence[Column], graph: StepGraph, edges: Column, lag_ns: Column) -> Column | None:
    """How far each node moves on until the first one waits for another than now; where none ever does, until the
    quickest nodes of each rank are its latest.

    None where nodes do not move on by a time of their own from copy to copy, 0 where all stays as it is for ever.
    """
    ends = np.array([rows[1] for rows in made])
    (*before, pace), source, target = np.diff(ends, axis=0), graph.source[edges], graph.target[edges]
    if any((steps != pace).any() for steps in before):
        return None
    gaining = pace[source] > pace[target]
    if gaining.any():
        slack_ns = (made[-1][0][target] - ends[-1 - graph.back[edges], source] - lag_ns)[gaining]
        copies = int((slack_ns // (pace[source] - pace[target])[gaining]).min())
    else:
        gain_ns, last_ns = _of_rank(graph, pace) - pace, ends[-2]
        lead_ns = last_ns - _of_rank(graph, np.where(gain_ns == 0, last_ns, LONG_AGO))
        copies = int((-(-lead_ns // np.maximum(gain_ns, 1))).max(initial=0))
    further_ns = pace - pace.min()
    copies = min(copies, FURTHEST_NS // max(int(further_ns.max()), 1))
    return copies * further_ns if copies or not gaining.any() else None


def _of_rank(graph: StepGraph, values: Column) -> Column:
    """The largest value on each node's rank."""
    largest = np.full(len(graph.ranks), LONG_AGO)
    np.maximum.at(largest, graph.rank, values)
    return largest[graph.rank]


def reordered(graph: StepGraph, timing: Timing) -> StepGraph | None:
    """The graph with its streams in the launch order of the last copy; None when they are.

    A timing of a graph whose streams are in its own launch order is what an event-driven run gives in which tasks
    queue up as they are launched. Streams whose recorded order is not that of the recorded launches stay as they are.
    """
    launcher, edge = _into(graph, EdgeKind.LAUNCH), _into(graph, EdgeKind.STREAM)
    source, back, moved = graph.source.copy(), graph.back.copy(), False
    for begins, ends in (
        (np.array(nodes.begins)[own], np.array(nodes.ends)[own])  # of the tasks of each stream, in recorded order
        for nodes in graph.ranks
        for lane in np.unique(graph.lane[nodes.begins])
        if np.count_nonzero(own := graph.lane[nodes.begins] == lane) > 1
    ):
        calls = launcher[begins]
        if (calls == NOWHERE).any() or (edge[begins] == NOWHERE).any():
            continue
        calls = graph.source[calls]
        recorded, now = graph.measured_ns[calls], timing.end_ns[-1, calls]
        current = _positions(graph, edge[begins], ends)
        wanted = np.lexsort((current, now))
        if (np.diff(recorded) < 0).any() or (np.diff(current[wanted]) > 0).all():
            continue
        moved = True
        source[edge[begins[wanted]]] = ends[np.roll(wanted, 1)]
        back[edge[begins[wanted]]] = np.arange(len(wanted)) == 0
    if not moved:
        return None
    return replace(graph, source=source, back=back).in_order()


def _into(graph: StepGraph, kind: EdgeKind) -> Column:
    """For each node the edge of a kind into it, -1 without; a collective's own halves do not count."""
    rows = np.flatnonzero((graph.edge_kind == kind) & (graph.kind[graph.source] != NodeKind.ARRIVAL))
    edges = np.full(len(graph.kind), NOWHERE)
    edges[graph.target[rows]] = rows
    return edges


def _positions(graph: StepGraph, edges: Column, ends: Column) -> Column:
    """Where each task of a chain stands on its stream now, following the edges from the first."""
    after = dict(zip(graph.source[edges].tolist(), range(len(ends)), strict=True))
    first = int(np.flatnonzero(graph.back[edges])[0])
    places, at = np.empty(len(ends), dtype=np.int64), first
    for place in range(len(ends)):
        places[at] = place
        at = after[int(ends[at])]
    return places
