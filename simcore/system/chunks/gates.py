"""When a chunk may start its phase: each NPU for itself (ASTRA-sim), or all NPUs of a group together (native)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from simcore.network.instant import Environment, at_end_of_instant
from simcore.system.chunks.queues import ChunkQueue, Insertion
from simcore.system.groups import GroupDim
from simcore.system.streams import Dataset, Request, Stream, StreamPhase

if TYPE_CHECKING:
    from simcore.system.meeting.whole import Wholes

Span = tuple[int, int]
"""Beginning and end."""


class Owner(Protocol):
    """Whose chunks wait; `due` is what is sent next, and when, while that is only a matter of computing."""

    due: tuple[Request | None, int]

    def begin(self, streams: Mapping[int, Stream]) -> None:
        """Begin the phase that some chunks, by class, are in; they wait no longer."""

    def told(self, stream: Stream, spans: Sequence[Span], begin_ns: int) -> None:
        """The next phases of a chunk went by, between these times counted from a beginning."""

    def arrived(self, dataset: Dataset, spans: Sequence[Sequence[Span]], begin_ns: int) -> None:
        """All chunks of a collective went through all their phases, between these times counted from a beginning."""


class Gate(Protocol):
    """The queues of one NPU class."""

    def send(self, dataset: Dataset, *, idle: bool) -> None:
        """The chunks of a collective reach the queues of their first phases; `idle`, there are no others."""

    def move(self, stream: Stream) -> None:
        """A chunk has played a phase and goes on to the queue of its next one."""

    def leave(self, stream: Stream) -> None:
        """A chunk has played its last phase."""


class LocalGate:
    """Every NPU starts its first chunk as soon as it has room, wherever its partners are (ASTRA-sim)."""

    def __init__(self, npu_class: int, owner: Owner, limit: int, insertion: Insertion):
        self._npu_class, self._owner, self._limit, self._insertion = npu_class, owner, limit, insertion
        self._queues: dict[int, ChunkQueue] = {}

    def send(self, dataset: Dataset, *, idle: bool) -> None:
        """Insert by the intra-dimension policy."""
        for stream in list(dataset.streams.values()):
            self._add(stream)
            self._refill(stream.phase.queue)

    def move(self, stream: Stream) -> None:
        """The old queue starts what it has room for, then the new one (ASTRA-sim's order)."""
        old = stream.phase.queue
        self._queues[old].remove(stream)
        stream.advance()
        self._add(stream)
        self._refill(old)
        self._refill(stream.phase.queue)

    def leave(self, stream: Stream) -> None:
        """Make room."""
        self._queues[stream.phase.queue].remove(stream)
        self._refill(stream.phase.queue)

    def _add(self, stream: Stream) -> None:
        self._queues.setdefault(stream.phase.queue, ChunkQueue(self._limit)).add(stream, self._insertion)

    def _refill(self, queue: int) -> None:
        waiting = self._queues[queue]
        while stream := waiting.next():
            self._owner.begin({self._npu_class: stream})


Order = Callable[[Stream], tuple[int, ...]]
_phase_of = attrgetter("phase")

# Which of the chunks that could start goes first; equal ones by their number.
GANG_ORDERS: dict[str, Order] = {
    "FIFO": lambda stream: (-stream.priority,),
    "SCF": lambda stream: (stream.phase.largest_bytes,),
    "lessRemainingPhaseFirst": lambda stream: (stream.remaining,),
}


_Rank = tuple[object, ...]


class _Room(Struct, eq=False):
    """How many chunks of one queue a class plays, and the places that need room there."""

    running: int = 0
    places: list[_Place] = field(default_factory=list)


class _Place(Struct, eq=False):
    """Where chunks of one group wait for one queue; in the heap the first in order is first.

    All that wait at a place need the same `rooms`, those of its classes: while one of them is full, none of the chunks
    can start. `there` are chunks that some of the classes have, `complete` counts those that all have.
    """

    queue: int
    first: int  # of the classes
    rooms: list[_Room]
    full: int
    complete: int = 0
    there: dict[tuple[tuple[str, int], int], dict[int, Stream]] = field(default_factory=dict)
    waiting: list[tuple[_Rank, Mapping[int, Stream]]] = field(default_factory=list)


class Gang:
    """Starts a phase on all its NPUs at once, when every one of them has the chunk and room for it.

    Nobody holds a place while waiting for others, so no order of chunks can deadlock. Decisions fall at the end of an
    instant, in an order that does not depend on who came first, so folded and unfolded runs decide alike.
    `group_of(class, dim)` gives a name of the group and the classes in it. `check` is asked about chunks of one number
    that are not in the same phase, and raises where they cannot begin together. `wholes` tells collectives as a whole
    where that can be.
    """

    def __init__(
        self,
        env: Environment,
        limit: int,
        order: Order,
        group_of: Callable[[int, GroupDim], tuple[Hashable, Sequence[int]]],
        check: Callable[[Mapping[int, Stream]], None],
    ):
        self.env, self.group_of, self._limit, self._order, self._check = env, group_of, limit, order, check
        self.gates: dict[int, GangGate] = {}
        self.wholes: Wholes | None = None
        self._places: dict[tuple[int, Hashable], _Place] = {}  # by queue and name of a group
        self._rooms: dict[tuple[int, int], _Room] = {}  # by class and queue
        self._complete: list[tuple[_Place, _Rank, Mapping[int, Stream]]] = []  # since the last decision
        self._touched: dict[_Place, None] = {}
        self._num_complete = 0

    def gate(self, npu_class: int, owner: Owner) -> GangGate:
        """The gate of one class."""
        self.gates[npu_class] = GangGate(self, npu_class, owner)
        return self.gates[npu_class]

    def empty(self, env: Environment) -> Gang:
        """One that decides as this one does, with nobody in it."""
        return Gang(env, self._limit, self._order, self.group_of, self._check)

    def at(self, npu_class: int, phase: StreamPhase) -> tuple[_Place, _Room]:
        """Where a class waits for a phase, and what it plays of that queue."""
        name, classes = self.group_of(npu_class, phase.lane.dim)
        place = self._places.get((phase.queue, name))
        if place is None:
            rooms = [self._rooms.setdefault((each, phase.queue), _Room()) for each in classes]
            full = sum(room.running == self._limit for room in rooms)
            place = self._places[phase.queue, name] = _Place(phase.queue, classes[0], rooms, full)
            for room in rooms:
                room.places.append(place)
        return place, self._rooms[npu_class, phase.queue]

    def offer(self, npu_class: int, stream: Stream, place: _Place) -> None:
        """A class has a chunk ready for its phase; the last of its group completes it."""
        key = (stream.key, stream.at)
        there = place.there.get(key)
        if there is None:
            there = place.there[key] = {}
        there[npu_class] = stream
        if len(there) == len(place.rooms):
            del place.there[key]
            if len(set(map(_phase_of, there.values()))) > 1:
                self._check(there)
            self._num_complete += 1
            rank = (*self._order(stream), stream.key, stream.at, place.first, self._num_complete)
            self._complete.append((place, rank, there))
            place.complete += 1
            self._touch(place)

    def occupy(self, room: _Room) -> None:
        """A class plays one more chunk."""
        room.running += 1
        if room.running == self._limit:
            for place in room.places:
                place.full += 1

    def release(self, room: _Room) -> None:
        """A class has room again."""
        if room.running == self._limit:
            for place in room.places:
                place.full -= 1
                if place.complete:
                    self._touch(place)
        room.running -= 1

    def _touch(self, place: _Place) -> None:
        """Decide at the end of this instant about a place where something waits, if there is room."""
        if not place.full:
            if not self._touched:
                at_end_of_instant(self.env, 0, self._settle)
            self._touched[place] = None

    def _settle(self) -> None:
        """Start all that may start, the first in order first; only where something has changed there can be any.

        Chunks that become complete meanwhile wait for the next decision.
        """
        for place, rank, there in self._complete:
            heappush(place.waiting, (rank, there))
        self._complete.clear()
        touched, self._touched = self._touched, {}
        heads = [(place.queue, place.waiting[0][0], place) for place in touched if place.waiting]
        heapify(heads)
        while heads:
            place = heappop(heads)[2]
            if not place.full:
                there = heappop(place.waiting)[1]
                place.complete -= 1
                if place.waiting:
                    heappush(heads, (place.queue, place.waiting[0][0], place))
                self._start(place, there)

    def _start(self, place: _Place, streams: Mapping[int, Stream]) -> None:
        for room in place.rooms:
            self.occupy(room)
        self.gates[place.first].owner.begin(streams)


class GangGate:
    """One class's side of a `Gang`: where it waits for each kind of phase, and the room that it needs there."""

    def __init__(self, gang: Gang, npu_class: int, owner: Owner):
        self._gang, self._npu_class, self.owner = gang, npu_class, owner
        self._at = cache(partial(gang.at, npu_class))

    def send(self, dataset: Dataset, *, idle: bool) -> None:
        """Offer chunks to their groups, or all of them as a whole."""
        if self._gang.wholes:
            self._gang.wholes.send(self._npu_class, dataset, idle=idle)
            return
        for stream in dataset.streams.values():
            self.enter(stream)

    def enter(self, stream: Stream) -> None:
        """Offer a chunk to its group."""
        self._gang.offer(self._npu_class, stream, self._at(stream.phase)[0])

    def move(self, stream: Stream) -> None:
        """Make room, and offer the chunk to its next group; the gang decides at the end of the instant."""
        gang, at = self._gang, self._at
        gang.release(at(stream.phase)[1])
        stream.advance()
        gang.offer(self._npu_class, stream, at(stream.phase)[0])

    def leave(self, stream: Stream) -> None:
        """Make room."""
        self._gang.release(self._at(stream.phase)[1])

    def occupy(self, stream: Stream) -> None:
        """A chunk is in its phase already."""
        self._gang.occupy(self._at(stream.phase)[1])
