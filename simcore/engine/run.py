"""The run of a training loop: fold NPUs into classes, build their processes, simulate, hand over the timeline."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import simpy

from simcore.engine.folding import GroupNames, fold
from simcore.engine.placement import Placement, column_group, place
from simcore.engine.settings import Settings
from simcore.engine.transports import make_transport
from simcore.errors import DeadlockError, InputError
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.system.config import SystemConfig
from simcore.system.gates import GANG_ORDERS, Gang, Gate, LocalGate
from simcore.system.inter_dimension import DimensionOrder
from simcore.system.npu import LoopProgram, Npu, Priorities
from simcore.system.phases import PhaseMaker
from simcore.system.queues import INSERTION
from simcore.system.scheduler import Scheduler, Transport
from simcore.system.streams import Request, Stream
from simcore.system.transport import AsymmetryError
from simcore.timeline.events import EventBuffer, Timeline, format_ranks
from simcore.workload.loops import Order, Ref, loops
from simcore.workload.model import CollectiveKind, PhaseName, Workload

__all__ = ["simulate"]

PHASES = list(PhaseName)


@dataclass(frozen=True, slots=True)
class _Case:
    """All inputs of a run."""

    workload: Workload
    topology: Topology
    system: SystemConfig
    profile: Profile
    settings: Settings
    placement: Placement


def simulate(
    workload: Workload, topology: Topology, system: SystemConfig | None, profile: Profile, settings: Settings
) -> Timeline:
    """Run a text workload.

    NPUs that do the same are one process; when they turn out to differ, the run is repeated with one each. Raises
    InputError when the workload does not fit the machine, DeadlockError when it cannot finish.
    """
    defaults = profile.system(topology)
    system = system or defaults
    placement = place(workload, topology, system, defaults, oversized=profile.oversized_groups)
    case = _Case(workload, topology, system, profile, settings, placement)
    if settings.fold:
        try:
            return _run(case, fold(placement.dims, settings.stragglers, topology.npus, together=profile.gang))
        except AsymmetryError:
            pass
    return _run(case, [range(npu, npu + 1) for npu in range(topology.npus)])


def _run(case: _Case, ranks: Sequence[Sequence[int]]) -> Timeline:
    env, events = simpy.Environment(), EventBuffer()
    profile, settings, system = case.profile, case.settings, case.system
    transport = make_transport(
        env, ranks, case.topology, case.placement, system, profile,
        mode=settings.network or profile.networks[0], settings=settings,
    )  # fmt: skip
    gates = _gates(case, env, ranks)
    names = [events.name(layer.name) for layer in case.workload.layers]
    requests = _requests(case, names)
    steps = loops.get(case.workload.loop).steps(case.workload)
    npus = []
    for npu_class, members in enumerate(ranks):
        factor = settings.stragglers.get(members[0], 1.0)
        program = LoopProgram(
            steps, _compute(case, factor), requests, names, settings.iterations, profile.step_ns,
            profile.first_layer_tail_only,
        )  # fmt: skip
        scheduler = Scheduler(
            env, npu_class, _phase_maker(case), transport, events,
            gates,
        )  # fmt: skip
        npus.append(Npu(env, npu_class, program, scheduler, Priorities(Order[system.scheduling_policy]), events))
    for npu in npus:
        env.process(npu.run())
    _play(env)
    _check_finished(npus, ranks, transport)
    return _timeline(case, ranks, npus, events, transport)


def _gates(
    case: _Case, env: simpy.Environment, ranks: Sequence[Sequence[int]]
) -> Callable[[int, Callable[[Stream], None]], Gate]:
    """Makes the gate of each class: for itself, or together with its partners."""
    system = case.system
    limit = -(-system.active_chunks_per_dimension // case.settings.queues_per_dim)
    policy = system.intra_dimension_scheduling
    if not case.profile.gang:
        insertion = INSERTION[policy]
        return lambda _, begin: LocalGate(begin, limit, insertion)
    if policy not in GANG_ORDERS:
        key = "intra-dimension-scheduling"
        message = f"profile {case.profile.name} has no {key} '{policy}'"
        raise InputError.at(system.at(key), message, expected=", ".join(GANG_ORDERS), found=policy)
    return Gang(env, limit, GANG_ORDERS[policy], GroupNames(ranks).of).gate


def _play(env: simpy.Environment) -> None:
    """Run to the end, without the garbage collector: nothing here makes cycles worth collecting."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        env.run()
    finally:
        if enabled:
            gc.enable()


