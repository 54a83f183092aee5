"""simcore validate: every published measurement predicted from its configuration, and the error."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["command"]


@click.command()
@click.argument("suite", required=False)
@click.option(
    "--data", "path", type=click.Path(path_type=Path), help="Measurements of the same form, in place of the shipped."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--markdown", is_flag=True, help="The table of docs/validation.md.")
@click.option("--rows", is_flag=True, help="One line per measurement.")
@click.option("--explain", is_flag=True, help="Parts and interval of each prediction, the constants it follows most.")
@click.option("--engine", is_flag=True, help="Run the steps by the native engine, too, and compare.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture of predicted against measured (.png .svg .pdf).")
def command(
    suite: str | None,
    path: Path | None,
    as_json: bool,
    markdown: bool,
    rows: bool,
    explain: bool,
    engine: bool,
    plot: Path | None,
) -> int:
    """Predict published measurements and report the error of every row.

    Exit status 0, or 3 when a suite's mean error is outside its tolerance.

    \b
    simcore validate
    simcore validate sc21_table1 --rows
    simcore validate megascale_table2 --engine
    simcore validate --data my_rows.json --plot scatter.png
    """
    from tqdm import tqdm

    from simcore.cost.published import suites as published
    from simcore.cost.published import validate
    from simcore.cost.published.reading import sort_rows
    from simcore.errors import InputError

    documents = [published.load(path)] if path else validate.default_documents()
    found = []
    for some in sort_rows(documents, [published.suite(suite)] if suite else published.SUITES.values()):
        result = validate.score(
            some,
            progress=lambda rows, name=some.suite.name: tqdm(rows, desc=name, disable=None, leave=False),
            engine=engine,
            explain=explain,
        )
        found += [result] if result else []
    if not found:
        raise InputError.at(str(path or "shipped measurements"), "no row of this suite", expected=suite or "any suite")
    if plot:
        from simcore.cost.picture import predictions_figure
        from simcore.report.plots import save

        save(predictions_figure(found), plot)
    if as_json:
        click.echo(json.dumps(validate.document(found), sort_keys=True, indent=1, allow_nan=False))
    elif markdown:
        click.echo(validate.markdown(found))
    else:
        click.echo(validate.table(found, rows=rows))
    missed = [one.suite.name for one in found if one.missed]
    if missed:
        click.echo(f"outside the tolerance: {', '.join(missed)}", err=True)
    return 3 if missed else 0
