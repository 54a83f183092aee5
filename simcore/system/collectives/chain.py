"""Chain: from neighbour to neighbour, piece by piece (`chain16`: 16 pieces); rooted."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.collectives.rooted import along
from simcore.system.explicit import Explicit
from simcore.workload.model import CollectiveKind

PIECES_PER_RANK = 2
MOST_TRANSFERS = 1 << 16  # on many ranks fewer pieces


@algorithms.register("chain")
def chain(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """From the root to the next rank and so on, n - 1 + pieces - 1 steps; `options.window` pieces.

    Where it is 0 there are 2 n pieces, above 181 ranks 65536 / n.
    A scatter or gather goes share by share, n - 1 steps.
    """
    pieces = options.window or max(1, min(PIECES_PER_RANK * size, MOST_TRANSFERS // size))
    return along(kind, [max(0, rank - 1) for rank in range(size)], data_bytes, options, pieces=pieces)
