"""What is to come, in arrays for compiled code: a heap of what comes now, and buckets of what comes later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simcore.network.core import NEVER
from simcore.network.heaps import Rows

NOW, DUE, COUNT, FREE = range(4)
BUCKETS = 65


class Calendar(NamedTuple):
    """Entries in order, of which none comes before one that was taken (a radix heap).

    Each is one of the `rows`, (time, ...). Those of one time `NOW` are in the heap `present`, which has `COUNT` of
    them. Of later ones bucket b has those whose times differ from it in b bits at the end, chained from `firsts` on by
    `next`; so are rows that are `FREE`, whose time is `NEVER`. The first of all is `DUE`.
    """

    rows: Rows
    present: Rows
    next: Rows
    firsts: Rows
    marks: Rows

    @classmethod
    def of(cls, entries: Rows, room: int) -> Calendar:
        """Of rows of entries, with room for so many and one more."""
        before, now = len(entries), max(len(entries), room) + 1
        rows, following, firsts = np.full((now, entries.shape[1]), NEVER), np.arange(1, now + 1), np.full(BUCKETS, -1)
        rows[:before] = entries
        if before:
            following[before - 1], firsts[-1] = -1, 0
        due = entries[:, 0].min(initial=NEVER)
        return cls(rows, np.zeros(now, np.int64), following, firsts, np.array([-1, due, 0, before]))

    def again(self, later_ns: int, room: int = 0) -> Calendar:
        """The same so much later, with room for so many at least."""
        entries = self.entries()
        entries[:, 0] += later_ns
        return Calendar.of(entries, max(room, len(self.rows) - 1))

    def entries(self) -> Rows:
        """All of them, in order."""
        rows = self.rows[self.rows[:, 0] < NEVER]
        return rows[np.lexsort(rows.T[::-1])]  # type: ignore[no-any-return]


def bits(number: int) -> int:
    """How many of 64 it has, without zeros in front; compiled, an instruction."""
    return number.bit_length() if number >= 0 else BUCKETS - 1


def first(calendar: Calendar) -> int:
    """When the first entry comes."""
    return calendar.marks[DUE]  # type: ignore[no-any-return]


def push(calendar: Calendar, entry: tuple[int, ...]) -> None:
    """As `heapq.heappush`."""
    rows, marks = calendar.rows, calendar.marks
    row = marks[FREE]
    marks[FREE] = calendar.next[row]
    for column in range(len(entry)):
        rows[row, column] = entry[column]
    marks[DUE] = min(marks[DUE], entry[0])
    _put(calendar, row)


def pop_head(calendar: Calendar) -> int:
    """As `core.pop_head`."""
    row = _taken(calendar)
    return calendar.rows[row, calendar.rows.shape[1] - 1]  # type: ignore[no-any-return]


def pop_timer(calendar: Calendar) -> tuple[int, int, int, int]:
    """As `heapq.heappop`; the time is known."""
    row, rows = _taken(calendar), calendar.rows
    return NEVER, rows[row, 1], rows[row, 2], rows[row, 3]


def _put(calendar: Calendar, row: int) -> None:
    """Into the heap, or into a bucket."""
    apart = calendar.rows[row, 0] ^ calendar.marks[NOW]
    if not apart:
        _rise(calendar, row)
        return
    bucket = bits(apart)
    calendar.next[row], calendar.firsts[bucket] = calendar.firsts[bucket], row


def _taken(calendar: Calendar) -> int:
    """The row of the first entry, which is free now."""
    marks = calendar.marks
    if not marks[COUNT]:
        _turn(calendar)
    row = _sink(calendar)
    calendar.rows[row, 0] = NEVER
    calendar.next[row], marks[FREE] = marks[FREE], row
    if not marks[COUNT]:
        marks[DUE] = _earliest(calendar)
    return row


def _lowest(calendar: Calendar) -> int:
    """The bucket of those that come first."""
    bucket = 0
    while bucket < BUCKETS - 1 and calendar.firsts[bucket] < 0:
        bucket += 1
    return bucket


def _earliest(calendar: Calendar) -> int:
    time, row = NEVER, calendar.firsts[_lowest(calendar)]
    while row >= 0:
        time, row = min(time, calendar.rows[row, 0]), calendar.next[row]
    return time


def _turn(calendar: Calendar) -> None:
    """It is `DUE` now: what is in the lowest bucket comes now, or goes to a lower one."""
    calendar.marks[NOW] = calendar.marks[DUE]
    bucket = _lowest(calendar)
    row, calendar.firsts[bucket] = calendar.firsts[bucket], -1
    while row >= 0:
        after = calendar.next[row]
        _put(calendar, row)
        row = after


def _rise(calendar: Calendar, row: int) -> None:
    """Into the heap."""
    present, at = calendar.present, calendar.marks[COUNT]
    calendar.marks[COUNT] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        if not _before(calendar.rows, row, present[above]):
            break
        present[at] = present[above]
        at = above
    present[at] = row


def _sink(calendar: Calendar) -> int:
    """The first of the heap, whose place the last one takes, and goes down from there."""
    rows, present, last = calendar.rows, calendar.present, calendar.marks[COUNT] - 1
    calendar.marks[COUNT] = last
    found, row, at, below = present[0], present[last], 0, 1
    while below < last:
        if below + 1 < last and _before(rows, present[below + 1], present[below]):
            below += 1
        if not _before(rows, present[below], row):
            break
        present[at] = present[below]
        at, below = below, 2 * below + 1
    present[at] = row
    return found  # type: ignore[no-any-return]


def _before(rows: Rows, row: int, other: int) -> bool:
    """Of two entries of one time."""
    for column in range(1, rows.shape[1]):
        if rows[row, column] != rows[other, column]:
            return bool(rows[row, column] < rows[other, column])
    return False
