"""Ways over grids of NPUs, along dimension 0 first, and straight cuts through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import FloatArray, IntArray


class Walk(NamedTuple):
    """The steps of many walks, one walk after the other: walk i has `counts[i]`, from `here` along `axis`."""

    counts: IntArray
    here: IntArray
    axis: IntArray
    down: NDArray[np.bool_]


def coordinates(ids: IntArray | int, sizes: Sequence[int]) -> IntArray:
    """Places of NPUs, (.., dimensions); dimension 0 counts fastest."""
    return np.stack(np.unravel_index(ids, sizes, order="F"), axis=-1)


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
