"""`simcore sweep`: a study of many runs, and its report."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from simcore.cli.command import emit, terminal_width, warn
from simcore.errors import InputError, wrong
from simcore.progress import meter
from simcore.sweep.report import read_results, render, unbeaten, write_files
from simcore.sweep.study import Study, read_study
from simcore.sweep.sweep import merge as merged
from simcore.sweep.sweep import sweep
from simcore.sweep.workers import cores


def start(
    study: str, output: str | None, jobs: int | None, scheduler: str | None, shard: str | None, retry_failed: bool
) -> None:
    """Run what is missing of STUDY; the same command goes on after an interruption (`start` may be left out)."""
    asked = read_study(study)
    folder = Path(output) if output else Path(study).with_suffix(".sweep")
    part = _shard(shard, asked) if shard else None
    total = len(asked.configurations[part[0] - 1 :: part[1]]) if part else len(asked.configurations)
    total += asked.search.num_runs if asked.search else 0
    jobs = min(jobs or cores(), max(total, 1))
    meter().expect(total)
    rows = sweep(asked, folder, jobs=jobs, scheduler=scheduler, retry=retry_failed, shard=part)
    failures = [str(row["error"]) for row in rows if row["error"]]
    if failures:
        warn(f"the first run that failed: {failures[0]}")
    place = quote(str(folder))
    then = f"simcore sweep merge {place} when all parts are done" if part else f"simcore sweep report {place}"
    document = {"schema": "simcore.sweep/1", "runs": len(rows), "failed": len(failures), "folder": str(folder)}
    emit(document, f"{len(rows)} runs, {len(failures)} failed; next: {then}")


def _shard(text: str, study: Study) -> tuple[int, int]:
    """Which part of how many."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    part, parts = (int(number) for number in found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise wrong("--shard", "I/N, for example 1/8", text)
    if study.search:
        raise InputError.at("--shard", "Optuna draws each run from those before", expected="a grid or a list")
    return part, parts


def merge(folders: tuple[str, ...]) -> None:
    """Put the rows of all shards into the first of FOLDERS; the others may be copies from other machines."""
    count = merged(Path(folders[0]), [Path(each) for each in folders[1:]])
    document = {"schema": "simcore.sweep/1", "runs": count, "folder": str(folders[0])}
    emit(document, f"{count} runs; next: simcore sweep report {quote(folders[0])}")


def report(folder: str, rows: int, pareto: tuple[str, str] | None) -> None:
    """Show the results in DIR, the shortest run first, and write table and picture beside them."""
    results, width = read_results(Path(folder)), terminal_width()
    best = "\n" + unbeaten(results, pareto, width=width) if pareto and results.done else ""
    emit(
        {"schema": "simcore.sweep/1", "varied": results.varied, "rows": results.rows},
        lambda: render(results, width=width, num_rows=rows) + best,
    )
    write_files(results, Path(folder), pareto)
