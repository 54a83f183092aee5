"""Laws of congestion control: how fast a sender may send, from what comes back to it. One class each.

The rules follow the papers that are named. Where they settle was compared with the papers' equations (docs/queues.md),
with no measurement of a network card.

A law has two figures: a rate, at which segments follow one another, and a window of bytes that may be under way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import ClassVar, NamedTuple, Protocol

from simcore.registry import Registry


class Path(NamedTuple):
    """What a sender knows of its way: the rate of its own link, the round trip when idle, what it sends as one."""

    bytes_per_s: float
    rtt_ns: int
    segment_bytes: int


class Link(Protocol):
    """What a reading tells of a link."""

    bytes_per_s: float
    sent_bytes: int


class Reading(NamedTuple):
    """What a segment saw when a link took it: bytes waiting, bytes that the link had sent, the time."""

    queue_bytes: float
    sent_bytes: int
    now_ns: int
    link: Link

    def state(self, now_ns: int) -> tuple[float, ...]:
        """Relative to now, and to what the link has sent since."""
        return self.queue_bytes, self.link.sent_bytes - self.sent_bytes, now_ns - self.now_ns


class Ack(NamedTuple):
    """An acknowledgement as the sender gets it."""

    now_ns: int
    sent_ns: int
    size_bytes: int
    marked: bool
    readings: Sequence[Reading]


@dataclass
class Law(ABC):
    """The state of one sender. Parameters are the fields that are given, their units are in their names."""

    needs_marks: ClassVar[bool] = False
    needs_readings: ClassVar[bool] = False
    rate_bytes_per_s: float = field(init=False, default=inf)
    window_bytes: float = field(init=False, default=inf)
    path: Path = field(init=False, default=Path(inf, 1, 1))
    _reacted_ns: float = field(init=False, default=-inf)

    def begin(self, path: Path) -> None:
        """At the rate of the sender's own link."""
        self.path, self.rate_bytes_per_s = path, path.bytes_per_s

    def sends(self, now_ns: int, size_bytes: int) -> None:  # noqa: B027 - most laws do nothing then
        """A segment is about to be sent: what time and bytes sent change."""

    @abstractmethod
    def acknowledged(self, ack: Ack) -> None:
        """A segment has arrived."""

    def lost(self, now_ns: int) -> None:  # noqa: B027
        """A segment was dropped."""

    def state(self, now_ns: int, since_ns: int) -> Hashable:
        """What decides how it goes on, relative to now, as long as nothing is marked; nobody asks before `since_ns`."""
        state = {each.name: getattr(self, each.name) for each in fields(self) if not each.init}
        reacted_ns = max(state.pop("_reacted_ns"), since_ns)
        return reacted_ns - now_ns, *state.values()

    def idle(self, time_ns: int) -> None:  # noqa: B027
        """So much time has gone by in which nothing changed its `state`."""

    def _limit(self, least: float) -> None:
        """Never faster than the link, never slower than `least` of it: a sender that stands still learns nothing."""
        line = self.path.bytes_per_s
        self.rate_bytes_per_s = min(max(self.rate_bytes_per_s, least * line), line)


LAWS: Registry[type[Law]] = Registry("congestion control")
LEAST_RATE = 1e-3
MEGABIT = 125_000.0


