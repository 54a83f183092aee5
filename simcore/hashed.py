"""Frozen dataclasses that are keys of many caches: hashed once, and changed at the cost of a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Self

__all__ = ["Hashed"]


class Hashed:
    """Base of a frozen dataclass that says `__hash__ = Hashed.__hash__`: the hash of its fields is kept.

    It is no field: neither compared, nor shown, nor pickled.
    """

    __slots__ = ("_hash",)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            kind: Any = type(self)
            object.__setattr__(self, "_hash", hash(_fields(kind)[1](self)))
            return self._hash

    def but(self, **changes: object) -> Self:
        """As `dataclasses.replace`, several times as fast; of classes with two fields or more, no `__post_init__`."""
        kind: Any = type(self)
        made, (names, values) = object.__new__(kind), _fields(kind)
        for name, value in zip(names, values(self), strict=True):
            object.__setattr__(made, name, changes.get(name, value))
        return made  # type: ignore[no-any-return]

    _hash: int


@cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Names of a dataclass's fields, and what gets their values."""
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)
