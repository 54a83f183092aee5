"""Efficiency of collectives by message size and number of servers, as SimAI 1.6 uses them (`ratios.txt`)."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

from simcore import library

MIB = 1 << 20
SIZES = tuple(16 * MIB << step for step in range(11))
MEASURED, MULTI_16 = (1, 2, 4, 8, 16, 32, 64, 128), "multi"  # numbers of servers, and a column of its own


@cache
def _tables() -> dict[tuple[str, str], tuple[float, ...]]:
    """(Table, column) -> the shares by size."""
    rows = library.table(__file__, "ratios.txt", 3)
    return {(table, servers): tuple(map(float, shares.split())) for table, servers, shares in rows}


def efficiency(table: str, column: str, size_bytes: float) -> float:
    """Share of the bandwidth reached at 16 GiB, between rows linear in the size; not measured or larger = 1.

    >>> efficiency("nic", "1", 24 * MIB), efficiency("all_to_all", MULTI_16, 1)
    (0.6172839506172839, 0.8958333333333334)
    """
    values = _tables().get((table, column))
    above = bisect_right(SIZES, size_bytes)
    if values is None or above == len(SIZES):
        return 1.0
    if above == 0:
        return values[0] / values[-1]
    share = (size_bytes - SIZES[above - 1]) / (SIZES[above] - SIZES[above - 1])
    return (values[above - 1] + share * (values[above] - values[above - 1])) / values[-1]


def column(servers: int) -> str:
    """The column for a number of servers; one that was not measured takes that of 16.

    SimAI asks for the column "Multi 16" by the number 9, so a group of 9 servers gets it, too.
    """
    return MULTI_16 if servers == 9 else str(servers) if servers in MEASURED else "16"
