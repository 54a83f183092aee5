"""The kinds that a dimension can have, by name: those of one or two levels; importing this enters all."""

from __future__ import annotations

from math import ceil, sqrt
from typing import ClassVar

import numpy as np

from simcore.network.topology import dragonfly
from simcore.network.topology.fabric import FABRICS, OF_ONE_WAY, Fabric, FloatArray, IntArray, Routes
from simcore.network.topology.hashes import mixed
from simcore.network.topology.model import Dimension
from simcore.network.topology.moves import Symmetry
from simcore.network.topology.ports import NAMED_ROUTINGS

__all__ = ["FABRICS", "FatTree", "Mesh", "Ring", "dragonfly"]


@FABRICS.register("Torus")
@FABRICS.register("Ring")
class Ring(Fabric):
    """Link i goes from i to i + 1, the links down follow by their sources; a ring of two is a line."""

    description = (
        "every NPU linked to the next in both directions, the last to the first; the shorter way, a tie upwards"
    )
    symmetries = frozenset({Symmetry.TURNS})
    closed: ClassVar[bool] = True

    @property
    def _ups(self) -> int:
        """How many links go upwards."""
        return self.npus if self.closed and self.npus > 2 else self.npus - 1

    def ends(self) -> tuple[IntArray, IntArray]:
        """Upwards links first."""
        here, source = np.arange(self._ups), np.arange(self.npus - self._ups, self.npus)
        return np.concatenate([here, source]), np.concatenate([here + 1, source - 1]) % self.npus

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The shorter way; a tie goes upwards."""
        steps = self._steps(src, dst)
        counts, ends = np.abs(steps), np.cumsum(np.abs(steps))
        behind = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        nodes = (np.repeat(src, counts) + np.repeat(np.sign(steps), counts) * behind) % self.npus
        down = 2 * self._ups - self.npus  # the number of node 0's link down, where it has one
        return Routes(counts, nodes + np.repeat(np.where(steps < 0, down, 0), counts))

    def _steps(self, src: IntArray, dst: IntArray) -> IntArray:
        """How far up, or down where that is nearer."""
        if not self.closed:
            return dst - src
        forward = (dst - src) % self.npus
        return np.where(forward * 2 <= self.npus, forward, forward - self.npus)

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """The distance."""
        hops: IntArray = np.abs(self._steps(src, dst))
        return hops

    def diameter(self) -> int:
        """Half the way round, or from end to end."""
        return self.npus // 2 if self.closed else self.npus - 1

    def bisection_bytes_per_s(self) -> float:
        """One link in the middle; where it is closed, two cuts."""
        return min(self.npus - 1, 1 + self.closed) * self.bandwidth_bytes_per_s


@FABRICS.register("Mesh")
class Mesh(Ring):
    """Link i goes from i to i + 1, link n - 1 + i from i + 1 to i."""

    description = "a line of NPUs linked in both directions: a ring without the wrap-around"
    symmetries = frozenset()
    closed = False
    routings = OF_ONE_WAY

    def heights(self) -> IntArray:
        """From one end to the other, either way."""
        along = np.arange(self.npus - 1)
        return np.concatenate([along, along[::-1]])


@FABRICS.register("FullyConnected")
class FullyConnected(Fabric):
    """Links in the order (0, 1), (0, 2), .., (1, 0), (1, 2), ..: n - 1 from every NPU."""

    description = "a link between every two NPUs, in each direction"
    symmetries = frozenset({Symmetry.TURNS})
    permutes = True
    routings = OF_ONE_WAY

    def about_links(self) -> int:
        """From every NPU to every other."""
        return self.npus * (self.npus - 1)

    def rate_bytes_per_s(self) -> float:
        """Without all the links of all the others."""
        return (self.npus - 1) * self.bandwidth_bytes_per_s

    def ends(self) -> tuple[IntArray, IntArray]:
        """By source, then destination."""
        src, dst = np.nonzero(~np.eye(self.npus, dtype=bool))
        return src, dst

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The one link between them."""
        counts = self.hops(src, dst)
        links = src * (self.npus - 1) + dst - (dst > src)
        return Routes(counts, links[counts > 0])

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """One."""
        hops: IntArray = np.where(src == dst, 0, 1)
        return hops

    def diameter(self) -> int:
        """One link."""
        return min(self.npus - 1, 1)

    def bisection_bytes_per_s(self) -> float:
        """Every pair across the cut has its own link."""
        return self.npus // 2 * ((self.npus + 1) // 2) * self.bandwidth_bytes_per_s


