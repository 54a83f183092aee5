"""What is noted of flows' links: curves of what waits, stillness and marks, and when links send; `flows` plays them."""

from __future__ import annotations

from simcore.network.queued.flow_tables import FINE, PARTS, Queue, State
from simcore.timeline.events import MARKS, STILL, WAITING

NOTED_PART, NOTED_BYTES = 16, 4096
"""A curve has a new row when the queue has changed by more than a part of what it was, and by so much."""
SLACK_NS = 10_000
"""What a link sends is noted as one occupation as long as that is over at most so long before it was."""
append = list.append


def note(s: State, number: int, now: int) -> None:
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
        mark(s, number, now, queue.marked // FINE)
    elif queue.left > queue.highest:
        queue.highest, queue.highest_ns = queue.left, now


def _wait(s: State, number: int, now: int, parts: float) -> None:
    """So much waits from now on."""
    queue = s.queues[number]
    queue.noted = int(parts / PARTS)
    queue.peak_bytes = max(queue.peak_bytes, queue.noted)
    _row(s, number, now, WAITING, queue.noted)


def mark(s: State, number: int, now: int, packets: int) -> None:
    """So many more were marked up to now."""
    if packets:
        queue = s.queues[number]
        queue.marks += packets
        queue.marked -= packets * FINE
        _row(s, number, now, MARKS, packets)


def use(s: State, number: int, now: int, busy: int) -> None:
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
