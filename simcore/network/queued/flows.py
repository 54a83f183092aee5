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

from math import ceil, floor, inf

from simcore.network.core import NEVER
from simcore.network.queued.flow_tables import (
    FINE,
    PARTS,
    SIGNALS,
    SLOPES,
    Flow,
    Message,
    Queue,
    Signal,
    State,
    Tail,
    Way,
)
from simcore.network.queued.laws import averaged, measured
from simcore.network.queued.noted import append, mark, note, use
from simcore.network.queued.tables import CREDITS, PFC
from simcore.network.queued.tanks import (
    busy,
    count_all,
    keeps_silent,
    leap,
    move,
    steps_alike,
    stood_still,
    tells,
    wire,
)

PACKET_BYTES = 4096
STEPS_OF_USE = 4
"""How much a link sends is a mean of some steps."""
LEAST_PACKETS = 1.5
"""Windows of fewer packets only pace them."""
CHANCES = 1 << 20
"""Chances that differ from way to way are added up in such parts."""
NOISE_NS = 1e-6


def play(s: State, until_ns: int, most: int, span_ns: int) -> int:
    """Steps of so long that end by then, up to that in which a message is through; how many, `most` at once."""
    counts, steps = s.counts[0], 0
    while steps < most and counts.moves:
        if counts.now_ns + max(counts.leap, 1) * span_ns > min(until_ns, counts.first_ns):
            break
        if counts.leap:
            leap(s, counts.leap, span_ns)
        else:
            _step(s, span_ns)
            counts.leap = steps_alike(s, span_ns)
            steps += 1
    counts.soonest_ns = max(_soonest(s), counts.now_ns + counts.leap * span_ns + 1)
    return steps


