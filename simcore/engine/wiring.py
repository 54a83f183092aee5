"""How a run is put together: the transport that is exact for it at the least cost, gates, phases; and its playing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import simpy

from simcore.collection import collection_paused
from simcore.engine.folding import GroupNames
from simcore.engine.placement import Placement
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.congested import CutThrough, FaultyCutThrough
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
from simcore.system.gates import GANG_ORDERS, Gang, Gate, LocalGate
from simcore.system.inter_dimension import DimensionOrder
from simcore.system.isolated import Isolated
from simcore.system.measured import Measured
from simcore.system.meetings import MeetingError
from simcore.system.phases import PhaseMaker
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.queues import INSERTION
from simcore.system.scheduler import Transport
from simcore.system.streams import Stream
from simcore.system.transport import AsymmetryError, Solved
from simcore.timeline.events import Timeline
from simcore.workload.model import CollectiveKind

__all__ = [
    "Assumptions",
    "Wired",
    "all_alike",
    "first_that_holds",
    "make_gates",
    "make_phases",
    "make_transport",
    "notes_of",
    "play",
]

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


def first_that_holds(
    run: Callable[[Sequence[Sequence[int]], Assumptions], Timeline],
    folded: Sequence[Sequence[int]] | None,
    npus: int,
    *,
    alike: bool = True,
) -> Timeline:
    """The run under the best assumptions that hold: folded if that is offered, then with a class for every NPU."""
    holds = replace(Assumptions(), alike=alike)
    everyone = [range(npu, npu + 1) for npu in range(npus)]
    for ranks in filter(None, (folded, everyone)):
        while True:
            try:
                return run(ranks, holds)
            except MeetingError:
                holds = replace(holds, apart=False)
            except AsymmetryError:
                if ranks is not everyone:
                    break
                if not holds.alike:
                    raise
                holds = replace(holds, alike=False)
    raise AsymmetryError


def make_transport(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    topology: Topology,
    placement: Placement,
    system: SystemConfig,
    profile: Profile,
    *,
    settings: Settings,
    collectives_only: bool = True,
    holds: Assumptions = Assumptions(),
    stages: int = 1,
) -> Wired:
    """Without contention phases are solved; on shared links they are played; NCCL's were measured.

    `collectives_only` says that there are no other messages than those of collectives along the dimensions. Where no
    two phases can meet then, every shape is played only once. A machine folded into one class for each of its pipeline
    `stages` plays on representative links. Raises AsymmetryError when a folded machine is not symmetric on its links;
    `holds` is what earlier attempts at the run have left to assume.
    """
    endpoint_ns = profile.scale(system.endpoint_ns(profile.system(topology)), settings.injection_scale)
    group_endpoint_ns = profile.graph.group_endpoint_ns
    _check_bus(system, profile)
    reduction_ns = profile.reduction(system)
    options = replace(
        profile.plan_options, switch_latency_ns=system.switch_latency_ns, switch_bytes_per_s=system.switch_bytes_per_s
    )
    links = LinkGraph(topology, timed=settings.link_times)
    costs = Costs(endpoint_ns, reduction_ns, options, group_endpoint_ns, settings.rendezvous, system.bus, links)
    if settings.rendezvous:
        _check_askable(placement)
    if system.fabric:
        _refuse_links(topology)
        return Measured(env, ranks, system.fabric, costs)
    network = profile.shared_links.get(settings.network or profile.networks[0])
    if topology.faults:
        return _faulty(env, ranks, links, placement, network, costs)
    if network is None:
        return _without_contention(env, ranks, topology, placement, costs, profile)
    parts = _parts(placement, topology)
    alike = holds.alike and network.foldable and all_alike(placement, topology)
    exclusive = settings.queues_per_dim == 1 and system.active_chunks_per_dimension == 1
    whole = all(len(sizes) == 1 for sizes in parts)
    columns = Columns(env, ranks, links, network, stages) if stages > 1 and whole else None
    apart = holds.apart and collectives_only and profile.gang and exclusive
    if stages > 1:  # messages between stages are solved on links of their own that look all the same
        apart = apart and columns is not None and not (settings.noise.compute or topology.noise.links)
    if alike and apart:
        folded = FoldedLinks(links, parts)
        return Isolated(env, ranks, folded, CutThrough, costs, never_meet=whole, columns=columns, stages=stages)
    unfolded, never_meet = len(ranks) == topology.npus, _never_meet(placement, topology)
    if unfolded and apart and _can_be_alone(placement) and (stages == 1 or never_meet):
        return Alone(env, ranks, links, network, costs, never_meet=never_meet, columns=columns)
    if unfolded:
        return Played(env, ranks, network(env, links), costs)
    if not alike or len(ranks) > stages:
        raise AsymmetryError
    return Played(env, ranks, network(env, FoldedLinks(links, parts, stages)), costs)


def _check_askable(placement: Placement) -> None:
    """InputError when an algorithm sends what nobody can ask for."""
    for kind, lanes in placement.lanes.items():
        for name in sorted({lane.algorithm.name for lane in lanes} & UNASKED):
            message = f"the {kind} by {name} cannot wait for its receivers to ask"
            raise InputError.at("--rendezvous", message, expected="another algorithm, or no --rendezvous", found=name)


def _faulty(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    links: LinkGraph,
    placement: Placement,
    network: object,
    costs: Costs,
) -> Played:
    """Every message of every NPU, on links some of which have faults."""
    if network not in FAULTY:
        message = "faults need links that are shared in time"
        raise InputError.at("--fault", message, expected="profile native, --network congested or fair")
    _check_no_trees(placement)
    if len(ranks) < links.npus:
        raise AsymmetryError
    return Played(env, ranks, FAULTY[network](env, links), costs)


def _check_no_trees(placement: Placement) -> None:
    """InputError when an algorithm sends over trees of links, which cannot be led around a fault."""
    for kind, lanes in placement.lanes.items():
        for name in sorted({lane.algorithm.name for lane in lanes} & TREES):
            message = f"the {kind} by {name} goes over fixed links"
            raise InputError.at("--fault", message, expected="another algorithm, or no --fault", found=name)


def _refuse_links(topology: Topology) -> None:
    """InputError when something is said of links and collectives take what was measured, whatever the links."""
    for option, given in (("--fault", topology.faults), ("--jitter", topology.noise.links)):
        if given:
            message = "collectives: nccl takes measured times, which no link changes"
            raise InputError.at(option, message, expected="a system file with algorithms")


def notes_of(transport: Transport) -> tuple[str, ...]:
    """What the user should know of how collectives were timed."""
    return tuple(transport.notes()) if isinstance(transport, Measured) else ()


def _without_contention(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    topology: Topology,
    placement: Placement,
    costs: Costs,
    profile: Profile,
) -> Solved | Played:
    """Phases are solved, or played where packets share a memory bus."""
    delay = profile.delay(topology)
    if not costs.bus:
        return Solved(env, ranks, delay, costs, barrier=profile.barrier)
    if len(ranks) < topology.npus and (len(ranks) > 1 or not all_alike(placement, topology)):
        raise AsymmetryError
    return Played(env, ranks, CongestionFree(env, delay), costs, barrier=profile.barrier)


def _check_bus(system: SystemConfig, profile: Profile) -> None:
    if system.bus and not profile.memory_bus:
        message = f"profile {profile.name} has no shared memory bus"
        hint = "use --profile astra-sim-2 or astra-sim-1.0"
        raise InputError.at(system.at("model-shared-bus"), message, expected="0, or the key left out", hint=hint)


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
    lanes = [lane for lanes in placement.lanes.values() for lane in lanes]
    if any(lane.algorithm.name == NCCL for lane in lanes):
        return True
    paired = [lane.dim for lane in lanes if lane.algorithm.name in PAIRED]
    pairs = any(dim.size > 2 and topology.dims[dim.index].kind != "Switch" for dim in paired)
    aware = any(lane.algorithm.name in NETWORK_AWARE for lane in lanes)
    # Without a latency, messages of two senders come to a link at one time; who is served first breaks the symmetry.
    far = [topology.dims[lane.dim.index] for lane in lanes if lane.algorithm.name != "ring"]
    instant = any(dim.kind == "Ring" and dim.npus > 3 and dim.latency_ns < 1 for dim in far)
    across = len(topology.dims) > 1 and any(lane.algorithm.whole_machine for lane in lanes)
    return symmetric(topology, _parts(placement, topology)) and not (pairs or aware or across or instant)


def _can_be_alone(placement: Placement) -> bool:
    """Whether phases may turn out to use different links: they take the machine by dimensions, or all as one."""
    across = {lane.algorithm.whole_machine for lanes in placement.lanes.values() for lane in lanes}
    return len(across) < 2


def _never_meet(placement: Placement, topology: Topology) -> bool:
    """Whether phases that are in different queues use different links: queues are the dimensions' or there is one."""
    lanes = [lane for lanes in placement.lanes.values() for lane in lanes]
    across = [lane.algorithm.whole_machine for lane in lanes]
    return all(across) or (not any(across) and has_own_links(topology, placement.dims))


