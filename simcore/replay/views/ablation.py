"""What each kind of dependency is worth: the same traces replayed without it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from simcore.replay.build import Prepared
from simcore.replay.run import NULL, Changes
from simcore.replay.session import replay_prepared
from simcore.replay.views.foresight import foresight

__all__ = ["VARIANTS", "Ablations", "ablations"]

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
    ahead = foresight(ranks)
    replays = {name: replay_prepared(ranks, changes) for name, changes in VARIANTS.items()}
    errors = {
        name: [mean(abs(step.error_of(step.period)) for step in replay.scored(rank)) for rank in range(len(ranks))]
        for name, replay in replays.items()
    }
    if all(one.steps for one in ahead):
        columns = {"next_step": "graph", "next_step_null": "null", "next_step_as_this": "persistence"}
        errors |= {name: [getattr(one, column) for one in ahead] for name, column in columns.items()}
    return errors
