"""Heaps and lists of tuples of integers in arrays, for compiled code; row 0 of a list counts the rows that follow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.core import NEVER, NONE, Head, Timer

Rows = NDArray[np.int64]
LINE = 9
"""The column of the line of heads."""


class Heap(NamedTuple):
    """Entries, of which number i comes before numbers 2i + 1 and 2i + 2: their times, in which of the `rows` each is.

    An entry whose last column is not 0 stands in that line where it comes behind the last one of the line; only the
    first of a line is in the heap. `next` is the row behind one in its line, or of the next that is free, `lasts` the
    last row of each line, -1 where there is none. `ends` are how many are in the heap, and the first row that is free.
    """

    times: Rows
    which: Rows
    rows: Rows
    next: Rows
    lasts: Rows
    ends: Rows

    @classmethod
    def of(cls, entries: Rows | list[tuple[int, ...]], width: int) -> Heap:
        """Of tuples in order, which stand in no lines."""
        rows = np.array(entries, np.int64).reshape(-1, width)
        rows[:, LINE:] = 0
        own, nobody = np.arange(len(rows)), np.zeros(0, np.int64)
        return cls(rows[:, 0].copy(), own, rows, own, nobody, np.array([len(rows), -1])).with_room(len(rows))

    def with_room(self, room: int, lines: int = 0) -> Heap:
        """The same, with room for so many entries and one more, in lines of so many numbers."""
        before, lasts = len(self.next), self.lasts
        if lines > len(lasts):
            lasts = np.append(lasts, np.full(2 * lines - len(lasts), -1))
        if room < before:
            return self._replace(lasts=lasts)
        more = max(room + 1, 2 * before) - before
        never = np.full((more, self.rows.shape[1]), NEVER)
        times, which = (np.append(each, never[:, 0]) for each in self[:2])
        free = np.append(np.arange(before + 1, before + more), self.ends[1])
        self.ends[1] = before
        return Heap(times, which, np.concatenate([self.rows, never]), np.append(self.next, free), lasts, self.ends)


def push(heap: Heap, entry: tuple[int, ...]) -> None:
    """As `heapq.heappush`."""
    row = heap.ends[1]
    heap.ends[1] = heap.next[row]
    for column in range(len(entry)):
        heap.rows[row, column] = entry[column]
    if not _lined_up(heap, row):
        rise(heap, entry[0], row)


def pop_head(heap: Heap) -> Head:
    """As `heapq.heappop`; where it is pushed again, it stands in no line."""
    at, rows = drop_first(heap), heap.rows
    first = rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3], rows[at, 4]
    return (*first, rows[at, 5], rows[at, 6], rows[at, 7], rows[at, 8], NONE)


def pop_timer(heap: Heap) -> Timer:
    """As `heapq.heappop`."""
    at, rows = drop_first(heap), heap.rows
    return rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3]


def first(heap: Heap) -> int:
    """As `core.first`."""
    return heap.times[0]  # type: ignore[no-any-return]


def swap(heap: Heap, entry: tuple[int, ...]) -> Head:
    """As `heapq.heappushpop`."""
    push(heap, entry)
    return pop_head(heap)


def append(rows: Rows, entry: tuple[int, ...]) -> None:
    """As `list.append`."""
    row = rows[0, 0] + 1
    rows[0, 0] = row
    for column in range(len(entry)):
        rows[row, column] = entry[column]


def length(rows: Rows) -> int:
    """As `len`."""
    return rows[0, 0]  # type: ignore[no-any-return]


def _lined_up(heap: Heap, row: int) -> bool:
    """Whether an entry stands behind another one of its line; where it does not, it is in the heap itself."""
    line = _line(heap, row)
    if line == 0:
        return False
    last = heap.lasts[line]
    if last >= 0:
        if not _before(heap, heap.rows[last, 0], last, heap.rows[row, 0], row):
            heap.rows[row, LINE] = 0
            return False
        heap.next[last] = row
    heap.lasts[line], heap.next[row] = row, -1
    return last >= 0  # type: ignore[no-any-return]


def _line(heap: Heap, row: int) -> int:
    return heap.rows[row, LINE] if heap.rows.shape[1] > LINE else 0


def rise(heap: Heap, time: int, row: int) -> None:
    """A row that stands behind no other goes into the heap."""
    times, which, at = heap.times, heap.which, heap.ends[0]
    heap.ends[0] = at + 1
    while at > 0:
        above = (at - 1) // 2
        if not _before(heap, time, row, times[above], which[above]):
            break
        times[at], which[at] = times[above], which[above]
        at = above
    times[at], which[at] = time, row


def drop_first(heap: Heap) -> int:
    """The next of its line goes to the first one's place, or the last one, and down from there; which row is free."""
    times, which, first, last = heap.times, heap.which, heap.which[0], heap.ends[0] - 1
    line = _line(heap, first)
    row = heap.next[first] if line else -1
    if row < 0:
        if line:
            heap.lasts[line] = -1
        heap.ends[0], row, time, times[last] = last, which[last], times[last], NEVER
    else:
        last, time = last + 1, heap.rows[row, 0]
    heap.next[first], heap.ends[1] = heap.ends[1], first
    at, below = 0, 1
    while below < last:
        if below + 1 < last and _before(heap, times[below + 1], which[below + 1], times[below], which[below]):
            below += 1
        if not _before(heap, times[below], which[below], time, row):
            break
        times[at], which[at] = times[below], which[below]
        at, below = below, 2 * below + 1
    if last:
        times[at], which[at] = time, row
    return first  # type: ignore[no-any-return]


def _before(heap: Heap, time: int, row: int, other_time: int, other: int) -> bool:
    if time != other_time:
        return time < other_time
    for column in range(1, heap.rows.shape[1]):
        if heap.rows[row, column] != heap.rows[other, column]:
            return bool(heap.rows[row, column] < heap.rows[other, column])
    return False
