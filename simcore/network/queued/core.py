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
from simcore.network.queued.ports import admits, append, backlog, curve, go, lead, mark, note, settle, stop
from simcore.network.queued.tables import CREDITS, DROP, NOBODY, PFC, Hop, Message, Port, Segment, Sender, State
from simcore.timeline.events import DROPS

ROOM = -1
PUMP, ACKNOWLEDGED, LOST, GET_UP, PAUSE, RESUME, SERVE = range(7)
KINDS = 7
"""What a change may be. It is ordered by its number, of which the kind is the last part."""
length, push, pop_timer, bits = len, heappush, heappop, int.bit_length


def pop_head(heads: list[Any]) -> int:
    """The segment whose head comes first."""
    return heappop(heads)[-1]  # type: ignore[no-any-return]


def several(s: State, pair: int, turn: int, now: int) -> int:
    """The way of a segment through several dimensions."""
    return s.choose(pair, turn, now)


def whole(number: int) -> int:
    """A number of half a word as one of a word: in arrays all of an entry are."""
    return number


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
            _happen(s, now)
        counts = s.counts[0]
        guided = counts.guide >= 0 and s.messages[counts.guide].sent >= counts.look_at
        if length(s.left) or guided or counts.events >= counts.pause_at:
            return min(first(s.timers), first(s.heads))


def call(s: State, sender: int, now: int) -> None:
    """A sender has something to send now."""
    at(s, now, PUMP, sender, 0)


def _crowded(s: State) -> bool:
    """Whether tables may overflow in one event: each segment begins at most once, and each lets one more begin."""
    counts = s.counts[0]
    segments = counts.room_of_segments
    return (
        2 * counts.segments + 2 > segments
        or counts.readings + segments > counts.room_of_readings
        or counts.credits + segments > counts.room_of_credits
        or counts.changes + 4 * segments > counts.room_of_changes
        or length(s.curves) + 3 * segments > counts.room_of_rows
        or length(s.times) + 3 * segments > counts.room_of_rows
    )


def at(s: State, time: int, kind: int, whom: int, size_bytes: int) -> None:
    """Something is to change."""
    s.counts[0].events += 1
    s.counts[0].changes += 1
    push(s.timers, (time, s.counts[0].events * KINDS + kind, whole(whom), whole(size_bytes)))


def _happen(s: State, now: int) -> None:
    """Something changes or comes, for which senders and links send: in one place, where compiled code has all that."""
    sender = kind = NOBODY
    if first(s.timers) == now:
        _, number, whom, size_bytes = pop_timer(s.timers)
        kind = number % KINDS
        sender, link = _change(s, kind, whom, size_bytes, now)
    else:
        link = _arrive(s, pop_head(s.heads), now)
    resumed = link if kind == RESUME else NOBODY
    while sender >= 0 or link >= 0:
        if sender >= 0:
            _pump(s, sender, now)
            sender = NOBODY
        else:
            sender, link = _serve(s, s.ports[link], now)
    if resumed >= 0 and (s.ports[resumed].free_ns > now or not s.ports[resumed].waiting):
        go(s, s.ports[resumed], now)


def _change(s: State, kind: int, whom: int, size_bytes: int, now: int) -> tuple[int, int]:
    """The sender and the link that may send something for it."""
    s.counts[0].changes -= 1
    sender, link = NOBODY, NOBODY
    if kind == PUMP:
        sender = whom
    elif kind == SERVE:
        link = whom
    elif kind == ACKNOWLEDGED:
        sender = _acknowledged(s, whom, now)
    elif kind == LOST:
        sender = _lost(s, whom, now)
    elif kind == GET_UP:
        _get_up(s, s.ports[whom], size_bytes, now)
    else:
        link = _told(s, s.ports[whom], kind, now)
    return sender, link


def _told(s: State, port: Port, kind: int, now: int) -> int:
    """A pause of a channel, or its end, has come back to the sending end of its link, which rests if all are paused.

    The link, if it may send.
    """
    s.counts[0].settled_ns = max(s.counts[0].settled_ns, now)
    wire = s.ports[port.link]
    port.paused = int(kind == PAUSE)
    wire.open += 1 - 2 * port.paused
    if not wire.open:
        stop(wire, now)
        return NOBODY
    return NOBODY if port.paused else port.link


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
    _come(s, taken, now)


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
        segment.sender, segment.message = sender, own.current
        segment.index, segment.size_bytes = message.sent, size_bytes
        message.sent += 1
        if message.sent == message.count:
            own.current = NOBODY
    segment.held, segment.marked, segment.bytes_per_s = NOBODY, 0, 0.0
    return number


