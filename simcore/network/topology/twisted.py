"""Twisted tori: those of sides k and 2k whose short wrap-arounds lead half-way along the long dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray, Routes
from simcore.network.topology.grid import Along, coordinates, straight_cut_bytes_per_s, walk
from simcore.network.topology.model import Dimension
from simcore.network.topology.moves import Symmetry

WEIGHT = 1 << 10  # of a message on the fastest links: whole numbers are the same on all machines


def can_twist(sizes: Sequence[int]) -> bool:
    """Whether all sides are k or twice k, with one of each and k at least 2."""
    return len(set(sizes)) == 2 and max(sizes) == 2 * min(sizes) > 2


def whole_dimension(dims: Sequence[Dimension]) -> Dimension:
    """A twisted torus as a workload sees it: its ways are not those of its sides."""
    slowest, latency_ns = min(dim.bandwidth_bytes_per_s for dim in dims), max(dim.latency_ns for dim in dims)
    npus = prod(dim.npus for dim in dims)
    return Dimension("TwistedTorus", npus, slowest, latency_ns, dims[0].links, level=dims[0].level, ports=dims[0].ports)


class Twist(Along, frozen=True):
    """Moves along the `sides` of a twisted torus: its NPUs are a lattice that repeats itself along the twist."""

    symmetry = Symmetry.OWN

    def ids(self, places: IntArray) -> IntArray:
        """As of `Along`, beyond the wrap-arounds."""
        sides, half = np.array(self.sides), min(self.sides)
        long = sides > half
        rounds = np.where(long, 0, places // sides).sum(axis=-1, keepdims=True)
        return super().ids(places - rounds * half * long)


class TwistedTorus(Fabric):
    """A torus whose way around a side of k moves k along every side of 2k (Camara et al., IEEE TPDS 21(6), 2010).

    TPU v4 has k x k x 2k and k x 2k x 2k (Jouppi et al., ISCA 2023, section 2.8). A message takes a shortest way, along
    dimension 0 first: of equal ones that with which messages to all others use links most evenly. That depends on
    where it goes as seen from its source, so the torus looks the same from everywhere.
    Links: by NPU; up and down of dimension 0, then of the others.
    """

    description = "a torus of sides k and 2k whose short wrap-arounds lead half-way along the long dimensions"
    symmetries = frozenset({Symmetry.OWN})
    moves: Twist
    bisection_how: ClassVar[str] = "the links across the weakest straight cut in the middle of a dimension"

    def __init__(self, dims: Sequence[Dimension]):
        super().__init__(whole_dimension(dims))
        self.dims, self.sizes = dims, tuple(dim.npus for dim in dims)
        self.moves = Twist(self.sizes)

    def about_links(self) -> int:
        """Two of every NPU in each dimension."""
        return 2 * len(self.sizes) * self.npus

    def ends(self) -> tuple[IntArray, IntArray]:
        """By NPU, dimension and direction."""
        ids, ways = np.arange(self.npus), len(self.sizes)
        one = np.repeat(np.eye(ways, dtype=np.int64), 2, axis=0) * np.tile([1, -1], ways)[:, None]
        beside = (coordinates(ids, self.sizes)[:, None] + one).reshape(-1, ways)
        return np.repeat(ids, 2 * ways), self.moves.ids(beside)

    def _of_links(self, values: Sequence[float]) -> FloatArray:
        return np.tile(np.repeat(np.array(values), 2), self.npus)

    def bandwidths(self) -> FloatArray:
        """Those of the dimension a link goes along."""
        return self._of_links([dim.bandwidth_bytes_per_s * dim.parallel_links for dim in self.dims])

    def latencies(self) -> FloatArray:
        """Those of the dimension a link goes along."""
        return self._of_links([dim.latency_ns for dim in self.dims])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """A shortest way."""
        way = walk(coordinates(src, self.sizes), self._steps[self.moves.back(dst, src)])
        return Routes(way.counts, 2 * (self.moves.ids(way.here) * len(self.sizes) + way.axis) + way.down)

    @cached_property
    def _steps(self) -> IntArray:
        """How far a message goes along each dimension, by the NPU to which it would go from NPU 0."""
        ways = self._ways()
        lengths = np.abs(ways).sum(axis=2)
        shortest = lengths == lengths.min(axis=1, keepdims=True)
        uses = np.concatenate([np.maximum(ways, 0), np.maximum(-ways, 0)], axis=2)  # of links up, and of those down
        rates = np.tile([dim.bandwidth_bytes_per_s * dim.parallel_links for dim in self.dims], 2)
        spent = uses * np.rint(WEIGHT * rates.max() / rates).astype(np.int64)
        best, carried = shortest.argmax(axis=1), np.zeros(spent.shape[2], np.int64)
        for npu in np.argsort(shortest.sum(axis=1), kind="stable").tolist():  # those that have no choice first
            equals = np.flatnonzero(shortest[npu])
            best[npu] = equals[np.square(carried + spent[npu, equals]).sum(axis=1).argmin()]
            carried += spent[npu, best[npu]]
        chosen: IntArray = ways[np.arange(self.npus), best]
        return chosen

    def _ways(self) -> IntArray:
        """From NPU 0 to each one, (NPUs, ways, dimensions): once round the short sides or not.

        Half-way round a long side is as far up as down.
        """
        sides, half = np.array(self.sizes), min(self.sizes)
        long = sides > half
        choices = np.array([*product(*([0, 1] if each else [-1, 0, 1] for each in long))])
        turns = np.where(long, 0, choices)
        along = coordinates(np.arange(self.npus), self.sizes)[:, None] + turns * half
        most = half - np.where(long, choices, 0)
        twist = turns.sum(axis=1, keepdims=True) * half
        ways: IntArray = np.where(long, most - (most - along - twist) % sides, along)
        return ways

    def bisection_bytes_per_s(self) -> float:
        """As `bisection_how` says."""
        return straight_cut_bytes_per_s(*self.ends(), self.sizes, self.bandwidths())
