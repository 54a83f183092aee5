"""Collectives told as a whole: what NPUs that do nothing else play on links that nobody else wants is known before.

It was played once by itself, when its like first came along. Who wants one of its links, or sends something else, ends
that: its chunks go on, each for itself, from where they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import simpy

from simcore.network.instant import Timers, at_end_of_instant
from simcore.system.gates import Gang, GangGate
from simcore.system.shared import LAST, Shared, Taken
from simcore.system.streams import Stream, StreamPhase

__all__ = ["Wholes"]

Chunks = tuple[tuple[StreamPhase, ...], ...]
_Span = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Course:
    """What a collective does, in nanoseconds from its beginning.

    `spans` are beginnings and ends by class, chunk and phase. `begun` says which classes begin a phase of a chunk
    together, by time, number of the chunk and phase; `exits` which have all their chunks when.
    """

    spans: dict[int, list[list[_Span]]]
    begun: dict[tuple[int, int, int], list[int]]
    exits: list[tuple[int, list[int]]]
    taken: Taken


@dataclass(slots=True, eq=False)
class _Whole:
    """A collective that some classes have sent; `broken`, each of its chunks goes its own way.

    Once it has begun, those that are not yet through are in `there`, and `free` gives its links back.
    """

    classes: Sequence[int]
    there: dict[int, Sequence[Stream]] = field(default_factory=dict)
    broken: bool = False
    come: int = 0
    begin_ns: int = 0
    course: _Course | None = None
    free: Callable[[], None] | None = None


class Wholes:
    """The collectives of a run that are told as a whole; `gang` and `transport` play those that are not."""

    def __init__(self, env: simpy.Environment, gang: Gang, transport: Shared):
        self._env, self._gang, self._transport, self._timers = env, gang, transport, Timers(env)
        self._classes: dict[tuple[int, Chunks], Sequence[int]] = {}
        self._courses: dict[tuple[int, Chunks], _Course | None] = {}
        self._coming: dict[tuple[tuple[str, int], int], _Whole] = {}
        self._of: dict[int, _Whole] = {}  # what a class is in
        self._complete: list[_Whole] = []

    def send(self, npu_class: int, streams: Sequence[Stream], *, idle: bool) -> None:
        """A class sends a collective, whose chunks wait here until all its NPUs have; `idle`, it has no other."""
        before = self._of.pop(npu_class, None)
        if before:
            self._break(before, decided=False)
        classes = self._classes_of(npu_class, streams)
        key = (streams[0].key, classes[0])
        whole = self._coming.get(key)
        if whole is None:
            whole = self._coming[key] = _Whole(classes)
        whole.come += 1
        whole.there[npu_class] = streams
        if whole.come == len(classes):
            del self._coming[key]
        if not idle or whole.broken or self._transport.keeps_log:
            self._break(whole, decided=False)
            return
        self._of[npu_class] = whole
        if whole.come == len(classes):
            if not self._complete:
                at_end_of_instant(self._env, 0, self._begin_all)
            self._complete.append(whole)

    def _classes_of(self, npu_class: int, streams: Sequence[Stream]) -> Sequence[int]:
        """Whom chunks come to, through all their phases."""
        key = (npu_class, tuple(stream.phases for stream in streams))
        found = self._classes.get(key)
        if found is None:
            phases = {phase for stream in streams for phase in stream.phases}
            near, there = [npu_class], {npu_class}
            while near:
                at = near.pop()
                others = {each for phase in phases for each in self._gang.group_of(at, phase.lane.dim)[1]} - there
                near.extend(others)
                there |= others
            found = self._classes[key] = sorted(there)
        return found

    def _begin_all(self, _: simpy.Event) -> None:
        complete, self._complete = self._complete, []
        for whole in complete:
            if not whole.broken and not self._begin(whole):
                self._break(whole, decided=False)

    def _begin(self, whole: _Whole) -> bool:
        """Whether it is known what a collective that all have sent will do."""
        streams = whole.there[whole.classes[0]]
        chunks = tuple(stream.phases for stream in streams)
        if any([stream.phases for stream in own] != list(chunks) for own in whole.there.values()):
            return False
        key = (whole.classes[0], chunks)
        if key not in self._courses:
            self._courses[key] = _Rehearsal(self._gang, self._transport).course(whole.there)
        course = whole.course = self._courses[key]
        if course is None:
            return False
        whole.begin_ns = int(self._env.now)
        end_ns = whole.begin_ns + course.exits[-1][0]
        whole.free = self._transport.take(course.taken, end_ns, partial(self._break, whole, decided=True))
        if whole.free is None:
            return False
        for exit_ns, classes in course.exits:
            self._timers.after(exit_ns, partial(self._through, whole, classes))
        return True

    def _through(self, whole: _Whole, classes: Sequence[int]) -> None:
        """The time of some classes is over, if nobody has disturbed them."""
        if whole.broken or whole.course is None:
            return
        if len(classes) == len(whole.there):
            self._transport.count(whole.course.taken, whole.begin_ns, LAST)
        for npu_class in classes:
            del self._of[npu_class]
            owner = self._gang.gates[npu_class].owner
            for stream, spans in zip(whole.there.pop(npu_class), whole.course.spans[npu_class], strict=True):
                owner.told(stream, spans, whole.begin_ns)

    def _break(self, whole: _Whole, *, decided: bool) -> None:
        """Let every chunk go its own way, from where it is; `decided`, what begins at this instant has begun."""
        whole.broken = True
        there, whole.there = whole.there, {}
        for npu_class in there:
            self._of.pop(npu_class, None)
        if whole.free is None or whole.course is None:
            for npu_class, streams in there.items():
                for stream in streams:
                    self._gang.gates[npu_class].enter(stream)
            return
        whole.free()
        now_ns = int(self._env.now)
        self._go_on(whole.course, there, whole.begin_ns, now_ns + 1 if decided else now_ns)

    def _go_on(self, course: _Course, there: Mapping[int, Sequence[Stream]], begin_ns: int, until_ns: int) -> None:
        """Let chunks do what they do from a time on; all before has happened as it was told."""
        until = until_ns - begin_ns
        self._transport.count(course.taken, begin_ns, until)
        flying: dict[tuple[int, int, int], dict[int, Stream]] = {}
        waiting = []
        for npu_class, streams in there.items():
            gate = self._gang.gates[npu_class]
            for number, (stream, spans) in enumerate(zip(streams, course.spans[npu_class], strict=True)):
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
        self._env = simpy.Environment()
        self._gang, self._transport = gang.empty(self._env), transport.empty(self._env)
        self._begun: dict[tuple[int, int, int], list[int]] = {}
        self._spans: dict[Stream, list[_Span]] = {}
        self._gates: dict[Stream, GangGate] = {}
        self._first = 0

    def course(self, there: Mapping[int, Sequence[Stream]]) -> _Course | None:
        """What becomes of the chunks of some classes; None where they meet on links."""
        own = {
            npu_class: [Stream(stream.key, stream.dataset, stream.phases) for stream in streams]
            for npu_class, streams in there.items()
        }
        for npu_class, streams in own.items():
            gate, self._first = self._gang.gate(npu_class, self), streams[0].key[1]
            for stream in streams:
                self._spans[stream], self._gates[stream] = [], gate
                gate.enter(stream)
        self._env.run()
        taken = self._transport.taken()
        if taken is None:
            return None
        spans = {npu_class: [self._spans[stream] for stream in streams] for npu_class, streams in own.items()}
        exits: dict[int, list[int]] = {}
        for npu_class, chunks in spans.items():
            exits.setdefault(max(chunk[-1][1] for chunk in chunks), []).append(npu_class)
        return _Course(spans, self._begun, sorted(exits.items()), taken)

    def begin(self, streams: Mapping[int, Stream]) -> None:
        """As `gates.Owner`."""
        now_ns = int(self._env.now)
        for npu_class, stream in streams.items():
            self._begun.setdefault((now_ns, stream.key[1] - self._first, stream.at), []).append(npu_class)
            stream.begin_ns = now_ns
        self._transport.start(streams, self._through)

    def told(self, stream: Stream, spans: Sequence[_Span], begin_ns: int) -> None:
        """As `gates.Owner`; here nothing is told."""
        raise NotImplementedError

    def _through(self, stream: Stream) -> None:
        self._spans[stream].append((stream.begin_ns, int(self._env.now)))
        gate = self._gates[stream]
        if stream.remaining:
            gate.move(stream)
        else:
            gate.leave(stream)
