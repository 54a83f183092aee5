"""Tables of plain text: columns aligned, long names shortened, nothing wider than asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["grid", "shorten", "top"]


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle left out where it is longer.

    >>> shorten("encoder.layer.11.attention.output", 20)
    'encoder.l…ion.output'
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[int] = (0,), width: int = 80) -> str:
    """Rows under a header; the columns numbered in `left` are left-aligned, of them the widest gives way.

    >>> print(grid(("layer", "ns"), [("a", "1"), ("bc", "23")]))
    layer  ns
    a       1
    bc     23
    """
    lines = [tuple(header), *(tuple(row) for row in rows)]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    flush_left = set(left)
    gives_way = max(flush_left, key=lambda index: widths[index])
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    widths[gives_way] -= min(max(excess, 0), max(widths[gives_way] - 8, 0))
    return "\n".join(_line(line, widths, flush_left) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], flush_left: set[int]) -> str:
    padded = (
        shorten(cell, width).ljust(width) if index in flush_left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def top(count: int, total: int, noun: str, option: str = "--json") -> str:
    """The line that says what a table leaves out; empty when nothing is.

    >>> top(12, 40, "layers")
    '28 more layers are not shown; --json lists all'
    """
    left_out = total - count
    return f"{left_out:,} more {noun} are not shown; {option} lists all" if left_out > 0 else ""
