"""Queued links for what has them for itself: what repeats itself is left out."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from simcore.network.compiled import installed
from simcore.network.congested import LinkNetwork
from simcore.network.core import NEVER
from simcore.network.instant import Environment
from simcore.network.queued import core
from simcore.network.queued.compiled import TO_COMPILE, Arrays, Lists, repaid
from simcore.network.queued.network import Queued, chain
from simcore.network.queued.tables import NOBODY, Message, Port, Segment, Sender
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import Ports
from simcore.progress import meter
from simcore.timeline.events import MOST_ROWS
from simcore.timeline.link_use import again

OF_SEGMENTS = (core.ACKNOWLEDGED, core.LOST)
LEAST_SEGMENTS = 64  # of a message that is worth a look
EVENTS_OF_A_HOP = 2
HINT = "pip install 'simcore[fast]' plays queues several times as fast"
_lasting = attrgetter(
    *("waiting_bytes", "queued_bytes", "lying_bytes", "taken_bytes", "asked_to_pause", "paused", "chances", "phase"),
    "noted_bytes",
)
_added_up = attrgetter("still_ns", "stops", "marks", "drops", "dropped_bytes")


class _Snapshot(NamedTuple):
    """All that decides what comes, relative to now and to what was sent; when it was, what was sent and counted."""

    state: tuple[list[Any], ...]
    now_ns: int
    sent: dict[int, int]
    counts: IntArray
    rows: tuple[int, int]


class QueuedLinks(Queued):
    """`Queued` whose core is compiled where much is to be played; what is alone is left to `Steady`."""

    least_events = 5_000  # before anything is compiled

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        if self._routing.apart:
            self._state.counts[0].pause_at = self.least_events if installed() else TO_COMPILE

    @classmethod
    def alone(cls) -> type[LinkNetwork]:
        """As `LinkNetwork.alone`."""
        return Steady

    def _drain(self) -> None:
        super()._drain()
        if type(self._tables) is not Lists:
            return
        counts = self._state.counts[0]
        if counts.events >= counts.pause_at and self._arrivals:
            numbered = isinstance(next(iter(self._arrivals.values())).key[0], int)  # as keys are of all that meet
            counts.pause_at = 2 * counts.events if numbered and installed() else NEVER
            if not installed():
                meter().hint = HINT
            elif numbered and repaid(counts.events, self._ahead()):
                self._compile()

    def _ahead(self) -> int:
        """Events that segments still to be sent bring at least."""
        state, ahead = self._state, 0
        for message in map(state.messages.__getitem__, self._arrivals):
            way = state.ways[state.routes[state.pairs[message.pair].at]]
            ahead += (message.count - message.sent) * way.hops * EVENTS_OF_A_HOP
        return ahead

    def _compile(self) -> None:
        """Play on without looks."""
        self._note()
        counts = self._state.counts[0]
        counts.guide, counts.pause_at = NOBODY, NEVER
        self._tables = Arrays(self._tables)


class Steady(QueuedLinks):
    """Leaves out what repeats itself: once all is as it was a while ago, it goes on like that until a message ends.

    As many such periods as every message has room for are taken out of the messages, and their time, counts and
    curves are added. The environment's clock knows nothing of that: it is behind by `skipped_ns`.
    """

    least_events = 100_000

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._active: dict[int, int] = {}  # senders of messages
        self._strides: dict[int, int] = {}
        self._base: _Snapshot | None = None
        self._looks = 0

    def _enter(self, message: Message, ends: tuple[int, int], rules: Ports) -> tuple[int, int]:
        number, sender = super()._enter(message, ends, rules)
        self._active[number] = sender
        guide = self._state.counts[0].guide
        if guide < 0 or message.count > self._state.messages[guide].count:
            self._follow(number)
        return number, sender

    def _arrived(self, number: int, now_ns: int, tail_ns: int) -> None:
        del self._active[number]
        if number == self._state.counts[0].guide:
            self._state.counts[0].guide = NOBODY
            if self._active:
                self._follow(max(self._active, key=self._unsent))
        super()._arrived(number, now_ns, tail_ns)

    def _unsent(self, number: int) -> int:
        message = self._state.messages[number]
        return int(message.count - message.sent)

    def _follow(self, number: int) -> None:
        """Look each time that a message has sent a stride, if it is long enough."""
        counts, unsent, stride = self._state.counts[0], self._unsent(number), self._stride(number)
        if type(self._tables) is Lists and unsent >= max(LEAST_SEGMENTS, 4 * stride):
            counts.guide, counts.look_at = number, self._state.messages[number].sent + stride
            self._base, self._looks = None, 0

    def _stride(self, number: int) -> int:
        """After how many segments the times of the next are rounded alike, on ways that are chosen alike."""
        message = self._state.messages[number]
        found = self._strides.get(message.ends)
        if found is None:
            turns, links = self._routing.turns(*divmod(message.ends, self.links.npus))
            rates = {self._rates[link] for link in links}
            takes_ns = (Fraction(message.segment_bytes * 10**9) / Fraction(rate) for rate in rates)
            found = self._strides[message.ends] = lcm(turns, *(each.denominator for each in takes_ns))
        return found

    def _drain(self) -> None:
        super()._drain()
        counts = self._state.counts[0]
        guide = counts.guide if type(self._tables) is Lists else NOBODY
        if guide >= 0 and self._state.messages[guide].sent >= counts.look_at:
            counts.look_at = self._state.messages[guide].sent + self._stride(guide)
            if len(self.env.calls) == len(self._wakes):  # nothing but the network goes on
                self._look(counts.now_ns)

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
        messages, senders, laws = self._state.messages, self._state.senders, self._state.laws
        moved = {number: sent - base.sent[number] for number, sent in seen.sent.items()}
        room = [(self._unsent(number) - 2) // each for number, each in moved.items() if each]
        times = min(room, default=0)
        if times < 1:
            return
        for number, each in moved.items():
            message = messages[number]
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
        for number in dict.fromkeys(self._active.values()):
            if senders[number].law >= 0:
                laws[senders[number].law].idle(times * period_ns)
        self.skipped_ns += times * period_ns

    def _snapshot(self, now_ns: int) -> _Snapshot:
        """As things stand."""
        self._note()
        state = self._state
        heads, timers = sorted(state.heads)[:-1], sorted(state.timers)[:-1]
        due = [(time, kind % core.KINDS, whom, size_bytes) for time, kind, whom, size_bytes in timers]
        flying = [head[7] for head in heads] + [whom for _, kind, whom, _ in due if kind in OF_SEGMENTS]
        queues = [[*chain(state.segments, port.head)] for port in state.ports]
        under_way = [state.segments[number].sent_ns for number in sum(queues, flying)]
        before_ns = min(under_way, default=now_ns) - 1
        ports = [
            (self._of_port(port, now_ns), [self._of_segment(number, now_ns) for number in queue])
            for port, queue in zip(state.ports, queues, strict=True)
        ]
        senders = [self._of_sender(number, now_ns, before_ns) for number in dict.fromkeys(self._active.values())]
        messages = [(number, *self._of_message(number, now_ns)) for number in self._active]
        changes = [
            (time - now_ns, kind, self._of_segment(whom, now_ns) if kind in OF_SEGMENTS else whom, size_bytes)
            for time, kind, whom, size_bytes in due
        ]
        coming = [(head[0] - now_ns, self._of_segment(head[7], now_ns)) for head in heads]
        counts = np.array([*self.counts(), *zip(*map(_added_up, state.ports), strict=True)], np.int64).T
        rows = len(self._curves) // 3, 0 if self._times is None else len(self._times)
        sent = {number: state.messages[number].sent for number in self._active}
        return _Snapshot((ports, senders, messages, changes, coming), now_ns, sent, counts, rows)

    def _of_port(self, port: Port, now_ns: int) -> tuple[object, ...]:
        core.settle(self._state, port, now_ns)
        rows = self._state.credits
        due = [(rows[each].time_ns - now_ns, rows[each].size_bytes) for each in chain(rows, port.credit)]
        times = max(port.free_ns - now_ns, 0), max(port.alarm_ns - now_ns, 0)
        still_ns = now_ns - port.still_since_ns if port.still_since_ns >= 0 else None
        return *times, still_ns, due, _lasting(port)

    def _of_message(self, number: int, now_ns: int) -> tuple[int, ...]:
        own = self._state.messages[number]
        return own.missing - own.count + own.sent, own.tail_ns - now_ns, own.sent % self._stride(number)

    def _of_segment(self, number: int, now_ns: int) -> tuple[object, ...]:
        """Relative to now, and to what its message has sent."""
        own = self._state.segments[number]
        times = own.tail_ns - now_ns, own.sent_ns - now_ns
        place = own.hop, own.held, own.way, own.marked, own.size_bytes
        return own.message, self._number_of(own), self._read(own, now_ns), *times, *place

    def _of_sender(self, number: int, now_ns: int, since_ns: int) -> tuple[object, ...]:
        """What decides when it sends, relative to now; its law looks back as far as `since_ns`."""
        own, state = self._state.senders[number], self._state
        segments = state.segments
        lost = [(segments[each].message, self._number_of(segments[each])) for each in chain(segments, own.lost)]
        times = max(own.free_ns - now_ns, 0), max(own.alarm_ns - now_ns, 0)
        law = state.laws[own.law].state(now_ns, since_ns) if own.law >= 0 else None
        return (
            number,
            own.ready,
            *times,
            own.under_way_bytes,
            own.current,
            own.waiting,
            lost,
            law,
            self._read(own, now_ns),
        )

    def _number_of(self, segment: Segment) -> int:
        """Counted from what its message has sent."""
        return int(segment.index - self._state.messages[segment.message].sent)

    def _read(self, whose: Segment | Sender, now_ns: int) -> list[tuple[int, ...]]:
        """Readings of links, relative to now and to what the links have sent since."""
        rows, ports = self._state.readings, self._state.ports
        found: list[tuple[int, ...]] = []
        number = whose.reading
        while number >= 0:
            own = rows[number]
            found.append((own.link, own.queue_bytes, ports[own.link].sent_bytes - own.sent_bytes, now_ns - own.now_ns))
            number = own.next
        return found

    def remembers(self, since_ns: int) -> bool:
        """As `LinkNetwork.remembers`."""
        return super().remembers(since_ns - self.skipped_ns)
