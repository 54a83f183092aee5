"""Which transport a run gets: the cheapest that is exact for its network, its folding and its queues."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from simcore.engine.settings import Settings
from simcore.network.congested import CutThrough
from simcore.network.folded import FoldedLinks, symmetric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.profiles import NetworkMode, Profile
from simcore.system.config import SystemConfig
from simcore.system.groups import LogicalDim
from simcore.system.isolated import Isolated
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.transport import AsymmetryError, Costs, Solved

__all__ = ["make_transport"]


def make_transport(
    env: simpy.Environment,
    ranks: Sequence[range],
    topology: Topology,
    dims: Sequence[LogicalDim],
    system: SystemConfig,
    profile: Profile,
    *,
    mode: NetworkMode,
    settings: Settings,
) -> Transport:
    """Without contention phases are solved; on shared links they are played.

    A folded machine (one class) plays on representative links; where no two phases can meet, every shape only once.
    Raises AsymmetryError when a folded machine is not symmetric on its links.
    """
    endpoint_ns = profile.scale(system.endpoint_delay_ns, settings.injection_scale)
    costs = Costs(endpoint_ns, profile.reduction(system), profile.plan_options)
    network = profile.shared_links.get(mode)
    if network is None:
        delay = profile.delay(topology, settings.rendezvous)
        return Solved(env, ranks, delay, costs, barrier=profile.barrier)
    links = LinkGraph(topology)
    if len(ranks) > 1 or topology.npus == 1:
        return Played(env, ranks, network(env, links), costs)
    parts = [[dim.size for dim in dims if dim.index == index] for index in range(len(topology.dims))]
    across = any(lane.whole_machine for lanes in system.implementations.values() for lane in lanes)
    if network is not CutThrough or not symmetric(links, parts) or (across and len(topology.dims) > 1):
        raise AsymmetryError
    folded = FoldedLinks(links, parts)
    exclusive = settings.queues_per_dim == 1 and system.active_chunks_per_dimension == 1
    if exclusive and all(len(sizes) == 1 for sizes in parts):
        return Isolated(env, ranks, folded, CutThrough, costs)
    return Played(env, ranks, network(env, folded), costs)
