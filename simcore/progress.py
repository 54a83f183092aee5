"""How far a long piece of work is: who works says how to tell, and nothing is asked unless somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """What share of the work is done, and how it would be done sooner (`hint`)."""

    def __init__(self) -> None:
        self.hint = ""
        self._total, self._done = 0, 0
        self.tell: Callable[[], float] = lambda: self._done / self._total if self._total else 0.0

    def expect(self, total: int) -> None:
        """The parts that there are."""
        self._total, self._done = total, 0

    def advance(self, count: int = 1) -> None:
        """Further parts are done."""
        self._done += count

    def through(self, parts: Iterable[T]) -> Iterator[T]:
        """The parts, each of which is done when the next is asked for."""
        for part in parts:
            yield part
            self.advance()

    def over(self, parts: Collection[T]) -> Iterator[T]:
        """All parts of a piece of work, unless it is itself a part of what is counted."""
        if self._total:
            yield from parts
            return
        self.expect(len(parts))
        yield from self.through(parts)
        self.expect(0)


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def meter() -> Meter:
    """The one that somebody looks at; otherwise one for nobody."""
    return _METER.get() or Meter()


@contextmanager
def metered() -> Iterator[Meter]:
    """A meter for the work of the block."""
    made = Meter()
    token = _METER.set(made)
    try:
        yield made
    finally:
        _METER.reset(token)
