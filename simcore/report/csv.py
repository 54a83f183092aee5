"""layers.csv: the table of layers, one row per layer and phase."""

from __future__ import annotations

import csv
import io

from simcore.report.document import ReportDocument
from simcore.report.tables import layer_rows

__all__ = ["COLUMNS", "layers_csv"]

COLUMNS = ("layer", "name", "phase", "compute_ns", "comm_ns", "exposed_ns", "collective", "bytes")


def layers_csv(document: ReportDocument) -> str:
    """The table as CSV (RFC 4180, line feeds); an empty field where a phase has no collective."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(layer_rows(document))
    return out.getvalue()
