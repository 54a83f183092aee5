"""The interconnect that predictions count with, from the dimensions of a topology file."""

from __future__ import annotations

from math import prod

from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.system.collectives.nccl import Fabric

_MESSAGE_S = 10e-6
_WAYS = 2  # a ring's neighbours, and the passes of a level there and back


def fabric_of_topology(topology: Topology) -> Fabric:
    """Nodes are the first dimension; the slowest of the others is what they are joined by. Stated rates, not measured.

    Raises
    ------
    InputError
        For graphs, wafers and twisted tori, which have no nodes.
    """
    if not topology.apart:
        message, found = "predictions count with nodes and what joins them", topology.name or topology.path
        raise InputError.at("topology", message, expected="a topology of dimensions", found=found)
    node, *others = topology.dims
    further = others or [node]
    slowest_bytes_per_s = min(map(_rate, further))
    latency_s = max(dimension.latency_ns for dimension in further) * 1e-9
    return Fabric(
        topology.name,
        node.npus if others else prod(dimension.npus for dimension in topology.dims),
        "stated",
        _rate(node),
        slowest_bytes_per_s * node.npus,
        slowest_bytes_per_s,
        near_s=_WAYS * node.latency_ns * 1e-9,
        far_s=_WAYS * latency_s,
        hop_s=_MESSAGE_S + latency_s,
    )


def _rate(dimension: Dimension) -> float:
    """Bytes a second that an NPU sends into a dimension when all do."""
    neighbours = {"Ring": min(_WAYS, dimension.npus - 1), "FullyConnected": dimension.npus - 1}.get(dimension.kind, 1)
    links = dimension.parallel_links * max(1, neighbours)
    return dimension.bandwidth_bytes_per_s * links / dimension.oversubscription
