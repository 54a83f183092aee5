"""One table for a terminal, a page, a notebook and a spreadsheet: columns know their unit, rows hold bare figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unicodedata import combining, east_asian_width

from simcore.errors import printable
from simcore.units import format_bytes, format_ns, format_rate

LEAST_WIDTH = 8  # of a column that gives way
FORMULAS = tuple("=+-@")
FORMS: Mapping[str, Callable[[Any], str]] = {
    "bytes_per_s": format_rate,
    "bytes": format_bytes,
    "ns": format_ns,
    "share": "{:.1%}".format,
    "": lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.6g}",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the key of its figures, what stands above it, and the unit they have.

    A unit is one of `FORMS`, or how Python formats a number (".3f"); "+ns" shows its sign. Text has none.
    """

    key: str
    title: str
    unit: str = ""

    @classmethod
    def of(cls, key: str, title: str | None = None, unit: str | None = None) -> Column:
        """Title and unit, where they are not given, are told by the key.

        >>> Column.of("exposed_comm_ns")
        Column(key='exposed_comm_ns', title='exposed comm', unit='ns')
        """
        told = next((unit for unit in FORMS if unit and f"_{key}".endswith(f"_{unit}")), "")
        named = key.removesuffix(f"_{told}").replace("_", " ")
        return cls(key, named if title is None else title, told if unit is None else unit)


def columns(*given: str | tuple[str, ...]) -> tuple[Column, ...]:
    """Columns of their keys, or (key, title), or (key, title, unit)."""
    return tuple(Column.of(*((one,) if isinstance(one, str) else one)) for one in given)


def shown(value: object, unit: str = "") -> str:
    """A figure in its unit for people; text as it is, `-` for none.

    >>> shown(172673, "ns"), shown(0.25, "+share"), shown(None), shown(1.5, ".2f")
    ('172.7 us', '+25.0%', '-', '1.50')
    """
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    return signed(value, unit[1:]) if unit.startswith("+") else (FORMS.get(unit) or f"{{:{unit}}}".format)(value)


def signed(value: Any, unit: str) -> str:
    """A difference, with its sign where there is one."""
    return ("+" if value > 0 else "-" if value < 0 else "") + shown(abs(value), unit)


def breadth(text: str) -> int:
    """How many characters of a terminal a text is wide: ideographs take two, what stands on another none.

    >>> breadth("fc_层"), breadth("fc")
    (5, 2)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters of a terminal, its middle left out where it is longer.

    >>> shorten("encoder.layer.11.attention.output", 20)
    'encoder.l…ion.output'
    """
    if breadth(text) <= width:
        return text
    head = (width - 1) // 2
    return _begins(text, head) + "…" + _begins(text[::-1], width - 1 - head)[::-1]


