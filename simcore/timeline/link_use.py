"""What links did when: noted as a run goes on, put together link by link when somebody asks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MOST_TIMES = 10_000_000  # transfers over links; a run with more keeps none
SPANS = (1, 1)  # begin and end are moments


class LinkRows(Struct, frozen=True, eq=False):
    """What some neighbouring links did, as it was every time the same was played.

    Of the `columns` the first is the link (ascending, counted from link `first`); moments in the others are counted
    from each of `begins_ns`.
    """

    first: int
    columns: Ints
    begins_ns: Ints

    @classmethod
    def of(cls, rows: Ints, first: int = 0, begins_ns: Sequence[int] = (0,)) -> LinkRows:
        """From rows of (link, figures ...) in any order."""
        return cls(first, rows[np.argsort(rows[:, 0], kind="stable")].T.copy(), np.array(begins_ns, np.int64))

    def __len__(self) -> int:
        return len(self.columns[0])

    def again(self, first: int, begins_ns: Sequence[int]) -> LinkRows:
        """The same on other links, at other times."""
        return replace(self, first=first, begins_ns=np.array(begins_ns, np.int64))

    def on(self, link: int, moments: Sequence[int]) -> Ints:
        """The figures of a link in columns, in no order; `moments` are 1 for those that are some."""
        own = slice(*np.searchsorted(self.columns[0], (link - self.first, link - self.first + 1)))
        later_ns = np.multiply.outer(moments, self.begins_ns)
        return (self.columns[1:, None, own] + later_ns[:, :, None]).reshape(len(moments), -1)


class LinkHistory(Struct, frozen=True, eq=False):
    """What every link did when, such as when it was occupied; link i did what `stands_for[i]` did."""

    parts: Sequence[LinkRows]
    stands_for: Ints
    moments: tuple[int, ...] = SPANS

    @property
    def most_rows(self) -> int:
        """Of what was played at once."""
        return max(map(len, self.parts), default=0)

    def of(self, link: int) -> Ints:
        """The figures of a link in columns, in order of the first."""
        number = int(self.stands_for[link])
        found = [part.on(number, self.moments) for part in self.parts if number >= part.first]
        columns = np.concatenate([np.zeros((len(self.moments), 0), np.int64), *found], axis=1)
        return columns[:, np.argsort(columns[0], kind="stable")]

    @classmethod
    def joined(cls, some: Sequence[LinkHistory], before: Sequence[int]) -> LinkHistory:
        """Of several networks; `before` is how many links stand before each."""
        each = list(zip(some, before, strict=True))
        parts = [replace(part, first=part.first + first) for one, first in each for part in one.parts]
        return cls(parts, np.concatenate([one.stands_for + first for one, first in each]), some[0].moments)


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
