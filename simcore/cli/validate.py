"""simcore validate: every published measurement predicted from its configuration, and the error."""

from __future__ import annotations

from pathlib import Path

from simcore.cli.command import emit, note
from simcore.cost.picture import predictions_figure
from simcore.cost.published import suites as published
from simcore.cost.published import validate
from simcore.cost.published.reading import sort_rows
from simcore.errors import InputError
from simcore.progress import meter
from simcore.report.plots import save

COLUMNS = """\
mean, p90, largest   how far predictions are off, whatever the direction; bias: the mean with its sign
tolerance            the mean that a suite may have; above it the exit status is 3
noise floor          how far runs of one job, or repeats of one configuration, differ by themselves
source left out      the mean when nothing is fitted to the row's source
intervals hold       rows inside the 90% interval of their prediction"""


def command(
    suite: str | None, data: str | None, markdown: bool, rows: bool, explain: bool, engine: bool, plot: str | None
) -> int:
    """Predict published measurements and report the error of every row."""
    path = Path(data) if data else None
    documents = [published.load(path)] if path else validate.default_documents()
    asked = [*sort_rows(documents, [published.suite(suite)] if suite else published.SUITES.values())]
    meter().expect(sum(len(some.rows) for some in asked))
    found = [validate.score(some, engine=engine, explain=explain) for some in asked]
    if not found:
        raise InputError.at(str(path or "shipped measurements"), "no row of this suite", expected=suite or "any suite")
    if plot:
        save(predictions_figure(found), Path(plot))
    shown = validate.suites_table(found).markdown() if markdown else validate.text(found, rows=rows)
    told = (
        shown,
        validate.scaling(found, markdown=markdown),
        COLUMNS if any(one.rows for one in found) and not markdown else "",
    )
    emit(validate.document(found), "\n\n".join(filter(None, told)))
    missed = [one.suite.name for one in found if one.missed]
    if missed:
        note(f"outside the tolerance: {', '.join(missed)}")
    return 3 if missed else 0
