"""Score the model on published measurements: error per row, mean, p90 and largest per suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from pathlib import Path
from typing import Any

from simcore.cost.predict import Prediction
from simcore.cost.published import Suite, load
from simcore.cost.rows import Row
from simcore.cost.systems import FITTED, clusters, kernel_constants
from simcore.errors import InputError, Location

__all__ = [
 "Scored", "Sensitivity", "default_documents", "document", "markdown", "read_from", "rows_of", "score", "sensitivities",
 "table",
]  # fmt: skip

_HERE = Path(__file__).parent / "measurements"


@dataclass(frozen=True, slots=True)
class Scored:
    """A suite with its rows predicted."""

    suite: Suite
    rows: tuple[Row, ...]
    predictions: tuple[Prediction, ...]

    @property
    def errors(self) -> list[float]:
        """Predicted / measured - 1 of every row."""
        return [p.step_s / row.measured - 1 for row, p in zip(self.rows, self.predictions, strict=True)]

    @property
    def mean(self) -> float:
        """Mean |error|."""
        return sum(map(abs, self.errors)) / len(self.rows)

    def quantile(self, share: float) -> float:
        """The |error| that `share` of the rows do not pass (nearest rank)."""
        return sorted(map(abs, self.errors))[max(0, ceil(share * len(self.rows)) - 1)]

    @property
    def missed(self) -> bool:
        """Whether the mean is outside the suite's tolerance."""
        return self.suite.tolerance is not None and self.mean > self.suite.tolerance


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How a suite's predictions follow a constant: relative change of time per relative change of the constant."""

    constant: str
    elasticity: float


def default_documents() -> list[Mapping[str, Any]]:
    """The measurements shipped with simcore; each file names its sources and licences."""
    return [load(path) for path in sorted(_HERE.glob("*.json"))]


def score(suite: Suite, documents: Iterable[Mapping[str, Any]], progress: Any = None) -> Scored | None:
    """Predict every row of a suite, None when the documents hold none; `progress` wraps the rows (a tqdm)."""
    rows = rows_of(suite, documents)
    if not rows:
        return None
    watched = progress(rows) if progress else rows
    return Scored(suite, rows, tuple(map(_predicted, watched)))


def rows_of(suite: Suite, documents: Iterable[Mapping[str, Any]]) -> tuple[Row, ...]:
    """The rows of a suite; InputError names the suite, or the row, that cannot be read."""
    with _locating(f"suite {suite.name}", "rows cannot be read"):
        return tuple(row for each in documents for row in suite.rows(each))


@contextmanager
def read_from(path: str | Path | None) -> Iterator[None]:
    """Errors that name a row or a suite name the file, too."""
    try:
        yield
    except InputError as error:
        if path is None or error.problems[0].location.file == str(path):
            raise
        raise InputError([
            replace(problem, location=Location(str(path)), message=f"{problem.location.file}: {problem.message}")
            for problem in error.problems
        ]) from error  # fmt: skip


def _predicted(row: Row) -> Prediction:
    """The answer to a row; InputError names the row whose figures are impossible."""
    with _locating(row.id, "the measurement's figures are impossible"):
        prediction = row.question.explained()
        if not (0 < row.measured < inf and 0 < prediction.step_s < inf):
            raise ValueError(f"measured {row.measured:g}, predicted {prediction.step_s:g}")
    return prediction