@FABRICS.register("Switch")
class Switch(Fabric):
    """Link i goes from NPU i up to the switch, link n + i down to it; the switch itself is never the bottleneck."""

    description = "every NPU linked to one switch; latency is paid up and down"
    symmetries = frozenset({Symmetry.TURNS, Symmetry.EXCHANGES})  # links of its own, whomever an NPU sends to
    permutes = True
    routings = tuple(NAMED_ROUTINGS)  # there is one way

    def ends(self) -> tuple[IntArray, IntArray]:
        """Upwards links first; the switch is node n. A single NPU needs no switch."""
        npus = np.arange(self.npus if self.npus > 1 else 0)
        switch = np.full(len(npus), self.npus)
        return np.concatenate([npus, switch]), np.concatenate([switch, npus])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Up, then down."""
        table = np.stack([src, self.npus + dst], axis=1)
        table[src == dst] = -1
        return Routes.of_table(table)

    def diameter(self) -> int:
        """Up and down."""
        return 2 if self.npus > 1 else 0

    def bisection_bytes_per_s(self) -> float:
        """The ports of the smaller half."""
        return self.npus // 2 * self.bandwidth_bytes_per_s

    def devices(self) -> tuple[str, ...]:
        """The switch."""
        return ("switch",) if self.npus > 1 else ()


@FABRICS.register("FatTree")
class FatTree(Fabric):
    """`routers` leaves with equally many NPUs, every leaf linked to every spine.

    A leaf has as many NPUs as spines times `oversubscription`; where that is not whole, one spine more shares the
    bandwidth, so that a leaf's uplinks carry exactly 1 / oversubscription of what its NPUs can send. Which spine a
    message takes is a hash of its ends (ECMP), so two messages may meet on a link.
    Links: NPU up, NPU down, leaf-to-spine by leaf, spine-to-leaf by leaf.
    """

    description = "leaf and spine switches, `oversubscription` between them, `routers` leaves; spines chosen by a hash"

    keys = ("oversubscription", "routers")

    def __init__(self, dim: Dimension):
        super().__init__(dim)
        divisors = (count for count in range(1, dim.npus + 1) if dim.npus % count == 0)
        # The even split nearest to switches of one radix: k ports serve k^2 / 2 NPUs from k leaves.
        usual = min(divisors, key=lambda count: (abs(count - sqrt(2 * dim.npus)), count))
        self.leaves = dim.routers or usual
        self.leaf_npus = dim.npus // self.leaves
        self.spines = ceil(self.leaf_npus / dim.oversubscription) if self.leaves > 1 else 0

    def ends(self) -> tuple[IntArray, IntArray]:
        """Leaves are the nodes after the NPUs, spines those after the leaves."""
        npus = np.arange(self.npus)
        leaves = self.npus + npus // self.leaf_npus
        leaf = self.npus + np.repeat(np.arange(self.leaves), self.spines)
        spine = self.npus + self.leaves + np.tile(np.arange(self.spines), self.leaves)
        return np.concatenate([npus, leaves, leaf, spine]), np.concatenate([leaves, npus, spine, leaf])

    def bandwidths(self) -> FloatArray:
        """A leaf's uplinks share what its NPUs send, divided by the oversubscription."""
        up = self.leaf_npus * self.bandwidth_bytes_per_s / self.dim.oversubscription / max(self.spines, 1)
        return np.repeat([self.bandwidth_bytes_per_s, up], [2 * self.npus, 2 * self.leaves * self.spines])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Up to the leaf, over a spine unless both are on this leaf, down."""
        below, above = src // self.leaf_npus, dst // self.leaf_npus
        spine = (mixed(src, dst) % np.uint64(max(self.spines, 1))).astype(np.int64)
        up = 2 * self.npus + below * self.spines + spine
        down = 2 * self.npus + (self.leaves + above) * self.spines + spine
        table = np.stack([src, up, down, self.npus + dst], axis=1)
        table[below == above, 1:3] = -1
        table[src == dst] = -1
        return Routes.of_table(table)

    def heights(self) -> IntArray:
        """Up, then down."""
        return np.repeat([0, 3, 1, 2], [self.npus, self.npus, *[self.leaves * self.spines] * 2])

    def detours(self, src: int, dst: int, most: int) -> list[tuple[int, ...]]:
        """None: what has come down from a spine does not go up again."""
        return []

    def diameter(self) -> int:
        """Four over a spine."""
        return 4 if self.leaves > 1 else 2 if self.npus > 1 else 0

    def bisection_bytes_per_s(self) -> float:
        """The uplinks of half the leaves; with one leaf, the ports of half the NPUs."""
        if self.leaves == 1:
            return self.npus // 2 * self.bandwidth_bytes_per_s
        half = self.leaves // 2 * self.leaf_npus
        return half * self.bandwidth_bytes_per_s / self.dim.oversubscription

    def devices(self) -> tuple[str, ...]:
        """Leaves, then spines."""
        return (*(f"leaf{i}" for i in range(self.leaves)), *(f"spine{i}" for i in range(self.spines)))
