"""Ways over grids of NPUs, along dimension 0 first, moves of all of them, and straight cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray
from simcore.network.topology.moves import Moves, Places, Symmetry


class Walk(NamedTuple):
    """The steps of many walks, one walk after the other: walk i has `counts[i]`, from `here` along `axis`."""

    counts: IntArray
    here: IntArray
    axis: IntArray
    down: NDArray[np.bool_]


def coordinates(ids: IntArray | int, sizes: Sequence[int]) -> IntArray:
    """Places of NPUs, (.., dimensions); dimension 0 counts fastest."""
    return np.stack(np.unravel_index(ids, sizes, order="F"), axis=-1)


class Along(Struct, frozen=True):
    """Moves on by so many along each of some `sides`, from the last to the first."""

    sides: tuple[int, ...]
    symmetry = Symmetry.TURNS

    def ids(self, places: IntArray) -> IntArray:
        """NPUs at places, (.., dimensions), that may be beyond the sides."""
        found: IntArray = np.ravel_multi_index(tuple(np.moveaxis(places % self.sides, -1, 0)), self.sides, order="F")
        return found

    def on(self, places: Places, by: Places) -> Places:
        """As of `Moves`."""
        there = coordinates(places, self.sides) + coordinates(by, self.sides)
        return self.ids(there)  # type: ignore[return-value]  # a number where those are numbers

    def back(self, places: Places, by: Places) -> Places:
        """As of `Moves`."""
        there = coordinates(places, self.sides) - coordinates(by, self.sides)
        return self.ids(there)  # type: ignore[return-value]  # as above


def moves_of(fabric: Fabric, cut: Sequence[int]) -> Moves:
    """Those that bring place 0 of a fabric that looks the same from all to each other one.

    Where any two may change places, those inside each of the sizes of a `cut` do so on their own: groups stay groups.
    """
    return fabric.moves or Along(tuple(cut) if fabric.permutes else (fabric.npus,))


def walk(start: IntArray, steps: IntArray) -> Walk:
    """From each place of `start` as many steps up or down each dimension as `steps` says, (walks, dimensions)."""
    lengths = np.abs(steps)
    counts: IntArray = lengths.sum(axis=1)
    owner = np.repeat(np.arange(len(steps)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = np.cumsum(lengths, axis=1) - lengths
    gone = np.clip(number[:, None] - before[owner], 0, lengths[owner])
    axis = (gone < lengths[owner]).argmax(axis=1)
    return Walk(counts, start[owner] + gone * np.sign(steps)[owner], axis, steps[owner, axis] < 0)


def straight_cut_bytes_per_s(src: IntArray, dst: IntArray, sizes: Sequence[int], rates: FloatArray) -> float:
    """What links carry one way over the weakest straight cut in the middle of a dimension; ends are ids."""
    below = (coordinates(ids, sizes) < np.array(sizes) // 2 for ids in (src, dst))
    crosses = np.logical_and(next(below), ~next(below))
    cuts = [rates[column].sum() for column, size in zip(crosses.T, sizes, strict=True) if size > 1]
    return float(min(cuts, default=0.0))
