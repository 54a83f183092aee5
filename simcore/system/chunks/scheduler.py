"""The collectives of one NPU (or class of equal NPUs) on their way: cut into chunks, which begin their phases and end.

When a chunk may begin is up to a gate: of each NPU for itself (ASTRA-sim), or of all NPUs of a group together (native).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from heapq import heapify, heappop, heappush
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from simcore.network.instant import DECISION, Environment, after, at_once
from simcore.system.chunks.apart import Place, Then
from simcore.system.chunks.cut import Cutting, PhaseMaker
from simcore.system.chunks.turns import InTurn
from simcore.system.groups import GroupDim
from simcore.system.streams import BY_ID, Chunks, Dataset, Request, Stream, StreamPhase, Turns, begin, through
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, EventKind
from simcore.workload.model import CollectiveKind

CHUNK, COLLECTIVE = int(EventKind.CHUNK), int(EventKind.COLLECTIVE)
Row = tuple[int, ...]


class Scheduler:
    """Queues of one NPU class, of which `npu` is one; its collectives are cut by `rules`.

    Where NPUs begin together, each communicator takes its own turns, as its members may have others in between. An NPU
    that acts for itself has a `place`; for others `in_turn`, if there is one, knows who acts first.
    """

    def __init__(
        self,
        env: Environment,
        npu_class: int,
        npu: int,
        rules: Cutting,
        transport: Transport,
        events: EventBuffer,
        gate: Gate,
        in_turn: InTurn | None = None,
        place: Place | None = None,
    ):
        self.env, self.npu_class, self._transport = env, npu_class, transport
        self.events, self._gate, self._apart = events, gate, rules.afresh
        self._makers: dict[str, PhaseMaker] = defaultdict(lambda: place.maker if place else PhaseMaker(npu, rules))
        self.in_turn, self.place, self.orders = in_turn, place, bool(in_turn or place)
        self.turns = place.turns if place else BY_ID
        self.due: tuple[Request | None, int] = (None, 0)
        self._order = BY_ID  # in which the NPUs do what is done now
        self._playing: dict[Stream, Hashable] = {}  # names of phases, where turns are asked for
        self._num_streams: dict[str, int] = {}
        self._carries = cache(lambda phase: (1 + phase.lane.dim.along, transport.bytes_sent(npu_class, phase)))
        self.outstanding: dict[Dataset, None] = {}  # in order of issue

    def issue(
        self,
        request: Request,
        order: Turns = BY_ID,
        *,
        priority: int | None = None,
        iteration: int = 0,
        route: object = None,
    ) -> Dataset:
        """Send a collective on its way; the NPUs do so in some order."""
        chunks = self._phases(request).split(request, int(self.env.now), order)
        if self.in_turn:
            self.in_turn.issue(chunks, self.env.now)
        dataset = self._dataset(request, chunks, priority, iteration)
        dataset.route = route
        self._order = BY_ID  # the last NPU to issue lets all begin
        if chunks:
            self._gate.send(self.npu_class, dataset)
        else:
            self._complete(dataset)
        return dataset

    def _phases(self, request: Request) -> PhaseMaker:
        """What cuts a collective into chunks and phases."""
        return self._makers[request.group if self._apart else ""]

    def _dataset(self, request: Request, chunks: Chunks, priority: int | None, iteration: int) -> Dataset:
        number = self._num_streams.get(request.group, 0)
        dataset = Dataset(self.env, request, chunks, number, priority, iteration)
        dataset.owner = self
        self.count(request.group, len(chunks))
        self.outstanding[dataset] = None
        return dataset

    def count(self, group: str, chunks: int) -> None:
        """Chunks have their numbers, whoever sends them."""
        self._num_streams[group] = self._num_streams.get(group, 0) + chunks

    def chunks_of(self, request: Request) -> Chunks:
        """How a collective is cut that takes nothing in turns."""
        return self._phases(request).split(request, int(self.env.now), BY_ID)

    def replace(self, told: Dataset, request: Request, chunks: Chunks, issue_ns: int, priority: int) -> Dataset:
        """A collective that was sent at some time while another one was told ahead, and takes its place."""
        dataset = self._dataset(request, chunks, priority, told.iteration)
        dataset.issue_ns, dataset.done = issue_ns, told.done
        del self.outstanding[told]
        return dataset

    def pass_over(self, request: Request, order: Turns) -> None:
        """A collective that has nobody to go to: nothing is sent, but it takes its turn (ASTRA-sim)."""
        self._phases(request).pass_over(request, int(self.env.now), order)

    def begin(self, streams: Mapping[int, Stream]) -> None:
        """Chunks, this class's among them, begin a phase together."""
        now_ns = int(self.env.now)
        for stream in streams.values():
            stream.begin_ns, stream.begun = now_ns, True
            if self.in_turn:
                self._playing[stream] = name = stream.key, stream.at
                self.in_turn.begin(name, stream.phase, self.env.now, self._order)
        self._transport.start(streams, through)

    def through(self, stream: Stream, *, last: bool = False) -> None:
        """A chunk leaves its phase, `last` when all else of this time has been done that was asked for before.

        Before its last chunk leaves, what waits for a collective goes on (ASTRA-sim).
        """
        if self.in_turn:
            stream = self._first_out(self.in_turn, stream)
            if not last and self.in_turn.waits(stream, self.env.now):
                after(self.env, 0, partial(self.through, stream, last=True))
                return
            self._order = self.in_turn.leave(self._playing.pop(stream), stream, self.env.now)
            stream.end_ns = -1
        now_ns, dataset = int(self.env.now), stream.dataset
        self.events.append(self.chunk(dataset.request, stream.phase, stream.begin_ns, now_ns, dataset.iteration))
        if stream.at + 1 < len(stream.phases):
            self._gate.move(self.npu_class, stream)
            return
        self._arrive(stream)
        self._gate.leave(self.npu_class, stream)

    def _first_out(self, in_turn: InTurn, stream: Stream) -> Stream:
        """Which of the chunks whose phases end now leaves first."""
        if stream.end_ns == self.env.now < self.env.peek():  # no other one ends now, and none has left in its place
            return stream
        due = [each for each in self._playing if each.end_ns == self.env.now] or [stream]
        return in_turn.first({each: self._playing[each] for each in due})

    def told(self, stream: Stream, spans: Sequence[Span], begin_ns: int) -> None:
        """The next phases of a chunk went by, between these times counted from a beginning."""
        self._write(stream.dataset, stream.phases[stream.at :], spans, begin_ns)
        stream.at += len(spans)
        if stream.at == len(stream.phases):
            self._arrive(stream)
        else:
            stream.phase = stream.phases[stream.at]

    def arrived(self, dataset: Dataset, spans: Sequence[Sequence[Span]], begin_ns: int) -> None:
        """All chunks of a collective went through all their phases, between these times counted from a beginning."""
        for phases, own in zip(dataset.chunks, spans, strict=True):
            self._write(dataset, phases, own, begin_ns)
        dataset.arrive()
        self._complete(dataset)

    def _write(self, dataset: Dataset, phases: Sequence[StreamPhase], spans: Sequence[Span], begin_ns: int) -> None:
        request, iteration, write = dataset.request, dataset.iteration, self.events.append
        for phase, (first_ns, last_ns) in zip(phases, spans, strict=False):
            write(self.chunk(request, phase, begin_ns + first_ns, begin_ns + last_ns, iteration))

    def chunk(self, request: Request, phase: StreamPhase, begin_ns: int, end_ns: int, iteration: int) -> Row:
        """The event of a chunk's phase."""
        stream, size_bytes = self._carries(phase)
        row = (self.npu_class, stream, begin_ns, end_ns, CHUNK, request.name, request.layer, request.phase)
        return (*row, size_bytes, iteration)

    def collective(self, request: Request, issue_ns: int, end_ns: int, iteration: int) -> Row:
        """The event of a collective."""
        row = (self.npu_class, 0, issue_ns, end_ns, COLLECTIVE, request.name)
        return (*row, request.layer, request.phase, request.size_bytes, iteration)

    def _arrive(self, stream: Stream) -> None:
        """All of a chunk is there."""
        streams = stream.dataset.streams
        del streams[stream.key]
        if not streams:
            self._complete(stream.dataset)

    @property
    def live(self) -> dict[tuple[int, int], Stream]:
        """The chunks on their way."""
        return {key: stream for dataset in self.outstanding for key, stream in dataset.streams.items()}

    def _complete(self, dataset: Dataset) -> None:
        """All chunks are there: after the update delay the collective is done."""
        update_ns, then = dataset.request.update_ns, partial(self._finish, dataset)
        if update_ns or self.place:
            self.after(update_ns, self._order, then)
        else:
            then(self._order)

    def after(self, delay_ns: int, order: Turns, then: Then) -> None:
        """Do something later, in turn where that counts; what follows is told in which order."""
        if self.place:
            self.place.after(delay_ns, then)
        elif self.in_turn:
            self.in_turn.after(self.env, delay_ns, order, then)
        else:
            after(self.env, delay_ns, partial(then, order))

    def _finish(self, dataset: Dataset, order: Turns) -> None:
        dataset.order = order
        row = self.collective(dataset.request, int(dataset.issue_ns), int(self.env.now), dataset.iteration)
        self.events.append(row)
        self.close(dataset)

    def close(self, dataset: Dataset) -> None:
        """A collective is over: who waits for it goes on."""
        del self.outstanding[dataset]
        if dataset.then:
            dataset.then()
        if self.orders:
            at_once(self.env, dataset.done, None)
        else:
            dataset.done.succeed()


