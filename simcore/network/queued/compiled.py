"""The tables of `queued.core`: as lists, and as arrays for its functions compiled, where there is much to play."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from inspect import isfunction
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simcore.network import heaps
from simcore.network.compiled import compiled, compiled_heaps, kept, longer
from simcore.network.core import NEVER
from simcore.network.queued import calendar, core, laws
from simcore.network.queued.calendar import Calendar
from simcore.network.queued.tables import ROWS, TABLES, Credit, Reading, Segment, State
from simcore.network.topology.fabric import IntArray

WIDTHS = {"heads": 8, "timers": 4}
NOTED = {"left": 3, "curves": 4, "times": 3}
TO_COMPILE, TO_LOAD = 3_000_000, 100_000
"""So many events take as long as to compile, and as to load what was compiled."""
_Arrayed = cast("Any", namedtuple("_Arrayed", [name for name in State.__slots__ if name != "choose"]))


def repaid(events: int, ahead: int) -> bool:
    """Whether to play on compiled, after so many events and with at least so many ahead.

    A first run compiles where that is surely repaid, or takes little beside what has been played.
    """
    if _compiled_core.cache_info().currsize:
        return True
    return events + ahead >= TO_LOAD if kept(core) else ahead >= TO_COMPILE or events >= 4 * TO_COMPILE


class Lists:
    """A state whose tables are lists."""

    core: Any = core
    events_of_a_look = 1
    """So many take as long as to look at a row."""

    def __init__(self, state: State):
        self.state: Any = state

    def column(self, name: str, column: str) -> NDArray[Any]:
        """Of a table, as an array."""
        rows = getattr(self.state, name)
        return np.fromiter((getattr(row, column, 0) for row in rows), _type(name)[column], len(rows))

    def write(self, name: str, column: str, values: NDArray[Any]) -> None:
        """Into a column."""
        for row, value in zip(getattr(self.state, name), values.tolist(), strict=True):
            setattr(row, column, value)

    def heads(self) -> tuple[IntArray, ...]:
        """Times and segments of heads, in order."""
        return _columns([(head[0], head[-1]) for head in sorted(self.state.heads)[:-1]], 2)

    def timers(self) -> tuple[IntArray, ...]:
        """Times, kinds, of whom and bytes of changes, in order."""
        return _columns([(time, kind % core.KINDS, *rest) for time, kind, *rest in sorted(self.state.timers)[:-1]], 4)

    def later(self, time_ns: int) -> None:
        """All that is known happens so much later; for a law that goes by the clock time goes by."""
        for name, column in _times():
            values = self.column(name, column)
            moves = self.column(name, "by_clock") == 0 if name == "laws" else values >= 0
            self.write(name, column, values + time_ns * moves)
        self._later(time_ns)

    def _later(self, time_ns: int) -> None:
        for entries in (self.state.heads, self.state.timers):
            entries[:] = [(time if time == NEVER else time + time_ns, *rest) for time, *rest in entries]

    def add(self, name: str, row: object) -> int:
        """The number of a new row."""
        self.extend(name, [row])
        return len(getattr(self.state, name)) - 1

    def extend(self, name: str, rows: list[Any]) -> None:
        """New rows."""
        getattr(self.state, name).extend(rows)

    def put(self, name: str, number: int, row: object) -> None:
        """Another row in the place of one."""
        getattr(self.state, name)[number] = row

    def take(self, name: str) -> IntArray:
        """What was noted."""
        rows = getattr(self.state, name)
        found = np.array(rows, np.int64).reshape(-1, NOTED[name])
        rows.clear()
        return found

    def grow(self) -> None:
        """Make room for twice as many segments, readings and credits."""
        segments = self._longer("segments", Segment, 64)
        self._longer("readings", Reading, 4 * segments)
        self._longer("credits", Credit, 4 * segments)

    def _longer(self, name: str, kind: Any, least: int) -> int:
        counts, free, room = self.state.counts[0], f"free_{name}", f"room_of_{name}"
        before = int(getattr(counts, room))
        after = max(2 * before, least)
        self._chain(name, kind, range(before + 1, after), int(getattr(counts, free)))
        setattr(counts, free, before)
        setattr(counts, room, after)
        return after

    def _chain(self, name: str, kind: Any, following: range, last: int) -> None:
        """More rows, each of which leads to the next one and the last one to one that is free."""
        getattr(self.state, name).extend(map(kind, (*following, last)))


class Arrays(Lists):
    """The same tables as arrays. Of keys, which are numbers here, the first and the last decide who goes first."""

    events_of_a_look = 50

    def __init__(self, lists: Lists):
        self.core = _compiled_core()
        state = lists.state
        self._lengths = {name: len(getattr(state, name)) for name in (*TABLES, "laws")}
        tables = {name: _records(name, getattr(state, name)) for name in self._lengths}
        heads = [(time, order[0] if order else 0, *rest) for time, order, *rest in sorted(state.heads)[:-1]]
        entries = {"heads": heads, "timers": sorted(state.timers)[:-1]}
        rows = {name: np.array(entries[name], np.int64).reshape(-1, width) for name, width in WIDTHS.items()}
        calendars = {name: Calendar.of(each, 0) for name, each in rows.items()}
        self.state = _Arrayed(**tables, **calendars, **dict.fromkeys(NOTED))
        self._follow()

    def column(self, name: str, column: str) -> NDArray[Any]:
        """As `Lists.column`, in its place."""
        found: NDArray[Any] = getattr(self.state, name)[column][: self._lengths[name]]
        return found

    def write(self, name: str, column: str, values: NDArray[Any]) -> None:
        """As `Lists.write`."""
        self.column(name, column)[:] = values

    def heads(self) -> tuple[IntArray, ...]:
        """As `Lists.heads`."""
        rows = self.state.heads.entries()
        return rows[:, 0], rows[:, -1]

    def timers(self) -> tuple[IntArray, ...]:
        """As `Lists.timers`."""
        rows = self.state.timers.entries()
        return rows[:, 0], rows[:, 1] % core.KINDS, rows[:, 2], rows[:, 3]

    def _later(self, time_ns: int) -> None:
        self.state = self.state._replace(**{name: getattr(self.state, name).again(time_ns) for name in WIDTHS})

    def add(self, name: str, row: Any) -> int:
        """As `Lists.add`."""
        self.extend(name, [row])
        return self._lengths[name] - 1

    def extend(self, name: str, rows: list[Any]) -> None:
        """As `Lists.extend`."""
        self._extended(name, len(rows))[:] = _records(name, rows)

    def put(self, name: str, number: int, row: object) -> None:
        """As `Lists.put`."""
        getattr(self.state, name)[number] = _values(name, row)

    def _extended(self, name: str, more: int) -> Any:
        """So many new rows."""
        before = self._lengths[name]
        now = self._lengths[name] = before + more
        table = longer(getattr(self.state, name), now)
        self.state = self.state._replace(**{name: table})
        return table[before:now]

    def _chain(self, name: str, kind: Any, following: range, last: int) -> None:
        table = self._extended(name, len(following) + 1)
        table[:] = _records(name, [kind(last)])[0]
        table["next"][:-1] = following

    def take(self, name: str) -> IntArray:
        """As `Lists.take`."""
        rows = getattr(self.state, name)
        found: IntArray = rows[1 : rows[0, 0] + 1].copy()
        rows[0, 0] = 0
        return found

    def grow(self) -> None:
        """As `Lists.grow`, and more room in the calendars."""
        super().grow()
        self._follow()

    def _follow(self) -> None:
        """Room for what is to come, and for what is noted, of which nothing is left now."""
        state, segments = self.state, int(self.state.counts[0].room_of_segments)
        counts = state.counts[0]
        counts.room_of_changes, counts.room_of_rows = 8 * segments, ROWS + 4 * segments
        calendars = {"heads": state.heads.again(0, segments), "timers": state.timers.again(0, 8 * segments)}
        noted = {name: np.zeros((counts.room_of_rows + 1, width), np.int64) for name, width in NOTED.items()}
        self.state = state._replace(**calendars, **noted)


@cache
def _compiled_core() -> ModuleType:
    """The functions of `core`, with those of `laws` and with calendars that are arrays."""
    import numba

    rules = compiled(laws, (), {}, inline=True)
    used = (name for name, value in vars(core).items() if isfunction(value) and value.__module__ == laws.__name__)
    lists = {name: compiled_heaps()[name] for name in ("append", "length")}
    given = {name: getattr(rules, name) for name in used} | lists | _calendars()
    njit: Any = numba.njit
    several = {"several": njit(_nrt=False, cache=True)(_nowhere)}
    return compiled(core, ("at", "play"), given | several, inline=True)


def _calendars() -> dict[str, Any]:
    """What a core needs of `calendar` in place of heaps."""
    import numba
    from numba.cpython.unsafe import numbers

    njit: Any = numba.njit
    leading_zeros: Any = numbers.leading_zeros
    bits = njit(_nrt=False)(lambda number: 64 - leading_zeros(number))
    rows = compiled(calendar, (), {"bits": bits}, base=(heaps,), inline=True)
    return {name: getattr(rows, name) for name in ("first", "push", "pop_head", "pop_timer")}


def _nowhere(_s: Any, _pair: int, _turn: int, _now: int) -> int:
    """In place of `core.several`: what crosses several dimensions is played in lists."""
    return -1


@cache
def _type(name: str) -> np.dtype[Any]:
    """Of the rows of a table, in columns of whole numbers or not."""
    words = {column: "f8" if "float" in kind else "i8" for column, kind in _columns_of(name).items()}
    return np.dtype((np.record, [*words.items()]))


def law_type() -> np.dtype[Any]:
    """Of the records of laws."""
    return _type("laws")


@cache
def _times() -> list[tuple[str, str]]:
    """Tables, and their columns that are moments."""
    tables = [name for name in (*TABLES, "laws") if name != "routes"]
    return [(name, column) for name in tables for column, kind in _columns_of(name).items() if "Time" in kind]


def _columns_of(name: str) -> dict[str, str]:
    """Columns of a table and what their values are. A law has those of all laws."""
    kinds = [laws.LAWS.get(each) for each in laws.LAWS.names()] if name == "laws" else [TABLES[name]]
    return {each.name: str(each.type) for kind in kinds for each in fields(kind)}


def _columns(rows: list[tuple[int, ...]], width: int) -> tuple[IntArray, ...]:
    return tuple(np.array(rows, np.int64).reshape(-1, width).T)


def _records(name: str, rows: list[Any]) -> Any:
    """Rows of a table as an array; its records have the attributes of the rows."""
    if name == "routes":
        return np.array(rows, np.int64)
    return np.array([_values(name, row) for row in rows], _type(name)).view(np.recarray)


def _values(name: str, row: Any) -> tuple[Any, ...]:
    """A row of a table, as a record has it."""
    if name == "laws":
        return tuple(getattr(row, each, 0) for each in _type(name).names or ())
    values: tuple[Any, ...] = _attributes(name)(row)
    if name == "messages":
        return (row.order[0] if row.order else 0, *values[1:])
    return values


@cache
def _attributes(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*_type(name).names or ())
