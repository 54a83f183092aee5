"""Fit software profiles to published steps, and tell how far they carry: each source is scored with it left out.

``python -m simcore.cost.published.calibrate`` prints the parameters of every family of software with their best values;
``--left-out`` also the error of every suite when none of its sources was in the fit. Deterministic: a simplex search
(Nelder and Mead 1965) from the shipped values towards the least mean |log error|, in which a source counts by the
square root of its rows, so that no publication decides.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from simcore.cost import systems
from simcore.cost.published.reading import READING_ERRORS, sort_rows
from simcore.cost.published.rows import Row, Step
from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents

__all__ = ["FITTED", "errors", "fit", "main", "rows_by_suite", "simplex", "using"]

# Family -> its parameters ("profile/field") and the suites that they are fitted on.
FITTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "megatron": (
        (
            "megatron-core/kernels.products",
            "megatron-core/kernels.narrow_products",
            "megatron-core/kernels.attention",
            "megatron-core/kernels.passes",
            "megatron-core/kernels.gap_s",
            "megatron-core/slowdown",
            "megatron-core/jitter",
            "megatron-core/step_s",
            "mlperf-nemo/step_s",
            "mlperf-graphs/kernels.gap_s",
        ),
        (
            "frameworks_megatron",
            "mlperf_gpt3",
            "mlperf_llama31_405b",
            "mlperf_llama31_8b",
            "mlperf_llama2_70b_lora",
            "megatron_bridge_llama",
            "megatron_core_h100",
            "llama3_405b",
        ),
    ),
    "fsdp": (
        (
            "torchtitan/kernels.products",
            "torchtitan/kernels.narrow_products",
            "torchtitan/kernels.attention",
            "torchtitan/kernels.passes",
            "torchtitan/kernels.gap_s",
            "torchtitan/slowdown",
            "torchtitan/step_s",
        ),
        ("frameworks_fsdp",),
    ),
    "mosaicml": (
        (
            "mosaicml/kernels.products",
            "mosaicml/kernels.attention",
            "mosaicml/kernels.passes",
            "mosaicml/launch_s",
            "mosaicml/step_s",
        ),
        ("llm_foundry_mpt",),
    ),
    "xla": (
        (
            "maxtext/kernels.products",
            "maxtext/kernels.narrow_products",
            "maxtext/kernels.attention",
            "maxtext/kernels.passes",
            "maxtext/slowdown",
            "maxtext/step_s",
        ),
        ("frameworks_xla",),
    ),
    "internevo": (
        ("internevo/kernels.products", "internevo/slowdown", "internevo/owner_s"),
        ("frameworks_internevo",),
    ),
}
Rows = Mapping[str, Sequence[Row]]
Table = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the calibration."""
    parser = argparse.ArgumentParser(prog="python -m simcore.cost.published.calibrate", description=__doc__)
    parser.add_argument("--left-out", action="store_true", help="fit once without the sources of every suite, too")
    parser.add_argument("--steps", type=int, default=120, help="steps of the search")
    parser.add_argument("--family", choices=list(FITTED), action="append", help="which (repeatable; all)")
    options = parser.parse_args(arguments)
    for family in options.family or FITTED:
        names = FITTED[family][1]
        _report(family, fit(family, names, options.steps), names)
        for left in names if options.left_out and len(names) > 1 else ():
            found = fit(family, [name for name in names if name != left], options.steps)
            _report(f"{family} without {left}", found, [left])


def rows_by_suite(names: Sequence[str]) -> Rows:
    """The shipped steps of some suites, a job that several sites ran once per source."""
    found = {}
    for one in sort_rows(default_documents(), [SUITES[name] for name in names]):
        steps = [row for row in one.rows if isinstance(row.question, Step)]
        found[one.suite.name] = steps
    return found


@contextmanager
def using(values: Mapping[str, float]) -> Iterator[None]:
    """The shipped profiles with other values of some parameters."""
    table: Table = deepcopy(dict(systems.TABLE))
    for path, value in values.items():
        profile, _, field = path.partition("/")
        entry = table["software"][profile]
        *inner, last = field.split(".")
        for name in inner:
            entry = entry.setdefault(name, {})
        entry[last] = value
    with systems.replaced(table):
        yield


def errors(values: Mapping[str, float], names: Sequence[str]) -> dict[str, list[tuple[Row, float]]]:
    """The rows of some suites with their signed relative errors under other values."""
    with using(values):
        found: dict[str, list[tuple[Row, float]]] = {}
        for name, rows in rows_by_suite(names).items():
            known: dict[tuple[object, object], float] = {}
            for row in rows:
                question = row.question
                key = question.jobs, question.cluster
                try:
                    if key not in known:
                        known[key] = question.seconds(systems.CLUSTERS)
                except READING_ERRORS:
                    continue
                found.setdefault(name, []).append((row, known[key] / row.measured - 1))
    return found


