"""What nothing else beats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def front(some: Iterable[T], across: Callable[[T], float], up: Callable[[T], float]) -> list[T]:
    """Those that none beats in both figures, less being better; ascending, one of equal ones.

    >>> front([(4, 9), (8, 9), (8, 5), (16, 6)], lambda one: one[0], lambda one: one[1])
    [(4, 9), (8, 5)]
    """
    best: list[T] = []
    for one in sorted(some, key=lambda one: (across(one), up(one))):
        if not best or up(one) < up(best[-1]):
            best.append(one)
    return best
