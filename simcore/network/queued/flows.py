"""Flows through links with queues, a step of time after the other: no segment, and no event for each of them.

Before each link of its way a flow has a tank. In a step every link takes out of all tanks before it what it can send,
in proportion to what is in them, and puts it into those before the next links. A law of congestion control hears of it
by signals: what is sent in a part of a round trip meets the queues of that moment, and comes back when it has waited in
them. A message is there when the last of its bytes is, which goes through queues first come, first served.

Bytes are whole numbers of parts (`PARTS` of one), so the sum over a link's tanks is the same in every order. Flows that
are alike are one here, and so are links: `weight` of them share each of the links (`queued.alike`). Times are counted
from the beginning of a step, so the same is the same at any time.

Tables are lists of rows here, and arrays of records where `queued.fluid` has these functions compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

from simcore.network.core import NEVER
from simcore.network.queued.laws import averaged, measured
from simcore.network.queued.tables import NOBODY
from simcore.timeline.events import MARKS, STILL, WAITING

PARTS = 65536
FINE = 1024
"""Times of links and chances of marks are added up in such parts of a nanosecond and of a packet."""
SIGNALS = 32
FREE, CREDITS, PFC = range(3)
PACKET_BYTES = 4096
STEPS_OF_USE = 4
"""How much a link sends is a mean of some steps."""
LEAST_PACKETS = 1.5
"""Windows of fewer packets only pace them."""
NOTED_PART, NOTED_BYTES = 16, 4096
"""A curve has a new row when the queue has changed by more than a part of what it was, and by so much."""
SLACK_NS = 10_000
"""What a link sends is noted as one occupation as long as that is over at most so long before it was."""
NOISE_NS = 1e-6
append = list.append


@dataclass(slots=True)
class Flow:
    """What one NPU sends another under a law, over `hops` links from row `at` on.

    `pledged` are the parts of all its messages, `injected` those that have been put before its first link, `loaded`
    those in its tanks. Its messages are chained from the `oldest` that is not there yet to the `current` one. `unsaid`
    parts have left since the last signal was sent; `signals` are under way, the first in row `first` of the flow's own,
    of which so many have `read` the links. `acked` parts were back at `heard_ns`, the last after `round_ns`.
    Flows of the same `rules` and `kind` have fared alike so far, 0 = are new.
    """

    law: int
    at: int
    hops: int
    line: float  # parts a nanosecond
    idle_ns: int
    back_ns: int
    period_ns: int
    packet_bytes: int
    rules: int = 0
    kind: int = 0
    pledged: int = 0
    injected: int = 0
    loaded: int = 0
    oldest: int = NOBODY
    current: int = NOBODY
    unsaid: int = 0
    said_ns: int = 0
    first: int = 0
    signals: int = 0
    read: int = 0
    acked: int = 0
    heard_ns: int = 0
    round_ns: int = 1


@dataclass(slots=True)
class Hop:
    """A flow's tank before a link; of such flows `weight` share it. The link before it has `weight_before` of them."""

    home: int
    link: int
    before: int = NOBODY
    weight: int = 1
    weight_before: int = 1
    tank: int = 0


@dataclass(slots=True)
class Queue:
    """A link, and all that is before it. Sizes are parts, rates parts a nanosecond.

    In a step: `backlog` before it, of which `passing` comes from other links and `going` goes on to others; `lying` in
    the buffer at its end; `able` to be sent; `came` in the step before. `left` waits when the step is over. Not noted
    yet: it stood `still` for so long, so many packets were `marked`, it was `used` for so long; `highest` since a row.
    """

    line: float
    latency_ns: int
    control: int
    buffer: int
    xoff: int
    xon: int
    kmin: int = 0
    kmax: int = 0
    pmax: float = 0.0
    packet_bytes: int = 1
    kind: int = 0
    backlog: int = 0
    passing: int = 0
    going: int = 0
    lying: int = 0
    own: int = 0
    own_next: int = 0
    came: int = 0
    able: float = 0.0
    share: float = 0.0
    left: float = 0.0
    chance: float = 0.0
    use: float = 0.0
    mean_use: float = 0.0
    paused: int = 0
    stands: int = 0
    noted: int = 0
    highest: float = 0.0
    highest_ns: int = 0
    still: int = 0
    still_since_ns: int = -1
    marked: int = 0
    used: int = 0
    used_since_ns: int = 0
    # What is reported.
    peak_bytes: int = 0
    still_ns: int = 0
    stops: int = 0
    marks: int = 0


