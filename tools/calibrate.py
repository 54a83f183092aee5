"""Fit software profiles to published steps, and tell how far they carry: each source is scored with it left out.

``python -m tools.calibrate`` prints the parameters of every family of software with their best values;
``--left-out`` also writes `left_out.json`: the error of every suite with each row's source left out of the fit. A
source counts by the square root of its rows, so that no publication decides. ``--strangers`` says what steps are missed
by under the profiles that stand for software of which nobody published any (`margins._NAMELESS`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from simcore.cost import systems
from simcore.cost.margins import FILE, Kind, kind_of
from simcore.cost.predict import predict
from simcore.cost.published.reading import READING_ERRORS, sort_rows
from simcore.cost.published.rows import Row, Step, step_of
from simcore.cost.published.suites import LEFT_OUT, SUITES
from simcore.cost.published.validate import default_documents, quantile, score

# Family -> its parameters ("profile/field", of several profiles alike "one+other/field") and the suites that they are
# fitted on.
FITTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    family: (tuple(entry["parameters"]), tuple(entry["suites"])) for family, entry in systems.TABLE["fitted"].items()
}
Floats = NDArray[np.float64]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the calibration."""
    parser = argparse.ArgumentParser(prog="python -m tools.calibrate", description=__doc__)
    parser.add_argument("--left-out", action="store_true", help="write left_out.json")
    parser.add_argument("--family", choices=list(FITTED), action="append", help="which (repeatable; all)")
    parser.add_argument("--errors", action="store_true", help="only write errors.json, which intervals are made of")
    parser.add_argument("--strangers", action="store_true", help="only print errors under profiles of other families")
    options = parser.parse_args(arguments)
    if options.errors or options.strangers:
        _strangers() if options.strangers else write_errors(seen_errors())
        return
    missed: dict[str, dict[str, float]] = json.loads(LEFT_OUT.read_text(encoding="utf-8")) if LEFT_OUT.exists() else {}
    for family in options.family or FITTED:
        tried = moved(family)
        change = tried.fit(np.ones(len(tried.rows), bool))
        best = {path: value * math.exp(x) for (path, value), x in zip(tried.starts.items(), change, strict=True)}
        print(family, json.dumps({path: float(f"{value:.4g}") for path, value in best.items()}))
        _report("fitted", by_suite(tried, tried.after(change)))
        if options.left_out:
            found = by_suite(tried, left_out(tried))
            _report("its source left out", found)
            missed |= found
    if options.left_out:
        LEFT_OUT.write_text(json.dumps(missed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _report(title: str, figures: Mapping[str, Mapping[str, float]]) -> None:
    for name, found in figures.items():
        mean, p90 = found["mean_abs_error"], found["p90_abs_error"]
        print(f"  {name:28} {title:20} mean |error| {mean:6.1%}  p90 {p90:6.1%}", flush=True)


def seen_errors() -> dict[tuple[str, Kind], list[float]]:
    """The errors on all shipped steps, by source and kind of job, with a source left out where software is fitted."""
    blind: dict[str, list[float]] = {}
    for tried in map(moved, FITTED):
        for (name, _), error in zip(tried.rows, left_out(tried), strict=True):
            blind.setdefault(name, []).append(float(error))
    found: dict[tuple[str, Kind], list[float]] = {}
    for scored in map(score, sort_rows(default_documents())):
        for row, error in zip(scored.rows, blind.get(scored.suite.name, scored.errors), strict=True):
            if step := step_of(row):
                found.setdefault((row.source, kind_of(*step.jobs[0], step.system())), []).append(error)
    return found


def write_errors(errors: Mapping[tuple[str, Kind], Sequence[float]]) -> None:
    """Write the table: for every source and kind of job its errors, ascending."""
    entries = [
        [source, [getattr(kind, name) for name in Kind.__slots__], sorted(round(error, 4) for error in some)]
        for (source, kind), some in sorted(errors.items(), key=lambda item: (item[0][0], str(item[0][1])))
    ]
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n", encoding="utf-8")


def _strangers() -> None:
    """Print what shipped steps are missed by under what other frameworks are akin to; every source counts alike."""
    akin = [systems.SOFTWARE[name] for name in sorted({*systems.TABLE["akin"].values()})]
    missed: dict[str, list[float]] = {}
    for row in (row for one in sort_rows(default_documents()) for row in one.rows):
        if step := step_of(row):
            job, system = step.chosen(), step.system()
            for software in (other for other in akin if other.family != system.software.family):
                took_s = predict(*job, replace(system, software=software)).step_s
                missed.setdefault(row.source, []).append(abs(math.log(took_s / row.measured)))
    weights = np.concatenate([np.full(len(some), 1 / len(some) / len(missed)) for some in missed.values()])
    factors = np.expm1(np.concatenate([*missed.values()]))
    order = np.argsort(factors)
    for share in (0.5, 0.9):
        print(f"{share:.0%} are missed by at most {factors[order][np.cumsum(weights[order]) >= share][0]:.0%}")
    for share in (0.3, 0.5):
        print(f"an interval of {share:.0%} holds {weights[factors <= share].sum():.0%}")


@contextmanager
def using(values: Mapping[str, float]) -> Iterator[None]:
    """The shipped profiles with other values of some parameters."""
    table: dict[str, Any] = deepcopy(dict(systems.TABLE))
    for path, value in values.items():
        profiles, _, field = path.partition("/")
        *inner, last = field.split(".")
        for profile in profiles.split("+"):
            entry = table["software"][profile]
            for name in inner:
                entry = entry.setdefault(name, {})
            entry[last] = value
    made = {name: systems.profile(table["software"], name) for name in table["software"]}
    with patch.dict(systems.SOFTWARE, made), patch.dict(systems.CLUSTERS, systems.clusters(table)):
        yield


def errors(values: Mapping[str, float], names: Sequence[str]) -> Iterator[tuple[str, Row, float]]:
    """The shipped steps of some suites with their signed relative errors under other values."""
    with using(values):
        for one in sort_rows(default_documents(), [SUITES[name] for name in names]):
            for row in one.rows:
                if isinstance(row.question, Step):
                    with suppress(*READING_ERRORS):
                        yield one.suite.name, row, row.question.seconds() / row.measured - 1


@dataclass(frozen=True, slots=True)
class Tried:
    """Steps of a family with the logarithms of predicted over measured, and how these follow each parameter's.

    `starts`: the parameters with their shipped values.
    """

    starts: Mapping[str, float]
    rows: tuple[tuple[str, Row], ...]
    base: Floats
    slopes: Floats

    def after(self, change: Floats) -> Floats:
        """Errors with the parameters moved so far."""
        return np.exp(self.base + self.slopes @ change) - 1.0

    def fit(self, kept: NDArray[np.bool_]) -> Floats:
        """The move with the least weighted |log error| on the rows that are kept.

        Between what was tried, logarithms are taken for linear. Least absolute deviations come of weighted least
        squares, a few times over (Schlossmacher 1973); factors are pulled towards 1 as by a row. What hardly any of the
        kept rows feeds is pulled towards what software of other families has: nothing better is known of it.
        """
        counts = Counter((name, row.source) for name, row in self.rows)
        all_shares = np.array([counts[name, row.source] ** -0.5 for name, row in self.rows])
        shares = all_shares * kept
        factor = np.array(["kernels." in path and not path.endswith("_s") for path in self.starts])
        pull = np.diag(np.where(factor, _PULL, _PULL / 10))
        elsewhere = np.log([_elsewhere(path) / value for path, value in self.starts.items()])
        fed = shares @ self.slopes**2 > _FED * (all_shares @ self.slopes**2)
        towards = np.where(fed, np.where(factor, -np.log([*self.starts.values()]), 0.0), elsewhere)
        change = np.zeros(len(self.starts))
        for _ in range(50):
            weights = shares / np.maximum(np.abs(self.base + self.slopes @ change), 0.01)
            normal = self.slopes.T @ (weights[:, None] * self.slopes) + pull
            change = np.linalg.solve(normal, pull @ towards - self.slopes.T @ (weights * self.base))
            change = np.clip(change, -_FAR, _FAR)
        return change


def moved(family: str) -> Tried:
    """Every parameter of a family moved once, on all of its suites."""
    paths, names = FITTED[family]
    start = {path: _shipped(path) for path in paths}
    base = [*errors(start, names)]
    changed = [errors({**start, path: start[path] * math.exp(_MOVE)}, names) for path in paths]
    before, *after = (np.log1p([error for *_, error in some]) for some in (base, *changed))
    slopes = (np.array(after) - before) / _MOVE
    return Tried(start, tuple((name, row) for name, row, _ in base), before, slopes.T)


def left_out(tried: Tried) -> Floats:
    """The error of every row with its source left out of the fit."""
    sources = np.array([row.source for _, row in tried.rows])
    found = np.zeros(len(sources))
    for source in sorted(set(sources)):
        found[sources == source] = tried.after(tried.fit(sources != source))[sources == source]
    return found


def by_suite(tried: Tried, some: Floats) -> dict[str, dict[str, float]]:
    """Mean and 90th percentile of |error| in every suite."""
    sizes: dict[str, list[float]] = {}
    for (name, _), error in zip(tried.rows, some, strict=True):
        sizes.setdefault(name, []).append(abs(float(error)))
    return {
        name: {
            "mean_abs_error": round(math.fsum(found) / len(found), 4),
            "p90_abs_error": round(quantile(found, 0.9), 4),
        }
        for name, found in sizes.items()
    }


def _elsewhere(path: str) -> float:
    """The geometric mean of what software of the other families has; its own where theirs is nothing."""
    field = path.partition("/")[2]
    others = [paths[0].partition("/")[0] for paths, _ in FITTED.values() if path not in paths]
    found = [_shipped(f"{profiles}/{field}") for profiles in others]
    return math.exp(math.fsum(map(math.log, found)) / len(found)) if all(found) else _shipped(path)


_MOVE = 0.2  # of a parameter's logarithm
_FAR = 0.7  # as far as one fit goes
_PULL = 1.0
_FED = 0.1  # of what all rows together say of a parameter


def _shipped(path: str) -> float:
    profiles, _, field = path.partition("/")
    return float(attrgetter(field)(systems.SOFTWARE[profiles.split("+")[0]]))


if __name__ == "__main__":
    main()
