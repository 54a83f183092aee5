"""CSV files, and layers.csv: the table of layers, one row per layer and phase."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from simcore.report.document import ReportDocument
from simcore.report.tables import layer_rows

__all__ = ["COLUMNS", "layers_csv", "table_csv"]

COLUMNS = ("layer", "name", "phase", "compute_ns", "comm_ns", "exposed_ns", "collective", "bytes")


FORMULAS = tuple("=+-@\t\r")


def table_csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """RFC 4180 with line feeds; None is an empty field, and a name that a spreadsheet would run gets a quote."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def layers_csv(document: ReportDocument) -> str:
    """The table; an empty field where a phase has no collective."""
    return table_csv(COLUMNS, ([row[name] for name in COLUMNS] for row in layer_rows(document)))
