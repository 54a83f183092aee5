"""`simcore data`: the measurements that predictions rest on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Group, Target, emit, option


@click.group(cls=Group, short_help="Measured kernel times: list, add, predict.")
def command() -> None:
    """Measured times of kernels and collectives: which there are, your own, and what they predict.

    \b
    simcore data list
    simcore data add my_h100_gemm.csv
    """


@command.command(name="list", short_help="The measured tables.")
def list_() -> None:
    """List the measured tables: device, operation, types, points, source, licence; your own are marked with *.

    \b
    simcore data list
    """
    from simcore.compute.measured.tables import entries
    from simcore.report.table import Table, columns

    found = entries()
    keys = ("name", "device", "operation", "types", "rows", "source", "licence", "own")
    tables = [{key: getattr(entry, key) for key in keys} for entry in found]
    rows = [("* " * one.own + one.name, one.rows, ", ".join(one.types), one.source) for one in found]
    shown = columns("name", ("rows", "points"), "types", "source")
    points, own = sum(one.rows for one in found), sum(one.own for one in found)
    title = f"{len(found)} tables with {points:,} measured times; {own} are your own (marked with *).\n"
    emit({"schema": "simcore.data/1", "tables": tables}, Table(title, shown, rows).text(160))


@command.command(short_help="Bring your own measurements.")
@click.argument("table")
@option("--device", default="", metavar="NAME", help="The device it was measured on; default: from its name.")
def add(table: str, device: str) -> None:
    """Take TABLE (.npz or .csv, SOURCE_DEVICE_OPERATION, columns in docs/kernels.md): it wins over shipped rows.

    \b
    simcore data add my_h100_gemm.csv
    simcore data add gemm.csv --device h100
    """
    from simcore.compute.measured.own import add_table

    entry = add_table(Path(table), device)
    made = {"name": entry.name, "rows": entry.rows, "path": str(entry.path)}
    emit(made, f"{entry.rows:,} points of {entry.operation} on {entry.device}: {entry.path}")


@command.command(short_help="The time of every row of a table.")
@click.argument("table")
@option("-o", "--output", required=True, type=Target(), metavar="FILE", help="What to write.")
@option("--without-exact", is_flag=True, help="As though the configurations asked for had not been measured.")
def predict(table: str, output: str, without_exact: bool) -> None:
    """Write TABLE with the predicted time of each row, its source and its distance to the nearest measurement.

    \b
    simcore data predict aic_h100_gemm.npz -o predicted.npz
    """
    import numpy as np

    from simcore.compute.measured.files import columns_of, read_table
    from simcore.compute.measured.rows import predicted
    from simcore.files import write_bytes

    _, device, operation = columns_of(Path(table))
    asked = read_table(Path(table), operation, answers=False)
    answers = predicted(operation, device, asked, without_exact=without_exact)
    columns: dict[str, Any] = asked | answers
    packed = io.BytesIO()
    np.savez_compressed(packed, **columns)
    write_bytes(output, packed.getvalue())
    rows = len(answers["predicted_us"])
    emit({"path": output, "rows": rows}, f"{output}: {rows:,} rows")
