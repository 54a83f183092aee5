"""Numbers of the command line, bounded so that no product of a few of them leaves the range of a float."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from simcore.units import parse_bytes, parse_bytes_per_s, parse_ns

__all__ = ["COUNT", "KINDS", "POSITIVE", "SIZE", "Finite"]


class Finite(click.FloatRange):
    """A float in a range; unlike click's, not a NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error names the option."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


COUNT = click.IntRange(1, 10**9)
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
        if number < 0:
            self.fail("must not be negative", param, ctx)
        return number


KINDS: dict[str, click.ParamType[Any]] = {
    "count": COUNT,
    "positive": POSITIVE,
    "size": SIZE,
    "int": click.INT,
    "text": click.STRING,
    "seconds": Quantity(parse_ns, 1e-9),
    "bytes": Quantity(parse_bytes),
    "rate": Quantity(parse_bytes_per_s),
}
"""How rows of `options.txt` call a type."""
