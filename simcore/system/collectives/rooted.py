"""Rooted collectives over a tree of ranks: broadcast and scatter go down it, reduce and gather the same way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from simcore.system.collectives.registry import ROOTED, PlanOptions, native
from simcore.system.explicit import Explicit, Transfer
from simcore.workload.model import CollectiveKind

MOST_TRANSFERS = 1 << 18
PIECES_PER_RANK, MOST_PIECES = 2, 1 << 16  # of a chain; on many ranks fewer each


@native("flat", *ROOTED)
def flat(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """The root exchanges with everybody itself: n - 1 messages, all at once."""
    return along(kind, [0] * size, data_bytes, options)


@native("binomial", *ROOTED)
def binomial(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """In every step twice as many have the data: ceil(log2 n) steps.

    Rank r, counted from the root, hangs below r with its lowest bit cleared.
    """
    return along(kind, [rank & (rank - 1) if rank else 0 for rank in range(size)], data_bytes, options)


@native("chain", *ROOTED)
def chain(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
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
) -> Explicit:
    """A rooted collective along the tree in which `parent[rank]` < rank is above each rank but 0.

    Ranks are counted from the root on; those below a rank follow it. `data_bytes` is what a rank gives to a gather, the
    whole vector otherwise. With several `pieces` a broadcast or reduction goes on piece by piece, a scatter or gather
    share by share, on more than 724 ranks those of neighbours together. ValueError beyond 2^18 messages.
    """
    edges = list(_edges(parent))
    if pieces * len(parent) > MOST_TRANSFERS:
        raise ValueError(f"{pieces} pieces on {len(parent)} ranks are more than {MOST_TRANSFERS:,} messages")
    if kind in {CollectiveKind.BROADCAST, CollectiveKind.REDUCE}:
        down = list(_whole(edges, data_bytes, min(pieces, max(1, data_bytes))))
    else:
        share = data_bytes // len(parent) if kind == CollectiveKind.SCATTER else data_bytes
        width = max(1, len(parent) ** 2 // MOST_TRANSFERS) if pieces > 1 else len(parent)
        down = list(_shares(edges, share, width))
    placed = [_placed(entry, len(parent), options.root, kind) for entry in down]
    if kind in {CollectiveKind.REDUCE, CollectiveKind.GATHER}:
        placed = _reversed(placed, reduce=kind == CollectiveKind.REDUCE)
    return Explicit.ordered(len(parent), placed)


def _edges(parent: Sequence[int]) -> Iterator[_Edge]:
    """Every rank but the root, level by level, the one with the most ranks below first."""
    count, depth = [1] * len(parent), [0] * len(parent)
    for rank in range(len(parent) - 1, 0, -1):
        count[parent[rank]] += count[rank]
    for rank in range(1, len(parent)):
        depth[rank] = depth[parent[rank]] + 1
    for rank in sorted(range(1, len(parent)), key=lambda rank: (depth[rank], -count[rank], rank)):
        yield _Edge(depth[rank] - 1, parent[rank], rank, range(rank + count[rank] - 1, rank - 1, -1))


def _whole(edges: Sequence[_Edge], data_bytes: int, pieces: int) -> Iterator[Transfer]:
    """All pieces over every edge."""
    for piece in range(pieces):
        size_bytes = data_bytes * (piece + 1) // pieces - data_bytes * piece // pieces
        for edge in edges:
            yield Transfer(edge.depth + piece, edge.above, edge.rank, (piece,), size_bytes)


def _shares(edges: Sequence[_Edge], share: int, width: int) -> Iterator[Transfer]:
    """Over every edge the shares of the ranks below it, those of `width` ranks together, the last ranks' first."""
    last = max((edge.rank for edge in edges), default=0)
    for edge in edges:
        for block, ranks in groupby(edge.below, key=lambda rank: rank // width):
            together = tuple(ranks)
            step = edge.depth + last // width - block
            yield Transfer(step, edge.above, edge.rank, together, share * len(together))


def _placed(entry: Transfer, size: int, root: int, kind: CollectiveKind) -> Transfer:
    """Ranks counted from 0 in place of from the root; shares are named by their rank."""
    chunks = entry.chunks
    if kind in {CollectiveKind.SCATTER, CollectiveKind.GATHER}:
        chunks = tuple((chunk + root) % size for chunk in chunks)
    return replace(entry, src=(entry.src + root) % size, dst=(entry.dst + root) % size, chunks=chunks)


def _reversed(down: Sequence[Transfer], *, reduce: bool) -> list[Transfer]:
    """The same transfers the other way, the last first."""
    last = max((entry.step for entry in down), default=0)
    return [
        Transfer(
            last - entry.step, entry.dst, entry.src, entry.chunks, entry.size_bytes, reduce,
            entry.size_bytes if reduce else 0,
        )
        for entry in reversed(down)
    ]  # fmt: skip
