"""Ring: everything goes to the next neighbour."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("ring")
def ring(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """As `ring_plan`."""
    return ring_plan(kind, size, data_bytes)


def ring_plan(kind: CollectiveKind, size: int, data_bytes: int) -> Plan:
    """Rounds of the ring collectives on `size` ranks.

    `data_bytes` is the running size: what one rank contributes to an all-gather, the whole vector of the others.
    All-reduce: reduce-scatter then all-gather, 2(n-1) messages of data/n (Patarasuk and Yuan, JPDC 69(2), 2009). An
    all-to-all forwards step by step: the share for the rank d on takes d hops, n(n-1)/2 messages in all.
    """
    share = data_bytes // size
    reducing, forwarding = Round(1, share, share), Round(1, share)
    rounds = {
        CollectiveKind.ALL_REDUCE: ((reducing, size - 1), (forwarding, size - 1)),
        CollectiveKind.REDUCE_SCATTER: ((reducing, size - 1),),
        CollectiveKind.ALL_GATHER: ((Round(1, data_bytes), size - 1),),
        CollectiveKind.ALL_TO_ALL: ((forwarding, size * (size - 1) // 2),),
    }
    return Plan(size, rounds[kind])
