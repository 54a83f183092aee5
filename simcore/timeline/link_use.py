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


class LinkRows(Struct, frozen=True, eq=False):
    """What some neighbouring links did, as it was every time the same was played.

    The `columns` are the link (ascending, counted from link `first`), the time (counted from each of `begins_ns`) and
    what there is to say.
    """

    first: int
    columns: Ints
    begins_ns: Ints

    @classmethod
    def of(cls, rows: Ints) -> LinkRows:
        """From rows of (link, time, ...) in any order."""
        shortest = np.min_scalar_type(rows[:, 0].max(initial=0))  # is sorted many times as fast
        order = np.argsort(rows[:, 0].astype(shortest), kind="stable")
        return cls(0, rows.T.take(order, axis=1), np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.columns[0])

    def again(self, first: int, begins_ns: Sequence[int]) -> LinkRows:
        """The same on other links, at other times."""
        return replace(self, first=first, begins_ns=np.array(begins_ns, np.int64))

    def on(self, link: int) -> Ints:
        """Of a link times, and what there is to say, in no order."""
        own = slice(*np.searchsorted(self.columns[0], (link - self.first, link - self.first + 1)))
        again = np.tile(self.columns[1:, own], len(self.begins_ns))
        again[0] = np.add.outer(self.begins_ns, self.columns[1, own]).ravel()
        return again


class LinkHistory(Struct, frozen=True, eq=False):
    """What every link did when; link i did what `stands_for[i]` did. There is one of the `parts` at least."""

    parts: Sequence[LinkRows]
    stands_for: Ints

    @property
    def most_rows(self) -> int:
        """Of what was played at once."""
        return max(map(len, self.parts), default=0)

    def of(self, link: int) -> Ints:
        """Times of a link, ascending, and what there is to say."""
        number = int(self.stands_for[link])
        columns = np.concatenate([part.on(number) for part in self.parts], axis=1)
        return columns[:, np.argsort(columns[0], kind="stable")]

    def spans(self, link: int) -> tuple[Ints, Ints]:
        """Begin and end of the intervals in which a link was occupied, ascending; none overlaps another."""
        starts_ns, lasting_ns = self.of(link)
        return starts_ns, starts_ns + lasting_ns

    @classmethod
    def joined(cls, some: Sequence[LinkHistory], before: Sequence[int]) -> LinkHistory:
        """Of several networks; `before` is how many links stand before each."""
        each = list(zip(some, before, strict=True))
        parts = [replace(part, first=part.first + first) for one, first in each for part in one.parts]
        return cls(parts, np.concatenate([one.stands_for + first for one, first in each]))


class Rows:
    """Rows of (link, time, ...), noted as a run goes on; of more than `most` the first."""

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

    def again(self, first: int, times: int, period_ns: int) -> None:
        """All since the `first` come again and again, each time a period later."""
        period = self.table(first)
        if len(period):
            count = min(times, -(-self.room // len(period)))
            added = np.tile(period, (count, 1))
            added[:, 1] += np.repeat(np.arange(1, count + 1) * period_ns, len(period))
            self.extend(added)

    def table(self, first: int = 0) -> Ints:
        """All since the `first`."""
        return np.frombuffer(self._numbers, np.int64)[self._width * first :].reshape(-1, self._width).copy()
