"""Which transport plays a run: of those that are exact for it the one that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simcore.engine.folding import classes_of, fold
from simcore.engine.placement import Placement
from simcore.engine.setup import Setup
from simcore.engine.sites import Ground, lanes_beyond_neighbours, looks_alike, survey
from simcore.errors import InputError
from simcore.network.congested import LinkNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import PLAIN
from simcore.system.alone import Phases
from simcore.system.collectives import IN_NETWORK
from simcore.system.config import NCCL
from simcore.system.measured import Measured
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.shared import Shared
from simcore.system.transport import AsymmetryError, Solved

Wired = Solved | Measured | Played | Shared
Ints = NDArray[np.int64]

IDLE_PORTS = "buffers, marks, congestion control and routing of the topology play no part: --network queued has them"


def make_transport(env: Environment, ranks: Sequence[Sequence[int]], setup: Setup) -> Wired:
    """Without contention phases are solved; on shared links they share them; NCCL's were measured.

    Where the order of events counts, receivers ask for messages (rendezvous), or `--exact messages` asks for it, every
    message is played, by one NPU for all where they are alike. Raises AsymmetryError when a folded machine is not
    symmetric on its links.
    """
    topology, profile, exact = setup.topology, setup.profile, bool(setup.settings.exact)
    links = LinkGraph(topology, timed=setup.settings.link_times)
    costs, network, folded = costs_of(setup, links), network_of(setup), len(ranks) < topology.npus
    _check(setup, network)
    if setup.system.fabric:
        return Measured(env, ranks, setup.system.fabric, costs)
    if network is None and not (exact or costs.bus or costs.rendezvous or setup.in_turn):
        if topology.noise.links and folded:
            raise AsymmetryError
        return Solved(env, ranks, profile.delay(topology), costs, barrier=profile.barrier)
    shares = [[dim.size for dim in setup.placement.dims if dim.index == at] for at in range(len(topology.dims))]
    if network and _by_itself(setup, network) and not (exact or topology.faults):
        ground = survey(setup, links, costs, folds=network.foldable and folded)
        if _by_phases(setup, network, ground):
            plays = ground.playable and network.in_columns
            phases = partial(Phases, network=network, costs=costs, plain=network.in_columns)
            return Shared(
                env, ranks, links, phases, costs, sites=ground.sites, shares=shares, names=setup.names, plays=plays
            )
    if folded and (len(ranks) > 1 or not _one_for_all(setup, network, costs)):
        raise AsymmetryError
    if network is None:
        return Played(env, ranks, CongestionFree(env, profile.delay(topology)), costs, barrier=profile.barrier)
    return Played(env, ranks, network(env, FoldedLinks(links, shares) if folded else links), costs)


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
        placeless = gang and _all_alike(setup.placement, topology, costs)
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
    return setup.profile.gang and not (network.has_queues and setup.settings.meeting)


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


def _one_for_all(setup: Setup, network: type[LinkNetwork] | None, costs: Costs) -> bool:
    """Whether one NPU may play the messages of all.

    Where messages may go round both ways and share links, of two that come at one time one NPU gets the one from before
    it first, its neighbour the one from behind. Those that go to the next rank share no link then.
    """
    if network and not network.foldable:
        return False
    queues, dims = setup.settings.queues_per_dim, len(setup.topology.dims)
    share_links = network and network.by_event and (setup.settings.rendezvous or queues > 1 or dims > 1)
    if share_links and next(lanes_beyond_neighbours(setup.placement, costs), None):
        return False
    return _all_alike(setup.placement, setup.topology, costs)


def _check(setup: Setup, network: type[LinkNetwork] | None) -> None:
    """InputError for what was asked for together and does not go together."""
    system, profile = setup.system, setup.profile
    if system.bus and not profile.memory_bus:
        message = f"profile {profile.name} has no shared memory bus"
        hint = "use --profile astra-sim-2 or astra-sim-1.0"
        raise InputError.at(system.at("model-shared-bus"), message, expected="0, or the key left out", hint=hint)
    if setup.settings.exact and not profile.by_messages:
        message = f"profile {profile.name} is not played message by message"
        raise InputError.at("--exact", message, expected="profile native", found=profile.name)
    if setup.topology.faults and not (system.fabric or (network and network.bears_faults)):
        message = "faults need links that are shared in time"
        raise InputError.at("--fault", message, expected="profile native, --network congested or fair")
    check = _check_measured if system.fabric else _check_in_network
    check(setup, network)


def _check_measured(setup: Setup, _: type[LinkNetwork] | None) -> None:
    """InputError for what says how messages go, where collectives take measured times."""
    topology, settings = setup.topology, setup.settings
    if settings.exact:
        message = "collectives: nccl takes measured times, which are not those of messages"
        expected = "algorithms, or no --exact messages"
        raise InputError.at(setup.system.at("collectives"), message, expected=expected)
    for option, given in (("--fault", topology.faults), ("--jitter", topology.noise.links)):
        if given:
            message = "collectives: nccl takes measured times, which no link changes"
            raise InputError.at(option, message, expected="a system file with algorithms")
    if settings.rendezvous:
        _refuse(setup, {NCCL}, "--rendezvous", "cannot wait for its receivers to ask")


def _check_in_network(setup: Setup, network: type[LinkNetwork] | None) -> None:
    """InputError for collectives that the network copies or reduces, where it cannot."""
    settings = setup.settings
    if settings.rendezvous:
        _refuse(setup, IN_NETWORK, "--rendezvous", "cannot wait for its receivers to ask")
    if setup.topology.faults:
        _refuse(setup, IN_NETWORK, "--fault", "goes over fixed links")
    if network and setup.profile.gang and not network.has_trees:
        option = f"--network {settings.network}"
        _refuse(setup, IN_NETWORK, option, "copies or reduces on links, which queues do not")
    if settings.exact and not network:
        option = "--exact messages with --network congestion-free"
        _refuse(setup, IN_NETWORK, option, "copies or reduces on links, which are not there without contention")


def _refuse(setup: Setup, names: set[str], option: str, what: str) -> None:
    """InputError when a collective is sent by one of the algorithms `names`, which `option` does not go with."""
    for kind, lanes in setup.placement.lanes.items():
        for name in sorted({lane.algorithm.name for lane in lanes} & names):
            message = f"the {kind} by {name} {what}"
            raise InputError.at(option, message, expected=f"another algorithm, or no {option}", found=name)


def notes_of(transport: Wired, setup: Setup) -> tuple[str, ...]:
    """What the user should know of how collectives were timed."""
    network = network_of(setup)
    if not (network and network.has_queues) and any(dim.ports != PLAIN for dim in setup.topology.dims):
        return (IDLE_PORTS,)
    return tuple(transport.notes())


def stuck_of(transport: Transport) -> list[str]:
    """Why nothing moves any more, where that is the network's doing."""
    return transport.stuck() if isinstance(transport, Played) else []


def _all_alike(placement: Placement, topology: Topology, costs: Costs) -> bool:
    """Whether an NPU's place in its groups makes no difference on links that are taken in the order of events.

    Where a link has no latency, messages of two senders come to the next at one time, and their order breaks the
    symmetry; a ring of one hop at a time has none of these. NCCL's times do not depend on the topology.
    """
    if any(lane.algorithm.name == NCCL for lane in placement.every_lane):
        return True
    far = [topology.dims[lane.dim.index] for lane in lanes_beyond_neighbours(placement, costs)]
    instant = any(dim.kind == "Ring" and dim.npus > 3 and dim.latency_ns < 1 for dim in far)
    return not instant and looks_alike(placement, LinkGraph(topology), costs)
