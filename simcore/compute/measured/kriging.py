"""What the nearest measured configurations say about one in between: a weighted mean that follows a local trend.

Kriging (Matheron 1963; Cressie, Statistics for Spatial Data, 1993) with an exponential covariance, what configurations
of one size or with as many idle cores have in common whatever the others, an unknown level and gently sloping planes as
prior: near points count most, points that say the same share their weight. How noisy votes are they say themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured.curves import Floats, Integers

_BARRED = 1e6  # noise of a vote that does not count
_MANY = 16  # votes that are enough to tell one far off from a trend
_USUAL, _EVEN = 0.7, 0.02  # median misfits, and what votes differ by anyway
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Kriging:
    """`range_octaves`: how far points know of each other; `alike`, `idle`, `slope`, `level`: variances over the sill's.

    `alike`: of what belongs to one of several sizes, such as how well tiles fit into it; it reaches `alike_octaves` in
    that size and in the others. `idle`: of what belongs to so many idle cores, and reaches `idle_octaves`. `noises`:
    variances of one measurement.
    """

    neighbours: int = 24
    range_octaves: float = 4.0
    alike: float = 0.3
    alike_octaves: tuple[float, float] = (2.0, 8.0)
    idle: float = 0.2
    idle_octaves: float = 0.07
    slope: float = 0.1
    level: float = 100.0
    noises: tuple[float, ...] = (0.02, 0.2, 2.0)

    def says(self, offsets: Floats, idle: Floats, votes: Floats, barred: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """What `votes` [questions, neighbours] say at the questions, and the variance that is left.

        Neighbours are at `offsets` [questions, neighbours, axes] from the question, of sizes, then along the sweep, and
        lose `idle` octaves more to idle cores; those that are `barred` are not heard.
        """
        here = np.zeros_like(offsets[:, :1])  # the question itself, as the last of the points
        points = np.moveaxis(np.concatenate([offsets, here], axis=1), -1, 0).copy()  # its last axis is the long one
        lost = np.concatenate([idle, here[..., 0]], axis=1)
        one, other, pair = _pairs(points.shape[-1])
        apart, loses = (values.take(one, -1) - values.take(other, -1) for values in (points, lost))
        known: Floats = self._covariance(apart, loses).take(pair, -1)
        between, towards = known[:, :-1, :-1], known[:, -1, :-1]
        between += self.slope * offsets @ offsets.transpose(0, 2, 1)
        _diagonal(between)[...] += _BARRED * barred
        middle = _median(votes)
        noise, sill = _likely(between, votes - middle, np.array(self.noises))
        _diagonal(between)[...] += noise
        inverse = np.asarray(np.linalg.inv(between), float)
        weights = _times(inverse, towards)
        left: Floats = np.maximum(known[:, -1, -1] - (weights * towards).sum(-1), 0.0) + noise[:, 0]
        heard = _without_outliers(votes - middle, noise[..., None] * inverse) + middle
        return (weights * heard).sum(-1), sill * left

    def _covariance(self, apart: Floats, idle: Floats) -> Floats:
        """Of points so far `apart` [axes, ..] that lose so different shares to idle cores, without the planes."""
        squares, (own, others) = apart**2, self.alike_octaves
        far = squares.sum(0)
        shared: Floats = np.exp(-np.sqrt(far) / self.range_octaves) + self.level
        shared += self.idle * np.exp(-np.abs(idle) / self.idle_octaves)
        sizes = len(apart) - 1
        for axis in range(sizes if sizes > 1 else 0):
            across = np.sqrt(np.maximum(far - squares[axis], 0.0))
            shared += self.alike * np.exp(-np.abs(apart[axis]) / own - across / others)
        return shared


@lru_cache(maxsize=64)
def _pairs(count: int) -> tuple[Integers, Integers, Integers]:
    """Each two of so many points once, and which pair belongs to each place of their matrix."""
    one, other = np.triu_indices(count)
    pair = np.empty((count, count), np.int64)
    pair[one, other] = pair[other, one] = np.arange(len(one))
    return one, other, pair


def _likely(matrices: Floats, votes: Floats, noises: Floats) -> tuple[Floats, Floats]:
    """The noise [questions, 1] that votes make likely, and the sill [questions]; few votes never make much likely.

    Of matrices with a last row of votes, Cholesky's last row is what votes are in units of their covariance.
    """
    count, each = votes.shape[-1], noises[:, None]
    bordered = np.empty((len(noises), len(votes), count + 1, count + 1))
    bordered[..., :-1, :-1] = matrices
    _diagonal(bordered)[..., :-1] += each[..., None]
    bordered[..., -1, :-1] = votes
    bordered[..., -1, -1] = 1 + (votes**2).sum(-1) / noises.min()
    factors = np.linalg.cholesky(bordered)
    sills = (factors[..., -1, :-1] ** 2).mean(-1) + 1e-5
    size = np.log(_diagonal(factors)[..., :-1]).sum(-1)
    log = -size - 0.5 * (count * np.log(sills) + np.log(each))
    likely = np.exp(log - log.max(0))
    likely /= likely.sum(0)
    return (likely * np.sqrt(each)).sum(0)[:, None] ** 2, (likely * sills).sum(0)


def _diagonal(matrices: Floats) -> Floats:
    """A view, to read and to add to."""
    found: Floats = np.einsum("...ii->...i", matrices)
    return found


def _without_outliers(votes: Floats, misfit: Floats) -> Floats:
    """Votes no further from what they fit together than they usually are; `misfit` times votes is how far.

    Tables mix kernels that differ by several times; one of them is no trend (Huber, Robust Statistics, 1981). Few votes
    are left as they are: those farther off may say the trend.
    """
    for _ in range(_ROUNDS if votes.shape[-1] >= _MANY else 0):
        off = _times(misfit, votes)
        usual = _USUAL * _median(np.abs(off)) + _EVEN
        votes = votes - off + np.minimum(np.maximum(off, -usual), usual)
    return votes


def _times(matrices: Floats, vectors: Floats) -> Floats:
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found


def _median(values: Floats) -> Floats:
    """Of each row, as a column; of many small rows ten times as fast as NumPy's."""
    count, ordered = values.shape[-1], np.sort(values, axis=-1)
    found: Floats = (ordered[..., (count - 1) // 2, None] + ordered[..., count // 2, None]) / 2
    return found
