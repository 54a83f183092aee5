"""Segments that queue before links, played as integers in columns: no object, no callback, no event for each of them.

A segment crosses a link as a message does on shared links: its head goes on as soon as the next link is its own. What
waits for a link lies in the buffer of the link that it came over, as a whole and from its first byte on.
Acknowledgements, credits and pauses take the latency of the way back and none of its bandwidth.

The tables are lists of rows here. `queued.compiled` compiles the same functions for arrays of records in their place,
as `network.compiled` does those of `network.core`; rows that are free are therefore chained (`next`), and nothing here
makes new ones.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, inf
from typing import Any

from simcore.network.core import first
from simcore.network.queued.laws import acknowledged, lost, measured, sends
from simcore.network.queued.tables import NOBODY, Message, Port, Segment, Sender, State
from simcore.timeline.events import DROPS, MARKS, STILL, WAITING

ROOM = -1
PUMP, ACKNOWLEDGED, LOST, GET_UP, PAUSE, RESUME, SERVE = range(7)
KINDS = 7
"""What a change may be. It is ordered by its number, of which the kind is the last part."""
UNLIMITED, CREDITS, PFC, DROP = range(4)
"""How the buffer behind a link is guarded."""
GOLDEN_RATIO = (5**0.5 - 1) / 2
append, length, push, pop_timer = list.append, len, heappush, heappop


def pop_head(heads: list[Any]) -> int:
    """The segment whose head comes first."""
    return heappop(heads)[-1]  # type: ignore[no-any-return]


def several(s: State, pair: int, turn: int, now: int) -> int:
    """The way of a segment through several dimensions."""
    return s.choose(pair, turn, now)


def play(s: State, limit: int) -> int:
    """Play all that happens before `limit`, but stop behind an instant in which a message is through, or at a look.

    Returns when something happens next, or that there must be more `ROOM` before it goes on.
    """
    while True:
        now = min(first(s.timers), first(s.heads))
        if now >= limit:
            return now
        s.counts[0].now_ns = now
        while first(s.timers) == now or first(s.heads) == now:
            if _crowded(s):
                return ROOM
            if first(s.timers) == now:
                _change(s, now)
            else:
                _arrive(s, pop_head(s.heads), now)
        counts = s.counts[0]
        guided = counts.guide >= 0 and s.messages[counts.guide].sent >= counts.look_at
        if length(s.left) or guided or counts.events >= counts.pause_at:
            return min(first(s.timers), first(s.heads))


def _crowded(s: State) -> bool:
    """Whether tables may overflow in one event: each segment begins at most once, and each lets one more begin."""
    counts = s.counts[0]
    segments = counts.room_of_segments
    return (
        2 * counts.segments + 2 > segments
        or counts.readings + segments > counts.room_of_readings
        or counts.credits + segments > counts.room_of_credits
        or counts.changes + 4 * segments > counts.room_of_changes
        or max(length(s.curves), length(s.times)) + 3 * segments > counts.room_of_rows
    )


def at(s: State, time: int, kind: int, whom: int, size_bytes: int) -> None:
    """Something is to change."""
    s.counts[0].events += 1
    s.counts[0].changes += 1
    push(s.timers, (time, s.counts[0].events * KINDS + kind, whom, size_bytes))


def _change(s: State, now: int) -> None:
    _, kind, whom, size_bytes = pop_timer(s.timers)
    s.counts[0].changes -= 1
    kind %= KINDS
    if kind == PUMP:
        _pump(s, whom, now)
    elif kind == SERVE:
        _serve(s, s.ports[whom], now)
    elif kind == ACKNOWLEDGED:
        _acknowledged(s, whom, now)
    elif kind == LOST:
        _lost(s, whom, now)
    elif kind == GET_UP:
        _get_up(s, s.ports[whom], size_bytes, now)
    else:
        _told(s, s.ports[whom], kind, now)


def _told(s: State, port: Port, kind: int, now: int) -> None:
    """A pause of a channel, or its end, has come back to the sending end of its link, which rests if all are paused."""
    s.counts[0].settled_ns = max(s.counts[0].settled_ns, now)
    wire = s.ports[port.link]
    port.paused = int(kind == PAUSE)
    wire.open += 1 - 2 * port.paused
    if not wire.open:
        _stop(wire, now)
    elif not port.paused:
        _serve(s, wire, now)
        if wire.free_ns > now or not wire.waiting:
            _go(s, wire, now)


# Senders.


def _pump(s: State, number: int, now: int) -> None:
    """Send the next segment if it may be sent; where it is too early, look again in time."""
    sender = s.senders[number]
    if sender.lost < 0 and sender.current < 0:
        if sender.waiting < 0:
            return
        sender.current, sender.waiting = sender.waiting, s.messages[sender.waiting].next
    if not sender.ready:
        return
    size_bytes = s.segments[sender.lost].size_bytes if sender.lost >= 0 else _size(s.messages[sender.current])
    if sender.law >= 0:
        law = s.laws[sender.law]
        sends(law, now, 0)
        if sender.under_way_bytes and sender.under_way_bytes + size_bytes / 2 > law.window_bytes:
            return
    if sender.free_ns > now:
        if sender.alarm_ns != sender.free_ns:
            sender.alarm_ns = sender.free_ns
            at(s, sender.free_ns, PUMP, number, 0)
        return
    sender.ready = 0
    if sender.law >= 0:
        sender.under_way_bytes += size_bytes
        sends(s.laws[sender.law], now, size_bytes)
    taken = _take(s, number, size_bytes)
    segment = s.segments[taken]
    segment.way = way_of(s, s.messages[segment.message], segment.index, now)
    segment.at = s.ways[segment.way].at
    segment.tail_ns = segment.sent_ns = now
    _head(s, taken, now)


def _size(message: Message) -> int:
    """Of the segment that is sent next."""
    return min(message.segment_bytes, message.size_bytes - message.sent * message.segment_bytes)


def _take(s: State, sender: int, size_bytes: int) -> int:
    """The segment that is sent now: one that was lost, or a new one."""
    own = s.senders[sender]
    number = own.lost
    if number >= 0:
        segment = s.segments[number]
        own.lost = segment.next
    else:
        number = s.counts[0].free_segments
        segment = s.segments[number]
        s.counts[0].free_segments = segment.next
        s.counts[0].segments += 1
        message = s.messages[own.current]
        segment.sender, segment.message, segment.index = sender, own.current, message.sent
        segment.first_byte, segment.size_bytes = message.sent * message.segment_bytes, size_bytes
        message.sent += 1
        if message.sent == message.count:
            own.current = NOBODY
    segment.hop, segment.held, segment.marked, segment.bytes_per_s = 0, NOBODY, 0, 0.0
    return number


def way_of(s: State, message: Message, index: int, now: int) -> int:
    """The way of a segment."""
    pair, turn = s.pairs[message.pair], message.turn + index
    if not pair.ways:
        return several(s, message.pair, turn, now)
    start = (pair.hashed + pair.step * turn) % pair.ways
    best, least = s.routes[pair.at + start], inf
    for more in range(pair.ways if pair.adaptive else 0):  # the fullest queue is the least, of equal ones in turn
        way = s.routes[pair.at + (start + more) % pair.ways]
        most = fullest(s, way, now)
        if most < least:
            best, least = way, most
    return best


def fullest(s: State, number: int, now: int) -> float:
    """The most that waits for a link of a way, of those that not all have; and what is sent while it takes longer."""
    way, most = s.ways[number], 0.0
    for hop in range(way.at + way.fork, way.at + way.join):
        most = max(most, _backlog(s.ports[s.hops[hop].link], now))
    return most + way.longer_bytes


def _acknowledged(s: State, number: int, now: int) -> None:
    segment = s.segments[number]
    sender = s.senders[segment.sender]
    law = s.laws[sender.law]
    sender.under_way_bytes -= segment.size_bytes
    acknowledged(law, now, segment.sent_ns, segment.size_bytes, segment.marked)
    if law.reads:
        if sender.readings == segment.readings:
            _measure(s, law, sender, segment, now)
        sender.reading, segment.reading = segment.reading, sender.reading
        sender.readings, segment.readings = segment.readings, sender.readings
    whose = segment.sender
    _free(s, number)
    _pump(s, whose, now)


def _measure(s: State, law: Any, sender: Sender, segment: Segment, now: int) -> None:
    """The busiest link since the last readings of it, first to last; the chains begin with the last.

    What another way's links sent says nothing: where no link is the same, the law learns nothing.
    """
    most, span = 0.0, 0.0
    new_at, old_at = segment.reading, sender.reading
    for _ in range(segment.readings):
        new, old = s.readings[new_at], s.readings[old_at]
        elapsed, rate = new.now_ns - old.now_ns, s.ports[new.link].bytes_per_s
        if elapsed > 0 and new.own == old.own:
            waiting = min(new.queue_bytes, old.queue_bytes) / (rate * law.rtt_ns * 1e-9)
            use = waiting + (new.sent_bytes - old.sent_bytes) / (elapsed * 1e-9) / rate
            if use >= most and use > 0:
                most, span = use, float(elapsed)
        new_at, old_at = new.next, old.next
    if span:
        measured(law, now, segment.sent_ns, most, span)


def _free(s: State, number: int) -> None:
    """The row of a segment, and of its readings, may be used again."""
    segment = s.segments[number]
    forget(s, segment)
    segment.next, s.counts[0].free_segments = s.counts[0].free_segments, number
    s.counts[0].segments -= 1


def forget(s: State, segment: Segment | Sender) -> None:
    """The rows of its readings may be used again."""
    reading = segment.reading
    while reading >= 0:
        own = s.readings[reading]
        after = own.next
        own.next, s.counts[0].free_readings = s.counts[0].free_readings, reading
        s.counts[0].readings -= 1
        reading = after
    segment.reading, segment.readings = NOBODY, 0


def _lost(s: State, number: int, now: int) -> None:
    """The sender learns that a segment was dropped: it goes before all others."""
    segment = s.segments[number]
    sender = s.senders[segment.sender]
    if sender.law >= 0:
        sender.under_way_bytes -= segment.size_bytes
        lost(s.laws[sender.law], now)
    forget(s, segment)
    segment.next = NOBODY
    if sender.lost < 0:
        sender.lost = number
    else:
        s.segments[sender.last_lost].next = number
    sender.last_lost = number
    _pump(s, segment.sender, now)


# Links.


def _head(s: State, number: int, time: int) -> None:
    """The head of a segment comes to its next link."""
    segment = s.segments[number]
    message = s.messages[segment.message]
    s.counts[0].events += 1
    order, hop, events = message.order, segment.hop, s.counts[0].events
    push(s.heads, (time, order, message.part, hop, segment.index, message.ends, events, number))


def _arrive(s: State, number: int, now: int) -> None:
    """The head comes to its next link, through the buffer of the link behind it."""
    segment = s.segments[number]
    hop = s.hops[segment.at]
    port, wire = s.ports[hop.port], s.ports[hop.link]
    if segment.held >= 0:
        behind = s.ports[segment.held]
        if behind.control >= PFC and not _lie_down(s, number, behind, now):
            return
    size_bytes = segment.size_bytes
    if wire.kmax_bytes:
        segment.marked |= _mark(s, wire, segment, now)
    segment.next = NOBODY
    if port.head < 0:
        port.head = number
        wire.occupied |= port.channel_bit
    else:
        s.segments[port.tail].next = number
    port.tail = number
    wire.waiting += 1
    if wire.apart:
        wire.came += 1
        segment.came = wire.came
    wire.waiting_bytes += size_bytes
    wire.queued_bytes += size_bytes if segment.hop else 0
    _serve(s, wire, now)
    _curve(s, wire, now)


def _lie_down(s: State, number: int, port: Port, now: int) -> bool:
    """Take room in the buffer behind a link; False where it is dropped."""
    segment = s.segments[number]
    if port.control == DROP and port.lying_bytes + segment.size_bytes > port.buffer_bytes:
        wire = s.ports[port.link]
        wire.drops += 1
        wire.dropped_bytes += segment.size_bytes
        _note(s, wire, now, DROPS, 1)
        at(s, now + s.ways[segment.way].back_ns, LOST, number, 0)
        return False
    port.lying_bytes += segment.size_bytes
    if port.lying_bytes > port.xoff_bytes and not port.asked_to_pause:
        port.asked_to_pause = 1
        at(s, now + port.latency_ns, PAUSE, port.number, 0)
    return True


def _get_up(s: State, port: Port, size_bytes: int, now: int) -> None:
    """A segment has left the buffer behind a link."""
    port.lying_bytes -= size_bytes
    if port.asked_to_pause and port.lying_bytes <= port.xon_bytes:
        port.asked_to_pause = 0
        at(s, now + port.latency_ns, RESUME, port.number, 0)


def _serve(s: State, wire: Port, now: int) -> None:
    """Send what waits, one after the other."""
    while wire.waiting and wire.free_ns <= now:
        channel = _next(s, wire, now)
        if channel < 0:
            _stop(wire, now)
            return
        _go(s, wire, now)
        _start(s, wire, s.ports[channel], now)
    if wire.waiting and wire.alarm_ns != wire.free_ns:
        wire.alarm_ns = wire.free_ns
        at(s, wire.free_ns, SERVE, wire.link, 0)


def _next(s: State, wire: Port, now: int) -> int:
    """The channel that sends next: of those that may, the one whose first segment came first."""
    found, number, left = NOBODY, wire.link, wire.occupied
    while left:
        if left & 1:
            port = s.ports[number]
            settle(s, port, now)
            if not admits(s, port):
                _await_room(s, port)
            elif found < 0 or s.segments[port.head].came < s.segments[s.ports[found].head].came:
                found = number
        number += wire.apart
        left >>= 1
    return found


def _start(s: State, wire: Port, channel: Port, now: int) -> None:
    """A link takes the first segment of a channel."""
    number = channel.head
    segment = s.segments[number]
    channel.head, channel.awaits = segment.next, 0
    if channel.head < 0:
        wire.occupied ^= channel.channel_bit
    hop, size_bytes = s.hops[segment.at], segment.size_bytes
    # Ends of a message's segments are rounded as parts of a whole, so that cutting it costs nothing.
    if hop.bytes_per_s != segment.bytes_per_s:
        segment.bytes_per_s = rate = hop.bytes_per_s
        segment.takes_ns = _whole(segment.first_byte + size_bytes, rate) - _whole(segment.first_byte, rate)
    wire.free_ns = ends = now + segment.takes_ns
    wire.waiting -= 1
    wire.waiting_bytes -= size_bytes
    wire.queued_bytes -= size_bytes if segment.hop else 0
    wire.sent_bytes += size_bytes
    wire.busy_ns += segment.takes_ns
    if s.counts[0].timed:
        append(s.times, (wire.link, now, segment.takes_ns))
    _curve(s, wire, now)
    if segment.held < 0:
        segment.sent_ns = now
        _begun(s, segment, now)
    else:
        _make_room(s, s.ports[segment.held], size_bytes, ends)
    if s.counts[0].reads and s.senders[segment.sender].law >= 0 and s.laws[s.senders[segment.sender].law].reads:
        _read(s, segment, wire, hop.own, now)
    segment.tail_ns = max(segment.tail_ns, ends) + hop.step_ns
    segment.hop += 1
    if not hop.left:
        _through(s, number, now)
        return
    segment.held = channel.number
    segment.at += 1
    if channel.control == CREDITS:
        channel.taken_bytes += size_bytes
    _head(s, number, now + hop.step_ns)


def _make_room(s: State, behind: Port, size_bytes: int, ends: int) -> None:
    """What a link takes leaves the buffer behind another one."""
    if behind.control == CREDITS:
        _credit(s, behind, ends + behind.latency_ns, size_bytes)
    elif behind.control >= PFC:
        at(s, ends, GET_UP, behind.number, size_bytes)


def _credit(s: State, port: Port, time: int, size_bytes: int) -> None:
    """A link will know then that there is room behind it. Only where it stands still is it told; others look."""
    number = s.counts[0].free_credits
    credit = s.credits[number]
    s.counts[0].free_credits = credit.next
    s.counts[0].credits += 1
    s.counts[0].settled_ns = max(s.counts[0].settled_ns, time)
    credit.time_ns, credit.size_bytes = time, size_bytes
    before, after = NOBODY, port.credit
    if after >= 0 and s.credits[port.last_credit].time_ns <= time:
        before, after = port.last_credit, NOBODY
    while after >= 0 and s.credits[after].time_ns <= time:
        before, after = after, s.credits[after].next
    credit.next = after
    if before < 0:
        port.credit = number
    else:
        s.credits[before].next = number
    if after < 0:
        port.last_credit = number
    if port.awaits:
        at(s, time, SERVE, port.link, 0)


def settle(s: State, port: Port, now: int) -> None:
    """What has come back by now."""
    while port.credit >= 0 and s.credits[port.credit].time_ns <= now:
        number = port.credit
        credit = s.credits[number]
        port.taken_bytes -= credit.size_bytes
        port.credit, credit.next = credit.next, s.counts[0].free_credits
        s.counts[0].free_credits = number
        s.counts[0].credits -= 1


def _await_room(s: State, port: Port) -> None:
    """Go on as soon as enough of the credits that are on their way to a channel have come."""
    if port.awaits or port.control != CREDITS:
        return
    port.awaits = 1
    missing = port.taken_bytes + s.segments[port.head].size_bytes - port.buffer_bytes
    number = port.credit
    while number >= 0:
        missing -= s.credits[number].size_bytes
        if missing <= 0:
            at(s, s.credits[number].time_ns, SERVE, port.link, 0)
            return
        number = s.credits[number].next


def _whole(size_bytes: int, bytes_per_s: float) -> int:
    """As `units.transfer_ns`."""
    return ceil(round(size_bytes / bytes_per_s * 1e9 * 1000.0) / 1000.0)


def _begun(s: State, segment: Segment, now: int) -> None:
    """A segment has left its sender; when the next one may."""
    sender = s.senders[segment.sender]
    sender.ready = 1
    if sender.law >= 0:
        law = s.laws[sender.law]
        if law.rate_bytes_per_s < law.line_bytes_per_s:
            sender.free_ns = now + _whole(segment.size_bytes, law.rate_bytes_per_s)
    _pump(s, segment.sender, now)


def _read(s: State, segment: Segment, port: Port, own: int, now: int) -> None:
    number = s.counts[0].free_readings
    reading = s.readings[number]
    s.counts[0].free_readings = reading.next
    s.counts[0].readings += 1
    reading.link, reading.queue_bytes, reading.sent_bytes = port.link, port.waiting_bytes, port.sent_bytes
    reading.own, reading.now_ns, reading.next = own, now, segment.reading
    segment.reading = number
    segment.readings += 1


def _through(s: State, number: int, now: int) -> None:
    """The last link has taken a segment."""
    segment = s.segments[number]
    message, tail = s.messages[segment.message], segment.tail_ns
    message.missing -= 1
    message.tail_ns = max(message.tail_ns, tail)
    if not message.missing:
        append(s.left, (now, segment.message, message.tail_ns))
    if s.senders[segment.sender].law >= 0 and segment.size_bytes:  # nothing is not acknowledged
        at(s, tail + s.ways[segment.way].back_ns, ACKNOWLEDGED, number, 0)
    else:
        _free(s, number)


# A port by itself.


def _backlog(port: Port, now: int) -> float:
    """In front of the link: what waits, and what is left of the one that is being sent."""
    backlog: float = port.waiting_bytes + max(port.free_ns - now, 0) * port.bytes_per_s * 1e-9
    return backlog


def admits(s: State, port: Port) -> bool:
    """Whether the first segment of a channel may be sent now, as far as it is known what lies at the other end."""
    segment = s.segments[port.head]
    if port.paused:
        return False
    if port.control != CREDITS or port.taken_bytes + segment.size_bytes <= port.buffer_bytes:
        return True
    return not s.hops[segment.at].left  # an NPU takes at once what is meant for it


def _mark(s: State, port: Port, segment: Segment, now: int) -> int:
    """Whether a segment that comes is marked: an even sequence, begun anew in each phase, is in chance's place."""
    waiting, phase = _backlog(port, now), s.messages[segment.message].phase
    if not waiting and port.phase != phase:
        port.phase, port.chances = phase, 0
    chance = _chance(port, waiting, segment.size_bytes) if segment.hop else 0.0
    if chance == 0.0:
        return 0
    port.chances += 1
    if port.chances * GOLDEN_RATIO % 1.0 >= chance:
        return 0
    port.marks += 1
    _note(s, port, now, MARKS, 1)
    return 1


