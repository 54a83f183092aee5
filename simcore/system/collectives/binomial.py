"""Binomial tree: whoever has the data passes them on, so that in every step twice as many have them; rooted."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.collectives.rooted import along
from simcore.system.explicit import Explicit
from simcore.workload.model import CollectiveKind


@algorithms.register("binomial")
def binomial(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """Rank r, counted from the root, hangs below r with its lowest bit cleared: ceil(log2 n) steps."""
    return along(kind, [rank & (rank - 1) if rank else 0 for rank in range(size)], data_bytes, options)
