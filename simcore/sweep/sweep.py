"""A study done: what is known is kept, what is missing is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simcore.errors import InputError
from simcore.files import make_folder, write_text
from simcore.progress import meter
from simcore.sweep.run import Row, tasks
from simcore.sweep.space import Configuration
from simcore.sweep.store import appending, read_rows
from simcore.sweep.study import Study
from simcore.sweep.workers import Runner, workers

RESULTS = "results.jsonl"
SHARD = "results-{}-of-{}.jsonl"
STUDY = "study.json"
"""Which rows of RESULTS belong to the study, in its order."""
SCHEMA = "simcore.sweep/1"


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What is known, what runs the rest, where a new row goes."""

    rows: dict[str, Row]
    run: Runner
    append: Callable[[Row], None]

    def complete(self, configurations: Sequence[Configuration]) -> list[Row]:
        """The row of each configuration, in order; those not known are run first, equal ones once."""
        keyed = [*tasks(configurations)]
        asked = {task.key: task for task in keyed}
        missing = [task for key, task in asked.items() if key not in self.rows]
        meter().advance(len(configurations) - len(missing))
        for row in self.run(missing):
            self.append(row)
            self.rows[row["key"]] = row
            meter().advance()
        return [self.rows[task.key] for task in keyed]


def sweep(
    study: Study,
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    retry: bool = False,
    shard: tuple[int, int] | None = None,
) -> list[Row]:
    """Do what is missing of a study and return its rows in order.

    Parameters
    ----------
    study : Study
        From `read_study`.
    folder : Path
        Where results are and will be; a new or an empty folder, or one of an earlier sweep.
    jobs : int
        Local processes; the rows do not depend on it.
    scheduler : str, optional
        Address of a Dask scheduler, instead of local processes.
    retry : bool
        Do failed runs again.
    shard : (int, int), optional
        The part (from 1) and of how many parts this sweep does; its rows go to a file of its own for `merge`.
    """
    results = folder / (RESULTS if shard is None else SHARD.format(*shard))
    if not any(folder.glob("results*.jsonl")):
        make_folder(folder)
    with appending(results) as append, workers(jobs, scheduler) as run:
        known = {key: row for key, row in read_rows(results).items() if not (retry and row["error"])}
        doing = _Sweep(known, run, append)
        _describe(study, folder, [task.key for task in tasks(study.configurations)])
        part, parts = shard or (1, 1)
        rows = doing.complete(study.configurations[part - 1 :: parts])
        if study.search:
            from simcore.sweep.optimise import search

            rows += search(study.search, doing.complete)
            _describe(study, folder, [row["key"] for row in rows])
    return [*{row["key"]: row for row in rows}.values()]


def merge(folder: Path, others: Sequence[Path] = ()) -> int:
    """Put the rows of all shards in `folder` and in `others` into its `results.jsonl`; how many rows there are then."""
    places = [folder, *others]
    found = [path for place in places for path in sorted(place.glob("results*.jsonl"))]
    if not found:
        raise InputError.at(str(folder), "there is no sweep here", expected=f"a folder with {SHARD.format(1, 8)}")
    if not (folder / STUDY).exists():
        raise InputError.at(str(folder), f"there is no {STUDY} here", expected="the folder of a sweep")
    rows = {key: row for path in found for key, row in read_rows(path).items()}
    with appending(folder / RESULTS) as append:
        known = read_rows(folder / RESULTS)
        for key, row in rows.items():
            if known.get(key) != row:
                append(row)
    return len(rows)


def _describe(study: Study, folder: Path, keys: Sequence[str]) -> None:
    document = {"schema": SCHEMA, "varied": study.varied, "keys": [*dict.fromkeys(keys)]}
    write_text(folder / STUDY, json.dumps(document, sort_keys=True, indent=1) + "\n")
