"""What each kind of dependency is worth: the same traces replayed without it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from simcore.replay.build import Prepared
from simcore.replay.run import Changes
from simcore.replay.session import replay_prepared

__all__ = ["VARIANTS", "Ablations", "ablations"]

Ablations = dict[str, list[float]]

VARIANTS = {
    "kept": Changes(),
    "no_residual": Changes(residual=False),
    "no_interstream": Changes(residual=False, interstream=False),
    "no_sync": Changes(residual=False, sync=False),
    "no_gaps": Changes(residual=False, gaps=False),
    "no_coupling": Changes(residual=False, coupling=False),
}


def ablations(ranks: Sequence[Prepared]) -> Ablations:
    """Mean |error| of the period of each rank's scored steps: residuals kept, left out, and then each kind of edge."""
    replays = {name: replay_prepared(ranks, changes) for name, changes in VARIANTS.items()}
    return {
        name: [mean(abs(step.error_of(step.period)) for step in replay.scored(rank)) for rank in range(len(ranks))]
        for name, replay in replays.items()
    }
