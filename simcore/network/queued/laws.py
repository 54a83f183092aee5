"""Laws of congestion control: how fast a sender may send, from what comes back to it. A class of figures each.

The rules follow the papers that are named. Where they settle was compared with the papers' equations (docs/queues.md),
with no measurement of a network card.

A law has two figures: a rate, at which segments follow one another, and a window of bytes that may be under way. What
happens to them are functions, which are compiled with `queued.core`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, expm1, floor, inf, log
from typing import Any, ClassVar

from simcore.network.core import NEVER
from simcore.network.queued.tables import Time
from simcore.registry import Registry

DCQCN, HPCC, TIMELY, SWIFT, WINDOW = range(5)
PATIENCE = 1 / 8
"""What happens by the clock is heard of so many times in the shortest interval."""


@dataclass
class Law:
    """The state of one sender. Parameters are the fields that are given, their units are in their names."""

    needs_marks: ClassVar[bool] = False
    kind: int = field(init=False, default=-1)
    reads: int = field(init=False, default=0)  # 1: what links say (`measured`)
    rate_bytes_per_s: float = field(init=False, default=inf)
    window_bytes: float = field(init=False, default=inf)
    line_bytes_per_s: float = field(init=False, default=inf)
    rtt_ns: float = field(init=False, default=1)
    patience_ns: int = field(init=False, default=0)  # need hear nothing for so long while nothing is marked
    segment_bytes: float = field(init=False, default=1)
    reacted_ns: float | Time = field(init=False, default=-inf)
    by_clock: int = field(init=False, default=0)  # 1: changes as time goes by, until it is at line rate
    deaf: float = field(init=False, default=0.0)  # the share of senders that heed no mark (`averaged`)
    deaf_for: float = field(init=False, default=0.0)

    def begin(self, bytes_per_s: float, rtt_ns: int, segment_bytes: int) -> None:
        """At the rate of the sender's own link; `rtt_ns` is the round trip when idle."""
        self.line_bytes_per_s = self.rate_bytes_per_s = bytes_per_s
        self.rtt_ns, self.segment_bytes = rtt_ns, segment_bytes

    @property
    def product(self) -> float:
        """Of bandwidth and round trip, in bytes."""
        return self.line_bytes_per_s * self.rtt_ns * 1e-9


LAWS: Registry[type[Law]] = Registry("congestion control")
LEAST_RATE = 1e-3
LEAST = 1e-9
"""Chances below are none."""
MEGABIT = 125_000.0


@LAWS.register("dcqcn")
@dataclass
class Dcqcn(Law):
    """DCQCN (Zhu et al., SIGCOMM 2015): cut on notifications of marks, recover by halves, then add.

    `g` and the byte counter are those of the authors' simulator; the other defaults are usual at 40 Gb/s.
    """

    needs_marks = True
    kind: int = field(init=False, default=DCQCN)
    by_clock: int = field(init=False, default=1)
    g: float = 1 / 256
    notification_interval_ns: float = 50_000
    alpha_interval_ns: float = 55_000
    timer_ns: float = 55_000
    byte_counter_bytes: float = 10_000_000
    fast_recovery: float = 5
    additive_bytes_per_s: float = 40 * MEGABIT
    hyper_bytes_per_s: float = 400 * MEGABIT
    alpha: float = field(init=False, default=1.0)
    target: float = field(init=False, default=inf)
    alpha_at_ns: float = field(init=False, default=0)
    timer_at_ns: float = field(init=False, default=0)
    counted_bytes: float = field(init=False, default=0)
    timer_rounds: float = field(init=False, default=0)
    counter_rounds: float = field(init=False, default=0)
    marks_per_ns: float = field(init=False, default=0.0)
    ever_notified: float = field(init=False, default=0.0)

    def begin(self, bytes_per_s: float, rtt_ns: int, segment_bytes: int) -> None:
        """At line rate, as the paper does."""
        super().begin(bytes_per_s, rtt_ns, segment_bytes)
        self.target = bytes_per_s
        self.patience_ns = int(PATIENCE * min(self.notification_interval_ns, self.alpha_interval_ns, self.timer_ns))


@LAWS.register("hpcc")
@dataclass
class Hpcc(Law):
    """HPCC (Li et al., SIGCOMM 2019, algorithm 1): keep the bytes under way at `eta` of the busiest link's product.

    Readings of the links (INT) come back with every acknowledgement.
    """

    kind: int = field(init=False, default=HPCC)
    reads: int = field(init=False, default=1)
    eta: float = 0.95
    max_stage: float = 5
    flows: float = 10  # expected on a link: sets the additive step
    reference: float = field(init=False, default=inf)
    use: float = field(init=False, default=0.0)
    stage: float = field(init=False, default=0)

    def begin(self, bytes_per_s: float, rtt_ns: int, segment_bytes: int) -> None:
        """With a whole product of bandwidth and round trip."""
        super().begin(bytes_per_s, rtt_ns, segment_bytes)
        self.reference = self.window_bytes = self.product


