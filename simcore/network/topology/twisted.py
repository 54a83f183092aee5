"""Twisted tori: those of sides k and 2k whose short wrap-arounds lead half-way along the long dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray, Routes, mixed
from simcore.network.topology.grid import coordinates, straight_cut_bytes_per_s, walk
from simcore.network.topology.model import Dimension


def can_twist(sizes: Sequence[int]) -> bool:
    """Whether all sides are k or twice k, with one of each and k at least 2."""
    return len(set(sizes)) == 2 and max(sizes) == 2 * min(sizes) > 2


def whole_dimension(dims: Sequence[Dimension]) -> Dimension:
    """A twisted torus as a workload sees it: its ways are not those of its sides."""
    slowest, latency_ns = min(dim.bandwidth_bytes_per_s for dim in dims), max(dim.latency_ns for dim in dims)
    npus = prod(dim.npus for dim in dims)
    return Dimension("TwistedTorus", npus, slowest, latency_ns, dims[0].links, level=dims[0].level, ports=dims[0].ports)


class TwistedTorus(Fabric):
    """A torus whose way around a side of k moves k along every side of 2k (Camara et al., IEEE TPDS 21(6), 2010).

    TPU v4 has k x k x 2k and k x 2k x 2k (Jouppi et al., ISCA 2023, section 2.8). A message takes a shortest way, along
    dimension 0 first; which of equal ones a hash of its ends chooses.
    Links: by NPU; up and down of dimension 0, then of the others.
    """

    description = "a torus of sides k and 2k whose short wrap-arounds lead half-way along the long dimensions"
    bisection_how: ClassVar[str] = "the links across the weakest straight cut in the middle of a dimension"

    def __init__(self, dims: Sequence[Dimension]):
        super().__init__(whole_dimension(dims))
        self.dims, self.sizes = dims, tuple(dim.npus for dim in dims)
        self._sides = np.array(self.sizes)
        self._long = self._sides == self._sides.max()
        turns = [[0] if long else [-1, 0, 1] for long in self._long]
        self._around = np.array([*product(*turns)]) * self._sides.min()  # ways round the short sides

    def about_links(self) -> int:
        """Two of every NPU in each dimension."""
        return 2 * len(self.sizes) * self.npus

    def _ids(self, places: IntArray) -> IntArray:
        """NPUs at places that may be beyond the wrap-arounds."""
        rounds = np.where(self._long, 0, places // self._sides)
        twist = rounds.sum(axis=1, keepdims=True) * self._sides.min() * self._long
        inside: IntArray = (places - twist) % self._sides
        ids: IntArray = np.ravel_multi_index(tuple(inside.T), self.sizes, order="F").astype(np.int64)
        return ids

    def ends(self) -> tuple[IntArray, IntArray]:
        """By NPU, dimension and direction."""
        ids, ways = np.arange(self.npus), len(self.sizes)
        one = np.repeat(np.eye(ways, dtype=np.int64), 2, axis=0) * np.tile([1, -1], ways)[:, None]
        beside = (coordinates(ids, self.sizes)[:, None] + one).reshape(-1, ways)
        return np.repeat(ids, 2 * ways), self._ids(beside)

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
        start, hashed = coordinates(src, self.sizes), mixed(src, dst).astype(np.int64) & 0xFFFFFFFF
        steps = self._steps(coordinates(dst, self.sizes) - start, hashed)
        way = walk(start, steps)
        return Routes(way.counts, 2 * (self._ids(way.here) * len(self.sizes) + way.axis) + way.down)

    def _steps(self, apart: IntArray, hashed: IntArray) -> IntArray:
        """How far each message goes along each dimension; `hashed` chooses among equals, without a bias."""
        half, order = self._sides.min(), np.arange(len(self._around))
        most = half - hashed[:, None, None] % 2  # up a long side: half-way round is as far down
        twist = self._around.sum(axis=1, keepdims=True) * self._long
        around = apart[:, None] + self._around
        ways = np.where(self._long, most - (most - around - twist) % self._sides, around)
        turned = np.where(hashed[:, None] & 2, order, -1 - order) + hashed[:, None] // 4
        best = (np.abs(ways).sum(axis=2) * len(order) + turned % len(order)).argmin(axis=1)
        chosen: IntArray = ways[np.arange(len(ways)), best]
        return chosen

    def bisection_bytes_per_s(self) -> float:
        """As `bisection_how` says."""
        return straight_cut_bytes_per_s(*self.ends(), self.sizes, self.bandwidths())
