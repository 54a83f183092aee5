"""Frozen dataclasses that are keys of many caches: hashed once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

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
            itself: Any = self
            object.__setattr__(self, "_hash", hash(tuple(getattr(self, field.name) for field in fields(itself))))
            return self._hash

    _hash: int
