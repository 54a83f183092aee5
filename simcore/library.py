"""What comes with the package: topologies/ and workloads/, from a checkout or a wheel alike, and tables of modules."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Literal

from simcore.errors import InputError, closest

Shelf = Literal["topologies", "workloads"]
SUFFIXES = {"topologies": (".yaml", ".yml", ".json"), "workloads": (".txt", ".yaml", ".et")}
GROUPS = ".groups.json"
TRACE_SUFFIXES = {".et", ".eg", ".gz", ".json"}
RANK_FILE = re.compile(r"((?P<prefix>.*)\.)?(?P<rank>\d+)(?P<suffix>\.e[tg](\.gz)?|\.json(\.gz)?)")
"""The name of the trace of a rank of a set."""


def folder(shelf: Shelf) -> Path:
    """Where the shipped files of a kind are."""
    package = Path(__file__).parent
    checkout = package.parent / shelf
    return checkout if (package.parent / "pyproject.toml").exists() else package / "_library" / shelf


def names(shelf: Shelf) -> list[str]:
    """Names of the shipped files, sorted."""
    return sorted(path.stem for path in folder(shelf).iterdir() if path.suffix in SUFFIXES[shelf])


def resolve(name: str, shelf: Shelf) -> Path:
    """The path meant by `name`: a file or folder as it is, otherwise a shipped example; InputError names the nearest.

    A folder that is none of this shelf, as what a run has written, hides no example.

    >>> resolve("pyproject", "topologies")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    simcore.errors.InputError: pyproject: error: there is no such file, and no such name in topologies/...
    """
    path = Path(name)
    if not name:
        raise InputError.at(shelf, "there is no name", expected="a path or the name of a shipped example")
    if (shelf == "workloads" and is_set(path)) or path.suffix or len(path.parts) > 1:
        return path
    shipped = next(filter(exists, (folder(shelf) / f"{name}{suffix}" for suffix in SUFFIXES[shelf])), None)
    if exists(path) and (shipped is None or not path.is_dir() or (shelf == "workloads" and _holds_workload(path))):
        return path
    if shipped is not None:
        return shipped
    raise InputError.at(
        name,
        f"there is no such file, and no such name in {shelf}/",
        expected=f"a path or the name of a shipped example; {closest(name, names(shelf))}",
        found=repr(name),
    )


def _holds_workload(place: Path) -> bool:
    """Whether a folder holds traces of ranks, or rows or traces of a wafer's nodes."""
    if any(RANK_FILE.fullmatch(file.name) or file.suffix == ".et" for file in place.iterdir()):
        return True
    return any(any(place.glob(f"{above}node_*")) for above in ("", "*/", "*/*/"))


def is_set(prefix: Path) -> bool:
    """Whether there are traces of this prefix; JSON files only with one of rank 0, as many other things are JSON."""
    found = (prefix.parent.glob(f"{glob.escape(prefix.name)}.{ending}") for ending in ("*.e[tg]*", "0.json*"))
    return any(map(any, found))


def groups_of(traces: str | Path) -> str:
    """PREFIX.groups.json beside the traces that a prefix, or the folder that holds them, names; "" without one."""
    place = Path(traces)
    inside = place.glob(f"*{GROUPS}") if place.is_dir() else ()
    found = [file for file in inside if is_set(Path(str(file).removesuffix(GROUPS)))] or [Path(f"{traces}{GROUPS}")]
    return str(found[0]) if len(found) == 1 and found[0].is_file() else ""


def is_program(path: Path) -> bool:
    """Whether a workload is one of rows or a specification, and no traces."""
    return (
        path.suffix not in TRACE_SUFFIXES
        and not path.is_dir()
        and (path.is_file() or (path.suffix != "" and not is_set(path)))
    )


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that no file can have is none."""
    try:
        return path.exists()
    except OSError:
        return False


def table(module: str, name: str, columns: int = 0) -> list[list[str]]:
    """The rows of a text file beside a module: cells two blanks or more apart, the last of `columns` takes the rest.

    Lines that begin with `#` are comments.
    """
    lines = Path(module).with_name(name).read_text(encoding="utf-8").splitlines()
    return [re.split(r"\s{2,}", line, maxsplit=max(columns - 1, 0)) for line in lines if line and line[0] != "#"]
