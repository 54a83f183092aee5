"""Score the model on published measurements: error per row, mean, p90 and largest per suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, fsum, inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from simcore.cost.margins import Margin, interval, kind_of, margin_of
from simcore.cost.played import cells, engine_ns
from simcore.cost.predict import Prediction
from simcore.cost.published.reading import READING_ERRORS, Refused, Sorted, reason_of
from simcore.cost.published.rows import Question, Row, step_of
from simcore.cost.published.scaling import curves, table
from simcore.cost.published.suites import Suite, load
from simcore.cost.sensitivity import Sensitivity, averaged, of_question, told
from simcore.model.memory import peak, room
from simcore.progress import meter
from simcore.report.table import Table, columns

MOST_CELLS = 20_000  # three seconds of the engine
_HERE = Path(__file__).parent / "measurements"


@dataclass(frozen=True, slots=True)
class Scored:
    """A suite with its rows predicted, and what cannot be.

    Where asked, the engine's answers (None: too long), and what each row follows.
    """

    suite: Suite
    rows: tuple[Row, ...]
    predictions: tuple[Prediction, ...]
    refused: tuple[Refused, ...] = ()
    engine_s: tuple[float | None, ...] = ()
    followed: tuple[Sequence[Sensitivity], ...] = ()

    @property
    def errors(self) -> list[float]:
        """Predicted / measured - 1 of every row."""
        return [p.step_s / row.measured - 1 for row, p in zip(self.rows, self.predictions, strict=True)]

    @property
    def mean(self) -> float:
        """Mean |error|; 0 of no rows."""
        return fsum(map(abs, self.errors)) / max(1, len(self.rows))

    @property
    def bias(self) -> float:
        """Mean error."""
        return fsum(self.errors) / max(1, len(self.rows))

    @property
    def margins(self) -> list[Margin]:
        """Of every row, from the errors of other sources on like jobs; of what is no step, from this suite's."""
        steps = [step_of(row) for row in self.rows]
        other = Margin(self.quantile(_COVERED), 0.0)
        return [
            margin_of(kind_of(*step.jobs[0], step.system()), frozenset([row.source])) if step else other
            for row, step in zip(self.rows, steps, strict=True)
        ]

    @property
    def held(self) -> float:
        """The share of the rows that lie in their intervals."""
        errors = zip(self.errors, self.margins, strict=True)
        return sum(1 / (1 + one.share) <= 1 + error <= 1 + one.share for error, one in errors) / max(1, len(self.rows))

    def quantile(self, share: float) -> float:
        """The |error| that `share` of the rows do not pass."""
        return quantile(list(map(abs, self.errors)), share)

    @property
    def noise(self) -> dict[str, float]:
        """What no model gets below: by how much `runs` of a job differ, largest to smallest (median of what is stated).

        `repeats`: how far steps of one configuration are from their median, in the mean. Only what is known.
        """
        alike: dict[Question, list[float]] = {}
        for row in self.rows:
            alike.setdefault(row.question, []).append(row.measured)
        spreads = [row.spread for row in self.rows if row.spread]
        far = [abs(one / median(some) - 1) for some in alike.values() if len(some) > 1 for one in some]
        return ({"runs": median(spreads)} if spreads else {}) | ({"repeats": fmean(far)} if far else {})

    @property
    def tight(self) -> Counter[str]:
        """How many of the jobs, all of which ran, "may not fit" or do not, as `simcore predict` tells memory."""
        steps = filter(None, map(step_of, self.rows))
        told = (room(min(peak(*job).total for job in one.jobs), one.system().memory_bytes) for one in steps)
        return Counter(one.partition(":")[0] for one in told if one)

    @property
    def apart(self) -> float:
        """The largest |engine / predicted - 1|."""
        pairs = zip(self.engine_s, self.predictions, strict=True)
        return max((abs(found / one.step_s - 1) for found, one in pairs if found), default=0.0)

    @property
    def missed(self) -> bool:
        """Whether the mean is outside the suite's tolerance."""
        return self.suite.tolerance is not None and self.mean > self.suite.tolerance


def default_documents() -> list[Mapping[str, Any]]:
    """The measurements shipped with simcore; each file names its sources and licences."""
    return [load(path) for path in sorted(_HERE.glob("*.json"))]


