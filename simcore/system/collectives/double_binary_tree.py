"""Double binary tree: reduce up one tree, broadcast down; chunks alternate between two opposite trees.

The trees are numbered in order (Sanders, Speck, Träff 2009, as NCCL and ASTRA-sim use them); a tree only all-reduces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Tree", "exits", "tree"]


@dataclass(frozen=True, slots=True)
class Tree:
    """`parent[rank]` (-1 at the root), `children[rank]` of a binary tree over 0 .. n-1; `order` lists parents first."""

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]


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
    return Tree(tuple(parent), children, _parents_first(parent, children))


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


def _parents_first(parent: Sequence[int], children: Sequence[Sequence[int]]) -> tuple[int, ...]:
    order = [parent.index(-1)]
    for rank in order:
        order.extend(children[rank])
    return tuple(order)


def exits(
    shape: Tree,
    arrivals_ns: Sequence[int],
    delay_ns: Callable[[int, int], int],
    endpoint_ns: int,
    reduction_ns: int,
) -> list[int]:
    """When each rank leaves an all-reduce on a tree; `delay_ns(src, dst)` is the time of one full-size message.

    A leaf pays the endpoint before sending and after receiving; an inner rank pays it, and the reduction, for what
    comes from below and again for what comes from above, and leaves as it sends down: the root first (ASTRA-sim).
    """
    cost = endpoint_ns + reduction_ns
    up = list(arrivals_ns)
    for rank in reversed(shape.order):
        heard = [max(up[child] + delay_ns(child, rank), arrivals_ns[rank]) for child in shape.children[rank]]
        up[rank] = max(heard) + cost if heard else arrivals_ns[rank] + endpoint_ns
    down = up
    for rank in shape.order:
        above = shape.parent[rank]
        if above >= 0:
            heard_ns = max(down[above] + delay_ns(above, rank), up[rank])
            down[rank] = heard_ns + (cost if shape.children[rank] else endpoint_ns)
    return down
