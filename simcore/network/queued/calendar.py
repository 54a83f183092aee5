"""What is to come, in arrays for compiled code: a heap of what comes now, and slots and buckets of what comes later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simcore.network.core import NEVER
from simcore.network.heaps import Heap, Rows, drop_first, rise

NOW, DUE = range(2)
SLOT_BITS, WORD_BITS = 14, 5
SLOTS, BUCKETS = 1 << SLOT_BITS, 65
WORDS, LAST_BIT = SLOTS >> WORD_BITS, (1 << WORD_BITS) - 1


class Calendar(NamedTuple):
    """Entries in order, of which none comes before one that was taken (a radix heap whose lowest digit is long).

    Those of the time `NOW` are in the heap. Of later ones a slot for each nanosecond has those whose times differ from
    it in the last `SLOT_BITS` only, and of still later ones bucket b those that differ in b bits before these: one
    behind the other from row `firsts` on, of slots and then of buckets. `words` have a bit for every slot with entries,
    and behind that one for every word that is not 0. The first of all comes at `DUE`. The time of a row that is free is
    `NEVER`.
    """

    heap: Heap
    firsts: Rows
    words: Rows
    marks: Rows

    @classmethod
    def of(cls, entries: Rows, room: int) -> Calendar:
        """Of rows of entries, with room for so many and one more; at first all lie in the last bucket."""
        count, firsts = len(entries), np.full(SLOTS + BUCKETS, -1)
        words = np.zeros(WORDS + (WORDS >> WORD_BITS), np.int64)
        heap = Heap.of(entries, entries.shape[1]).with_room(room)
        firsts[-1], heap.next[:count], heap.ends[0] = count - 1, np.arange(-1, count - 1), 0
        return cls(heap, firsts, words, np.array([-1, entries[:, 0].min(initial=NEVER)]))

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


def _place(calendar: Calendar, time: int) -> int:
    """The slot or bucket of what comes then, later than now."""
    apart = (time ^ calendar.marks[NOW]) >> SLOT_BITS
    return SLOTS + bits(apart) if apart else time & (SLOTS - 1)


def _put(calendar: Calendar, row: int) -> None:
    """Into the heap, a slot or a bucket."""
    heap, firsts, words = calendar.heap, calendar.firsts, calendar.words
    time = heap.rows[row, 0]
    if time == calendar.marks[NOW]:
        rise(heap, time, row)
        return
    place = _place(calendar, time)
    if place < SLOTS:
        word = place >> WORD_BITS
        words[word] |= 1 << (place & LAST_BIT)
        words[WORDS + (word >> WORD_BITS)] |= 1 << (word & LAST_BIT)
    heap.next[row], firsts[place] = firsts[place], row


def _taken(calendar: Calendar) -> int:
    """The row of the first entry, which is free now."""
    heap, marks = calendar.heap, calendar.marks
    if not heap.ends[0]:
        place, marks[NOW] = _place(calendar, marks[DUE]), marks[DUE]
        _turn(calendar, place)
    row = drop_first(heap)
    heap.rows[row, 0] = NEVER
    if not heap.ends[0]:
        marks[DUE] = _earliest(calendar, _lowest(calendar))
    return row


def _lowest(calendar: Calendar) -> int:
    """The slot or bucket of those that come next."""
    words, at = calendar.words, WORDS + ((calendar.marks[NOW] & (SLOTS - 1)) >> (2 * WORD_BITS))
    while at < len(words) and not words[at]:
        at += 1
    if at < len(words):
        word = ((at - WORDS) << WORD_BITS) + bits(words[at] & -words[at]) - 1
        return (word << WORD_BITS) + bits(words[word] & -words[word]) - 1  # type: ignore[no-any-return]
    place = SLOTS
    while place < SLOTS + BUCKETS - 1 and calendar.firsts[place] < 0:
        place += 1
    return place


def _earliest(calendar: Calendar, place: int) -> int:
    if place < SLOTS:
        return calendar.marks[NOW] & -SLOTS | place  # type: ignore[no-any-return]
    time, row = NEVER, calendar.firsts[place]
    while row >= 0:
        time, row = min(time, calendar.heap.rows[row, 0]), calendar.heap.next[row]
    return time


def _turn(calendar: Calendar, place: int) -> None:
    """Time has gone on: what is in a slot comes now; what is in a bucket does, or goes to a slot or a lower one."""
    words, row, calendar.firsts[place] = calendar.words, calendar.firsts[place], -1
    if place < SLOTS:
        word = place >> WORD_BITS
        words[word] &= ~(1 << (place & LAST_BIT))
        if not words[word]:
            words[WORDS + (word >> WORD_BITS)] &= ~(1 << (word & LAST_BIT))
    while row >= 0:
        after = calendar.heap.next[row]
        _put(calendar, row)
        row = after