@LAWS.register("dcqcn")
@dataclass
class Dcqcn(Law):
    """DCQCN (Zhu et al., SIGCOMM 2015): cut on notifications of marks, recover by halves, then add.

    `g` and the byte counter are those of the authors' simulator; the other defaults are usual at 40 Gb/s.
    """

    needs_marks = True
    g: float = 1 / 256
    notification_interval_ns: float = 50_000
    alpha_interval_ns: float = 55_000
    timer_ns: float = 55_000
    byte_counter_bytes: float = 10_000_000
    fast_recovery: float = 5
    additive_bytes_per_s: float = 40 * MEGABIT
    hyper_bytes_per_s: float = 400 * MEGABIT
    _alpha: float = field(init=False, default=1.0)
    _target: float = field(init=False, default=inf)
    _alpha_ns: float = field(init=False, default=0)
    _timer_ns: float = field(init=False, default=0)
    _sent_bytes: float = field(init=False, default=0)
    _rounds: list[int] = field(init=False, default_factory=lambda: [0, 0])  # of the timer, of the byte counter

    def begin(self, path: Path) -> None:
        """At line rate, as the paper does."""
        super().begin(path)
        self._target = path.bytes_per_s

    def sends(self, now_ns: int, size_bytes: int) -> None:
        """Recover when timer or byte counter say so."""
        self._recover(now_ns)
        self._sent_bytes += size_bytes
        while self._sent_bytes >= self.byte_counter_bytes:
            self._sent_bytes -= self.byte_counter_bytes
            self._increase(1)

    def acknowledged(self, ack: Ack) -> None:
        """A notification, at most one in each interval."""
        self._recover(ack.now_ns)
        if ack.marked:
            self.lost(ack.now_ns)

    def lost(self, now_ns: int) -> None:
        """Cut by half of alpha; recovery begins anew."""
        if now_ns - self._reacted_ns < self.notification_interval_ns:
            return
        self._reacted_ns = self._alpha_ns = self._timer_ns = now_ns
        self._target = self.rate_bytes_per_s
        self.rate_bytes_per_s *= 1 - self._alpha / 2
        self._alpha = (1 - self.g) * self._alpha + self.g
        self._rounds, self._sent_bytes = [0, 0], 0
        self._limit(LEAST_RATE)

    def state(self, now_ns: int, since_ns: int) -> Hashable:
        """At line rate only marks and losses change it: what else there is to know is caught up with when one comes."""
        settled = self.rate_bytes_per_s == self._target == self.path.bytes_per_s
        return self.path if settled else object()

    def idle(self, time_ns: int) -> None:
        """As if what was noted had been so much earlier."""
        self._reacted_ns, self._alpha_ns, self._timer_ns = (
            noted_ns - time_ns for noted_ns in (self._reacted_ns, self._alpha_ns, self._timer_ns)
        )

    def _recover(self, now_ns: int) -> None:
        """Catch up with the timers, which run from the first notification on, whether or not anything is sent."""
        if self._reacted_ns == -inf:
            return
        ticks = (now_ns - self._alpha_ns) // self.alpha_interval_ns
        self._alpha *= (1 - self.g) ** ticks
        self._alpha_ns += ticks * self.alpha_interval_ns
        while now_ns - self._timer_ns >= self.timer_ns:
            self._timer_ns += self.timer_ns
            self._increase(0)
            if self.rate_bytes_per_s >= self.path.bytes_per_s:
                self._timer_ns += (now_ns - self._timer_ns) // self.timer_ns * self.timer_ns

    def _increase(self, which: int) -> None:
        """One round more: halve the way to the target, which moves on after the fast recovery."""
        self._rounds[which] += 1
        if min(self._rounds) > self.fast_recovery:
            self._target += self.hyper_bytes_per_s
        elif max(self._rounds) > self.fast_recovery:
            self._target += self.additive_bytes_per_s
        self._target = min(self._target, self.path.bytes_per_s)
        self.rate_bytes_per_s = (self.rate_bytes_per_s + self._target) / 2
        if self._target - self.rate_bytes_per_s < 1.0:
            self.rate_bytes_per_s = self._target


@LAWS.register("hpcc")
@dataclass
class Hpcc(Law):
    """HPCC (Li et al., SIGCOMM 2019, algorithm 1): keep the bytes under way at `eta` of the busiest link's product.

    Readings of the links (INT) come back with every acknowledgement.
    """

    needs_readings = True
    eta: float = 0.95
    max_stage: float = 5
    flows: float = 10  # expected on a link: sets the additive step
    _reference: float = field(init=False, default=inf)
    _use: float = field(init=False, default=0.0)
    _stage: int = field(init=False, default=0)
    _last: Sequence[Reading] = field(init=False, default=())

    def begin(self, path: Path) -> None:
        """With a whole product of bandwidth and round trip."""
        super().begin(path)
        self._product = path.bytes_per_s * path.rtt_ns * 1e-9
        self._reference = self.window_bytes = self._product

    def acknowledged(self, ack: Ack) -> None:
        """Measure the busiest link, and follow it; the reference moves once in a round trip."""
        if len(self._last) == len(ack.readings):
            self._measure(ack.readings)
            new_round = ack.sent_ns > self._reacted_ns
            self._react(move=new_round)
            if new_round:
                self._reacted_ns = ack.now_ns
        self._last = ack.readings

    def state(self, now_ns: int, since_ns: int) -> Hashable:
        """With the last readings relative to now."""
        last, self._last = self._last, ()
        own, self._last = super().state(now_ns, since_ns), last
        return own, *(reading.state(now_ns) for reading in last)

    def _measure(self, readings: Sequence[Reading]) -> None:
        most, span = 0.0, 0.0
        rtt_ns = self.path.rtt_ns
        for new, old in zip(readings, self._last, strict=True):
            elapsed_ns = new.now_ns - old.now_ns
            if elapsed_ns <= 0:
                continue
            waiting = min(new.queue_bytes, old.queue_bytes) / (new.link.bytes_per_s * rtt_ns * 1e-9)
            use = waiting + (new.sent_bytes - old.sent_bytes) / (elapsed_ns * 1e-9) / new.link.bytes_per_s
            if use > most:
                most, span = use, elapsed_ns
        share = min(span, rtt_ns) / rtt_ns
        self._use = (1 - share) * self._use + share * most

    def _react(self, *, move: bool) -> None:
        step = self._product * (1 - self.eta) / self.flows
        multiplies = self._use >= self.eta or self._stage >= self.max_stage
        wanted = self._reference / max(self._use / self.eta, 1e-3) + step if multiplies else self._reference + step
        self.window_bytes = round(min(max(wanted, step), self._product))  # a part of a byte is none
        self.rate_bytes_per_s = self.window_bytes / (self.path.rtt_ns * 1e-9)
        self._limit(LEAST_RATE)
        if move:
            self._reference = self.window_bytes
            self._stage = 0 if multiplies else self._stage + 1


