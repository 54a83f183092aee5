"""Results as an append-only file of JSON lines: what was written survives, a torn last line never happened."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from simcore.errors import InputError, Location, SimulationError
from simcore.sweep.run import Row


def read_rows(path: Path) -> dict[str, Row]:
    """Key -> row, the last of equal keys; no rows where there is no file.

    Raises
    ------
    InputError
        If a line that ends is not a row: somebody else wrote to the file.
    """
    if not path.exists():
        return {}
    *lines, _torn = path.read_bytes().split(b"\n")
    rows = dict[str, Row]()
    for number, line in enumerate(lines, 1):
        try:
            row = msgspec.json.decode(line, type=Row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            place, expected = Location(str(path), number, 1), "a line written by simcore sweep"
            raise InputError.at(place, "this line is not a result", expected=expected, found=str(error)) from error
        rows[row["key"]] = row
    return rows


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Row], None]]:
    """A function that adds a row and returns when it is on the disk; one process at a time.

    Raises
    ------
    InputError
        If another sweep writes to the file, or it cannot be written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise InputError.at(str(path), "cannot be written", found=error.strerror or str(error)) from error
    try:
        _lock(file, path)
        os.ftruncate(file, path.read_bytes().rfind(b"\n") + 1)  # without a torn last line
        yield lambda row: _append(file, path, row)
    finally:
        os.close(file)


def _lock(file: int, path: Path) -> None:
    """Kept until the file is closed, at the latest by the end of the process, however it ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError.at(
            str(path), "another sweep is writing here", hint="wait for it, or take another -o"
        ) from error


def _append(file: int, path: Path, row: Row) -> None:
    line = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    try:
        whole = os.write(file, line) == len(line)
        os.fsync(file)
    except OSError:
        whole = False
    if not whole:
        raise SimulationError(f"{path}: a result could not be written whole: is the disk full? Run again to go on")
