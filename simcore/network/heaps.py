"""Heaps and lists of tuples of integers in arrays, for compiled code: row 0 counts the rows that follow.

In a heap row r comes before rows 2r and 2r + 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simcore.network.core import NEVER, Head, Timer

Rows = NDArray[np.int64]
FIRST = 1


def push(heap: Rows, entry: tuple[int, ...]) -> None:
    """As `core.Calendar.push`."""
    row = heap[0, 0] + 1
    heap[0, 0] = row
    while row > 1 and _goes_before(entry, heap, row // 2):
        _copy(heap, row // 2, row)
        row //= 2
    for column in range(len(entry)):
        heap[row, column] = entry[column]


def due_heads(heap: Rows, now: int) -> Iterator[Head]:
    """As `core.Calendar.due`."""
    while first_ns(heap) == now:
        order, number, hop, sender = heap[1, 1], heap[1, 2], heap[1, 3], heap[1, 4]
        instance, receiver, kind, tail = heap[1, 5], heap[1, 6], heap[1, 7], heap[1, 8]
        _drop_first(heap)
        yield now, order, number, hop, sender, instance, receiver, kind, tail


def due_timers(heap: Rows, now: int) -> Iterator[Timer]:
    """As `core.Calendar.due`."""
    while first_ns(heap) == now:
        instance, what, position = heap[1, 1], heap[1, 2], heap[1, 3]
        _drop_first(heap)
        yield now, instance, what, position


def append(rows: Rows, entry: tuple[int, int, int]) -> None:
    """As `list.append`."""
    row = rows[0, 0] + 1
    rows[0, 0] = row
    for column in range(len(entry)):
        rows[row, column] = entry[column]


def length(rows: Rows) -> int:
    """As `len`."""
    return rows[0, 0]  # type: ignore[no-any-return]


def first_ns(heap: Rows) -> int:
    """The time of the first in a heap."""
    return heap[1, 0] if heap[0, 0] else NEVER


def _drop_first(heap: Rows) -> None:
    """The last one goes to the first one's place, and down from there."""
    last = heap[0, 0]
    heap[0, 0] = last - 1
    row, child = FIRST, 2 * FIRST
    while child < last:
        if child + 1 < last and _before(heap, child + 1, child):
            child += 1
        if not _before(heap, child, last):
            break
        _copy(heap, child, row)
        row, child = child, 2 * child
    _copy(heap, last, row)


def _copy(heap: Rows, source: int, target: int) -> None:
    for column in range(heap.shape[1]):
        heap[target, column] = heap[source, column]


def _before(heap: Rows, row: int, other: int) -> bool:
    for column in range(heap.shape[1]):
        if heap[row, column] != heap[other, column]:
            return bool(heap[row, column] < heap[other, column])
    return False


def _goes_before(entry: tuple[int, ...], heap: Rows, row: int) -> bool:
    for column in range(len(entry)):
        if entry[column] != heap[row, column]:
            return bool(entry[column] < heap[row, column])
    return False
