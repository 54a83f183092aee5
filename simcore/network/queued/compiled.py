"""Tables of named rows: lists, and arrays of records for the same functions compiled, where there is much to play."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import fields
from functools import cache
from inspect import isfunction
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.network.compiled import LINE, compiled, in_lines, longer
from simcore.network.queued import laws
from simcore.network.topology.fabric import IntArray

ALL = slice(None)
"""Rows of a table."""
NOTED = {"left": 3, "curves": 4, "times": 3}


class Tables:
    """A state's tables, and the `core` whose functions play on them; what is `noted` is taken again, rows as wide."""

    core: Any
    kinds: Mapping[str, Any]
    """What the rows of each table are."""
    noted: Mapping[str, int] = NOTED

    def __init__(self, state: Any):
        self.state: Any = state
        self._lengths: dict[str, int] = {}
        """Of arrays, which have room for more; of lists, none."""

    @property
    def compiled(self) -> bool:
        """Whether they are arrays."""
        return bool(self._lengths)

    def _become(self, core: ModuleType, arrayed: Any, **others: Any) -> None:
        """Arrays from now on, for a core that is compiled."""
        state, self.core = self.state, core
        self._lengths = {name: len(getattr(state, name)) for name in self.kinds}
        tables = {name: self._records(name, getattr(state, name)) for name in self.kinds}
        noted = {name: np.zeros((1, width), np.int64) for name, width in self.noted.items()}
        self.state = arrayed(**tables, **noted, **others)

    def column(self, name: str, column: str, numbers: Any = ALL) -> NDArray[Any]:
        """Of the rows of some numbers, as an array; of all rows of arrays, the table's own."""
        if self._lengths:
            found: NDArray[Any] = self._array(name, column)[numbers]
            return found
        rows = getattr(self.state, name)
        return self._column(name, column, rows if numbers is ALL else [rows[number] for number in numbers])

    def write(self, name: str, column: str, numbers: Any, values: NDArray[Any]) -> None:
        """Into a column of the rows of some numbers."""
        if self._lengths:
            self._array(name, column)[numbers] = values
            return
        rows = getattr(self.state, name)
        some = rows if numbers is ALL else [rows[number] for number in numbers]
        for row, value in zip(some, values.tolist(), strict=True):
            setattr(row, column, value)

    def _array(self, name: str, column: str) -> NDArray[Any]:
        """A column of a table that is an array, past its records, which are slow to ask."""
        found: NDArray[Any] = getattr(self.state, name).view(np.ndarray)[column][: self._lengths[name]]
        return found

    def copy(self, name: str, numbers: IntArray, like: IntArray, *but: str) -> None:
        """Rows become like others `but` for some columns."""
        rows = getattr(self.state, name)
        kept = [self.column(name, column, numbers) for column in but]
        if self._lengths:
            rows[numbers] = rows[like]
        else:
            copies = [copy(rows[number]) for number in like.tolist()]
            for number, row in zip(numbers.tolist(), copies, strict=True):
                rows[number] = row
        for column, values in zip(but, kept, strict=True):
            self.write(name, column, numbers, values)

    def add(self, name: str, *rows: Any) -> int:
        """The number of the first of new rows."""
        if self._lengths:
            self._room(name, len(rows))[:] = [self._values(name, row) for row in rows]
            return self._lengths[name] - len(rows)
        table = getattr(self.state, name)
        table.extend(rows)
        return len(table) - len(rows)

    def put(self, name: str, number: int, row: Any) -> None:
        """Another row in the place of one."""
        getattr(self.state, name)[number] = self._values(name, row) if self._lengths else row

    def take(self, name: str) -> IntArray:
        """What was noted."""
        rows = getattr(self.state, name)
        if self._lengths:
            count, rows[0, 0] = int(rows[0, 0]), 0
            return rows[1 : count + 1].copy()  # type: ignore[no-any-return]
        found = np.array(rows, np.int64).reshape(-1, self.noted[name])
        rows.clear()
        return found

    def _room(self, name: str, more: int) -> Any:
        """So many new rows of an array."""
        before = self._lengths[name]
        now = self._lengths[name] = before + more
        self._lengthen(name, now)
        return getattr(self.state, name)[before:now]

    def _lengthen(self, name: str, rows: int) -> None:
        table = longer(getattr(self.state, name), rows)
        if table is not getattr(self.state, name):
            self.state = self.state._replace(**{name: table})

    def _records(self, name: str, rows: list[Any]) -> Any:
        """Rows as an array; its records have the attributes of the rows."""
        kind = type_of(self.kinds[name])
        if kind.names is None:
            return np.array(rows, kind)
        found = in_lines(len(rows), kind).view(np.recarray)
        for column in kind.names:
            found[column] = self._column(name, column, rows)
        return found

    def _column(self, name: str, column: str, rows: Sequence[Any]) -> NDArray[Any]:
        """Of rows of a list; a law has not all columns."""
        kind = self.kinds[name]
        read = (getattr(row, column, 0) for row in rows) if kind is laws.Law else map(attrgetter(column), rows)
        return np.fromiter(read, type_of(kind)[column], len(rows))

    def _values(self, name: str, row: Any) -> Any:
        """A row, as an array has it."""
        return _values_of(self.kinds[name])(row)


@cache
def columns_of(kind: Any) -> dict[str, str]:
    """Columns of a kind of rows, and what their values are. A law has those of all laws."""
    if kind is laws.Law:
        kinds = map(laws.LAWS.get, laws.LAWS.names())
        return {each.name: str(each.type) for own in kinds for each in fields(own)}
    return {} if kind is int else dict(kind.__annotations__)


@cache
def type_of(kind: Any) -> np.dtype[Any]:
    """Of rows, in columns of whole numbers or not."""
    words = {column: _word(of) for column, of in columns_of(kind).items()}
    if not words:
        return np.dtype(np.int64)
    own: Any = np.dtype([*words.items()], align=True)
    places = {"offsets": [own.fields[name][1] for name in words], "itemsize": _length(own.itemsize)}
    return np.dtype((np.record, {"names": [*words], "formats": [*words.values()], **places}))


def _length(size_bytes: int) -> int:
    """Of a row of so many bytes, with what keeps all rows from lying in more lines than they need."""
    return -(-size_bytes // LINE) * LINE if size_bytes > LINE // 2 else 1 << (size_bytes - 1).bit_length()


def _word(of: str) -> str:
    """The type of a column."""
    return "f8" if "float" in of else "i4" if "Row" in of else "i8"


@cache
def _values_of(kind: Any) -> Callable[[Any], Any]:
    """What takes a row's values; a law has not all columns."""
    columns = columns_of(kind)
    if kind is laws.Law:
        return lambda row: tuple(getattr(row, each, 0) for each in columns)
    return attrgetter(*columns) if columns else kind


def with_laws(core: ModuleType, entries: Collection[str], given: Mapping[str, Any], *base: ModuleType) -> ModuleType:
    """The functions of a core compiled, with those of `laws`, of its `base` and others that are given."""
    rules = compiled(laws, (), {}, inline=True)
    names = {name: value for module in (*base, core) for name, value in vars(module).items() if isfunction(value)}
    used = [name for name, value in names.items() if value.__module__ == laws.__name__]
    return compiled(core, entries, {name: getattr(rules, name) for name in used} | dict(given), inline=True, base=base)
