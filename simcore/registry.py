"""A tiny registry: name -> thing, with a helpful miss. One instance per kind of extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from simcore.errors import InputError, closest

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, in order of registration.

    >>> shapes: Registry[str] = Registry("shape")
    >>> shapes.register("square")("a square")
    'a square'
    >>> shapes.get("sqare")
    Traceback (most recent call last):
    ...
    simcore.errors.InputError: sqare: error: no such shape
      expected: did you mean 'square'? one of: square
      found:    'sqare'
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Enter the decorated thing under `name`; a name is taken only once."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")

        def enter(entry: T) -> T:
            self._entries[name] = entry
            return entry

        return enter

    @contextmanager
    def lend(self, entry: T) -> Iterator[str]:
        """A name of `entry`: its own, or one that it has for as long as this lasts."""
        for name, known in self._entries.items():
            if known is entry:
                yield name
                return
        name = f"unnamed {self.kind}"
        self.register(name)(entry)
        try:
            yield name
        finally:
            del self._entries[name]

    def get(self, name: str) -> T:
        """The entry called `name`; InputError names what exists and what is close."""
        if name not in self.names():
            expected = closest(name, self._entries)
            raise InputError.at(str(name), f"no such {self.kind}", expected=expected, found=repr(name))
        return self._entries[name]

    def names(self) -> list[str]:
        """All names, in order of registration."""
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
