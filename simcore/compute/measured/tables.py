"""Measured tables on disk: which there are, and the curves of one of them.

A table is a compressed numpy file `SOURCE_DEVICE_OPERATION.npz`: one array per column of a configuration (words as
codes with their spelling in `COLUMN_names`), `points` = how many points its curve has, and for all points the swept
size and `level` = 2,048 x log2 of the microseconds (a step of 0.03 %). `index.json` lists them all. A user's own are
found in the folder `own_folder()` and come first; one whose file was deleted is none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured.curves import Columns, Curves, Floats, Integers
from simcore.compute.measured.operations import OPERATIONS, Operation

Word = str | int | None
ANY = "*"  # agrees with every word
LEVELS = 2048.0  # an octave of time
SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the index. `types`: data types; `rows`: measured points; `folder`: where it is."""

    name: str
    device: str
    operation: str
    types: tuple[str, ...]
    rows: int
    source: str
    licence: str
    folder: Path = SHIPPED

    @property
    def path(self) -> Path:
        """Where its numbers are."""
        return self.folder / f"{self.name}.npz"

    @property
    def own(self) -> bool:
        """Whether the user brought it."""
        return self.folder != SHIPPED


def own_folder() -> Path:
    """Where a user's tables are: $SIMCORE_TABLES, or simcore/tables in the user's data folder."""
    return _folder(*map(os.environ.get, ("SIMCORE_TABLES", "XDG_DATA_HOME", "HOME")))


@lru_cache(maxsize=16)
def _folder(given: str | None, data: str | None, home: str | None) -> Path:
    del home  # that of Path.home(), which asks more
    shared = Path(data) if data else Path.home() / ".local" / "share"
    return Path(given) if given else shared / "simcore" / "tables"


_forgotten: list[Callable[[], None]] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])


def remembered(most: int) -> Callable[[_Function], _Function]:
    """Keeps a function's answers until a table is added; the first argument of what reads tables is `own_folder()`."""

    def decorated(function: _Function) -> _Function:
        kept = lru_cache(maxsize=most)(function)
        _forgotten.append(kept.cache_clear)
        return cast("_Function", kept)

    return decorated


def entries() -> tuple[Entry, ...]:
    """All tables, the user's own first."""
    return _listed(own_folder()) + _listed(SHIPPED)


@remembered(4)
def _listed(folder: Path) -> tuple[Entry, ...]:
    index = folder / "index.json"
    lines = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    listed = (Entry(**{**line, "types": tuple(line["types"]), "folder": folder}) for line in lines)
    return tuple(one for one in listed if one.path.exists())


def forget() -> None:
    """Read everything again when it is asked for next (a table was added)."""
    for forget_one in _forgotten:
        forget_one()


def split_name(name: str) -> tuple[str, str, str] | None:
    """Source, device and operation that a table's name says; None where it names no operation.

    >>> split_name("aic_rtx_pro_6000_gemm_sustained")
    ('aic', 'rtx_pro_6000', 'gemm_sustained')
    """
    source, *words = name.split("_")
    for cut in range(1, len(words)):
        if "_".join(words[cut:]) in OPERATIONS:
            return source, "_".join(words[:cut]), "_".join(words[cut:])
    return None


@remembered(12)
def _archive(path: Path) -> Columns:
    with np.load(path) as archive:
        return dict(archive)


def words_of(columns: Columns, name: str) -> list[Word]:
    """A column of words spelt out; numbers as they are; None where the table has no such column."""
    if name not in columns:
        return [None] * len(next(iter(columns.values())))
    if f"{name}_names" in columns:
        spelt = columns[f"{name}_names"].tolist()
        return [str(spelt[code]) for code in columns[name].tolist()]
    return [int(value) for value in columns[name].tolist()]


