"""Flat: the root exchanges with everybody itself; rooted."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.collectives.rooted import along
from simcore.system.explicit import Explicit
from simcore.workload.model import CollectiveKind


@algorithms.register("flat")
def flat(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """N - 1 messages, all at once."""
    return along(kind, [0] * size, data_bytes, options)