def score(some: Sorted, *, engine: bool = False, explain: bool = False) -> Scored:
    """Predict the rows of a suite.

    With `engine`, steps are run by the engine, too; with `explain`, every constant is moved for every row.
    """
    rows, answers, refused = [], [], list(some.refused)
    for row in meter().through(some.rows):
        try:
            prediction = row.question.explained()
            if not (0 < row.measured < inf and 0 < prediction.step_s < inf):
                raise ValueError(f"measured {row.measured:g}, predicted {prediction.step_s:g}")
            run_s, follows = _run(row) if engine else None, of_question(row.question) if explain else ()
            answers.append((prediction, run_s, follows))
            rows.append(row)
        except READING_ERRORS as error:
            refused.append(Refused(row.id, reason_of(error)))
    predictions, engine_s, followed = zip(*answers, strict=True) if answers else ((), (), ())
    return Scored(
        some.suite, tuple(rows), predictions, tuple(refused), engine_s if engine else (), followed if explain else ()
    )


_COVERED = 0.9


def _run(row: Row) -> float | None:
    """Seconds of a step by the engine, None where the row asks for something else or for too many cells."""
    step = step_of(row)
    if not step:
        return None
    model, plan = step.chosen()
    return engine_ns(model, plan, step.system()) * 1e-9 if cells(plan) <= MOST_CELLS else None


def document(scored: Sequence[Scored]) -> dict[str, Any]:
    """The JSON document of `simcore validate --json`, schema simcore.validate/1."""
    return {"schema": "simcore.validate/1", "suites": [_suite_document(one) for one in scored]}


def _suite_document(scored: Scored) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": scored.suite.name,
        "rows": [_row_document(scored, index, margin) for index, margin in enumerate(scored.margins)],
        "mean_abs_error": scored.mean,
        "p90_abs_error": scored.quantile(0.9),
        "max_abs_error": scored.quantile(1.0),
        "bias": scored.bias,
        "refused": [asdict(one) for one in scored.refused],
        "in_sample": scored.suite.in_sample,
        "left_out": scored.suite.left_out,
        "noise": scored.noise,
        "tight": scored.tight,
        "intervals_hold": scored.held,
        "tolerance": scored.suite.tolerance,
        "best_peer": scored.suite.peer,
    }
    if scored.followed:
        found["sensitivities"] = _first_three(averaged(scored.followed))
    if scored.engine_s:
        found |= {"engine_rows": len(scored.engine_s) - scored.engine_s.count(None), "engine_apart": scored.apart}
    return found


def _row_document(scored: Scored, index: int, margin: Margin) -> dict[str, Any]:
    row, prediction, unit = scored.rows[index], scored.predictions[index], scored.suite.unit
    entry: dict[str, Any] = {
        "id": row.id,
        f"measured_{unit}": row.measured,
        f"predicted_{unit}": prediction.step_s,
        "error": scored.errors[index],
        f"interval_{unit}": list(interval(prediction.step_s, margin.share)),
    }
    if row.peer:
        entry[f"peer_{unit}"] = row.peer
    if scored.followed:
        entry[f"parts_{unit}"] = prediction.parts
        entry["sensitivities"] = _first_three(scored.followed[index])
    if scored.engine_s:
        entry[f"engine_{unit}"] = scored.engine_s[index]
    return entry


def _first_three(some: Sequence[Sensitivity]) -> list[dict[str, Any]]:
    return [asdict(one) for one in some[:3]]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of some do not pass (nearest rank)."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else 0.0


def scaling(scored: Sequence[Scored], *, markdown: bool = True) -> str:
    """Curves of efficiency of suites that are judged, predicted and measured; nothing where there is none."""
    judged = [one for one in scored if one.suite.tolerance is not None]
    steps = [(row, p.step_s) for one in judged for row, p in zip(one.rows, one.predictions, strict=True)]
    found = curves(steps)
    if not found:
        return ""
    return table(found).markdown().replace("  ", " ") if markdown else table(found).text(120)


def suites_table(scored: Sequence[Scored]) -> Table:
    """A row per suite: errors, the noise below them, sources left out, intervals that hold, jobs said not to fit."""
    shares = [(name, name, "share") for name in ("mean", "p90", "largest")]
    signs = ("bias", "bias", "+share")
    more = ("tolerance", ("noise", "noise floor"), "source left out", ("held", "intervals hold", ".0%"), *_TIGHT)
    shown = columns("suite", "rows", shares[0], signs, *shares[1:], *more, "best peer on the same data")
    return Table("", shown, [_row(one) for one in scored])


