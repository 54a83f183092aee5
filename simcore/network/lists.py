"""The tables of `core` as lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import isfunction
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from simcore.network.core import ROWS, Columns, State


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


def bound(namespace: dict[str, Any], modules: Iterable[ModuleType]) -> dict[str, Any]:
    """The functions of modules in one namespace, where later ones take the place of those of the same name."""
    for module in modules:
        for name, each in vars(module).items():
            if isfunction(each) and each.__module__ == module.__name__:
                code = each.__code__.replace()  # Python keeps with it what it learns of globals
                namespace[name] = FunctionType(code, namespace, name, each.__defaults__)
    return namespace


def modules_of(kind: type[State]) -> list[ModuleType]:
    """The modules with the functions of a kind of state, behind those of what it derives from."""
    return [sys.modules[each.__module__] for each in reversed(kind.__mro__) if issubclass(each, State)]


@cache
def _core_of(*modules: ModuleType) -> Any:
    """The functions of a kind of state."""
    *base, own = modules
    names = dict(pair for module in (*base, own) for pair in vars(module).items())
    return SimpleNamespace(**bound(names, [*base, own])) if base else own
