"""What one could change about a run: the same run with one thing better, to see what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.noise import QUIET
from simcore.profiles import Profile

Change = tuple[str, Topology, Settings]
"""In words, and the machine and the settings of the changed run."""


def changes(topology: Topology, settings: Settings) -> Iterator[Change]:
    """Every change for the better that a run has room for: of NPUs, network, and what troubles them."""
    yield "compute twice as fast", topology, replace(settings, compute_scale=settings.compute_scale / 2)
    connected = [index for index, dim in enumerate(topology.dims) if dim.npus > 1]
    for index in connected:
        dim = topology.dims[index]
        name = f"dimension {index} ({dim.kind} of {dim.npus})" if len(topology.dims) > 1 else "all links"
        yield f"twice the bandwidth of {name}", _links(topology, {index}, faster=2), settings
    if len(connected) > 1:
        yield "twice the bandwidth of all links", _links(topology, {*connected}, faster=2), settings
    if connected:
        yield "links without latency", _links(topology, {*connected}, latency=0), settings
    if settings.stragglers:
        yield "no stragglers", topology, replace(settings, stragglers={})
    if topology.faults:
        yield "no faults", replace(topology, faults=()), settings
    if settings.noise:
        yield "no jitter", replace(topology, noise=QUIET), replace(settings, noise=QUIET)


def changeable(rules: Profile, settings: Settings) -> tuple[Profile, Settings]:
    """Rules under which traces can be changed, and what they heed of a run's settings.

    ASTRA-sim 2.x ignores factors on traces that its user gives; NPUs that are twice as fast are faster there, too.
    """
    if rules.graph.scales:
        return rules, settings
    return replace(rules, graph=replace(rules.graph, scales=True)), replace(settings, compute_scale=1.0, comm_scale=1.0)


def _links(topology: Topology, dims: set[int], *, faster: float = 1, latency: float = 1) -> Topology:
    """With the bandwidth and the latency of some dimensions times a factor."""

    def changed(index: int, dim: Dimension) -> Dimension:
        if index not in dims:
            return dim
        times = {key: latency * getattr(dim, key) for key in ("latency_ns", "nic_latency_ns", "router_latency_ns")}
        return replace(dim, bandwidth_bytes_per_s=faster * dim.bandwidth_bytes_per_s, **times)

    graph, wafer = topology.graph, topology.wafer
    if graph:
        rates = tuple(faster * rate for rate in graph.bandwidth_bytes_per_s)
        graph = replace(graph, bandwidth_bytes_per_s=rates, latency_ns=tuple(latency * ns for ns in graph.latency_ns))
    if wafer:  # when dead NPUs make one dimension of it, that stands for both
        own = {0, 1} if len(topology.dims) == 1 else dims
        first, second = (changed(min(dims) if index in own else -1, dim) for index, dim in enumerate(wafer.dims))
        wafer = replace(wafer, dims=(first, second))
    own_dims = tuple(changed(index, dim) for index, dim in enumerate(topology.dims))
    twisted = tuple(changed(0, dim) for dim in topology.twisted)
    return replace(topology, dims=own_dims, graph=graph, wafer=wafer, twisted=twisted)
