"""Cells told ahead: what NPUs do from a collective on that send one after the other and compute in between.

Nobody else has a say in that while nobody wants their links: the course of each collective is known, it begins when
those before it are over and what lies between is computed. `whole` begins, and breaks off, what is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.system.chunks.scheduler import Row, Span
from simcore.system.meeting.flights import Taken
from simcore.system.npus.npu import LAYER, Leg, Npu, Rejoin, Route
from simcore.system.streams import Chunks, Dataset, Request
from simcore.timeline.events import COLUMNS

CLASS, START, END, ITERATION = map(COLUMNS.index, ("npu_class", "start_ns", "end_ns", "iteration"))


class Course(Struct, eq=False):
    """What a collective does, in nanoseconds from its beginning.

    `spans` are beginnings and ends by class, chunk and phase. `begun` says which classes begin a phase of a chunk
    together, by time, number of the chunk and phase; `exits` which have all their chunks when. Classes of one of
    `kinds` have the same spans and send as much.
    """

    spans: dict[int, list[list[Span]]]
    begun: dict[tuple[int, int, int], list[int]]
    exits: list[tuple[int, list[int]]]
    taken: Taken
    kinds: dict[int, int] = field(default_factory=dict)


class Timed(NamedTuple):
    """A leg with the course of its collective, which begins at `begin_ns`; `waits`, all are in one group there.

    By place of the class among all: when it is sent, until when is computed what lies inside, when all chunks are
    there, when the NPU has that behind it, and when it comes to the next leg.
    """

    leg: Leg
    request: Request
    chunks: Chunks
    course: Course
    waits: bool
    begin_ns: int
    came_ns: list[int]
    busy_ns: list[int]
    left_ns: list[int]
    over_ns: list[int]
    then_ns: list[int]

    def fits(self, place: int, came_ns: int) -> bool:
        """Whether a class that comes then, counted from the beginning, goes on when this one does.

        How early it comes is no matter where all wait for the last, and longer than they compute.
        """
        # Where all wait for the last, a class that comes later only computes what is inside later. Unless it is behind
        # with that when the collective is done, what follows is the same; of the rows before that, those that depend
        # on when it came are written from its own times (`write_past`). Elsewhere the course differs.
        late_ns = came_ns - self.came_ns[place] + self.begin_ns
        done_ns = self.left_ns[place] + self.request.update_ns
        over_ns = max(self.busy_ns[place] + late_ns, done_ns)
        return not late_ns or (self.waits and over_ns == self.over_ns[place])


class Ahead(Struct, frozen=True, eq=False):
    """Legs from number `at` on, in nanoseconds from the beginning of the first; `taken` are their links.

    `places` say where each class stands. `rows` are the events by place, those of a leg cut where its computation
    inside, its chunks, its own end and the computation behind it begin.
    """

    at: int
    legs: Sequence[Timed]
    rows: Sequence[NDArray[np.int64]]
    cuts: Sequence[Sequence[tuple[int, int, int, int]]]
    taken: Taken
    places: Mapping[int, int]

    def fits(self, at: int, came_ns: Mapping[int, int]) -> bool:
        """Whether what follows leg number `at` is told here, where classes send it at times from its beginning."""
        first = at - self.at
        came = ((self.places[npu_class], time_ns) for npu_class, time_ns in came_ns.items())
        return 0 <= first < len(self.legs) and all(self.legs[first].fits(*each) for each in came)

    def of_others(self, routes: Sequence[Route], came_ns: dict[int, int], course_of: CourseOf) -> Ahead | None:
        """The same of other classes, as fast and sent at the same times; None where their collectives differ."""
        others = dict(zip(self.places, sorted(came_ns), strict=True))
        courses: dict[tuple[int, int], Course] = {}
        legs = []
        for timed in self.legs:
            key = id(timed.course), timed.request.root
            if key not in courses:
                chunks = routes[0].npu.scheduler.chunks_of(timed.request)
                found = course_of(timed.request, chunks, came_ns) if timed.waits else None
                if not found or not found[1] or chunks != timed.chunks:
                    return None
                if any(found[0].kinds[other] != timed.course.kinds[each] for each, other in others.items()):
                    return None
                courses[key] = found[0]
            legs.append(timed._replace(course=courses[key]))
        places = {npu_class: place for place, npu_class in enumerate(others.values())}
        return Ahead(self.at, legs, self.rows, self.cuts, _links(legs), places)


CourseOf = Callable[[Request, Chunks, Mapping[int, int]], "tuple[Course, bool] | None"]
"""What a collective does that classes send at some times, and whether it waits for the last of them."""


def tell(routes: Sequence[Route], came_ns: dict[int, int], course_of: CourseOf) -> Ahead | None:
    """What NPUs do that send a collective of their legs at times from its beginning; None where that is not known."""
    some, told = routes[0], list[Timed]()
    npus = sorted((route.npu for route in routes), key=lambda npu: npu.npu_class)
    played: list[list[_Played]] = [[] for _ in npus]
    for leg in some.legs.legs[some.at :]:
        request = some.npu.program.requests[leg.ref]
        chunks = some.npu.scheduler.chunks_of(request)
        found = course_of(request, chunks, came_ns) if leg.then else None
        if found is None:
            break
        begin_ns = (max if found[1] else min)(came_ns.values())
        timed = Timed(leg, request, chunks, *found, begin_ns, [came_ns[npu.npu_class] for npu in npus], [], [], [], [])
        for npu, came, legs in zip(npus, timed.came_ns, played, strict=True):
            legs.append(_play(npu, timed, came - begin_ns))
            for times, time_ns in zip(timed[-4:], legs[-1].times_ns, strict=True):
                times.append(begin_ns + time_ns)
        told.append(timed)
        came_ns = {npu.npu_class: time_ns for npu, time_ns in zip(npus, timed.then_ns, strict=True)}
    if not told:
        return None
    begins_ns = [timed.begin_ns for timed in told]
    tables = [_table(own, begins_ns) for own in played]
    for table in tables:
        table[:, LAYER] = np.searchsorted(some.legs.rows, table[:, LAYER])
    places = {npu.npu_class: place for place, npu in enumerate(npus)}
    return Ahead(some.at, told, tables, [*map(_cuts, played)], _links(told), places)


def _links(legs: Sequence[Timed]) -> Taken:
    """All that legs take."""
    bits: dict[tuple[int, int], int] = {}
    for course in {id(timed.course): timed.course for timed in legs}.values():
        for key, links, _ in course.taken:
            bits[key] = bits.get(key, 0) | links
    return [(key, links, {}) for key, links in bits.items()]


class _Played(NamedTuple):
    """What an NPU does in a leg, from the beginning of its collective: rows, where they are cut, and the last four
    times of a `Timed`.
    """

    rows: NDArray[np.int64]
    cuts: tuple[int, int, int]
    times_ns: tuple[int, int, int, int]


def _table(played: Sequence[_Played], begins_ns: Sequence[int]) -> NDArray[np.int64]:
    """The rows of its legs, of no class and no iteration."""
    table = np.concatenate([leg.rows for leg in played])
    table[:, START : END + 1] += np.repeat(begins_ns, [len(leg.rows) for leg in played])[:, None]
    table[:, [CLASS, ITERATION]] = 0  # whoever writes them has his own
    return table


def _cuts(played: Sequence[_Played]) -> list[tuple[int, int, int, int]]:
    """Where the rows of legs that follow each other are cut."""
    firsts = np.cumsum([0, *(len(leg.rows) for leg in played)]).tolist()
    return [(at, at + leg.cuts[0], at + leg.cuts[1], at + leg.cuts[2]) for at, leg in zip(firsts, played, strict=False)]


def _play(npu: Npu, timed: Timed, late_ns: int) -> _Played:
    """What an NPU does in a leg that it comes to then; who is as fast and has the same times does the same."""
    key = late_ns, id(npu.program.compute_ns), timed.course.kinds[npu.npu_class]
    found = timed.leg.played.get(key)
    if found is None:
        found = timed.leg.played[key] = _work_out(npu, timed, late_ns, timed.course.spans[npu.npu_class])
    return found


def _work_out(npu: Npu, timed: Timed, came_ns: int, spans: Sequence[Sequence[Span]]) -> _Played:
    rows: list[Row] = []
    request = timed.request
    busy_ns = npu.computed(timed.leg.inside, came_ns, rows.append)
    inside = len(rows)
    for phases, ends in zip(timed.chunks, spans, strict=True):
        for phase, (first_ns, last_ns) in zip(phases, ends, strict=True):
            rows.append(npu.scheduler.chunk(request, phase, first_ns, last_ns, 0))
    sent = len(rows)
    left_ns = max(each[-1][1] for each in spans)
    done_ns = left_ns + request.update_ns
    rows.extend(npu.awaited(request, came_ns, busy_ns, done_ns, 0))
    cuts = inside, sent, len(rows)
    over_ns = max(done_ns, busy_ns)
    then_ns = npu.computed(timed.leg.after, over_ns, rows.append)
    return _Played(np.array(rows, np.int64), cuts, (busy_ns, left_ns, over_ns, then_ns))


def write_past(dataset: Dataset, route: Route, ahead: Ahead, last: int, zero_ns: int) -> None:
    """Legs went by as was told, from that of `dataset` up to number `last`; they are counted from `zero_ns`."""
    npu, first = route.npu, route.at - ahead.at
    own = ahead.places[npu.npu_class]
    leg, cuts, rows = ahead.legs[first], ahead.cuts[own], ahead.rows[own]
    _, chunks, ended, after = cuts[first]
    npu.write(rows[chunks:ended], route.cell, zero_ns)
    issue_ns, done_ns = int(dataset.issue_ns), zero_ns + leg.left_ns[own] + leg.request.update_ns
    busy_ns = issue_ns + leg.busy_ns[own] - leg.came_ns[own]
    for row in npu.awaited(dataset.request, issue_ns, busy_ns, done_ns, dataset.iteration):
        npu.scheduler.events.append(row)
    npu.write(rows[after : cuts[last][0] if last < len(cuts) else None], route.cell, zero_ns)
    between = ahead.legs[first + 1 : last]
    npu.scheduler.count(dataset.request.group, sum(len(timed.chunks) for timed in between))
    for timed in between:
        npu.priorities.next(timed.leg.order)


def send_again(dataset: Dataset, route: Route, ahead: Ahead, at: int, zero_ns: int) -> Dataset:
    """A collective that was told ahead is under way from now on, in the place of the one that it was told with."""
    write_past(dataset, route, ahead, at, zero_ns)
    npu, timed = route.npu, ahead.legs[at]
    own = ahead.places[npu.npu_class]
    inside, chunks, *_ = ahead.cuts[own][at]
    npu.write(ahead.rows[own][inside:chunks], route.cell, zero_ns)
    ref = route.cell.steps[timed.leg.step].issue or timed.leg.ref
    npu.rejoin = Rejoin(timed.leg.then, False, ref, zero_ns + timed.busy_ns[own])
    issue_ns, priority = zero_ns + timed.came_ns[own], npu.priorities.next(timed.leg.order)
    return npu.scheduler.replace(dataset, npu.program.requests[ref], timed.chunks, issue_ns, priority)
