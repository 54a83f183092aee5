"""The tables of `core` as lists, and its heads in a calendar where they are many."""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from heapq import heappop, heappush
from inspect import isfunction
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from simcore.network import core
from simcore.network.core import NEVER, NOBODY, ROWS, Columns, Head, State

CROWDED = 1000  # with so many heads and timers a calendar costs less than a heap, most so where NPUs are in step


class Lists:
    """A state whose tables are lists, which follow the columns; `compiled.Arrays` has others."""

    def __init__(self, state: State, columns: Mapping[str, Columns]):
        self.core: Any = _core_of(*modules_of(type(state)))
        self.state, self._columns = state, columns

    def add(self, name: str, rows: list[Any]) -> None:
        """More rows of a table."""
        getattr(self.state, name).extend(rows)

    def follow(self, entries: int) -> None:
        """All that is known by now, and room for so many heads and timers."""
        if entries > CROWDED and self.core is core:
            self.core, self.state.heads = _crowded_core(), Calendar(self.state.heads)
        for name, columns in self._columns.items():
            rows = getattr(self.state, name)
            if len(rows) < columns.length:
                rows.extend(map(ROWS[name], *columns.since(len(rows)).tolist()))

    @property
    def next(self) -> tuple[int, int]:
        """When the first of the heads comes, and its order."""
        return self.state.heads[0][:2]

    @property
    def late(self) -> bool:
        """Of what comes at `NEVER`: whether that is more than the mark of an empty heap."""
        return len(self.state.heads) > 1

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return bool(self.state.left)

    def left(self) -> list[tuple[int, int, int]]:
        """Who leaves; they are told once."""
        entries, self.state.left = self.state.left, []
        return entries


class Calendar(list[Head]):
    """Heads of one time, whose turn it is, the first one last behind `NOBODY`; the others wait by time, in no order."""

    def __init__(self, heads: Iterable[Head]):
        super().__init__([NOBODY])
        self._now = -1
        self._later: dict[int, list[Head]] = {}
        self._times = [NEVER]
        for head in heads:
            if head[0] < NEVER:
                self.push(head)

    def __iter__(self) -> Iterator[Head]:
        yield from super().__iter__()
        for heads in self._later.values():
            yield from heads

    def push(self, head: Head) -> None:
        """As `heapq.heappush`."""
        heads = self._later.get(head[0])
        if heads:
            heads.append(head)
        else:
            self._wait(head)

    def swap(self, head: Head) -> Head:
        """Push one and take the next of this time, `NOBODY` where that was the last."""
        heads = self._later.get(head[0])
        if heads:
            heads.append(head)
        elif head[0] == self._now < self._times[0]:  # over a link without latency
            insort(self, head, key=_backwards)
        else:
            self._wait(head)
        return self.pop()

    def turn(self, until: int) -> int:
        """As `core.turn`: those of the first time are put in order."""
        if self[-1] is not NOBODY:
            return self[-1][0]
        time = self._times[0]
        if time < until:
            self._now = heappop(self._times)
            self.extend(sorted(self._later.pop(time), reverse=True))
        return time

    def _wait(self, head: Head) -> None:
        """One of a time of which no others wait."""
        time, first = head[0], self[-1] if self else head
        if head is NOBODY or (time == first[0] and head < first):  # the first one again, whose turn it is not yet
            self.append(head)
            return
        if time <= first[0] < NEVER:  # it is not their turn after all, or they are not all
            self._later[first[0]] = self[:0:-1]
            heappush(self._times, first[0])
            del self[1:]
        if time not in self._later:
            self._later[time] = []
            heappush(self._times, time)
        self._later[time].append(head)


def _backwards(head: Head) -> list[int]:
    return [-each for each in head]


def bound(namespace: dict[str, Any], modules: Iterable[ModuleType]) -> dict[str, Any]:
    """The functions of modules in one namespace, where later ones take the place of those of the same name."""
    for module in modules:
        for name, each in vars(module).items():
            if isfunction(each) and each.__module__ == module.__name__:
                code = each.__code__.replace()  # Python keeps with it what it learns of globals
                namespace[name] = FunctionType(code, namespace, name, each.__defaults__)
    return namespace


@cache
def _crowded_core() -> SimpleNamespace:
    """The functions of `core`, with heads in a calendar."""
    calendar = {"push_head": Calendar.push, "pop_head": list.pop, "swap": Calendar.swap, "turn": Calendar.turn}
    names = bound(dict(vars(core)), [core])
    names |= calendar
    return SimpleNamespace(**names)


def modules_of(kind: type[State]) -> list[ModuleType]:
    """The modules with the functions of a kind of state, behind those of what it derives from."""
    return [sys.modules[each.__module__] for each in reversed(kind.__mro__) if issubclass(each, State)]


@cache
def _core_of(*modules: ModuleType) -> Any:
    """The functions of a kind of state."""
    *base, own = modules
    names = dict(pair for module in (*base, own) for pair in vars(module).items())
    return SimpleNamespace(**bound(names, [*base, own])) if base else own
