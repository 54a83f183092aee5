"""Collectives told as a whole: what NPUs that do nothing else play on links that nobody else wants is known before.

It was played once by itself, when its like first came along. Who wants one of its links, or sends something else, ends
that: its chunks go on, each for itself, from where they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import simpy

from simcore.network.instant import Environment, Timers, after, at_end_of_instant
from simcore.system.gates import Gang, GangGate, Span
from simcore.system.shared import LAST, Shared, Taken
from simcore.system.streams import Chunks, Dataset, Stream

__all__ = ["Wholes"]


@dataclass(slots=True, eq=False)
class _Course:
    """What a collective does, in nanoseconds from its beginning.

    `spans` are beginnings and ends by class, chunk and phase. `begun` says which classes begin a phase of a chunk
    together, by time, number of the chunk and phase; `exits` which have all their chunks when.
    """

    spans: dict[int, list[list[Span]]]
    begun: dict[tuple[int, int, int], list[int]]
    exits: list[tuple[int, list[int]]]
    taken: Taken


Offsets = tuple[int, ...]
"""When each class sends a collective, in nanoseconds from the first."""
_Kind = tuple[int, Chunks, Offsets | None]
"""What makes collectives do the same: the first class, the phases, and when classes send where that matters."""


@dataclass(slots=True, eq=False)
class _Whole:
    """A collective that classes send; `broken`, each of its chunks goes its own way.

    `came` says when they have. Those that are not yet through are in `there`. Once it has begun it follows a `course`,
    and `free` gives its links back.
    """

    classes: Sequence[int]
    offsets: Offsets | None
    there: dict[int, Dataset] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    broken: bool = False
    begin_ns: int = 0
    course: _Course | None = None
    free: Callable[[], None] | None = None


@dataclass(slots=True)
class _Habit:
    """How far apart classes sent a collective last, and what is expected next: what was so twice."""

    expected: Offsets | None
    last: Offsets | None = None

    def learn(self, offsets: Offsets) -> None:
        """Keep how far apart they came now."""
        self.expected = offsets if offsets in (self.last, self.expected) else None
        self.last = offsets


class Wholes:
    """The collectives of a run that are told as a whole; `gang` and `transport` play those that are not.

    Where all NPUs are in one group, it begins when the last has come. Where they are in several, some begin before
    others have come: when these will come is expected to be as it was before.
    """

    def __init__(self, env: Environment, gang: Gang, transport: Shared):
        self._env, self._gang, self._transport, self._timers = env, gang, transport, Timers(env)
        self._classes: dict[tuple[int, Chunks], tuple[Sequence[int], bool]] = {}
        self._seen: set[_Kind] = set()
        self._courses: dict[_Kind, _Course | None] = {}
        self._habits: dict[tuple[int, Chunks], _Habit] = {}
        self._coming: dict[tuple[str, int, int], _Whole] = {}
        self._of: dict[int, _Whole] = {}  # what a class is in
        self._ready: list[_Whole] = []

    def send(self, npu_class: int, dataset: Dataset, *, idle: bool) -> None:
        """A class sends a collective, whose chunks wait here until it can begin; `idle`, it has no other."""
        before = self._of.pop(npu_class, None)
        if before:
            self._break(before, decided=False)
        classes, in_one = self._classes_of(npu_class, dataset.chunks)
        key = (dataset.request.group, dataset.first, classes[0])
        whole = self._coming.get(key)
        if whole is None:
            whole = self._coming[key] = _Whole(
                classes, None if in_one else self._habit(classes, dataset.chunks).expected
            )
            if not in_one:
                self._begin_later(whole)
        whole.came[npu_class] = int(self._env.now)
        whole.there[npu_class] = dataset
        if len(whole.came) == len(classes):
            del self._coming[key]
            if in_one:
                self._begin_later(whole)
            else:
                first_ns = min(whole.came.values())
                self._habit(classes, dataset.chunks).learn(tuple(whole.came[each] - first_ns for each in classes))
        if not idle or whole.broken or self._transport.keeps_log or (whole.course and not self._fits(whole, npu_class)):
            self._break(whole, decided=False)
        else:
            self._of[npu_class] = whole

    def _habit(self, classes: Sequence[int], chunks: Chunks) -> _Habit:
        found = self._habits.get((classes[0], chunks))
        if found is None:
            found = self._habits[classes[0], chunks] = _Habit((0,) * len(classes))
        return found

    def _fits(self, whole: _Whole, npu_class: int) -> bool:
        """Whether a class that comes after the beginning comes when it was expected, with what was."""
        here, other = whole.there[npu_class], next(iter(whole.there.values()))
        expected = self._due(whole).get(npu_class)
        return int(self._env.now) - whole.begin_ns == expected and here.chunks == other.chunks

    def _due(self, whole: _Whole) -> dict[int, int]:
        return dict(zip(whole.classes, whole.offsets or (0,) * len(whole.classes), strict=True))

    def _begin_later(self, whole: _Whole) -> None:
        if not self._ready:
            at_end_of_instant(self._env, 0, self._begin_all)
        self._ready.append(whole)

    def _begin_all(self, _: simpy.Event) -> None:
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
        """Whether it is known what a collective will do."""
        some = next(iter(whole.there.values()))
        due = self._due(whole)
        now = {npu_class for npu_class, offset_ns in due.items() if not offset_ns}
        if (whole.offsets is None and len(whole.came) < len(whole.classes)) or now != whole.there.keys():
            return False
        if any(dataset.chunks != some.chunks for dataset in whole.there.values()):
            return False
        course = self._course((whole.classes[0], some.chunks, whole.offsets), some, due)
        if course is None:
            return False
        whole.begin_ns = int(self._env.now)
        end_ns = whole.begin_ns + course.exits[-1][0]
        whole.free = self._transport.take(course.taken, end_ns, partial(self._break, whole, decided=True))
        if whole.free is None:
            return False
        whole.course = course
        for exit_ns, classes in course.exits:
            self._timers.after(exit_ns, partial(self._through, whole, classes))
        for offset_ns in sorted({*due.values()} - {0}):
            at_end_of_instant(self._env, offset_ns, partial(self._check, whole))
        return True

    def _course(self, key: _Kind, some: Dataset, due: Mapping[int, int]) -> _Course | None:
        """What such a collective does; rehearsed for the second of its kind, as that costs as much as playing it."""
        if key not in self._courses:
            if key not in self._seen:
                self._seen.add(key)
                return None
            self._courses[key] = _Rehearsal(self._gang, self._transport).course(some, due)
        return self._courses[key]

    def _check(self, whole: _Whole, _: simpy.Event) -> None:
        """Whether all are there that were expected by now."""
        now_ns = int(self._env.now) - whole.begin_ns
        if not whole.broken and any(due <= now_ns and each not in whole.came for each, due in self._due(whole).items()):
            self._break(whole, decided=False)

    def _through(self, whole: _Whole, classes: Sequence[int]) -> None:
        """The time of some classes is over, if nobody has disturbed them."""
        if whole.broken or whole.course is None:
            return
        if len(classes) == len(whole.there) and len(whole.came) == len(whole.classes):
            self._transport.count(whole.course.taken, whole.begin_ns, LAST)
        for npu_class in classes:
            del self._of[npu_class]
            spans = whole.course.spans[npu_class]
            self._gang.gates[npu_class].owner.arrived(whole.there.pop(npu_class), spans, whole.begin_ns)

    def _break(self, whole: _Whole, *, decided: bool) -> None:
        """Let every chunk go its own way, from where it is; `decided`, what begins at this instant has begun."""
        whole.broken = True
        there, whole.there = whole.there, {}
        for npu_class in there:
            self._of.pop(npu_class, None)
        course, whole.course = whole.course, None
        if whole.free and course:
            whole.free()
            now_ns = int(self._env.now)
            self._go_on(course, there, whole.begin_ns, now_ns + 1 if decided else now_ns)
            return
        for npu_class, dataset in there.items():
            for stream in dataset.streams.values():
                self._gang.gates[npu_class].enter(stream)

    def _go_on(self, course: _Course, there: Mapping[int, Dataset], begin_ns: int, until_ns: int) -> None:
        """Let chunks do what they do from a time on; all before has happened as it was told."""
        until = until_ns - begin_ns
        self._transport.count(course.taken, begin_ns, until)
        flying: dict[tuple[int, int, int], dict[int, Stream]] = {}
        waiting = []
        for npu_class, dataset in there.items():
            gate = self._gang.gates[npu_class]
            chunks = zip([*dataset.streams.values()], course.spans[npu_class], strict=True)
            for number, (stream, spans) in enumerate(chunks):
                over = [span for span in spans if span[1] < until]
                gate.owner.told(stream, over, begin_ns)
                if len(over) < len(spans) and (first_ns := spans[len(over)][0]) < until:
                    stream.begin_ns, stream.begun = begin_ns + first_ns, True
                    gate.occupy(stream)
                    flying.setdefault((first_ns, number, stream.at), {})[npu_class] = stream
                elif len(over) < len(spans):
                    waiting.append((gate, stream))
        for begun, together in flying.items():
            self._transport.resume(course.begun[begun], together, begin_ns + begun[0], until_ns)
        for gate, stream in waiting:
            gate.enter(stream)


class _Rehearsal:
    """A collective by itself on an empty network."""

    def __init__(self, gang: Gang, transport: Shared):
        self._env = Environment()
        self._gang, self._transport = gang.empty(self._env), transport.empty(self._env)
        self._begun: dict[tuple[int, int, int], list[int]] = {}
        self._spans: dict[Stream, list[Span]] = {}
        self._gates: dict[Stream, GangGate] = {}

    def course(self, dataset: Dataset, due: Mapping[int, int]) -> _Course | None:
        """What becomes of the chunks of a collective that each class sends when it is due; None where they meet."""
        own: dict[int, list[Stream]] = {}
        for npu_class, offset_ns in due.items():
            gate = self._gang.gate(npu_class, self)
            own[npu_class] = [Stream(("", number), dataset, each) for number, each in enumerate(dataset.chunks)]
            self._spans |= {stream: [] for stream in own[npu_class]}
            self._gates |= dict.fromkeys(own[npu_class], gate)
            after(self._env, offset_ns, partial(self._enter, own[npu_class]))
        self._env.run()
        taken = self._transport.taken()
        if taken is None:
            return None
        spans = {npu_class: [self._spans[stream] for stream in streams] for npu_class, streams in own.items()}
        exits: dict[int, list[int]] = {}
        for npu_class, chunks in spans.items():
            exits.setdefault(max(chunk[-1][1] for chunk in chunks), []).append(npu_class)
        return _Course(spans, self._begun, sorted(exits.items()), taken)

    def _enter(self, streams: Sequence[Stream], _: simpy.Event) -> None:
        for stream in streams:
            self._gates[stream].enter(stream)

    def begin(self, streams: Mapping[int, Stream]) -> None:
        """As `gates.Owner`."""
        now_ns = int(self._env.now)
        for npu_class, stream in streams.items():
            self._begun.setdefault((now_ns, stream.key[1], stream.at), []).append(npu_class)
            stream.begin_ns = now_ns
        self._transport.start(streams, self._through)

    def told(self, stream: Stream, spans: Sequence[Span], begin_ns: int) -> None:
        """As `gates.Owner`; here nothing is told."""

    def arrived(self, dataset: Dataset, spans: Sequence[Sequence[Span]], begin_ns: int) -> None:
        """As `gates.Owner`; here nothing is told."""

    def _through(self, stream: Stream) -> None:
        self._spans[stream].append((stream.begin_ns, int(self._env.now)))
        gate = self._gates[stream]
        if stream.remaining:
            gate.move(stream)
        else:
            gate.leave(stream)
