"""Studies of `simcore sweep`: a YAML file with what is the same in every run and what varies (docs/sweep.md).

What varies are the run's options, parts of its input files, and ranges to draw from.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from simcore.documents import Node, read
from simcore.errors import InputError, Problems
from simcore.library import Shelf, resolve
from simcore.options import RunOptions, SimaiOptions, count, factor

FIGURES = ("npus", "time_ns", "compute_ns", "overlapped_ns", "exposed_comm_ns", "idle_ns", "network_usd")
"""Figures of a row: docs/report.md defines them (`breakdown` of rank 0); docs/topologies.md what a network costs."""
SLOWDOWN = "slowdown"
"""Of the job that loses most, in rows of files of jobs; they have figures NAME.step_ns, .. of every job, too."""
MOST_RUNS = 1_000_000
T = TypeVar("T")

Configuration = dict[str, Any]
"""Names of options and parts -> their values, plain data."""

INPUTS = ("workload", "topology", "system")
SHELVES: dict[str, Shelf] = {"workload": "workloads", "topology": "topologies"}
FIELDS = {option.name: (kind, option.metadata) for kind in (RunOptions, SimaiOptions) for option in fields(kind)}
NUMBERS = {name: about["read"] for name, (_, about) in FIELDS.items() if about["read"] in (count, factor)}
OPTIONS = (*INPUTS, *(name for name, (_, about) in FIELDS.items() if about["group"] != "Output"))
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


def _entries(node: Node, read: Callable[[str, Node], T]) -> dict[str, T]:
    """What `read` makes of each entry of a mapping whose keys must be options or parts of inputs."""
    parts = [name for name, _ in node.mapping() if steps(name)]
    node.keys(optional=(*OPTIONS, *parts))
    return {name: read(name, item) for name, item in node.mapping()}


def value(name: str, node: Node) -> Any:
    """The value of one option or part; a problem is noted where it stands."""
    if name in SHELVES:
        node.meant(partial(resolve, shelf=SHELVES[name]))
    if name in INPUTS:
        return node.text()
    if name in OPTIONS:
        try:
            read = FIELDS[name][0].read(name, node.value)
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


def _drawn(name: str, node: Node) -> Choice | Range:
    """A list of values or a range {low, high, log, integer}."""
    return Choice(values(name, node)) if isinstance(node.value, list) else _range(name, node)


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


class Search:
    """The section `random`: `num_runs` are drawn, or sought by an Optuna sampler that learns from the runs before, for
    the least `figure`.
    """

    def __init__(self, root: Node, base: Configuration):
        node, self.base = root["random"], base
        node.keys(required=("samples", "values"), optional=("seed",))
        self.num_runs = node["samples"].integer(1, MOST_RUNS) if "samples" in node else 1
        self.seed = node["seed"].integer() if "seed" in node else 0
        self.space: Space = _entries(node["values"], _drawn) if "values" in node else {}
        self.figure = str(root["minimize"].choice([*FIGURES, SLOWDOWN])) if "minimize" in root else "time_ns"
        self.place = root["minimize"].location if "minimize" in root else node.location


@dataclass(frozen=True, slots=True)
class Study:
    """The runs of a study in order, and the names of what varies; with a `search`, runs are found on the way."""

    varied: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    search: Search | None = None


def grid(base: Configuration, axes: Mapping[str, Sequence[Any]]) -> Iterator[Configuration]:
    """Every combination of the axes' values on the base, the last axis fastest.

    >>> [*grid({"topology": "ring8"}, {"iterations": [1, 2]})]
    [{'topology': 'ring8', 'iterations': 1}, {'topology': 'ring8', 'iterations': 2}]
    """
    return (base | dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def random(base: Configuration, space: Space, seed: int) -> Iterator[Configuration]:
    """Configurations drawn without end; the first ones do not depend on how many are taken."""
    generator = np.random.default_rng(seed)
    while True:
        shares = generator.random(len(space)).tolist()
        yield base | {name: space[name].at(share) for name, share in zip(space, shares, strict=True)}


def read_study(path: str | Path) -> Study:
    """The study in a file; InputError lists everything wrong with it, each with its place."""
    with Problems() as problems:
        root = read(path, problems)
        root.keys(optional=("run", "grid", "list", "random", "method", "minimize"))
        if not {"grid", "list", "random"} & set(root.value if isinstance(root.value, dict) else ()):
            root.problem("nothing varies", expected="grid:, list: or random:", found="none of them")
        base = _entries(root["run"], value) if "run" in root else {}
        listed = root["list"].sequence() if "list" in root else []
        configurations = [*_grid(root, base), *(base | _entries(item, value) for item in listed)]
        varying = [*([root["grid"]] if "grid" in root else []), *listed]
        varied = [name for node in varying for name, _ in node.mapping()]
        search = Search(root, base) if "random" in root else None
        learns = _learns(root)
    if search:
        varied += search.space
        if not learns:
            configurations += islice(random(base, search.space, search.seed), search.num_runs)
    return Study(tuple(dict.fromkeys(varied)), tuple(configurations), search if learns else None)


def _grid(root: Node, base: Configuration) -> Iterator[Configuration]:
    if "grid" not in root:
        return iter(())
    axes = _entries(root["grid"], values)
    if math.prod(map(len, axes.values())) > MOST_RUNS:
        root["grid"].problem("the grid is too large", expected=f"at most {MOST_RUNS:,} runs")
        return iter(())
    return grid(base, axes)


def _learns(root: Node) -> bool:
    """Whether Optuna draws the random values."""
    if "method" not in root:
        if "minimize" in root:
            root["minimize"].problem("nothing is minimised", expected="method: optuna beside it")
        return False
    method = root["method"]
    if method.choice(["optuna"]) and "random" not in root:
        method.problem("there is nothing to search", expected="a random: section with samples and values")
    elif find_spec("optuna") is None:
        method.problem("Optuna is not installed", expected="the extra 'sweep'", hint="pip install 'simcore[sweep]'")
    return True
