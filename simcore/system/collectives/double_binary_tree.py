"""Double binary tree: reduce up one tree, broadcast down; chunks alternate between two opposite trees.

The trees are numbered in order (Sanders, Speck, Träff 2009, as NCCL and ASTRA-sim use them); a tree only all-reduces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.explicit import Explicit, Transfer
from simcore.workload.model import CollectiveKind

__all__ = ["Tree", "double_binary_tree", "tree"]


@algorithms.register("doubleBinaryTree")
def double_binary_tree(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """All data go up a tree and down again, whatever the collective; ValueError unless n is a power of two.

    An inner rank pays the reduction for what comes from below, and again for what comes from above (ASTRA-sim).
    """
    shape = tree(size, mirrored=options.mirrored)
    deepest = max(shape.depth)
    transfers = []
    for rank, above in enumerate(shape.parent):
        if above >= 0:
            up, down = deepest - shape.depth[rank], deepest + shape.depth[above]
            charge_bytes = data_bytes if shape.children[rank] else 0
            transfers.append(Transfer(up, rank, above, (0,), data_bytes, True, data_bytes))
            transfers.append(Transfer(down, above, rank, (0,), data_bytes, charge_bytes=charge_bytes))
    return Explicit.ordered(size, transfers)


@dataclass(frozen=True, slots=True)
class Tree:
    """`parent[rank]` (-1 at the root), `children[rank]` and `depth[rank]` of a binary tree over 0 .. n-1."""

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]


@lru_cache(maxsize=64)
def tree(size: int, *, mirrored: bool) -> Tree:
    """A perfect binary tree over n - 1 ranks, numbered in order, below a root that is the last rank.

    `mirrored` numbers from the other end: the root is rank 0. ValueError unless `size` is a power of two.
    """
    if size & (size - 1) or size < 2:
        raise ValueError(f"doubleBinaryTree needs a power of two of ranks, not {size}")
    parent = [-1] * size
    _hang(parent, 0, size - 1, size - 1)
    if mirrored:
        parent = [size - 1 - above if above >= 0 else -1 for above in reversed(parent)]
    children = _children(parent)
    return Tree(tuple(parent), children, _depths(parent, children))


def _hang(parent: list[int], first: int, end: int, above: int) -> None:
    """Hang the ranks first .. end-1 below `above`, their middle on top."""
    middle = (first + end) // 2
    parent[middle] = above
    if end - first > 1:
        _hang(parent, first, middle, middle)
        _hang(parent, middle + 1, end, middle)


def _children(parent: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    below: list[list[int]] = [[] for _ in parent]
    for rank, above in enumerate(parent):
        if above >= 0:
            below[above].append(rank)
    return tuple(map(tuple, below))


def _depths(parent: Sequence[int], children: Sequence[Sequence[int]]) -> tuple[int, ...]:
    depth = [0] * len(parent)
    order = [parent.index(-1)]
    for rank in order:
        for child in children[rank]:
            depth[child] = depth[rank] + 1
        order.extend(children[rank])
    return tuple(depth)
