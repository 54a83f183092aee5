"""`network.core` compiled by numba, over arrays: for runs of so many messages that loading it is repaid."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isfunction
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simcore.network import heaps
from simcore.network.core import Columns, State
from simcore.network.heaps import Heap
from simcore.network.in_order import StateInOrder
from simcore.network.lists import bound, modules_of

Table = NDArray[Any]
WIDTHS = {"heads": 10, "timers": 4}
LINE = 64
"""Bytes that a cache loads at once."""
_Arrayed = cast("Any", namedtuple("_Arrayed", [each.name for each in fields(State)]))
_InOrder = cast("Any", namedtuple("_InOrder", [each.name for each in fields(StateInOrder)]))
_ARRAYED = {State: _Arrayed, StateInOrder: _InOrder}


@cache
def installed() -> bool:
    """Whether numba is there."""
    return find_spec("numba") is not None


@cache
def kept(source: ModuleType) -> bool:
    """Whether an earlier run has left what it compiled of a module where numba puts it, beside it."""
    module = Path(str(source.__file__))
    _remove_outdated(module.with_name("__pycache__"))
    return any(module.with_name("__pycache__").glob(f"{module.stem}.play-*.nbi"))


@cache
def _remove_outdated(folder: Path) -> None:
    """What is older than any module of the network: numba looks only at that whose function Python calls."""
    changed = max(each.stat().st_mtime for each in Path(__file__).parent.rglob("*.py"))
    for index in folder.glob("*.nbi"):
        with suppress(OSError):  # somebody else's, or removed by somebody else
            if index.stat().st_mtime < changed:
                index.unlink()


@cache
def compiled_heaps() -> dict[str, Any]:
    """What a core needs of `heaps` in place of lists and their heaps."""
    rows = compiled(heaps, (), {"Heap": Heap})
    names = ("push", "pop_head", "pop_timer", "swap", "first", "append", "length")
    return {name: getattr(rows, name) for name in names}


@cache
def _compiled_core(entries: tuple[str, ...], *modules: ModuleType) -> ModuleType:
    """The functions of a kind of state, with heaps that are arrays."""
    *base, own = modules
    return compiled(own, entries, compiled_heaps(), base=base, inline=bool(base))


def compiled(
    source: ModuleType,
    entries: Collection[str],
    given: Mapping[str, object],
    *,
    inline: bool = False,
    base: Sequence[ModuleType] = (),
) -> ModuleType:
    """A copy of a module whose functions are compiled when they are first called, and kept for later runs.

    Python calls the `entries`; what is `given` takes the place of what the module has, which takes that of what its
    `base` has. A call hands over all tables, word by word: where tables are many, functions are better put `inline`,
    which takes longer to compile.
    """
    import numba

    _remove_outdated(Path(str(source.__file__)).with_name("__pycache__"))
    njit: Any = numba.njit  # whose types know some of its options
    spec = spec_from_file_location(f"{source.__name__}_compiled", source.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(source.__name__)
    copy = sys.modules[spec.name] = module_from_spec(spec)  # what is kept is loaded by that name
    spec.loader.exec_module(copy)
    modules = [*base, source]
    for module in modules:
        for name, value in vars(module).items():
            if type(value) is int:  # a literal would be a type of its own, with functions of its own
                setattr(copy, name, np.int64(value))
    names = bound(vars(copy), modules)
    names.update(given)
    for name, value in names.items():
        if isfunction(value) and value.__globals__ is names:
            inner = name not in entries
            within = inline and inner  # kept with what it is put into: on its own another copy's would be taken for it
            options = {"no_cpython_wrapper": inner, "no_cfunc_wrapper": True, "forceinline": within}
            # All arrays are Python's: to count who refers to them at every call takes longer than the calls.
            names[name] = njit(cache=not within, _nrt=False, **options)(value)
    return copy


class Known:
    """The tables that grow as arrays, which follow the lists and the columns."""

    def __init__(self, state: State, columns: Mapping[str, Columns]):
        self._lists: dict[str, list[Any]] = {
            name: getattr(state, name) for name in state.kinds if name not in state.moving
        }
        self._columns = columns
        self._arrays = {name: _records(name, []) for name in self._lists}
        self._lengths = dict.fromkeys(self._lists, 0)

    def arrays(self) -> dict[str, Table]:
        """All of them, as long as they are now."""
        for name, rows in self._lists.items():
            before, own = self._lengths[name], self._columns.get(name)
            self._lengths[name] = now = own.length if own else len(rows)
            if now > before:
                table = self._arrays[name] = longer(self._arrays[name], now)
                if own is None:
                    table[before:now] = _records(name, rows[before:])
                    continue
                for column, parts in zip(table.dtype.names or (), own.since(before), strict=True):
                    table[column][before:now] = parts
        return self._arrays


class Arrays:
    """The tables of a `State` as arrays."""

    def __init__(self, state: State, known: Known):
        self.core: Any = _compiled_core(state.entries, *modules_of(type(state)))
        self._known = known
        self._lengths = {name: len(getattr(state, name)) for name in state.moving}
        moving = {name: _records(name, getattr(state, name)) for name in state.moving}
        heaps = {name: Heap.of(sorted(getattr(state, name)), width) for name, width in WIDTHS.items()}
        nobody = np.zeros((1, 3), np.int64)
        made = _ARRAYED[type(state)]
        self.state: Any = made(left=nobody, rows=nobody, timed=False, **moving, **heaps, **known.arrays())

    def add(self, name: str, rows: list[Any]) -> None:
        """More rows of a table."""
        before, now = self._lengths[name], self._lengths[name] + len(rows)
        table = longer(getattr(self.state, name), now)
        table[before:now] = _records(name, rows)
        self._lengths[name] = now
        self.state = self.state._replace(**{name: table})

    def follow(self, entries: int) -> None:
        """All that is known by now, and room in the heaps."""
        lines = 2 * max(self._lengths["links"], self._lengths["slots"]) + 1
        heaps = {name: getattr(self.state, name).with_room(entries, lines) for name in WIDTHS}
        left = longer(self.state.left, entries + 1)
        self.state = self.state._replace(left=left, **heaps, **self._known.arrays())

    @property
    def next(self) -> tuple[int, int]:
        """When the first of the heads comes, and its order."""
        heads = self.state.heads
        return int(heads.times[0]), int(heads.rows[heads.which[0], 1])

    @property
    def late(self) -> bool:
        """As of `Lists`."""
        return bool(self.state.heads.ends[0] > 1)

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return bool(self.state.left[0, 0])

    def left(self) -> list[tuple[int, ...]]:
        """Who leaves; they are told once."""
        left = self.state.left
        count, left[0, 0] = int(left[0, 0]), 0
        return left[1 : count + 1].tolist() if count else []


def _records(name: str, rows: list[Any]) -> Table:
    """Rows of a table as an array; its records have the attributes of the rows."""
    kind = StateInOrder.kinds[name]
    if kind is int:
        return np.array(rows, np.int64)
    names: tuple[str, ...] = kind.__match_args__
    return np.array([*map(attrgetter(*names), rows)], [(each, np.int64) for each in names]).view(np.recarray)


def in_lines(shape: int | tuple[int, ...], kind: np.dtype[Any]) -> Table:
    """As `numpy.zeros`; it begins with a line of a cache."""
    size_bytes = int(np.prod(shape)) * kind.itemsize
    room = np.zeros(size_bytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + size_bytes].view(kind).reshape(shape)


def longer(table: Table, length: int) -> Table:
    """A table with room for more than what is asked for, so that it is copied seldom.

    Its type is the very same object, not an equal one: numba looks at that in every call, and comparing takes longer.
    """
    if len(table) >= length:
        return table
    found = in_lines((max(length, 2 * len(table)), *table.shape[1:]), table.dtype).view(type(table))
    found[: len(table)] = table
    return found
