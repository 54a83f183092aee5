"""Replaying a graph: copies of a step laid end to end, every node as early as its edges allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

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
    step, made, played, lasting = _Step(graph, changes, begins_ns or {}, before_ns or {}), list[Column](), 0, False
    while played < (copies or LEAST_COPIES) or not (copies or lasting or played == MOST_COPIES):
        made.append(step.another(made))
        played += 1
        recent = made[-1 - step.reach :]
        ahead_ns = None if copies or played <= step.reach else step.ahead(recent)
        lasting = ahead_ns is not None and not ahead_ns.any()
        if ahead_ns is not None and ahead_ns.any():
            made = [each + np.array([ahead_ns, ahead_ns, 0 * ahead_ns]) for each in recent]
    start_ns, end_ns, binding = np.stack(made, axis=1)
    return Timing(start_ns, end_ns, binding, lasting)


class _Step:
    """The edges of a graph that are kept, by `row`, and the copies that they make; a node waits for at most `reach`
    copies before its own, by at least two of which a pace is told.

    A copy is its nodes' starts, ends and binding edges.
    """

    def __init__(self, graph: StepGraph, changes: Changes, begins_ns: Mapping[int, int], before_ns: Mapping[int, int]):
        self.graph, self.begins_ns, self.before_ns = graph, np.zeros_like(graph.duration_ns), before_ns
        self.begins_ns[list(begins_ns)] = list(begins_ns.values())
        lag = graph.lag_ns + (graph.residual_ns if changes.residual else 0) - (0 if changes.gaps else graph.idle_ns)
        # No task begins before the one it overlaps, however short that one is made; a full queue holds the call's end.
        overlapping = graph.edge_kind != EdgeKind.BACKPRESSURE
        lag = np.where(overlapping, np.maximum(lag, -graph.duration_ns[graph.source]), lag)
        self.row = np.flatnonzero(~np.isin(graph.edge_kind, [int(kind) for kind in changes.dropped()]))
        self.source, self.target, self.lag_ns, self.back = (
            column[self.row] for column in (graph.source, graph.target, lag, graph.back)
        )
        self.within, self.reach = np.flatnonzero(self.back == 0), max(int(self.back.max(initial=0)), 2)

    def another(self, made: Sequence[Column]) -> Column:
        """The next copy, behind those that were made."""
        ready_ns, earliest_ns = np.full(len(self.row), LONG_AGO), self.begins_ns if not made else 0 * self.begins_ns
        for back in np.unique(self.back[self.back > 0]).tolist():
            ends_ns = made[-back][1] if back <= len(made) else np.full(len(earliest_ns), LONG_AGO)
            if back == 1 and not made:
                ends_ns[list(self.before_ns)] = list(self.before_ns.values())
            some = self.back == back
            ready_ns[some] = ends_ns[self.source[some]] + self.lag_ns[some]
        floor_ns = earliest_ns.copy()
        np.maximum.at(floor_ns, self.target, ready_ns)
        start_ns = self._starts(floor_ns)
        end_ns = start_ns + self.graph.duration_ns
        ready_ns[self.within] = (end_ns[self.source] + self.lag_ns)[self.within]
        binding = np.full(len(end_ns), NOWHERE)
        holding = np.flatnonzero(ready_ns == start_ns[self.target])[::-1]
        binding[self.target[holding]] = self.row[holding]
        return np.array([start_ns, end_ns, np.where(start_ns > earliest_ns, binding, NOWHERE)])

    def ahead(self, made: Sequence[Column]) -> Column | None:
        """How far each node moves on until the first one waits for another than now; where none ever does, until the
        quickest nodes of each rank are its latest.

        None where nodes do not move on by a time of their own from copy to copy, 0 where all stays as it is for ever.
        """
        ends = np.array([rows[1] for rows in made])
        (*before, pace), source, target = np.diff(ends, axis=0), self.source, self.target
        if any((steps != pace).any() for steps in before):
            return None
        gaining = pace[source] > pace[target]
        if gaining.any():
            slack_ns = (made[-1][0][target] - ends[-1 - self.back, source] - self.lag_ns)[gaining]
            copies = int((slack_ns // (pace[source] - pace[target])[gaining]).min())
        else:
            gain_ns, last_ns = _of_rank(self.graph, pace) - pace, ends[-2]
            lead_ns = last_ns - _of_rank(self.graph, np.where(gain_ns == 0, last_ns, LONG_AGO))
            copies = int((-(-lead_ns // np.maximum(gain_ns, 1))).max(initial=0))
        further_ns = pace - pace.min()
        copies = min(copies, FURTHEST_NS // max(int(further_ns.max()), 1))
        return copies * further_ns if copies or not gaining.any() else None

    @cached_property
    def _in_order(self) -> list[tuple[int, int, int]]:
        """The edges within a copy, those into a node before those from it: source, target, from start to start."""
        order = np.array(self.graph.order, dtype=np.int64)
        place = np.zeros(len(self.graph.kind), dtype=np.int64)
        place[order] = np.arange(len(order))
        edges = self.within[np.argsort(place[self.target[self.within]], kind="stable")]
        apart_ns = self.lag_ns + self.graph.duration_ns[self.source]
        columns = (self.source, self.target, apart_ns)
        return list(zip(*(column[edges].tolist() for column in columns), strict=True))

    def _starts(self, earliest_ns: Column) -> Column:
        """When the nodes of a copy start that each start at a time at the earliest."""
        start = earliest_ns.tolist()
        for source, target, apart_ns in self._in_order:
            ready = start[source] + apart_ns
            if ready > start[target]:
                start[target] = ready
        return np.array(start, dtype=np.int64)


def _of_rank(graph: StepGraph, values: Column) -> Column:
    """The largest value on each node's rank; nodes of no rank (-1) have the last place."""
    largest = np.full(len(graph.ranks) + 1, LONG_AGO)
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
