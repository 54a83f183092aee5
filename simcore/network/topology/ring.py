"""Ring and Mesh: NPUs in a line, with and without the wrap-around."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import FABRICS, Fabric, IntArray, Routes

__all__ = ["Mesh", "Ring"]


def _walk(start: IntArray, step: IntArray, counts: IntArray, modulus: int) -> IntArray:
    """The nodes that walks of `counts` steps leave, one walk after the other."""
    ends = np.cumsum(counts)
    position = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    nodes: IntArray = (np.repeat(start, counts) + np.repeat(step, counts) * position) % modulus
    return nodes


@FABRICS.register("Torus")
@FABRICS.register("Ring")
class Ring(Fabric):
    """Link i goes from i to i + 1, link n + i from i to i - 1; a ring of two has only the first kind."""

    description = (
        "every NPU linked to the next in both directions, the last to the first; the shorter way, a tie upwards"
    )
    turns = True

    def ends(self) -> tuple[IntArray, IntArray]:
        """Upwards links first."""
        here = np.arange(self.npus if self.npus > 1 else 0)
        up = (here + 1) % self.npus
        if self.npus == 2:
            return here, up
        return np.concatenate([here, here]), np.concatenate([up, (here - 1) % self.npus])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The shorter way; a tie goes upwards."""
        forward = (dst - src) % self.npus
        up = forward * 2 <= self.npus
        counts = np.where(up, forward, self.npus - forward)
        nodes = _walk(src, np.where(up, 1, -1), counts, self.npus)
        return Routes(counts, nodes + np.repeat(np.where(up, 0, self.npus), counts))

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """The shorter distance."""
        forward: IntArray = (dst - src) % self.npus
        return np.minimum(forward, self.npus - forward)

    def diameter(self) -> int:
        """Half the way round."""
        return self.npus // 2

    def bisection_bytes_per_s(self) -> float:
        """Two cuts, one link each; one link between two NPUs."""
        return min(self.npus - 1, 2) * self.bandwidth_bytes_per_s


@FABRICS.register("Mesh")
class Mesh(Fabric):
    """Link i goes from i to i + 1, link n - 1 + i from i + 1 to i."""

    description = "a line of NPUs linked in both directions: a ring without the wrap-around"

    def ends(self) -> tuple[IntArray, IntArray]:
        """Upwards links first."""
        here = np.arange(self.npus - 1)
        return np.concatenate([here, here + 1]), np.concatenate([here + 1, here])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Along the line."""
        counts = np.abs(dst - src)
        nodes = _walk(src, np.sign(dst - src), counts, self.npus)
        # Downwards, the link that leaves node i is number n - 1 + (i - 1).
        return Routes(counts, nodes + np.repeat(np.where(dst > src, 0, self.npus - 2), counts))

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """The distance."""
        hops: IntArray = np.abs(dst - src)
        return hops

    def diameter(self) -> int:
        """From end to end."""
        return self.npus - 1

    def bisection_bytes_per_s(self) -> float:
        """One link in the middle."""
        return self.bandwidth_bytes_per_s if self.npus > 1 else 0.0
