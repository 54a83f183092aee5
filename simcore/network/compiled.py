"""`network.core` compiled by numba, over arrays: for runs of so many messages that loading it is repaid."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isfunction, isgeneratorfunction
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from simcore.network import core, heaps
from simcore.network.core import KNOWN, MOVING, State
from simcore.network.heaps import Rows

__all__ = ["Arrays", "Known", "installed"]

WIDTHS = {"heads": 9, "timers": 4, "left": 3, "rows": 3}


@cache
def installed() -> bool:
    """Whether numba is there."""
    return find_spec("numba") is not None


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
        if isfunction(value) and value.__module__ == source.__name__ and name not in given:
            keep = not isgeneratorfunction(value)  # one that is loaded cannot be compiled into others
            setattr(copy, name, njit(cache=keep)(getattr(copy, name)))
    return copy


class Known:
    """The columns of kinds and layouts as arrays, which follow the lists."""

    def __init__(self, state: State):
        self._lists: dict[str, list[int]] = {name: getattr(state, name) for name in KNOWN}
        self._arrays = {name: np.zeros(0, np.int64) for name in KNOWN}
        self._lengths = dict.fromkeys(KNOWN, 0)

    def arrays(self) -> dict[str, Rows]:
        """All of them, as long as they are now."""
        for name, values in self._lists.items():
            before, now = self._lengths[name], len(values)
            if now > before:
                self._arrays[name] = _longer(self._arrays[name], now)
                self._arrays[name][before:now] = values[before:]
                self._lengths[name] = now
        return self._arrays


class Arrays:
    """The columns of a `State` as arrays."""

    def __init__(self, state: State, known: Known):
        self.core: Any = _compiled_core()
        self._known = known
        moving = {name: np.array(getattr(state, name), np.int64) for name in MOVING}
        rows = {name: _rows(getattr(state, name), width) for name, width in WIDTHS.items()}
        self.state: Any = State(timed=False, **moving, **rows, **known.arrays())  # type: ignore[arg-type]

    def widen(self, names: Sequence[str], length: int) -> None:
        """Columns of at least such a length."""
        columns = {name: getattr(self.state, name) for name in names}
        short = {name: _longer(column, length) for name, column in columns.items() if len(column) < length}
        if short:
            self.state = self.state._replace(**short)

    def follow(self, entries: int) -> None:
        """All that is known by now, and room in the heaps."""
        self.widen([name for name in WIDTHS if name != "rows"], entries + 1)
        self.state = self.state._replace(**self._known.arrays())

    def left(self) -> list[tuple[int, ...]]:
        """Who leaves; they are told once."""
        left = self.state.left
        entries = left[1 : left[0, 0] + 1].tolist()
        left[0, 0] = 0
        return entries  # type: ignore[no-any-return]


def _longer(column: Rows, length: int) -> Rows:
    """A column with room for more than what is asked for, so that it is copied seldom."""
    if len(column) >= length:
        return column
    more = max(length, 2 * len(column)) - len(column)
    return np.concatenate([column, np.zeros((more, *column.shape[1:]), np.int64)])


def _rows(given: Iterable[tuple[int, ...]], width: int) -> Rows:
    """Tuples behind a row that counts them; what is in order is a heap."""
    entries = [*given]
    rows = np.zeros((len(entries) + 1, width), np.int64)
    rows[0, 0] = len(entries)
    if entries:
        rows[1:] = entries
    return rows
