"""Pairwise: an all-to-all in n - 1 rounds, in each of which every rank sends to one other and hears from one."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("pairwise")
def pairwise(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Round k swaps shares with rank XOR k where n is a power of two, else sends k on and hears from k behind.

    (n-1) (latency + S/n / bandwidth) on links of its own (Thakur et al., IJHPCA 19(1), 2005).
    """
    check_kind("pairwise", kind)
    rounds = tuple((Round(hop, data_bytes // size), 1) for hop in range(1, size))
    return Plan(size, rounds, exchange=not size & (size - 1))
