"""Which transport plays a run: of those that are exact for it the one that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.engine.folding import classes_of, fold
from simcore.engine.placement import Placement
from simcore.engine.setup import Setup
from simcore.engine.sites import Ground, looks_alike, survey
from simcore.errors import InputError
from simcore.network.congested import LinkNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import PLAIN
from simcore.profiles import Profile
from simcore.system.alone import Phases
from simcore.system.config import NCCL, SystemConfig
from simcore.system.measured import Measured
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.shared import Shared
from simcore.system.transport import AsymmetryError, Solved

Wired = Solved | Measured | Played | Shared
Ints = NDArray[np.int64]

TREES = {"inNetwork", "multicast"}
IDLE_PORTS = "buffers, marks, congestion control and routing of the topology play no part: --network queued has them"
UNASKED = {NCCL, *TREES}  # their messages have no one receiver that could ask for them


def make_transport(env: Environment, ranks: Sequence[Sequence[int]], setup: Setup) -> Wired:
    """Without contention phases are solved; on shared links they share them; NCCL's were measured.

    Raises AsymmetryError when a folded machine is not symmetric on its links.
    """
    topology, system, profile = setup.topology, setup.system, setup.profile
    _check_bus(system, profile)
    links = LinkGraph(topology, timed=setup.settings.link_times)
    costs = costs_of(setup, links)
    if costs.rendezvous:
        _refuse(setup.placement, UNASKED, "--rendezvous", "cannot wait for its receivers to ask")
    if setup.settings.exact:
        _check_exact(system, profile)
    if system.fabric:
        _refuse_links(topology)
        return Measured(env, ranks, system.fabric, costs)
    network = network_of(setup)
    if topology.faults:
        return _faulty(env, ranks, setup.placement, links, network, costs)
    if network and profile.gang and not network.has_trees:
        mode = f"--network {setup.settings.network}"
        _refuse(setup.placement, TREES, mode, "copies or reduces on links, which queues do not")
    if setup.settings.exact:
        return _message_by_message(env, ranks, setup, links, network, costs)
    if network is None:
        return _without_contention(env, ranks, setup, costs)
    if not _by_itself(setup, network):
        return _each_for_itself(env, ranks, setup, links, network, costs)
    ground = survey(setup, links, costs, folds=network.foldable and len(ranks) < topology.npus)
    if _by_phases(setup, network, ground):
        phases = partial(Phases, network=network, costs=costs, plain=network.in_columns)
        shares = _parts(setup.placement, topology)
        plays = ground.playable and network.in_columns
        return Shared(
            env, ranks, links, phases, costs, sites=ground.sites, shares=shares, names=setup.names, plays=plays
        )
    return Played(env, ranks, network(env, links), costs)


def fold_of(setup: Setup, kinds: Ints) -> list[Sequence[int]] | None:
    """Classes of NPUs that do the same, where `kinds` numbers them by what they compute; None where all differ.

    Where only a run can tell whether places differ, those that it may begin with.
    """
    network, topology, dims, gang = network_of(setup), setup.topology, setup.placement.dims, setup.profile.gang
    if topology.faults and not setup.system.fabric:
        return None
    links = LinkGraph(topology)
    costs = costs_of(setup, links)
    if network is None or setup.system.fabric or not _by_itself(setup, network):
        placeless = gang and all_alike(setup.placement, topology, costs)
        differ = bool(network and gang and not (placeless and network.foldable and _same_ways(topology)))
        return None if differ or (np.ptp(kinds) and not placeless) else fold(dims, kinds)
    ground = survey(setup, links, costs, folds=network.foldable)
    if not _by_phases(setup, network, ground):
        return None
    if (np.diff(kinds.reshape(setup.stages, -1)) == 0).all():
        return classes_of(kinds * (ground.colours.max() + 1) + ground.colours)
    return fold(dims, kinds) if ground.placeless else None


def _by_itself(setup: Setup, network: type[LinkNetwork]) -> bool:
    """Whether a phase that meets no other takes as long as an equal one; with queues, where none is known to meet."""
    return setup.profile.gang and network.by_itself and not (network.has_queues and setup.settings.meeting)


def _by_phases(setup: Setup, network: type[LinkNetwork], ground: Ground) -> bool:
    """Whether phases are timed one by one: those that meet can be played in columns, none can meet, or, as messages on
    queues take so long, it is worth a try.
    """
    tries = network.has_queues and not setup.settings.meeting
    return not ground.meets or tries or (ground.playable and network.in_columns)


def _same_ways(topology: Topology) -> bool:
    """Whether ways do not depend on who sends: neither hashes nor turns choose them."""
    return not any(dim.ports.routing for dim in topology.dims)


def network_of(setup: Setup) -> type[LinkNetwork] | None:
    """The network of the run, None where links are not shared."""
    network_on = setup.profile.shared_links.get(setup.settings.network or setup.profile.networks[0])
    return network_on(setup.topology) if network_on else None


def costs_of(setup: Setup, links: LinkGraph) -> Costs:
    """What ranks pay beside the network."""
    profile, system, settings = setup.profile, setup.system, setup.settings
    endpoint_ns = profile.scale(system.endpoint_ns(profile.system(setup.topology)), settings.injection_scale)
    options = replace(
        profile.plan_options, switch_latency_ns=system.switch_latency_ns, switch_bytes_per_s=system.switch_bytes_per_s
    )
    asks, group_ns = settings.rendezvous, profile.graph.group_endpoint_ns
    return Costs(endpoint_ns, profile.reduction(system), options, group_ns, asks, system.bus, links)


def _each_for_itself(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    setup: Setup,
    links: LinkGraph,
    network: type[LinkNetwork],
    costs: Costs,
) -> Played:
    """Every message, by one NPU for all where they are alike."""
    topology, placement = setup.topology, setup.placement
    if len(ranks) == topology.npus:
        return Played(env, ranks, network(env, links), costs)
    alike = all_alike(placement, topology, costs) and not (network.by_event and _both_ways(setup))
    if network.foldable and len(ranks) == 1 and alike:
        return Played(env, ranks, network(env, FoldedLinks(links, _parts(placement, topology))), costs)
    raise AsymmetryError


def _check_exact(system: SystemConfig, profile: Profile) -> None:
    """InputError for times that are not those of messages, and for rules whose messages are not played."""
    if not profile.by_messages:
        message = f"profile {profile.name} is not played message by message"
        raise InputError.at("--exact", message, expected="profile native", found=profile.name)
    if system.fabric:
        message = "collectives: nccl takes measured times, which are not those of messages"
        raise InputError.at(system.at("collectives"), message, expected="algorithms, or no --exact messages")


def _message_by_message(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    setup: Setup,
    links: LinkGraph,
    network: type[LinkNetwork] | None,
    costs: Costs,
) -> Played:
    """What every other way to play a run must equal: each message of each NPU on its own links."""
    if network is not None:
        return Played(env, ranks, network(env, links), costs)
    option = "--exact messages with --network congestion-free"
    _refuse(setup.placement, TREES, option, "copies or reduces on links, which are not there without contention")
    return Played(env, ranks, CongestionFree(env, setup.profile.delay(setup.topology)), costs)


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
    network: type[LinkNetwork] | None,
    costs: Costs,
) -> Played:
    """Every message of every NPU, on links some of which have faults."""
    if network is None or not network.bears_faults:
        message = "faults need links that are shared in time"
        raise InputError.at("--fault", message, expected="profile native, --network congested or fair")
    _refuse(placement, TREES, "--fault", "goes over fixed links")
    if len(ranks) < links.npus:
        raise AsymmetryError
    return Played(env, ranks, network(env, links), costs)


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
    if len(ranks) < topology.npus and (len(ranks) > 1 or not all_alike(setup.placement, topology, costs)):
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


def notes_of(transport: Wired, setup: Setup) -> tuple[str, ...]:
    """What the user should know of how collectives were timed."""
    network = network_of(setup)
    if not (network and network.has_queues) and any(dim.ports != PLAIN for dim in setup.topology.dims):
        return (IDLE_PORTS,)
    return tuple(transport.notes())


def stuck_of(transport: Transport) -> list[str]:
    """Why nothing moves any more, where that is the network's doing."""
    return transport.stuck() if isinstance(transport, Played) else []


def _parts(placement: Placement, topology: Topology) -> list[list[int]]:
    """Sizes of the logical dimensions of every topology dimension."""
    return [[dim.size for dim in placement.dims if dim.index == at] for at in range(len(topology.dims))]


def all_alike(placement: Placement, topology: Topology, costs: Costs) -> bool:
    """Whether an NPU's place in its groups makes no difference on links that are taken in the order of events.

    Where a link has no latency, messages of two senders come to the next at one time, and their order breaks the
    symmetry; a ring of one hop at a time has none of these. NCCL's times do not depend on the topology.
    """
    lanes = placement.every_lane
    if any(lane.algorithm.name == NCCL for lane in lanes):
        return True
    far = [topology.dims[lane.dim.index] for lane in lanes if lane.algorithm.name != "ring"]
    instant = any(dim.kind == "Ring" and dim.npus > 3 and dim.latency_ns < 1 for dim in far)
    return not instant and looks_alike(placement, LinkGraph(topology), costs)