@remembered(256)
def curves(entry: Entry, words: tuple[Word, ...]) -> Curves | None:
    """The curves of a table whose words agree; None agrees with the word that has most points."""
    archive, operation = _archive(entry.path), OPERATIONS[entry.operation]
    agreed = np.ones(len(archive["points"]), bool)
    for name, wanted in zip(operation.words, words, strict=True):
        if name in archive and agreed.any():
            agreed &= _agreeing(archive, name, wanted, agreed)
    if not agreed.any():
        return None
    points = archive["points"].astype(np.int64)
    chosen = np.repeat(agreed, points)
    sizes = operation.filled({name: archive[name][agreed] for name in ("points", *operation.sizes) if name in archive})
    mixed = [name for name, word in zip(operation.words, words, strict=True) if word == ANY and name in archive]
    spelt = {name: np.array(words_of(archive, name))[agreed] for name in mixed}
    first = np.concatenate([[0], np.cumsum(points[agreed])])
    along = np.log2(archive[operation.swept][chosen].astype(float))
    log_us = archive["level"][chosen].astype(float) * (np.log(2) / LEVELS)
    return Curves(entry.name, {**sizes, **spelt}, operation.places(sizes), first, along, log_us, ANY in words)


def _agreeing(archive: Columns, name: str, wanted: Word, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which configurations have the wanted word."""
    codes = archive[name].astype(np.int64)
    if wanted == ANY:
        return np.ones(len(codes), bool)
    if wanted is None:
        counts = np.bincount(codes[among], weights=archive["points"][among].astype(float))
        return np.asarray(codes == int(np.argmax(counts)))
    if f"{name}_names" in archive:
        spelt = archive[f"{name}_names"].tolist()
        return np.asarray(codes == (spelt.index(wanted) if wanted in spelt else -1))
    return np.asarray(codes == int(wanted))


def pack(operation: Operation, columns: Columns) -> dict[str, NDArray[np.generic]]:
    """The arrays of a table's file from its rows; rows that say the same sizes twice become their median."""
    keys = [name for name in (*operation.words, *operation.sizes, operation.swept) if name in columns]
    rows = np.stack([columns[name].astype(np.int64) for name in keys], axis=1)
    unique, which = np.unique(rows, axis=0, return_inverse=True)
    log_us = _medians(np.log2(columns["time_us"].astype(float)), which.ravel())
    heads, points = np.unique(unique[:, :-1], axis=0, return_counts=True)
    packed: dict[str, NDArray[np.generic]] = {
        name: _smallest(heads[:, place]) for place, name in enumerate(keys) if name != operation.swept
    }
    packed |= {f"{name}_names": columns[f"{name}_names"] for name in keys if f"{name}_names" in columns}
    level = np.clip(np.rint(log_us * LEVELS), 0, 65535).astype(np.uint16)
    return packed | {"points": _smallest(points), operation.swept: _smallest(unique[:, -1]), "level": level}


def unpack(operation: Operation, packed: Columns) -> dict[str, NDArray[np.generic]]:
    """Rows whose arrays `pack` has made; ValueError if it has not."""
    points, level = packed["points"].astype(np.int64), packed["level"]
    if len(level) != points.sum() or len(packed[operation.swept]) != len(level):
        raise ValueError("curves are not as long as they say")
    names = [name for name in packed if name not in ("points", "level", operation.swept)]
    rows = {name: packed[name] if name.endswith("_names") else np.repeat(packed[name], points) for name in names}
    return rows | {operation.swept: packed[operation.swept], "time_us": np.exp2(level.astype(float) / LEVELS)}


def _medians(values: Floats, which: Integers) -> Floats:
    """The median of the values that belong together, in the order of their numbers."""
    order = np.lexsort((values, which))
    first = np.searchsorted(which[order], np.arange(which.max() + 1))
    count = np.diff(np.append(first, len(which)))
    middle = (values[order][first + (count - 1) // 2] + values[order][first + count // 2]) / 2
    return np.asarray(middle)


def _smallest(values: Integers) -> NDArray[np.generic]:
    """In the narrowest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