Span = tuple[int, int]
"""Beginning and end."""


Begin = Callable[[Mapping[int, Stream]], None]
"""Begins the phase that some chunks, by class, are in; they wait no longer."""


class LocalGate:
    """Every NPU starts its first chunk as soon as it has room, wherever its partners are (ASTRA-sim)."""

    def __init__(self, limit: int, insertion: Insertion, issued: Callable[[Stream], object], begin: Begin = begin):
        self._insertion, self._issued, self._begin = insertion, issued, begin
        self._queues: dict[tuple[int, int], ChunkQueue] = defaultdict(lambda: ChunkQueue(limit))  # by class and queue

    def send(self, npu_class: int, dataset: Dataset) -> None:
        """Insert by the intra-dimension policy."""
        for stream in list(dataset.streams.values()):
            queue = self._queues[npu_class, stream.phase.queue]
            queue.add(stream, self._insertion)
            self._refill(npu_class, queue)
            self._issued(stream)

    def move(self, npu_class: int, stream: Stream) -> None:
        """The old queue starts what it has room for, then the new one (ASTRA-sim's order)."""
        old = self._queues[npu_class, stream.phase.queue]
        old.remove(stream)
        stream.advance()
        new = self._queues[npu_class, stream.phase.queue]
        new.add(stream, self._insertion)
        self._refill(npu_class, old)
        self._refill(npu_class, new)

    def leave(self, npu_class: int, stream: Stream) -> None:
        """Make room."""
        queue = self._queues[npu_class, stream.phase.queue]
        queue.remove(stream)
        self._refill(npu_class, queue)

    def _refill(self, npu_class: int, queue: ChunkQueue) -> None:
        while stream := queue.next():
            self._begin({npu_class: stream})

    def crowded(self, stream: Stream) -> frozenset[int]:
        """The queues that a chunk comes to when it leaves, or where it makes room for one that waits, or for any."""
        left, come = stream.phase.queue, (phase.queue for phase in stream.phases[stream.at + 1 : stream.at + 2])
        queue = self._queues[stream.dataset.owner.npu_class, left]
        alike = queue.running == len(queue.streams) and self._insertion is by_priority
        return frozenset(come if alike else (left, *come))

    def either_way(self, first: Stream, other: Stream) -> bool:
        """Whether the same chunks begin, in the same order, whichever of two of a class leaves first."""
        return self._tried(first, other) == self._tried(other, first)

    def _tried(self, *leaving: Stream) -> tuple[list[object], dict[object, list[object]]]:
        """What begins when chunks leave one after the other, and what is in their queues then."""
        begun, npu_class = list[object](), leaving[0].dataset.owner.npu_class
        trial = LocalGate(0, self._insertion, bool, lambda streams: begun.append(streams[npu_class].key))
        copies = {each: copy(each) for each in leaving}
        for queue in {phase.queue for each in leaving for phase in each.phases[each.at : each.at + 2]}:
            own = self._queues[npu_class, queue]
            trial._queues[npu_class, queue] = replace(own, streams=[copies.get(each, each) for each in own.streams])
        for each in copies.values():
            (trial.move if each.remaining else trial.leave)(npu_class, each)
        return begun, {name: [each.key for each in queue.streams] for name, queue in trial._queues.items()}


