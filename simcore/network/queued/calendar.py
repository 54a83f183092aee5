"""What is to come, in arrays for compiled code: a heap of what comes now, and buckets of what comes later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simcore.network.core import NEVER
from simcore.network.heaps import Heap, Rows, drop_first, rise

NOW, DUE = range(2)
BUCKETS = 65


class Calendar(NamedTuple):
    """Entries in order, of which none comes before one that was taken (a radix heap).

    Those of the time `NOW` are in the heap. Of later ones bucket b has those whose times differ from it in b bits at
    the end, one behind the other from row `firsts[b]` on. The first of all comes at `DUE`. The time of a row that is
    free is `NEVER`.
    """

    heap: Heap
    firsts: Rows
    marks: Rows

    @classmethod
    def of(cls, entries: Rows, room: int) -> Calendar:
        """Of rows of entries, with room for so many and one more; at first all lie in the last bucket."""
        count, firsts = len(entries), np.full(BUCKETS, -1)
        heap = Heap.of(entries, entries.shape[1]).with_room(room)
        firsts[-1], heap.next[:count], heap.ends[0] = count - 1, np.arange(-1, count - 1), 0
        return cls(heap, firsts, np.array([-1, entries[:, 0].min(initial=NEVER)]))

    def again(self, later_ns: int, room: int = 0) -> Calendar:
        """The same so much later, with room for so many at least."""
        entries = self.entries()
        entries[:, 0] += later_ns
        return Calendar.of(entries, max(room, len(self.heap.rows) - 1))

    def entries(self) -> Rows:
        """All of them, in order."""
        rows = self.heap.rows[self.heap.rows[:, 0] < NEVER]
        return rows[np.lexsort(rows.T[::-1])]


def bits(number: int) -> int:
    """How many of 64 it has, without zeros in front; compiled, an instruction."""
    return int(number).bit_length() if number >= 0 else BUCKETS - 1


def first(calendar: Calendar) -> int:
    """When the first entry comes."""
    return calendar.marks[DUE]  # type: ignore[no-any-return]


def push(calendar: Calendar, entry: tuple[int, ...]) -> None:
    """As `heapq.heappush`."""
    heap, marks = calendar.heap, calendar.marks
    row = heap.ends[1]
    heap.ends[1] = heap.next[row]
    for column in range(len(entry)):
        heap.rows[row, column] = entry[column]
    marks[DUE] = min(marks[DUE], entry[0])
    _put(calendar, row)


def pop_head(calendar: Calendar) -> int:
    """As `core.pop_head`."""
    row, rows = _taken(calendar), calendar.heap.rows
    return rows[row, rows.shape[1] - 1]  # type: ignore[no-any-return]


def pop_timer(calendar: Calendar) -> tuple[int, int, int, int]:
    """As `heapq.heappop`; the time is known."""
    row, rows = _taken(calendar), calendar.heap.rows
    return NEVER, rows[row, 1], rows[row, 2], rows[row, 3]


def _put(calendar: Calendar, row: int) -> None:
    """Into the heap, or into a bucket."""
    heap, firsts, now = calendar.heap, calendar.firsts, calendar.marks[NOW]
    apart = heap.rows[row, 0] ^ now
    if not apart:
        rise(heap, now, row)
        return
    bucket = bits(apart)
    heap.next[row], firsts[bucket] = firsts[bucket], row


def _taken(calendar: Calendar) -> int:
    """The row of the first entry, which is free now."""
    heap, marks = calendar.heap, calendar.marks
    if not heap.ends[0]:
        marks[NOW] = marks[DUE]
        _turn(calendar, _lowest(calendar))
    row = drop_first(heap)
    heap.rows[row, 0] = NEVER
    if not heap.ends[0]:
        marks[DUE] = _earliest(calendar, _lowest(calendar))
    return row


def _lowest(calendar: Calendar) -> int:
    """The bucket of those that come next."""
    bucket = 0
    while bucket < BUCKETS - 1 and calendar.firsts[bucket] < 0:
        bucket += 1
    return bucket


def _earliest(calendar: Calendar, bucket: int) -> int:
    time, row = NEVER, calendar.firsts[bucket]
    while row >= 0:
        time, row = min(time, calendar.heap.rows[row, 0]), calendar.heap.next[row]
    return time


def _turn(calendar: Calendar, bucket: int) -> None:
    """Time has gone on: what is in a bucket comes now, or goes to a lower one."""
    row, calendar.firsts[bucket] = calendar.firsts[bucket], -1
    while row >= 0:
        after = calendar.heap.next[row]
        _put(calendar, row)
        row = after