@dataclass(slots=True)
class Message:
    """Ends when its flow has injected `end` parts. Then its last byte is traced: `ahead` of it before link `hop`.

    In a step it goes on after `offset_ns`. `late_ns` is what the steps have taken that it needed to come here: links
    take their latency in their place.
    """

    end: int
    latency_ns: int
    next: int = NOBODY
    hop: int = 0
    ahead: float = -1.0
    offset_ns: float = 0.0
    late_ns: int = 0


@dataclass(slots=True)
class Signal:
    """So many parts were sent at a time, and come back; none is marked with a chance, a link was used."""

    sent_ns: int = 0
    due_ns: int = 0
    parts: int = 0
    unmarked: float = 1.0
    use: float = 0.0


@dataclass(slots=True)
class Counts:
    """Of an island: when it is, how long a step takes, when the first message is through; whether anything moves.

    Curves and occupations of links are noted where `curved` and `timed` say so: so many `rows`, noted or not.
    """

    now_ns: int
    step_ns: int
    first_ns: int = NEVER
    soonest_ns: int = 0
    moves: int = 1
    curved: int = 1
    timed: int = 0
    rows: int = 0


TABLES: dict[str, Any] = {
    "flows": Flow, "hops": Hop, "queues": Queue, "messages": Message, "signals": Signal, "counts": Counts,
}  # fmt: skip


@dataclass(slots=True)
class State:
    """All tables; the flows and links of an island, which share links. `left` takes (flow, time, 0) of messages."""

    flows: list[Flow] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    laws: list[Any] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    active: Any = ()
    used: Any = ()
    left: list[tuple[int, int]] = field(default_factory=list)
    curves: list[tuple[int, int, int, int]] = field(default_factory=list)
    times: list[tuple[int, int, int]] = field(default_factory=list)


def play(s: State, until_ns: int, most: int) -> int:
    """Whole steps that end by then, up to that in which a message is through; how many, `most` at once."""
    counts, steps = s.counts[0], 0
    while steps < most and counts.now_ns + counts.step_ns <= min(until_ns, counts.first_ns) and counts.moves:
        step(s, counts.step_ns)
        steps += 1
    counts.soonest_ns = _soonest(s)
    return steps


def _soonest(s: State) -> int:
    """Before when no message is there: at line rate, without waiting for what comes later."""
    counts, soonest = s.counts[0], NEVER
    for number in s.active:
        flow = s.flows[number]
        if flow.oldest >= 0:
            message = s.messages[flow.oldest]
            queue = s.queues[s.hops[flow.at + message.hop].link]
            steps = max(message.end - flow.injected, 0) / (flow.line * counts.step_ns + 1)  # what is sent is rounded
            wait_ns = int(steps * counts.step_ns + max(message.ahead, 0.0) / queue.line) - 1
            wait_ns += message.latency_ns - message.late_ns
            soonest = min(soonest, counts.now_ns + max(wait_ns, counts.step_ns))
    return soonest


def step(s: State, span_ns: int) -> None:
    """What happens in so many nanoseconds."""
    counts = s.counts[0]
    now = counts.now_ns
    counts.moves = 0
    for number in s.used:
        queue = s.queues[number]
        queue.backlog = queue.passing = queue.going = queue.lying = 0
        queue.own, queue.own_next = queue.own_next, 0
    for number in s.active:
        _inject(s, number, now, span_ns)
    for number in s.used:
        queue = s.queues[number]
        _open(queue, span_ns)
        _note(s, number, now)
        _use(s, number, now, int(queue.use * span_ns * FINE))
    for number in s.active:
        flow = s.flows[number]
        _trace(s, number, now, span_ns)
        _move(s, flow)
        if flow.law >= 0:
            _tell(s, number, now + span_ns)
    counts.now_ns = now + span_ns


# A flow.