@LAWS.register("timely")
@dataclass
class Timely(Law):
    """TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): follow the slope of the round-trip time.

    The thresholds are counted from the idle round trip, so that they mean waiting on any network.
    """

    kind: int = field(init=False, default=TIMELY)
    weight: float = 0.875
    beta: float = 0.8
    low_ns: float = 20_000
    high_ns: float = 500_000
    additive_bytes_per_s: float = 10 * MEGABIT
    hyper_after: float = 5
    before_ns: float = field(init=False, default=-1)
    slope_ns: float = field(init=False, default=0.0)
    falling: float = field(init=False, default=0)


@dataclass
class _Windowed(Law):
    """A window that grows by steps and is cut at most once in a round trip; segments are paced over it."""

    def begin(self, bytes_per_s: float, rtt_ns: int, segment_bytes: int) -> None:
        """With a whole product of bandwidth and round trip."""
        super().begin(bytes_per_s, rtt_ns, segment_bytes)
        self.window_bytes = max(self.product, segment_bytes)


@LAWS.register("swift")
@dataclass
class Swift(_Windowed):
    """Swift (Kumar et al., SIGCOMM 2020) without the scaling of its target by hops and flows.

    The window grows while segments wait less than `target_ns`, and is cut by how much longer they wait.
    """

    kind: int = field(init=False, default=SWIFT)
    target_ns: float = 10_000
    beta: float = 0.8
    most_cut: float = 0.5
    additive_bytes: float = 4096


@LAWS.register("window")
@dataclass
class Window(_Windowed):
    """Additive increase, multiplicative decrease: a step more each round trip, half on a mark or a loss."""

    kind: int = field(init=False, default=WINDOW)
    additive_bytes: float = 4096
    cut: float = 0.5


# What happens to a law. `law` is one of the above, or a record with the fields of all of them.


def silence_ns(law: Any) -> int:
    """For how long a law need hear nothing while nothing is marked."""
    at_line = law.rate_bytes_per_s >= law.line_bytes_per_s
    patience: int = NEVER if law.patience_ns and at_line else law.patience_ns
    return patience


def sends(law: Any, now: int, size_bytes: int) -> None:
    """A segment is about to be sent: what time and bytes sent change."""
    if law.kind != DCQCN:
        return
    _recover(law, now)
    law.counted_bytes += size_bytes
    while law.counted_bytes >= law.byte_counter_bytes:
        law.counted_bytes -= law.byte_counter_bytes
        law.counter_rounds += 1
        _increase(law)


def acknowledged(law: Any, now: int, sent: int, size_bytes: int, marked: int) -> None:
    """A segment has arrived, which left at `sent`."""
    if law.kind == DCQCN:
        _recover(law, now)
        if marked:
            lost(law, now)
    elif law.kind == TIMELY:
        _follow_slope(law, now, sent)
    elif law.kind == SWIFT:
        delay, target = now - sent, law.rtt_ns + law.target_ns
        if delay < target:
            _grow(law, size_bytes)
        else:
            _cut(law, max(1 - law.beta * ((delay - target) / delay), 1 - law.most_cut), now, sent)
    elif law.kind == WINDOW:
        if marked:
            _cut(law, law.cut, now, sent)
        else:
            _grow(law, size_bytes)


def averaged(law: Any, now: int, sent: int, size_bytes: float, unmarked: float) -> None:
    """What many senders alike do on average when so much has arrived, with a chance that nothing of it is marked."""
    if law.kind == DCQCN:
        _recovers(law, now, size_bytes, unmarked)
    elif law.kind == WINDOW:
        share = _heeded(law, unmarked, size_bytes, law.window_bytes)
        _set(law, law.window_bytes * (1 - (1 - law.cut) * share))
        _grow(law, size_bytes * unmarked)
    else:
        acknowledged(law, now, sent, int(size_bytes), 0)


def _heeded(law: Any, unmarked: float, since: float, interval: float) -> float:
    """The share of senders that react to a mark now: who has done so does not again before an interval is over.

    So much of one has gone by since the last time. Those who are deaf hear again together, on average when each does.
    """
    law.deaf_for -= since
    if law.deaf_for <= 0:
        law.deaf = law.deaf_for = 0.0
    share: float = (1 - law.deaf) * (1 - unmarked)
    if share:
        law.deaf_for = (law.deaf * law.deaf_for + share * interval) / (law.deaf + share)
        law.deaf += share
    return share


