"""The report of a study: table, CSV, Parquet and what the picture needs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simcore.documents import read
from simcore.errors import InputError, Problems, printable
from simcore.files import write_all
from simcore.front import front
from simcore.report.plots import image, titled
from simcore.report.table import Table, columns
from simcore.report.text import wrapped
from simcore.sweep.pictures import measure, scaling_figure, shown, study_figure, trade_figure
from simcore.sweep.run import Row
from simcore.sweep.study import FIGURES, SLOWDOWN
from simcore.sweep.sweep import RESULTS, SCHEMA, STUDY, gathered
from simcore.units import format_ns


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of a study in its order, what varies in it, and how many runs are not done yet."""

    varied: tuple[str, ...]
    rows: tuple[Row, ...]
    num_missing: int = 0

    @property
    def figures(self) -> list[str]:
        """Those of all runs, then what only some have."""
        return [*dict.fromkeys([*FIGURES, *(name for row in self.rows for name in row["figures"])])]

    @property
    def done(self) -> list[Row]:
        """The rows that have figures."""
        return [row for row in self.rows if not row["error"]]


def read_results(folder: Path) -> Results:
    """The results in a folder of `simcore sweep`, also while it runs, after it was ended or before `merge`."""
    if not (folder / STUDY).exists():
        raise InputError.at(str(folder), "there is no sweep here", expected=f"a folder with {STUDY} and {RESULTS}")
    with Problems() as problems:
        root = read(folder / STUDY, problems)
        root.keys(required=("schema", "varied", "keys"))
        if problems.found or root["schema"].choice([SCHEMA]) is None:
            raise InputError(problems.found)
        varied, keys = ([item.text() for item in root[name].sequence()] for name in ("varied", "keys"))
    known = gathered([folder])
    rows = tuple(known[key] for key in keys if key in known)
    return Results(tuple(varied), rows, len(keys) - len(rows))


def render(results: Results, *, width: int = 80, num_rows: int = 40) -> str:
    """The summary, then the shortest runs first, failures at the end."""
    ordered = sorted(results.rows, key=lambda row: (bool(row["error"]), row["figures"].get("time_ns", 0)))
    settings = [(name, name, "") for name in results.varied]
    left_out = ("npus", "network_usd", ".alone_step_ns", f".{SLOWDOWN}")  # of jobs their steps beside the others
    names = [name for name in results.figures if not name.endswith(left_out)]
    told = [(SLOWDOWN, SLOWDOWN, ".3f") if name == SLOWDOWN else name for name in names]
    lines = []
    for row in ordered:
        first, *others = map(row["figures"].get, names)
        figures = [first if row["figures"] else "failed", *others]
        lines.append([*(shown(row["options"].get(name)) for name in results.varied), *figures])
    table = Table("", columns(*settings, *told), lines, noun="runs", listed="results.csv")
    failed = (row for row in ordered[:num_rows] if row["error"])
    failures = "\n".join(f"failed: {_settings(results, row)}\n  {row['error'].splitlines()[0]}" for row in failed)
    listed = table.first(num_rows).text(width) if results.varied else ""
    return "\n\n".join(filter(None, (wrapped(_headline(results), width), listed, printable(failures)))) + "\n"


def _headline(results: Results) -> str:
    failed = len(results.rows) - len(results.done)
    missing = f", {results.num_missing} not done yet" * bool(results.num_missing)
    text = f"{len(results.rows)} runs, {failed} failed{missing}."
    if results.done:
        best, worst = (pick(results.done, key=lambda row: row["figures"]["time_ns"]) for pick in (min, max))
        ratio = worst["figures"]["time_ns"] / max(best["figures"]["time_ns"], 1)
        text += f" Shortest: {format_ns(best['figures']['time_ns'])} with {_settings(results, best)}; "
        text += f"the longest takes {ratio:.3g} times as long."
    versions = sorted({row["version"] for row in results.rows})
    return text + f" The runs are of several versions: {', '.join(versions)}." * (len(versions) > 1)


