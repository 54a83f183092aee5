"""Collective algorithms, one a file or family: pure functions from (kind, ranks, bytes) to a plan."""

from simcore.system.collectives import (  # noqa: F401 - each registers its algorithm
    bidirectional_ring,
    bruck,
    direct,
    dissemination,
    double_binary_tree,
    halving_doubling,
    in_network,
    multicast,
    pairwise,
    pat,
    recursive_doubling,
    ring,
    rooted,
    synthesised,
)
from simcore.system.collectives.registry import (
    NATIVE_ALGORITHMS,
    NETWORK_AWARE,
    ROOTED,
    AnyPlan,
    PlanOptions,
    algorithms,
)

__all__ = ["NATIVE_ALGORITHMS", "NETWORK_AWARE", "ROOTED", "AnyPlan", "PlanOptions", "algorithms"]
