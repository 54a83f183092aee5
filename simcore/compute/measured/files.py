"""A user's tables of measurements: numpy files or CSV of the documented columns, checked with located errors.

They are kept beside the shipped ones, and asked before them.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured.curves import Columns
from simcore.compute.measured.estimate import machine, predicted
from simcore.compute.measured.operations import OPERATIONS, Operation
from simcore.compute.measured.parametric import element_bytes
from simcore.compute.measured.tables import Entry, forget, own_folder, pack, split_name, unpack
from simcore.errors import InputError, Location, Problem, Problems, closest
from simcore.files import read_bytes, write_bytes, write_text

Table = dict[str, NDArray[np.generic]]
_MOST_BYTES = 1 << 30
_MOST = 2.0**53  # sizes that floats hold
_OPTIONAL = {"batch", "window", "prefix", "kv_heads", "ranks_per_node", "gated", "distribution", "framework", "launch"}


def columns_of(path: Path, device: str = "") -> tuple[str, str, Operation]:
    """Source, device and operation that a file's name says; `device` replaces the one in the name.

    Raises
    ------
    InputError
        If the name does not end in a known operation.
    """
    named = split_name(path.stem) or (split_name(f"own_{device}_{path.stem}") if device else None)
    if named is None:
        raise InputError.at(
            str(path),
            "the name says no operation",
            expected="SOURCE_DEVICE_OPERATION.npz or .csv",
            found=path.name,
            hint=closest(path.stem.split("_")[-1], OPERATIONS),
        )
    return named[0], device or named[1], OPERATIONS[named[2]]


def read_table(path: Path, operation: Operation, *, answers: bool) -> Table:
    """The columns of a table; with `answers` it must hold `time_us`.

    Raises
    ------
    InputError
        With a place for everything that is wrong: a missing or unreadable column, a size below 1, a word left out.
    """
    data = read_bytes(path, _MOST_BYTES)
    table = (
        _csv(path, data.decode("utf-8", "replace"), operation) if path.suffix == ".csv" else _npz(path, data, operation)
    )
    for name in [name for name in operation.words if name in table and table[name].dtype.kind in "US"]:
        table[f"{name}_names"], table[name] = np.unique(table[name].astype(str), return_inverse=True)
    with Problems() as problems:
        for problem in _wrong(str(path), table, operation, answers):
            problems.add(problem)
    return table


def _npz(path: Path, data: bytes, operation: Operation) -> Table:
    """Arrays of rows, or those that tables are kept in."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            table = {name: np.atleast_1d(archive[name]) for name in archive.files}
        return unpack(operation, table) if {"points", "level", operation.swept} <= table.keys() else table
    except (AttributeError, EOFError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError.at(
            str(path), "this is not a table", expected="an .npz file of arrays, or .csv", found=str(error)
        ) from error


def _csv(path: Path, text: str, operation: Operation) -> Table:
    """Sizes and times as numbers, words and remarks as they are."""
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        raise InputError.at(str(path), "the file is empty", expected="a heading and a line for every measurement")
    heading, *rows = [[cell.strip() for cell in line] for line in lines if line]
    table: Table = {}
    with Problems() as problems:
        for place, name in enumerate(map(str.lower, heading)):
            cells = [row[place] if place < len(row) else "" for row in rows]
            coded = name in operation.words and all(cell.lstrip("-").isdigit() for cell in cells)
            if coded or name in (operation.swept, *operation.sizes, "time_us"):
                table[name] = _numbers(path, name, place, cells, problems)
            else:
                table[name] = np.array(cells)
    return table


def _numbers(path: Path, name: str, place: int, cells: list[str], problems: Problems) -> NDArray[np.float64]:
    found = []
    for line, cell in enumerate(cells, start=2):
        try:
            found.append(float(cell))
        except ValueError:
            where = Location(str(path), line, place + 1)
            problems.add(Problem(where, f"column {name} is not a number", "a number", repr(cell)))
            found.append(1.0)
    return np.array(found)


def _wrong(file: str, table: Columns, operation: Operation, answers: bool) -> Iterator[Problem]:
    place = Location(file)
    rows = {len(values) for name, values in table.items() if values.ndim == 1 and not name.endswith("_names")}
    if len(rows) != 1 or 0 in rows:
        yield Problem(place, "the columns hold no rows or differ", "a row per measurement", f"{sorted(rows)} rows")
        return
    needed = [operation.type_column, operation.swept, *operation.words, *operation.sizes]
    for name in dict.fromkeys([*needed, *(["time_us"] if answers else [])]):
        if name not in table and name not in _OPTIONAL:
            known = ", ".join(dict.fromkeys([*needed, "time_us"]))
            found = ", ".join(sorted(one for one in table if not one.endswith("_names")))
            yield Problem(place, f"column {name} is missing", known, found)
    sizes = {operation.swept, *operation.sizes, *(["time_us"] if answers else [])}
    for name in sorted(sizes & set(table)):
        yield from _out_of_range(place, name, table[name])
    for name in sorted(set(operation.words) & set(table)):
        yield from _unspelt(place, name, table)


def _out_of_range(place: Location, name: str, values: NDArray[np.generic]) -> Iterator[Problem]:
    if not np.issubdtype(values.dtype, np.number):
        yield Problem(place, f"column {name} holds no numbers", "numbers", str(values.dtype))
        return
    time, found = name == "time_us", values.astype(float)
    least = 1e-3 if time else float(name not in _OPTIONAL)
    good = (found >= least) & (found < _MOST) & (time | (found == np.rint(found)))
    if not good.all():
        row = int(np.argmin(good))
        wanted = f"a {'' if time else 'whole '}number from {least:g}"
        yield Problem(place, f"column {name}, row {row + 1}", wanted, str(values[row]))


def _unspelt(place: Location, name: str, table: Columns) -> Iterator[Problem]:
    codes, spelt = table[name], table.get(f"{name}_names")
    if codes.dtype.kind not in "biuf" or not np.all(codes.astype(float) == np.rint(codes.astype(float))):
        yield Problem(place, f"column {name} holds no codes", "whole numbers", str(codes.dtype))
    elif spelt is not None and not (int(codes.min(initial=0)) >= 0 and codes.astype(int).max(initial=-1) < len(spelt)):
        yield Problem(place, f"column {name}: a code without its word", f"0 to {len(spelt) - 1}", str(codes.max()))
    elif spelt is not None and name.endswith("dtype"):
        for word in spelt.tolist():
            element_bytes(str(word))


def add_table(path: Path, device: str = "") -> tuple[Entry, float]:
    """Check a table and keep it; one of the same name is replaced. And how many times as long its rows take as known.

    Raises
    ------
    InputError
        If the file's name, its device or its columns are wrong, or the folder cannot be written.
    """
    source, where, operation = columns_of(path, device)
    machine(where)
    table = read_table(path, operation, answers=True)
    packed = pack(operation, table)
    types = [str(word) for word in table.get(f"{operation.type_column}_names", np.array([]))]
    name = f"{source}_{where}_{operation.name}"
    entry = Entry(name, where, operation.name, tuple(types), len(packed["level"]), str(path), "your own", own_folder())
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **packed)  # type: ignore[arg-type]
    own_folder().mkdir(parents=True, exist_ok=True)
    entry.path.unlink(missing_ok=True)
    forget()
    known_us = predicted(operation, where, table)["predicted_us"].astype(float)
    longer = float(np.median(table["time_us"].astype(float) / known_us))
    write_bytes(entry.path, buffer.getvalue())
    index = own_folder() / "index.json"
    lines = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    kept = [line for line in lines if line["name"] != name]
    fields = {key: getattr(entry, key) for key in ("name", "device", "operation", "types", "rows", "source", "licence")}
    write_text(index, json.dumps([*kept, fields], indent=1))
    forget()
    return entry, longer
