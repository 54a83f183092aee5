"""The tables of `core` as lists, and its heads in a calendar where they are many."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from functools import cache
from heapq import heappop, heappush
from inspect import isfunction
from types import FunctionType, SimpleNamespace
from typing import Any

from msgspec import Struct, field

from simcore.network import core
from simcore.network.core import ROWS, Columns, Head, State

CROWDED = 1000  # with so many heads and timers a calendar costs less than a heap, most so where NPUs are in step


class Lists:
    """A state whose tables are lists, which follow the columns; `compiled.Arrays` has others."""

    def __init__(self, state: State, columns: Mapping[str, Columns]):
        self.core: Any = core
        self.state, self._columns = state, columns

    def add(self, name: str, rows: list[Any]) -> None:
        """More rows of a table."""
        getattr(self.state, name).extend(rows)

    def follow(self, entries: int) -> None:
        """All that is known by now, and room for so many heads and timers."""
        if entries > CROWDED and self.core is core:
            heads: Any = Calendar.of(self.state.heads)  # what the functions of that core take for a heap
            self.core, self.state.heads = _crowded_core(), heads
        for name, columns in self._columns.items():
            rows = getattr(self.state, name)
            if len(rows) < columns.length:
                rows.extend(map(ROWS[name], *columns.since(len(rows)).tolist()))

    def left(self) -> list[tuple[int, int, int]]:
        """Who leaves; they are told once."""
        entries = self.state.left
        if entries:
            self.state.left = []
        return entries


class Calendar(Struct, eq=False):
    """Heads by time, in order only when it is their turn; `now` are some of one time, the first one last."""

    now: list[Head] = field(default_factory=list)
    later: dict[int, list[Head]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, heads: list[Head]) -> Calendar:
        """With some heads."""
        calendar = cls()
        for head in heads:
            _push(calendar, head)
        return calendar

    def __iter__(self) -> Iterator[Head]:
        yield from self.now
        for heads in self.later.values():
            yield from heads


def _push(calendar: Calendar, head: Head) -> None:
    now, time = calendar.now, head[0]
    heads = calendar.later.get(time)
    if heads:
        heads.append(head)
        return
    if now and now[-1] > head and now[0][0] == time:  # the first one again, whose turn it is not yet
        now.append(head)
        return
    if now and now[0][0] >= time:  # it is not their turn after all, or they are not all
        calendar.now = []
        calendar.later[now[0][0]] = now
        heappush(calendar.times, now[0][0])
        _push(calendar, head)
        return
    calendar.later[time] = [head]
    heappush(calendar.times, time)


def _backwards(head: Head) -> list[int]:
    return [-each for each in head]


def _pop(calendar: Calendar) -> Head:
    now = calendar.now
    if not now:
        now = calendar.now = calendar.later.pop(heappop(calendar.times))
        now.sort(reverse=True)
    return now.pop()


def _swap(calendar: Calendar, head: Head) -> Head:
    now, time = calendar.now, head[0]
    if now and now[0][0] < time:
        heads = calendar.later.get(time)
        if heads:
            heads.append(head)
        else:
            calendar.later[time] = [head]
            heappush(calendar.times, time)
        return now.pop()
    if now and now[0][0] == time:  # over a link without latency
        insort(now, head, key=_backwards)
    else:
        _push(calendar, head)
    return _pop(calendar)


@cache
def _crowded_core() -> SimpleNamespace:
    """The functions of `core`, with heads in a calendar."""
    names = vars(core) | {"push_head": _push, "pop_head": _pop, "swap": _swap}
    for name, each in vars(core).items():
        if isfunction(each) and each.__module__ == core.__name__:
            names[name] = FunctionType(each.__code__, names, name, each.__defaults__)
    return SimpleNamespace(**names)
