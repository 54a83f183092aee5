"""Collective algorithms, one a file: pure functions from (kind, ranks, bytes) to a plan, relative or explicit."""

from simcore.system.collectives import (  # noqa: F401 - each registers its algorithm
    bidirectional_ring,
    binomial,
    bruck,
    chain,
    direct,
    dissemination,
    double_binary_tree,
    flat,
    halving_doubling,
    in_network,
    multicast,
    pairwise,
    pat,
    recursive_doubling,
    ring,
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