@contextmanager
def _locating(name: str, what: str) -> Iterator[None]:
    """Errors of arithmetic on what a file says become one that names the measurement."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError.at(name, what, expected="figures as in docs/validation.md", found=found) from error


def sensitivities(scored: Scored, step: float = 0.05) -> list[Sensitivity]:
    """The constants a suite's predictions follow most, by central differences over up to 50 of its rows.

    Memory follows the bytes of what it holds, each by its share; collectives follow no constant of the kernels: none.
    """
    if scored.suite.unit != "s":
        held = [{name: part / one.step_s for name, part in one.parts.items()} for one in scored.predictions]
        names = dict.fromkeys(name for one in held for name in one)
        shares = [Sensitivity(name, sum(one.get(name, 0.0) for one in held) / len(held)) for name in names]
        return sorted(shares, key=lambda one: -one.elasticity)
    values = {**kernel_constants(), **FITTED}
    rows = scored.rows[:: ceil(len(scored.rows) / 50)]

    def mean_s(name: str, factor: float) -> float:
        systems = clusters({**values, name: values[name] * factor})
        return sum(row.question.seconds(systems) / row.measured for row in rows)

    base_s = mean_s("gemm", 1.0)
    found = [
        Sensitivity(name, (mean_s(name, 1 + step) - mean_s(name, 1 - step)) / (2 * step * base_s)) for name in values
    ]
    moving = [one for one in found if one.elasticity]
    return sorted(moving, key=lambda one: (-abs(one.elasticity), one.constant))


def document(scored: Sequence[Scored], *, explain: bool = False) -> dict[str, Any]:
    """The JSON document of `simcore validate --json`, schema simcore.validate/1."""
    return {"schema": "simcore.validate/1", "suites": [_suite_document(one, explain) for one in scored]}


def _suite_document(scored: Scored, explain: bool) -> dict[str, Any]:
    margin = scored.quantile(0.9)
    found: dict[str, Any] = {
        "name": scored.suite.name,
        "rows": [_row_document(*row, margin if explain else None, scored.suite.unit) for row in _lines(scored)],
        "mean_abs_error": scored.mean,
        "p90_abs_error": margin,
        "max_abs_error": scored.quantile(1.0),
        "tolerance": scored.suite.tolerance,
        "best_peer": scored.suite.peer,
    }
    if explain:
        top = sensitivities(scored)[:3]
        found["sensitivities"] = [{"constant": one.constant, "elasticity": one.elasticity} for one in top]
    return found


def _lines(scored: Scored) -> Iterator[tuple[Row, Prediction, float]]:
    return zip(scored.rows, scored.predictions, scored.errors, strict=True)


def _row_document(row: Row, prediction: Prediction, error: float, margin: float | None, unit: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": row.id,
        f"measured_{unit}": row.measured,
        f"predicted_{unit}": prediction.step_s,
        "error": error,
    }
    if row.peer:
        entry[f"peer_{unit}"] = row.peer
    if margin is not None:
        entry[f"interval_{unit}"] = [prediction.step_s / (1 + margin), prediction.step_s * (1 + margin)]
        entry[f"parts_{unit}"] = prediction.parts
    return entry


def markdown(scored: Sequence[Scored]) -> str:
    """The table of `docs/validation.md`: a row per suite."""
    lines = [
        "| suite | rows | mean | p90 | largest | tolerance | best peer on the same data |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in scored:
        figures = " | ".join(f"{figure:.1%}" for figure in (one.mean, one.quantile(0.9), one.quantile(1.0)))
        limit = "-" if one.suite.tolerance is None else f"{one.suite.tolerance * 100:g}%"
        lines.append(f"| {one.suite.name} | {len(one.rows)} | {figures} | {limit} | {one.suite.peer or '-'} |")
    return "\n".join(lines)


def table(scored: Sequence[Scored], *, explain: bool = False, rows: bool = False) -> str:
    """The result for people: a line per suite, with `rows` one per measurement, with `explain` what it consists of."""
    head = f"{'suite':26} {'rows':>5} {'mean':>7} {'p90':>7} {'max':>7} {'limit':>7}  best peer, same data"
    lines = [head]
    for one in scored:
        limit = "-" if one.suite.tolerance is None else f"{one.suite.tolerance:.1%}"
        figures = (one.mean, one.quantile(0.9), one.quantile(1.0))
        text = " ".join(f"{figure:>7.1%}" for figure in figures)
        mark = "  MISSED" if one.missed else ""
        lines.append(f"{one.suite.name:26} {len(one.rows):>5} {text} {limit:>7}  {one.suite.peer}{mark}")
    for one in scored:
        lines += _details(one, explain) if rows or explain else []
    return "\n".join(lines)


def _details(scored: Scored, explain: bool) -> Iterator[str]:
    unit = scored.suite.unit
    yield f"\n{scored.suite.name}"
    if explain:
        top = ", ".join(f"{one.constant} {one.elasticity:+.2f}" for one in sensitivities(scored)[:3])
        yield f"  most sensitive to (change of time per change of constant): {top}"
        yield f"  nine in ten rows lie within a factor of {1 + scored.quantile(0.9):.3f}"
    for row, prediction, error in _lines(scored):
        line = f"  {row.id:48} {row.measured:12.6g} {unit} measured {prediction.step_s:12.6g} {unit} {error:+7.1%}"
        peer = f"   peer {row.peer:.6g} {unit} {row.peer / row.measured - 1:+.1%}" if row.peer else ""
        yield line + peer + (_shares(prediction) if explain else "")


def _shares(prediction: Prediction) -> str:
    parts = partial(map, lambda part: f"{part[0]} {part[1] / prediction.step_s:.0%}")
    return "  " + ", ".join(parts([part for part in prediction.parts.items() if part[1] > 0.005 * prediction.step_s]))
