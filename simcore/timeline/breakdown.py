"""Where the time went: figures computed from the event table, in whole nanoseconds.

Everything rests on one idea, the union of intervals: time counts once, however many things happen in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.timeline.events import COMPUTE_STREAM, NO_LAYER, EventKind, EventTable, Timeline

Ints = NDArray[np.int64]

NUM_PHASES = 3
COMPUTING = (EventKind.COMPUTE, EventKind.CPU)
COMMUNICATION = (EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV, EventKind.MEMORY)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Four disjoint shares of one NPU's time; they add up to the run's time.

    `compute_ns` is work (kernels or host) without communication, `overlapped_ns` work and communication at once,
    `exposed_comm_ns` communication alone, `idle_ns` neither.
    """

    compute_ns: int
    overlapped_ns: int
    exposed_comm_ns: int
    idle_ns: int


class ClassFigures(Struct, frozen=True, eq=False):
    """One entry per class of NPUs, in ns; `exposed_comm_ns` is finish less compute, `idle_ns` when nothing happens."""

    finish_ns: Ints
    compute_ns: Ints
    comm_ns: Ints
    exposed_comm_ns: Ints
    idle_ns: Ints


class OperationTotal(Struct, frozen=True):
    """All intervals of one name and kind: how many, and the sum of their lengths."""

    name: str
    kind: EventKind
    count: int
    total_ns: int


def merge(start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """The union of half-open intervals as disjoint intervals in ascending order; empty ones vanish.

    >>> merge(np.array([5, 0, 2]), np.array([9, 3, 4]))
    (array([0, 5]), array([4, 9]))
    """
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], end_ns[order]
    filled = end > start
    start, end = start[filled], end[filled]
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    opens = np.r_[True, start[1:] > reach[:-1]]
    closes = np.r_[opens[1:], True]
    return start[opens], reach[closes]


def union_ns(start_ns: Ints, end_ns: Ints) -> int:
    """Length of the union of half-open intervals.

    >>> union_ns(np.array([0, 2, 7]), np.array([3, 4, 9]))
    6
    """
    starts, ends = merge(start_ns, end_ns)
    return int((ends - starts).sum())


def coverage(start_ns: Ints, end_ns: Ints, edges_ns: Ints) -> NDArray[np.float64]:
    """The share of each bin that the union of the intervals covers; `edges_ns` ascend strictly.

    >>> coverage(np.array([0, 2]), np.array([3, 5]), np.array([0, 4, 8])).tolist()
    [1.0, 0.25]
    """
    starts, ends = merge(start_ns, end_ns)
    return filled(starts, ends, np.ones(len(starts)), edges_ns)


def filled(start_ns: Ints, end_ns: Ints, shares: NDArray[np.float64], edges_ns: Ints) -> NDArray[np.float64]:
    """The mean over each bin of what intervals take at once, each its share of something and together at most 1.

    >>> filled(np.array([0, 2]), np.array([4, 6]), np.array([0.5, 0.75]), np.array([0, 4, 8])).tolist()
    [0.75, 0.375]
    """
    times, steps = np.r_[start_ns, end_ns, edges_ns[0]], np.r_[shares, -shares, 0.0]
    order = np.argsort(times, kind="stable")
    level = np.clip(np.cumsum(steps[order]), 0.0, 1.0)
    before = np.r_[0.0, np.cumsum(level[:-1] * np.diff(times[order]))]
    means: NDArray[np.float64] = np.diff(np.interp(edges_ns, times[order], before)) / np.diff(edges_ns)
    return means


def of_class(events: EventTable, npu_class: int) -> EventTable:
    """The rows of one class."""
    return events.where(events.npu_class == npu_class)


def of_kinds(events: EventTable, kinds: Iterable[EventKind]) -> EventTable:
    """The rows of the given kinds."""
    return events.where(np.isin(events.kind, [int(kind) for kind in kinds]))


def class_figures(timeline: Timeline) -> ClassFigures:
    """The figures of every class at once."""
    events, finish = timeline.events, np.asarray(timeline.finish_ns, dtype=np.int64)
    compute = _union_by_class(timeline, of_kinds(events, [EventKind.COMPUTE]))
    active = of_kinds(events, COMPUTING + COMMUNICATION)
    before_finish = np.minimum(active.end_ns, finish[active.npu_class])
    return ClassFigures(
        finish_ns=finish,
        compute_ns=compute,
        comm_ns=_union_by_class(timeline, of_kinds(events, COMMUNICATION)),
        exposed_comm_ns=finish - compute,
        idle_ns=finish - _union_by_class(timeline, active, before_finish),
    )


