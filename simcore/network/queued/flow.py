"""Who sends: messages cut into segments, sent one after the other as fast as a law of congestion control allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from typing import Any, NamedTuple

from simcore.network.queued.laws import Law, Reading


class Way(NamedTuple):
    """A route with what its links need, and the latency of the way back in whole nanoseconds."""

    links: tuple[int, ...]
    steps_ns: tuple[int, ...]
    rates: tuple[float, ...]
    back_ns: int


class Message:
    """Of `count` segments, all of `segment_bytes` but for the last; `sent` have left, `missing` have not arrived.

    It is of a chunk's `phase`, None = of none. Its segments go over the ways in turn, from number `turn` on, which is
    that of the message in its phase: so nothing that was sent before matters.
    """

    __slots__ = (
        *("count", "deliver", "ends", "key", "missing", "phase", "segment_bytes", "sent", "size_bytes", "tail_ns"),
        "turn",
    )

    def __init__(
        self, key: Any, ends: tuple[int, int], size_bytes: int, segment_bytes: int, deliver: Callable[[], None]
    ):
        self.key, self.ends, self.size_bytes, self.deliver = key, ends, size_bytes, deliver
        self.segment_bytes = segment_bytes
        self.count = self.missing = max(-(-size_bytes // segment_bytes), 1)
        self.sent = self.tail_ns = 0
        of_phase = len(key) == len(("chunk", "phase", "number"))
        self.phase: Any = key[:2] if of_phase else None
        self.turn: int = key[2] if of_phase else 0

    def span(self, index: int) -> tuple[int, int]:
        """The first byte of a segment, and the one after its last."""
        first = index * self.segment_bytes
        return first, min(first + self.segment_bytes, self.size_bytes)


class Segment:
    """On its way: `hop` counts the links behind it, `held` is the link in whose buffer it lies, -1 at its source.

    On links of `rate` it takes `takes_ns`.
    """

    __slots__ = (
        *("end_byte", "first_byte", "held", "hop", "index", "marked", "message", "rate", "readings", "sender"),
        *("sent_ns", "size_bytes", "tail_ns", "takes_ns", "way"),
    )

    def __init__(self, sender: Sender, message: Message, index: int, way: Way, now_ns: int):
        self.sender, self.message, self.index, self.way = sender, message, index, way
        self.hop, self.held, self.marked, self.tail_ns, self.sent_ns = 0, -1, False, now_ns, now_ns
        self.first_byte, self.end_byte = message.span(index)
        self.size_bytes = self.end_byte - self.first_byte
        self.rate, self.takes_ns = 0.0, 0
        self.readings: list[Reading] = []


class Sender:
    """Messages that go one after the other: those of two NPUs in a phase under one law, else each by itself.

    The next segment is ready when the one before has begun (`ready`), the window has room and it is time.
    """

    __slots__ = ("_current", "_lost", "_waiting", "alarm_ns", "free_ns", "law", "ready", "under_way_bytes")

    def __init__(self, law: Law | None):
        self.law = law
        self.ready, self.free_ns, self.alarm_ns, self.under_way_bytes = True, 0, -1, 0
        self._waiting: list[tuple[int, Any, int, Message]] = []
        self._lost: deque[tuple[Message, int]] = deque()
        self._current: Message | None = None

    @property
    def busy(self) -> bool:
        """Whether anything is under way or waits."""
        return bool(self.under_way_bytes or self._current or self._waiting or self._lost)

    def add(self, message: Message, now_ns: int) -> None:
        """One more message, behind those that came before; of one time in the order of the keys."""
        heappush(self._waiting, (now_ns, message.key, len(self._waiting), message))

    def again(self, segment: Segment) -> None:
        """A segment was lost: it goes before all others."""
        self._lost.append((segment.message, segment.index))

    def peek(self) -> tuple[Message, int] | None:
        """What is to be sent next: a message and the number of its segment."""
        if self._lost:
            return self._lost[0]
        if self._current is None and self._waiting:
            self._current = heappop(self._waiting)[-1]
        return (self._current, self._current.sent) if self._current else None

    def take(self) -> None:
        """What `peek` showed is sent."""
        if self._lost:
            self._lost.popleft()
        elif self._current:
            self._current.sent += 1
            if self._current.sent == self._current.count:
                self._current = None

    def state(self, now_ns: int, since_ns: int) -> tuple[object, ...]:
        """What decides when it sends, relative to now; its law looks back as far as `since_ns`."""
        lost = tuple((message, index - message.sent) for message, index in self._lost)
        times = max(self.free_ns - now_ns, 0), max(self.alarm_ns - now_ns, 0)
        law = self.law and self.law.state(now_ns, since_ns)
        return self, self.ready, *times, self.under_way_bytes, self._current, lost, law

    def may_send(self, size_bytes: int) -> bool:
        """Whether the window has room."""
        law = self.law
        return law is None or not self.under_way_bytes or self.under_way_bytes + size_bytes <= law.window_bytes

    def begun(self, size_bytes: int, now_ns: int) -> None:
        """A segment has begun; when the next one may."""
        self.ready = True
        if self.law and self.law.rate_bytes_per_s < self.law.path.bytes_per_s:
            self.free_ns = now_ns + ceil(round(size_bytes / self.law.rate_bytes_per_s * 1e9, 3))
