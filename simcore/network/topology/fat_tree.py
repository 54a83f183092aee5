"""FatTree: two levels of switches, leaves and spines."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from simcore.network.topology.fabric import FABRICS, Fabric, FloatArray, IntArray, Routes, mixed
from simcore.network.topology.model import Dimension


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
