"""Which transport plays a run: of those that are exact for it the one that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import simpy

from simcore.engine.placement import Placement
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.network.congested import CutThrough, FaultyCutThrough, StoreAndForward
from simcore.network.congestion_free import CongestionFree
from simcore.network.fair import FairShare
from simcore.network.folded import FoldedLinks, symmetric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.system.alone import Alone, has_own_links
from simcore.system.collectives import NETWORK_AWARE
from simcore.system.columns import Columns
from simcore.system.config import NCCL, SystemConfig
from simcore.system.isolated import Isolated
from simcore.system.measured import Measured
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.transport import AsymmetryError, Solved

__all__ = ["Assumptions", "Wired", "all_alike", "make_transport", "notes_of"]

Wired = Solved | Measured | Played | Isolated | Alone

TREES = {"inNetwork", "multicast"}
UNASKED = {NCCL, *TREES}  # their messages have no one receiver that could ask for them
FAULTY: dict[object, type[FaultyCutThrough | FairShare]] = {CutThrough: FaultyCutThrough, FairShare: FairShare}
PAIRED = {"halvingDoubling", "pairwise", "recursiveDoubling"}


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a run may count on until it finds otherwise: NPUs are alike, phases that could meet on a link do not."""

    alike: bool = True
    apart: bool = True


def make_transport(env: simpy.Environment, ranks: Sequence[Sequence[int]], setup: Setup, holds: Assumptions) -> Wired:
    """Without contention phases are solved; on shared links they are played; NCCL's were measured.

    `holds` is what earlier attempts at the run have left to assume. Raises AsymmetryError when a folded machine is not
    symmetric on its links, or has more classes than pipeline stages.
    """
    topology, system, profile = setup.topology, setup.system, setup.profile
    _check_bus(system, profile)
    links = LinkGraph(topology, timed=setup.settings.link_times)
    costs = _costs(setup, links)
    if costs.rendezvous:
        _refuse(setup.placement, UNASKED, "--rendezvous", "cannot wait for its receivers to ask")
    if system.fabric:
        _refuse_links(topology)
        return Measured(env, ranks, system.fabric, costs)
    network = profile.shared_links.get(setup.settings.network or profile.networks[0])
    if topology.faults:
        return _faulty(env, ranks, setup.placement, links, network, costs)
    if network is None:
        return _without_contention(env, ranks, setup, costs)
    return _on_shared_links(env, ranks, setup, holds, links, network, costs)


def _costs(setup: Setup, links: LinkGraph) -> Costs:
    """What ranks pay beside the network."""
    profile, system, settings = setup.profile, setup.system, setup.settings
    endpoint_ns = profile.scale(system.endpoint_ns(profile.system(setup.topology)), settings.injection_scale)
    options = replace(
        profile.plan_options, switch_latency_ns=system.switch_latency_ns, switch_bytes_per_s=system.switch_bytes_per_s
    )
    asks, group_ns = settings.rendezvous, profile.graph.group_endpoint_ns
    return Costs(endpoint_ns, profile.reduction(system), options, group_ns, asks, system.bus, links)


def _on_shared_links(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    setup: Setup,
    holds: Assumptions,
    links: LinkGraph,
    network: type[CutThrough | StoreAndForward | FairShare],
    costs: Costs,
) -> Isolated | Alone | Played:
    """The cheapest that is exact; a machine folded into its stages plays on representative links."""
    topology, placement, stages = setup.topology, setup.placement, setup.stages
    parts = _parts(placement, topology)
    whole = all(len(sizes) == 1 for sizes in parts)
    columns = Columns(env, ranks, links, network, stages) if stages > 1 and whole else None
    alike = holds.alike and network.foldable and all_alike(placement, topology)
    alike = alike and not (network.by_event and _both_ways(setup))
    apart = holds.apart and _can_be_apart(setup, columns)
    if alike and apart:
        folded = FoldedLinks(links, parts)
        return Isolated(env, ranks, folded, CutThrough, costs, never_meet=whole, columns=columns, stages=stages)
    unfolded, never_meet = len(ranks) == topology.npus, _never_meet(placement, topology)
    if unfolded and apart and _can_be_alone(placement) and (stages == 1 or never_meet):
        return Alone(env, ranks, links, network, costs, never_meet=never_meet, columns=columns)
    if unfolded:
        return Played(env, ranks, network(env, links), costs)
    if alike and len(ranks) <= stages:
        return Played(env, ranks, network(env, FoldedLinks(links, parts, stages)), costs)
    raise AsymmetryError


def _can_be_apart(setup: Setup, columns: Columns | None) -> bool:
    """Whether phases may turn out to meet nobody, so that every shape is played only once."""
    settings, system = setup.settings, setup.system
    exclusive = settings.queues_per_dim == 1 and system.active_chunks_per_dimension == 1
    apart = setup.collectives_only and setup.profile.gang and exclusive
    if setup.stages == 1:
        return apart
    # Messages between stages are solved on links of their own that look all the same.
    return apart and columns is not None and not (settings.noise.compute or setup.topology.noise.links)