Order = Callable[[Stream], tuple[int, ...]]
_phase_of = attrgetter("phase")

# Which of the chunks that could start goes first; of equal ones that whose collective was issued first.
GANG_ORDERS: dict[str, Order] = {
    "FIFO": lambda stream: (-stream.priority,),
    "SCF": lambda stream: (stream.phase.largest_bytes,),
    "lessRemainingPhaseFirst": lambda stream: (stream.remaining,),
}


_Rank = tuple[object, ...]


class _Room(Struct, eq=False):
    """How many chunks of one queue a class plays, and the lines that need room there."""

    running: int = 0
    lines: list[_Line] = field(default_factory=list)


class _Line(Struct, eq=False):
    """Where chunks of one group wait for one queue; in the heap the first in order is first.

    All that wait in a line need the same `rooms`, those of its classes: while one of them is full, none of the chunks
    can start. `there` are chunks that some of the classes have, `complete` counts those that all have.
    """

    queue: int
    first: int  # of the classes
    rooms: list[_Room]
    full: int
    complete: int = 0
    there: dict[tuple[tuple[int, int], int], dict[int, Stream]] = field(default_factory=dict)
    waiting: list[tuple[_Rank, Mapping[int, Stream]]] = field(default_factory=list)


class Gang:
    """Starts a phase on all its NPUs at once, when every one of them has the chunk and room for it.

    Nobody holds a place while waiting for others, so no order of chunks can deadlock. Decisions fall at the end of an
    instant, in an order that does not depend on who came first, so folded and unfolded runs decide alike.
    `group_of(class, dim)` gives a name of the group and the classes in it. `check` is asked about chunks of one number
    that are not in the same phase, and raises where they cannot begin together. `whole(class, dataset)` takes
    collectives that may be told as a whole, where there are such.
    """

    def __init__(
        self,
        env: Environment,
        limit: int,
        order: Order,
        group_of: Callable[[int, GroupDim], tuple[Hashable, Sequence[int]]],
        check: Callable[[Mapping[int, Stream]], None],
        begin: Begin = begin,
    ):
        self.env, self.group_of, self._limit, self._order = env, group_of, limit, order
        self._check, self._begin, self._at = check, begin, cache(self._find)
        self.whole: Callable[[int, Dataset], None] | None = None
        self._lines: dict[tuple[int, Hashable], _Line] = {}  # by queue and name of a group
        self._rooms: dict[tuple[int, int], _Room] = {}  # by class and queue
        self._complete: list[tuple[_Line, _Rank, Mapping[int, Stream]]] = []  # since the last decision
        self._touched: dict[_Line, None] = {}
        self._num_complete = 0

    def empty(self, env: Environment, begin: Begin) -> Gang:
        """One that decides as this one does, with nobody in it."""
        return Gang(env, self._limit, self._order, self.group_of, self._check, begin)

    def send(self, npu_class: int, dataset: Dataset) -> None:
        """Offer chunks to their groups, or all of them as a whole."""
        if self.whole:
            self.whole(npu_class, dataset)
        else:
            self.enter(npu_class, dataset.streams.values())

    def enter(self, npu_class: int, streams: Iterable[Stream]) -> None:
        """Offer chunks to their groups."""
        for stream in streams:
            self._offer(npu_class, stream)

    def move(self, npu_class: int, stream: Stream) -> None:
        """Make room, and offer the chunk to its next group."""
        self.leave(npu_class, stream)
        stream.advance()
        self._offer(npu_class, stream)

    def leave(self, npu_class: int, stream: Stream) -> None:
        """Make room."""
        room = self._at(npu_class, stream.phase)[1]
        if room.running == self._limit:
            for line in room.lines:
                line.full -= 1
                if line.complete:
                    self._touch(line)
        room.running -= 1

    def occupy(self, npu_class: int, stream: Stream) -> None:
        """A chunk is in its phase already."""
        self._fill(self._at(npu_class, stream.phase)[1])

    def _find(self, npu_class: int, phase: StreamPhase) -> tuple[_Line, _Room]:
        """Where a class waits for a phase, and what it plays of that queue."""
        name, classes = self.group_of(npu_class, phase.lane.dim)
        line = self._lines.get((phase.queue, name))
        if line is None:
            rooms = [self._rooms.setdefault((each, phase.queue), _Room()) for each in classes]
            full = sum(room.running == self._limit for room in rooms)
            line = self._lines[phase.queue, name] = _Line(phase.queue, classes[0], rooms, full)
            for room in rooms:
                room.lines.append(line)
        return line, self._rooms[npu_class, phase.queue]

    def _offer(self, npu_class: int, stream: Stream) -> None:
        """A class has a chunk ready for its phase; the last of its group completes it."""
        line, key = self._at(npu_class, stream.phase)[0], (stream.key, stream.at)
        there = line.there.setdefault(key, {})
        there[npu_class] = stream
        if len(there) == len(line.rooms):
            del line.there[key]
            if len(set(map(_phase_of, there.values()))) > 1:
                self._check(there)
            self._num_complete += 1
            came = min(each.dataset.came for each in there.values())
            order = min(map(self._order, there.values()))
            rank = (*order, *came, stream.key, stream.at, line.first, self._num_complete)
            self._complete.append((line, rank, there))
            line.complete += 1
            self._touch(line)

    def _fill(self, room: _Room) -> None:
        """A class plays one more chunk."""
        room.running += 1
        if room.running == self._limit:
            for line in room.lines:
                line.full += 1

    def _touch(self, line: _Line) -> None:
        """Decide at the end of this instant about a line in which something waits, if there is room."""
        if not line.full:
            if not self._touched:
                after(self.env, 0, self._settle, DECISION)
            self._touched[line] = None

    def _settle(self) -> None:
        """Start all that may start, the first in order first; only where something has changed there can be any.

        Chunks that become complete meanwhile wait for the next decision.
        """
        for line, rank, there in self._complete:
            heappush(line.waiting, (rank, there))
        self._complete.clear()
        touched, self._touched = self._touched, {}
        heads = [(line.queue, line.waiting[0][0], line) for line in touched if line.waiting]
        heapify(heads)
        while heads:
            line = heappop(heads)[2]
            if not line.full:
                there = heappop(line.waiting)[1]
                line.complete -= 1
                if line.waiting:
                    heappush(heads, (line.queue, line.waiting[0][0], line))
                for room in line.rooms:
                    self._fill(room)
                self._begin(there)


