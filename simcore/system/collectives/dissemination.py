"""Dissemination: a barrier in ceil(log2 n) rounds (Hensgen, Finkel and Manber, IJPP 17(1), 1988)."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("dissemination")
def dissemination(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Round k tells the rank 2^k on what has been heard: after the last, everybody has heard of everybody.

    Every message has `data_bytes`.
    """
    check_kind("dissemination", kind)
    return Plan(size, tuple((Round(1 << level, data_bytes), 1) for level in range((size - 1).bit_length())))
