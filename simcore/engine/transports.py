"""Which transport plays a run: of those that are exact for it the one that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from simcore.engine.folding import Ground, Traffic, classes_of, fold, survey
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.network.congested import LinkNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import PLAIN
from simcore.system.alone.chain import Phases
from simcore.system.collectives import NCCL
from simcore.system.groups import class_of
from simcore.system.meeting.circuits import Switched
from simcore.system.meeting.shared import Shared
from simcore.system.messages.in_order import InOrder
from simcore.system.messages.played import Played, SolvedOrPlayed
from simcore.system.plans.maker import Costs
from simcore.system.transport import Measured, Transport, in_equal_nodes

Ints = NDArray[np.int64]

IDLE_PORTS = "buffers, marks, congestion control and routing of the topology play no part: --network queued has them"
NO_ENDPOINT = (
    "the endpoint delay is 0, at which the original stops if built with its assertions; without, it gives this"
)


class Choice:
    """What plays a run, or a configuration of its circuits: classes of NPUs that do the same, and their transport.

    Without contention phases are solved; on shared links they share them; NCCL's were measured. Where the order of
    events counts, receivers ask for messages (rendezvous), or `--exact messages` asks for it, every message is played.
    """

    def __init__(self, setup: Setup):
        self._setup, self._network = setup, network_of(setup)
        _check(setup, self._network)
        self._links = LinkGraph(setup.topology, timed=setup.settings.link_times)
        self._costs = costs_of(setup, self._links)
        self._traffic = Traffic(setup.placement, self._costs)
        self._uneven = setup.uneven
        self._in_turn = setup.settings.rendezvous or setup.system.bus is not None or setup.in_turn or self._uneven
        self._ground = self._survey(self._network) if self._network else None

    def _survey(self, network: type[LinkNetwork]) -> Ground | None:
        """What phases stand on that are timed one by one; None where every message is played.

        Those that meet can be played in columns, none can meet, or, as messages on queues take so long, only those that
        meet are played one by one.
        """
        setup = self._setup
        if not setup.profile.gang or setup.settings.exact or setup.topology.faults or self._uneven:
            return None
        ground = survey(setup, self._links, self._traffic, asks=self._costs.rendezvous)
        tried = network.has_queues or (ground.playable and network.in_columns)
        return ground if tried or not ground.meets else None

    def transport(self, env: Environment, ranks: Sequence[Sequence[int]]) -> Transport:
        """The transport for classes that `fold` gives, or for everyone."""
        setup, links, costs, network, ground = self._setup, self._links, self._costs, self._network, self._ground
        topology, profile, folded = setup.topology, setup.profile, len(ranks) < setup.topology.npus
        if setup.system.fabric:
            return Measured(env, ranks, setup.system.fabric, costs)
        if network is None:
            if setup.settings.exact or self._in_turn:
                free = CongestionFree(env, profile.delay(topology))
                return Played(env, ranks, free, costs, barrier=profile.barrier, by_size=not profile.gang)
            return SolvedOrPlayed(env, ranks, profile.delay(topology), costs, barrier=profile.barrier)
        shares = [[dim.size for dim in setup.placement.dims if dim.index == at] for at in range(len(topology.dims))]
        if ground is None:
            own_links = FoldedLinks(links, shares) if folded else links
            if network.by_event and not costs.rendezvous and not costs.bus:
                return InOrder(env, ranks, own_links, costs)
            shared = network(env, own_links)
            return Played(env, ranks, shared, costs, by_size=not profile.gang)
        lone = network.foldable and folded
        sites = [site if lone else structs.replace(site, lone=0) for site in ground.sites]
        plays = ground.playable and network.in_columns
        phases = partial(Phases, network=network, costs=costs, plain=network.in_columns)
        return Shared(env, ranks, links, phases, costs, sites=sites, shares=shares, names=setup.names, plays=plays)

    def fold(self, kinds: Ints) -> list[Sequence[int]] | None:
        """Classes of NPUs that do the same, where `kinds` numbers them by what they compute; None where all differ."""
        setup, topology, dims, ground = self._setup, self._setup.topology, self._setup.placement.dims, self._ground
        even = not np.ptp(kinds)
        if setup.system.fabric:
            return fold(dims, kinds) if in_equal_nodes(dims, topology.npus, setup.system.fabric.node_ranks) else None
        if ground:
            if (np.diff(kinds.reshape(setup.stages, -1)) == 0).all():
                return classes_of(kinds * (ground.colours.max() + 1) + ground.colours)
            return fold(dims, kinds) if ground.placeless else None
        if self._network or self._in_turn:
            return [range(topology.npus)] if even and self._one_for_all() else None
        if topology.noise.links or not (even or setup.profile.gang):
            return None
        # Where the whole machine waits for its last NPU after every phase, places make no difference.
        alike = (setup.profile.barrier and even) or self._traffic.looks_alike(setup.placement, self._links)
        return (
            fold(dims, kinds) if alike or self._traffic.as_far(topology.npus, setup.profile.delay(topology)) else None
        )

    def _one_for_all(self) -> bool:
        """Whether one NPU may play the messages of all, on links that are taken in the order of events.

        Where messages may go round both ways and share links, of two that come at one time one NPU gets the one from
        before it first, its neighbour the one from behind. Those that go to the next rank share no link then. Where a
        link has no latency, messages of two senders come to the next at one time, and their order breaks the symmetry;
        a ring of one hop at a time has none of these.
        """
        topology, settings, network = self._setup.topology, self._setup.settings, self._network
        if topology.faults or (network and not network.foldable):
            return False
        several = settings.rendezvous or settings.queues_per_dim > 1 or len(topology.dims) > 1
        if network and network.by_event and several and self._traffic.far:
            return False
        if not self._traffic.looks_alike(self._setup.placement, self._links):
            return False
        far = [self._links.axes[dim.index].fabric for dim in self._traffic.far]
        return not any(not fabric.permutes and fabric.npus > 3 and fabric.latencies().min() < 1 for fabric in far)

    def notes(self, transport: Transport) -> tuple[str, ...]:
        """What the user should know of how collectives were timed."""
        queues = self._network and self._network.has_queues
        if not queues and any(dim.ports != PLAIN for dim in self._setup.topology.dims):
            return (IDLE_PORTS,)
        follows = self._setup.profile.rules  # those of another program
        stops = follows and not self._costs.endpoint_ns and not self._costs.bus
        return (*transport.notes(), *([NO_ENDPOINT] if stops else []))


def choices_of(setup: Setup) -> list[Choice]:
    """What plays a run; over circuits that are switched, a choice for each configuration."""
    return [Choice(each) for each in _configurations(setup)]


def transport_of(
    env: Environment, ranks: Sequence[Sequence[int]], choices: Sequence[Choice], topology: Topology
) -> Transport:
    """As `Choice.transport`; over circuits that are switched, with one for each configuration."""
    transports = [choice.transport(env, ranks) for choice in choices]
    return Switched(env, ranks, transports, topology, topology.circuits) if topology.circuits else transports[0]


def folded(choices: Sequence[Choice], kinds: NDArray[np.int64]) -> list[Sequence[int]] | None:
    """As `Choice.fold`, where that is the same on all configurations of the circuits."""
    first, *others = [choice.fold(kinds) for choice in choices]
    same = first and all(each and (class_of(each) == class_of(first)).all() for each in others)
    return first if same else None


def _configurations(setup: Setup) -> list[Setup]:
    """The run on the topology itself, and on what its circuits make of it for the collectives that take them."""
    topology, placement, circuits = setup.topology, setup.placement, setup.topology.circuits
    if circuits is None:
        return [setup]
    if not setup.profile.gang or setup.system.fabric or topology.faults:
        message = "circuits are switched between phases, which all NPUs of a group must begin together"
        expected = "profile native, a system file with algorithms, and no --fault"
        raise InputError.at(topology.path or "circuits", message, expected=expected)
    switched, found = circuits.switched(topology), [replace(setup, topology=replace(topology, circuits=None))]
    for number, other in enumerate(circuits.others, 1):
        lanes = {
            kind: tuple(lane for lane in lanes if lane.dim.index in switched)
            for kind, lanes in placement.lanes.items()
            if circuits.number(kind) == number
        }
        wires = replace(other, noise=topology.noise)
        found.append(replace(setup, topology=wires, placement=replace(placement, lanes=lanes)))
    return found


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
    used = {  # in dimensions that have somebody to send to
        kind: {lane.algorithm.name: lane.algorithm.traits for lane in lanes if lane.dim.size > 1}
        for kind, lanes in setup.placement.lanes.items()
    }
    copied = {name for algorithms in used.values() for name, traits in algorithms.items() if traits.in_network}
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
        for kind, algorithms in used.items() if asked else ():
            for name in sorted(names.intersection(algorithms)):
                message = f"the {kind} by {name} {what}"
                raise InputError.at(option, message, expected=f"another algorithm, or no {option}", found=name)
