"""What dependencies are worth: traces replayed without them, and steps foretold from the graph of the one before.

Beside a step's graph, which knows the next one's kernel times, stand mere persistence (the next step takes what this
one took) and the null model's graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.replay.run import NULL, UNAIDED, Changes
from simcore.replay.session import RecordedStep, replay_prepared
from simcore.replay.steps.build import Prepared
from simcore.replay.steps.graph import StepGraph
from simcore.timeline.events import FOREVER


class Foresight(Struct, frozen=True):
    """Mean |error| of the device's time of each step after the first two, from the graph of the one before it."""

    steps: int
    graph: float
    null: float
    persistence: float


def foresight(ranks: Sequence[Prepared]) -> list[Foresight]:
    """For each rank; of steps that launch the same kernels as the one before. None such: `steps` is 0."""
    everybody = sorted(set.intersection(*({*rank.view.position_of} for rank in ranks)))
    # A kernel's time is known, its waiting included.
    sources = [RecordedStep(ranks, index, UNAIDED, lambda _: FOREVER) for index in everybody]
    rows = []
    for before, after in pairwise(sources[1:]):
        known = _with_kernels_of(before, after)
        if known is not None:
            took = [[done - begun for begun, done in source.device_spans] for source in (before, after)]
            rows.append((*took, *(before.device_times_ns(known, changes) for changes in (UNAIDED, NULL))))
    found = []
    for number in range(len(ranks)):
        own = [tuple(column[number] for column in row) for row in rows]  # before, after, graph, null
        errors = ([abs(row[at] / row[1] - 1) for row in own if row[1]] for at in (2, 3, 0))
        found.append(Foresight(len(own), *(mean(each) if each else 0.0 for each in errors)))
    return found


def _with_kernels_of(before: RecordedStep, after: RecordedStep) -> StepGraph | None:
    """The graph of one step with the durations of the other's tasks; None when their streams run other tasks."""
    durations = before.graph.duration_ns.copy()
    for mine, other, view in zip(before.graph.ranks, after.graph.ranks, before.views, strict=True):
        both = (np.array(nodes.tasks, dtype=np.int64) for nodes in (mine, other))
        rows, theirs = (np.lexsort((tasks, view.trace.tasks.lane[tasks])) for tasks in both)  # stream by stream
        names = (view.trace.tasks.name[np.array(nodes.tasks)[at]] for nodes, at in ((mine, rows), (other, theirs)))
        if len(rows) != len(theirs) or not np.array_equal(*names):
            return None
        durations[np.array(mine.ends)[rows]] = after.graph.duration_ns[np.array(other.ends)[theirs]]
    return replace(before.graph, duration_ns=durations)


Ablations = dict[str, list[float]]

VARIANTS = {
    "kept": Changes(),
    "no_residual": Changes(residual=False),
    "no_interstream": Changes(residual=False, interstream=False),
    "no_sync": Changes(residual=False, sync=False),
    "no_gaps": Changes(residual=False, gaps=False),
    "no_coupling": Changes(residual=False, coupling=False),
    "null_model": NULL,
}


def ablations(ranks: Sequence[Prepared]) -> Ablations:
    """Mean |error| of each rank's steps after the first: residuals kept, left out, and then each kind of edge.

    Where steps run the same kernels, also of the next step from a step's graph and the next one's kernel times, from
    the null model's graph, and taken to be as long as this one.
    """
    ahead, replay = foresight(ranks), replay_prepared(ranks, Changes())
    scored = [replay.scored(rank) for rank in range(len(ranks))]
    errors: Ablations = {}
    for name, changes in VARIANTS.items():
        played = {source: source.reference(changes) for source in {step.source for steps in scored for step in steps}}
        errors[name] = [
            mean(abs(step.error_of(step.source.period(*played[step.source], step.number))) for step in steps)
            for steps in scored
        ]
    if all(one.steps for one in ahead):
        columns = {"next_step": "graph", "next_step_null": "null", "next_step_as_this": "persistence"}
        errors |= {name: [getattr(one, column) for one in ahead] for name, column in columns.items()}
    return errors
