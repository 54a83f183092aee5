"""Dragonfly and Dragonfly+: groups of routers, every two groups linked (Kim et al., ISCA 2008)."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import ClassVar

import numpy as np

from simcore.network.topology.fabric import FABRICS, Fabric, IntArray, Routes
from simcore.network.topology.hashes import mixed
from simcore.network.topology.model import Dimension
from simcore.network.topology.moves import Symmetry
from simcore.network.topology.paths import ShortestPaths


@FABRICS.register("Dragonfly")
class Dragonfly(Fabric):
    """`groups` groups of `routers` routers with equally many NPUs each.

    Routers of a group are fully connected; every two groups have `global_links` links in each direction, spread evenly
    over the routers of a group by distance. Minimal routing takes at most one such link; `routing: valiant` goes
    through a third group. A hash of the ends chooses that group, as far on from all groups, and which of several links.
    Slingshot's networks are of this kind.
    Links: NPU up, NPU down, router to router by group, group to group.
    """

    description = "`groups` of `routers`, all linked inside a group, every two groups linked; minimal or Valiant"
    keys = ("groups", "routers", "global_links")
    routings: ClassVar[Collection[str]] = ("minimal", "valiant")

    def __init__(self, dim: Dimension):
        super().__init__(dim)
        self.groups, self.routers, self.global_links = dim.groups, dim.routers, dim.global_links
        self.router_npus = dim.npus // (dim.groups * dim.routers)
        self.group_npus = self.turn = dim.npus // dim.groups
        if self.global_links == 1:  # of several, places are hashed
            self.symmetries = frozenset({Symmetry.TURNS})
        self.ports = -(-(self.groups - 1) * self.global_links // self.routers) or 1
        self._local = 2 * self.npus
        self._global = self._local + self.groups * self.routers * (self.routers - 1)

    def _gate(self, here: IntArray, there: IntArray, which: IntArray) -> IntArray:
        """The router of group `here` that has one of the links to group `there`."""
        return ((there - here - 1) % self.groups * self.global_links + which) // self.ports

    def about_links(self) -> int:
        """Of NPUs, inside groups, between groups."""
        return self._global + self.groups * (self.groups - 1) * self.global_links

    def _global_ends(self) -> tuple[IntArray, IntArray]:
        """The routers of links between groups, counted over all groups."""
        pairs = np.nonzero(~np.eye(self.groups, dtype=bool))
        here, there = (np.repeat(groups, self.global_links) for groups in pairs)
        which = np.arange(len(here)) % self.global_links
        out, into = self._gate(here, there, which), self._gate(there, here, which)
        return here * self.routers + out, there * self.routers + into

    def ends(self) -> tuple[IntArray, IntArray]:
        """Routers are the nodes after the NPUs, by group."""
        npus = np.arange(self.npus)
        router = self.npus + npus // self.router_npus
        a, b = np.nonzero(~np.eye(self.routers, dtype=bool))
        base = self.npus + self.routers * np.arange(self.groups)[:, None]
        out, into = self._global_ends()
        return (
            np.concatenate([npus, router, (base + a).ravel(), self.npus + out]),
            np.concatenate([router, npus, (base + b).ravel(), self.npus + into]),
        )

    def heights(self) -> IntArray:
        """Those inside a group below those to others."""
        inside = self._global - self._local
        return np.repeat([0, 3, 1, 2], [self.npus, self.npus, inside, len(self.ends()[0]) - self._global])

    def _inside(self, group: IntArray, a: IntArray, b: IntArray) -> IntArray:
        """The link from router a to b of a group, -1 when they are the same."""
        link = self._local + group * self.routers * (self.routers - 1) + a * (self.routers - 1) + b - (b > a)
        return np.where(a == b, -1, link)

    def _between(self, here: IntArray, there: IntArray, which: IntArray) -> IntArray:
        """A link from group to group, -1 when they are the same."""
        pair = here * (self.groups - 1) + there - (there > here)
        return np.where(here == there, -1, self._global + pair * self.global_links + which)

    def _middle(self, src: IntArray, dst: IntArray) -> IntArray:
        """The group a message passes through: a third one for Valiant routing, else the destination's own."""
        here, there = src // self.group_npus, dst // self.group_npus
        if self.dim.routing != "valiant" or self.groups < 3:
            return there
        ahead, inside = (there - here) % self.groups, dst % self.group_npus
        word = mixed(src % self.group_npus, ahead * self.group_npus + inside)
        third = 1 + (word % np.uint64(self.groups - 2)).astype(np.int64)
        third += third >= ahead
        return np.where(here == there, there, (here + third) % self.groups)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Through the group that its routing says."""
        return self._through(src, dst, self._middle(src, dst))

    def detours(self, src: int, dst: int, most: int) -> list[tuple[int, ...]]:
        """Through each of the other groups; none inside a group."""
        here, there = src // self.group_npus, dst // self.group_npus
        others = (here + np.arange(1, self.groups)) % self.groups
        others = others[others != there][: most * (here != there)]
        return self._through(np.full(len(others), src), np.full(len(others), dst), others).each()

    def _through(self, src: IntArray, dst: IntArray, middle: IntArray) -> Routes:
        """Up, to the gate, over, to the next gate, over, to the router, down; -1 for what is not needed."""
        here, there = src // self.group_npus, dst // self.group_npus
        which = (mixed(dst, src) % np.uint64(self.global_links)).astype(np.int64)
        first, last = (npu // self.router_npus % self.routers for npu in (src, dst))
        leave = np.where(here == middle, first, self._gate(here, middle, which))
        enter = np.where(here == middle, first, self._gate(middle, here, which))
        leave_again = np.where(middle == there, enter, self._gate(middle, there, which))
        enter_again = np.where(middle == there, enter, self._gate(there, middle, which))
        columns = [
            src,
            self._inside(here, first, leave),
            self._between(here, middle, which),
            self._inside(middle, enter, leave_again),
            self._between(middle, there, which),
            self._inside(there, enter_again, last),
            self.npus + dst,
        ]
        table = np.stack(columns, axis=1)
        table[src == dst] = -1
        return Routes.of_table(table)

    def diameter(self) -> int:
        """From a router's first NPU each in one group, which all resemble; a third group may be a shorter way."""
        return self.paths.longest(np.arange(0, self.group_npus, self.router_npus), self.npus)

    def bisection_bytes_per_s(self) -> float:
        """Half the groups from the other half; routers of one group likewise; never more than the NPUs' own links."""
        parts, each = (self.groups, self.global_links) if self.groups > 1 else (self.routers, 1)
        across = parts // 2 * ((parts + 1) // 2) * each
        links = min(across, self.npus // 2) if parts > 1 else self.npus // 2
        return links * self.bandwidth_bytes_per_s

    def devices(self) -> tuple[str, ...]:
        """Routers by group."""
        return tuple(f"router{group}.{router}" for group in range(self.groups) for router in range(self.routers))


@FABRICS.register("DragonflyPlus")
class DragonflyPlus(Dragonfly):
    """`groups` groups of `routers` leaves with the NPUs, and as many spines (Shpiner et al., HiPINEB 2017).

    Every leaf of a group is linked to each of its spines; every two groups have `global_links` links, spread evenly
    over their spines by distance. Routes are shortest; among equals the destination's place in its group chooses, so
    that all looks the same from every group.
    Links: NPU up, NPU down, leaf to spine by group, spine to leaf, group to group.
    """

    routes, detours = Fabric.routes, Fabric.detours
    symmetries = frozenset({Symmetry.TURNS})
    description = "`groups` of `routers` leaves and as many spines, every two groups linked by `global_links`"
    routings = ("minimal",)

    @cached_property
    def paths(self) -> ShortestPaths:
        """Spread over the spines."""
        return ShortestPaths(self.npus + 2 * self.groups * self.routers, *self.ends(), spread=self.group_npus)

    def ends(self) -> tuple[IntArray, IntArray]:
        """After the NPUs come the leaves and spines of each group."""
        npus, leaves = np.arange(self.npus), np.arange(self.groups * self.routers)
        above = np.repeat(leaves.reshape(-1, self.routers), self.routers, axis=0).ravel()
        leaf, spine = self._node(np.repeat(leaves, self.routers), 0), self._node(above, 1)
        out, into = (self._node(spines, 1) for spines in self._global_ends())
        router = self._node(npus // self.router_npus, 0)
        return np.concatenate([npus, router, leaf, spine, out]), np.concatenate([router, npus, spine, leaf, into])

    def heights(self) -> IntArray:
        """Up to a spine, to another group, down."""
        inside = self.groups * self.routers**2
        between = len(self.ends()[0]) - 2 * (self.npus + inside)
        return np.repeat([0, 4, 1, 3, 2], [self.npus, self.npus, inside, inside, between])

    def _node(self, switches: IntArray, level: int) -> IntArray:
        """Leaves (0) or spines (1), counted over all groups."""
        group, place = np.divmod(switches, self.routers)
        found: IntArray = self.npus + (2 * group + level) * self.routers + place
        return found

    def devices(self) -> tuple[str, ...]:
        """Leaves and spines of each group."""
        kinds, routers = ("leaf", "spine"), range(self.routers)
        return tuple(f"{kind}{group}.{router}" for group in range(self.groups) for kind in kinds for router in routers)
