"""When a chunk may start its phase: each NPU for itself (ASTRA-sim), or all NPUs of a group together (native)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

import simpy

from simcore.network.instant import at_end_of_instant
from simcore.system.queues import ChunkQueue, Insertion
from simcore.system.streams import Stream

__all__ = ["GANG_ORDERS", "Gang", "GangGate", "Gate", "LocalGate"]

Begin = Callable[[Stream], None]


class Gate(Protocol):
    """The queues of one NPU class."""

    def enter(self, stream: Stream) -> None:
        """A chunk reaches the queue of its phase."""

    def leave(self, stream: Stream) -> None:
        """A chunk has played its phase."""

    def refill(self, queue: int) -> None:
        """Start what may start in a queue."""


class LocalGate:
    """Every NPU starts its first chunk as soon as it has room, wherever its partners are (ASTRA-sim)."""

    def __init__(self, begin: Begin, limit: int, insertion: Insertion):
        self._begin, self._limit, self._insertion = begin, limit, insertion
        self._queues: dict[int, ChunkQueue] = {}

    def enter(self, stream: Stream) -> None:
        """Insert by the intra-dimension policy."""
        self._queues.setdefault(stream.phase.queue, ChunkQueue(self._limit)).add(stream, self._insertion)

    def leave(self, stream: Stream) -> None:
        """Make room."""
        self._queues[stream.phase.queue].remove(stream)

    def refill(self, queue: int) -> None:
        """Start chunks while the queue has room."""
        waiting = self._queues[queue]
        while stream := waiting.next():
            self._begin(stream)


Order = Callable[[Stream], tuple[int, ...]]

# Which of the chunks that could start goes first; equal ones by their number.
GANG_ORDERS: dict[str, Order] = {
    "FIFO": lambda stream: (-stream.priority,),
    "SCF": lambda stream: (stream.phase.largest_bytes,),
    "lessRemainingPhaseFirst": lambda stream: (stream.remaining,),
}


_Rank = tuple[object, ...]


@dataclass(slots=True, eq=False)
class _Place:
    """Where chunks of one group wait for one queue: `members` are its classes, in the heap the first in order is first.

    All that wait at a place need the same room: while the first has none, no other has.
    """

    queue: int
    members: list[tuple[int, int]]  # each with the queue
    waiting: list[tuple[_Rank, Mapping[int, Stream]]] = field(default_factory=list)


class Gang:
    """Starts a phase on all its NPUs at once, when every one of them has the chunk and room for it.

    Nobody holds a place while waiting for others, so no order of chunks can deadlock. Decisions fall at the end of an
    instant, in an order that does not depend on who came first, so folded and unfolded runs decide alike.
    `group_of(class, lane)` gives a name of the group and the classes in it.
    """

    def __init__(
        self,
        env: simpy.Environment,
        limit: int,
        order: Order,
        group_of: Callable[[int, Stream], tuple[Hashable, Sequence[int]]],
    ):
        self._env, self._limit, self._order, self._group_of = env, limit, order, group_of
        self._gates: dict[int, GangGate] = {}
        self._there: dict[tuple[Hashable, ...], dict[int, Stream]] = {}
        self._places: dict[tuple[int, Hashable], _Place] = {}  # by queue and name of a group
        self._places_of: dict[tuple[int, int], list[_Place]] = {}  # by class and queue: where it meets others
        self._complete: list[tuple[_Place, _Rank, Mapping[int, Stream]]] = []  # since the last decision
        self._running: dict[tuple[int, int], int] = {}
        self._full: set[tuple[int, int]] = set()  # classes that have no room in a queue
        self._touched: dict[_Place, None] = {}
        self._num_complete = 0

    def gate(self, npu_class: int, begin: Begin) -> GangGate:
        """The gate of one class."""
        self._gates[npu_class] = GangGate(self, npu_class, begin)
        return self._gates[npu_class]

    def offer(self, npu_class: int, stream: Stream) -> None:
        """A class has a chunk ready for its phase; the last of its group completes it."""
        name, classes = self._group_of(npu_class, stream)
        key = (stream.key, stream.at, name)
        there = self._there.setdefault(key, {})
        there[npu_class] = stream
        if len(there) == len(classes):
            del self._there[key]
            self._num_complete += 1
            rank = (*self._order(stream), stream.key, stream.at, classes[0], self._num_complete)
            place = self._place(stream.phase.queue, name, classes)
            self._complete.append((place, rank, there))
            self._touch(place)

    def release(self, npu_class: int, queue: int) -> None:
        """A class has room again."""
        self._running[npu_class, queue] -= 1
        self._full.discard((npu_class, queue))
        for place in self._places_of[npu_class, queue]:
            self._touch(place)

    def _place(self, queue: int, name: Hashable, classes: Sequence[int]) -> _Place:
        place = self._places.get((queue, name))
        if place is None:
            place = self._places[queue, name] = _Place(queue, [(npu_class, queue) for npu_class in classes])
            for member in place.members:
                self._places_of.setdefault(member, []).append(place)
        return place

    def _touch(self, place: _Place) -> None:
        if not self._touched:
            at_end_of_instant(self._env, 0, self._settle)
        self._touched[place] = None

    def _settle(self, _: simpy.Event) -> None:
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
            if self._full.isdisjoint(place.members):
                there = heappop(place.waiting)[1]
                if place.waiting:
                    heappush(heads, (place.queue, place.waiting[0][0], place))
                self._start(place.members, there)

    def _start(self, members: Sequence[tuple[int, int]], streams: Mapping[int, Stream]) -> None:
        running = self._running
        for member in members:
            count = running[member] = running.get(member, 0) + 1
            if count == self._limit:
                self._full.add(member)
        for npu_class, _ in members:
            self._gates[npu_class].begin(streams[npu_class])


class GangGate:
    """One class's side of a `Gang`."""

    def __init__(self, gang: Gang, npu_class: int, begin: Begin):
        self._gang, self._npu_class, self.begin = gang, npu_class, begin

    def enter(self, stream: Stream) -> None:
        """Offer the chunk to its group."""
        self._gang.offer(self._npu_class, stream)

    def leave(self, stream: Stream) -> None:
        """Make room."""
        self._gang.release(self._npu_class, stream.phase.queue)

    def refill(self, queue: int) -> None:
        """The gang decides at the end of the instant."""
