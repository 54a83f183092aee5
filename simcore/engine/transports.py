"""Which transport plays a run, of those that are exact for it the one that costs least, and which NPUs do the same.

A run on shared links is cut into parts of the network, which one NPU plays for all where these look alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from simcore.engine.classes import Ints, Rows, alike, even
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.network.congested import LinkNetwork
from simcore.network.instant import Environment
from simcore.network.parts import FoldedLinks, Part, parts
from simcore.network.queued.routing import chooses_alike
from simcore.network.topology.fabric import Fabric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.moves import EVERYBODY, Fold, Symmetry
from simcore.system.alone.chain import Phases
from simcore.system.alone.solver import sends_at_once
from simcore.system.chunks.alike import Alike
from simcore.system.chunks.apart import Apart
from simcore.system.collectives import NCCL
from simcore.system.groups import Delay, GroupDim, LogicalDim, class_of
from simcore.system.meeting.circuits import Switched
from simcore.system.meeting.flights import Site
from simcore.system.meeting.shared import Shared
from simcore.system.messages.in_order import InOrder
from simcore.system.plans.maker import Costs, Plans
from simcore.system.plans.plan import Plan, Switch
from simcore.system.streams import Lane, StreamPhase
from simcore.system.transport import CongestionFree, Measured, Played, SolvedOrPlayed, Transport, in_equal_nodes
from simcore.workload.model import CollectiveKind

SAMPLED_RANKS, LARGE_BYTES, MOST_MESSAGES = 256, 1 << 30, 1 << 22
GATHER, SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER

ASYMMETRIC, TURNING = frozenset({Symmetry.NONE}), frozenset({Symmetry.TURNS})

IDLE_PORTS = (
    "buffers, marks and congestion control of the topology play no part, nor does its routing unless it is ecmp: "
    "--network queued has them"
)
NO_ENDPOINT = (
    "the endpoint delay is 0, at which the original stops if built with its assertions; without, it gives this"
)
PAIR = "on congested links the original stops at a Ring of 2 NPUs, which is answered here"
NO_DELAY = "--injection-scale has no effect here: there is no delay to scale (endpoint-delay of a system file)"


class Choice:
    """What plays a run, or a configuration of its circuits: classes of NPUs that do the same, and their transport.

    Without contention phases are solved; on shared links they share them; NCCL's were measured. Where the order of
    events counts, or `--exact messages` asks for it, every message is played.
    """

    def __init__(self, setup: Setup):
        network_on = setup.profile.shared_links.get(setup.settings.network or setup.profile.networks[0])
        # None where links are not shared.
        self._setup, self._network = setup, network_on(setup.topology) if network_on else None
        _check(setup, self._network)
        cuts = [[dim.size for dim in setup.dims if dim.index == at] for at in range(len(setup.topology.dims))]
        self._links = LinkGraph(setup.topology, timed=setup.settings.link_times, cuts=cuts)
        self._costs = self._rank_costs()
        self._traffic = Traffic(setup, self._costs, ties_turn=bool(self._network and self._network.ties_turn))
        self._in_turn = setup.settings.rendezvous or setup.system.bus is not None or setup.in_turn or setup.uneven
        self._in_turn |= setup.apart  # phases that cannot be solved
        self._sites = self._survey(self._network) if self._network else None

    @cached_property
    def apart(self) -> bool:
        """Whether NPUs that do the same are played one by one, or one for all as long as that is exact (ASTRA-sim 1.0).

        The order within a nanosecond may decide more than who is first where messages take as long as the endpoint's
        delay, under rendezvous come at different times, or wait for each other on a memory bus.
        """
        setup, costs = self._setup, self._costs
        uneven = costs.rendezvous and not self._traffic.looks_alike(self._links)
        differ = setup.settings.stragglers or setup.settings.noise.compute
        wanted = setup.apart or uneven or costs.bus is not None
        return setup.profile.in_turn and not self._network and not differ and wanted

    def _rank_costs(self) -> Costs:
        """What ranks pay beside the network."""
        setup, profile, system, settings = self._setup, self._setup.profile, self._setup.system, self._setup.settings
        given_ns, usual_ns = system.endpoint_delay_ns, profile.system(setup.topology).endpoint_delay_ns
        # ASTRA-sim leaves the delay that it takes without the key as it is.
        endpoint_ns = (usual_ns or 0) if given_ns is None else profile.scale(given_ns, settings.injection_scale)
        switch = Switch(system.switch_latency_ns, system.switch_bytes_per_s)
        options, group_ns = replace(profile.plan_options, switch=switch), profile.graph.group_endpoint_ns
        reduction = profile.reduction(system)
        return Costs(endpoint_ns, reduction, options, group_ns, settings.rendezvous, system.bus, self._links)

    def _survey(self, network: type[LinkNetwork]) -> Sequence[Site] | None:
        """What phases stand on that are timed one by one; None where every message is played."""
        setup, able = self._setup, self._setup.profile.gang and network.in_parts
        if not able or setup.settings.exact or setup.topology.faults or setup.uneven:
            return None
        if not self._in_columns(network) and (self._links.latency_ns < 1).any():
            return None  # what goes on within an instant does so in the order of columns, or of all messages
        return survey(setup, self._links, self._traffic)

    def _in_columns(self, network: type[LinkNetwork]) -> bool:
        """Whether `network.core` can play what meets."""
        return network.in_columns and self._traffic.playable and not self._costs.rendezvous

    def transport(self, env: Environment, ranks: Sequence[Sequence[int]]) -> Transport:
        """The transport for classes that `fold` gives, or for everyone."""
        setup, links, costs, network, sites = self._setup, self._links, self._costs, self._network, self._sites
        topology, profile, folded = setup.topology, setup.profile, len(ranks) < setup.topology.npus
        if setup.system.fabric:
            return Measured(env, ranks, setup.system.fabric, costs)
        if network is None:
            if self.apart:
                return (Alike if folded else Apart)(env, ranks, profile.delay(topology), costs)
            if setup.settings.exact or self._in_turn:
                free = CongestionFree(env, profile.delay(topology))
                return Played(env, ranks, free, costs, barrier=profile.barrier, by_size=not profile.gang)
            delay, turns = profile.delay(topology), not (profile.gang or profile.barrier)
            return SolvedOrPlayed(env, ranks, delay, costs, barrier=profile.barrier, turns=turns)
        if sites is None:
            own_links = FoldedLinks(links) if folded else links
            player = InOrder if network.by_event and not (costs.rendezvous or costs.bus) else Played
            return player(env, ranks, network(env, own_links), costs, by_size=not profile.gang)
        if not (network.foldable and folded):
            sites = [structs.replace(site, fold=EVERYBODY) for site in sites]
        phases = partial(Phases, network=network, costs=costs, plain=network.in_columns)
        plays = self._in_columns(network)
        return Shared(env, ranks, links, phases, costs, sites=sites, plays=plays)

    def fold(self, kinds: Ints) -> list[Sequence[int]] | None:
        """Classes of NPUs that do the same, where `kinds` numbers them by what they compute; None where all differ."""
        setup, topology, dims, sites = self._setup, self._setup.topology, self._setup.dims, self._sites
        same, groups = not np.ptp(kinds), [Rows(dim.stride, dim.size) for dim in dims]
        if setup.system.fabric:
            equal = in_equal_nodes(dims, topology.npus, setup.system.fabric.node_ranks)
            return alike(kinds, groups) if equal else None
        if sites:
            rows = (Rows(site.part.stride, site.part.npus, None if site.placeless else site.fold) for site in sites)
            return alike(kinds, [*rows])
        if self.apart and (setup.apart or self._costs.rendezvous):
            return None
        if self._network or self._in_turn:
            return [range(topology.npus)] if same and self._one_for_all() else None
        in_groups = setup.profile.gang or (not setup.profile.barrier and self._traffic.even(kinds))
        if topology.noise.links or not (same or in_groups):
            return None
        # Where the whole machine waits for its last NPU after every phase, places make no difference.
        placeless = (setup.profile.barrier and same) or self._traffic.looks_alike(self._links)
        placeless = placeless or self._traffic.as_far(topology.npus, setup.profile.delay(topology))
        return alike(kinds, groups) if placeless else None

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
        if not self._traffic.looks_alike(self._links):
            return False
        far = [self._links.axes[dim.index].fabric for dim in self._traffic.far]
        return not any(not fabric.permutes and fabric.npus > 3 and fabric.latencies().min() < 1 for fabric in far)

    def notes(self, transport: Transport) -> tuple[str, ...]:
        """What the user should know of how collectives were timed."""
        queues = self._network and self._network.has_queues
        if not queues and any(dim.ports.need_queues for dim in self._setup.topology.dims):
            return (IDLE_PORTS,)
        follows = self._setup.profile.rules  # those of another program
        stops = follows and not self._costs.endpoint_ns and not self._costs.bus
        idle = self._setup.settings.injection_scale != 1 and not self._setup.system.endpoint_delay_ns
        pairs = any(dim.kind == "Ring" and dim.npus == 2 for dim in self._setup.topology.dims)
        doubles = pairs and self._network and self._network.by_event
        told = {NO_ENDPOINT: stops, PAIR: doubles, NO_DELAY: idle}
        return (*transport.notes(), *(note for note, holds in told.items() if holds))


def choices_of(setup: Setup) -> list[Choice]:
    """What plays a run; over circuits that are switched, a choice for what they make of it for some collectives, too.

    The topology's own comes first.
    """
    topology, circuits = setup.topology, setup.topology.circuits
    if circuits is None:
        return [Choice(setup)]
    if not setup.profile.gang or setup.system.fabric or topology.faults:
        message = "circuits are switched between phases, which all NPUs of a group must begin together"
        expected = "profile native, a system file with algorithms, and no --fault"
        raise InputError.at(topology.path or "circuits", message, expected=expected)
    switched, found = circuits.switched(topology), [replace(setup, topology=replace(topology, circuits=None))]
    for number, other in enumerate(circuits.others, 1):
        lanes = {
            kind: tuple(lane for lane in lanes if lane.dim.index in switched)
            for kind, lanes in setup.lanes.items()
            if circuits.number(kind) == number
        }
        wires = replace(other, noise=topology.noise)
        found.append(replace(setup, topology=wires, lanes=lanes))
    return [Choice(each) for each in found]


def transport_of(
    env: Environment, ranks: Sequence[Sequence[int]], choices: Sequence[Choice], topology: Topology
) -> Transport:
    """As `Choice.transport`; over circuits that are switched, with one for each configuration."""
    transports = [choice.transport(env, ranks) for choice in choices]
    return Switched(env, ranks, transports, topology, topology.circuits) if topology.circuits else transports[0]


def folded(choices: Sequence[Choice], kinds: Ints) -> list[Sequence[int]] | None:
    """As `Choice.fold`, where that is the same on all configurations of the circuits."""
    first, *others = [choice.fold(kinds) for choice in choices]
    same = first and all(each and (class_of(each) == class_of(first)).all() for each in others)
    return first if same else None


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
        for kind, lanes in setup.lanes.items()
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


class Traffic:
    """What ranks send in the dimensions of a run, looked at before it: plans of a small and a large size stand for all.

    `playable`: as of plans, of all. `far`: where ranks send to others than the next one of their group.
    """

    def __init__(self, setup: Setup, costs: Costs, *, ties_turn: bool):
        self._ties_turn = ties_turn
        self._may: dict[GroupDim, frozenset[Symmetry]] = {}  # the symmetries of the plans of a dimension
        self.playable, self.far, self._costs, self._dims = True, list[GroupDim](), costs, setup.dims
        self._plans: list[tuple[CollectiveKind, Lane]] = []
        for kind, lanes in setup.lanes.items():
            for lane in (lane for lane in lanes if lane.dim.size > 1):
                plans, dim = [*_samples(kind, lane, costs)], lane.dim
                self._plans.append((kind, lane))
                own = (plan.symmetries if plan else ASYMMETRIC for plan in plans)
                self._may[dim] = self._may.get(dim, frozenset()).union(*own)
                self.playable &= all(plan is None or plan.playable for plan in plans)
                if not all(plan and plan.plain and all(entry.hop == 1 for entry, _ in plan.rounds) for plan in plans):
                    self.far.append(dim)

    def even(self, kinds: Ints) -> bool:
        """Whether all NPUs of every group do the same."""
        return even(kinds, self._may)

    def used(self, part: Part) -> set[GroupDim]:
        """The groups that are in a part."""
        return {dim for dim in self._may if part.first <= dim.index <= part.last}

    def spans(self, links: LinkGraph) -> bool:
        """Whether some groups take in several dimensions."""
        dims = links.topology.dims
        return any(not isinstance(dim, LogicalDim) or dim.size > dims[dim.index].npus for dim in self._may)

    def looks_alike(self, links: LinkGraph) -> bool:
        """Whether all NPUs may change places, with the groups of all dimensions."""
        return not self.spans(links) and all(self.one_for_all(part, self._dims) for part in parts(links, ()))

    def one_for_all(self, part: Part, dims: Iterable[LogicalDim], *, whole: bool = True) -> bool:
        """Whether all NPUs of a place may change places, groups and all; those of a stage where not the `whole`."""
        fabric, inside = _cut(part, dims) or (None, [])
        if fabric is None or not all(self._alike(part, dim, inside) for dim in self.used(part)):
            return False
        turns = whole and fabric.turn == 1
        return fabric.permutes or (turns and (len(inside) < 2 or not self.used(part)))

    def distinct(self, part: Part) -> int:
        """How many NPUs of a place differ: those inside the outermost dimension that cuts it, where that may turn."""
        fabric, inside = _cut(part, self._dims) or (None, [])
        if fabric is None or not inside or not self.used(part).issubset(inside):
            return part.npus
        found = part.graph.axes[0].distinct([dim.size for dim in inside])
        turns = part.npus % found == 0 and (fabric.turn == 1 or self._ties_turn)
        needed = TURNING | self._may.get(inside[-1], TURNING)
        return found if turns and needed <= part.symmetries else part.npus

    def _alike(self, part: Part, dim: GroupDim, inside: Sequence[LogicalDim]) -> bool:
        """Whether ranks of a dimension may change places; of those that cut a ring the outermost alone may.

        Where any two NPUs may, groups in any order do, but for ways over third NPUs: these turn as the cut does. Where
        links are not of one NPU each, groups that have two NPUs in common may meet on some of their links only.
        """
        routing = part.links.topology.dims[part.first].ports.routing
        own_links = Symmetry.EXCHANGES in part.fabric.symmetries
        apart = own_links or all(_apart(dim, other) for other in self.used(part) - {dim})
        free = part.fabric.permutes and apart and (not routing or dim in inside)
        return self._may.get(dim, TURNING) <= part.symmetries and (free or not inside or dim == inside[-1])

    def as_far(self, npus: int, delay: Delay) -> bool:
        """Whether all NPUs send as far as each other in every round, on links that nobody shares.

        Where all is sent at once it is enough that each sends, and receives, as far in any order. Where messages of no
        size and of a large one take as long, so do all.
        """
        if any(own >= ASYMMETRIC for own in self._may.values()):
            return False
        for kind, lane in self._plans:
            costs = self._costs.of(lane)
            for plan in filter(None, _samples(kind, lane, self._costs, lane.dim.size)):
                for _, part in plan.parts:
                    hops = {entry.hop for entry, _ in part.rounds}
                    if len(hops) * npus > MOST_MESSAGES:
                        return False
                    times = np.stack([_times(lane.dim, npus, delay, part.peers(hop)) for hop in hops], axis=1)
                    waits = part.half and costs.received_ns(part.rounds[0][0].reduce_bytes)
                    as_large = len({entry.size_bytes for entry, _ in part.rounds}) == 1
                    if as_large and sends_at_once(part, costs) and not waits:
                        times = np.take_along_axis(times, np.lexsort(times, axis=0)[None], axis=1)
                    if (times != times[..., :1]).any():
                        return False
        return True


def _times(dim: GroupDim, npus: int, delay: Delay, peers: Ints) -> NDArray[np.float64]:
    """Times of a round, [of messages of no size or of large ones, of what is sent or received, by NPU]."""
    ids, members = np.arange(npus), dim.members(0)
    firsts = ids[ids // dim.stride % dim.size == 0] if isinstance(dim, LogicalDim) else ids[:1]
    src, dst = ((firsts[:, None] + own).ravel() for own in (members, members[peers]))
    found = np.empty((2, 2, npus))
    for own, size_bytes in zip(found, (0, LARGE_BYTES), strict=True):
        own[0, src] = own[1, dst] = delay(src, dst, size_bytes)
    return found


def survey(setup: Setup, links: LinkGraph, traffic: Traffic) -> list[Site]:
    """The parts of the network on which phases are timed one by one: look at the machine and at what is sent there."""
    count, crossed = len(setup.topology.dims), _crossed(setup)
    together = [crossed] if crossed else []
    together += [(0, count - 1)] if traffic.spans(links) else []
    exclusive = setup.settings.queues_per_dim == 1 and setup.system.active_chunks_per_dimension == 1
    sites = []
    for part in parts(links, together):
        own = traffic.used(part)
        messages = crossed is not None and part.first <= crossed[1] and crossed[0] <= part.last
        stages = 1  # of a pipeline, each a row of neighbours of a place; 0 where that cannot be said
        if messages:
            npus_of_stage = links.npus // setup.stages // part.stride
            rows = setup.stages > 1 and npus_of_stage > 0 and part.npus % npus_of_stage == 0
            stages = part.npus // npus_of_stage if rows else 0
        width = part.stride * part.npus // max(stages, 1)
        dims = [dim for dim in setup.dims if dim.stride < width]
        inside = stages == 1 or all(isinstance(dim, LogicalDim) and dim.stride * dim.size <= width for dim in own)
        alike = bool(stages) and inside and traffic.one_for_all(part, dims, whole=stages == 1)
        one_group = all(dim.size == part.npus for dim in own)
        alone = exclusive and not messages and len(own) < 2 and (one_group or alike)
        placeless = alike and alone and one_group
        if messages and not own:
            placeless = stages == part.npus  # one of each stage, who hands over to the others
        distinct = part.npus if messages else traffic.distinct(part)
        fold = Fold(part.npus, distinct) if distinct < part.npus else EVERYBODY
        if alike:
            fold = Fold(part.npus // stages)
        sites.append(Site(part, alike, fold, not alone, placeless))
    return sites


def _apart(dim: GroupDim, other: GroupDim) -> bool:
    """Whether no two NPUs are together in groups of both dimensions."""
    if not (isinstance(dim, LogicalDim) and isinstance(other, LogicalDim)):
        return False
    return dim.stride * dim.size <= other.stride or other.stride * other.size <= dim.stride


def _crossed(setup: Setup) -> tuple[int, int] | None:
    """The first and the last dimension that messages between single NPUs cross."""
    topology = setup.topology
    if not setup.collectives_only:
        return 0, len(topology.dims) - 1
    if setup.stages == 1:
        return None
    width = topology.npus // setup.stages
    crossed = [
        index
        for index, (dim, stride) in enumerate(zip(topology.dims, topology.strides, strict=True))
        if dim.npus > 1 and stride * dim.npus > width
    ]
    return crossed[0], crossed[-1]


def _samples(kind: CollectiveKind, lane: Lane, costs: Costs, most: int = SAMPLED_RANKS) -> Iterator[Plan | None]:
    """What the ranks of a dimension send, a little and much; None where only the network tells."""
    if lane.algorithm.traits.network_aware:
        yield None
        return
    kinds = (kind, SCATTER, GATHER) if kind == CollectiveKind.ALL_REDUCE else (kind,)
    size, here = lane.dim.size, lane  # few ranks for many: as many as a power of two, even or odd where those are
    if not costs.of(lane).moves(lane.dim):
        if size > most:
            size = most - 2 + size % 2 if size & (size - 1) else most
        here = structs.replace(lane, dim=LogicalDim(0, size, 1))
    for each, data_bytes in product(kinds, (size, LARGE_BYTES * size)):
        try:
            yield Plans(costs).of(StreamPhase(each, here, data_bytes, data_bytes, 0), 0)
        except InputError:  # said where it is sent
            continue


def _cut(part: Part, dims: Iterable[LogicalDim]) -> tuple[Fabric, list[LogicalDim]] | None:
    """The fabric of a part and the dimensions that lie in it; None where its places may not be exchanged at all.

    Where ports choose among several ways, these may not look the same from several NPUs.
    """
    topology = part.links.topology
    uneven = topology.noise.links or topology.faults or topology.graph or topology.wafer
    if part.first < part.last or uneven or not chooses_alike(topology, part.first):
        return None
    return part.fabric, [dim for dim in dims if dim.index == part.first and dim.size > 1]