def _recovers(law: Any, now: int, size_bytes: float, unmarked: float) -> None:
    """DCQCN: the mean of many senders, as in the fluid model of its paper (section 5)."""
    span = now - law.reacted_ns if law.reacted_ns > -inf else 0.0
    law.reacted_ns = now
    share = _heeded(law, unmarked, span, law.notification_interval_ns)
    law.ever_notified += (1 - law.ever_notified) * share
    if not law.ever_notified:
        return
    if span:
        law.marks_per_ns += (-log(max(unmarked, LEAST)) / span - law.marks_per_ns) * min(span / law.timer_ns, 1.0)
    counter_ns = law.byte_counter_bytes / law.rate_bytes_per_s * 1e9
    timers, counters = _rounds(law, law.timer_ns, span), _rounds(law, counter_ns, span)
    law.timer_rounds += timers - share * law.timer_rounds
    law.counter_rounds += counters - share * law.counter_rounds
    by_time, by_bytes = _past(law, law.timer_rounds, law.timer_ns), _past(law, law.counter_rounds, counter_ns)
    alphas = timers if law.alpha_interval_ns == law.timer_ns else _rounds(law, law.alpha_interval_ns, span)
    law.alpha *= (1 - law.g) ** alphas
    kept = (1 - law.alpha / 2) ** share
    law.alpha += law.g * (1 - law.alpha) * share
    law.target += (law.rate_bytes_per_s - law.target) * share
    law.rate_bytes_per_s *= kept
    both = by_time * by_bytes
    step = (by_time + by_bytes - 2 * both) * law.additive_bytes_per_s + both * law.hyper_bytes_per_s
    law.target = min(law.target + (timers + counters) * step, law.line_bytes_per_s)
    law.rate_bytes_per_s += (law.target - law.rate_bytes_per_s) * (1 - 0.5 ** (timers + counters))
    _limit(law)


def _rounds(law: Any, interval_ns: float, span: float) -> float:
    """How many intervals end in a span of time, where each notification begins a new one.

    Notifications are at least `notification_interval_ns` apart; marks come at random.
    """
    per_ns, apart_ns = 1 / interval_ns, law.notification_interval_ns
    if law.marks_per_ns * interval_ns > LEAST:
        sure = floor(apart_ns / interval_ns)
        more_ns = (sure + 1) * interval_ns - apart_ns
        more = exp(-law.marks_per_ns * more_ns) / -expm1(-law.marks_per_ns * interval_ns)
        per_ns = (sure + more) / (apart_ns + 1 / law.marks_per_ns)
    return float(span * per_ns * law.ever_notified)


def _past(law: Any, rounds: float, interval_ns: float) -> float:
    """The share of senders that have had more rounds than those of the fast recovery since they were notified.

    Where notifications come all the time rounds are spread as a geometric distribution; when they are over all have
    had as many.
    """
    marks = law.marks_per_ns
    steady = min(marks / (1 + marks * law.notification_interval_ns) * interval_ns * (1 + rounds), 1.0)
    sure = 1.0 if rounds > law.fast_recovery else 0.0
    share: float = steady * (rounds / (1 + rounds)) ** law.fast_recovery + (1 - steady) * sure
    return share


def lost(law: Any, now: int) -> None:
    """A segment was dropped."""
    if law.kind == DCQCN:
        _notified(law, now)
    elif law.kind == TIMELY:  # as far down as a slope leads at once
        law.rate_bytes_per_s *= 1 - law.beta / 2
        _limit(law)
    elif law.kind == SWIFT:
        _cut(law, 1 - law.most_cut, now, now)
    elif law.kind == WINDOW:
        _cut(law, law.cut, now, now - law.rtt_ns)


def measured(law: Any, now: int, sent: int, most: float, span: float) -> None:
    """HPCC: the busiest link's use over a span of time. Follow it; the reference moves once in a round trip."""
    share = min(span, law.rtt_ns) / law.rtt_ns
    law.use = (1 - share) * law.use + share * most
    product = law.line_bytes_per_s * law.rtt_ns * 1e-9
    step = product * (1 - law.eta) / law.flows
    multiplies = law.use >= law.eta or law.stage >= law.max_stage
    wanted = law.reference / max(law.use / law.eta, 1e-3) + step if multiplies else law.reference + step
    law.window_bytes = round(min(max(wanted, step), product))  # a part of a byte is none
    law.rate_bytes_per_s = law.window_bytes / (law.rtt_ns * 1e-9)
    _limit(law)
    if sent > law.reacted_ns:
        law.reference = law.window_bytes
        law.stage = 0 if multiplies else law.stage + 1
        law.reacted_ns = now


