"""Which NPUs do the same: those of one class compute the same, and meet the same classes (partition refinement)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.moves import Fold
from simcore.system.groups import GroupDim, LogicalDim

Ints = NDArray[np.int64]


class Rows(NamedTuple):
    """Rows of NPUs that meet, `size` in each, `stride` ids apart.

    Where those do the same for whom one plays, `fold` says who does; else every place in a row has its part. None:
    places make no difference.
    """

    stride: int
    size: int
    fold: Fold | None = None

    def split(self, colours: Ints) -> tuple[Ints, int]:
        """Colours that also say who is met, from 0 on, and how many there are."""
        rows = colours.reshape(-1, self.size, self.stride).swapaxes(1, 2).reshape(-1, self.size)
        which, made = _numbered(rows)
        names, seats = self._seats(made)
        found, numbers = np.unique(names[:, None] * self.size + seats, return_inverse=True)
        split = numbers.reshape(made.shape)[which].reshape(-1, self.stride, self.size).swapaxes(1, 2)
        return split.ravel(), len(found)

    def _seats(self, rows: Ints) -> tuple[Ints, Ints]:
        """Of rows that all differ: a number, equal for those that count as equal, and who is whose like in each."""
        if self.fold is not None:
            places = np.arange(self.size)
            return np.arange(len(rows)), np.where(self.fold.fits(rows)[:, None], self.fold.of(places), places)
        order = np.argsort(rows, axis=1, kind="stable")
        ordered, seats = np.take_along_axis(rows, order, axis=1), np.empty_like(rows)
        steps = np.diff(ordered, axis=1, prepend=ordered[:, :1]) != 0
        np.put_along_axis(seats, order, np.cumsum(steps, axis=1), axis=1)
        return _numbered(ordered)[0], seats


def _numbered(rows: Ints) -> tuple[Ints, Ints]:
    """A number for every row, equal for equal ones, and the row of each number; most may be as the last one is."""
    known, found = {rows[-1].tobytes(): 0}, np.zeros(len(rows), np.int64)
    others = np.flatnonzero((rows != rows[-1]).any(axis=1))
    found[others] = [known.setdefault(row.tobytes(), len(known)) for row in rows[others]]
    return found, np.frombuffer(b"".join(known), np.int64).reshape(-1, rows.shape[1])


def even(kinds: Ints, dims: Iterable[GroupDim]) -> bool:
    """Whether all NPUs of every group do the same."""
    return all(
        isinstance(dim, LogicalDim) and not np.ptp(kinds.reshape(-1, dim.size, dim.stride), axis=1).any()
        for dim in dims
    )


def alike(kinds: Ints, meeting: Sequence[Rows]) -> list[Sequence[int]]:
    """The NPUs of every class, ascending; class 0 holds NPU 0.

    `kinds` numbers NPUs by what they compute: equal numbers start in one class. Then classes are split until all
    members of a class meet the same classes in every row.
    """
    colours, before, count = kinds, -1, 0
    while count > before:
        before = count
        for rows in meeting:
            colours, count = rows.split(colours)
    return classes_of(colours)


def classes_of(kinds: Ints) -> list[Sequence[int]]:
    """The NPUs of every kind, ascending, ordered by their first; a class of neighbours is a range."""
    order = np.argsort(kinds, kind="stable")
    found: list[Sequence[int]] = []
    for members in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        first, last = int(members[0]), int(members[-1])
        found.append(range(first, last + 1) if last - first + 1 == len(members) else members)  # type: ignore[arg-type]
    return sorted(found, key=lambda members: int(members[0]))


def kinds_of(programs: Ints, stragglers: Mapping[int, float]) -> Ints:
    """A number for what every NPU does, equal where it is the same: its program, and the factor on its times."""
    if not stragglers:
        return programs
    factors = np.ones(len(programs))
    factors[list(stragglers)] = list(stragglers.values())
    speeds = np.unique(factors, return_inverse=True)[1]
    found: Ints = programs * (speeds.max() + 1) + speeds
    return found
