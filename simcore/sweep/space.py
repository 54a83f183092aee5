"""What may vary in a study: the run's options, parts of its input files, and ranges to draw from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from simcore.documents import Node
from simcore.errors import InputError
from simcore.options import RunOptions, count, factor

Configuration = dict[str, Any]
"""Names of options and parts -> their values, plain data."""

INPUTS = ("workload", "topology", "system")
NUMBERS = {option.name: option.metadata["read"] for read in (count, factor) for option in RunOptions.named(read=read)}
OPTIONS = (*INPUTS, *(option.name for option in fields(RunOptions) if option.metadata["group"] != "Output"))
"""The keyword arguments of `simcore.run` that change figures."""

_PART = re.compile(r"(topology|workload|system|remote_memory)((?:\.[^.\[\]\s]+|\[\d+\])+)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def steps(name: str) -> tuple[str, list[str | int]] | None:
    """The input file and the way to a part of it; None for a plain option.

    >>> steps("topology.bandwidth[0]")
    ('topology', ['bandwidth', 0])
    """
    found = _PART.fullmatch(name)
    if not found:
        return None
    return found[1], [key or int(index) for key, index in _STEP.findall(found[2])]


def check_names(node: Node) -> None:
    """Check that a mapping's keys are options or parts of inputs."""
    parts = [name for name, _ in node.mapping() if steps(name)]
    node.keys(optional=(*OPTIONS, *parts))


def value(name: str, node: Node) -> Any:
    """The value of one option or part; a problem is noted where it stands."""
    if name in INPUTS:
        return node.text()
    if name in OPTIONS:
        try:
            read = RunOptions.read(name, node.value)
        except InputError as error:
            expected = error.problems[0].expected
            node.problem(f"{node.name} must be {expected}", expected=expected)
            return None
        return list(read) if isinstance(read, tuple) else read
    try:
        json.dumps(node.value, allow_nan=False)
    except ValueError:
        node.problem(f"{name} holds a number that is not finite", expected="finite numbers")
    return node.value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values, each as likely."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two, ends included; `log` = its logarithm is even, `integer` = whole numbers only."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def at(self, share: float) -> float:
        """The number at a share in [0, 1) of the range, to six digits so that all machines agree.

        >>> Range(1, 100, log=True).at(0.5), Range(1, 4, integer=True).at(0.99)
        (10.0, 4)
        """
        low, high = (self.low, self.high + 1) if self.integer else (self.low, self.high)
        found = low * math.exp(share * math.log(high / low)) if self.log else low + share * (high - low)
        if self.integer:
            return min(math.floor(found), int(self.high))
        return min(max(float(f"{found:.6g}"), self.low), self.high)


Space = dict[str, Choice | Range]


def read_space(node: Node) -> Space:
    """Names -> a list of values or a range {low, high, log, integer}."""
    check_names(node)
    return {name: Choice(values(name, item)) if isinstance(item.value, list) else _range(name, item)
            for name, item in node.mapping()}  # fmt: skip


def values(name: str, node: Node) -> tuple[Any, ...]:
    """The values of one option or part in a list, at least one."""
    found = node.sequence()
    if node.value == []:
        node.problem(f"{name} has no value", expected="at least one value")
    return tuple(value(name, item) for item in found)


def _range(name: str, node: Node) -> Range:
    node.keys(required=("low", "high"), optional=("log", "integer"))
    if name in OPTIONS and name not in NUMBERS:
        node.problem(f"{name} is not a number", expected=f"{name}: [one, another]")
    if not ("low" in node and "high" in node):
        return Range(1, 1)
    log = "log" in node and node["log"].flag()
    integer = NUMBERS.get(name) is count or ("integer" in node and node["integer"].flag())
    read: Callable[[Node], float] = Node.integer if integer else Node.number
    low, high = read(node["low"]), read(node["high"])
    if high < low or low < 0 or (low == 0 and (log or name in NUMBERS)):
        node.problem(f"{name}: not a range", expected="0 <= low <= high, low above 0 with log", found=f"{low}, {high}")
        return Range(1, 1)
    return Range(low, high, log, integer)
