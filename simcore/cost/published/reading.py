"""Rows of measurements sorted into suites, one at a time: what cannot be read is refused with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simcore.cost.published.rows import Row
from simcore.cost.published.suites import OTHER, SUITES, Suite
from simcore.errors import InputError

READING_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, InputError)
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """A row without a prediction, and what is missing."""

    id: str
    reason: str


@dataclass(slots=True)
class Sorted:
    """The rows of a suite, and those that it cannot read."""

    suite: Suite
    rows: list[Row] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def reason_of(error: BaseException) -> str:
    """Why a row is refused, in a line."""
    if isinstance(error, InputError):
        return "; ".join(
            f"{one.message}" + (f", expected {one.expected}" if one.expected else "") for one in error.problems
        )
    if isinstance(error, KeyError):
        return f"lacks {error.args[0]!r}"
    return f"cannot be read: {type(error).__name__}: {error}"


def sort_rows(documents: Iterable[Document], suites: Iterable[Suite] = SUITES.values()) -> list[Sorted]:
    """Every row in the suites that read it (but for a row of `OTHER`, one), in the order of the suites."""
    suites = list(suites)
    found = {suite.name: Sorted(suite) for suite in [*suites, OTHER]}
    for name, piece in (each for document in documents for each in _pieces(document)):
        taken = [_take(found[suite.name], piece, name) for suite in suites]
        if not any(taken) and "rows" in piece and len(suites) == len(SUITES):
            _take(found[OTHER.name], piece, name)
    return [one for one in found.values() if one.rows or one.refused]


def _take(into: Sorted, piece: Document, name: str) -> bool:
    """Whether a suite reads a piece of a document."""
    try:
        rows = list(into.suite.rows(piece))
    except READING_ERRORS as error:
        into.refused.append(Refused(name, reason_of(error)))
        return True
    # Who published a piece: its row says so, or it is a table of its own.
    table = next(iter(piece.get("bulk_tables", {})), "collectives")
    source = str(piece["rows"][0].get("source", "")) if "rows" in piece else table
    into.rows += [replace(row, source=source) for row in rows]
    return bool(rows)


def _pieces(document: Document) -> Iterator[tuple[str, Document]]:
    """The name of every row or curve, and a document that holds nothing else."""
    for number, row in enumerate(_listed(document.get("rows"))):
        name = str(row.get("id", f"rows[{number}]")) if isinstance(row, Mapping) else f"rows[{number}]"
        yield name, {"rows": [row if isinstance(row, Mapping) else {"id": name}]}
    tables = document.get("bulk_tables")
    for title, table in tables.items() if isinstance(tables, Mapping) else ():
        for number, values in enumerate(_listed(table.get("rows") if isinstance(table, Mapping) else None)):
            one = {**table, "rows": [values], "first": number}
            yield f"{title}-{number}", {"bulk_tables": {title: one}}
    for number, curve in enumerate(_listed(document.get("collectives"))):
        if isinstance(curve, Mapping):
            yield str(curve.get("id", f"collectives[{number}]")), {"collectives": [curve]}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
