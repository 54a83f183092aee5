"""Efficiency of collectives by message size and number of servers, as SimAI 1.6 uses them.

Measured figures published with SimAI (astra-sim-alibabacloud/inputs/ratio/{nvlink,nic,ata}_ratio.csv): the share of the
nominal bandwidth that a collective reaches. Columns are 1, 2, 4, .., 128 servers and "Multi 16"; a cell that was not
measured is None.
"""

from __future__ import annotations

from bisect import bisect_right

__all__ = ["ALL_TO_ALL", "MULTI_16", "NIC", "NVLINK", "Table", "column", "efficiency"]

MIB = 1 << 20
SIZES = tuple(16 * MIB << step for step in range(11))
SERVERS = (1, 2, 4, 8, 16, 32, 64, 128)
DEFAULT_COLUMN = SERVERS.index(16)
MULTI_16 = len(SERVERS)

Row = tuple[float | None, ...]
Table = tuple[Row, ...]


def _table(one: str, two: str, four: str, eight: str, sixteen: str, *more: str, multi: str) -> Table:
    """Rows by size from columns of figures; the columns that are left out were not measured."""
    measured = [[float(word) for word in column.split()] for column in (one, two, four, eight, sixteen, *more)]
    absent: list[list[None]] = [[None] * len(SIZES)] * (MULTI_16 - len(measured))
    return tuple(zip(*measured, *absent, [float(word) for word in multi.split()], strict=True))


_MULTI = ".86 .92 .94 .94 .94 .95 .96 .96 .96 .96 .96"
_IN_SERVER = ".45 .55 .65 .69 .73 .76 .77 .78 .79 .80 .81"

NVLINK = _table(
    _IN_SERVER,
    ".55 .68 .74 .80 .84 .86 .87 .87 .88 .88 .88",
    ".34 .60 .71 .74 .79 .86 .87 .87 .88 .88 .88",
    ".16 .34 .62 .70 .78 .82 .86 .87 .88 .88 .88",
    ".08 .16 .33 .65 .72 .75 .83 .86 .87 .88 .88",
    multi=_MULTI,
)
NIC = _table(
    _IN_SERVER,
    ".32 .47 .50 .67 .85 .89 .92 .94 .95 .95 .96",
    ".24 .38 .53 .67 .77 .85 .93 .94 .95 .96 .96",
    ".13 .24 .39 .54 .69 .78 .90 .94 .95 .96 .96",
    ".05 .11 .21 .38 .57 .73 .76 .92 .95 .96 .96",
    ".044 .052 .106 .205 .387 .562 .74 .758 .923 .953 .957",
    ".021 .042 .051 .107 .209 .384 .563 .745 .755 .914 .958",
    ".0087 .021225 .04405 .0533 .1027 .1902 .314575 .553525 .740175 .7648 .919175",
    multi=_MULTI,
)
ALL_TO_ALL = _table(
    ".44 .51 .60 .65 .70 .71 .74 .76 .77 .78 .78",
    ".52 .63 .72 .76 .79 .80 .81 .81 .80 .80 .80",
    ".67 .68 .83 .90 .92 .94 .94 .95 .95 .95 .95",
    ".64 .67 .82 .85 .87 .89 .92 .93 .94 .94 .94",
    ".62 .66 .66 .72 .75 .81 .85 .88 .89 .90 .90",
    multi=_MULTI,
)


def efficiency(table: Table, column: int, size_bytes: float) -> float:
    """Share of the bandwidth reached at 16 GiB, between rows linear in the size; not measured or larger = 1.

    >>> efficiency(NIC, 0, 24 * MIB), efficiency(ALL_TO_ALL, MULTI_16, 1)
    (0.6172839506172839, 0.8958333333333334)
    """
    cells = [row[column] for row in table]
    if None in cells or size_bytes > SIZES[-1]:
        return 1.0
    values = [cell for cell in cells if cell is not None]
    above = bisect_right(SIZES, size_bytes)
    if above == 0:
        return values[0] / values[-1]
    if above == len(SIZES):
        return 1.0
    share = (size_bytes - SIZES[above - 1]) / (SIZES[above] - SIZES[above - 1])
    return (values[above - 1] + share * (values[above] - values[above - 1])) / values[-1]


def column(servers: int) -> int:
    """The column for a number of servers; one that was not measured takes that of 16.

    SimAI asks for the column "Multi 16" by the number 9, so a group of 9 servers gets it, too.
    """
    if servers == MULTI_16 + 1:
        return MULTI_16
    return SERVERS.index(servers) if servers in SERVERS else DEFAULT_COLUMN
