"""Bruck: any number of ranks in ceil(log2 n) rounds (Bruck et al., IEEE TPDS 8(11), 1997)."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("bruck")
def bruck(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Round k reaches 2^k ranks on; the rotations before and after move nothing over the network.

    All-gather: all that a rank has goes to the rank 2^k behind, in the last round only what is missing there.
    All-to-all: the shares whose distance to go has bit k set move 2^k on.
    """
    check_kind("bruck", kind)
    steps = [1 << level for level in range((size - 1).bit_length())]
    if kind == CollectiveKind.ALL_GATHER:
        return Plan(size, tuple((Round(size - step, min(step, size - step) * data_bytes), 1) for step in steps))
    share = data_bytes // size
    moving = [sum(1 for distance in range(size) if distance & step) for step in steps]
    return Plan(size, tuple((Round(step, shares * share), 1) for step, shares in zip(steps, moving, strict=True)))
