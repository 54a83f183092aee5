"""Numbers of the command line, bounded so that no product of a few of them leaves the range of a float."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["COUNT", "POSITIVE", "SIZE", "Finite"]


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
