"""Optuna's search: each batch of runs is drawn from what the batches before have shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simcore.sweep.run import Row
from simcore.sweep.space import Choice, Configuration, Range
from simcore.sweep.study import Search

BATCH = 4
"""Runs drawn at once, whatever the number of workers: the rows must not depend on it."""


def search(asked: Search, complete: Callable[[Sequence[Configuration]], list[Row]]) -> list[Row]:
    """Rows in the order drawn. The sampler is seeded: asked again, it wants the same runs, and these are known."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=asked.seed, n_startup_trials=2 * BATCH)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    rows: list[Row] = []
    for start in range(0, asked.num_runs, BATCH):
        trials = [study.ask() for _ in range(min(BATCH, asked.num_runs - start))]
        drawn = [
            asked.base | {name: _suggest(trial, name, some) for name, some in asked.space.items()} for trial in trials
        ]
        done = complete(drawn)
        for trial, row in zip(trials, done, strict=True):
            state = optuna.trial.TrialState.FAIL if row["error"] else optuna.trial.TrialState.COMPLETE
            study.tell(trial, row["figures"].get(asked.figure), state=state)
        rows += done
    return rows


def _suggest(trial: Any, name: str, some: Choice | Range) -> Any:
    """A value as the sampler suggests it; choices go by their place, for any plain data is a choice."""
    if isinstance(some, Choice):
        return some.values[trial.suggest_categorical(name, [*range(len(some.values))])]
    if some.integer:
        return trial.suggest_int(name, int(some.low), int(some.high), log=some.log)
    return float(f"{trial.suggest_float(name, some.low, some.high, log=some.log):.6g}")
