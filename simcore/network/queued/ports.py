"""A link with segments by itself: what waits for it, what is marked, when it stands still; `core` plays them."""

from __future__ import annotations

from math import ceil

from simcore.network.queued.tables import CREDITS, NOBODY, Port, Segment, State
from simcore.timeline.events import MARKS, STILL, WAITING

append = list.append


def backlog(port: Port, now: int) -> float:
    """In front of the link: what waits, and what is left of the one that is being sent."""
    found: float = port.waiting_bytes + max(port.free_ns - now, 0) * port.bytes_per_s * 1e-9
    return found


def mark(s: State, port: Port, segment: Segment, now: int) -> int:
    """Whether a segment that comes is marked: an even sequence is in chance's place.

    It begins anew after nothing waited, at the segment's own number: what was before is over, whoever sent that.
    """
    waiting = backlog(port, now)
    if not waiting:
        port.chances = NOBODY
    chance = _chance(port, waiting, segment.size_bytes) if segment.held >= 0 else 0.0
    if chance == 0.0:
        return 0
    port.chances = 1 + (segment.index if port.chances < 0 else port.chances)
    port.asked += 1
    golden_ratio = (5**0.5 - 1) / 2
    if port.chances * golden_ratio % 1.0 >= chance:
        return 0
    port.marks += 1
    note(s, port, now, MARKS, 1)
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


def stop(port: Port, now: int) -> None:
    """The link has to stand still, once it has sent what it is sending."""
    if port.still_since_ns < 0:
        port.still_since_ns = max(now, port.free_ns)
        port.stops += 1


def go(s: State, port: Port, now: int) -> None:
    """It may send again."""
    since = port.still_since_ns
    port.still_since_ns = -1
    if 0 <= since < now:
        port.still_ns += now - since
        note(s, port, since, STILL, now - since)


def curve(s: State, port: Port, now: int) -> None:
    """Note how much waits for a link, where that has changed."""
    if port.queued_bytes != port.noted_bytes:
        port.noted_bytes = port.queued_bytes
        port.peak_bytes = max(port.peak_bytes, port.queued_bytes)
        note(s, port, now, WAITING, port.queued_bytes)


def note(s: State, port: Port, time: int, what: int, value: int) -> None:
    """A row of `QueueTable.curves`."""
    if s.counts[0].curved:
        append(s.curves, (port.link, time, what, value))


def lead(port: Port, number: int, segment: Segment) -> None:
    """A segment is the first of a queue; an NPU takes at once what is meant for it."""
    port.head, port.head_ns = number, segment.comes_ns
    port.head_bytes = segment.size_bytes if segment.left else 0


def admits(port: Port) -> bool:
    """Whether the first segment of a channel may be sent now, as far as it is known what lies at the other end."""
    return not port.paused and (port.control != CREDITS or port.taken_bytes + port.head_bytes <= port.buffer_bytes)


def settle(s: State, port: Port, now: int) -> None:
    """What has come back by now."""
    while port.credit >= 0 and s.credits[port.credit].time_ns <= now:
        number = port.credit
        credit = s.credits[number]
        port.taken_bytes -= credit.size_bytes
        port.credit, credit.next = credit.next, s.counts[0].free_credits
        s.counts[0].free_credits = number
        s.counts[0].credits -= 1
