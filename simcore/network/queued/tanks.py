"""What is in the tanks of flows, how it moves on in a step, and in many steps that are nearly alike at once.

Where flows change slowly, or not at all, what the last step did is done many times: as long as that goes on changing as
it does, nobody tells a law or hears of it, and no message leaves its sender. How many times depends on nothing else.
"""

from __future__ import annotations

from simcore.network.core import NEVER
from simcore.network.queued.flow_tables import FINE, PARTS, Flow, Queue, State, Way
from simcore.network.queued.laws import silence_ns
from simcore.network.queued.noted import SLACK_NS
from simcore.network.queued.tables import CREDITS, PFC

BETWEEN_LOOKS, MOST_BETWEEN, NOTED_STEPS, FEWEST = 4, 16, 4, 4
"""So many steps are played before somebody looks how many more are alike, more behind looks in vain; what changes is
noted in so many of them; fewer are not worth it."""
DRIFTS, MOVES, BENDS = 64, 16, 4
"""Meanwhile what a tank gives in a step may change by such a part of it, what is in it by such a part, and how fast the
first one changes by such a part: what dies away within some steps is played."""
LEAST = 256
"""What is less than such a part of what a link can send in a step may change by such a part of that."""
EXACT, NOISE = 2, 4096
"""Parts by which changes bend without end: flows without a law settle but for what whole numbers round."""
HEARD = 64
"""A patient law hears of marks as soon as such a part of one is to be expected."""


def count_all(s: State) -> None:
    """What is in all tanks, as another step begins."""
    s.counts[0].since_look = s.counts[0].leap = 0
    s.counts[0].between = BETWEEN_LOOKS
    for number in s.used:
        queue = s.queues[number]
        queue.backlog_next = queue.passing_next = queue.going_next = queue.lying_next = 0
    for number in s.lanes:
        way = s.ways[number]
        for at in range(way.at, way.at + way.hops):
            _count(s, way, at)


def _count(s: State, way: Way, at: int) -> None:
    """What is in a tank when the next step begins."""
    hop = s.hops[at]
    if hop.tank:
        queue = s.queues[hop.link]
        queue.backlog_next += hop.weight * hop.tank
        if at > way.at:
            queue.passing_next += hop.weight * hop.tank
            s.queues[hop.before].lying_next += hop.weight_before * hop.tank
        if at < way.at + way.hops - 1:
            queue.going_next += hop.weight * hop.tank


def wire(s: State, at: int) -> Queue:
    """Of the link behind a tank."""
    return s.queues[s.queues[s.hops[at].link].wire]


def chance_of_a_mark(s: State, flow: Flow) -> float:
    """The chance that a packet of a flow is marked now, at most, on any of its ways."""
    most = 0.0
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way, chance = s.ways[s.lanes[lane]], 0.0
        for at in range(way.at + 1, way.at + way.hops):
            chance += wire(s, at).chance
        most = max(most, chance)
    return most


def stood_still(queue: Queue, span_ns: int) -> int:
    """For how much of a step a link had something to send that it might not."""
    wanted = min(queue.line * span_ns, queue.before)
    return int(span_ns * FINE * (1 - queue.asked / wanted)) if queue.stands else 0


def busy(queue: Queue, span_ns: int) -> int:
    """For how much of a step a link has sent."""
    return int(queue.use * span_ns * FINE)


# A step.


def move(s: State, flow: Flow) -> None:
    """From tank to tank. What that changes is noted in the last steps before somebody looks."""
    noted = s.counts[0].since_look + NOTED_STEPS >= s.counts[0].between
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        if way.loaded or way.moves:
            before = way.loaded
            way.moves = 3 if before else way.moves - 1  # until nothing of the last steps is told any more
            put = way.more * flow.sends
            way.bends, way.changes, way.put = put - way.put - way.changes, put - way.put, put
            gone = _move_on(s, way, noted)
            flow.waiting -= way.alike * gone
            flow.loaded -= way.alike * (before - way.loaded)
            if flow.law >= 0:
                way.unsaid += gone
                flow.unsaid += way.alike * gone


