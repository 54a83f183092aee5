"""`simcore sweep`: a study of many runs, and its report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simcore.cli.command import Group, emit, option, terminal_width
from simcore.cli.numbers import Whole
from simcore.cli.options import options_of
from simcore.errors import InputError
from simcore.progress import meter

if TYPE_CHECKING:
    from simcore.sweep.study import Study


class Sweep(Group):
    """`simcore sweep STUDY` stands for `simcore sweep start STUDY`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Put in the command that is left out."""
        if args and args[0] not in {*self.commands, *context.help_option_names}:
            args = ["start", *args]
        return super().parse_args(context, args)


@click.group(cls=Sweep, short_help="Run a study of many configurations.")
def command() -> None:
    """Run a study of many configurations: grid, list, random or Optuna (docs/sweep.md).

    \b
    simcore sweep sweep.yaml -o results --jobs 4
    simcore sweep report results
    """


@command.command(
    short_help="Run what is missing of a study.",
    params=[
        click.Argument(["study"], type=click.Path(path_type=Path)),
        *options_of("sweep start", output=click.Path(path_type=Path)),
    ],
)
def start(
    study: Path,
    output: Path | None,
    jobs: int | None,
    scheduler: str | None,
    shard: str | None,
    retry_failed: bool,
) -> None:
    """Run what is missing of STUDY; the same command goes on after an interruption (`start` may be left out).

    \b
    simcore sweep sweep.yaml -o results --jobs 4
    """
    from simcore.sweep.study import read_study
    from simcore.sweep.sweep import sweep
    from simcore.sweep.workers import cores

    asked = read_study(study)
    folder = output or study.with_suffix(".sweep")
    part = _shard(shard, asked) if shard else None
    total = len(asked.configurations[part[0] - 1 :: part[1]]) if part else len(asked.configurations)
    total += asked.search.num_runs if asked.search else 0
    jobs = min(jobs or cores(), max(total, 1))
    meter().expect(total)
    rows = sweep(asked, folder, jobs=jobs, scheduler=scheduler, retry=retry_failed, shard=part)
    failed = sum(bool(row["error"]) for row in rows)
    then = f"simcore sweep merge {folder} when all parts are done" if part else f"simcore sweep report {folder}"
    document = {"schema": "simcore.sweep/1", "runs": len(rows), "failed": failed, "folder": str(folder)}
    emit(document, f"{len(rows)} runs, {failed} failed; next: {then}")


def _shard(text: str, study: Study) -> tuple[int, int]:
    """Which part of how many."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    part, parts = (int(number) for number in found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise InputError.at("--shard", "not a part of a study", expected="I/N, for example 1/8", found=repr(text))
    if study.search:
        raise InputError.at("--shard", "Optuna draws each run from those before", expected="a grid or a list")
    return part, parts


@command.command(short_help="Put the rows of all shards together.")
@click.argument("folders", metavar="FOLDERS", nargs=-1, required=True, type=click.Path(path_type=Path))
def merge(folders: tuple[Path, ...]) -> None:
    """Put the rows of all shards into the first of FOLDERS; the others may be copies from other machines.

    \b
    simcore sweep merge results
    """
    from simcore.sweep.sweep import merge as together

    count = together(folders[0], folders[1:])
    document = {"schema": "simcore.sweep/1", "runs": count, "folder": str(folders[0])}
    emit(document, f"{count} runs; next: simcore sweep report {folders[0]}")


@command.command(short_help="Table and pictures of the results.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option("--rows", default=40, show_default=True, type=Whole(min=1), help="Most rows of the table.")
@option("--pareto", nargs=2, metavar="X Y", help="Two figures or numbers that vary: who is best in both?")
def report(folder: Path, rows: int, pareto: tuple[str, str] | None) -> None:
    """Show the results in DIR, the shortest run first, and write table and picture beside them.

    \b
    simcore sweep report results
    simcore sweep report results --pareto npus time_ns
    """
    from simcore.sweep.report import read_results, render, unbeaten, write_files

    results, width = read_results(folder), terminal_width()
    best = "\n" + unbeaten(results, pareto, width=width) if pareto and results.done else ""
    emit(
        {"schema": "simcore.sweep/1", "varied": results.varied, "rows": results.rows},
        lambda: render(results, width=width, num_rows=rows) + best,
    )
    write_files(results, folder, pareto)
