"""Links as one NPU of a symmetric machine sees them: every link stands for all that look like it.

On a ring, a switch or a full mesh every NPU can take every other's place. When all of them do the same at the same
time, what one NPU's message meets on its way is what the messages of its neighbours leave behind: so one NPU's
messages, sent over representative links, meet each other just as they would meet the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.timeline.events import LinkTable

__all__ = ["FoldedLinks", "symmetric"]

SYMMETRIC = {"Ring", "Torus", "Switch", "FullyConnected"}
SPLITTABLE = {"Switch", "FullyConnected"}  # any NPU may change places with any other, so parts of them are alike too


def symmetric(topology: Topology, parts: Sequence[Sequence[int]]) -> bool:
    """Whether all NPUs look alike when dimension d is used in groups of `parts[d]` (their product is its size)."""
    if topology.graph or topology.wafer or topology.noise.links or topology.faults:
        return False
    kinds = [dim.kind for dim in topology.dims]
    return all(kind in (SYMMETRIC if len(sizes) == 1 else SPLITTABLE) for kind, sizes in zip(kinds, parts, strict=True))


class FoldedLinks(LinkGraph):
    """The links of `whole`, each replaced by its representative on NPU 0."""

    def __init__(self, whole: LinkGraph, parts: Sequence[Sequence[int]]):
        stands_for: IntArray = np.concatenate(
            [
                axis.links_before + np.tile(_representatives(axis.fabric, sizes), axis.groups)
                for axis, sizes in zip(whole.axes, parts, strict=True)
            ]
        )
        self.topology, self.axes, self.npus, self.nodes = whole.topology, whole.axes, whole.npus, whole.nodes
        self._whole = whole
        used = np.zeros(len(whole), bool)
        used[stands_for] = True
        self._kept = np.flatnonzero(used)
        self._stands_for = (np.cumsum(used) - 1)[stands_for]
        self._route_of: dict[tuple[int, int], tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def ends_of(self, links: IntArray) -> tuple[IntArray, IntArray]:
        """Ends of the representatives."""
        return self._whole.ends_of(self._kept[links])

    @cached_property
    def bandwidth_bytes_per_s(self) -> FloatArray:
        """Of the representatives."""
        return self._of_kept([axis.fabric.bandwidths() for axis in self.axes])

    @cached_property
    def latency_ns(self) -> FloatArray:
        """Of the representatives."""
        return self._of_kept([axis.fabric.latencies() for axis in self.axes])

    def _of_kept(self, columns: Sequence[FloatArray]) -> FloatArray:
        """Of the representatives, which are all in the first group of their dimension; one column per dimension."""
        places = (self._kept - axis.links_before for axis in self.axes)
        parts = zip(columns, places, strict=True)
        return np.concatenate([column[at[(at >= 0) & (at < len(column))]] for column, at in parts])

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
    codes, wanted = (
        here * (int(max(src.max(initial=0), dst.max(initial=0))) + 1) + there for here, there in ((src, dst), moved)
    )
    order = np.argsort(codes)
    found: IntArray = order[np.searchsorted(codes, wanted, sorter=order)]
    return found


def _minus(end: IntArray, place: IntArray, sizes: Sequence[int]) -> IntArray:
    """Difference of positions, digit by digit in the mixed radix of the parts."""
    found = np.zeros_like(end)
    for index, size in enumerate(sizes):
        stride = prod(sizes[:index])
        found += (end // stride - place // stride) % size * stride
    return found