def cut(s: State, until_ns: int, span_ns: int) -> None:
    """Steps, and a part of one, that end then, as something begins there."""
    counts = s.counts[0]
    if counts.leap:
        leap(s, min(counts.leap, (until_ns - counts.now_ns) // span_ns), span_ns)
    if counts.now_ns < until_ns and counts.moves:
        _step(s, until_ns - counts.now_ns)


def _soonest(s: State) -> int:
    """Before when no message is there: at line rate, without waiting for what comes later."""
    counts, soonest = s.counts[0], NEVER
    for number in s.active:
        flow = s.flows[number]
        if flow.oldest >= 0:
            ahead = max(s.messages[flow.oldest].end - flow.injected, 0)
            steps = ahead / (flow.line * counts.step_ns + 1)  # what is sent is rounded
            wait_ns = _nearest(s, flow, steps * counts.step_ns)
            soonest = min(soonest, counts.now_ns + max(wait_ns, counts.step_ns))
    return soonest


def _nearest(s: State, flow: Flow, wait_ns: float) -> int:
    """Of the ways of the oldest message, which has to wait, the time until its last byte there is through."""
    nearest, message = NEVER, s.messages[flow.oldest]
    for lane in range(flow.lane, flow.lane + flow.lanes):
        number = s.lanes[lane]
        way, tail = s.ways[number], s.tails[message.tails + number - flow.at]
        if tail.hop < way.hops:
            queue = s.queues[s.hops[way.at + tail.hop].link]
            lasts_ns = int(wait_ns + max(tail.ahead, 0.0) / queue.line) - 1
            nearest = min(nearest, lasts_ns + way.latency_ns - tail.late_ns)
    return nearest


def _step(s: State, span_ns: int) -> None:
    """What happens in so many nanoseconds."""
    counts = s.counts[0]
    now = counts.now_ns
    counts.moves = 0
    for number in s.used:
        _turn(s, s.queues[number], span_ns)
    _foresee(s)
    for number in s.active:
        _inject(s, number, now, span_ns)
    for number in s.used:
        _ask(s, s.queues[number], span_ns)
    for number in s.used:
        _serve(s, s.queues[number], span_ns)
    for number in s.used:
        queue = s.queues[number]
        if queue.wire == number:
            _settle(queue, span_ns)
            note(s, number, now)
            use(s, number, now, busy(queue, span_ns))
    for number in s.active:
        flow = s.flows[number]
        _trace(s, number, now, span_ns)
        move(s, flow)
        if flow.law >= 0:
            _tell(s, number, now + span_ns)
    counts.now_ns = now + span_ns


def begin(s: State) -> None:
    """As flows or messages have come, and something else than before plays."""
    count_all(s)


def rest(s: State) -> None:
    """Nothing is on its way any more: note what has not been noted."""
    now = s.counts[0].now_ns
    for number in s.used:
        queue = s.queues[number]
        if queue.wire != number:
            continue
        queue.stands, queue.left, queue.use = 0, 0.0, 0.0
        note(s, number, now)
        use(s, number, now, 0)
        mark(s, number, now, (queue.marked + FINE // 2) // FINE)
        queue.marked = 0


# A flow.


def _inject(s: State, number: int, now: int, span_ns: int) -> None:
    """Put before first links what the law lets go."""
    flow = s.flows[number]
    before, left = flow.injected, flow.pledged - flow.injected
    flow.sends = 1 if left > 0 else 0
    if not flow.sends:
        return
    rate, first = _rate(s, number, flow, now, span_ns), s.ways[s.lanes[flow.lane]]
    if flow.begins:
        s.queues[s.hops[first.at].link].own_next += flow.begins
    if flow.adaptive:
        count = _look_ahead(s, flow)
        parts = min(int(rate * span_ns + 0.5), left, _room(s, flow, count, span_ns))
        _share_by_queues(s, count, max(parts, 0))
        for at in range(count):
            _send(s, flow, s.ways[s.taken[at]])
    else:
        _share_evenly(s, flow, int(rate * span_ns / flow.ways + 0.5), left, span_ns)
        for lane in range(flow.lane, flow.lane + flow.lanes):
            _send(s, flow, s.ways[s.lanes[lane]])
    flow.injected = min(flow.injected, flow.pledged)  # the last parts of a byte are shared evenly
    while flow.current >= 0 and s.messages[flow.current].end <= flow.injected:
        message = s.messages[flow.current]
        _begin_tails(s, flow, message, before, min((message.end - before) / rate, float(span_ns)))
        flow.current = message.next


def _send(s: State, flow: Flow, way: Way) -> None:
    """So much `more` is before the first link of a way."""
    hop, more = s.hops[way.at], way.more
    queue = s.queues[hop.link]
    way.injected += more
    way.loaded += more
    if not flow.begins:
        queue.own_next += hop.weight * way.part
    hop.tank += more
    flow.waiting += way.alike * more
    flow.loaded += way.alike * more
    flow.injected += way.alike * more
    queue.backlog += hop.weight * more
    if way.hops > 1:
        queue.going += hop.weight * more
    if flow.adaptive and more:
        for at in range(way.at + way.fork, way.at + way.join):
            wire(s, at).crossing += s.hops[at].weight


def _room(s: State, flow: Flow, count: int, span_ns: int) -> int:
    """How much more may wait before first links of ways that are not out, or before the one by which all begin."""
    if flow.begins:
        return flow.ways * _allowed(s, s.ways[s.lanes[flow.lane]], span_ns) - flow.waiting
    room = 0
    for at in range(count):
        way = s.ways[s.taken[at]]
        room += way.alike * (_allowed(s, way, span_ns) - s.hops[way.at].tank)
    return room


def _allowed(s: State, way: Way, span_ns: int) -> int:
    """How much may wait before the first link of a way: flows that begin there may as much as each other."""
    queue = s.queues[s.hops[way.at].link]
    share = queue.line * span_ns * FINE / max(queue.own, way.part)
    return floor((PACKET_BYTES * PARTS + share) * (way.part / FINE) + 0.5)


def _share_evenly(s: State, flow: Flow, even: int, left: int, span_ns: int) -> None:
    """As much for each way: none is passed over where it has no room."""
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        even = min(even, _allowed(s, way, span_ns) - s.hops[way.at].tank)
    even = max(even, 0)
    if even * flow.ways > left:
        even = left // flow.ways
    for lane in range(flow.lane, flow.lane + flow.lanes):
        s.ways[s.lanes[lane]].more = even


def _share_by_queues(s: State, count: int, parts: int) -> None:
    """So much for each way that as much waits on all of them if the others that lead there do the same."""
    level, shared, ways = _level(s, count, parts), 0, 0
    for at in range(count):
        way = s.ways[s.taken[at]]
        way.more = (level - way.fullest) * way.slope // SLOPES if way.fullest <= level else 0
        shared += way.alike * way.more
        ways += way.alike if way.fullest <= level else 0
    each = -(-(parts - shared) // ways)
    for at in range(count):
        way = s.ways[s.taken[at]]
        way.more += each if way.fullest <= level else 0


def _level(s: State, count: int, parts: int) -> int:
    """How much waits on each way then, or a little less: found from above, as ways on which more waits are left out.

    Whole numbers, so that the sums are the same whatever stands for what.
    """
    least, flattest = NEVER, SLOPES
    for at in range(count):
        way = s.ways[s.taken[at]]
        least, flattest = min(least, way.fullest), min(flattest, way.slope)
    bits, under = 0, NEVER
    while parts >> bits > SLOPES:
        bits += 1
    level = (parts >> bits) * (SLOPES // flattest + 1)
    while level < under:
        under, slope, filled = level, 0, (parts >> bits) * SLOPES
        for at in range(count):
            way = s.ways[s.taken[at]]
            ahead = (way.fullest - least) >> bits
            if ahead <= under:
                slope += way.alike * way.slope
                filled += way.alike * way.slope * ahead
        level = min(filled // slope, under)
    return least + (level << bits)


def _look_ahead(s: State, flow: Flow) -> int:
    """What will wait on each way; how many are `taken`. Longer ones are out as long as less does on a shortest one."""
    shortest, count = NEVER, 0
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        if not way.longer:
            _find_fullest(s, way, NEVER)
            shortest = min(shortest, way.fullest)
            s.taken[count] = s.lanes[lane]
            count += 1
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        if way.longer:
            _find_fullest(s, way, shortest - way.longer)
            if way.fullest < NEVER:
                s.taken[count] = s.lanes[lane]
                count += 1
            else:
                way.more = 0
    return count


def _find_fullest(s: State, way: Way, most: int) -> None:
    """What will wait for a way's fullest link, of those that are not on all ways; of equal ones where most cross.

    What comes there later finds that less which the link sends until then: below 0 is what it could send beside. A
    longer way is behind as if what is sent in the meantime waited there, and out where `most` or more does.
    """
    way.fullest, way.slope = NEVER if most <= 0 else -NEVER, SLOPES
    for at in range(way.at + way.fork, way.at + way.join if most > 0 else 0):
        queue = s.queues[s.hops[at].link]
        waits = queue.waits if at == way.at else queue.later
        if waits >= most:
            way.fullest = NEVER
            return
        if waits > way.fullest or (waits == way.fullest and queue.slope < way.slope):
            way.fullest, way.slope = waits, queue.slope
    if way.longer:
        way.fullest = max(way.fullest, 0) + way.longer


def _begin_tails(s: State, flow: Flow, message: Message, before: int, offset_ns: float) -> None:
    """A message has left its sender: follow its last byte on each way that has some of it."""
    after, own = flow.injected - message.end, flow.injected - before
    for lane in range(flow.lane, flow.lane + flow.lanes):
        number = s.lanes[lane]
        way, tail = s.ways[number], s.tails[message.tails + number - flow.at]
        tail.end, tail.offset_ns = way.injected, offset_ns
        if after:
            tail.end -= int(after * (way.more / own) + 0.5)
        if tail.end == way.ended:
            tail.hop = way.hops
            message.missing -= way.alike
        way.ended = tail.end


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


def _trace(s: State, number: int, now: int, span_ns: int) -> None:
    """The last bytes of messages that have been injected; a short one seems to be there first, and is not."""
    flow = s.flows[number]
    at = flow.oldest
    while at != flow.current:
        message = s.messages[at]
        for lane in range(flow.lane, flow.lane + flow.lanes):
            which = s.lanes[lane]
            tail = s.tails[message.tails + which - flow.at]
            if tail.hop < s.ways[which].hops:
                _follow(s, message, s.ways[which], tail, now, span_ns)
        if not message.missing and at == flow.oldest:
            s.counts[0].first_ns = min(s.counts[0].first_ns, message.ends_ns)
            append(s.left, (number, message.ends_ns))
            flow.oldest = message.next
            if message.next >= 0:
                s.messages[message.next].ends_ns = max(s.messages[message.next].ends_ns, message.ends_ns)
        at = message.next


def _follow(s: State, message: Message, way: Way, tail: Tail, now: int, span_ns: int) -> None:
    """The last byte of a message on a way: what is ahead of it goes first."""
    queue = s.queues[s.hops[way.at + tail.hop].link]
    if tail.ahead < 0:
        tail.ahead = float(max(queue.backlog, _behind(s, way, tail)))
    after_ns = float(span_ns)
    if queue.able > 0:
        s.counts[0].moves = 1
    if queue.able > 0 and tail.ahead <= queue.able:
        after_ns = max(tail.offset_ns, tail.ahead * span_ns / queue.able)
    tail.ahead = max(tail.ahead - queue.able, 0.0)
    tail.offset_ns = max(tail.offset_ns - span_ns, 0.0)
    if after_ns < span_ns:
        tail.hop, tail.ahead, tail.offset_ns = tail.hop + 1, -1.0, after_ns
        if tail.hop == way.hops:
            lasts_ns = max(ceil(after_ns - NOISE_NS) - tail.late_ns + way.latency_ns, span_ns)
            message.ends_ns = max(message.ends_ns, now + lasts_ns)
            message.missing -= way.alike
        tail.late_ns += span_ns


def _behind(s: State, way: Way, tail: Tail) -> int:
    """How much of a message has still to cross the link before which its last byte is: none of it comes later.

    The last byte goes first come, first served, and may have left some behind in tanks, which give in proportion.
    """
    loaded = 0
    for at in range(way.at, way.at + tail.hop + 1):
        loaded += s.hops[at].tank
    return loaded - (way.injected - tail.end)


def _tell(s: State, number: int, now: int) -> None:
    """Send a signal when it is time, and hear of those that have come back."""
    flow = s.flows[number]
    law = s.laws[flow.law]
    own = number * SIGNALS
    if tells(flow, now) and flow.signals < SIGNALS and not keeps_silent(s, flow, now):
        signal = s.signals[own + (flow.first + flow.signals) % SIGNALS]
        _say(s, flow, signal, now)
        if not flow.signals:
            flow.heard_ns, flow.due_ns = now, signal.due_ns
        flow.signals += 1
    while law.reads and flow.read < flow.signals:
        signal = s.signals[own + (flow.first + flow.read) % SIGNALS]
        if signal.due_ns - flow.back_ns > now:
            break
        signal.use = _use_of(s, flow)
        flow.read += 1
    if flow.signals:  # what comes back may let more go
        s.counts[0].moves = 1
    while flow.due_ns <= now:
        s.counts[0].since_look = 0
        signal = s.signals[own + flow.first]
        flow.first = (flow.first + 1) % SIGNALS
        flow.signals -= 1
        flow.due_ns = s.signals[own + flow.first].due_ns if flow.signals else NEVER
        flow.acked += signal.parts
        flow.heard_ns, flow.round_ns = signal.due_ns, signal.due_ns - signal.sent_ns
        if law.reads:
            flow.read -= 1
            measured(law, signal.due_ns, signal.sent_ns, signal.use, float(flow.period_ns))
        else:
            averaged(law, signal.due_ns, signal.sent_ns, signal.parts / PARTS, signal.unmarked)


def _say(s: State, flow: Flow, signal: Signal, now: int) -> None:
    """What was sent since the last signal meets what waits now; of several ways the mean of all that was sent."""
    sent, waits, marks = 0, 0, 0
    least, most = 1.0, 0.0
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        waited, unmarked = 0.0, 1.0
        for at in range(way.at + 1, way.at + way.hops):
            queue = wire(s, at)
            if queue.left:
                waited += queue.left / queue.line
                unmarked *= 1 - queue.chance
        size = way.alike * (way.unsaid // PARTS)
        sent += size
        waits += size * int(waited)
        marks += size * int((1 - unmarked) * CHANCES)
        least, most = min(least, unmarked), max(most, unmarked)
        way.unsaid = 0
    sent = max(sent, 1)
    signal.sent_ns, signal.due_ns, signal.parts = now, now + flow.idle_ns + waits // sent, flow.unsaid
    unmarked = most if least == most else 1 - marks / (sent * CHANCES)
    met = (flow.unsaid - flow.unmarked) / (PARTS * flow.packet_bytes)
    signal.unmarked, signal.use = unmarked**met, 0.0
    flow.unsaid, flow.unmarked, flow.said_ns, flow.asked_ns = 0, 0, now, now


def _use_of(s: State, flow: Flow) -> float:
    """Of the busiest link of all ways: what it sends and what waits, as parts of what it can send in a round trip."""
    use = 0.0
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        use = max(use, wire(s, way.at).mean_use)
        for at in range(way.at + 1, way.at + way.hops):
            queue = wire(s, at)
            use = max(use, queue.mean_use + queue.left / queue.line / flow.idle_ns)
    return use


# A link.


def _turn(s: State, queue: Queue, span_ns: int) -> None:
    """What has come before a link in the last step is there in this one."""
    queue.backlog = queue.backlog_next
    if len(s.taken):  # else nobody chooses by queues
        queue.sends = int(queue.line * span_ns * (queue.use if queue.stands else 1.0))
        queue.waits = -queue.sends
        queue.slope, queue.crossing = max(SLOPES // max(queue.crossing, 1), 1), 0
        s.queues[queue.wire].waits += queue.backlog
    queue.asked = queue.before = queue.use = queue.left = 0.0
    queue.passing, queue.going, queue.lying = queue.passing_next, queue.going_next, queue.lying_next
    queue.backlog_next = queue.passing_next = queue.going_next = queue.lying_next = 0
    queue.own, queue.own_next = queue.own_next, 0


def _foresee(s: State) -> None:
    """What will wait before a link, for all its channels; where nobody chooses by queues nobody asks."""
    if not len(s.taken):
        return
    for number in s.used:
        queue = s.queues[number]
        wire = s.queues[queue.wire]
        queue.waits, queue.slope, queue.later = wire.waits, wire.slope, max(wire.waits, 0) - wire.sends


def _ask(s: State, queue: Queue, span_ns: int) -> None:
    """How much of what is before a link can be sent, as far as there is room at its end."""
    able = queue.line * span_ns
    if queue.control == CREDITS and queue.going:
        room = float(queue.buffer - queue.lying)
        room = room if room >= PARTS else 0.0  # what has hardly a byte's room would creep for ever
        able = min(able, room * min(span_ns / max(2 * queue.latency_ns, 1), 1.0) * (queue.backlog / queue.going))
    elif queue.control == PFC:
        queue.paused = 1 if queue.lying > (queue.xon if queue.paused else queue.xoff) else 0
        able = 0.0 if queue.paused else able
    queue.able = able if able >= 1.0 else 0.0
    wire = s.queues[queue.wire]
    wire.asked += min(queue.able, float(queue.backlog))
    wire.before += queue.backlog


def _serve(s: State, queue: Queue, span_ns: int) -> None:
    """Channels share what their link can send in proportion to what they ask for, and what nobody asks for is left."""
    wire, most = s.queues[queue.wire], queue.line * span_ns
    served = min(queue.able, float(queue.backlog))
    if wire.asked > most:
        queue.able = served = served * (most / wire.asked)
    else:
        queue.able = min(queue.able, most - (wire.asked - served))
    queue.share = 0.0
    if queue.backlog:
        queue.share = served / queue.backlog
        wire.use += served / most
        # What an NPU sends itself waits in its memory.
        wire.left += (queue.backlog - served) * (queue.passing / queue.backlog)


def _settle(queue: Queue, span_ns: int) -> None:
    """What a link does in a step."""
    queue.stands = 1 if queue.asked < min(queue.line * span_ns, queue.before) * 0.999 else 0
    queue.still += stood_still(queue, span_ns)
    queue.mean_use += (queue.use - queue.mean_use) / STEPS_OF_USE
    if queue.kmax:
        queue.marking = int(queue.came * FINE / (PARTS * queue.packet_bytes) * queue.chance) if queue.chance else 0
        queue.marked += queue.marking
        queue.chance = _chance(queue)
    queue.came = 0


def _chance(queue: Queue) -> float:
    """That a packet is marked which comes now."""
    if queue.left <= queue.kmin:
        return 0.0
    if queue.left > queue.kmax:
        return 1.0
    return queue.pmax * (queue.left - queue.kmin) / (queue.kmax - queue.kmin)
