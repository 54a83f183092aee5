"""Queued links for what has them for itself: what repeats itself is left out."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import simpy

from simcore.network.congested import Arriving, LinkNetwork
from simcore.network.queued.flow import Message, Segment, Sender
from simcore.network.queued.network import Instant, Queued
from simcore.network.queued.ports import Port
from simcore.network.times import again
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import Ports
from simcore.timeline.events import MOST_ROWS

LEAST_SEGMENTS = 64  # of a message that is worth a look
_lasting = attrgetter(
    *("waiting_bytes", "queued_bytes", "lying_bytes", "taken_bytes", "asked_to_pause", "paused", "chances", "phase"),
    "noted_bytes",
)
_added_up = attrgetter("still_ns", "stops", "marks", "drops", "dropped_bytes")


class _Snapshot(NamedTuple):
    """All that decides what comes, relative to now and to what was sent; when it was, what was sent and counted."""

    state: tuple[list[Any], ...]
    now_ns: int
    sent: dict[Message, int]
    counts: IntArray
    rows: tuple[int, int]


class Steady(Queued):
    """Leaves out what repeats itself: once all is as it was a while ago, it goes on like that until a message ends.

    As many such periods as every message has room for are taken out of the messages, and their time, counts and
    curves are added. The environment's clock knows nothing of that: it is behind by `skipped_ns`.
    """

    def __init__(self, env: simpy.Environment, links: LinkGraph):
        super().__init__(env, links)
        self._active: dict[Message, Sender] = {}
        self._strides: dict[tuple[int, int], int] = {}
        self._guide: Message | None = None  # is looked at each time that it has sent a stride
        self._look_at = 0
        self._base: _Snapshot | None = None
        self._looks = 0

    def _sender(self, message: Message, rules: Ports) -> Sender:
        sender = self._active[message] = super()._sender(message, rules)
        if self._guide is None or message.count > self._guide.count:
            self._follow(message)
        return sender

    def _finish(self, message: Arriving, now_ns: int) -> None:
        if isinstance(message, Message):
            self._active.pop(message, None)
        if message is self._guide:
            self._guide = None
            if self._active:
                self._follow(max(self._active, key=lambda other: other.count - other.sent))
        super()._finish(message, now_ns)

    def _follow(self, message: Message) -> None:
        """Look each time that a message has sent a stride, if it is long enough."""
        if message.count - message.sent >= LEAST_SEGMENTS:
            stride = self._stride(message)
            if 4 * stride <= message.count - message.sent:
                self._guide, self._look_at = message, message.sent + stride
                self._base, self._looks = None, 0

    def _stride(self, message: Message) -> int:
        """After how many segments the times of the next are rounded alike, on ways that are chosen alike."""
        found = self._strides.get(message.ends)
        if found is None:
            turns, links = self._routing.turns(*message.ends)
            rates = {self.ports[link].bytes_per_s for link in links}
            takes_ns = (Fraction(message.segment_bytes * 10**9) / Fraction(rate) for rate in rates)
            found = self._strides[message.ends] = lcm(turns, *(each.denominator for each in takes_ns))
        return found

    def _play(self, now_ns: int) -> None:
        super()._play(now_ns)
        guide = self._guide
        if guide and guide.sent >= self._look_at:
            self._look_at = guide.sent + self._stride(guide)
            if len(self.env._queue) == len(self._wakes):  # nothing but the network goes on
                self._look(now_ns)

    def _look(self, now_ns: int) -> None:
        """Compare with a state before, which is taken anew after ever more looks (Brent's algorithm)."""
        seen = self._snapshot(now_ns)
        self._looks += 1
        if self._base and self._base.state == seen.state:
            self._skip(self._base, seen)
            self._base, self._looks = None, 0
        elif not self._looks & (self._looks - 1):
            self._base = seen

    def _skip(self, base: _Snapshot, seen: _Snapshot) -> None:
        """Take as many periods out of all messages as leave two segments of each."""
        moved = {message: sent - base.sent[message] for message, sent in seen.sent.items()}
        room = [(message.count - 2 - message.sent) // each for message, each in moved.items() if each]
        times = min(room, default=0)
        if times < 1:
            return
        for message, each in moved.items():
            message.count -= times * each
            message.missing -= times * each
            message.size_bytes -= times * each * message.segment_bytes
        added = times * (seen.counts - base.counts)
        for port, (size_bytes, busy_ns, *own) in zip(self.ports, added.tolist(), strict=True):
            self._size_bytes[port.link] += size_bytes
            self._busy_ns[port.link] += busy_ns
            port.still_ns, port.stops, port.marks, port.drops, port.dropped_bytes = (
                so_far + more for so_far, more in zip(_added_up(port), own, strict=True)
            )
        period_ns = seen.now_ns - base.now_ns
        again(self._curves, base.rows[0], times, (0, period_ns, 0), MOST_ROWS)
        if self._times is not None:
            self._times.again(base.rows[1], times, period_ns)
        for own_senders in self._senders.values():
            for sender in own_senders.values():
                if sender.law:
                    sender.law.idle(times * period_ns)
        self.skipped_ns += times * period_ns

    def _snapshot(self, now_ns: int) -> _Snapshot:
        """As things stand."""
        before_ns = min((segment.sent_ns for segment in self._under_way()), default=now_ns) - 1
        ports = [_of_port(port, now_ns) for port in self.ports]
        senders = [sender.state(now_ns, before_ns) for sender in dict.fromkeys(self._active.values())]
        messages = [
            (each, each.missing - each.count + each.sent, each.tail_ns - now_ns, each.sent % self._stride(each))
            for each in self._active
        ]
        due = [(at_ns - now_ns, _of_instant(self._due[at_ns], now_ns)) for at_ns in sorted(self._due)]
        counts = np.array([*self.counts(), *zip(*map(_added_up, self.ports), strict=True)], np.int64).T
        rows = len(self._curves) // 3, 0 if self._times is None else len(self._times)
        sent = {each: each.sent for each in self._active}
        return _Snapshot((ports, senders, messages, due), now_ns, sent, counts, rows)

    def _under_way(self) -> Iterator[Segment]:
        """All that are somewhere."""
        for port in self.ports:
            yield from port.queue
        for instant in self._due.values():
            yield from (head[-1] for head in instant.heads)
            yield from (what for _, what in instant.changes if isinstance(what, Segment))

    def remembers(self, since_ns: int) -> bool:
        """As `LinkNetwork.remembers`."""
        return super().remembers(since_ns - self.skipped_ns)


def _of_port(port: Port, now_ns: int) -> tuple[object, ...]:
    times = max(port.free_ns - now_ns, 0), max(port.alarm_ns - now_ns, 0)
    still_ns = now_ns - port.still_since_ns if port.still_since_ns >= 0 else None
    return (*times, still_ns, _lasting(port), [_of_segment(segment, now_ns) for segment in port.queue])


def _of_instant(instant: Instant, now_ns: int) -> tuple[object, ...]:
    due = instant.changes
    changes = [(change, _of_segment(what, now_ns) if isinstance(what, Segment) else what) for change, what in due]
    return changes, [_of_segment(head[-1], now_ns) for head in sorted(instant.heads)]


def _of_segment(segment: Segment, now_ns: int) -> tuple[object, ...]:
    """Relative to now, and to what its message has sent."""
    message = segment.message
    times = segment.tail_ns - now_ns, segment.sent_ns - now_ns
    place = segment.hop, segment.held, segment.way, segment.marked, segment.size_bytes
    readings = [reading.state(now_ns) for reading in segment.readings]
    return message, segment.index - message.sent, readings, *times, *place


class QueuedLinks(Queued):
    """`Queued` that leaves to `Steady` what has the network for itself."""

    @classmethod
    def alone(cls) -> type[LinkNetwork]:
        """As `LinkNetwork.alone`."""
        return Steady
