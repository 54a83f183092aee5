"""Which elements of two sequences belong together: the shortest edit script (Myers, Algorithmica 1 (1986) 251)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_DIFFERENCES = 3000
Runs = tuple[int, int, int, "Runs"] | None  # equal elements from here to there on a diagonal, behind others


def matches(one: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    """Pairs of positions of equal elements, both ascending, as many as there can be; [] when too much differs.

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
