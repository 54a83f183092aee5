"""In-network: the switch reduces what all send up and sends the result down to all (SHARP, Graham et al. 2016)."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import InNetwork
from simcore.workload.model import CollectiveKind


@algorithms.register("inNetwork")
def in_network(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> InNetwork:
    """2 link latencies + the switch's + S / bandwidth, for any n; needs a Switch dimension.

    Every link carries S up and S down, where a ring's carry 2(n-1)/n S.
    """
    check_kind("inNetwork", kind)
    return InNetwork(data_bytes, options.switch_latency_ns, options.switch_bytes_per_s)