@LAWS.register("timely")
@dataclass
class Timely(Law):
    """TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): follow the slope of the round-trip time.

    The thresholds are counted from the idle round trip, so that they mean waiting on any network.
    """

    weight: float = 0.875
    beta: float = 0.8
    low_ns: float = 20_000
    high_ns: float = 500_000
    additive_bytes_per_s: float = 10 * MEGABIT
    hyper_after: float = 5
    _before_ns: float = field(init=False, default=-1)
    _slope_ns: float = field(init=False, default=0.0)
    _falling: float = field(init=False, default=0)

    def acknowledged(self, ack: Ack) -> None:
        """One reaction in a round trip."""
        rtt_ns = ack.now_ns - ack.sent_ns
        if ack.sent_ns <= self._reacted_ns:
            return
        self._reacted_ns = ack.now_ns
        change_ns = rtt_ns - self._before_ns if self._before_ns >= 0 else 0
        self._before_ns = rtt_ns
        self._slope_ns = (1 - self.weight) * self._slope_ns + self.weight * change_ns
        self._react(rtt_ns, rtt_ns - self.path.rtt_ns)
        self._limit(LEAST_RATE)

    def _react(self, rtt_ns: int, waited_ns: int) -> None:
        if waited_ns < self.low_ns:
            self.rate_bytes_per_s += self.additive_bytes_per_s
        elif waited_ns > self.high_ns:
            self.rate_bytes_per_s *= 1 - self.beta * (1 - (self.high_ns + self.path.rtt_ns) / rtt_ns)
        elif self._slope_ns <= 0:
            self._falling = min(self._falling + 1, self.hyper_after)
            steps = self.hyper_after if self._falling >= self.hyper_after else 1
            self.rate_bytes_per_s += steps * self.additive_bytes_per_s
            return
        else:
            self.rate_bytes_per_s *= 1 - self.beta * min(self._slope_ns / self.path.rtt_ns, 1.0)
        self._falling = 0

    def lost(self, now_ns: int) -> None:
        """As far down as a slope leads at once."""
        self.rate_bytes_per_s *= 1 - self.beta / 2
        self._limit(LEAST_RATE)


@dataclass
class _Windowed(Law):
    """A window that grows by steps and is cut at most once in a round trip; segments are paced over it."""

    def begin(self, path: Path) -> None:
        """With a whole product of bandwidth and round trip."""
        super().begin(path)
        self.window_bytes = max(path.bytes_per_s * path.rtt_ns * 1e-9, path.segment_bytes)

    def _grow(self, step_bytes: float, acked_bytes: int) -> None:
        """By a step for every window that is acknowledged."""
        self._set(self.window_bytes + step_bytes * min(acked_bytes / self.window_bytes, 1.0))

    def _cut(self, factor: float, now_ns: int, sent_ns: int) -> None:
        if sent_ns > self._reacted_ns:
            self._reacted_ns = now_ns
            self._set(self.window_bytes * factor)

    def _set(self, window_bytes: float) -> None:
        line, rtt_ns = self.path.bytes_per_s, self.path.rtt_ns
        most = 2 * max(line * rtt_ns * 1e-9, self.path.segment_bytes)
        self.window_bytes = min(max(window_bytes, LEAST_RATE * self.path.segment_bytes), most)
        self.rate_bytes_per_s = self.window_bytes / (rtt_ns * 1e-9)
        self._limit(LEAST_RATE)


@LAWS.register("swift")
@dataclass
class Swift(_Windowed):
    """Swift (Kumar et al., SIGCOMM 2020) without the scaling of its target by hops and flows.

    The window grows while segments wait less than `target_ns`, and is cut by how much longer they wait.
    """

    target_ns: float = 10_000
    beta: float = 0.8
    most_cut: float = 0.5
    additive_bytes: float = 4096

    def acknowledged(self, ack: Ack) -> None:
        """Compare how long the segment waited with the target."""
        delay_ns = ack.now_ns - ack.sent_ns
        target_ns = self.path.rtt_ns + self.target_ns
        if delay_ns < target_ns:
            self._grow(self.additive_bytes, ack.size_bytes)
        else:
            excess = (delay_ns - target_ns) / delay_ns
            self._cut(max(1 - self.beta * excess, 1 - self.most_cut), ack.now_ns, ack.sent_ns)

    def lost(self, now_ns: int) -> None:
        """As far down as it goes at once."""
        self._cut(1 - self.most_cut, now_ns, now_ns)


@LAWS.register("window")
@dataclass
class Window(_Windowed):
    """Additive increase, multiplicative decrease: a step more each round trip, half on a mark or a loss."""

    additive_bytes: float = 4096
    cut: float = 0.5

    def acknowledged(self, ack: Ack) -> None:
        """Marked: less; else more."""
        if ack.marked:
            self._cut(self.cut, ack.now_ns, ack.sent_ns)
        else:
            self._grow(self.additive_bytes, ack.size_bytes)

    def lost(self, now_ns: int) -> None:
        """As a mark on what is sent now."""
        self._cut(self.cut, now_ns, now_ns - self.path.rtt_ns)
