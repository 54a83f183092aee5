"""Collective algorithms, one a file: pure functions from (kind, ranks, bytes) to a plan."""

from simcore.system.collectives import direct, halving_doubling, ring  # noqa: F401 - each registers its algorithm
from simcore.system.collectives.registry import PlanOptions, algorithms

__all__ = ["PlanOptions", "algorithms"]
