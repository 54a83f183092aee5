"""Dragonfly: groups of routers, every two groups linked (Kim et al., ISCA 2008)."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import FABRICS, Fabric, IntArray, Routes, mixed
from simcore.network.topology.model import Dimension
from simcore.network.topology.paths import ShortestPaths

__all__ = ["Dragonfly"]


@FABRICS.register("Dragonfly")
class Dragonfly(Fabric):
    """`groups` groups of `routers` routers with equally many NPUs each.

    Routers of a group are fully connected; every two groups have one link in each direction, spread evenly over
    the routers of a group by distance. Minimal routing takes at most one such link; `routing: valiant` goes through
    a third group that a hash of the ends chooses.
    Links: NPU up, NPU down, router to router by group, group to group.
    """

    description = "`groups` of `routers`, all linked inside a group, every two groups linked once; minimal or Valiant"

    def __init__(self, dim: Dimension):
        super().__init__(dim)
        self.groups, self.routers = dim.groups, dim.routers
        self.router_npus = dim.npus // (dim.groups * dim.routers)
        self.group_npus = dim.npus // dim.groups
        self.ports = -(-(self.groups - 1) // self.routers) or 1
        self._local = 2 * self.npus
        self._global = self._local + self.groups * self.routers * (self.routers - 1)

    def _gate(self, here: IntArray, there: IntArray) -> IntArray:
        """The router of group `here` that has the link to group `there`."""
        return (there - here - 1) % self.groups // self.ports

    def about_links(self) -> int:
        """Of NPUs, inside groups, between groups."""
        return self._global + self.groups * (self.groups - 1)

    def ends(self) -> tuple[IntArray, IntArray]:
        """Routers are the nodes after the NPUs, by group."""
        npus = np.arange(self.npus)
        router = self.npus + npus // self.router_npus
        a, b = np.nonzero(~np.eye(self.routers, dtype=bool))
        base = self.npus + self.routers * np.arange(self.groups)[:, None]
        here, there = np.nonzero(~np.eye(self.groups, dtype=bool))
        out = self.npus + here * self.routers + self._gate(here, there)
        into = self.npus + there * self.routers + self._gate(there, here)
        return (
            np.concatenate([npus, router, (base + a).ravel(), out]),
            np.concatenate([router, npus, (base + b).ravel(), into]),
        )

    def _inside(self, group: IntArray, a: IntArray, b: IntArray) -> IntArray:
        """The link from router a to b of a group, -1 when they are the same."""
        link = self._local + group * self.routers * (self.routers - 1) + a * (self.routers - 1) + b - (b > a)
        return np.where(a == b, -1, link)

    def _between(self, here: IntArray, there: IntArray) -> IntArray:
        """The link from group to group, -1 when they are the same."""
        return np.where(here == there, -1, self._global + here * (self.groups - 1) + there - (there > here))

    def _middle(self, src: IntArray, dst: IntArray) -> IntArray:
        """The group a message passes through: a third one for Valiant routing, else the destination's own."""
        here, there = src // self.group_npus, dst // self.group_npus
        if self.dim.routing != "valiant" or self.groups < 3:
            return there
        low, high = np.minimum(here, there), np.maximum(here, there)
        third = (mixed(src, dst) % np.uint64(self.groups - 2)).astype(np.int64)
        third += third >= low
        third += third >= high
        return np.where(here == there, there, third)

    def _table(self, src: IntArray, dst: IntArray) -> IntArray:
        """Up, to the gate, over, to the next gate, over, to the router, down; -1 for what is not needed."""
        here, there = src // self.group_npus, dst // self.group_npus
        middle = self._middle(src, dst)
        first, last = (npu // self.router_npus % self.routers for npu in (src, dst))
        leave = np.where(here == middle, first, self._gate(here, middle))
        enter = np.where(here == middle, first, self._gate(middle, here))
        leave_again = np.where(middle == there, enter, self._gate(middle, there))
        enter_again = np.where(middle == there, enter, self._gate(there, middle))
        columns = [
            src,
            self._inside(here, first, leave),
            self._between(here, middle),
            self._inside(middle, enter, leave_again),
            self._between(middle, there),
            self._inside(there, enter_again, last),
            self.npus + dst,
        ]
        table = np.stack(columns, axis=1)
        table[src == dst] = -1
        return table

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Minimal, or through a third group."""
        return Routes.of_table(self._table(src, dst))

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """Links of the route."""
        hops: IntArray = (self._table(src, dst) >= 0).sum(axis=1)
        return hops

    def diameter(self) -> int:
        """From the NPUs of one group, which all resemble; a path over a third group may beat the minimal route."""
        src, dst = self.ends()
        paths = ShortestPaths(self.npus + self.groups * self.routers, src, dst)
        return paths.longest(np.arange(self.group_npus), self.npus)

    def bisection_bytes_per_s(self) -> float:
        """Half the groups from the other half; routers of one group likewise; never more than the NPUs' own links."""
        parts = self.groups if self.groups > 1 else self.routers
        across = parts // 2 * ((parts + 1) // 2)
        links = min(across, self.npus // 2) if parts > 1 else self.npus // 2
        return links * self.bandwidth_bytes_per_s

    def devices(self) -> tuple[str, ...]:
        """Routers by group."""
        return tuple(f"router{group}.{router}" for group in range(self.groups) for router in range(self.routers))
