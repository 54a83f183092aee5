"""A wafer: a 2-D mesh with dead NPUs, dead links and spare rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray, Routes
from simcore.network.topology.grid import coordinates, straight_cut_bytes_per_s, walk
from simcore.network.topology.model import Wafer


def physical_npus(wafer: Wafer) -> IntArray:
    """Where every logical NPU is on the wafer: physical ids, in logical order.

    With spare rows, each column keeps its live NPUs in order and skips the dead ones, so a row below a dead NPU
    shifts down by one in that column only and every logical neighbour stays at most a few hops away. Without, the
    live NPUs are numbered as they come.
    """
    ids = np.arange(wafer.rows * wafer.columns).reshape(wafer.rows, wafer.columns)
    alive = np.ones_like(ids, dtype=bool)
    alive.flat[list(wafer.dead_npus)] = False
    if not wafer.spare_rows:
        living: IntArray = ids[alive]
        return living
    order = np.argsort(~alive, axis=0, kind="stable")[: wafer.rows - wafer.spare_rows]
    return np.take_along_axis(ids, order, axis=0).ravel()


class WaferMesh(Fabric):
    """The whole wafer as one network.

    Nodes: logical NPUs, then what is left of the wafer (spares, dead NPUs). Links: +x by row, -x, +y, -y, without those
    that are dead or touch a dead NPU. Routes go along x, then y; where that way is broken, the shortest way round
    that prefers x.
    """

    description = (
        "a 2-D mesh with dead NPUs, dead links and spare rows; x then y, or the shortest way round what is dead"
    )

    bisection_how = "the working links across the weaker of the two straight cuts in the middle"

    def __init__(self, wafer: Wafer):
        self.wafer = wafer
        self.physical = physical_npus(wafer)
        self.npus, self._sizes = len(self.physical), (wafer.columns, wafer.rows)
        cells = wafer.rows * wafer.columns
        rest = np.delete(np.arange(cells), self.physical)
        self.cells = np.concatenate([self.physical, rest])
        self.node = np.empty(cells, np.int64)
        self.node[self.cells] = np.arange(cells)
        self._src, self._dst, self._along_y = self._alive_links()
        self._number = np.full((cells, 4), -1)  # of a link by physical source and direction: +x, -x, +y, -y
        self._number[self._src, 2 * self._along_y + (self._dst < self._src)] = np.arange(len(self._src))

    def _alive_links(self) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Physical ends of all links that work, and which of them go along y."""
        ids = np.arange(self.wafer.rows * self.wafer.columns).reshape(self.wafer.rows, self.wafer.columns)
        left, right, upper, lower = ids[:, :-1].ravel(), ids[:, 1:].ravel(), ids[:-1].ravel(), ids[1:].ravel()
        src = np.concatenate([left, right, upper, lower])
        dst = np.concatenate([right, left, lower, upper])
        along_y = np.arange(len(src)) >= 2 * len(left)
        dead = np.isin(src, self.wafer.dead_npus) | np.isin(dst, self.wafer.dead_npus)
        if self.wafer.dead_links:
            low, high = np.array(self.wafer.dead_links).T
            broken = np.isin(np.minimum(src, dst) * ids.size + np.maximum(src, dst), low * ids.size + high)
            dead |= broken
        return src[~dead], dst[~dead], along_y[~dead]

    def ends(self) -> tuple[IntArray, IntArray]:
        """Nodes, not physical ids."""
        return self.node[self._src], self.node[self._dst]

    def bandwidths(self) -> FloatArray:
        """Those of the dimension a link goes along."""
        column, row = (dim.bandwidth_bytes_per_s * dim.parallel_links for dim in self.wafer.dims)
        return np.where(self._along_y, row, column)

    def latencies(self) -> FloatArray:
        """Those of the dimension a link goes along."""
        return np.where(self._along_y, self.wafer.dims[1].latency_ns, self.wafer.dims[0].latency_ns)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Along x then y; round what is dead."""
        start, end = (coordinates(self.physical[npus], self._sizes) for npus in (src, dst))
        way = walk(start, end - start)
        straight = Routes(way.counts, self._number[way.here @ [1, self.wafer.columns], 2 * way.axis + way.down])
        broken = np.zeros(len(src), bool)
        broken[np.repeat(np.arange(len(src)), way.counts)[straight.links < 0]] = True
        return self._detour(straight, broken, src, dst) if broken.any() else straight

    def _detour(self, straight: Routes, broken: NDArray[np.bool_], src: IntArray, dst: IntArray) -> Routes:
        """The same routes with the broken ones replaced."""
        around = Routes.of_table(self.paths.table(src[broken], dst[broken]))
        counts = straight.counts.copy()
        counts[broken] = around.counts
        links = np.empty(counts.sum(), np.int64)
        replaced = np.repeat(broken, counts)
        links[replaced] = around.links
        links[~replaced] = straight.links[np.repeat(~broken, straight.counts)]
        return Routes(counts, links)

    def bisection_bytes_per_s(self) -> float:
        """The weaker of the two straight cuts in the middle, counting the links that work."""
        return straight_cut_bytes_per_s(self._src, self._dst, self._sizes, self.bandwidths())

    def devices(self) -> tuple[str, ...]:
        """The rest of the wafer by place."""
        dead = set(self.wafer.dead_npus)
        return tuple(
            f"{'dead' if cell in dead else 'spare'}({cell % self.wafer.columns},{cell // self.wafer.columns})"
            for cell in self.cells[self.npus :].tolist()
        )
