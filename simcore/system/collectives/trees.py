"""Collectives over trees of ranks: broadcast and scatter go down one, reduce and gather up, an all-reduce both ways.

And over trees of links: switches reduce, and what one rank sends to all is copied on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from simcore.system.collectives.registry import PlanOptions, collective, native
from simcore.system.plans.plan import Plan, Round, Transfer, backwards
from simcore.workload.model import ROOTED, CollectiveKind

MOST_TRANSFERS = 1 << 18
PIECES_PER_RANK, MOST_PIECES = 2, 1 << 16  # of a chain; on many ranks fewer each


@native("flat", *ROOTED)
def flat(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """The root exchanges with everybody itself: n - 1 messages, all at once."""
    return along(kind, [0] * size, data_bytes, options)


@native("binomial", *ROOTED)
def binomial(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """In every step twice as many have the data: ceil(log2 n) steps.

    Rank r, counted from the root, hangs below r with its lowest bit cleared.
    """
    return along(kind, [rank & (rank - 1) if rank else 0 for rank in range(size)], data_bytes, options)


@native("chain", *ROOTED, windowed=True)
def chain(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """From the root to the next rank and so on, n - 1 + pieces - 1 steps; `options.window` pieces (`chain16`: 16).

    Where it is 0 there are 2 n pieces, above 181 ranks 65536 / n.
    A scatter or gather goes share by share, n - 1 steps.
    """
    pieces = options.window or max(1, min(PIECES_PER_RANK * size, MOST_PIECES // size))
    return along(kind, [max(0, rank - 1) for rank in range(size)], data_bytes, options, pieces=pieces)


class _Edge(NamedTuple):
    """From a rank of the tree to one below it: `below` are all ranks that are reached over it, the last first."""

    depth: int
    above: int
    rank: int
    below: range


def along(
    kind: CollectiveKind, parent: Sequence[int], data_bytes: int, options: PlanOptions, *, pieces: int = 1
) -> Plan:
    """A rooted collective along the tree in which `parent[rank]` < rank is above each rank but 0.

    Ranks are counted from the root on; those below a rank follow it. `data_bytes` is what a rank gives to a gather, the
    whole vector otherwise. With several `pieces` a broadcast or reduction goes on piece by piece, a scatter or gather
    share by share, on more than 724 ranks those of neighbours together. ValueError beyond 2^18 messages.
    """
    edges = list(_edges(parent))
    if pieces * len(parent) > MOST_TRANSFERS:
        raise ValueError(f"{pieces} pieces on {len(parent)} ranks are more than {MOST_TRANSFERS:,} messages")
    if kind in {CollectiveKind.BROADCAST, CollectiveKind.REDUCE}:
        pieces = min(pieces, max(1, data_bytes))
        sizes = [data_bytes * (piece + 1) // pieces - data_bytes * piece // pieces for piece in range(pieces)]
        down = [
            Transfer(edge.depth + piece, edge.above, edge.rank, (piece,), size_bytes)
            for piece, size_bytes in enumerate(sizes)
            for edge in edges
        ]
    else:
        share = data_bytes // len(parent) if kind == CollectiveKind.SCATTER else data_bytes
        width = max(1, len(parent) ** 2 // MOST_TRANSFERS) if pieces > 1 else len(parent)
        down = list(_shares(edges, share, width))
    placed, size, root = [], len(parent), options.root
    for entry in down:  # ranks counted from 0 in place of from the root; shares are named by their rank
        chunks = entry.chunks
        if kind in {CollectiveKind.SCATTER, CollectiveKind.GATHER}:
            chunks = tuple((chunk + root) % size for chunk in chunks)
        placed.append(replace(entry, src=(entry.src + root) % size, dst=(entry.dst + root) % size, chunks=chunks))
    if kind in {CollectiveKind.REDUCE, CollectiveKind.GATHER}:
        placed = backwards(placed, reduce=kind == CollectiveKind.REDUCE)
    return Plan.of(len(parent), placed)


def _edges(parent: Sequence[int]) -> Iterator[_Edge]:
    """Every rank but the root, level by level, the one with the most ranks below first."""
    count, depth = [1] * len(parent), [0] * len(parent)
    for rank in range(len(parent) - 1, 0, -1):
        count[parent[rank]] += count[rank]
    for rank in range(1, len(parent)):
        depth[rank] = depth[parent[rank]] + 1
    for rank in sorted(range(1, len(parent)), key=lambda rank: (depth[rank], -count[rank], rank)):
        yield _Edge(depth[rank] - 1, parent[rank], rank, range(rank + count[rank] - 1, rank - 1, -1))


def _shares(edges: Sequence[_Edge], share: int, width: int) -> Iterator[Transfer]:
    """Over every edge the shares of the ranks below it, those of `width` ranks together, the last ranks' first."""
    last = max((edge.rank for edge in edges), default=0)
    for edge in edges:
        for block, ranks in groupby(edge.below, key=lambda rank: rank // width):
            together = tuple(ranks)
            step = edge.depth + last // width - block
            yield Transfer(step, edge.above, edge.rank, together, share * len(together))


@collective("doubleBinaryTree", in_trees=True)
def double_binary_tree(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """All data go up a tree and down again, whatever the collective; ValueError unless n is a power of two.

    An inner rank pays the reduction for what comes from below, and again for what comes from above (ASTRA-sim).
    """
    transfers, last = [], 2 * size.bit_length() - 3
    for rank, (above, height) in enumerate(tree(size, mirrored=options.mirrored)):
        if above >= 0:
            charge_bytes = data_bytes if height else 0
            transfers.append(Transfer(height, rank, above, (0,), data_bytes, True, data_bytes))
            transfers.append(Transfer(last - height, above, rank, (0,), data_bytes, charge_bytes=charge_bytes))
    return Plan.of(size, transfers)


def tree(size: int, *, mirrored: bool) -> list[tuple[int, int]]:
    """The rank above each one, -1 above the root, and how far the rank is above the leaves.

    A perfect binary tree over n - 1 ranks, numbered in order, hangs below a root that is the last rank. `mirrored`
    numbers from the other end: the root is rank 0. ValueError unless `size` is a power of two.
    """
    if size & (size - 1) or size < 2:
        raise ValueError(f"doubleBinaryTree needs a power of two of ranks, not {size}")
    # Counted from 1, a rank's height is the number of its last zeros in binary, and the next bit says on which side.
    above = [(place ^ place & -place | (place & -place) << 1) - 1 for place in range(1, size)] + [-1]
    heights = [(place & -place).bit_length() - 1 for place in range(1, size + 1)]
    if mirrored:
        above, heights = [size - 1 - rank if rank >= 0 else -1 for rank in reversed(above)], heights[::-1]
    return list(zip(above, heights, strict=True))


@native("inNetwork", CollectiveKind.ALL_REDUCE, in_network=True, in_switch=True)
def in_network(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """The switch reduces what all send up and sends the result down to all (SHARP, Graham et al. 2016).

    2 link latencies + the switch's + S / bandwidth, for any n; needs a Switch dimension.
    Every link carries S up and S down, where a ring's carry 2(n-1)/n S.
    """
    return Plan(size, ((Round(1, data_bytes), 1),), switch=options.switch)


@native("multicast", CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST, in_network=True)
def multicast(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """What one rank sends to all goes over every link of a tree once: natively, on any links.

    A broadcast is one message, an all-gather one of every rank, all at once.
    Latency of the farthest rank + S / bandwidth for a broadcast. The tree is that of the routes from its root.
    """
    roots = [options.root] if kind == CollectiveKind.BROADCAST else range(size)
    transfers = (
        Transfer(0, root, (root + on) % size, (root if len(roots) > 1 else 0,), data_bytes)
        for root in roots
        for on in range(1, size)
    )
    return Plan(size, transfers=tuple(transfers), multicast=True)
