"""Links as one NPU of a symmetric machine sees them: every link stands for all that look like it.

On a ring, a switch or a full mesh every NPU can take every other's place. When all of them do the same at the same
time, what one NPU's message meets on its way is what the messages of its neighbours leave behind: so one NPU's
messages, sent over representative links, meet each other just as they would meet the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from simcore.network.topology.fabric import Fabric, IntArray
from simcore.network.topology.links import LinkGraph
from simcore.timeline.events import LinkTable

__all__ = ["FoldedLinks", "symmetric"]

SYMMETRIC = {"Ring", "Torus", "Switch", "FullyConnected"}
SPLITTABLE = {"Switch", "FullyConnected"}  # any NPU may change places with any other, so parts of them are alike too


def symmetric(links: LinkGraph, parts: Sequence[Sequence[int]]) -> bool:
    """Whether all NPUs look alike when dimension d is used in groups of `parts[d]` (their product is its size)."""
    topology = links.topology
    if topology.graph or topology.wafer:
        return False
    kinds = [dim.kind for dim in topology.dims]
    return all(kind in (SYMMETRIC if len(sizes) == 1 else SPLITTABLE) for kind, sizes in zip(kinds, parts, strict=True))


class FoldedLinks(LinkGraph):
    """The links of `whole`, each replaced by its representative on NPU 0."""

    def __init__(self, whole: LinkGraph, parts: Sequence[Sequence[int]]):
        super().__init__(whole.topology)
        self._whole = whole
        self._stands_for: IntArray = np.concatenate(
            [
                axis.links_before + np.tile(_representatives(axis.fabric, sizes), axis.groups)
                for axis, sizes in zip(whole.axes, parts, strict=True)
            ]
        )
        self._route_of: dict[tuple[int, int], tuple[int, ...]] = {}

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The representatives of the links of one message; one link may occur several times."""
        found = self._route_of.get((src, dst))
        if found is None:
            found = tuple(self._stands_for[list(self._whole.route(src, dst))].tolist())
            self._route_of[src, dst] = found
        return found

    def table(self, size_bytes: IntArray, busy_ns: IntArray) -> LinkTable:
        """Every link carried what its representative did."""
        return self._whole.table(size_bytes[self._stands_for], busy_ns[self._stands_for])


def _representatives(fabric: Fabric, sizes: Sequence[int]) -> IntArray:
    """For every link of one group, the link it becomes when its NPU moves to place 0."""
    src, dst = fabric.ends()
    place = np.where(src < fabric.npus, src, dst)
    moved = [np.where(end < fabric.npus, _minus(end, place, sizes), end) for end in (src, dst)]
    known = {pair: link for link, pair in enumerate(zip(src.tolist(), dst.tolist(), strict=True))}
    return np.array([known[pair] for pair in zip(moved[0].tolist(), moved[1].tolist(), strict=True)], dtype=np.int64)


def _minus(end: IntArray, place: IntArray, sizes: Sequence[int]) -> IntArray:
    """Difference of positions, digit by digit in the mixed radix of the parts."""
    found = np.zeros_like(end)
    for index, size in enumerate(sizes):
        stride = prod(sizes[:index])
        found += (end // stride - place // stride) % size * stride
    return found
