"""When links were occupied: noted as a run goes on, put together link by link when somebody asks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MOST_TIMES = 10_000_000  # transfers over links; a run with more keeps none


class OccupiedLinks(Struct, frozen=True, eq=False):
    """Intervals of some neighbouring links, as they were every time the same was played.

    The columns `link` (ascending, counted from link `first`), `start_ns` and `end_ns` are counted from each of
    `begins_ns`.
    """

    first: int
    link: Ints
    start_ns: Ints
    end_ns: Ints
    begins_ns: Ints

    @classmethod
    def of(cls, rows: Ints, first: int = 0, begins_ns: Sequence[int] = (0,)) -> OccupiedLinks:
        """From rows of (link, start, end) in any order."""
        link, start_ns, end_ns = rows[np.argsort(rows[:, 0], kind="stable")].T.copy()
        return cls(first, link, start_ns, end_ns, np.array(begins_ns, np.int64))

    def again(self, first: int, begins_ns: Sequence[int]) -> OccupiedLinks:
        """The same on other links, at other times."""
        return replace(self, first=first, begins_ns=np.array(begins_ns, np.int64))

    def on(self, link: int) -> tuple[Ints, Ints]:
        """Begin and end of every interval on a link, in no order."""
        own = slice(*np.searchsorted(self.link, (link - self.first, link - self.first + 1)))
        starts, ends = (np.add.outer(self.begins_ns, column[own]).ravel() for column in (self.start_ns, self.end_ns))
        return starts, ends


class LinkUse(Struct, frozen=True, eq=False):
    """When every link was occupied; link i did what `stands_for[i]` did."""

    parts: Sequence[OccupiedLinks]
    stands_for: Ints

    def of(self, link: int) -> tuple[Ints, Ints]:
        """Begin and end of the intervals in which a link was occupied, ascending; none overlaps another."""
        nothing = np.zeros(0, np.int64)
        number = int(self.stands_for[link])
        columns = (part.on(number) for part in self.parts if number >= part.first)
        starts, ends = map(np.concatenate, zip((nothing, nothing), *columns, strict=True))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order]

    @classmethod
    def joined(cls, uses: Sequence[LinkUse], before: Sequence[int]) -> LinkUse:
        """Of several networks; `before` is how many links stand before each."""
        each = list(zip(uses, before, strict=True))
        parts = [replace(part, first=part.first + first) for use, first in each for part in use.parts]
        return cls(parts, np.concatenate([use.stands_for + first for use, first in each]))


class Rows:
    """Rows of so many numbers, noted as a run goes on; of more than `most` the first."""

    def __init__(self, width: int, most: int):
        self._width, self._most = width, most
        self._numbers = array("q")

    def add(self, *row: int) -> None:
        """One more."""
        if len(self._numbers) < self._width * self._most:
            self._numbers.extend(row)

    def extend(self, rows: Ints) -> None:
        """More of them."""
        self._numbers.frombytes(rows[: self.room].tobytes())

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    @property
    def room(self) -> int:
        """For so many more."""
        return self._most - len(self)

    def again(self, first: int, times: int, step: Sequence[int]) -> None:
        """All since the `first` come again and again, each time by a step more."""
        period = self.table(first)
        if len(period):
            number = np.arange(1, min(times, -(-self.room // len(period))) + 1)
            self.extend((period + number[:, None, None] * np.array(step)).reshape(-1, self._width))

    def table(self, first: int = 0) -> Ints:
        """All since the `first`."""
        return np.array(self._numbers[self._width * first :], np.int64).reshape(-1, self._width)


class Times(Rows):
    """Rows of (link, begin, end), noted transfer by transfer."""

    def __init__(self) -> None:
        super().__init__(3, MOST_TIMES + 1)

    def rows(self) -> Ints | None:
        """All of them; None when there were too many."""
        return self.table() if self.room else None
