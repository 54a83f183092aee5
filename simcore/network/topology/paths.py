"""Shortest paths in a graph of links, for networks that no formula describes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.hashes import mixed

IntArray = NDArray[np.int64]
BLOCK_NODES = 1 << 20  # of all origins searched at once: memory of a few MB
LANDMARKS = 8
UNREACHED = np.iinfo(np.int32).max
MOST_WAYS = 1 << 40  # from a node, of which those of a rank are found; of more each node chooses by a hash


class ShortestPaths:
    """Paths of fewest links; among equals every node takes its first link in the order of `preference`.

    That has the links from most to least wanted, by default in order of their numbers. With `spread`, the destination's
    place among so many chooses among equals, as in the tables of InfiniBand's fat trees.
    """

    def __init__(
        self, nodes: int, src: IntArray, dst: IntArray, preference: IntArray | None = None, *, spread: int = 1
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
            chosen[nodes] = links[first + target % self._spread % counts]
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

    def ranked(self, src: IntArray, dst: IntArray, ranks: NDArray[np.uint64]) -> IntArray:
        """As `table`, but of all ways of fewest links those of some ranks, by the numbers of their links.

        Ranks go round: behind the last way comes the first.
        """
        found = [(np.flatnonzero(dst == target), _Onward.of(self, target)) for target in np.unique(dst).tolist()]
        tables = [(rows, onward.table(src[rows], ranks[rows])) for rows, onward in found]
        table = np.full((len(src), max((own.shape[1] for _, own in tables), default=0)), -1)
        for rows, own in tables:
            table[rows, : own.shape[1]] = own
        return table

    def several(self, src: int, dst: int, most: int) -> list[tuple[int, ...]]:
        """Ways of fewest links from one node to another, at most so many."""
        onward = _Onward.of(self, dst)
        count = min(int(onward.ways[src]), most)
        return [*map(tuple, onward.table(np.full(count, src), np.arange(count, dtype=np.uint64)).tolist())]


class _Onward(NamedTuple):
    """What leads to `target` with fewest links: the `links` by their source, of which node n's begin at `first[n]`.

    `ends` is where they lead, `ways` how many each node has, and `before` how many begin with an earlier link.
    """

    target: int
    links: IntArray
    ends: IntArray
    first: IntArray
    ways: IntArray
    before: IntArray

    @staticmethod
    @lru_cache(maxsize=1 << 10)
    def of(paths: ShortestPaths, target: int) -> _Onward:
        """Of a target."""
        src, dst = paths.src, paths.dst
        away = paths._levels(np.array([target]), dst, src)[0].astype(np.int64)
        links = np.flatnonzero(away[src] == away[dst] + 1)
        links = links[np.argsort(src[links], kind="stable")]
        first, ways = np.searchsorted(src[links], np.arange(paths.nodes)), np.zeros(paths.nodes, np.int64)
        ways[target] = 1
        by_level = links[np.argsort(away[src[links]], kind="stable")]
        for own in np.split(by_level, np.flatnonzero(np.diff(away[src[by_level]])) + 1):
            np.add.at(ways, src[own], np.minimum(ways[dst[own]], MOST_WAYS))
        before = np.concatenate([[0], np.cumsum(np.minimum(ways[dst[links]], MOST_WAYS))])
        return _Onward(target, links, dst[links], first, ways, before)

    def table(self, src: IntArray, ranks: NDArray[np.uint64]) -> IntArray:
        """One row of links per message, padded with -1; ValueError for a message that has no path."""
        if np.any(lost := self.ways[src] == 0):
            raise ValueError(f"there is no path from node {src[lost][0]} to node {self.target}")
        node, ways, columns = src, self.ways.astype(np.uint64), []
        rank = (ranks % ways[src]).astype(np.int64)
        while np.any(going := node != self.target):
            hashed = (mixed(rank, node) % ways[node]).astype(np.int64)
            wanted = self.before[self.first[node]] + np.where(self.ways[node] > MOST_WAYS, hashed, rank)
            at = np.where(going, np.searchsorted(self.before, wanted, side="right") - 1, -1)
            node, rank = np.where(going, self.ends[at], node), wanted - self.before[at]
            columns.append(np.where(going, self.links[at], -1))
        return np.stack(columns, axis=1) if columns else np.zeros((len(src), 0), np.int64)