def _chance(port: Port, waiting: float, size_bytes: int) -> float:
    """That one of the packets of a segment is marked."""
    if waiting <= port.kmin_bytes:
        return 0.0
    if waiting > port.kmax_bytes:
        return 1.0
    share = (waiting - port.kmin_bytes) / (port.kmax_bytes - port.kmin_bytes)
    none: float = (1 - port.pmax * share) ** float(ceil(size_bytes / port.packet_bytes))
    return 1 - none


def _stop(port: Port, now: int) -> None:
    """The link has to stand still, once it has sent what it is sending."""
    if port.still_since_ns < 0:
        port.still_since_ns = max(now, port.free_ns)
        port.stops += 1


def _go(s: State, port: Port, now: int) -> None:
    """It may send again."""
    since = port.still_since_ns
    port.still_since_ns = -1
    if 0 <= since < now:
        port.still_ns += now - since
        _note(s, port, since, STILL, now - since)


def _curve(s: State, port: Port, now: int) -> None:
    """Note how much waits for a link, where that has changed."""
    if port.queued_bytes != port.noted_bytes:
        port.noted_bytes = port.queued_bytes
        port.peak_bytes = max(port.peak_bytes, port.queued_bytes)
        _note(s, port, now, WAITING, port.queued_bytes)


def _note(s: State, port: Port, time: int, what: int, value: int) -> None:
    """A row of `QueueTable.curves`."""
    if s.counts[0].curved:
        append(s.curves, (port.link, time, what, value))
