"""Multicast: the network copies what one rank sends to all, over every link of a tree once; natively, on any links."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.explicit import Explicit, Transfer
from simcore.workload.model import CollectiveKind


@algorithms.register("multicast")
def multicast(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """A broadcast is one message, an all-gather one of every rank, all at once.

    Latency of the farthest rank + S / bandwidth for a broadcast. The tree is that of the routes from its root.
    """
    check_kind("multicast", kind)
    roots = [options.root] if kind == CollectiveKind.BROADCAST else range(size)
    transfers = (
        Transfer(0, root, (root + on) % size, (root if len(roots) > 1 else 0,), data_bytes)
        for root in roots
        for on in range(1, size)
    )
    return Explicit(size, tuple(transfers), multicast=True)
