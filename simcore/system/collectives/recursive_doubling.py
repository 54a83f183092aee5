"""Recursive doubling: pairs exchange and reduce the whole vector, ever farther apart: few steps, much to send."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("recursiveDoubling")
def recursive_doubling(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """log2(n) rounds with the partners 1, 2, 4, .. n/2 away (Thakur et al., IJHPCA 19(1), 2005).

    ValueError unless n is a power of two, and for anything but an all-reduce.
    """
    check_kind("recursiveDoubling", kind)
    if size & (size - 1):
        raise ValueError(f"recursiveDoubling needs a power of two of ranks, not {size}")
    levels = range(size.bit_length() - 1)
    rounds = tuple((Round(1 << level, data_bytes, data_bytes), 1) for level in levels)
    return Plan(size, rounds, exchange=True)
