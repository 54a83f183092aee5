"""Messages between pipeline stages over dimensions that only they use: columns of NPUs, one of every stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.network.congested import LinkNetwork
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.system.transport import class_of

__all__ = ["Columns"]

LAST = ("~", 0)


class Columns:
    """The outermost dimensions of a machine of `stages`, each of the same number of NPUs.

    NPUs with the same place in their stages are a column, with links of its own. Columns of the same classes see the
    same messages at the same times, so one network carries those of all of them.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        links: LinkGraph,
        network: Callable[[simpy.Environment, LinkGraph], LinkNetwork],
        stages: int,
    ):
        self._env, self._network, self._links = env, network, links
        self._width = links.npus // stages
        outer = tuple(
            dim
            for dim, stride in zip(links.topology.dims, links.topology.strides, strict=True)
            if stride >= self._width
        )
        self._column = LinkGraph(Topology(outer))
        self._kinds = _kinds(ranks, stages, self._width)
        self._networks: dict[int, LinkNetwork] = {}

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message within a column."""
        kind = int(self._kinds[src % self._width])
        if kind not in self._networks:
            self._networks[kind] = self._network(self._env, self._column)
        self._networks[kind].send(src // self._width, dst // self._width, size_bytes, (LAST, *key), deliver)

    def add_to(self, size_bytes: NDArray[np.int64], busy_ns: NDArray[np.int64]) -> None:
        """Add what the columns' links carried to columns of all links of the machine."""
        first = len(self._links.axes) - len(self._column.axes)
        for kind, network in self._networks.items():
            mine = np.flatnonzero(self._kinds == kind)
            counts = network.counts()
            for whole, part in zip(self._links.axes[first:], self._column.axes, strict=True):
                own = slice(whole.links_before, whole.links_before + whole.groups * whole.links)
                here = slice(part.links_before, part.links_before + part.groups * part.links)
                for total, counted in zip((size_bytes, busy_ns), counts, strict=True):
                    shaped = total[own].reshape(part.groups, self._width, whole.links)
                    shaped[:, mine] += counted[here].reshape(part.groups, 1, whole.links)


def _kinds(ranks: Sequence[Sequence[int]], stages: int, width: int) -> NDArray[np.int64]:
    """A number for every column, equal ones for columns of the same classes."""
    if len(ranks) == stages:
        return np.zeros(width, np.int64)
    kinds: NDArray[np.int64] = np.zeros(width, np.int64)
    for row in class_of(ranks).reshape(stages, width):
        kinds = np.unique(kinds * len(ranks) + row, return_inverse=True)[1]
    return kinds