def _begins(text: str, width: int) -> str:
    """As much of its beginning as fits."""
    most = text[:width] if width > 0 else ""
    while breadth(most) > width:
        most = most[:-1]
    return most


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns, as text, HTML or CSV.

    `title` is the line above it; none where empty. A row is a sequence, or a mapping with the columns' keys: bare
    figures, strings, or None where there is no figure. `total` counts the rows that there are in all, where `rows` are
    chosen of them; `noun` says what a row is, `listed` where all of them are.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object] | Mapping[str, Any]]
    total: int = 0
    noun: str = "rows"
    listed: str = "--json"

    def first(self, count: int) -> Table:
        """The first rows, and a note of the others."""
        return replace(self, rows=self.rows[:count], total=max(self.total, len(self.rows)))

    def values(self) -> list[list[object]]:
        """The figures, row by row in the order of the columns."""
        return [[row[one.key] for one in self.columns] if isinstance(row, Mapping) else [*row] for row in self.rows]

    def _shown(self) -> tuple[list[Column], list[list[str]], list[bool]]:
        """Columns in which anything stands, cells, and which columns are text."""
        values = self.values()
        kept = [at for at in range(len(self.columns)) if any(row[at] not in ("", None) for row in values)]
        cells = [[_one_line(shown(row[at], self.columns[at].unit)) for at in kept] for row in values]
        text = [not self.columns[at].unit and all(isinstance(row[at], str) for row in values) for at in kept]
        return [self.columns[at] for at in kept], cells, text

    def text(self, width: int = 80, indent: int = 0) -> str:
        """Aligned lines, of the columns of text the widest gives way; no header without titles, nothing without rows.

        >>> print(Table("Layers", columns("layer", "time_ns"), [("a", 1), ("bc", 2300)]).text())
        Layers
        layer    time
        a        1 ns
        bc     2.3 us
        """
        if not self.rows:
            return ""
        heads, cells, text = self._shown()
        titles = [one.title for one in heads]
        lines = [*([titles] if any(titles) else []), *cells]
        widths = _widths(lines, text, width - indent)
        aligned = [
            "  ".join(
                _padded(shorten(cell, room), room) if left else cell.rjust(room)
                for cell, room, left in zip(line, widths, text, strict=True)
            ).rstrip()
            for line in lines
        ]
        said = [*([self.title] if self.title else []), *aligned, *([self.note] if self.note else [])]
        return "\n".join(" " * indent + line for line in said)

    @property
    def note(self) -> str:
        """What is left out; empty when nothing is.

        >>> Table("", columns("layer"), ["a"], total=29, noun="layers").note
        '28 more layers are not shown; --json lists all'
        """
        left_out = self.total - len(self.rows)
        return f"{left_out:,} more {self.noun} are not shown; {self.listed} lists all" if left_out > 0 else ""

    def html(self) -> str:
        """A table of HTML; everything is escaped. Empty without rows."""
        if not self.rows:
            return ""
        heads, cells, _ = self._shown()
        body = "".join(_html_row("td", row) for row in cells)
        table = f"<table><thead>{_html_row('th', [one.title for one in heads])}</thead><tbody>{body}</tbody></table>"
        return table + (f"<p>{self.note}</p>" if self.note else "")

    def markdown(self) -> str:
        """A table of Markdown, with every column."""
        heads = [one.title for one in self.columns]
        cells = (
            [shown(value, one.unit) for value, one in zip(row, self.columns, strict=True)] for row in self.values()
        )
        lines = [f"| {' | '.join(line)} |" for line in (heads, *cells)]
        return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])

    def csv(self) -> str:
        """RFC 4180 with line feeds: bare figures under the keys, and an empty field for None."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([one.key for one in self.columns])
        writer.writerows([_field(value) for value in row] for row in self.values())
        return out.getvalue()


def _widths(lines: Sequence[Sequence[str]], text: Sequence[bool], width: int) -> list[int]:
    """How wide each column is: as its widest cell, unless that is too much in all."""
    widths = [max(map(breadth, column)) for column in zip(*lines, strict=True)]
    elastic = [at for at, left in enumerate(text) if left]
    for at in elastic:  # a list of ranks may have a million characters, and is narrowed by one at a time below
        widths[at] = min(widths[at], max(width, LEAST_WIDTH))
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    while excess > 0 and max((widths[at] for at in elastic), default=0) > LEAST_WIDTH:
        widths[max(elastic, key=lambda at: widths[at])] -= 1
        excess -= 1
    return widths


def _padded(text: str, width: int) -> str:
    return text + " " * (width - breadth(text))


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "?")


def _html_row(element: str, cells: Iterable[str]) -> str:
    from html import escape

    return "<tr>" + "".join(f"<{element}>{escape(cell)}</{element}>" for cell in cells) + "</tr>"


def _field(value: object) -> object:
    """A name without control characters; one that a spreadsheet would run gets a quote."""
    if not isinstance(value, str):
        return value
    name = printable(value)
    try:
        float(name)
    except ValueError:
        return f"'{name}" if name.startswith(FORMULAS) else name
    return name
