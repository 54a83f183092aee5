"""Messages between pipeline stages over dimensions that only they use: columns of NPUs, one of every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.network.congested import LinkNetwork
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.system.transport import class_of
from simcore.timeline.link_use import LinkUse, OccupiedLinks

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
        self._column = LinkGraph(Topology(outer), timed=links.timed)
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
        for kind, network in self._networks.items():
            mine = np.flatnonzero(self._kinds == kind)
            for total, counted in zip((size_bytes, busy_ns), network.counts(), strict=True):
                for own, columns in self._own_links(total, counted):
                    own[:, mine] += columns

    def _own_links(
        self, whole: NDArray[np.int64], column: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Figures of the machine's links and of a column's, dimension by dimension: (group, column, link of group)."""
        first = len(self._links.axes) - len(self._column.axes)
        for all_, part in zip(self._links.axes[first:], self._column.axes, strict=True):
            own = slice(all_.links_before, all_.links_before + all_.groups * all_.links)
            here = slice(part.links_before, part.links_before + part.groups * part.links)
            yield (
                whole[own].reshape(part.groups, self._width, all_.links),
                column[here].reshape(part.groups, 1, all_.links),
            )

    def added(self, use: LinkUse) -> LinkUse | None:
        """With when the columns' links were occupied, each kind's numbered after all others."""
        stands_for, parts = use.stands_for.copy(), [*use.parts]
        behind = max(len(self._links), int(stands_for.max(initial=-1)) + 1)
        for kind, network in self._networks.items():
            rows = network.times()
            if rows is None:
                return None
            parts.append(OccupiedLinks.of(rows, behind))
            mine = np.flatnonzero(self._kinds == kind)
            for own, columns in self._own_links(stands_for, np.arange(behind, behind + len(self._column))):
                own[:, mine] = columns
            behind += len(self._column)
        return LinkUse(parts, stands_for)


def _kinds(ranks: Sequence[Sequence[int]], stages: int, width: int) -> NDArray[np.int64]:
    """A number for every column, equal ones for columns of the same classes."""
    if len(ranks) == stages:
        return np.zeros(width, np.int64)
    kinds: NDArray[np.int64] = np.zeros(width, np.int64)
    for row in class_of(ranks).reshape(stages, width):
        kinds = np.unique(kinds * len(ranks) + row, return_inverse=True)[1]
    return kinds