def _inject(s: State, number: int, now: int, span_ns: int) -> None:
    """Put before the first link what the law lets go, and count what is in all tanks."""
    flow = s.flows[number]
    if not flow.loaded and flow.injected == flow.pledged:
        return
    last = flow.at + flow.hops - 1
    loaded = 0
    for at in range(flow.at, last + 1):
        hop = s.hops[at]
        queue = s.queues[hop.link]
        if at > flow.at:
            loaded += hop.tank
            queue.passing += hop.weight * hop.tank
            s.queues[hop.before].lying += hop.weight_before * hop.tank
        queue.backlog += hop.weight * hop.tank
        if at < last:
            queue.going += hop.weight * hop.tank
    hop = s.hops[flow.at]
    flow.loaded = loaded + hop.tank
    if flow.injected == flow.pledged:
        return
    queue = s.queues[hop.link]
    queue.own_next += hop.weight
    rate = _rate(s, number, flow, now, span_ns)
    room = PACKET_BYTES * PARTS + queue.line * span_ns / max(queue.own, 1) - hop.tank
    own = int(max(min(rate * span_ns, room), 0.0) + 0.5)
    before, flow.injected = flow.injected, min(flow.injected + own, flow.pledged)
    own = flow.injected - before
    hop.tank += own
    flow.loaded += own
    queue.backlog += hop.weight * own
    if flow.hops > 1:
        queue.going += hop.weight * own
    while flow.current >= 0 and s.messages[flow.current].end <= flow.injected:
        message = s.messages[flow.current]
        message.offset_ns = min((message.end - before) / rate, float(span_ns))
        flow.current = message.next


def _rate(s: State, number: int, flow: Flow, now: int, span_ns: int) -> float:
    """What its law lets a flow send, at most at the rate of its link."""
    if flow.law < 0:
        return flow.line
    law = s.laws[flow.law]
    rate: float = min(flow.line, law.rate_bytes_per_s * PARTS * 1e-9)
    if law.window_bytes == inf:
        return rate
    few = law.window_bytes < LEAST_PACKETS * flow.packet_bytes
    opens = law.window_bytes * PARTS / flow.round_ns if few else _opening(s, number, flow, now) / span_ns
    return float(min(rate, opens))


def _opening(s: State, number: int, flow: Flow, now: int) -> float:
    """How much may be sent until the window is full; what comes back between two signals does so bit by bit."""
    under_way = flow.injected - flow.acked
    if flow.signals:
        signal = s.signals[number * SIGNALS + flow.first]
        lasts_ns = max(signal.due_ns - flow.heard_ns, 1)
        under_way -= int(signal.parts * min((now - flow.heard_ns) / lasts_ns, 1.0))
    room: float = s.laws[flow.law].window_bytes * PARTS - under_way
    return max(room, 0.0)


def _move(s: State, flow: Flow) -> None:
    """From tank to tank, the last ones first: what has come can go on in the next step."""
    if not flow.loaded:
        return
    for back in range(flow.hops):
        hop = s.hops[flow.at + flow.hops - 1 - back]
        share = s.queues[hop.link].share
        if not hop.tank or share <= 0.0:
            continue
        gone = hop.tank if share >= 1.0 else int(hop.tank * share)
        hop.tank -= gone
        if gone:
            s.counts[0].moves = 1
        if back:
            following = s.hops[flow.at + flow.hops - back]
            following.tank += gone
            s.queues[following.link].came += following.weight * gone
        if back == flow.hops - 1:
            flow.unsaid += gone


def _trace(s: State, number: int, now: int, span_ns: int) -> None:
    """The last bytes of messages that have been injected."""
    flow = s.flows[number]
    at = flow.oldest
    while at != flow.current:
        message = s.messages[at]
        queue = s.queues[s.hops[flow.at + message.hop].link]
        if message.ahead < 0:
            message.ahead = float(max(queue.backlog, _behind(s, flow, message)))
        after_ns = float(span_ns)
        if queue.able > 0:
            s.counts[0].moves = 1
        if queue.able > 0 and message.ahead <= queue.able:
            after_ns = max(message.offset_ns, message.ahead * span_ns / queue.able)
        message.ahead = max(message.ahead - queue.able, 0.0)
        message.offset_ns = max(message.offset_ns - span_ns, 0.0)
        if after_ns < span_ns:
            message.hop, message.ahead, message.offset_ns = message.hop + 1, -1.0, after_ns
            if message.hop == flow.hops:
                ends = now + max(ceil(after_ns - NOISE_NS) - message.late_ns + message.latency_ns, span_ns)
                s.counts[0].first_ns = min(s.counts[0].first_ns, ends)
                append(s.left, (number, ends))
                flow.oldest = message.next
            message.late_ns += span_ns
        at = message.next


