"""Nodes of a graph so that each comes behind what it waits for; what two sequences have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

MAX_DIFFERENCES = 3000  # of two sequences
Runs = tuple[int, int, int, "Runs"] | None  # equal elements from here to there on a diagonal, behind others


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
    waiting: list[int] = np.bincount(target, minlength=count).tolist()
    order = [node for node, sources_left in enumerate(waiting) if not sources_left]
    for node in order:  # grows while it is walked
        for follower in followers[first[node] : first[node + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    return order


def matches(one: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    """Pairs of positions of equal elements, both ascending, as many as there can be; [] when too much differs.

    The shortest edit script (Myers, Algorithmica 1 (1986) 251).

    >>> matches("abcde", "xbcye")
    [(1, 1), (2, 2), (4, 4)]
    """
    if abs(len(one) - len(other)) > MAX_DIFFERENCES:
        return []
    reach: dict[int, tuple[int, Runs]] = {1: (0, None)}
    for differences in range(min(len(one) + len(other), MAX_DIFFERENCES) + 1):
        for diagonal in range(-differences, differences + 1, 2):
            # A diagonal is entered from the one above (an insertion) or the one below (a deletion).
            down = diagonal == -differences or (
                diagonal != differences and reach[diagonal - 1][0] < reach[diagonal + 1][0]
            )
            start, runs = reach[diagonal + 1] if down else (reach[diagonal - 1][0] + 1, reach[diagonal - 1][1])
            end = start
            while end < len(one) and end - diagonal < len(other) and one[end] == other[end - diagonal]:
                end += 1
            reach[diagonal] = end, (start, end, diagonal, runs) if end > start else runs
            if end >= len(one) and end - diagonal >= len(other):
                found, runs = list[tuple[int, int]](), reach[diagonal][1]
                while runs:
                    start, end, shift, runs = runs
                    found += [(at, at - shift) for at in range(end - 1, start - 1, -1)]
                return found[::-1]
    return []
