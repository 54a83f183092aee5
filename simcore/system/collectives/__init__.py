"""Collective algorithms, by family: pure functions from (kind, ranks, bytes) to a plan."""

from simcore.system.collectives import (  # noqa: F401 - each registers its algorithms
    in_network,
    rounds,
    synthesised,
    trees,
)
from simcore.system.collectives.registry import (
    EVERYBODY,
    IN_NETWORK,
    IN_TREES,
    NATIVE_ALGORITHMS,
    NETWORK_AWARE,
    ROOTED,
    AnyPlan,
    PlanOptions,
    algorithms,
    native,
)

__all__ = [
    "EVERYBODY",
    "IN_NETWORK",
    "IN_TREES",
    "NATIVE_ALGORITHMS",
    "NETWORK_AWARE",
    "ROOTED",
    "AnyPlan",
    "PlanOptions",
    "algorithms",
    "native",
]