def _move_on(s: State, way: Way, noted: bool) -> int:
    """The last ones first: what has come can go on in the next step. How much has left the first one."""
    at, gone = way.at + way.hops - 1, 0
    while at >= way.at:
        hop = s.hops[at]
        queue = s.queues[hop.link]
        gone = 0
        if hop.tank and queue.share > 0.0:
            gone = hop.tank if queue.share >= 1.0 else int(hop.tank * queue.share)
            hop.tank -= gone
        if noted:
            hop.bends, hop.changes, hop.gone = gone - hop.gone - hop.changes, gone - hop.gone, gone
        if gone:
            s.counts[0].moves = 1
        if at == way.at + way.hops - 1:
            way.loaded -= gone
        else:
            following = s.hops[at + 1]
            following.tank += gone
            if s.queues[following.link].kmax:
                wire(s, at + 1).came += following.weight * gone
            _count(s, way, at + 1)
        at -= 1
    _count(s, way, way.at)
    return gone


# Many steps.


def steps_alike(s: State, span_ns: int) -> int:
    """How many steps would be nearly as the last one was, or 0."""
    counts = s.counts[0]
    counts.since_look += 1
    if counts.since_look < counts.between:
        return 0
    times = _last_alike(s, (counts.first_ns - counts.now_ns) // span_ns, span_ns)
    counts.since_look = 0
    counts.between = BETWEEN_LOOKS if times else min(2 * counts.between, MOST_BETWEEN)
    return times


def _last_alike(s: State, times: int, span_ns: int) -> int:
    """For how many steps, at most so many, everything is nearly as in the last one, or 0."""
    for number in s.active:
        flow = s.flows[number]
        if flow.oldest != flow.current:  # a last byte is followed
            return 0
        times = min(times, _sends_on(s, flow, span_ns))
        for lane in range(flow.lane, flow.lane + flow.lanes):
            if times < FEWEST:
                return 0
            times = min(times, _moves_on(s, s.ways[s.lanes[lane]], EXACT if flow.law < 0 else NOISE, span_ns))
    for number in s.used:
        if times < FEWEST:
            return 0
        times = min(times, _goes_on(s, number, span_ns))
    return times if times >= FEWEST else 0


def _sends_on(s: State, flow: Flow, span_ns: int) -> int:
    """For how many steps a flow sends the same, and neither tells nor hears."""
    now, gain, gone, times = s.counts[0].now_ns, 0, 0, NEVER
    for lane in range(flow.lane, flow.lane + flow.lanes):
        way = s.ways[s.lanes[lane]]
        gain += way.alike * way.put
        gone += way.alike * s.hops[way.at].gone if way.moves else 0
    if gain:
        times = (s.messages[flow.current].end - 1 - flow.injected) // gain
    if flow.law < 0:
        return times
    law = s.laws[flow.law]
    if not law.patience_ns:  # it hears in every round trip
        return 0
    if flow.signals:
        times = min(times, (flow.due_ns - 1 - now) // span_ns)
    return min(times, _is_silent(s, flow, gone, span_ns)) if gone else times


def _is_silent(s: State, flow: Flow, gone: int, span_ns: int) -> int:
    """For how many steps, in which so much leaves, a flow tells its law nothing."""
    now, packet, law = s.counts[0].now_ns, flow.packet_bytes * PARTS, s.laws[flow.law]
    times = max((flow.asked_ns + flow.period_ns - 1 - now) // span_ns, (packet - 1 - flow.unsaid) // gone)
    silent, chance = (flow.said_ns + silence_ns(law) - 1 - now) // span_ns, chance_of_a_mark(s, flow)
    if chance:
        heard = int(min(packet / (HEARD * chance), float(NEVER)))
        silent = min(silent, (heard - 1 - flow.unsaid + flow.unmarked) // gone)
    return max(times, silent)


def _moves_on(s: State, way: Way, noise: int, span_ns: int) -> int:
    """For how many steps tanks give nearly the same, and there is enough in them."""
    if not way.moves:
        return NEVER
    came = way.put
    least = int(s.queues[s.hops[way.at].link].line * span_ns) // LEAST
    times = _lasts(way.put, way.changes, way.bends, least, noise)
    for at in range(way.at, way.at + way.hops):
        hop = s.hops[at]
        least = int(s.queues[hop.link].line * span_ns) // LEAST
        times = min(times, _lasts(hop.gone, hop.changes, hop.bends, least, noise))
        more = came - hop.gone
        if more:
            times = min(times, (hop.tank + hop.gone + least) // (MOVES * abs(more)))
        if more < 0:
            times = min(times, hop.tank // -more)
        came = hop.gone
    return times


def _lasts(parts: int, changes: int, bends: int, least: int, noise: int) -> int:
    """For how many steps it is nearly the same, or goes on changing as it does."""
    times = (parts + least) // (DRIFTS * abs(changes)) if changes else NEVER
    return min(times, abs(changes) // (BENDS * abs(bends))) if abs(bends) > noise else times


def _goes_on(s: State, number: int, span_ns: int) -> int:
    """For how many steps there is room in a buffer, no channel is paused anew, and nothing is noted."""
    queue, times = s.queues[number], NEVER
    more = queue.lying_next - queue.lying
    if queue.control == CREDITS and more > 0:
        times = (queue.buffer - queue.lying_next) // (4 * more)
    elif queue.control == PFC and queue.paused and more < 0:
        times = (queue.lying_next - queue.xon) // -more
    elif queue.control == PFC and not queue.paused and more > 0:
        times = (queue.xoff - queue.lying_next) // more
    if queue.wire == number and s.counts[0].timed and queue.used:
        idle = span_ns * FINE - busy(queue, span_ns)
        if idle:
            lasts = (queue.used_since_ns + SLACK_NS - 1 - s.counts[0].now_ns) * FINE + queue.used
            times = min(times, lasts // idle)
    return times


def leap(s: State, times: int, span_ns: int) -> None:
    """So many steps more that are as the last one was."""
    counts = s.counts[0]
    counts.now_ns += times * span_ns
    for number in s.active:
        flow = s.flows[number]
        for lane in range(flow.lane, flow.lane + flow.lanes):
            way = s.ways[s.lanes[lane]]
            if way.moves:
                _go_on(s, flow, way, times)
        if flow.law >= 0 and tells(flow, counts.now_ns):
            keeps_silent(s, flow, counts.now_ns)
    for number in s.used:
        queue = s.queues[number]
        if queue.wire == number:
            queue.still += times * stood_still(queue, span_ns)
            queue.used += times * busy(queue, span_ns)
            queue.marked += times * queue.marking
    count_all(s)


def _go_on(s: State, flow: Flow, way: Way, times: int) -> None:
    """What a way does in so many steps."""
    put, first = times * way.put, times * s.hops[way.at].gone
    came = put
    for at in range(way.at, way.at + way.hops):
        hop = s.hops[at]
        hop.tank += came - times * hop.gone
        came = times * hop.gone
    way.injected += put
    way.loaded += put - came
    flow.injected += way.alike * put
    flow.loaded += way.alike * (put - came)
    flow.waiting += way.alike * (put - first)
    if flow.law >= 0:
        way.unsaid += first
        flow.unsaid += way.alike * first


def tells(flow: Flow, now: int) -> bool:
    """Whether there is enough to tell a law of."""
    return flow.unsaid >= flow.packet_bytes * PARTS and now - flow.asked_ns >= flow.period_ns


def keeps_silent(s: State, flow: Flow, now: int) -> bool:
    """Whether a flow tells a patient law nothing yet, as hardly anything is marked."""
    law = s.laws[flow.law]
    if not law.patience_ns or now - flow.said_ns >= silence_ns(law):
        return False
    chance, flow.asked_ns = chance_of_a_mark(s, flow), now
    if chance:
        return bool((flow.unsaid - flow.unmarked) * chance * HEARD < flow.packet_bytes * PARTS)
    flow.unmarked = flow.unsaid
    return True
