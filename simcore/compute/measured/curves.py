"""Measured times as curves: one per configuration, along the one size that was swept (rows, tokens, bytes)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Columns = Mapping[str, NDArray[np.generic]]

_APART = 128.0  # octaves between the keys of two curves: more than any swept size spans


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of one operation, device and type. `sizes`: columns [curves] of configurations, `places` [curves, axes]
    where these are, in weighted octaves.

    `first` [curves + 1]: where each curve's points begin; `along` [points]: log2 of the swept size, ascending in each
    curve; `log_us` [points]: natural logarithm of microseconds. `table` names the measurements. `mixed`: of several
    words, which are columns, too, so that no curve is a configuration's own.
    """

    table: str
    sizes: Columns
    places: Floats
    first: Integers
    along: Floats
    log_us: Floats
    mixed: bool = False

    @cached_property
    def _keys(self) -> Floats:
        """One ascending sequence over all points, so that one search finds places in many curves."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first)) * _APART + self.along

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Where each curve begins and ends, in log2 of the swept size."""
        return self.along[self.first[:-1]], self.along[self.first[1:] - 1]

    @cached_property
    def of(self) -> dict[tuple[float, ...], int]:
        """Which curve has a configuration, its sizes in their order."""
        rows = zip(*(values.tolist() for values in self.sizes.values()), strict=True)
        return {} if self.mixed else {row: place for place, row in enumerate(rows)}

    def between(self, curve: Integers, along: Floats) -> tuple[Integers, Integers, Floats]:
        """The points left and right of a place, and how far it is from the one to the other."""
        low, high = self.ends
        place = np.clip(along, low[curve], high[curve])
        right = np.searchsorted(self._keys, curve * _APART + place - 1e-9)
        right = np.clip(right, self.first[curve], self.first[curve + 1] - 1)
        return self._shared(np.maximum(right - 1, self.first[curve]), right, place)

    def around(self, curve: Integers, along: Floats) -> tuple[Integers, Integers, Floats]:
        """As `between`, without the point nearest to the place: what the curve says when that was not measured."""
        first, last = self.first[curve], self.first[curve + 1] - 1
        right = np.clip(np.searchsorted(self._keys, curve * _APART + along), first, last)
        left = np.maximum(right - 1, first)
        nearest = np.where(np.abs(self.along[left] - along) <= np.abs(self.along[right] - along), left, right)
        left = nearest + np.where(nearest == first, 1, np.where(nearest == last, -2, -1))
        right = nearest + np.where(nearest == first, 2, np.where(nearest == last, -1, 1))
        return self._shared(np.clip(left, first, last), np.clip(right, first, last), along)

    def _shared(self, left: Integers, right: Integers, along: Floats) -> tuple[Integers, Integers, Floats]:
        width = self.along[right] - self.along[left]
        return left, right, np.where(width > 0, (along - self.along[left]) / np.where(width > 0, width, 1.0), 0.0)
