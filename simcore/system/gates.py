"""When a chunk may start its phase: each NPU for itself (ASTRA-sim), or all NPUs of a group together (native)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Sequence
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
        self._complete: dict[int, list[tuple[tuple[object, ...], list[tuple[int, Stream]]]]] = {}
        self._running: dict[tuple[int, int], int] = {}
        self._touched: dict[int, None] = {}
        self._num_complete = 0

    def gate(self, npu_class: int, begin: Begin) -> GangGate:
        """The gate of one class."""
        self._gates[npu_class] = GangGate(self, npu_class, begin)
        return self._gates[npu_class]

    def offer(self, npu_class: int, stream: Stream) -> None:
        """A class has a chunk ready for its phase."""
        name, classes = self._group_of(npu_class, stream)
        key = (stream.key, stream.at, name)
        there = self._there.setdefault(key, {})
        there[npu_class] = stream
        if len(there) == len(classes):
            del self._there[key]
            self._num_complete += 1
            rank = (*self._order(stream), stream.key, stream.at, classes[0], self._num_complete)
            insort(self._complete.setdefault(stream.phase.queue, []), (rank, sorted(there.items())), key=_rank)
            self._touch(stream.phase.queue)

    def release(self, npu_class: int, queue: int) -> None:
        """A class has room again."""
        self._running[npu_class, queue] -= 1
        self._touch(queue)

    def _touch(self, queue: int) -> None:
        if not self._touched:
            at_end_of_instant(self._env, 0, self._settle)
        self._touched[queue] = None

    def _settle(self, _: simpy.Event) -> None:
        """Start all that may start, the first in order first."""
        touched, self._touched = sorted(self._touched), {}
        for queue in touched:
            waiting = self._complete.get(queue, [])
            kept = []
            for rank, members in waiting:
                if all(self._running.get((npu_class, queue), 0) < self._limit for npu_class, _ in members):
                    self._start(queue, members)
                else:
                    kept.append((rank, members))
            self._complete[queue] = kept

    def _start(self, queue: int, members: Sequence[tuple[int, Stream]]) -> None:
        for npu_class, _ in members:
            self._running[npu_class, queue] = self._running.get((npu_class, queue), 0) + 1
        for npu_class, stream in members:
            self._gates[npu_class].begin(stream)


def _rank(entry: tuple[tuple[object, ...], object]) -> tuple[object, ...]:
    return entry[0]


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
