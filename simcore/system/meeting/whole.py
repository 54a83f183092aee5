"""Collectives told as a whole: what NPUs that do nothing else play on links that nobody else wants is known before.

It was played once by itself, when its like first came along. Who wants one of its links, or sends something else, ends
that: its chunks go on, each for itself, from where they are then.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from simcore.network.instant import DECISION, Environment, Timers, after
from simcore.system.chunks.scheduler import Gang, Scheduler, Span
from simcore.system.meeting.ahead import Ahead, Course, Timed, send_again, tell, write_past
from simcore.system.meeting.flights import Taken
from simcore.system.meeting.shared import Shared
from simcore.system.npus.npu import Legs, Route
from simcore.system.streams import Chunks, Dataset, Request, Stream

MOST_KNOWN = 8
"""Of what may follow a collective, so many variants are kept beside the last one.

Classes come apart by other times in other cells (stragglers, transfers between stages), and each such case is told
anew. Few come back; where none does, the bound keeps the list that is looked through short.
"""


Offsets = tuple[int, ...]
"""When each class sends a collective, in nanoseconds from its beginning; 0 where it begins with the last."""
_Kind = tuple[int, Chunks, Offsets]
"""What makes collectives do the same: the first class, the phases, and when classes send."""


class _Whole(Struct, eq=False):
    """A collective that classes send; `broken`, each of its chunks goes its own way.

    `came` says when they have. Those that are not yet through are in `there`. Once it has begun it follows a `course`,
    and `free` gives its links back. What lies `ahead` may be told with it.
    """

    classes: Sequence[int]
    there: dict[int, Dataset] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    broken: bool = False
    begin_ns: int = 0
    chunks: Chunks = ()
    course: Course | None = None
    ahead: _Ahead | None = None
    free: Callable[[], None] | None = None


class _Ahead(NamedTuple):
    """Some legs of a cell, from number `first` on; they are counted from `zero_ns`."""

    told: Ahead
    first: int
    zero_ns: int


class Wholes:
    """The collectives of a run that are told as a whole; `gang` and `transport` play those that are not.

    Where all NPUs are in one group, it begins when the last has come. Where they are in several, some begin before
    others have come, of which `schedulers` know when they will, as they compute until then.
    """

    def __init__(self, env: Environment, gang: Gang, transport: Shared, schedulers: Sequence[Scheduler]):
        self._env, self._gang, self._transport, self._timers = env, gang, transport, Timers(env)
        self._schedulers = schedulers
        self._classes: dict[tuple[int, Chunks], tuple[Sequence[int], bool]] = {}
        self._seen: set[_Kind] = set()
        self._kinds: dict[Hashable, int] = {}
        self._courses: dict[_Kind, Course | None] = {}
        self._aheads: dict[tuple[int, Legs], list[Ahead]] = {}
        self._like: dict[tuple[Hashable, ...], Ahead] = {}  # by what makes classes of several groups alike
        self._coming: dict[tuple[str, int, int], _Whole] = {}
        self._of: dict[int, _Whole] = {}  # what a class is in
        self._ready: list[_Whole] = []

    def send(self, npu_class: int, dataset: Dataset) -> None:
        """A class sends a collective, whose chunks wait here until it can begin."""
        before, idle = self._of.pop(npu_class, None), len(dataset.owner.outstanding) == 1
        if before:
            self._break(before, decided=False)
        classes, in_one = self._classes_of(npu_class, dataset.chunks)
        key = (dataset.request.group, dataset.first, classes[0])
        whole = self._coming.get(key)
        if whole is None:
            whole = self._coming[key] = _Whole(classes)
            if not in_one:
                self._begin_later(whole)
        whole.came[npu_class] = int(self._env.now)
        whole.there[npu_class] = dataset
        if len(whole.came) == len(classes):
            del self._coming[key]
            if in_one:
                self._begin_later(whole)
        if not idle or whole.broken or (whole.course and dataset.chunks != whole.chunks):
            self._break(whole, decided=False)
            return
        self._of[npu_class] = whole
        if whole.course and len(whole.came) == len(classes):
            self._follow(whole, whole.course)

    def _begin_later(self, whole: _Whole) -> None:
        if not self._ready:
            after(self._env, 0, self._begin_all, DECISION)
        self._ready.append(whole)

    def _begin_all(self) -> None:
        ready, self._ready = self._ready, []
        for whole in ready:
            if not whole.broken and not self._begin(whole):
                self._break(whole, decided=False)

    def _classes_of(self, npu_class: int, chunks: Chunks) -> tuple[Sequence[int], bool]:
        """Whom chunks come to, through all their phases, and whether these are one group in each of them."""
        found = self._classes.get((npu_class, chunks))
        if found is None:
            dims = {phase.lane.dim for phases in chunks for phase in phases}
            near, there, groups = [npu_class], {npu_class}, dict[Hashable, int]()
            while near:
                at = near.pop()
                for name, classes in (self._gang.group_of(at, dim) for dim in dims):
                    if name not in groups:
                        groups[name] = len(classes)
                        near.extend(each for each in classes if each not in there)
                        there.update(classes)
            found = (sorted(there), all(size == len(there) for size in groups.values()))
            self._classes |= {(each, chunks): found for each in there}  # who is met by one meets it
        return found

    def _begin(self, whole: _Whole) -> bool:
        """Tell what a collective does, and what is told with it; False where that is not known, or links are used."""
        some, offsets = next(iter(whole.there.values())), self._offsets(whole)
        if offsets is None or any(each.chunks != some.chunks for each in whole.there.values()):
            return False
        course = self._course(whole.classes, some, offsets)
        whole.begin_ns, whole.chunks = int(self._env.now), some.chunks
        return course is not None and self._follow(whole, course)

    def _offsets(self, whole: _Whole) -> Offsets | None:
        """When each class sends a collective, from now on; None where some do more than compute until then."""
        request, now_ns = next(iter(whole.there.values())).request, int(self._env.now)
        found = []
        for npu_class in whole.classes:
            due, when_ns = self._schedulers[npu_class].due
            if npu_class not in whole.there and (due is not request or when_ns <= now_ns):
                return None
            found.append(0 if npu_class in whole.there else when_ns - now_ns)
        return tuple(found)

    def _follow(self, whole: _Whole, course: Course) -> bool:
        """Tell what a collective does, and what is told with it; False where somebody uses the links."""
        # Called when it begins and again when its last class comes: only then is it known where all of them go on.
        ahead, begun = self._look_ahead(whole), whole.course is not None
        if begun and not ahead:
            return True
        if whole.free:  # its own links, which it takes again, with those of the legs where these are free
            whole.free()
        now_ns = int(self._env.now)
        if ahead and self._take(whole, ahead.told.taken, ahead.zero_ns + max(ahead.told.legs[-1].left_ns)):
            whole.ahead = ahead
            for npu_class, then_ns in zip(ahead.told.places, ahead.told.legs[-1].then_ns, strict=True):
                self._timers.after(ahead.zero_ns + then_ns - now_ns, partial(self._past, whole, ahead, npu_class))
        elif not self._take(whole, course.taken, whole.begin_ns + course.exits[-1][0]):
            return False
        elif not begun:
            for exit_ns, classes in course.exits:
                self._timers.after(exit_ns, partial(self._through, whole, course, classes))
        whole.course = course
        return True

    def _take(self, whole: _Whole, taken: Taken, end_ns: int) -> bool:
        whole.free = self._transport.take(taken, end_ns, partial(self._break, whole, decided=True))
        return whole.free is not None

    def _course(self, classes: Sequence[int], some: Dataset, offsets: Offsets, *, soon: bool = False) -> Course | None:
        """What such a collective does; rehearsed for the second of its kind, as that costs as much as playing it."""
        key = classes[0], some.chunks, offsets
        if key not in self._courses:
            if key not in self._seen and not soon:
                self._seen.add(key)
                return None
            self._courses[key] = course = _Rehearsal(self._gang, self._transport).course(some, classes, offsets)
            phases = [phase for phases in some.chunks for phase in phases]
            if course:
                for npu_class, spans in course.spans.items():
                    same = *(self._transport.bytes_sent(npu_class, phase) for phase in phases), *map(tuple, spans)
                    course.kinds[npu_class] = self._kinds.setdefault(same, len(self._kinds))
        return self._courses[key]

    # What is told ahead.

    def _look_ahead(self, whole: _Whole) -> _Ahead | None:
        """What all classes do from a collective on, where that is known."""
        routes = [route for dataset in whole.there.values() if isinstance(route := dataset.route, Route)]
        if len(routes) < len(whole.classes) or len({route[2:] for route in routes}) > 1:
            return None
        some, came_ns = routes[0], {each: whole.came[each] - whole.begin_ns for each in whole.classes}
        known = self._aheads.setdefault((whole.classes[0], some.legs), [])
        told = next((each for each in known if each.fits(some.at, came_ns)), None)
        if told is None:
            course_of = partial(self._course_of, whole.classes)
            npus = sorted((route.npu for route in routes), key=lambda npu: npu.npu_class)  # as times are
            key = some.legs, some.at, tuple(came_ns.values()), *(id(npu.program.compute_ns) for npu in npus)
            like = self._like.get(key)
            told = (like and like.of_others(routes, came_ns, course_of)) or tell(routes, came_ns, course_of)
            if told:
                self._like[key] = told
            known[:] = [*known[-MOST_KNOWN:], told] if told else known
        if told is None:
            return None
        first = some.at - told.at
        return _Ahead(told, first, whole.begin_ns - told.legs[first].begin_ns)

    def _course_of(
        self, classes: Sequence[int], request: Request, chunks: Chunks, came_ns: Mapping[int, int]
    ) -> tuple[Course, bool] | None:
        """The course of a collective that classes send at some times, where nobody else is in it; whether it waits."""
        met, in_one = self._classes_of(classes[0], chunks)
        if met != classes:
            return None
        first_ns = min(came_ns.values())
        offsets = tuple(0 if in_one else came_ns[each] - first_ns for each in classes)
        course = self._course(classes, Dataset(self._env, request, chunks), offsets, soon=True)
        return (course, in_one) if course else None

    def _past(self, whole: _Whole, ahead: _Ahead, npu_class: int) -> None:
        """What was told of a class is over, if nobody has disturbed them."""
        if whole.broken:
            return
        if len(whole.there) == 1:
            begins_ns: dict[Course, list[int]] = {}
            for leg in ahead.told.legs[ahead.first :]:
                begins_ns.setdefault(leg.course, []).append(ahead.zero_ns + leg.begin_ns)
            for course, firsts_ns in begins_ns.items():
                self._transport.count(course.taken, firsts_ns)
        del self._of[npu_class]
        self._go_on_behind(whole.there.pop(npu_class), ahead, npu_class, len(ahead.told.legs) - 1)

    def _leave(self, whole: _Whole, ahead: _Ahead, there: Mapping[int, Dataset]) -> None:
        """Let every class go on by itself from where it is; what begins at this instant has begun."""
        # All that classes sent is the first leg's collective: who is in a later leg sends that one in its place now,
        # who has all of a leg's chunks only has to compute on. Links carried what began up to now.
        legs, now_ns = ahead.told.legs, int(self._env.now)
        since_ns = now_ns - ahead.zero_ns
        under_way: dict[int, dict[int, Dataset]] = {}
        for npu_class, dataset in there.items():
            place = ahead.told.places[npu_class]
            at = bisect(legs, since_ns, ahead.first, key=lambda leg: leg.came_ns[place]) - 1
            if legs[at].left_ns[place] <= since_ns:
                self._go_on_behind(dataset, ahead, npu_class, at)
            else:
                route, own = dataset.route, under_way.setdefault(at, {})
                own[npu_class] = dataset
                if isinstance(route, Route) and at > ahead.first:
                    own[npu_class] = send_again(dataset, route, ahead.told, at, ahead.zero_ns)
        for at, leg in enumerate(legs[ahead.first :], ahead.first):
            if at in under_way:
                self._resume(whole, ahead, leg, under_way[at])
            elif leg.begin_ns <= since_ns:
                self._transport.count(leg.course.taken, [ahead.zero_ns + leg.begin_ns], since_ns + 1 - leg.begin_ns)

    def _resume(self, whole: _Whole, ahead: _Ahead, leg: Timed, there: dict[int, Dataset]) -> None:
        """A collective under way, or one that waits for others, goes on by itself."""
        now_ns, begin_ns = int(self._env.now), ahead.zero_ns + leg.begin_ns
        all_ns = zip(ahead.told.places, (ahead.zero_ns + when_ns for when_ns in leg.came_ns), strict=True)
        came_ns = {npu_class: when_ns for npu_class, when_ns in all_ns if when_ns <= now_ns}
        begun = begin_ns <= now_ns
        # Who has not come yet computes and will look for the others: as for any collective that is under way or waits.
        alone = _Whole(whole.classes, {} if begun else there, came_ns, begun)
        if len(came_ns) < len(whole.classes):
            some = next(iter(there.values()))
            self._coming[some.request.group, some.first, whole.classes[0]] = alone
        if begun:
            self._go_on(leg.course, there, begin_ns, now_ns + 1)
        else:
            self._of |= dict.fromkeys(there, alone)

    def _go_on_behind(self, dataset: Dataset, ahead: _Ahead, npu_class: int, at: int) -> None:
        """A class has a leg behind it, and goes on by itself when it has computed what follows."""
        told, route, leg = ahead.told, dataset.route, ahead.told.legs[at]
        if isinstance(route, Route) and (rejoin := leg.leg.rejoin):
            then_ns = ahead.zero_ns + leg.then_ns[told.places[npu_class]]
            write_past(dataset, route, told, at + 1, ahead.zero_ns)
            route.npu.sends(route.cell.steps[rejoin.step] if rejoin.computed else None, then_ns)
            self._timers.after(then_ns - int(self._env.now), partial(route.npu.go_on, dataset, rejoin))

    def _through(self, whole: _Whole, course: Course, classes: Sequence[int]) -> None:
        """The time of some classes is over, if nobody has disturbed them."""
        if whole.broken or whole.ahead:
            return
        if len(classes) == len(whole.there) and len(whole.came) == len(whole.classes):
            self._transport.count(course.taken, [whole.begin_ns])
        for npu_class in classes:
            del self._of[npu_class]
            dataset = whole.there.pop(npu_class)
            dataset.owner.arrived(dataset, course.spans[npu_class], whole.begin_ns)

    def _break(self, whole: _Whole, *, decided: bool) -> None:
        """Let every chunk go its own way, from where it is; `decided`, what begins at this instant has begun."""
        whole.broken = True
        there, whole.there = whole.there, {}
        for npu_class in there:
            self._of.pop(npu_class, None)
        course, whole.course = whole.course, None
        if whole.ahead and whole.free:
            whole.free()
            self._leave(whole, whole.ahead, there)
            return
        if whole.free and course:
            whole.free()
            now_ns = int(self._env.now)
            self._go_on(course, there, whole.begin_ns, now_ns + 1 if decided else now_ns)
            return
        for npu_class, dataset in there.items():
            self._gang.enter(npu_class, dataset.streams.values())

    def _go_on(self, course: Course, there: Mapping[int, Dataset], begin_ns: int, until_ns: int) -> None:
        """Let chunks do what they do from a time on; all before has happened as it was told."""
        until = until_ns - begin_ns
        self._transport.count(course.taken, [begin_ns], until)
        flying: dict[tuple[int, int, int], dict[int, Stream]] = {}
        waiting = []
        for npu_class, dataset in there.items():
            chunks = zip([*dataset.streams.values()], course.spans[npu_class], strict=True)
            for number, (stream, spans) in enumerate(chunks):
                over = [span for span in spans if span[1] < until]
                dataset.owner.told(stream, over, begin_ns)
                if len(over) < len(spans) and (first_ns := spans[len(over)][0]) < until:
                    stream.begin_ns, stream.begun = begin_ns + first_ns, True
                    self._gang.occupy(npu_class, stream)
                    flying.setdefault((first_ns, number, stream.at), {})[npu_class] = stream
                elif len(over) < len(spans):
                    waiting.append((npu_class, stream))
        for begun, together in flying.items():
            self._transport.resume(course.begun[begun], together, begin_ns + begun[0], until_ns)
        for npu_class, stream in waiting:
            self._gang.enter(npu_class, [stream])


class _Rehearsal:
    """A collective by itself on an empty network."""

    def __init__(self, gang: Gang, transport: Shared):
        self._env = Environment()
        self._gang, self._transport = gang.empty(self._env, self._begin), transport.empty(self._env)
        self._begun: dict[tuple[int, int, int], list[int]] = {}
        self._spans: dict[Stream, list[Span]] = {}
        self._class_of: dict[Stream, int] = {}

    def course(self, dataset: Dataset, classes: Sequence[int], offsets: Offsets) -> Course | None:
        """What becomes of the chunks of a collective that classes send at some times; None where they meet."""
        own: dict[int, list[Stream]] = {}
        for npu_class, offset_ns in zip(classes, offsets, strict=True):
            own[npu_class] = [Stream((0, number), dataset, each) for number, each in enumerate(dataset.chunks)]
            self._spans |= {stream: [] for stream in own[npu_class]}
            self._class_of |= dict.fromkeys(own[npu_class], npu_class)
            after(self._env, offset_ns, partial(self._gang.enter, npu_class, own[npu_class]))
        self._env.run()
        taken = self._transport.taken()
        if taken is None:
            return None
        spans = {npu_class: [self._spans[stream] for stream in streams] for npu_class, streams in own.items()}
        exits: dict[int, list[int]] = {}
        for npu_class, chunks in spans.items():
            exits.setdefault(max(chunk[-1][1] for chunk in chunks), []).append(npu_class)
        return Course(spans, self._begun, sorted(exits.items()), taken)

    def _begin(self, streams: Mapping[int, Stream]) -> None:
        now_ns = int(self._env.now)
        for npu_class, stream in streams.items():
            self._begun.setdefault((now_ns, stream.key[1], stream.at), []).append(npu_class)
            stream.begin_ns = now_ns
        self._transport.start(streams, self._through)

    def _through(self, stream: Stream) -> None:
        self._spans[stream].append((stream.begin_ns, int(self._env.now)))
        (self._gang.move if stream.remaining else self._gang.leave)(self._class_of[stream], stream)