def _behind(s: State, flow: Flow, message: Message) -> int:
    """How much of a message has still to cross the link before which its last byte is: none of it comes later.

    The last byte goes first come, first served, and may have left some behind in tanks, which give in proportion.
    """
    loaded = 0
    for at in range(flow.at, flow.at + message.hop + 1):
        loaded += s.hops[at].tank
    return loaded - (flow.injected - message.end)


def _tell(s: State, number: int, now: int) -> None:
    """Send a signal when it is time, and hear of those that have come back."""
    flow = s.flows[number]
    law = s.laws[flow.law]
    own = number * SIGNALS
    enough = flow.unsaid >= flow.packet_bytes * PARTS
    if enough and now - flow.said_ns >= flow.period_ns and flow.signals < SIGNALS:
        if not flow.signals:
            flow.heard_ns = now
        _say(s, flow, s.signals[own + (flow.first + flow.signals) % SIGNALS], now)
        flow.signals += 1
    while law.reads and flow.read < flow.signals:
        signal = s.signals[own + (flow.first + flow.read) % SIGNALS]
        if signal.due_ns - flow.back_ns > now:
            break
        signal.use = _use_of(s, flow)
        flow.read += 1
    if flow.signals:  # what comes back may let more go
        s.counts[0].moves = 1
    while flow.signals and s.signals[own + flow.first].due_ns <= now:
        signal = s.signals[own + flow.first]
        flow.first = (flow.first + 1) % SIGNALS
        flow.signals -= 1
        flow.acked += signal.parts
        flow.heard_ns, flow.round_ns = signal.due_ns, signal.due_ns - signal.sent_ns
        if law.reads:
            flow.read -= 1
            measured(law, signal.due_ns, signal.sent_ns, signal.use, float(flow.period_ns))
        else:
            averaged(law, signal.due_ns, signal.sent_ns, signal.parts / PARTS, signal.unmarked)


def _say(s: State, flow: Flow, signal: Signal, now: int) -> None:
    """What was sent since the last signal meets what waits now."""
    waited, unmarked = 0.0, 1.0
    for at in range(flow.at + 1, flow.at + flow.hops):
        queue = s.queues[s.hops[at].link]
        waited += queue.left / queue.line
        unmarked *= 1 - queue.chance
    signal.sent_ns, signal.due_ns, signal.parts = now, now + flow.idle_ns + int(waited), flow.unsaid
    signal.unmarked, signal.use = unmarked ** (flow.unsaid / (PARTS * flow.packet_bytes)), 0.0
    flow.unsaid, flow.said_ns = 0, now


def _use_of(s: State, flow: Flow) -> float:
    """Of the busiest link of its way: what it sends, and what waits, as parts of what it could send in a round trip."""
    use = s.queues[s.hops[flow.at].link].mean_use
    for at in range(flow.at + 1, flow.at + flow.hops):
        queue = s.queues[s.hops[at].link]
        use = max(use, queue.mean_use + queue.left / queue.line / flow.idle_ns)
    return use


# A link.


