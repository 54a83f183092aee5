"""Nodes of a graph so that each comes behind what it waits for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def waiting_order(offsets: ArrayLike, targets: ArrayLike) -> list[int]:
    """Rows so that each comes behind what it waits for: `targets[offsets[i]:offsets[i + 1]]` for row i."""
    counts = np.diff(np.asarray(offsets))
    return topological(len(counts), targets, np.repeat(np.arange(len(counts)), counts))


def topological(count: int, sources: ArrayLike, targets: ArrayLike) -> list[int]:
    """Nodes from 0 so that every source comes before its targets; those on or behind a circle are missing.

    >>> topological(4, [2, 0, 1, 3], [0, 1, 3, 1])
    [2, 0]
    """
    source, target = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    if (source < target).all():
        return list(range(count))
    by_source = np.argsort(source, kind="stable")
    followers = target[by_source].tolist()
    first = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    waiting = np.bincount(target, minlength=count)
    order: list[int] = np.flatnonzero(waiting == 0).tolist()
    waiting = waiting.tolist()
    for node in order:  # grows while it is walked
        for follower in followers[first[node] : first[node + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    return order