def _settings(results: Results, row: Row) -> str:
    options = row["options"]
    return ", ".join(f"{name} = {shown(options[name])}" for name in results.varied if name in options)


def _columns(results: Results) -> dict[str, list[Any]]:
    """Column -> values: what varies, figures (none of a failed run), error, key."""
    columns = {name: [row["options"].get(name) for row in results.rows] for name in results.varied}
    columns |= {name: [row["figures"].get(name) for row in results.rows] for name in results.figures}
    return columns | {"error": [row["error"] for row in results.rows], "key": [row["key"] for row in results.rows]}


def results_csv(results: Results) -> str:
    """All rows as CSV, in the order of the study; lists are written as JSON."""
    held = _columns(results)
    rows = [[None if value is None else shown(value) for value in row] for row in zip(*held.values(), strict=True)]
    return Table("", columns(*held), rows).csv()


def unbeaten(results: Results, pareto: tuple[str, str], *, width: int = 80) -> str:
    """The runs that no other beats in two figures, as a table."""
    rows = _with_figures(results.done, pareto)
    across, up = (measure(rows, results.varied, name) for name in pareto)
    others = [name for name in results.varied if name not in pareto]
    cells = [
        [across(row), up(row), *(shown(row["options"].get(name)) for name in others)] for row in front(rows, across, up)
    ]
    missing = len(results.done) - len(rows)
    title = f"No run is better in both, {pareto[0]} and {pareto[1]} (less is better"
    title += f"; {missing:,} of {len(results.done):,} runs have no such figure)" if missing else ")"
    return wrapped(title, width) + "\n" + Table("", columns(*pareto, *others), cells).text(width) + "\n"


def _with_figures(rows: list[Row], names: Sequence[str]) -> list[Row]:
    """Runs that have these figures: not every network has a price. InputError if none has."""
    known = {*FIGURES}.union(*(row["figures"] for row in rows))
    found = [row for row in rows if row["figures"].keys() >= {*names} & known]
    if not found:
        raise InputError.at("--pareto", "no run has these figures", expected=", ".join(rows[0]["figures"]))
    return found


def write_files(results: Results, folder: Path, pareto: tuple[str, str] | None = None) -> list[Path]:
    """Write results.csv, results.parquet where PyArrow is installed, results.svg and .png, and scaling.svg and .png.

    The latter where the number of NPUs varies; with `pareto`, pareto.svg and .png of these two figures.
    """
    files, figures = {"results.csv": results_csv(results).encode()}, {}
    if find_spec("pyarrow"):
        files["results.parquet"] = _parquet(results)
    if results.done and results.varied:
        figures["results"] = study_figure(results.done, results.varied)
    if len({row["figures"]["npus"] for row in results.done}) > 1:
        figures["scaling"] = scaling_figure(results.done, results.varied)
    if pareto and results.done:
        figures["pareto"] = trade_figure(_with_figures(results.done, pareto), results.varied, pareto)
    for name, figure in figures.items():
        best = min(results.done, key=lambda row: row["figures"]["time_ns"])
        workload = "" if "workload" in results.varied else f"{Path(shown(best['options'].get('workload'))).stem}, "
        took = f"{format_ns(best['figures']['time_ns'])}, {_settings(results, best)}"
        titled(figure, f"{workload}{len(results.done)} runs; shortest: {took}")
        files |= {f"{name}.svg": image(figure, "svg"), f"{name}.png": image(figure, "png")}
    write_all({folder / name: content for name, content in files.items()})
    return [folder / name for name in files]


def _parquet(results: Results) -> bytes:
    """The columns of the CSV; those of mixed kinds as text."""
    import pyarrow
    from pyarrow import parquet

    def typed(values: list[Any]) -> Any:
        kinds = {type(value) for value in values if value is not None}
        plain = (len(kinds) <= 1 and kinds <= {bool, int, float, str}) or kinds == {int, float}
        return pyarrow.array(values if plain else [None if value is None else shown(value) for value in values])

    out = io.BytesIO()
    parquet.write_table(pyarrow.table({name: typed(values) for name, values in _columns(results).items()}), out)
    return out.getvalue()
