"""Fit the model's constants to published measurements, and check them on rows they were not fitted on.

``python -m simcore.cost.published.calibrate FILE`` prints the constants; with ``--cross`` it fits on every second row,
reports the error on the others, both ways. Deterministic: a simplex search (Nelder and Mead 1965) from `START`, which
holds no result of a fit.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simcore.cost.published.rows import Row
from simcore.cost.published.suites import SUITES, load
from simcore.cost.systems import FITTED, clusters, kernel_constants

__all__ = ["errors", "fit", "main", "simplex"]

# Group -> suites its constants are fitted on and what a percent of mean error weighs there (tighter tolerances more).
WEIGHTS: dict[str, dict[str, float]] = {
    "a100": {
        "mlsys23_table4": 0.5,
        "mlsys23_table5": 2.0,
        "sc21_table1": 1.5,
        "megascale_table2": 1.5,
        "vtrain_multi": 0.5,
        "vtrain_single": 0.5,
    },
    "megascale": {"megascale_table2": 1.0},
    "newer": {"megatron_core_h100": 1.0, "llama3_405b": 1.0, "megatron_bridge_llama": 2.0},
    "b200": {"simumax_b200": 1.0},
    "experts": {"megatron_bridge_moe": 1.0},
    "foundry": {"llm_foundry_mpt": 1.0},
}
# Where the search begins: the best matrix product measured on the device (0.87 of peak), round figures elsewhere.
START: dict[str, dict[str, float]] = {
    "a100": {
        "gemm": 0.87,
        "depth": 256.0,
        "memory": 0.85,
        "kernel_us": 4.0,
        "megascale.step_s": 0.3,
        "megascale.slowdown": 0.3,
        "vtrain.launch_us": 50.0,
        "vtrain.step_ms": 5.0,
    },
    "megascale": {"megascale.step_s": 0.3, "megascale.slowdown": 0.3},
    "newer": {
        "H100-SXM-80GB.gemm": 0.7,
        "H100-SXM-80GB.gemm_8bit": 0.65,
        "H100-SXM-80GB.attention": 0.5,
        "GB200.gemm_8bit": 0.6,
        "GB200.gemm_4bit": 0.4,
        "GB300.gemm_8bit": 0.6,
        "GB300.gemm_4bit": 0.4,
    },
    "b200": {"B200-SXM.gemm": 0.7, "B200-SXM.attention": 0.5},
    "experts": {"bridge.expert_us": 50.0},
    "foundry": {
        "foundry.launch_us": 10.0,
        "foundry.attention_a100": 0.5,
        "foundry.attention_h100": 0.5,
        "foundry.step_ms": 5.0,
    },
}
Rows = Mapping[str, Sequence[Row]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the calibration."""
    parser = argparse.ArgumentParser(prog="python -m simcore.cost.published.calibrate", description=__doc__)
    parser.add_argument("file", help="measurements, in the form of published_measurements.json")
    parser.add_argument("--cross", action="store_true", help="fit on one half, report on the other, both ways")
    parser.add_argument("--steps", type=int, default=300, help="steps of the search")
    parser.add_argument("--group", choices=list(START), default="a100", help="which constants")
    options = parser.parse_args(arguments)
    document, group = load(options.file), options.group
    rows = {name: list(SUITES[name].rows(document)) for name in WEIGHTS[group]}
    if options.cross:
        for half in (0, 1):
            fitted = fit({name: some[half::2] for name, some in rows.items()}, group, options.steps)
            _report(f"fitted on half {half}, checked on the other", fitted, _others(rows, half))
        return
    _report("fitted on all rows", fit(rows, group, options.steps), rows)


def _others(rows: Rows, half: int) -> Rows:
    return {name: some[1 - half :: 2] for name, some in rows.items()}


def _report(title: str, values: Mapping[str, float], rows: Rows) -> None:
    print(title)
    for name, value in values.items():
        print(f"  {name:28} {value:.4g}")
    for name, found in errors(values, rows).items():
        print(f"  {name:28} {len(found):5} rows  mean |error| {_mean(found):6.1%}")


def errors(values: Mapping[str, float], rows: Rows) -> dict[str, list[float]]:
    """Signed relative errors per suite under a set of constants."""
    systems = clusters({**kernel_constants(), **FITTED, **values})
    return {name: [row.question.seconds(systems) / row.measured - 1 for row in some] for name, some in rows.items()}


def _mean(found: Sequence[float]) -> float:
    return math.fsum(map(abs, found)) / max(1, len(found))


def fit(rows: Rows, group: str = "a100", steps: int = 300) -> dict[str, float]:
    """The constants with the least weighted error on `rows`, searched in their logarithms."""
    start, weights = START[group], WEIGHTS[group]
    prior = [math.log(value) for value in start.values()]

    def values(point: Sequence[float]) -> dict[str, float]:
        return {name: min(math.exp(x), _MOST.get(name, math.inf)) for name, x in zip(start, point, strict=True)}

    def loss(point: Sequence[float]) -> float:
        found = errors(values(point), rows)
        return math.fsum(weights[name] * _mean(some) for name, some in found.items())

    return values(simplex(loss, prior, steps))


# No share of a stated rate can pass these.
_MOST = {"gemm": 0.95, "memory": 0.92, "megascale.tp_hidden": 0.95}


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
