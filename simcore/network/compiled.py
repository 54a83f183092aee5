"""`network.core` compiled by numba, over arrays: for runs of so many messages that loading it is repaid."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isfunction, isgeneratorfunction
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.network import core, heaps
from simcore.network.core import MOVING, ROWS, State
from simcore.network.heaps import Rows

ENTRIES = ("begin", "hand_over", "happen", "play")
"""What Python calls of it; `core` calls the rest."""
Table = NDArray[Any]
WIDTHS = {"heads": 9, "timers": 4, "left": 3, "rows": 3}


@cache
def installed() -> bool:
    """Whether numba is there."""
    return find_spec("numba") is not None


@cache
def kept() -> bool:
    """Whether an earlier run has left what it compiled where numba puts it, beside the module."""
    return any(Path(core.__file__).with_name("__pycache__").glob("core.play-*.nbi"))


@cache
def _compiled_core() -> ModuleType:
    """The functions of `core`, with heaps that are arrays."""
    names = ("push", "due_heads", "due_timers", "append", "length", "first_ns")
    rows = _compiled(heaps)
    return _compiled(core, {"State": State, **{name: getattr(rows, name) for name in names}})


def _compiled(source: ModuleType, given: Mapping[str, object] = MappingProxyType({})) -> ModuleType:
    """A copy of a module whose functions are compiled when they are first called, and kept for later runs."""
    from numba import njit

    spec = spec_from_file_location(f"{source.__name__}_compiled", source.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(source.__name__)
    copy = sys.modules[spec.name] = module_from_spec(spec)  # what is kept is loaded by that name
    spec.loader.exec_module(copy)
    vars(copy).update(given)
    for name, value in vars(source).items():
        if type(value) is int:  # a literal would be a type of its own, with functions of its own
            setattr(copy, name, np.int64(value))
        if isfunction(value) and value.__module__ == source.__name__ and name not in given:
            keep = not isgeneratorfunction(value)  # one that is loaded cannot be compiled into others
            wrappers: dict[str, Any] = {"no_cpython_wrapper": name not in ENTRIES, "no_cfunc_wrapper": True}
            setattr(copy, name, njit(cache=keep, **wrappers)(getattr(copy, name)))
    return copy


class Known:
    """The tables that grow as arrays, which follow the lists."""

    def __init__(self, state: State):
        self._lists: dict[str, list[Any]] = {name: getattr(state, name) for name in ROWS if name not in MOVING}
        self._arrays = {name: _records(name, []) for name in self._lists}
        self._lengths = dict.fromkeys(self._lists, 0)

    def arrays(self) -> dict[str, Table]:
        """All of them, as long as they are now."""
        for name, rows in self._lists.items():
            before, now = self._lengths[name], len(rows)
            if now > before:
                self._arrays[name] = _longer(self._arrays[name], now)
                self._arrays[name][before:now] = _records(name, rows[before:])
                self._lengths[name] = now
        return self._arrays


class Arrays:
    """The tables of a `State` as arrays."""

    def __init__(self, state: State, known: Known):
        self.core: Any = _compiled_core()
        self._known = known
        self._lengths = {name: len(getattr(state, name)) for name in MOVING}
        moving = {name: _records(name, getattr(state, name)) for name in MOVING}
        rows = {name: _counted(getattr(state, name), width) for name, width in WIDTHS.items()}
        self.state: Any = State(timed=False, **moving, **rows, **known.arrays())  # type: ignore[arg-type]

    def add(self, name: str, rows: list[Any]) -> None:
        """More rows of a table."""
        before, now = self._lengths[name], self._lengths[name] + len(rows)
        table = _longer(getattr(self.state, name), now)
        table[before:now] = _records(name, rows)
        self._lengths[name] = now
        self.state = self.state._replace(**{name: table})

    def follow(self, entries: int) -> None:
        """All that is known by now, and room in the heaps."""
        heaps = {name: _longer(getattr(self.state, name), entries + 1) for name in WIDTHS if name != "rows"}
        self.state = self.state._replace(**heaps, **self._known.arrays())

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return bool(self.state.left[0, 0])

    def left(self) -> list[tuple[int, ...]]:
        """Who leaves; they are told once."""
        left = self.state.left
        entries = left[1 : left[0, 0] + 1].tolist()
        left[0, 0] = 0
        return entries  # type: ignore[no-any-return]


def _records(name: str, rows: list[Any]) -> Table:
    """Rows of a table as an array; its records have the attributes of the rows."""
    kind = ROWS[name]
    if kind is int:
        return np.array(rows, np.int64)
    names = [each.name for each in fields(kind)]
    return np.array([*map(attrgetter(*names), rows)], [(each, np.int64) for each in names]).view(np.recarray)


def _longer(table: Table, length: int) -> Table:
    """A table with room for more than what is asked for, so that it is copied seldom."""
    if len(table) >= length:
        return table
    more = max(length, 2 * len(table)) - len(table)
    return np.concatenate([table, np.zeros((more, *table.shape[1:]), table.dtype)]).view(type(table))


def _counted(given: Iterable[tuple[int, ...]], width: int) -> Rows:
    """Tuples behind a row that counts them; what is in order is a heap."""
    entries = [*given]
    rows = np.zeros((len(entries) + 1, width), np.int64)
    rows[0, 0] = len(entries)
    if entries:
        rows[1:] = entries
    return rows