def _union_by_class(timeline: Timeline, events: EventTable, end_ns: Ints | None = None) -> Ints:
    """Length of the union of the rows' intervals, per class: classes are laid one behind the other on one axis."""
    ends = events.end_ns if end_ns is None else end_ns
    span = int(ends.max(initial=0)) + 1
    starts, ends = merge(events.start_ns + span * events.npu_class, ends + span * events.npu_class)
    lengths = np.zeros(len(timeline.ranks), dtype=np.int64)
    np.add.at(lengths, starts // span, ends - starts)
    return lengths


def breakdown(timeline: Timeline, npu_class: int = 0) -> Breakdown:
    """The four shares of the run's time of one class of NPUs."""
    events = of_class(timeline.events, npu_class)
    work = of_kinds(events, COMPUTING)
    talk = of_kinds(events, COMMUNICATION)
    return shares((work.start_ns, work.end_ns), (talk.start_ns, talk.end_ns), timeline.time_ns)


def shares(work: tuple[Ints, Ints], communication: tuple[Ints, Ints], length_ns: int) -> Breakdown:
    """The four shares of a span of time, from the starts and ends of what works and what communicates in it."""
    busy, communicating = union_ns(*work), union_ns(*communication)
    either = union_ns(*(np.r_[one, other] for one, other in zip(work, communication, strict=True)))
    overlapped = busy + communicating - either
    return Breakdown(busy - overlapped, overlapped, communicating - overlapped, length_ns - either)


def layer_figures(timeline: Timeline, classes: Iterable[int] = (0,)) -> Ints:
    """Nanoseconds of computing, of collectives from issue to completion, of standing still for them, over iterations.

    The shape is (3, layers, phases), phases as in `PhaseName`. Pipeline stages have layers of their own: one class of
    each says what all layers take.
    """
    events = timeline.events
    events = events.where(np.isin(events.npu_class, list(classes)) & (events.layer != NO_LAYER) & (events.phase >= 0))
    sums = np.zeros((3, len(timeline.layers), NUM_PHASES), dtype=np.int64)
    for figures, kind in zip(sums, (EventKind.COMPUTE, EventKind.COLLECTIVE, EventKind.WAIT), strict=True):
        own = of_kinds(events, [kind])
        np.add.at(figures, (own.layer, own.phase), own.end_ns - own.start_ns)
    return sums


def operation_totals(timeline: Timeline) -> tuple[OperationTotal, ...]:
    """What class 0 does by name, longest first; chunks and waiting, which are parts of others, are left out."""
    events = of_kinds(of_class(timeline.events, 0), COMPUTING + COMMUNICATION)
    keys, group, counts = np.unique(events.name * len(EventKind) + events.kind, return_inverse=True, return_counts=True)
    totals = np.zeros(len(keys), dtype=np.int64)
    np.add.at(totals, group, events.end_ns - events.start_ns)
    names, kinds = np.divmod(keys, len(EventKind))
    rows = zip(names.tolist(), kinds.tolist(), counts.tolist(), totals.tolist(), strict=True)
    operations = (
        OperationTotal(events.names[name], EventKind(kind), count, total) for name, kind, count, total in rows
    )
    return tuple(sorted(operations, key=lambda each: -each.total_ns))


def dimension_traffic(timeline: Timeline) -> list[tuple[int, int]]:
    """Bytes that an NPU of class 0 sends in each dimension, and for how long at least one of its chunks is there."""
    chunks = of_kinds(of_class(timeline.events, 0), [EventKind.CHUNK, EventKind.SEND])
    streams = range(COMPUTE_STREAM + 1, COMPUTE_STREAM + 1 + len(timeline.dims))
    each = (chunks.where(chunks.stream == stream) for stream in streams)
    return [(int(c.size_bytes.sum()), union_ns(c.start_ns, c.end_ns)) for c in each]


def shares_of_time(
    events: EventTable, kinds: tuple[EventKind, ...], classes: Ints, edges_ns: Ints
) -> NDArray[np.float64]:
    """How much of each bin the union of a class's events of these kinds covers, class by class."""
    chosen = of_kinds(events, kinds)
    order = np.argsort(chosen.npu_class, kind="stable")
    bounds = np.searchsorted(chosen.npu_class[order], [classes, classes + 1])
    rows = (order[first:last] for first, last in bounds.T)
    return np.array([coverage(chosen.start_ns[each], chosen.end_ns[each], edges_ns) for each in rows])