def make_gates(
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    system: SystemConfig,
    profile: Profile,
    settings: Settings,
) -> Callable[[int, Callable[[Stream], None]], Gate]:
    """Makes the gate of each class: for itself, or together with its partners."""
    limit = -(-system.active_chunks_per_dimension // settings.queues_per_dim)
    policy = system.intra_dimension_scheduling
    if not profile.gang:
        insertion = INSERTION[policy]
        return lambda _, begin: LocalGate(begin, limit, insertion)
    if policy not in GANG_ORDERS:
        key = "intra-dimension-scheduling"
        message = f"profile {profile.name} has no {key} '{policy}'"
        raise InputError.at(system.at(key), message, expected=", ".join(GANG_ORDERS), found=policy)
    return Gang(env, limit, GANG_ORDERS[policy], GroupNames(ranks).of).gate


def make_phases(
    npu: int, topology: Topology, placement: Placement, system: SystemConfig, profile: Profile, settings: Settings
) -> PhaseMaker:
    """Cuts an NPU's collectives into chunks and phases."""
    bandwidths = [profile.dimension_bandwidth(topology.dims[dim.index]) for dim in placement.dims]

    def chunks(kind: CollectiveKind, size_bytes: int, colours: int) -> Iterator[int]:
        splits = -(-system.preferred_dataset_splits // colours) * colours
        return profile.chunks(kind, size_bytes, splits, topology.npus)

    return PhaseMaker(
        npu=npu,
        chunks=chunks,
        order=DimensionOrder(system.inter_dimension_scheduling, [dim.size for dim in placement.dims], bandwidths),
        decompose=system.collective_optimization == "localBWAware",
        num_queues=settings.queues_per_dim,
        queue_choice=profile.queue_choice,
    )


def play(env: simpy.Environment) -> None:
    """Run to the end, without the garbage collector: nothing here makes cycles worth collecting."""
    with collection_paused():
        try:
            env.run()
        except InputError as error:
            if isinstance(error.__cause__, InputError):  # SimPy raises a copy made of the text of what a process raised
                raise error.__cause__ from None
            raise
