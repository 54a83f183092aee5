"""Queued links on which what repeats itself is left out, compiled where much is to be played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from math import lcm
from operator import eq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.compiled import installed
from simcore.network.core import NEVER
from simcore.network.instant import Environment
from simcore.network.queued.compiled import ALL
from simcore.network.queued.core import ACKNOWLEDGED, LOST
from simcore.network.queued.laws import LAWS
from simcore.network.queued.network import Queued
from simcore.network.queued.segments import TO_COMPILE, repaid
from simcore.network.queued.tables import NOBODY, Message
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import Ports
from simcore.progress import meter

LEAST_SEGMENTS = 64  # of a message that is worth a look
EVENTS_OF_A_HOP = 2
MOST_VAIN = 64
ROWS_OF_A_LOOK = 40
"""So many rows take as long to look at as looking at none."""
GROUP_BITS = 40  # segments of a message are fewer
FEW_LOOKS = 16
"""Behind each so many looks in vain they are farther apart, up to so many times."""
HINT = "with numba (pip install numba) queues are played several times as fast"
LASTING = ("lying_bytes", "noted_bytes", "awaits", "asked_to_pause", "paused", "chances", "asked")
OF_SENDERS = ("ready", "under_way_bytes", "current", "waiting")
READ = ("link", "own", "queue_bytes", "sent_bytes", "now_ns")
ADDED_UP = ("sent_bytes", "busy_ns", "still_ns", "stops", "marks", "drops", "dropped_bytes")
PLACES = ("message", "at", "held", "way", "marked", "size_bytes")
IN_MIND = [*dict.fromkeys(each.name for name in LAWS.names() for each in fields(LAWS.get(name)) if not each.init)]


class _Seen(NamedTuple):
    """All that decides what comes, relative to now and to what was sent; when it was, what was sent and counted."""

    state: list[bytes]
    now_ns: int
    sent: IntArray
    counts: IntArray
    rows: tuple[int, int]


class QueuedLinks(Queued):
    """Leaves out what repeats itself: once all is as it was a while ago, it goes on like that until something happens.

    As many such periods as there is time for, and every message has room for, are taken out of the messages; their
    time, counts and curves are added. Only where keys are numbers: elsewhere every segment is to be played.
    """

    in_parts = True
    least_events = 200  # before anything is compiled
    in_lists = 0  # events that were played so in this process

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        if self._routing.apart:
            self._state.counts[0].pause_at = self.least_events if installed() else TO_COMPILE
        ends = links.ends_of(np.arange(len(links)))
        rates = [np.bincount(end, links.bandwidth_bytes_per_s)[: links.npus] for end in ends]
        self._most_bytes_per_s = max(float(each.max(initial=1)) for each in rates)
        self._last = 1 + max(int(np.bincount(end)[: links.npus].max(initial=1)) for end in ends)
        self._lingers = bool(links.latency_ns.min(initial=1) >= 1)  # what arrives does so behind its instant
        self._active: dict[int, int] = {}  # senders of messages
        self._strides: dict[int, int] = {}
        self._base: _Seen | None = None
        self._looks, self._apart, self._looked_at = 0, 1, 0
        self._in_vain = 0  # looks since something was left out
        self._counted = 0  # of events in lists
        self._numbered = False  # keys are
        self._least_ns, self._waits, self._vain = 0, 0, 1  # no message ends before; when to ask anew

    def _enter(self, message: Message, ends: tuple[int, int], rules: Ports) -> tuple[int, int]:
        number, sender = super()._enter(message, ends, rules)
        self._active[number] = sender
        self._least_ns = 0
        guide = self._state.counts[0].guide
        self._base, self._looks = None, 0
        self._numbered = isinstance(message.order[0] if message.order else 0, int)
        if self._numbered and (guide < 0 or message.count > self._state.messages[guide].count):
            self._follow(number)
        return number, sender

    def _arrived(self, number: int, now_ns: int, tail_ns: int) -> None:
        del self._active[number]
        self._base, self._looks = None, 0
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
        counts, message = self._state.counts[0], self._state.messages[number]
        stride = self._stride(int(message.pair), int(message.segment_bytes))
        if message.count - message.sent >= max(LEAST_SEGMENTS, 4 * stride):
            counts.guide, counts.look_at = number, message.sent + stride
            self._base, self._looks, self._apart, self._looked_at = None, 0, stride, counts.events

    def _stride(self, pair: int, segment_bytes: int) -> int:
        """After how many segments the times of the next are rounded alike, on ways that are chosen alike."""
        found = self._strides.get(pair)
        if found is None:
            turns, links = self._routing.turns(*self._ends[pair])
            rates = {self._rates[link] for link in self.links.instead_of(tuple(links))}
            takes_ns = (Fraction(segment_bytes * 10**9) / Fraction(rate) for rate in rates)
            found = self._strides[pair] = lcm(turns, *(each.denominator for each in takes_ns))
        return found

    def _drain(self) -> None:
        super()._drain()
        counts = self._state.counts[0]
        if not self._tables.compiled and counts.events >= counts.pause_at and self._arrivals:
            QueuedLinks.in_lists += counts.events - self._counted
            self._counted = counts.events
            counts.pause_at = 2 * counts.events if self._numbered and installed() else NEVER
            if not installed():
                meter().hint = HINT
            elif self._numbered and repaid(self.in_lists, self._ahead()):
                self._compile()
                counts = self._state.counts[0]
        guide = counts.guide
        if guide >= 0 and self._state.messages[guide].sent >= counts.look_at:
            self._look(counts)
            counts.look_at = self._state.messages[guide].sent + self._apart

    def _compile(self) -> None:
        """Play on compiled."""
        self._note()
        self._state.counts[0].pause_at = NEVER
        self._tables.compile()

    def _wanted_ns(self) -> int:
        """Nobody sees anything before the links into some NPU have taken all that is missing of some message.

        That stays so until another one begins. Where it says little it is asked less often.
        """
        self._waits -= 1
        if self._least_ns <= self._due_ns and self._waits <= 0 and self._numbered and self._lingers and self._active:
            self._least_ns = self._soonest_ns()
            self._vain = 1 if self._least_ns > self._due_ns else min(2 * self._vain, MOST_VAIN)
            self._waits = self._vain
        return max(self._due_ns, self._least_ns)

    def _soonest_ns(self) -> int:
        """Links need no time for the last segment that each takes, nor all of it for a short one; times are rounded."""
        column, active = self._tables.column, [*self._active]
        before = np.maximum(column("messages", "missing") - self._last, 0)
        least_ns = before * (column("messages", "segment_bytes") / self._most_bytes_per_s * 1e9 - 1)
        return int(self._state.counts[0].now_ns) + int(least_ns[active].min())

    def _ahead(self) -> int:
        """Events that segments still to be sent bring at least."""
        state, ahead = self._state, 0
        for message in map(state.messages.__getitem__, self._arrivals):
            pair = state.pairs[message.pair]
            way = state.ways[state.routes[pair.at + pair.hashed]]
            ahead += (message.count - message.sent) * way.hops * EVENTS_OF_A_HOP
        return ahead

    def _look(self, counts: Any) -> None:
        """Compare with a state before, which is taken anew after ever more looks (Brent's algorithm).

        Where too little happens between two looks, they are farther apart from then on.
        """
        rows = ROWS_OF_A_LOOK + counts.segments + len(self._active) + len(self.ports)
        seldom = min(1 + self._in_vain // FEW_LOOKS, FEW_LOOKS)
        if counts.events - self._looked_at < rows * self._tables.events_of_a_look * seldom:
            self._apart *= 2
            return
        self._in_vain += 1
        self._looked_at = counts.events
        self._looks += 1
        now_ns, base, seen = int(counts.now_ns), self._base, self._told(int(counts.now_ns))
        anew = not self._looks & (self._looks - 1)
        state = [*seen] if anew else seen
        if base and all(map(eq, base.state, state)) and self._skip(base, now_ns):
            self._base, self._looks, self._in_vain = None, 0, 0
        elif anew:
            self._base = self._seen([*state], now_ns)

    def _seen(self, state: list[bytes], now_ns: int) -> _Seen:
        """What has been sent and counted by now."""
        self._note()
        rows = len(self._curves), len(self._times)
        column = self._tables.column
        counts = np.array([column("ports", name) for name in ADDED_UP])
        return _Seen(state, now_ns, column("messages", "sent")[[*self._active]], counts, rows)

    def _skip(self, base: _Seen, now_ns: int) -> bool:
        """Take out as many periods as leave two segments of each message, and end before anything else happens."""
        tables, column, seen = self._tables, self._tables.column, self._seen([], now_ns)
        moved, period_ns, active = seen.sent - base.sent, now_ns - base.now_ns, [*self._active]
        unsent = (column("messages", "count") - column("messages", "sent"))[active]
        room = (unsent - 2)[moved > 0] // moved[moved > 0]
        times = min((self._until_ns - 1 - now_ns) // period_ns, *room.tolist())
        if times < 1 or not self._stay_in_order(active, seen.sent, moved, times):
            return False
        more = np.zeros(len(column("messages", "count")), np.int64)
        more[active] = times * moved
        tables.write("messages", "sent", ALL, column("messages", "sent") + more)
        tables.write("messages", "missing", ALL, column("messages", "missing") - more)
        added = times * (seen.counts - base.counts)
        for name, extra in zip(ADDED_UP, added, strict=True):
            tables.write("ports", name, ALL, column("ports", name) + extra)
        sent = column("readings", "sent_bytes") + added[0][column("readings", "link")]
        tables.write("readings", "sent_bytes", ALL, sent)
        self._curves.again(base.rows[0], times, period_ns)
        self._times.again(base.rows[1], times, period_ns)
        tables.later(times * period_ns, more)
        return True

    def _stay_in_order(self, active: list[int], sent: IntArray, moved: IntArray, times: int) -> bool:
        """Whether segments that come at one time, of messages with one key, go in the same order in all these periods.

        Their numbers decide. Messages that move on by as many stay as far apart; what is under way of others must be
        apart now and in the end.
        """
        tables, column = self._tables, self._tables.column
        _, kinds, whom, _ = tables.timers()
        firsts = column("ports", "head"), column("senders", "lost")
        waiting, lost = (_chains(rows, column("segments", "next"))[1] for rows in firsts)
        under_way = np.concatenate([tables.heads()[1], whom[kinds == LOST], waiting, lost])
        lows = np.array(column("messages", "sent"))
        np.minimum.at(lows, column("segments", "message")[under_way], column("segments", "index")[under_way])
        low, keys = lows[active] - moved, [column("messages", name)[active] for name in ("part", "order")]
        turn = np.lexsort((low, *keys))
        moved, low, high = moved[turn], low[turn], sent[turn]
        own = np.cumsum(np.any([np.diff(key[turn], prepend=key[turn][:1]) != 0 for key in keys], axis=0)) << GROUP_BITS
        apart = (np.diff(own) == 0) & (np.diff(moved) != 0)
        for gone in (0, times * moved):
            farthest = np.maximum.accumulate(own + high + gone)
            if (farthest[:-1] >= (own + low + gone)[1:])[apart].any():
                return False
        return True

    def _told(self, now_ns: int) -> Iterator[bytes]:
        """As things stand: relative to now, and to what each message has sent."""
        column = self._tables.column
        (heads_ns, coming), (due_ns, kinds, whom, sizes) = self._tables.heads(), self._tables.timers()
        of_segments = (kinds == ACKNOWLEDGED) | (kinds == LOST)
        yield _bytes(heads_ns - now_ns, due_ns - now_ns, kinds, np.where(of_segments, NOBODY, whom), sizes)
        active = np.array([*self._active])
        senders = np.array([*dict.fromkeys(self._active.values())])
        missing, count, sent, tail_ns, pairs, segment_bytes = (
            column("messages", name)[active]
            for name in ("missing", "count", "sent", "tail_ns", "pair", "segment_bytes")
        )
        strides = np.array([*map(self._stride, pairs.tolist(), segment_bytes.tolist())])
        yield _bytes(active, missing - count + sent, tail_ns - now_ns, sent % strides)
        yield from self._of_ports(now_ns)
        waits_for, waiting = _chains(column("ports", "head"), column("segments", "next"))
        lost_by, lost = _chains(column("senders", "lost")[senders], column("segments", "next"))
        flying = np.concatenate([coming, whom[of_segments], waiting])
        comes_ns, several = column("segments", "comes_ns")[waiting] - now_ns, column("ports", "apart")[waits_for] > 0
        yield _bytes(waits_for, lost_by, np.where(several, comes_ns, np.maximum(comes_ns, 0)))
        yield from self._of_segments(np.concatenate([flying, lost]), now_ns)
        times = (np.maximum(column("senders", name)[senders] - now_ns, 0) for name in ("free_ns", "alarm_ns"))
        yield _bytes(senders, *times, *(column("senders", name)[senders] for name in OF_SENDERS))
        yield from self._read(column("senders", "reading")[senders], now_ns)
        since_ns = min(column("segments", "sent_ns")[flying].tolist(), default=now_ns) - 1
        own = column("senders", "law")[senders]
        yield from self._of_laws(own[own >= 0], now_ns, since_ns)

    def _of_ports(self, now_ns: int) -> Iterator[bytes]:
        column = self._tables.column
        whose, rows = _chains(column("ports", "credit"), column("credits", "next"))
        time_ns, size_bytes = column("credits", "time_ns")[rows], column("credits", "size_bytes")[rows]
        late, still_ns = time_ns > now_ns, column("ports", "still_since_ns")
        back_bytes = np.bincount(whose[~late], size_bytes[~late], len(still_ns)).astype(np.int64)
        times = (np.maximum(column("ports", name) - now_ns, 0) for name in ("free_ns", "alarm_ns"))
        yield _bytes(*times, np.where(still_ns >= 0, still_ns - now_ns, 1), column("ports", "taken_bytes") - back_bytes)
        of_each = np.flatnonzero(late)[np.argsort(whose[late], kind="stable")]
        yield _bytes(whose[of_each], time_ns[of_each] - now_ns, size_bytes[of_each])
        yield _bytes(*(column("ports", name) for name in LASTING))

    def _of_segments(self, numbers: IntArray, now_ns: int) -> Iterator[bytes]:
        column = self._tables.column
        places = {name: column("segments", name)[numbers] for name in PLACES}
        ahead = column("segments", "index")[numbers] - column("messages", "sent")[places["message"]]
        times = (column("segments", name)[numbers] - now_ns for name in ("tail_ns", "sent_ns"))
        yield _bytes(ahead, *times, *places.values())
        yield from self._read(column("segments", "reading")[numbers], now_ns)

    def _of_laws(self, numbers: IntArray, now_ns: int, since_ns: int) -> Iterator[bytes]:
        """Nobody asks before `since_ns`.

        At line rate only marks and losses change a law that goes by the clock, and what else there is to know is caught
        up with when one comes; below, its timers run on, so that nothing repeats itself.
        """
        own = {name: self._tables.column("laws", name)[numbers] for name in IN_MIND}
        rate, line, timed = own["rate_bytes_per_s"], own["line_bytes_per_s"], own["by_clock"] == 1
        recovers = timed & ((rate != line) | (own["target"] != line))
        own["reacted_ns"] = np.maximum(own["reacted_ns"], since_ns) - now_ns
        yield _bytes(recovers * now_ns, *(np.where(timed, 0, each) for each in own.values()))

    def _read(self, first: IntArray, now_ns: int) -> Iterator[bytes]:
        """Readings of links, relative to now and to what the links have sent since."""
        column = self._tables.column
        whose, rows = _chains(first, column("readings", "next"))
        links, own, bytes_, sent, read_ns = (column("readings", name)[rows] for name in READ)
        yield _bytes(whose, own, bytes_, column("ports", "sent_bytes")[links] - sent, read_ns - now_ns)


def _chains(rows: IntArray, following: IntArray) -> tuple[IntArray, IntArray]:
    """Of chains that begin with some rows: whose each row is, and its number."""
    whose, found = np.arange(len(rows)), [np.zeros((2, 0), np.int64)]
    while len(rows):
        whose, rows = whose[rows >= 0], rows[rows >= 0]
        found.append(np.array([whose, rows]))
        rows = following[rows]
    both = np.concatenate(found, axis=1)
    return both[0], both[1]


def _bytes(*columns: NDArray[Any]) -> bytes:
    return b"".join(column.tobytes() for column in columns)