def _row(one: Scored) -> tuple[object, ...]:
    left, limit = one.suite.left_out, one.suite.tolerance
    untold = "not tried" if one.suite.in_sample else "nothing fitted"
    out = f"{left['mean_abs_error']:.1%}" if left else untold
    errors = (one.mean, one.bias, one.quantile(0.9), one.quantile(1.0)) if one.rows else (None,) * 4
    held = one.held if one.rows else None
    noise = ", ".join(f"{what} {share:.1%}" for what, share in one.noise.items()) or "not stated"
    fits, allowed = one.tight, limit and f"{limit * 100:g}%"
    tight = (fits[how] or None for how in _TIGHT)
    return one.suite.name, len(one.rows), *errors, allowed, noise, out, held, *tight, one.suite.peer or None


_TIGHT = "may not fit", "does not fit"


def text(scored: Sequence[Scored], *, rows: bool = False, width: int = 200) -> str:
    """The result for people: a line per suite, one per measurement with `rows` or where there is more to say."""
    suites = suites_table(scored)
    heads = [*suites.columns, *columns(("refused", "refused"), ("missed", ""))]
    said = [(len(one.refused) or None, "MISSED" * one.missed) for one in scored]
    rows_and_more = zip(scored, suites.values(), said, strict=True)
    shown = Table("", heads, [(*row, *more) for one, row, more in rows_and_more if one.rows or one.refused])
    return "\n".join(
        [
            _verdict(scored),
            "",
            shown.text(width),
            *(line for one in scored for line in _details(one, rows=rows or bool(one.followed))),
        ]
    )


def _verdict(scored: Sequence[Scored]) -> str:
    """All suites in a sentence."""
    count, missed = sum(len(one.rows) for one in scored), sum(one.missed for one in scored)
    if not count:
        return "None of these measurements can be predicted."
    mean = fsum(abs(error) for one in scored for error in one.errors) / count
    held = fsum(one.held * len(one.rows) for one in scored) / count
    verdict = f"{count:,} measurements are predicted with a mean error of {mean:.1%}; {held:.0%} lie in their interval."
    above = f"The mean of {missed} suite{'s' * (missed > 1)} is above" if missed else "No suite's mean is above"
    return f"{verdict} {above} the tolerance."


def _details(scored: Scored, *, rows: bool) -> Iterator[str]:
    if rows or scored.engine_s:
        yield f"\n{scored.suite.name}"
    for one in scored.refused if rows else ():
        yield f"  {one.id:48} refused: {one.reason}"
    if scored.followed:
        yield f"  follows most (change of time per change of constant): {told(averaged(scored.followed))}"
        yield f"  nine in ten rows lie within a factor of {1 + scored.quantile(0.9):.3f}"
    if scored.engine_s:
        played = len(scored.engine_s) - scored.engine_s.count(None)
        yield f"  the engine ran {played} of {len(scored.rows)} rows, at most {scored.apart:.2g} from the prediction"
    for index in range(len(scored.rows)) if rows else ():
        yield from _row_lines(scored, index)


def _row_lines(scored: Scored, index: int) -> Iterator[str]:
    row, prediction, unit = scored.rows[index], scored.predictions[index], scored.suite.unit
    error, run_s = scored.errors[index], scored.engine_s[index] if scored.engine_s else None
    line = f"  {row.id:48} {row.measured:12.6g} {unit} measured {prediction.step_s:12.6g} {unit} {error:+7.1%}"
    peer = f"   peer {row.peer:.6g} {unit} {row.peer / row.measured - 1:+.1%}" if row.peer else ""
    yield line + peer + (f"  engine {run_s:.9g} {unit}" if run_s else "")
    if scored.followed:
        low, high = interval(prediction.step_s, scored.margins[index].share)
        parts = {name: part / prediction.step_s for name, part in prediction.parts.items()}
        shares = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share > _SHOWN)
        yield f"      {low:.6g} to {high:.6g} {unit}: {shares}; follows {told(scored.followed[index])}"


_SHOWN = 0.005
