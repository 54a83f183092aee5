"""Fit software profiles to published steps, and tell how far they carry: each source is scored with it left out.

``python -m simcore.cost.published.calibrate`` prints the parameters of every family of software with their best values;
``--left-out`` also the error of every suite when none of its rows was in the fit. A source counts by the square root of
its rows, so that no publication decides.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcore.cost import systems
from simcore.cost.published.reading import READING_ERRORS, sort_rows
from simcore.cost.published.rows import Row, Step
from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents

__all__ = ["FITTED", "errors", "fit", "main", "moved", "rows_by_suite", "using"]

# Family -> its parameters ("profile/field") and the suites that they are fitted on.
FITTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "megatron": (
        (
            "megatron-core/kernels.products",
            "megatron-core/kernels.narrow_products",
            "megatron-core/kernels.attention",
            "megatron-core/slowdown",
            "megatron-core/piece_s",
            "megatron-core/jitter",
            "megatron-core/kernels.narrowest_products",
            "mlperf-2025.09/kernels.narrow_products",
            "mlperf-rocm/kernels.narrow_products",
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
    "megatron-lm": (
        (
            "megatron-lm-2021/kernels.products",
            "megatron-lm-2021/kernels.passes",
            "megatron-lm-2021/kernels.gap_s",
            "megatron-lm-2021/step_s",
        ),
        (
            "mlsys23_table5",
            "sc21_table1",
            "megascale_table2",
            "megascale_table3",
            "megatron_unfitted",
        ),
    ),
    "deepspeed": (
        (
            "deepspeed/kernels.products",
            "deepspeed/kernels.passes",
            "deepspeed/kernels.gap_s",
            "deepspeed/launch_s",
            "deepspeed/step_s",
        ),
        ("vtrain_multi", "vtrain_single", "bigscience"),
    ),
    "fsdp": (
        (
            "torchtitan/kernels.products",
            "torchtitan/kernels.narrow_products",
            "torchtitan/kernels.attention",
            "torchtitan/kernels.passes",
            "torchtitan/kernels.gap_s",
            "torchtitan/slowdown",
            "torchtitan/slowdown_across",
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
            "maxtext/slowdown_across",
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
Errors = Mapping[str, Sequence[tuple[Row, float]]]
Table = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the calibration."""
    parser = argparse.ArgumentParser(prog="python -m simcore.cost.published.calibrate", description=__doc__)
    parser.add_argument("--left-out", action="store_true", help="fit once without the sources of every suite, too")
    parser.add_argument("--family", choices=list(FITTED), action="append", help="which (repeatable; all)")
    options = parser.parse_args(arguments)
    for family in options.family or FITTED:
        names = FITTED[family][1]
        tried = moved(family)
        _report(family, fit(family, names, tried), names)
        for left in names if options.left_out and len(names) > 1 else ():
            found = fit(family, [name for name in names if name != left], tried)
            _report(f"{family} without {left}", found, [left])


def rows_by_suite(names: Sequence[str]) -> Rows:
    """The shipped steps of some suites; of very many an even sample."""
    found = {}
    for one in sort_rows(default_documents(), [SUITES[name] for name in names]):
        steps = [row for row in one.rows if isinstance(row.question, Step)]
        found[one.suite.name] = steps[:: max(1, len(steps) // _MOST)]
    return found


_MOST = 100  # rows of a suite


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


def fit(family: str, names: Sequence[str], moved: Moved) -> dict[str, float]:
    """The values with the least weighted |log error| on some suites.

    Every parameter is moved once; between, the logarithm of a step's time is taken for linear in those of the
    parameters, and least absolute deviations are found by weighted least squares, a few times over (Schlossmacher
    1973). Factors are pulled towards 1 as by a row.
    """
    paths = FITTED[family][0]
    start = np.log([value for _, value in _starts(paths)])
    rows = [(name, index) for name in names for index in range(len(moved.base.get(name, ())))]
    base = np.array([math.log(1 + moved.base[name][index][1]) for name, index in rows])
    slopes = np.array([
        [math.log((1 + some[name][index][1]) / (1 + moved.base[name][index][1])) / _MOVE for some in moved.by_path]
        for name, index in rows
    ])  # fmt: skip
    counts = Counter((name, moved.base[name][index][0].source) for name, index in rows)
    shares = np.array([counts[name, moved.base[name][index][0].source] ** -0.5 for name, index in rows])
    pull = np.diag([_PULL if "kernels." in path and not path.endswith("_s") else _PULL / 10 for path in paths])
    change = np.zeros(len(paths))
    for _ in range(50):
        left = base + slopes @ change
        weights = shares / np.maximum(np.abs(left), 0.01)
        normal = slopes.T @ (weights[:, None] * slopes) + pull
        towards = np.where(["kernels." in path and not path.endswith("_s") for path in paths], -start, 0.0)
        change = np.linalg.solve(normal, pull @ towards - slopes.T @ (weights * base))
        change = np.clip(change, -_FAR, _FAR)
    return {path: math.exp(x) for path, x in zip(paths, start + change, strict=True)}


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows and errors at the shipped values, and with each parameter moved."""

    base: Errors
    by_path: list[Errors]


def moved(family: str) -> Moved:
    """Every parameter of a family moved, on all of its suites."""
    paths, names = FITTED[family]
    start = dict(_starts(paths))
    return Moved(
        errors(start, names), [errors({**start, path: start[path] * math.exp(_MOVE)}, names) for path in paths]
    )


def _starts(paths: Sequence[str]) -> list[tuple[str, float]]:
    """The shipped values, or the least that can be moved."""
    return [(path, max(_shipped(path), _LEAST[path.replace("/", ".").rpartition(".")[2]])) for path in paths]


_MOVE = 0.2  # of a parameter's logarithm
_FAR = 0.7  # as far as one fit goes
_PULL = 1.0

_LEAST = {
    "products": 0.5,
    "narrow_products": 0.5,
    "narrowest_products": 0.5,
    "attention": 0.5,
    "passes": 0.5,
    "gap_s": 0.5e-6,
    "slowdown": 0.02,
}
_LEAST |= {"slowdown_across": 0.02, "piece_s": 2e-6, "jitter": 0.002, "step_s": 1e-3, "owner_s": 1e-4, "launch_s": 1e-6}


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


if __name__ == "__main__":
    main()
