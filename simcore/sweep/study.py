"""Studies of `simcore sweep`: a YAML file with what is the same in every run and what varies; see docs/sweep.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from simcore.documents import Node, read
from simcore.errors import Problems
from simcore.sweep.run import FIGURES
from simcore.sweep.space import Configuration, Space, check_names, read_space, value, values

MOST_RUNS = 1_000_000


class Search:
    """The section `random`: `num_runs` are drawn, or sought by an Optuna sampler that learns from the runs before, for
    the least `figure`.
    """

    def __init__(self, root: Node, base: Configuration):
        node, self.base = root["random"], base
        node.keys(required=("samples", "values"), optional=("seed",))
        self.num_runs = node["samples"].integer(1, MOST_RUNS) if "samples" in node else 1
        self.seed = node["seed"].integer() if "seed" in node else 0
        self.space = read_space(node["values"]) if "values" in node else {}
        self.figure = str(root["minimize"].choice([*FIGURES])) if "minimize" in root else "time_ns"


@dataclass(frozen=True, slots=True)
class Study:
    """The runs of a study in order, and the names of what varies; with a `search`, runs are found on the way."""

    varied: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    search: Search | None = None


def grid(base: Configuration, axes: dict[str, list[Any]]) -> Iterator[Configuration]:
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
        base = _configuration(root["run"]) if "run" in root else {}
        listed = root["list"].sequence() if "list" in root else []
        configurations = [*_grid(root, base), *(base | _configuration(item) for item in listed)]
        varying = [*([root["grid"]] if "grid" in root else []), *listed]
        varied = [name for node in varying for name, _ in node.mapping()]
        search = Search(root, base) if "random" in root else None
        learns = _learns(root)
    if search:
        varied += search.space
        if not learns:
            configurations += islice(random(base, search.space, search.seed), search.num_runs)
    return Study(tuple(dict.fromkeys(varied)), tuple(configurations), search if learns else None)


def _configuration(node: Node) -> Configuration:
    check_names(node)
    return {name: value(name, item) for name, item in node.mapping()}


def _grid(root: Node, base: Configuration) -> Iterator[Configuration]:
    if "grid" not in root:
        return iter(())
    check_names(root["grid"])
    axes = {name: [*values(name, node)] for name, node in root["grid"].mapping()}
    if prod(map(len, axes.values())) > MOST_RUNS:
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