def way_of(s: State, message: Message, index: int, now: int) -> int:
    """The way of a segment."""
    if message.way >= 0:
        return message.way
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
        most = max(most, backlog(s.ports[s.hops[hop].link], now))
    return most + way.longer_bytes


def _acknowledged(s: State, number: int, now: int) -> int:
    """The sender of a segment knows that it is there."""
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
    return whose


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


def _lost(s: State, number: int, now: int) -> int:
    """The sender, which learns that a segment was dropped: it goes before all others."""
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
    return segment.sender


# Links.


def _come(s: State, number: int, time: int) -> None:
    """A segment will come to its next link: at once into its queue, where the link sends until then."""
    hop = s.hops[s.segments[number].at]
    wire = s.ports[hop.link]
    if not s.counts[0].early or wire.free_ns <= time:
        _head(s, number, time)
        return
    _line_up(s, number, hop, time)
    curve(s, wire, time)
    _go_on(s, wire)


def _head(s: State, number: int, time: int) -> None:
    """The head of a segment comes to its next link."""
    s.counts[0].events += 1
    push(s.heads, (time, *_place(s, number), s.counts[0].events, whole(number)))


def _place(s: State, number: int) -> tuple[Any, int, int, int, int]:
    """A segment's place among those that come to a link at one time."""
    segment = s.segments[number]
    message = s.messages[segment.message]
    return message.order, message.part, whole(segment.at - s.ways[segment.way].at), segment.index, message.ends


def _arrive(s: State, number: int, now: int) -> int:
    """The head comes to its next link, through the buffer of the link behind it; `NOBODY`, it is dropped."""
    segment = s.segments[number]
    hop = s.hops[segment.at]
    wire = s.ports[hop.link]
    if segment.held >= 0:
        behind = s.ports[segment.held]
        if behind.control >= PFC and not _lie_down(s, number, behind, now):
            return NOBODY
    if wire.kmax_bytes:
        segment.marked |= mark(s, wire, segment, now)
    _line_up(s, number, hop, now)
    return hop.link


def _line_up(s: State, number: int, hop: Hop, time: int) -> None:
    """A segment gets its place in a queue: behind all that come before it."""
    segment, port, wire = s.segments[number], s.ports[hop.port], s.ports[hop.link]
    segment.comes_ns, segment.step_ns, segment.left = time, hop.step_ns, hop.left
    before, after = port.tail, NOBODY
    if port.head < 0:
        before = NOBODY
        wire.occupied |= port.channel_bit
    elif _sooner(s, number, before):
        before, after = NOBODY, port.head
        while not _sooner(s, number, after):
            before, after = after, s.segments[after].next
    segment.next = after
    if before < 0:
        lead(port, number, segment)
    else:
        s.segments[before].next = number
    if after < 0:
        port.tail = number
    wire.waiting += 1
    wire.waiting_bytes += segment.size_bytes
    wire.queued_bytes += segment.size_bytes if segment.held >= 0 else 0


def _sooner(s: State, number: int, other: int) -> bool:
    """Whether a segment comes to a link before another one."""
    comes_ns, its_ns = s.segments[number].comes_ns, s.segments[other].comes_ns
    return comes_ns < its_ns or (comes_ns == its_ns and _place(s, number) < _place(s, other))


def _lie_down(s: State, number: int, port: Port, now: int) -> bool:
    """Take room in the buffer behind a link; False where it is dropped."""
    segment = s.segments[number]
    if port.control == DROP:
        settle(s, port, now)
        if port.taken_bytes + segment.size_bytes > port.buffer_bytes:
            wire = s.ports[port.link]
            wire.drops += 1
            wire.dropped_bytes += segment.size_bytes
            note(s, wire, now, DROPS, 1)
            at(s, now + s.ways[segment.way].back_ns, LOST, number, 0)
            return False
        port.taken_bytes += segment.size_bytes
        return True
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


def _serve(s: State, wire: Port, now: int) -> tuple[int, int]:
    """Send the first that may be sent; its sender if that may send the next, and the link if it may go on."""
    if wire.waiting and wire.free_ns <= now:
        channel = _next(s, wire, now)
        if channel >= 0:
            go(s, wire, now)
            return _start(s, wire, s.ports[channel], now), wire.link
        stop(wire, now)
    elif wire.waiting:
        _go_on(s, wire)
    curve(s, wire, now)
    return NOBODY, NOBODY


def _go_on(s: State, wire: Port) -> None:
    """Something waits, which may be sent as soon as the link is free."""
    if wire.alarm_ns != wire.free_ns:
        wire.alarm_ns = wire.free_ns
        at(s, wire.free_ns, SERVE, wire.link, 0)


