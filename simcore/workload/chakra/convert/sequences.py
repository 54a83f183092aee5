"""Which elements of two sequences belong together: the shortest edit script (Myers, Algorithmica 1 (1986) 251)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["matches"]

MAX_DIFFERENCES = 3000


def matches(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions of equal elements, both ascending, as many as there can be; [] when too much differs.

    >>> matches("abcde", "xbcye")
    [(1, 1), (2, 2), (4, 4)]
    """
    if abs(len(one) - len(other)) > MAX_DIFFERENCES:
        return []
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for differences in range(min(len(one) + len(other), MAX_DIFFERENCES) + 1):
        history.append(dict(reach))
        for diagonal in range(-differences, differences + 1, 2):
            place = _furthest(one, other, reach, diagonal, differences)
            reach[diagonal] = place
            if place >= len(one) and place - diagonal >= len(other):
                return _backtrack(history, len(one), len(other))
    return []


def _begin(reach: dict[int, int], diagonal: int, differences: int) -> int:
    """Where a diagonal is entered: from the one above (an insertion) or the one below (a deletion)."""
    down = diagonal == -differences or (diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1])
    return reach[diagonal + 1] if down else reach[diagonal - 1] + 1


def _furthest(one: Sequence[str], other: Sequence[str], reach: dict[int, int], diagonal: int, differences: int) -> int:
    """How far one gets on a diagonal along equal elements."""
    place = _begin(reach, diagonal, differences)
    while place < len(one) and place - diagonal < len(other) and one[place] == other[place - diagonal]:
        place += 1
    return place


def _backtrack(history: list[dict[int, int]], end_one: int, end_other: int) -> list[tuple[int, int]]:
    """The equal elements along the way that led to the end."""
    found: list[tuple[int, int]] = []
    x, y = end_one, end_other
    for differences in range(len(history) - 1, -1, -1):
        reach, diagonal = history[differences], x - y
        begin = _begin(reach, diagonal, differences) if differences else 0
        found += [(at, at - diagonal) for at in range(x - 1, begin - 1, -1)]
        down = diagonal == -differences or (diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1])
        previous = diagonal + 1 if down else diagonal - 1
        if differences:
            x = reach[previous]
            y = x - previous
    return found[::-1]
