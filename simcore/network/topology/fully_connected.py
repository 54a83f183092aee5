"""FullyConnected: a link between every two NPUs."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import FABRICS, OF_ONE_WAY, Fabric, IntArray, Routes


@FABRICS.register("FullyConnected")
class FullyConnected(Fabric):
    """Links in the order (0, 1), (0, 2), .., (1, 0), (1, 2), ..: n - 1 from every NPU."""

    description = "a link between every two NPUs, in each direction"
    turns = True
    permutes = True
    routings = OF_ONE_WAY

    def about_links(self) -> int:
        """From every NPU to every other."""
        return self.npus * (self.npus - 1)

    @classmethod
    def neighbours(cls, npus: int) -> int:
        """All others."""
        return npus - 1

    def rate_bytes_per_s(self) -> float:
        """Without all the links of all the others."""
        return self.neighbours(self.npus) * self.bandwidth_bytes_per_s

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
