"""Cells told ahead: what NPUs do from a collective on that send one after the other and compute in between.

Nobody else has a say in that while nobody wants their links: the course of each collective is known, it begins when
those before it are over and what lies between is computed. `whole` begins, and breaks off, what is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.system.streams import Chunks, Request
from simcore.timeline.events import COLUMNS
from simcore.workload.loops import Order, Ref, Step

if TYPE_CHECKING:
    from simcore.system.pipeline_npu import PipelineNpu, StageCell
    from simcore.system.shared import Taken
    from simcore.system.whole import Course, Offsets

START, END, LAYER, ITERATION = map(COLUMNS.index, ("start_ns", "end_ns", "layer", "iteration"))

Row = tuple[int, ...]


class Rejoin(NamedTuple):
    """Where an NPU goes on by itself: with a step of its cell, whose computation may be done.

    Where it waits for a collective until then, that is `ref`; it computes until `busy_ns` in any case.
    """

    step: int
    computed: bool
    ref: Ref | None = None
    busy_ns: int = 0


class Leg(Struct, eq=False):
    """A collective of a cell that is sent in a step, and awaited before the step `then` (0: together with others).

    `inside` is computed meanwhile, `after` behind it, up to `rejoin`: the next collective, or the end.
    """

    step: int
    ref: Ref
    order: Order
    then: int = 0
    rejoin: Rejoin | None = None
    inside: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)


class Legs(Struct, frozen=True, eq=False):
    """Collectives of a cell that follow each other, and the cell's rows."""

    rows: Sequence[int]
    legs: list[Leg] = field(default_factory=list)


class Route(NamedTuple):
    """Where in its cell an NPU sends a collective: number `at` of some legs."""

    npu: PipelineNpu
    cell: StageCell
    legs: Legs
    at: int


def legs_of(cell: StageCell, requests: Mapping[Ref, Request]) -> dict[int, tuple[Legs, int]]:
    """Which of some legs each collective of a cell is, by the step that sends it."""
    found: dict[int, tuple[Legs, int]] = {}
    legs, last = Legs(cell.passage.rows), None
    for at, step in enumerate(cell.steps):
        if last and step.before == last.ref:
            last.then = last.then or at
        if last:
            (last.after if last.then else last.inside).append(step)
        if step.issue and step.issue in requests:
            if last:
                last.rejoin = Rejoin(at, computed=True)
            if (last and not last.then) or not requests[step.issue].lanes:
                legs, last = Legs(cell.passage.rows), None
            if requests[step.issue].lanes:
                found[at] = (legs, len(legs.legs))
                last = Leg(at, step.issue, step.order)
                legs.legs.append(last)
        if last and (step.after == last.ref or (step.blocking and step.issue == last.ref)):
            last.then = last.then or at + 1
    if last:
        last.rejoin = Rejoin(len(cell.steps), computed=False)
    return found


class Timed(NamedTuple):
    """A leg with the course of its collective, which begins at `begin_ns`.

    By class: when it is sent, until when is computed what lies inside, when all chunks are there, when the NPU has that
    behind it, and when it comes to the next leg.
    """

    leg: Leg
    request: Request
    chunks: Chunks
    course: Course
    offsets: Offsets | None
    begin_ns: int
    came_ns: dict[int, int]
    busy_ns: dict[int, int]
    left_ns: dict[int, int]
    over_ns: dict[int, int]
    then_ns: dict[int, int]

    def fits(self, npu_class: int, came_ns: int) -> bool:
        """Whether a class that comes then, counted from the beginning, goes on when this one does.

        How early it comes is no matter where all wait for the last, and longer than they compute.
        """
        # Where all begin together (no offsets) a class that comes later only computes what is inside later. Unless it
        # is behind with that when the collective is done, what follows is the same; of the rows before that, those that
        # depend on when it came are written from its own times (`PipelineNpu.tell`). With offsets, the course differs.
        late_ns = came_ns - self.came_ns[npu_class] + self.begin_ns
        done_ns = self.left_ns[npu_class] + self.request.update_ns
        over_ns = max(self.busy_ns[npu_class] + late_ns, done_ns)
        return not late_ns or (self.offsets is None and over_ns == self.over_ns[npu_class])


