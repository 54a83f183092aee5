"""Ring and Mesh: NPUs in a line, with and without the wrap-around."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simcore.network.topology.fabric import FABRICS, OF_ONE_WAY, Fabric, IntArray, Routes


@FABRICS.register("Torus")
@FABRICS.register("Ring")
class Ring(Fabric):
    """Link i goes from i to i + 1, the links down follow by their sources; a ring of two is a line."""

    description = (
        "every NPU linked to the next in both directions, the last to the first; the shorter way, a tie upwards"
    )
    turns = True
    closed: ClassVar[bool] = True

    @classmethod
    def neighbours(cls, npus: int) -> int:
        """The next and the one before, where it is closed."""
        return 1 + cls.closed

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
    turns = False
    closed = False
    routings = OF_ONE_WAY