def _open(queue: Queue, span_ns: int) -> None:
    """How much of what is before a link it can send, as far as there is room at its end."""
    most = queue.line * span_ns
    able = most
    if queue.control == CREDITS and queue.going:
        room = float(queue.buffer - queue.lying)
        room = room if room >= PARTS else 0.0  # what has hardly a byte's room would creep for ever
        able = min(able, room * min(span_ns / max(2 * queue.latency_ns, 1), 1.0) * (queue.backlog / queue.going))
    elif queue.control == PFC:
        queue.paused = 1 if queue.lying > (queue.xon if queue.paused else queue.xoff) else 0
        able = 0.0 if queue.paused else able
    if able < 1.0:
        able = 0.0
    wanted = min(most, float(queue.backlog))
    queue.stands = 1 if able < wanted * 0.999 else 0
    if queue.stands:
        queue.still += int(span_ns * FINE * (1 - able / wanted))
    served = min(able, float(queue.backlog))
    queue.able = able
    queue.share = served / queue.backlog if queue.backlog else 0.0
    queue.use = served / most
    queue.mean_use += (queue.use - queue.mean_use) / STEPS_OF_USE
    # What an NPU sends itself waits in its memory.
    queue.left = (queue.backlog - served) * (queue.passing / queue.backlog) if queue.backlog else 0.0
    if queue.kmax:
        queue.marked += int(queue.came * FINE / (PARTS * queue.packet_bytes) * queue.chance)
        queue.chance = _chance(queue)
    queue.came = 0


def _chance(queue: Queue) -> float:
    """That a packet is marked which comes now."""
    if queue.left <= queue.kmin:
        return 0.0
    if queue.left > queue.kmax:
        return 1.0
    return queue.pmax * (queue.left - queue.kmin) / (queue.kmax - queue.kmin)


# What is noted.


def rest(s: State) -> None:
    """Nothing is on its way any more: note what has not been noted."""
    now = s.counts[0].now_ns
    for number in s.used:
        queue = s.queues[number]
        queue.stands, queue.left, queue.use = 0, 0.0, 0.0
        _note(s, number, now)
        _use(s, number, now, 0)
        _mark(s, number, now, (queue.marked + FINE // 2) // FINE)
        queue.marked = 0


def _note(s: State, number: int, now: int) -> None:
    """What the queue before a link does now."""
    queue = s.queues[number]
    if queue.stands and queue.still_since_ns < 0:
        queue.still_since_ns = now
        queue.stops += 1
    elif not queue.stands and queue.still_since_ns >= 0:
        lasted_ns = (queue.still + FINE // 2) // FINE
        _row(s, number, queue.still_since_ns, STILL, lasted_ns)
        queue.still_ns += lasted_ns
        queue.still, queue.still_since_ns = 0, -1
    if _changed(queue):
        if queue.highest > max(queue.left, queue.noted * PARTS):
            _wait(s, number, queue.highest_ns, queue.highest)
        _wait(s, number, now, queue.left)
        queue.highest = 0.0
        _mark(s, number, now, queue.marked // FINE)
    elif queue.left > queue.highest:
        queue.highest, queue.highest_ns = queue.left, now


def _wait(s: State, number: int, now: int, parts: float) -> None:
    """So much waits from now on."""
    queue = s.queues[number]
    queue.noted = int(parts / PARTS)
    queue.peak_bytes = max(queue.peak_bytes, queue.noted)
    _row(s, number, now, WAITING, queue.noted)


def _mark(s: State, number: int, now: int, packets: int) -> None:
    """So many more were marked up to now."""
    if packets:
        queue = s.queues[number]
        queue.marks += packets
        queue.marked -= packets * FINE
        _row(s, number, now, MARKS, packets)


def _use(s: State, number: int, now: int, busy: int) -> None:
    """A link sends for so many parts of a nanosecond from now on."""
    if not s.counts[0].timed:
        return
    queue = s.queues[number]
    lasted_ns = queue.used // FINE
    if queue.used and (not busy or queue.used_since_ns + lasted_ns < now - SLACK_NS):
        append(s.times, (number, queue.used_since_ns, lasted_ns))
        s.counts[0].rows += 1
        queue.used = 0
    if not queue.used:
        queue.used_since_ns = now
    queue.used += busy


def _row(s: State, number: int, time: int, what: int, value: int) -> None:
    """Of `QueueTable.curves`."""
    s.counts[0].rows += 1
    if s.counts[0].curved:
        append(s.curves, (number, time, what, value))


def _changed(queue: Queue) -> bool:
    """Whether a curve needs another row."""
    waits = int(queue.left / PARTS)
    if not waits or not queue.noted:
        return waits != queue.noted and (not waits or waits >= NOTED_BYTES)
    return abs(waits - queue.noted) > max(queue.noted // NOTED_PART, NOTED_BYTES)
