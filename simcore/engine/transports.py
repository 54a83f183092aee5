"""Which transport a run gets: the cheapest that is exact for its network, its folding and its queues."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from simcore.engine.placement import Placement
from simcore.engine.settings import Settings
from simcore.network.congested import CutThrough
from simcore.network.folded import FoldedLinks, symmetric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.profiles import NetworkMode, Profile
from simcore.system.config import SystemConfig
from simcore.system.isolated import Isolated
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.transport import AsymmetryError, Costs, Solved

__all__ = ["make_transport"]


def make_transport(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    topology: Topology,
    placement: Placement,
    system: SystemConfig,
    profile: Profile,
    *,
    mode: NetworkMode,
    settings: Settings,
) -> Transport:
    """Without contention phases are solved; on shared links they are played.

    Where no two phases can meet, every shape is played only once. A machine folded into one class plays on
    representative links. Raises AsymmetryError when a folded machine is not symmetric on its links.
    """
    endpoint_ns = profile.scale(system.endpoint_delay_ns, settings.injection_scale)
    costs = Costs(endpoint_ns, profile.reduction(system), profile.plan_options)
    network = profile.shared_links.get(mode)
    if network is None:
        delay = profile.delay(topology, settings.rendezvous)
        return Solved(env, ranks, delay, costs, barrier=profile.barrier)
    links = LinkGraph(topology)
    parts = [[dim.size for dim in placement.dims if dim.index == at] for at in range(len(topology.dims))]
    alike = network is CutThrough and symmetric(links, parts) and _alike(placement, topology)
    exclusive = settings.queues_per_dim == 1 and system.active_chunks_per_dimension == 1
    if alike and profile.gang and exclusive and all(len(sizes) == 1 for sizes in parts):
        return Isolated(env, ranks, FoldedLinks(links, parts), CutThrough, costs)
    if len(ranks) == topology.npus:
        return Played(env, ranks, network(env, links), costs)
    if not alike or len(ranks) > 1:
        raise AsymmetryError
    return Played(env, ranks, network(env, FoldedLinks(links, parts)), costs)


def _alike(placement: Placement, topology: Topology) -> bool:
    """Whether every algorithm treats all ranks the same: trees do not, nor does a ring through all dimensions."""
    lanes = [lane for lanes in placement.lanes.values() for lane in lanes]
    trees = any(lane.algorithm.name == "doubleBinaryTree" for lane in lanes)
    across = len(topology.dims) > 1 and any(lane.algorithm.whole_machine for lane in lanes)
    return not trees and not across
