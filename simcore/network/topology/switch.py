"""Switch: every NPU on a port of one switch."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import FABRICS, OF_ONE_WAY, Fabric, IntArray, Routes


@FABRICS.register("Switch")
class Switch(Fabric):
    """Link i goes from NPU i up to the switch, link n + i down to it; the switch itself is never the bottleneck."""

    description = "every NPU linked to one switch; latency is paid up and down"
    turns = True
    permutes = True
    own_links = True
    routings = OF_ONE_WAY

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
