"""The time of a message that meets nobody: the latency of every hop, serialisation once at the slowest link."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph

__all__ = ["message_ns"]


def message_ns(links: LinkGraph, src: IntArray, dst: IntArray, size_bytes: IntArray) -> IntArray:
    """Whole nanoseconds from sending to the last byte's arrival, for many messages; 0 from an NPU to itself.

    The same as `congested.CutThrough` on an idle network, to the nanosecond.
    """
    size_bytes = np.broadcast_to(np.asarray(size_bytes, np.int64), np.shape(src))
    routes = links.routes(src, dst)
    owner = np.repeat(np.arange(len(routes.counts)), routes.counts)
    latency_ns = np.bincount(owner, links.latency_ns[routes.links], len(routes.counts))
    slowest = np.full(len(routes.counts), np.inf)
    np.minimum.at(slowest, owner, links.bandwidth_bytes_per_s[routes.links])
    # Rounded as units.transfer_ns and congested.whole_steps do.
    serialisation_ns = np.ceil(np.round(size_bytes / slowest * 1e9, 3))
    whole: IntArray = (np.ceil(np.round(latency_ns, 6)) + serialisation_ns).astype(np.int64)
    return whole
