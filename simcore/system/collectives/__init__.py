"""Collective algorithms, by family: pure functions from (kind, ranks, bytes) to a plan."""

from simcore.system.collectives import rounds, synthesised, trees  # noqa: F401 - each registers its algorithms
from simcore.system.collectives.registry import (
    EVERYBODY,
    NCCL,
    Algorithm,
    PlanOptions,
    Traits,
    algorithms,
    collective,
    native,
    traits_of,
)
from simcore.workload.model import ROOTED

__all__ = [
    "EVERYBODY", "NCCL", "ROOTED", "Algorithm", "PlanOptions", "Traits", "algorithms", "collective", "native",
    "traits_of",
]  # fmt: skip
