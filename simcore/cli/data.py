"""`simcore data`: the measurements that predictions rest on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from simcore.cli.command import emit
from simcore.compute.measured.estimate import predicted
from simcore.compute.measured.files import add_table, columns_of, read_table
from simcore.compute.measured.tables import entries
from simcore.files import write_bytes
from simcore.report.table import Table, columns


def list_tables() -> None:
    """List the measured tables; one's own are marked with *."""
    found = entries()
    keys = ("name", "device", "operation", "types", "rows", "source", "licence", "own")
    tables = [{key: getattr(entry, key) for key in keys} for entry in found]
    rows = [("* " * one.own + one.name, one.rows, ", ".join(one.types), one.source) for one in found]
    shown = columns("name", ("rows", "points"), "types", "source")
    points, own = sum(one.rows for one in found), sum(one.own for one in found)
    title = f"{len(found)} tables with {points:,} measured times; {own} are your own (marked with *).\n"
    emit({"schema": "simcore.data/1", "tables": tables}, Table(title, shown, rows).text(160))


def add(table: str, device: str) -> None:
    """Take a table of one's own: it wins over shipped rows."""
    entry, longer = add_table(Path(table), device)
    made = {"name": entry.name, "rows": entry.rows, "path": str(entry.path), "times_known": longer}
    unit = "" if 0.1 < longer < 10.0 else " Are they microseconds?"
    told = f"In the median they take {longer:.3g} times as long as known before.{unit}"
    emit(made, f"{entry.rows:,} points of {entry.operation} on {entry.device}: {entry.path}\n{told}")


def predict(table: str, output: str, without_exact: bool) -> None:
    """Write a table with the predicted time of each row, its source and its distance to the nearest measurement."""
    _, device, operation = columns_of(Path(table))
    asked = read_table(Path(table), operation, answers=False)
    answers = predicted(operation, device, asked, without_exact=without_exact)
    held: dict[str, Any] = asked | answers
    packed = io.BytesIO()
    np.savez_compressed(packed, **held)
    write_bytes(output, packed.getvalue())
    rows = len(answers["predicted_us"])
    emit({"path": output, "rows": rows}, f"{output}: {rows:,} rows")