def _loss(found: Mapping[str, Sequence[tuple[Row, float]]]) -> float:
    by_source: dict[tuple[str, str], list[float]] = {}
    for name, some in found.items():
        for row, error in some:
            by_source.setdefault((name, row.source), []).append(min(abs(math.log(1 + error)), _FAR))
    weights = [math.sqrt(len(some)) for some in by_source.values()]
    means = [math.fsum(some) / len(some) for some in by_source.values()]
    return math.fsum(weight * mean for weight, mean in zip(weights, means, strict=True)) / math.fsum(weights)


_FAR = 0.4  # how much of an error counts: no row decides


def fit(family: str, names: Sequence[str], steps: int) -> dict[str, float]:
    """The values of a family's parameters with the least error on some suites, searched in their logarithms."""
    paths = FITTED[family][0]
    shipped = [max(_shipped(path), _LEAST[path.rpartition(".")[2].rpartition("/")[2]]) for path in paths]
    start = [math.log(value) for value in shipped]

    def loss(point: Sequence[float]) -> float:
        values = {path: math.exp(x) for path, x in zip(paths, point, strict=True)}
        stray = math.fsum(x**2 for path, x in zip(paths, point, strict=True) if _is_factor(path))
        return _loss(errors(values, names)) + _PULL * stray

    best = simplex(loss, start, steps)
    return {path: math.exp(x) for path, x in zip(paths, best, strict=True)}


_PULL = 0.02  # towards factors of 1


def _is_factor(path: str) -> bool:
    return not path.endswith("_s") and "kernels." in path


_LEAST = {"products": 0.5, "narrow_products": 0.5, "attention": 0.5, "passes": 0.5}
_LEAST |= {"gap_s": 0.5e-6, "slowdown": 0.02, "jitter": 0.002, "step_s": 1e-3, "owner_s": 1e-4, "launch_s": 1e-6}


def _shipped(path: str) -> float:
    profile, _, field = path.partition("/")
    found: Any = systems.SOFTWARE[profile]
    for name in field.split("."):
        found = getattr(found, name)
    return float(found)


def _report(title: str, values: Mapping[str, float], names: Sequence[str]) -> None:
    print(title)
    print(" ", json.dumps({path: float(f"{value:.4g}") for path, value in values.items()}))
    for name, some in errors(values, names).items():
        sizes = sorted(abs(error) for _, error in some)
        mean, p90 = math.fsum(sizes) / len(sizes), sizes[math.ceil(0.9 * len(sizes)) - 1]
        print(f"  {name:28} {len(some):5} rows  mean |error| {mean:6.1%}  p90 {p90:6.1%}", flush=True)


@dataclass(slots=True)
class _Vertex:
    point: list[float]
    loss: float


def simplex(
    loss: Callable[[Sequence[float]], float], start: Sequence[float], steps: int, size: float = 0.12
) -> list[float]:
    """A minimum of `loss` near `start` (Nelder and Mead), after at most `steps` moves.

    >>> [round(x, 2) for x in simplex(lambda p: (p[0] - 1) ** 2 + (p[1] + 2) ** 2, [0.0, 0.0], 120)]
    [1.0, -2.0]
    """
    points = [list(start), *([x + size * (i == j) for j, x in enumerate(start)] for i in range(len(start)))]
    corners = [_Vertex(point, loss(point)) for point in points]
    for _ in range(steps):
        corners.sort(key=lambda corner: corner.loss)
        _move(corners, loss)
    return min(corners, key=lambda corner: corner.loss).point


def _move(corners: list[_Vertex], loss: Callable[[Sequence[float]], float]) -> None:
    """Replace the worst corner by a better one, or shrink towards the best. `corners` are sorted."""
    worst, count = corners[-1], len(corners) - 1
    centre = [math.fsum(corner.point[i] for corner in corners[:-1]) / count for i in range(count)]

    def along(factor: float) -> _Vertex:
        point = [c + factor * (c - w) for c, w in zip(centre, worst.point, strict=True)]
        return _Vertex(point, loss(point))

    mirrored = along(1.0)
    if mirrored.loss < corners[0].loss:
        far = along(2.0)
        corners[-1] = far if far.loss < mirrored.loss else mirrored
    elif mirrored.loss < corners[-2].loss:
        corners[-1] = mirrored
    else:
        near = along(-0.5 if mirrored.loss >= worst.loss else 0.5)
        if near.loss < min(mirrored.loss, worst.loss):
            corners[-1] = near
            return
        best = corners[0].point
        for corner in corners[1:]:
            corner.point = [b + 0.5 * (x - b) for b, x in zip(best, corner.point, strict=True)]
            corner.loss = loss(corner.point)


if __name__ == "__main__":
    main()