def _check_finished(npus: Sequence[Npu], ranks: Sequence[Sequence[int]], transport: Transport) -> None:
    stuck = [npu for npu in npus if npu.finish_ns < 0]
    if stuck:
        lines = [f"NPU {format_ranks(ranks[npu.npu_class])} waits for {npu.waits_for}" for npu in stuck[:10]]
        met = [f"chunk {stream.key} has only NPUs {classes[:10]}" for stream, classes in transport.waiting()[:10]]
        raise DeadlockError("error: deadlock: nothing can happen any more\n  " + "\n  ".join(lines + met))


def _compute(case: _Case, factor: float) -> dict[tuple[PhaseName, int], int]:
    """Compute time of every phase of every layer, scaled; a straggler's is rounded to whole nanoseconds."""
    scale = case.settings.compute_scale
    return {
        (name, index): round(case.profile.scale(layer.phase(name).compute_ns, scale) * factor)
        for index, layer in enumerate(case.workload.layers)
        for name in PHASES
    }


def _requests(case: _Case, names: Sequence[int]) -> dict[Ref, Request]:
    """What every column's collective sends; columns without one are left out."""
    found = {}
    for index, layer in enumerate(case.workload.layers):
        for name in PHASES:
            phase = layer.phase(name)
            if phase.collective is None:
                continue
            group = column_group(case.workload, layer, index, name, phase.group)
            lanes = case.placement.lanes_of(phase.collective, group)
            size_bytes = case.profile.scale(phase.size_bytes, case.settings.comm_scale)
            position = PHASES.index(name)
            found[Ref(name, index)] = Request(
                phase.collective, size_bytes, lanes if size_bytes else (), 0, layer.update_ns, index, position,
                name=names[index],
            )  # fmt: skip
    return found


def _phase_maker(case: _Case) -> PhaseMaker:
    dims, system, profile = case.placement.dims, case.system, case.profile
    bandwidths = [profile.dimension_bandwidth(case.topology.dims[dim.index]) for dim in dims]
    npus = case.topology.npus

    def chunks(kind: CollectiveKind, size_bytes: int) -> Iterator[int]:
        return profile.chunks(kind, size_bytes, system.preferred_dataset_splits, npus)

    return PhaseMaker(
        chunks=chunks,
        order=DimensionOrder(system.inter_dimension_scheduling, [dim.size for dim in dims], bandwidths),
        decompose=system.collective_optimization == "localBWAware",
        num_queues=case.settings.queues_per_dim,
        queue_choice=profile.queue_choice,
    )


def _timeline(
    case: _Case, ranks: Sequence[Sequence[int]], npus: Sequence[Npu], events: EventBuffer, transport: Transport
) -> Timeline:
    layers = case.workload.layers
    asked = [
        {str(name): (layer.phase(name).collective, layer.phase(name).size_bytes) for name in PHASES} for layer in layers
    ]
    return Timeline(
        events=events.table(),
        time_ns=max(npu.finish_ns for npu in npus),
        iterations=tuple(npus[0].iterations),
        ranks=tuple(ranks),
        finish_ns=tuple(npu.finish_ns for npu in npus),
        layers=tuple(layer.name for layer in layers),
        dims=tuple((dim.kind, dim.npus) for dim in case.topology.dims),
        links=transport.links(),
        details={"layer_collectives": asked},
    )
