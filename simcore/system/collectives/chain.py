"""Chain: from neighbour to neighbour, piece by piece (`chain16`: 16 pieces); rooted."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.collectives.rooted import along
from simcore.system.explicit import Explicit
from simcore.workload.model import CollectiveKind

PIECES_PER_RANK = 2


@algorithms.register("chain")
def chain(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """From the root to the next rank and so on, n - 1 + pieces - 1 steps; `options.window` pieces, 2 n where it is 0.

    A scatter or gather goes share by share, n - 1 steps.
    """
    pieces = options.window or PIECES_PER_RANK * size
    return along(kind, [max(0, rank - 1) for rank in range(size)], data_bytes, options, pieces=pieces)