class Ahead(Struct, frozen=True, eq=False):
    """Legs from number `at` on, in nanoseconds from the beginning of the first; `taken` are their links.

    `rows` are the events by class, those of a leg cut where its computation inside, its chunks, its own end and the
    computation behind it begin.
    """

    at: int
    legs: Sequence[Timed]
    rows: Mapping[int, NDArray[np.int64]]
    cuts: Mapping[int, Sequence[tuple[int, int, int, int]]]
    taken: Taken

    def fits(self, at: int, came_ns: Mapping[int, int]) -> bool:
        """Whether what follows leg number `at` is told here, where classes send it at times from its beginning."""
        first = at - self.at
        return 0 <= first < len(self.legs) and all(self.legs[first].fits(*each) for each in came_ns.items())


CourseOf = Callable[[Request, Chunks, Mapping[int, int]], "tuple[Course, Offsets | None] | None"]
"""What a collective does that classes send at some times, and how far apart they come where that matters."""


def tell(routes: Sequence[Route], came_ns: dict[int, int], course_of: CourseOf) -> Ahead | None:
    """What NPUs do that send a collective of their legs at times from its beginning; None where that is not known."""
    some, told = routes[0], list[Timed]()
    rows: dict[int, list[Row]] = {npu_class: [] for npu_class in came_ns}
    cuts: dict[int, list[tuple[int, int, int, int]]] = {npu_class: [] for npu_class in came_ns}
    bits: dict[tuple[int, int], int] = {}
    for leg in some.legs.legs[some.at :]:
        request = some.npu.program.requests[leg.ref]
        chunks = some.npu.scheduler.chunks_of(request)
        found = course_of(request, chunks, came_ns) if leg.then else None
        if found is None:
            break
        begin_ns = (max if found[1] is None else min)(came_ns.values())
        timed = Timed(leg, request, chunks, *found, begin_ns, came_ns, {}, {}, {}, {})
        for npu, *_ in routes:
            _play(npu, timed, rows[npu.npu_class], cuts[npu.npu_class])
        told.append(timed)
        came_ns = timed.then_ns
        for key, own, _ in timed.course.taken:
            bits[key] = bits.get(key, 0) | own
    if not told:
        return None
    tables = {npu_class: np.array(own, np.int64) for npu_class, own in rows.items()}
    for table in tables.values():
        table[:, LAYER] = np.searchsorted(some.legs.rows, table[:, LAYER])
    return Ahead(some.at, told, tables, cuts, [(key, own, {}) for key, own in bits.items()])


def _play(npu: PipelineNpu, timed: Timed, rows: list[Row], cuts: list[tuple[int, int, int, int]]) -> None:
    """Write what an NPU does in a leg."""
    own, spans, begin_ns, request = npu.npu_class, timed.course.spans[npu.npu_class], timed.begin_ns, timed.request
    at = len(rows)
    timed.busy_ns[own] = npu.computed(timed.leg.inside, timed.came_ns[own], rows.append)
    inside = len(rows)
    for phases, ends in zip(timed.chunks, spans, strict=True):
        for phase, (first_ns, last_ns) in zip(phases, ends, strict=True):
            rows.append(npu.scheduler.chunk(request, phase, begin_ns + first_ns, begin_ns + last_ns, 0))
    sent = len(rows)
    timed.left_ns[own] = begin_ns + max(each[-1][1] for each in spans)
    done_ns = timed.left_ns[own] + request.update_ns
    rows.extend(npu.awaited(request, timed.came_ns[own], timed.busy_ns[own], done_ns, 0))
    cuts.append((at, inside, sent, len(rows)))
    timed.over_ns[own] = max(done_ns, timed.busy_ns[own])
    timed.then_ns[own] = npu.computed(timed.leg.after, timed.over_ns[own], rows.append)
