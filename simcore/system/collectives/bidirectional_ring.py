"""Bidirectional ring: two rings of half the data each, opposite ways round, so that both directions of links work."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.collectives.ring import ring_plan
from simcore.system.plan import Plan, Round, SideBySide
from simcore.workload.model import CollectiveKind


@algorithms.register("bidirectionalRing")
def bidirectional_ring(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> SideBySide:
    """Half of what a ring takes for large data: all-reduce 2(n-1) latency + (n-1)/n S / bandwidth.

    An all-to-all sends every share the shorter way round, half of it each way where both are as long:
    S n/8 / bandwidth for an even n.
    """
    check_kind("bidirectionalRing", kind)
    if kind == CollectiveKind.ALL_TO_ALL:
        return SideBySide(tuple(_exchange(size, data_bytes, forward=forward) for forward in (True, False)))
    unit = 1 if kind == CollectiveKind.ALL_GATHER else size
    half = data_bytes // unit // 2 * unit
    return SideBySide((ring_plan(kind, size, data_bytes - half), _turned(ring_plan(kind, size, half))))


def _exchange(size: int, data_bytes: int, *, forward: bool) -> Plan:
    """Shares for ranks less than half the ring away, hop by hop, then the part of that for the opposite rank."""
    share, steps = data_bytes // size, (size - 1) // 2
    opposite = share - share // 2 if forward else share // 2
    hop = 1 if forward else size - 1
    rounds = ((Round(hop, share), steps * (steps + 1) // 2), (Round(hop, opposite), size // 2 * (1 - size % 2)))
    return Plan(size, tuple((entry, count) for entry, count in rounds if count))


def _turned(plan: Plan) -> Plan:
    """The same, the other way round."""
    rounds = ((Round(plan.size - entry.hop, entry.size_bytes, entry.reduce_bytes), n) for entry, n in plan.rounds)
    return Plan(plan.size, tuple(rounds))