def _both_ways(setup: Setup) -> bool:
    """Whether messages may go round both ways and share links: of two that come at one time, one NPU gets the one from
    before it first, its neighbour the one from behind.

    Those of rings share no link then.
    """
    queues, dims = setup.settings.queues_per_dim, len(setup.topology.dims)
    rings = all(lane.algorithm.name == "ring" for lane in setup.placement.every_lane)
    return not rings and (setup.settings.rendezvous or queues > 1 or dims > 1)


def _faulty(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    placement: Placement,
    links: LinkGraph,
    network: object,
    costs: Costs,
) -> Played:
    """Every message of every NPU, on links some of which have faults."""
    if network not in FAULTY:
        message = "faults need links that are shared in time"
        raise InputError.at("--fault", message, expected="profile native, --network congested or fair")
    _refuse(placement, TREES, "--fault", "goes over fixed links")
    if len(ranks) < links.npus:
        raise AsymmetryError
    return Played(env, ranks, FAULTY[network](env, links), costs)


def _without_contention(
    env: simpy.Environment, ranks: Sequence[Sequence[int]], setup: Setup, costs: Costs
) -> Solved | Played:
    """Phases are solved; played where packets share a memory bus, or who leaves first in an instant matters."""
    topology, profile = setup.topology, setup.profile
    delay = profile.delay(topology)
    if topology.noise.links and len(ranks) < topology.npus:
        raise AsymmetryError
    if not costs.bus and not setup.in_turn:
        return Solved(env, ranks, delay, costs, barrier=profile.barrier)
    if len(ranks) < topology.npus and (len(ranks) > 1 or not all_alike(setup.placement, topology)):
        raise AsymmetryError
    return Played(env, ranks, CongestionFree(env, delay), costs, barrier=profile.barrier)


def _refuse(placement: Placement, names: set[str], option: str, what: str) -> None:
    """InputError when a collective is sent by one of the algorithms `names`, which `option` does not go with."""
    for kind, lanes in placement.lanes.items():
        for name in sorted({lane.algorithm.name for lane in lanes} & names):
            message = f"the {kind} by {name} {what}"
            raise InputError.at(option, message, expected=f"another algorithm, or no {option}", found=name)


def _refuse_links(topology: Topology) -> None:
    """InputError when something is said of links and collectives take what was measured, whatever the links."""
    for option, given in (("--fault", topology.faults), ("--jitter", topology.noise.links)):
        if given:
            message = "collectives: nccl takes measured times, which no link changes"
            raise InputError.at(option, message, expected="a system file with algorithms")


def _check_bus(system: SystemConfig, profile: Profile) -> None:
    if system.bus and not profile.memory_bus:
        message = f"profile {profile.name} has no shared memory bus"
        hint = "use --profile astra-sim-2 or astra-sim-1.0"
        raise InputError.at(system.at("model-shared-bus"), message, expected="0, or the key left out", hint=hint)


def notes_of(transport: Transport) -> tuple[str, ...]:
    """What the user should know of how collectives were timed."""
    return tuple(transport.notes()) if isinstance(transport, Measured) else ()


def _parts(placement: Placement, topology: Topology) -> list[list[int]]:
    """Sizes of the logical dimensions of every topology dimension."""
    return [[dim.size for dim in placement.dims if dim.index == at] for at in range(len(topology.dims))]


def all_alike(placement: Placement, topology: Topology) -> bool:
    """Whether an NPU's place in its groups makes no difference, when a group begins together.

    The topology must look the same from everywhere, and every algorithm must treat all ranks the same. A ring through
    all dimensions does not; explicit plans do not either, which the run notices by itself. `PAIRED` ones pair ranks by
    XOR, which is no shift: behind a switch their ranks are alike, and where they are two. NCCL's do not depend on
    the topology.
    """
    lanes = placement.every_lane
    if any(lane.algorithm.name == NCCL for lane in lanes):
        return True
    paired = [lane.dim for lane in lanes if lane.algorithm.name in PAIRED]
    pairs = any(dim.size > 2 and topology.dims[dim.index].kind != "Switch" for dim in paired)
    aware = any(lane.algorithm.name in NETWORK_AWARE for lane in lanes)
    # Without a latency, messages of two senders come to a link at one time; who is served first breaks the symmetry.
    far = [topology.dims[lane.dim.index] for lane in lanes if lane.algorithm.name != "ring"]
    instant = any(dim.kind == "Ring" and dim.npus > 3 and dim.latency_ns < 1 for dim in far)
    across = len(topology.dims) > 1 and any(_across(placement))
    return symmetric(topology, _parts(placement, topology)) and not (pairs or aware or across or instant)


def _across(placement: Placement) -> list[bool]:
    """Of every lane, whether it takes the whole machine as one dimension."""
    return [lane.algorithm.whole_machine for lane in placement.every_lane]


def _can_be_alone(placement: Placement) -> bool:
    """Whether phases may turn out to use different links: they take the machine by dimensions, or all as one."""
    return len(set(_across(placement))) < 2


def _never_meet(placement: Placement, topology: Topology) -> bool:
    """Whether phases that are in different queues use different links: queues are the dimensions' or there is one."""
    across = _across(placement)
    return all(across) or (not any(across) and has_own_links(topology, placement.dims))
