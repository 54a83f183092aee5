"""Heaps and lists of tuples of integers in arrays, for compiled code; row 0 of a list counts the rows that follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.core import NEVER, Head, Timer

Rows = NDArray[np.int64]


class Heap(NamedTuple):
    """Entries, of which number i comes before numbers 2i + 1 and 2i + 2: their times, in which of the `rows` each is.

    From number `ends[0]` on there are none: all times are `NEVER`, and `which` says what rows are free.
    """

    times: Rows
    which: Rows
    rows: Rows
    ends: Rows

    @classmethod
    def of(cls, entries: Iterable[tuple[int, ...]], width: int) -> Heap:
        """Of tuples in order."""
        rows = np.array([*entries], np.int64).reshape(-1, width)
        return cls(rows[:, 0].copy(), np.arange(len(rows)), rows, np.array([len(rows)])).with_room(1)

    def with_room(self, room: int) -> Heap:
        """The same, with room for so many entries and one more."""
        more = max(room + 1, 2 * len(self.times)) - len(self.times)
        if room < len(self.times):
            return self
        never = np.full((more, self.rows.shape[1]), NEVER)
        which = np.concatenate([self.which, np.arange(more) + len(self.which)])
        return Heap(np.append(self.times, never[:, 0]), which, np.concatenate([self.rows, never]), self.ends)


def push(heap: Heap, entry: tuple[int, ...]) -> None:
    """As `heapq.heappush`."""
    times, which, at, time = heap.times, heap.which, heap.ends[0], entry[0]
    heap.ends[0] = at + 1
    row = which[at]
    for column in range(len(entry)):
        heap.rows[row, column] = entry[column]
    while at > 0:
        above = (at - 1) // 2
        if not _before(heap, time, row, times[above], which[above]):
            break
        times[at], which[at] = times[above], which[above]
        at = above
    times[at], which[at] = time, row


def pop_head(heap: Heap) -> Head:
    """As `heapq.heappop`."""
    at, rows = _drop_first(heap), heap.rows
    first = rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3], rows[at, 4]
    return (*first, rows[at, 5], rows[at, 6], rows[at, 7], rows[at, 8])


def pop_timer(heap: Heap) -> Timer:
    """As `heapq.heappop`."""
    at, rows = _drop_first(heap), heap.rows
    return rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3]


def first(heap: Heap) -> int:
    """As `core.first`."""
    return heap.times[0]  # type: ignore[no-any-return]


def turn(heap: Heap, _: int) -> int:
    """As `core.turn`."""
    return heap.times[0]  # type: ignore[no-any-return]


def swap(heap: Heap, entry: tuple[int, ...]) -> Head:
    """As `heapq.heappushpop`."""
    push(heap, entry)
    return pop_head(heap)


def append(rows: Rows, entry: tuple[int, int, int]) -> None:
    """As `list.append`."""
    row = rows[0, 0] + 1
    rows[0, 0] = row
    for column in range(len(entry)):
        rows[row, column] = entry[column]


def length(rows: Rows) -> int:
    """As `len`."""
    return rows[0, 0]  # type: ignore[no-any-return]


def _drop_first(heap: Heap) -> int:
    """The last one goes to the first one's place, and down from there; the row that is free."""
    times, which, last = heap.times, heap.which, heap.ends[0] - 1
    heap.ends[0] = last
    first, time, row = which[0], times[last], which[last]
    times[last], which[last] = NEVER, first
    at, below = 0, 1
    while below < last:
        if _before(heap, times[below + 1], which[below + 1], times[below], which[below]):
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
