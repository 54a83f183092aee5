"""What the network does itself: switches reduce, and what one rank sends to all is copied on its way."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, native
from simcore.system.plans.plan import Plan, Round, Switch, Transfer
from simcore.workload.model import CollectiveKind


@native("inNetwork", CollectiveKind.ALL_REDUCE, in_network=True, in_switch=True)
def in_network(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """The switch reduces what all send up and sends the result down to all (SHARP, Graham et al. 2016).

    2 link latencies + the switch's + S / bandwidth, for any n; needs a Switch dimension.
    Every link carries S up and S down, where a ring's carry 2(n-1)/n S.
    """
    switch = Switch(options.switch_latency_ns, options.switch_bytes_per_s)
    return Plan(size, ((Round(1, data_bytes), 1),), switch=switch)


@native("multicast", CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST, in_network=True)
def multicast(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """What one rank sends to all goes over every link of a tree once: natively, on any links.

    A broadcast is one message, an all-gather one of every rank, all at once.
    Latency of the farthest rank + S / bandwidth for a broadcast. The tree is that of the routes from its root.
    """
    roots = [options.root] if kind == CollectiveKind.BROADCAST else range(size)
    transfers = (
        Transfer(0, root, (root + on) % size, (root if len(roots) > 1 else 0,), data_bytes)
        for root in roots
        for on in range(1, size)
    )
    return Plan(size, transfers=tuple(transfers), multicast=True)
