"""Numbers of the command line, bounded so that no product of a few of them leaves the range of a float."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from simcore.units import parse_bytes, parse_bytes_per_s, parse_ns


class _Bounded(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """A number in a range, and no NaN; what it may be is told in words."""

    noun = "a number"
    min: Any
    max: Any
    min_open: bool

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error says what is expected and what was found."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            above = "above" if self.min_open else "of at least" if self.max is None else "from"
            high = "" if self.max is None else f" to {self.max:,}"
            self.fail(f"must be {self.noun} {above} {self.min:g}{high}, found {value!r}", param, ctx)
        return number


class Finite(_Bounded, click.FloatRange):
    """A float in a range."""


class Whole(_Bounded, click.IntRange):
    """A whole number in a range."""

    noun = "a whole number"


MOST = 2.0**63
COUNT = Whole(1, 10**9)
POSITIVE = Finite(1e-12, 1e30)
SIZE = Finite(0, 1e30)


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """A number with a unit, as everywhere in simcore."""

    name = "quantity"

    def __init__(self, parse: Callable[[Any], float], factor: float = 1.0):
        self._parse, self._factor = parse, factor

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number in the option's own unit; a usage error says what is expected."""
        try:
            number = float(self._parse(value)) * self._factor
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)
        if not 0 <= number < MOST:
            self.fail(f"must be from 0 to 2^63 - 1, found {value!r}", param, ctx)
        return number


KINDS: dict[str, click.ParamType[Any]] = {
    "count": COUNT,
    "positive": POSITIVE,
    "size": SIZE,
    "int": click.INT,
    "text": click.STRING,
    "seconds": Quantity(parse_ns, 1e-9),
    "nanoseconds": Quantity(parse_ns),
    "bytes": Quantity(parse_bytes),
    "rate": Quantity(parse_bytes_per_s),
}
"""How rows of `options.txt` call a type."""
