"""`simcore data`: the measurements that predictions rest on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from simcore.errors import InputError

__all__ = ["command"]


@click.group(short_help="Measured kernel times: list, add, predict.")
def command() -> None:
    """Measured times of kernels and collectives: which there are, your own, and what they predict.

    \b
    simcore data list
    simcore data add my_h100_gemm.csv
    """


@command.command(name="list", short_help="The measured tables.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_(as_json: bool) -> None:
    """List the measured tables: device, operation, types, points, source, licence; your own are marked with *.

    \b
    simcore data list
    """
    from simcore.compute.measured.tables import entries

    found = entries()
    if as_json:
        keys = ("name", "device", "operation", "types", "rows", "source", "licence", "own")
        tables = [{key: getattr(entry, key) for key in keys} for entry in found]
        click.echo(json.dumps({"schema": "simcore.data/1", "tables": tables}, indent=1, sort_keys=True))
        return
    for entry in found:
        mark = "*" if entry.own else " "
        click.echo(f"{mark} {entry.name:<44} {entry.rows:>7,} points  {', '.join(entry.types):<34} {entry.source}")


@command.command(short_help="Bring your own measurements.")
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--device", default="", metavar="NAME", help="The device it was measured on; default: from its name.")
def add(table: Path, device: str) -> None:
    """Take TABLE (.npz or .csv, SOURCE_DEVICE_OPERATION, columns in docs/kernels.md): it wins over shipped rows.

    \b
    simcore data add my_h100_gemm.csv
    simcore data add gemm.csv --device h100
    """
    from simcore.compute.measured.own import add_table

    entry = add_table(table, device)
    click.echo(f"{entry.rows:,} points of {entry.operation} on {entry.device}: {entry.path}")


@command.command(short_help="The time of every row of a table.")
@click.argument("table", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="What to write.")
@click.option("--without-exact", is_flag=True, help="As though the configurations asked for had not been measured.")
def predict(table: Path, output: Path, without_exact: bool) -> None:
    """Write TABLE with the predicted time of each row, its source and its distance to the nearest measurement.

    \b
    simcore data predict aic_h100_gemm.npz -o predicted.npz
    """
    from simcore.compute.measured.files import columns_of, read_table
    from simcore.compute.measured.rows import predicted
    from simcore.files import write_bytes

    _, device, operation = columns_of(table)
    if output.resolve() == table.resolve():
        raise InputError.at(str(output), "this is the table that is read", expected="another file", hint="name another")
    asked = read_table(table, operation, answers=False)
    answers = predicted(operation, device, asked, without_exact=without_exact)
    columns: dict[str, Any] = asked | answers
    packed = io.BytesIO()
    np.savez_compressed(packed, **columns)
    write_bytes(output, packed.getvalue())
    click.echo(f"{output}: {len(answers['predicted_us']):,} rows")
