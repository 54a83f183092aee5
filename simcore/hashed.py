"""Frozen dataclasses that are keys of many caches: hashed once, and changed at the cost of a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Self


class Hashed:
    """Base of a frozen dataclass that says `__hash__ = Hashed.__hash__`: the hash of its fields is kept.

    It is no field: neither compared, nor shown, nor pickled. The dataclass has no slots.
    """

    __slots__ = ("_hash",)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            kind: Any = type(self)
            object.__setattr__(self, "_hash", hash(_values(kind)(self)))
            return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def but(self, **changes: object) -> Self:
        """As `dataclasses.replace`, many times as fast; of classes with two fields or more, no `__post_init__`."""
        made = object.__new__(type(self))
        object.__setattr__(made, "__dict__", vars(self) | changes)
        return made

    _hash: int


@cache
def _values(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What gets the values of a dataclass's fields."""
    return attrgetter(*(field.name for field in fields(kind)))