def _next(s: State, wire: Port, now: int) -> int:
    """The channel that sends next: of those that may, the one whose first segment came first."""
    found, left = NOBODY, wire.occupied
    while left:
        number = wire.link + wire.apart * (bits(left & -left) - 1)
        port = s.ports[number]
        if not (admits(port) or _admits_now(s, port, now)):
            _await_room(s, port)
        elif found < 0 or _came_first(s, port, s.ports[found]):
            found = number
        left &= left - 1
    return found


def _came_first(s: State, port: Port, other: Port) -> bool:
    """Whether the first segment of a channel came before that of another one."""
    if port.head_ns != other.head_ns:
        return port.head_ns < other.head_ns
    return _place(s, port.head) < _place(s, other.head)


def _admits_now(s: State, port: Port, now: int) -> bool:
    """As `admits`, once it is known what has come back."""
    settle(s, port, now)
    return admits(port)


def _start(s: State, wire: Port, channel: Port, now: int) -> int:
    """A link takes the first segment of a channel; its sender, if that may send the next."""
    number = channel.head
    segment = s.segments[number]
    channel.awaits = 0
    if segment.next >= 0:
        lead(channel, segment.next, s.segments[segment.next])
    else:
        channel.head = NOBODY
        wire.occupied ^= channel.channel_bit
    size_bytes = segment.size_bytes
    if wire.bytes_per_s != segment.bytes_per_s:
        _time(s, segment, wire.bytes_per_s)
    wire.free_ns = ends = now + segment.takes_ns
    wire.waiting -= 1
    wire.waiting_bytes -= size_bytes
    wire.queued_bytes -= size_bytes if segment.held >= 0 else 0
    wire.sent_bytes += size_bytes
    wire.busy_ns += segment.takes_ns
    if s.counts[0].timed:
        append(s.times, (wire.link, now, segment.takes_ns))
    curve(s, wire, now)
    sender = NOBODY
    if segment.held < 0:
        sender, segment.sent_ns = segment.sender, now
        _begun(s, segment, now)
    else:
        _make_room(s, s.ports[segment.held], size_bytes, ends)
    if s.counts[0].reads and s.senders[segment.sender].law >= 0 and s.laws[s.senders[segment.sender].law].reads:
        _read(s, segment, wire, s.hops[segment.at].own, now)
    segment.tail_ns = max(segment.tail_ns, ends) + segment.step_ns
    if not segment.left:
        _through(s, number, now)
        return sender
    segment.held = channel.number
    segment.at += 1
    if channel.control == CREDITS:
        channel.taken_bytes += size_bytes
    _come(s, number, now + segment.step_ns)
    return sender


def _time(s: State, segment: Segment, bytes_per_s: float) -> None:
    """How long it takes on links of a rate.

    Ends of a message's segments are rounded as parts of a whole, so that cutting it costs nothing.
    """
    first_byte = segment.index * s.messages[segment.message].segment_bytes
    segment.bytes_per_s = bytes_per_s
    segment.takes_ns = _whole(first_byte + segment.size_bytes, bytes_per_s) - _whole(first_byte, bytes_per_s)


def _make_room(s: State, behind: Port, size_bytes: int, ends: int) -> None:
    """What a link takes leaves the buffer behind another one."""
    if behind.control == CREDITS:
        _credit(s, behind, ends + behind.latency_ns, size_bytes)
    elif behind.control == DROP:  # nobody asks before the next one comes
        _credit(s, behind, ends, size_bytes)
    elif behind.control == PFC:
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


def _await_room(s: State, port: Port) -> None:
    """Go on as soon as enough of the credits that are on their way to a channel have come."""
    if port.awaits or port.control != CREDITS:
        return
    port.awaits = 1
    missing = port.taken_bytes + port.head_bytes - port.buffer_bytes
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
    """A segment has left its sender; when the next one may do so."""
    sender = s.senders[segment.sender]
    sender.ready = 1
    if sender.law >= 0:
        law = s.laws[sender.law]
        if law.rate_bytes_per_s < law.line_bytes_per_s:
            sender.free_ns = now + _whole(segment.size_bytes, law.rate_bytes_per_s)


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
        append(s.left, (now, whole(segment.message), message.tail_ns))
    if s.senders[segment.sender].law >= 0 and segment.size_bytes:  # nothing is not acknowledged
        at(s, tail + s.ways[segment.way].back_ns, ACKNOWLEDGED, number, 0)
    else:
        _free(s, number)
