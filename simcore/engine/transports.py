"""Which transport plays a run: of those that are exact for it the one that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simcore.engine.folding import Ground, classes_of, fold, lanes_beyond_neighbours, looks_alike, survey
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.network.congested import LinkNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import PLAIN
from simcore.system.alone import Phases
from simcore.system.config import NCCL
from simcore.system.measured import Measured, in_equal_nodes
from simcore.system.plans.maker import Costs
from simcore.system.played import Played
from simcore.system.scheduler import Transport
from simcore.system.shared import Shared
from simcore.system.transport import Solved

Wired = Solved | Measured | Played | Shared
Ints = NDArray[np.int64]

IDLE_PORTS = "buffers, marks, congestion control and routing of the topology play no part: --network queued has them"


def make_transport(env: Environment, ranks: Sequence[Sequence[int]], setup: Setup) -> Wired:
    """Without contention phases are solved; on shared links they share them; NCCL's were measured.

    Where the order of events counts, receivers ask for messages (rendezvous), or `--exact messages` asks for it, every
    message is played, by one NPU for all where they are alike. `ranks` are classes that `fold_of` gives, or everyone.
    """
    topology, profile = setup.topology, setup.profile
    links = LinkGraph(topology, timed=setup.settings.link_times)
    costs, network, folded = costs_of(setup, links), network_of(setup), len(ranks) < topology.npus
    _check(setup, network)
    if setup.system.fabric:
        return Measured(env, ranks, setup.system.fabric, costs)
    if network is None:
        if setup.settings.exact or _in_turn(setup):
            return Played(env, ranks, CongestionFree(env, profile.delay(topology)), costs, barrier=profile.barrier)
        return Solved(env, ranks, profile.delay(topology), costs, barrier=profile.barrier)
    shares = [[dim.size for dim in setup.placement.dims if dim.index == at] for at in range(len(topology.dims))]
    ground = _ground(setup, network, links, costs, folds=network.foldable and folded)
    if ground is None:
        return Played(env, ranks, network(env, FoldedLinks(links, shares) if folded else links), costs)
    plays = ground.playable and network.in_columns
    phases = partial(Phases, network=network, costs=costs, plain=network.in_columns)
    return Shared(env, ranks, links, phases, costs, sites=ground.sites, shares=shares, names=setup.names, plays=plays)


def fold_of(setup: Setup, kinds: Ints) -> list[Sequence[int]] | None:
    """Classes of NPUs that do the same, where `kinds` numbers them by what they compute; None where all differ.

    Where only a run can tell whether places differ, those that it may begin with.
    """
    network, topology, dims = network_of(setup), setup.topology, setup.placement.dims
    if setup.system.fabric:
        return fold(dims, kinds) if in_equal_nodes(dims, topology.npus, setup.system.fabric.node_ranks) else None
    links = LinkGraph(topology)
    costs = costs_of(setup, links)
    ground = _ground(setup, network, links, costs, folds=True) if network else None
    if ground:
        if (np.diff(kinds.reshape(setup.stages, -1)) == 0).all():
            return classes_of(kinds * (ground.colours.max() + 1) + ground.colours)
        return fold(dims, kinds) if ground.placeless else None
    if network or _in_turn(setup):
        return None if np.ptp(kinds) or not _one_for_all(setup, network, costs) else [range(topology.npus)]
    if topology.noise.links or (np.ptp(kinds) and not (setup.profile.gang and _all_alike(setup, costs))):
        return None
    return fold(dims, kinds)


def _in_turn(setup: Setup) -> bool:
    """Whether the order of messages counts although they share no links."""
    return setup.settings.rendezvous or setup.system.bus is not None or setup.in_turn


def _ground(setup: Setup, network: type[LinkNetwork], links: LinkGraph, costs: Costs, *, folds: bool) -> Ground | None:
    """What phases stand on that are timed one by one; None where every message is played.

    Those that meet can be played in columns, none can meet, or, as messages on queues take so long, it is worth a try
    until they are known to.
    """
    known_to_meet = network.has_queues and setup.settings.meeting
    by_phases = setup.profile.gang and not known_to_meet
    if not by_phases or setup.settings.exact or setup.topology.faults:
        return None
    ground = survey(setup, links, costs, folds=network.foldable and folds)
    tried = network.has_queues or (ground.playable and network.in_columns)
    return ground if tried or not ground.meets else None


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
    topology, settings = setup.topology, setup.settings
    if topology.faults or (network and not network.foldable):
        return False
    several = settings.rendezvous or settings.queues_per_dim > 1 or len(topology.dims) > 1
    if network and network.by_event and several and next(lanes_beyond_neighbours(setup.placement, costs), None):
        return False
    return _all_alike(setup, costs)


def _all_alike(setup: Setup, costs: Costs) -> bool:
    """Whether an NPU's place in its groups makes no difference on links that are taken in the order of events.

    Where a link has no latency, messages of two senders come to the next at one time, and their order breaks the
    symmetry; a ring of one hop at a time has none of these.
    """
    far = [setup.topology.dims[lane.dim.index] for lane in lanes_beyond_neighbours(setup.placement, costs)]
    instant = any(dim.kind == "Ring" and dim.npus > 3 and dim.latency_ns < 1 for dim in far)
    return not instant and looks_alike(setup.placement, LinkGraph(setup.topology), costs)


_MEASURED = "collectives: nccl takes measured times, which"


def _check(setup: Setup, network: type[LinkNetwork] | None) -> None:
    """InputError for what was asked for together and does not go together."""
    system, profile, settings, faults = setup.system, setup.profile, setup.settings, setup.topology.faults
    bears_faults = system.fabric or (network and network.bears_faults)
    other, peers = "a system file with algorithms", "use --profile astra-sim-2 or astra-sim-1.0"
    wrong = (
        (system.bus and not profile.memory_bus, system.at("model-shared-bus"),
         f"profile {profile.name} has no shared memory bus", "0, or the key left out", "", peers),
        (settings.exact and not profile.by_messages, "--exact",
         f"profile {profile.name} is not played message by message", "profile native", profile.name, ""),
        (faults and not bears_faults, "--fault", "faults need links that are shared in time",
         "profile native, --network congested or fair", "", ""),
        (settings.exact and system.fabric, system.at("collectives"), f"{_MEASURED} are not those of messages",
         "algorithms, or no --exact messages", "", ""),
        (faults and system.fabric, "--fault", f"{_MEASURED} no link changes", other, "", ""),
        (setup.topology.noise.links and system.fabric, "--jitter", f"{_MEASURED} no link changes", other, "", ""),
    )  # fmt: skip
    for there, place, message, expected, found, hint in wrong:
        if there:
            raise InputError.at(place, message, expected=expected, found=found, hint=hint)
    every = setup.placement.every_lane
    copied = {lane.algorithm.name for lane in every if lane.algorithm.traits.in_network}
    queues, free = f"--network {settings.network}", "--exact messages with --network congestion-free"
    refused = (
        (settings.rendezvous, "--rendezvous", {NCCL} | copied, "cannot wait for its receivers to ask"),
        (faults, "--fault", copied, "goes over fixed links"),
        (network and profile.gang and not network.has_trees, queues, copied,
         "copies or reduces on links, which queues do not"),
        (settings.exact and not network, free, copied,
         "copies or reduces on links, which are not there without contention"),
    )  # fmt: skip
    for asked, option, names, what in refused:
        for kind, lanes in setup.placement.lanes.items() if asked else ():
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
