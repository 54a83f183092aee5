"""The tables of `queued.core`, and what is to come: heaps, which become calendars where it is played on compiled."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simcore.network import heaps
from simcore.network.compiled import compiled, kept
from simcore.network.core import NEVER
from simcore.network.queued import calendar, core, laws, ports
from simcore.network.queued.calendar import Calendar
from simcore.network.queued.compiled import ALL, Tables, columns_of, with_laws
from simcore.network.queued.tables import ROWS, TABLES, State
from simcore.network.topology.fabric import IntArray

WIDTHS = {"heads": 8, "timers": 4}
INDEX = 4  # the column of a head's segment in its message
TO_COMPILE, TO_LOAD = 3_000_000, 100_000
"""So many events take as long as to compile, and as to load what was compiled."""
_Arrayed = cast("Any", namedtuple("_Arrayed", [name for name in State.__slots__ if name != "choose"]))


def repaid(events: int, ahead: int) -> bool:
    """Whether to play on compiled, after so many events of this process and with at least so many ahead.

    A first run compiles where that is surely repaid, or takes no longer than what has been played.
    """
    if _compiled_core.cache_info().currsize:
        return True
    return events + ahead >= TO_LOAD if kept(core) else max(ahead, events) >= TO_COMPILE


class SegmentTables(Tables):
    """Of arrays, keys are numbers: the first and the last decide who goes first."""

    core = core
    kinds = TABLES | {"laws": laws.Law}

    @property
    def events_of_a_look(self) -> int:
        """So many take as long as to look at a row."""
        return 50 if self._lengths else 1

    def compile(self) -> None:
        """Go on compiled."""
        heads = [(time, _number(order), *rest) for time, order, *rest in sorted(self.state.heads)[:-1]]
        entries = {"heads": heads, "timers": sorted(self.state.timers)[:-1]}
        rows = {name: np.array(entries[name], np.int64).reshape(-1, width) for name, width in WIDTHS.items()}
        self._become(_compiled_core(), _Arrayed, **{name: Calendar.of(each, 0) for name, each in rows.items()})
        self._follow()

    def _values(self, name: str, row: Any) -> Any:
        values = super()._values(name, row)
        return (_number(row.order), *values[1:]) if name == "messages" else values

    def _column(self, name: str, column: str, rows: Sequence[Any]) -> NDArray[Any]:
        if column == "order":
            return np.array([_number(row.order) for row in rows], np.int64)
        return super()._column(name, column, rows)

    def heads(self) -> tuple[IntArray, ...]:
        """Times and segments of heads, in order."""
        if self._lengths:
            return tuple(self.state.heads.entries()[:, [0, -1]].T)
        return _columns([(head[0], head[-1]) for head in sorted(self.state.heads)[:-1]], 2)

    def timers(self) -> tuple[IntArray, ...]:
        """Times, kinds, of whom and bytes of changes, in order."""
        rows = self.state.timers.entries() if self._lengths else sorted(self.state.timers)[:-1]
        time, kind, *rest = _columns(rows, WIDTHS["timers"])
        return time, kind % core.KINDS, *rest

    def later(self, time_ns: int, sent: IntArray) -> None:
        """All that is known happens so much later, when each message has sent so many segments more.

        For a law that goes by the clock time goes by.
        """
        for name, column in _times():
            values = self.column(name, column)
            moves = self.column(name, "by_clock") == 0 if name == "laws" else values >= 0
            self.write(name, column, ALL, values + time_ns * moves)
        index = self.column("segments", "index") + sent[self.column("segments", "message")]
        self.write("segments", "index", ALL, index)
        if self._lengths:
            heads, timers = (getattr(self.state, name).again(time_ns) for name in WIDTHS)
            rows = heads.heap.rows
            used = rows[:, 0] < NEVER
            rows[used, INDEX] = index[rows[used, -1]]
            self.state = self.state._replace(heads=heads, timers=timers)
            return
        for entries in (self.state.heads, self.state.timers):
            entries[:] = [(time if time == NEVER else time + time_ns, *rest) for time, *rest in entries]
        self.state.heads[:] = [
            (*head[:INDEX], int(index[head[-1]]), *head[INDEX + 1 :]) if head[0] < NEVER else head
            for head in self.state.heads
        ]

    def grow(self) -> None:
        """Make room for twice as many segments, readings and credits."""
        segments = self._longer("segments", 64)
        self.state.counts[0].room_of_rows = ROWS + 4 * segments
        self._longer("readings", 4 * segments)
        self._longer("credits", 4 * segments)
        if self._lengths:
            self._follow()

    def _longer(self, name: str, least: int) -> int:
        counts, free, room = self.state.counts[0], f"free_{name}", f"room_of_{name}"
        before = int(getattr(counts, room))
        after = max(2 * before, least)
        self._chain(name, range(before + 1, after), int(getattr(counts, free)))
        setattr(counts, free, before)
        setattr(counts, room, after)
        return after

    def _chain(self, name: str, following: range, last: int) -> None:
        """More rows, each of which leads to the next one and the last one to one that is free."""
        kind = self.kinds[name]
        if not self._lengths:
            self.add(name, *map(kind, (*following, last)))
            return
        table = self._room(name, len(following) + 1)
        table[:] = self._values(name, kind(last))
        table["next"][:-1] = following

    def _follow(self) -> None:
        """Room for what is to come, and for what is noted, of which nothing is left now."""
        state, counts = self.state, self.state.counts[0]
        segments = int(counts.room_of_segments)
        counts.room_of_changes = 8 * segments
        calendars = {"heads": state.heads.again(0, segments), "timers": state.timers.again(0, 8 * segments)}
        self.state = state._replace(**calendars)
        for name in self.noted:
            self._lengthen(name, int(counts.room_of_rows) + 1)


@cache
def _compiled_core() -> ModuleType:
    """The functions of `core`, with those of `laws` and with calendars that are arrays."""
    import numba

    njit: Any = numba.njit
    rows = compiled(heaps, (), {}, inline=True)
    lists = {name: getattr(rows, name) for name in ("append", "length")}
    others = {"several": njit(_nrt=False, cache=True)(_nowhere), "whole": njit(_nrt=False)(_whole)}
    return with_laws(core, ("call", "play"), lists | _calendars() | others, ports)


def _calendars() -> dict[str, Any]:
    """What a core needs of `calendar` in place of heaps."""
    import numba
    from numba.cpython.unsafe import numbers

    njit: Any = numba.njit
    leading_zeros: Any = numbers.leading_zeros
    bits = njit(_nrt=False)(lambda number: 64 - leading_zeros(number))
    rows = compiled(calendar, (), {"bits": bits}, base=(heaps,), inline=True)
    return {"bits": bits} | {name: getattr(rows, name) for name in ("first", "push", "pop_head", "pop_timer")}


def _nowhere(_s: Any, _pair: int, _turn: int, _now: int) -> int:
    """In place of `core.several`: what crosses several dimensions is played in lists."""
    return -1


def _whole(number: int) -> np.int64:
    """As `core.whole`."""
    return np.int64(number)


@cache
def _times() -> list[tuple[str, str]]:
    """Tables, and their columns that are moments."""
    kinds = SegmentTables.kinds.items()
    return [(name, column) for name, kind in kinds for column, of in columns_of(kind).items() if "Time" in of]


def _number(order: Sequence[int]) -> int:
    """What a key is that is a number."""
    return order[0] if order else 0


def _columns(rows: Any, width: int) -> tuple[IntArray, ...]:
    return tuple(np.array(rows, np.int64).reshape(-1, width).T)
