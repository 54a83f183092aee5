"""The links of one dimension: what a kind of topology has to say. One class per kind, entered in `FABRICS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.topology.model import Dimension
from simcore.network.topology.moves import Moves, Symmetry
from simcore.network.topology.paths import UNREACHED, ShortestPaths
from simcore.network.topology.ports import NAMED_ROUTINGS
from simcore.registry import Registry

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


OF_ONE_WAY = tuple(name for name, how in NAMED_ROUTINGS.items() if not (how.longer or how.by_thirds))
"""How to choose among shortest ways is all the same where there is only one."""


class Routes(Struct, frozen=True, eq=False):
    """Routes of many messages: message i takes `counts[i]` of `links`, which hold all routes one after the other."""

    counts: IntArray
    links: IntArray

    @property
    def offsets(self) -> IntArray:
        """Where each route starts in `links`; one more at the end."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @classmethod
    def of_table(cls, table: IntArray) -> Routes:
        """From one row per message, where -1 stands for no link."""
        used = table >= 0
        return cls(used.sum(axis=1), table[used])

    def each(self) -> list[tuple[int, ...]]:
        """The links of every message."""
        return [tuple(links.tolist()) for links in np.split(self.links, self.offsets[1:-1])] if len(self.counts) else []


class Fabric(ABC):
    """The network among the NPUs of one dimension, of which every group of NPUs has its own copy.

    It looks the same after moves of some `symmetries`, of which some fabrics have their own (`moves`), by `turn` NPUs
    and as often, and with `permutes` when any two NPUs change places.

    Nodes 0 to `dim.npus` - 1 are the NPUs, further ones are switches. A link has one direction; parallel links
    between the same two nodes count as one link of their joint bandwidth.
    """

    description: ClassVar[str]
    symmetries: frozenset[Symmetry] = frozenset()
    turn = 1
    permutes: ClassVar[bool] = False
    moves: Moves | None = None
    keys: ClassVar[tuple[str, ...]] = ()  # of a topology file that only some kinds have
    routings: ClassVar[Collection[str]] = ("minimal",)  # that it does itself, whatever the network
    bisection_how: ClassVar[str] = "the links across a straight cut of dimension {dimension}"

    def __init__(self, dim: Dimension):
        self.dim = dim
        self.npus = dim.npus

    @abstractmethod
    def ends(self) -> tuple[IntArray, IntArray]:
        """Source and destination node of every link."""

    def about_links(self) -> int:
        """Roughly how many links there are, without making them."""
        return 2 * self.npus

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The links that messages from `src` to `dst` take, none from an NPU to itself; by default of `paths`."""
        return Routes.of_table(self.paths.table(src, dst))

    def detours(self, src: int, dst: int, most: int) -> list[tuple[int, ...]]:
        """Longer ways, at most so many: over third NPUs, or where switches pass on over theirs."""
        thirds = np.setdiff1d(np.arange(self.npus), [src, dst])
        thirds = thirds[:: -(-len(thirds) // most) or 1]
        ways = self.routes(np.full(len(thirds), src), thirds), self.routes(thirds, np.full(len(thirds), dst))
        found = [there + on for there, on in zip(*(way.each() for way in ways), strict=True)]
        if not self.devices():
            return found
        return [*dict.fromkeys(_without_loops(way, self.paths.src) for way in found)]

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """How many links a message from `src` to `dst` takes."""
        return self.routes(src, dst).counts

    @cached_property
    def paths(self) -> ShortestPaths:
        """The paths of fewest links, for figures and for routes that no formula gives."""
        return ShortestPaths(self.npus + len(self.devices()), *self.ends())

    def unreachable(self) -> IntArray:
        """NPUs that NPU 0 cannot reach, or that cannot reach it."""
        back = ShortestPaths(self.paths.nodes, self.paths.dst, self.paths.src)
        ways = [paths.distances(np.array([0]))[0, : self.npus] for paths in (self.paths, back)]
        return np.flatnonzero(np.maximum(*ways) == UNREACHED)

    def diameter(self) -> int:
        """The most links that the shortest path between two NPUs has."""
        return self.paths.longest(np.arange(self.npus), self.npus)

    def rate_bytes_per_s(self) -> float:
        """What the links out of NPU 0 carry together."""
        return float(self.bandwidths()[self.ends()[0] == 0].sum())

    @abstractmethod
    def bisection_bytes_per_s(self) -> float:
        """What two halves of the NPUs can send each other in one direction, for the worst halves."""

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Of all parallel links of a neighbour together."""
        return self.dim.bandwidth_bytes_per_s * self.dim.parallel_links

    def bandwidths(self) -> FloatArray:
        """Bytes per second of every link."""
        return np.full(len(self.ends()[0]), self.bandwidth_bytes_per_s)

    def latencies(self) -> FloatArray:
        """Nanoseconds that a message's head needs for every link."""
        return np.full(len(self.ends()[0]), self.dim.latency_ns)

    def heights(self) -> IntArray:
        """How high every link is, the same after all moves: what takes ever higher links never waits in a circle.

        Links from NPUs are low and those to NPUs high, where there is something between them.
        """
        src, dst = self.ends()
        return (1 - (src < self.npus) + (dst < self.npus)) * bool(self.devices())

    def devices(self) -> tuple[str, ...]:
        """Names of the nodes that are no NPUs."""
        return ()


def _without_loops(way: tuple[int, ...], src: IntArray) -> tuple[int, ...]:
    """Links of which no two leave the same node: what lies between two that do is left out."""
    found: list[int] = []
    for link in way:
        begins = next((at for at, earlier in enumerate(found) if src[earlier] == src[link]), len(found))
        found[begins:] = [link]
    return tuple(found)


FABRICS: Registry[type[Fabric]] = Registry("topology kind")