def _limit(law: Any) -> None:
    """Never faster than the link, never so slow that a sender stands still and learns nothing."""
    line = law.line_bytes_per_s
    law.rate_bytes_per_s = min(max(law.rate_bytes_per_s, LEAST_RATE * line), line)


def _notified(law: Any, now: int) -> None:
    """DCQCN: cut by half of alpha, at most once in each interval; recovery begins anew."""
    if now - law.reacted_ns < law.notification_interval_ns:
        return
    law.reacted_ns = law.alpha_at_ns = law.timer_at_ns = now
    law.target = law.rate_bytes_per_s
    law.rate_bytes_per_s *= 1 - law.alpha / 2
    law.alpha = (1 - law.g) * law.alpha + law.g
    law.timer_rounds = law.counter_rounds = law.counted_bytes = 0
    _limit(law)


def _recover(law: Any, now: int) -> None:
    """DCQCN: catch up with the timers, which run from the first notification on, whether or not anything is sent."""
    if law.reacted_ns == -inf:
        return
    ticks = (now - law.alpha_at_ns) // law.alpha_interval_ns
    law.alpha *= (1 - law.g) ** float(ticks)
    law.alpha_at_ns += ticks * law.alpha_interval_ns
    while now - law.timer_at_ns >= law.timer_ns:
        law.timer_at_ns += law.timer_ns
        law.timer_rounds += 1
        _increase(law)
        if law.rate_bytes_per_s >= law.line_bytes_per_s:
            law.timer_at_ns += (now - law.timer_at_ns) // law.timer_ns * law.timer_ns


def _increase(law: Any) -> None:
    """DCQCN, one round more: halve the way to the target, which moves on after the fast recovery."""
    if min(law.timer_rounds, law.counter_rounds) > law.fast_recovery:
        law.target += law.hyper_bytes_per_s
    elif max(law.timer_rounds, law.counter_rounds) > law.fast_recovery:
        law.target += law.additive_bytes_per_s
    law.target = min(law.target, law.line_bytes_per_s)
    law.rate_bytes_per_s = (law.rate_bytes_per_s + law.target) / 2
    if law.target - law.rate_bytes_per_s < 1.0:
        law.rate_bytes_per_s = law.target


def _follow_slope(law: Any, now: int, sent: int) -> None:
    """TIMELY: one reaction in a round trip."""
    if sent <= law.reacted_ns:
        return
    rtt, before = now - sent, law.before_ns
    law.reacted_ns, law.before_ns = now, rtt
    change = rtt - before if before >= 0 else 0.0
    law.slope_ns = (1 - law.weight) * law.slope_ns + law.weight * change
    waited, steps = rtt - law.rtt_ns, 0.0
    falls = law.low_ns <= waited <= law.high_ns and law.slope_ns <= 0
    law.falling = min(law.falling + 1, law.hyper_after) if falls else 0.0
    if waited < law.low_ns:
        steps = 1.0
    elif waited > law.high_ns:
        law.rate_bytes_per_s *= 1 - law.beta * (1 - (law.high_ns + law.rtt_ns) / rtt)
    elif falls:
        steps = law.hyper_after if law.falling >= law.hyper_after else 1.0
    else:
        law.rate_bytes_per_s *= 1 - law.beta * min(law.slope_ns / law.rtt_ns, 1.0)
    law.rate_bytes_per_s += steps * law.additive_bytes_per_s
    _limit(law)


def _grow(law: Any, acked_bytes: float) -> None:
    """By a step for every window that is acknowledged."""
    _set(law, law.window_bytes + law.additive_bytes * min(acked_bytes / law.window_bytes, 1.0))


def _cut(law: Any, factor: float, now: int, sent: float) -> None:
    if sent > law.reacted_ns:
        law.reacted_ns = now
        _set(law, law.window_bytes * factor)


def _set(law: Any, window_bytes: float) -> None:
    line = law.line_bytes_per_s
    most = 2 * max(line * law.rtt_ns * 1e-9, law.segment_bytes)
    law.window_bytes = min(max(window_bytes, LEAST_RATE * law.segment_bytes), most)
    law.rate_bytes_per_s = law.window_bytes / (law.rtt_ns * 1e-9)
    _limit(law)
