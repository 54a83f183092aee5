"""Shortest paths in a graph of links, for networks that no formula describes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BLOCK_NODES = 1 << 20  # of all origins searched at once: memory of a few MB
LANDMARKS = 8
UNREACHED = np.iinfo(np.int32).max


class ShortestPaths:
    """Paths of fewest links; among equals every node takes its first link in the order of `preference`.

    That has the links from most to least wanted, by default in order of their numbers. With `spread`, the destination's
    number chooses among equals, as in the tables of InfiniBand's fat trees.
    """

    def __init__(
        self, nodes: int, src: IntArray, dst: IntArray, preference: IntArray | None = None, *, spread: bool = False
    ):
        self._spread = spread
        self.nodes, self.src, self.dst = nodes, src, dst
        self._order = np.arange(len(src)) if preference is None else preference
        self._next: dict[int, NDArray[np.int32]] = {}

    def distances(self, origins: IntArray) -> NDArray[np.int32]:
        """Fewest links from each of `origins` to every node, (origins, nodes); `UNREACHED` where there is no path."""
        return self._levels(origins, self.src, self.dst)

    def longest(self, origins: IntArray, targets: int) -> int:
        """The most links from any of `origins` to any of the first `targets` nodes.

        No way from x is longer than x -> c and on from c. With c in the middle, few x that are far from it have to be
        looked at before no other can do worse.
        """
        middle = np.array([self._middle(origins)])
        onward = int(self.distances(middle)[0, :targets].max())
        away = self._levels(middle, self.dst, self.src)[0, origins]
        order, longest = np.argsort(-away, kind="stable"), 0
        for block in np.array_split(order, -(-len(order) * self.nodes // BLOCK_NODES)):
            if int(away[block[0]]) + onward <= longest:
                break
            longest = max(longest, int(self.distances(origins[block])[:, :targets].max()))
        return longest

    def _middle(self, origins: IntArray) -> int:
        """The origin that is nearest to a few origins that are far from each other."""
        farthest = np.zeros(len(origins), np.int32)
        nearest, mark = np.full(len(origins), UNREACHED, np.int32), int(origins[0])
        for _ in range(LANDMARKS):
            distance = self.distances(np.array([mark]))[0, origins]
            farthest, nearest = np.maximum(farthest, distance), np.minimum(nearest, distance)
            mark = int(origins[nearest.argmax()])
        return int(origins[farthest.argmin()])

    def _levels(self, origins: IntArray, src: IntArray, dst: IntArray) -> NDArray[np.int32]:
        """Breadth first from all origins at once."""
        distance = np.full((len(origins), self.nodes), UNREACHED, np.int32)
        row, node = np.arange(len(origins)), np.asarray(origins)
        distance[row, node] = 0
        by_source = np.argsort(src, kind="stable")
        first = np.searchsorted(src[by_source], np.arange(self.nodes + 1))
        level = 0
        while len(row):
            level += 1
            counts = first[node + 1] - first[node]
            ends = np.cumsum(counts)
            link = by_source[np.arange(counts.sum()) + np.repeat(first[node] - (ends - counts), counts)]
            row, node = np.repeat(row, counts), dst[link]
            new = distance[row, node] > level
            row, node = row[new], node[new]
            turn = np.arange(len(row), dtype=np.int32)
            distance[row, node] = turn  # who is met more than once keeps the last turn
            last = distance[row, node] == turn
            row, node = row[last], node[last]
            distance[row, node] = level
        return distance

    def toward(self, target: int) -> NDArray[np.int32]:
        """The link that every node takes towards `target`, -1 at the target and where there is no path."""
        if target not in self._next:
            distance = self._levels(np.array([target]), self.dst, self.src)[0].astype(np.int64)
            links = self._order[distance[self.src[self._order]] == distance[self.dst[self._order]] + 1]
            links = links[np.argsort(self.src[links], kind="stable")]
            nodes, first, counts = np.unique(self.src[links], return_index=True, return_counts=True)
            chosen = np.full(self.nodes, -1, np.int32)
            chosen[nodes] = links[first + (target % counts if self._spread else 0)]
            self._next[target] = chosen
        return self._next[target]

    def table(self, src: IntArray, dst: IntArray) -> IntArray:
        """One row of links per message, padded with -1; ValueError for a message that has no path."""
        targets, which = np.unique(dst, return_inverse=True)
        ahead = np.stack([self.toward(int(target)) for target in targets]) if len(targets) else np.zeros((0, 1))
        node, columns = src.copy(), []
        while np.any(going := node != dst):
            link = np.where(going, ahead[which, node], -1)
            if np.any(lost := going & (link < 0)):
                first = int(np.flatnonzero(lost)[0])
                raise ValueError(f"there is no path from node {src[first]} to node {dst[first]}")
            node = np.where(going, self.dst[link], node)
            columns.append(link)
        return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(src), 0), np.int64)
