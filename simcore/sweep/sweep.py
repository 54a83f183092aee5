"""A study done: what is known is kept, what is missing is run.

Results are an append-only file of JSON lines: what was written survives, a torn last line never happened.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from simcore.errors import InputError, Location, SimulationError
from simcore.files import make_folder, write_text
from simcore.progress import meter
from simcore.sweep.run import Row, tasks
from simcore.sweep.study import Choice, Configuration, Range, Search, Study
from simcore.sweep.workers import workers

RESULTS = "results.jsonl"
SHARD = "results-{}-of-{}.jsonl"
ROWS = "results*.jsonl"
"""The rows of a sweep and of its shards."""
STUDY = "study.json"
LOCKED = 1 << 40  # the byte that Windows locks: behind all rows, which others may read
"""Which rows of RESULTS belong to the study, in its order."""
SCHEMA = "simcore.sweep/1"


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

    Results are and will be in `folder`: a new or an empty one, or one of an earlier sweep. The rows do not depend on
    `jobs`, the number of local processes; `scheduler`, the address of a Dask scheduler, takes their place. With `retry`
    failed runs are done again. A `shard` is the part (from 1) that this sweep does and of how many parts; its rows go
    to a file of its own for `merge`.
    """
    results = folder / (RESULTS if shard is None else SHARD.format(*shard))
    if not any(folder.glob(ROWS)):
        make_folder(folder)
    with appending(results) as append, workers(jobs, scheduler) as run:
        known = {key: row for key, row in read_rows(results).items() if not (retry and row["error"])}

        def complete(configurations: Sequence[Configuration]) -> list[Row]:
            """The row of each configuration, in order; those not known are run first, equal ones once."""
            keyed = [*tasks(configurations)]
            asked = {task.key: task for task in keyed}
            missing = [task for key, task in asked.items() if key not in known]
            meter().advance(len(configurations) - len(missing))
            for row in run(missing):
                append(row)
                known[row["key"]] = row
                meter().advance()
            return [known[task.key] for task in keyed]

        _describe(study, folder, [task.key for task in tasks(study.configurations)])
        part, parts = shard or (1, 1)
        rows = complete(study.configurations[part - 1 :: parts])
        if study.search:
            found = _search(study.search, complete)
            rows += found
            _describe(study, folder, [row["key"] for row in rows])
            _check_sought(study.search, found)
    return [*{row["key"]: row for row in rows}.values()]


def merge(folder: Path, others: Sequence[Path] = ()) -> int:
    """Put the rows of all shards in `folder` and in `others` into its `results.jsonl`; how many rows there are then."""
    places = [folder, *others]
    if not any(path for place in places for path in place.glob(ROWS)):
        raise InputError.at(str(folder), "there is no sweep here", expected=f"a folder with {SHARD.format(1, 8)}")
    if not (folder / STUDY).exists():
        raise InputError.at(str(folder), f"there is no {STUDY} here", expected="the folder of a sweep")
    rows = gathered(places)
    with appending(folder / RESULTS) as append:
        known = read_rows(folder / RESULTS)
        for key, row in rows.items():
            if known.get(key) != row:
                append(row)
    return len(rows)


def gathered(folders: Iterable[Path]) -> dict[str, Row]:
    """Key -> row of all parts in the folders: of equal keys the last that succeeded, for failed runs are done again."""
    paths = [path for folder in folders for path in sorted(folder.glob(ROWS))]
    rows = [row for path in paths for row in read_rows(path).values()]
    return {row["key"]: row for row in sorted(rows, key=lambda row: not row["error"])}


def _describe(study: Study, folder: Path, keys: Sequence[str]) -> None:
    document = {"schema": SCHEMA, "varied": study.varied, "keys": [*dict.fromkeys(keys)]}
    write_text(folder / STUDY, json.dumps(document, sort_keys=True, indent=1) + "\n")


def read_rows(path: Path) -> dict[str, Row]:
    """Key -> row, the last of equal keys; no rows where there is no file.

    InputError if a line that ends is not a row: somebody else wrote to the file.
    """
    if not path.exists():
        return {}
    *lines, _torn = path.read_bytes().split(b"\n")
    rows = dict[str, Row]()
    for number, line in enumerate(lines, 1):
        try:
            row = msgspec.json.decode(line, type=Row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            place, expected = Location(str(path), number, 1), "a line written by simcore sweep"
            raise InputError.at(place, "this line is not a result", expected=expected, found=str(error)) from error
        rows[row["key"]] = row
    return rows


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Row], None]]:
    """A function that adds a row and returns when it is on the disk; one process at a time.

    InputError if another sweep writes to the file, or it cannot be written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise InputError.at(str(path), "cannot be written", found=error.strerror or str(error)) from error
    try:
        _lock(file, path)
        os.ftruncate(file, path.read_bytes().rfind(b"\n") + 1)  # without a torn last line
        yield lambda row: _append(file, path, row)
    finally:
        os.close(file)


def _lock(file: int, path: Path) -> None:
    """Kept until the file is closed, at the latest by the end of the process, however it ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file, LOCKED, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError.at(
            str(path), "another sweep is writing here", hint="wait for it, or take another -o"
        ) from error


def _append(file: int, path: Path, row: Row) -> None:
    line = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    try:
        whole = os.write(file, line) == len(line)
        os.fsync(file)
    except OSError:
        whole = False
    if not whole:
        raise SimulationError(f"{path}: a result could not be written whole: is the disk full? Run again to go on")


BATCH = 4
"""Runs drawn at once, whatever the number of workers: the rows must not depend on it."""


def _search(asked: Search, complete: Callable[[Sequence[Configuration]], list[Row]]) -> list[Row]:
    """Optuna's rows in the order drawn: each batch of runs from what the batches before have shown.

    The sampler is seeded: asked again, it wants the same runs, and these are known.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=asked.seed, n_startup_trials=2 * BATCH)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    rows: list[Row] = []
    for start in range(0, asked.num_runs, BATCH):
        trials = [study.ask() for _ in range(min(BATCH, asked.num_runs - start))]
        drawn = [asked.base | {name: _suggest(one, name, some) for name, some in asked.space.items()} for one in trials]
        done = complete(drawn)
        for trial, row in zip(trials, done, strict=True):
            figure = row["figures"].get(asked.figure)  # none of a run that failed, no price of some networks
            states = optuna.trial.TrialState
            study.tell(trial, figure, state=states.FAIL if figure is None else states.COMPLETE)
        rows += done
    return rows


def _check_sought(asked: Search, rows: Sequence[Row]) -> None:
    """InputError where no run that succeeded has the figure to make small: nothing was learnt from any."""
    done = [row["figures"] for row in rows if not row["error"]]
    if done and not any(asked.figure in figures for figures in done):
        message, expected = "no run has this figure: nothing was minimised", ", ".join(done[0])
        raise InputError.at(asked.place, message, expected=expected, found=repr(asked.figure))


def _suggest(trial: Any, name: str, some: Choice | Range) -> Any:
    """A value as the sampler suggests it; choices go by their place, for any plain data is a choice."""
    if isinstance(some, Choice):
        return some.values[trial.suggest_categorical(name, [*range(len(some.values))])]
    if some.integer:
        return trial.suggest_int(name, int(some.low), int(some.high), log=some.log)
    return float(f"{trial.suggest_float(name, some.low, some.high, log=some.log):.6g}")