Insertion = Callable[["ChunkQueue", "Stream"], int]
"""Behind how many of those that wait a new chunk goes."""
_GATHER, _SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


class ChunkQueue(Struct):
    """Chunks of one queue: the first `running` of them play, the others wait; at most `limit` play at a time."""

    limit: int
    streams: list[Stream] = field(default_factory=list)
    running: int = 0

    def add(self, stream: Stream, insertion: Insertion) -> None:
        """Let a chunk wait; all-reduce and all-to-all phases always by priority."""
        reorderable = stream.phase.kind in {_GATHER, _SCATTER}
        rule = insertion if reorderable else by_priority
        self.streams.insert(self.running + rule(self, stream), stream)

    @property
    def waiting(self) -> list[Stream]:
        """Those that do not play yet."""
        return self.streams[self.running :]

    def remove(self, stream: Stream) -> None:
        """Take out a chunk that has played."""
        self.streams.remove(stream)
        self.running -= 1

    def next(self) -> Stream | None:
        """The chunk that may play now, if any."""
        if self.running < min(self.limit, len(self.streams)):
            self.running += 1
            return self.streams[self.running - 1]
        return None


def before(stays_behind: Callable[[Stream, Stream], bool]) -> Insertion:
    """Before the first chunk that waits of which a rule says that it stays behind the new one."""

    def position(queue: ChunkQueue, new: Stream) -> int:
        waiting = queue.waiting
        return next((index for index, other in enumerate(waiting) if stays_behind(other, new)), len(waiting))

    return position


by_priority = before(lambda other, new: other.priority < new.priority)


def alternate(queue: ChunkQueue, new: Stream) -> int:
    """Reduce-scatter and all-gather in turn: past the first behind those that play, higher priority and turns."""
    waiting = queue.waiting
    # ASTRA-sim 1.0 looks at the one behind a running one without asking; where none runs, all waiting ones are asked.
    position = min(1, queue.running, len(waiting))
    while position < len(waiting):
        before = {other.phase.kind for other in waiting[max(0, position - 1) : position + 1]}
        if waiting[position].priority <= new.priority and before != {_GATHER, _SCATTER}:
            break
        position += 1
    return position


INSERTION: dict[str, Insertion] = {
    "FIFO": by_priority,
    # A chunk with one more phase behind this one goes last.
    "SCF": before(lambda other, new: new.remaining != 1 and other.phase.largest_bytes >= new.phase.largest_bytes),
    "lessRemainingPhaseFirst": before(lambda other, new: other.remaining >= new.remaining),
    "RG": alternate,
}


Gate = LocalGate | Gang
