"""The run of a training loop: fold NPUs into classes, build their processes, simulate, hand over the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING

import simpy

from simcore.engine.deadlock import deadlock
from simcore.engine.folding import kinds_of
from simcore.engine.placement import Placement
from simcore.engine.settings import Settings
from simcore.engine.setup import Setup, prepare
from simcore.engine.transports import Wired, fold_of, make_transport, notes_of
from simcore.engine.wiring import folded_if_alike, make_gates, make_phases, play
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.system.config import SystemConfig
from simcore.system.groups import GroupDim
from simcore.system.inter_dimension import THEMIS
from simcore.system.npu import LoopProgram, Npu, Priorities
from simcore.system.played import Played
from simcore.system.precedence import Precedence
from simcore.system.scheduler import Scheduler, Transport
from simcore.system.shared import Shared
from simcore.system.streams import Request
from simcore.system.transport import Solved, class_of
from simcore.timeline.events import EventBuffer, PipelineRun, Timeline, format_ranks
from simcore.workload.loops import Order, Ref, loops
from simcore.workload.loops.groups import column_group
from simcore.workload.model import CollectiveKind, PhaseName, Workload

if TYPE_CHECKING:  # pipelines are imported where there are some
    from simcore.system.pipeline_npu import StageProgram
    from simcore.workload.loops.pipeline import Pipeline

__all__ = ["simulate"]

PHASES = list(PhaseName)


@dataclass(frozen=True, slots=True)
class _Case(Setup):
    """All inputs of a run."""

    workload: Workload
    pipeline: Pipeline | None = None

    @property
    def stages(self) -> int:
        """As `Setup.stages`."""
        return self.pipeline.schedule.stages if self.pipeline else 1


def simulate(
    workload: Workload, topology: Topology, system: SystemConfig | None, profile: Profile, settings: Settings
) -> Timeline:
    """Run a text workload.

    NPUs that do the same are one process; when they turn out to differ, the run is repeated with one each. Raises
    InputError when the workload does not fit the machine, DeadlockError when it cannot finish.
    """
    setup = prepare(workload, topology, system, profile, settings)
    _refuse_custom(setup.system)
    placement = _used(workload, setup.placement)
    pipeline = _pipeline(workload, profile, settings)
    if pipeline:
        from simcore.engine.stages import check_fits

        check_fits(workload, topology, placement)
    case = _Case(topology, setup.system, profile, settings, placement, workload, pipeline)
    kinds = kinds_of(settings.stragglers, topology.npus)
    if pipeline:
        from simcore.engine.stages import stage_kinds

        kinds = stage_kinds(kinds, case.stages)
    folded = fold_of(case, kinds) if settings.folds else None
    return folded_if_alike(partial(_run, case), folded, topology.npus)


def _pipeline(workload: Workload, profile: Profile, settings: Settings) -> Pipeline | None:
    """The stages of the workload, None when there is only one."""
    if profile.pipelines and workload.parallelism.pp > 1:
        from simcore.workload.loops.pipeline import pipeline_of

        return pipeline_of(workload, settings.schedule)
    if settings.schedule:
        raise InputError.at(
            "--schedule",
            "there is no pipeline to schedule",
            expected="a text workload whose header has pp: 2 or more, in profile native",
            found=f"pp: {workload.parallelism.pp}, profile {profile.name}",
        )
    return None


def _refuse_custom(system: SystemConfig) -> None:
    """InputError when collectives shall be execution traces: their messages belong to nodes of a trace."""
    keys = [f"{kind.replace('_', '-')}-implementation-custom" for kind in system.custom]
    keys += ["per-node-custom-implementation"] if system.custom_nodes else []
    if keys:
        message = "collectives that are execution traces can be played in traces only"
        raise InputError.at(system.at(keys[0]), message, expected="a Chakra trace as the workload, or a schedule")


def _run(case: _Case, ranks: Sequence[Sequence[int]]) -> Timeline:
    env, events = simpy.Environment(), EventBuffer()
    profile, settings, system = case.profile, case.settings, case.system
    transport = make_transport(env, ranks, case)
    gates = make_gates(env, ranks, case, transport)
    names = [events.name(layer.name) for layer in case.workload.layers]
    requests = _requests(case, names)
    steps = () if case.pipeline else loops.get(case.workload.loop).steps(case.workload)
    compute_times = _ComputeTimes(case)
    precedence = _precedence(case, transport)
    make = _stage_npus(case, case.pipeline, env, ranks, events, transport, requests) if case.pipeline else Npu
    npus: list[Npu] = []
    schedulers = []
    for npu_class, members in enumerate(ranks):
        program = LoopProgram(
            steps, compute_times.of(int(members[0])), requests, names, settings.iterations, profile.step_ns,
            profile.first_layer_tail_only,
        )  # fmt: skip
        phases = make_phases(int(members[0]), case)
        scheduler = Scheduler(env, npu_class, phases, transport, events, gates, precedence)
        schedulers.append(scheduler)
        npus.append(make(program, scheduler, Priorities(_order(system))))
    for npu in npus:
        env.process(npu.run())
    play(env)
    stuck = [f"NPU {format_ranks(ranks[npu.npu_class])} waits for {npu.waits_for}" for npu in npus if npu.finish_ns < 0]
    if stuck:
        raise deadlock(stuck, schedulers, ranks, events.table().names, gang=profile.gang)
    return _timeline(case, ranks, npus, events, transport)


def _precedence(case: _Case, transport: Wired) -> Precedence | None:
    """Who acts first, for the profile and the policy that ask."""
    asked = case.profile.late_clearing and case.system.inter_dimension_scheduling in THEMIS
    if not asked or not isinstance(transport, Solved | Played):
        return None
    topology = case.topology
    return Precedence(topology.npus, transport.plans, case.profile.delay(topology), case.settings.queues_per_dim)


def _stage_npus(
    case: _Case,
    pipeline: Pipeline,
    env: simpy.Environment,
    ranks: Sequence[Sequence[int]],
    events: EventBuffer,
    transport: Wired,
    requests: Mapping[Ref, Request],
) -> Callable[[LoopProgram, Scheduler, Priorities], Npu]:
    """Makes the processes of a pipeline's stages in place of plain ones."""
    from simcore.engine.stages import stage_programs, stateless
    from simcore.system.pipeline_npu import Handovers, PipelineNpu

    programs = stage_programs(case.workload, pipeline, events)
    width = case.topology.npus // case.stages
    handovers = Handovers(
        env,
        ranks,
        transport.carry,
        events,
        dims=[dim.npus for dim in case.topology.dims],
        width=width,
        size_bytes=case.profile.scale(case.workload.pipeline_bytes, case.settings.comm_scale),
        rendezvous=case.settings.rendezvous,
    )
    steady = stateless(case.placement, case.system, case.settings.queues_per_dim) and not case.settings.noise.compute
    remembers = steady and isinstance(transport, Shared) and transport.keeps_apart(_inside(programs, requests))

    def make(program: LoopProgram, scheduler: Scheduler, priorities: Priorities) -> Npu:
        stage = programs[int(ranks[scheduler.npu_class][0]) // width]
        played = transport.played(scheduler.npu_class) if remembers and isinstance(transport, Shared) else []
        return PipelineNpu(program, scheduler, priorities, stage, handovers, remembers=remembers, played=played)

    return make


def _inside(programs: Sequence[StageProgram], requests: Mapping[Ref, Request]) -> set[GroupDim]:
    """The groups in which collectives inside of cells are."""
    cells = {cell.content: cell for program in programs for cell in program.cells}
    refs = {step.issue for cell in cells.values() for step in cell.steps if step.issue}
    return {lane.dim for ref in refs if ref in requests for lane in requests[ref].lanes}


def _order(system: SystemConfig) -> Order:
    """Which of several waiting collectives goes first."""
    if system.scheduling_policy not in Order.__members__:
        key = "scheduling-policy"
        message = f"{system.scheduling_policy} takes priorities from execution traces; a text workload has none"
        raise InputError.at(system.at(key), message, expected="LIFO or FIFO", found=system.scheduling_policy)
    return Order[system.scheduling_policy]


class _ComputeTimes:
    """Compute times of all NPUs by (phase, layer): scaled; a straggler's and noisy ones rounded to nanoseconds."""

    def __init__(self, case: _Case):
        self._stragglers, self._noise = case.settings.stragglers, case.settings.noise
        self._known: dict[float, tuple[Mapping[tuple[PhaseName, int], int]]] = {}
        self._iterations, scale = case.settings.iterations, case.settings.compute_scale
        self._plain = {
            (name, index): case.profile.scale(layer.phase(name).compute_ns, scale)
            for index, layer in enumerate(case.workload.layers)
            for name in PHASES
        }

    def of(self, npu: int) -> Sequence[Mapping[tuple[PhaseName, int], int]]:
        """One entry for every iteration, or one for all; NPUs that are equally fast share it."""
        factor = self._stragglers.get(npu, 1.0)
        if self._noise.compute:
            return [self._noisy(npu, factor, iteration) for iteration in range(self._iterations)]
        if factor not in self._known:
            self._known[factor] = ({place: round(time_ns * factor) for place, time_ns in self._plain.items()},)
        return self._known[factor]

    def _noisy(self, npu: int, factor: float, iteration: int) -> Mapping[tuple[PhaseName, int], int]:
        phases = [PHASES.index(name) for name, _ in self._plain]
        drawn = self._noise.compute_factors(npu, iteration, phases, [layer for _, layer in self._plain]).tolist()
        items = zip(self._plain.items(), drawn, strict=True)
        return {place: round(time_ns * factor * noise) for (place, time_ns), noise in items}


def _requests(case: _Case, names: Sequence[int]) -> dict[Ref, Request]:
    """What every column's collective sends; columns without one are left out."""
    found = {}
    lanes_of = cache(case.placement.lanes_of)
    for index, layer in enumerate(case.workload.layers):
        for name in PHASES:
            phase = layer.phase(name)
            if phase.collective is None:
                continue
            from_header = case.profile.pipelines
            group = column_group(case.workload, layer, index, name, phase.group, from_header=from_header)
            lanes = lanes_of(phase.collective, group)
            size_bytes = case.profile.scale(phase.size_bytes, case.settings.comm_scale)
            if phase.collective == CollectiveKind.ALL_GATHER and _gives_totals(case):
                size_bytes //= prod(lane.dim.size for lane in lanes)
            position = PHASES.index(name)
            found[Ref(name, index)] = Request(
                phase.collective, size_bytes, lanes if size_bytes else (), 0, layer.update_ns, index, position,
                name=names[index],
            )  # fmt: skip
    return found


def _used(workload: Workload, placement: Placement) -> Placement:
    """The placement with the lanes of those collectives only that the workload has: no other can meet or differ."""
    kinds = {layer.phase(name).collective for layer in workload.layers for name in PHASES}
    return replace(placement, lanes={kind: lanes for kind, lanes in placement.lanes.items() if kind in kinds})


def _gives_totals(case: _Case) -> bool:
    """Whether all-gather sizes are what all ranks have together: SimAI's files, read as SimAI does."""
    return case.profile.total_all_gather and case.workload.dialect == "simai"


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
        asked=asked,
        pipeline=_stages(case, case.pipeline, ranks, npus) if case.pipeline else None,
        notes=(*notes_of(transport), *(case.pipeline.warnings if case.pipeline else ())),
    )


def _stages(case: _Case, pipeline: Pipeline, ranks: Sequence[Sequence[int]], npus: Sequence[Npu]) -> PipelineRun:
    """What the stages of a pipeline did."""
    from simcore.engine.stages import pipeline_run
    from simcore.system.pipeline_npu import PipelineNpu

    stages = [npu for npu in npus if isinstance(npu, PipelineNpu)]
    return pipeline_run(pipeline, stages, _first_classes(case, ranks))


def _first_classes(case: _Case, ranks: Sequence[Sequence[int]]) -> list[int]:
    """The class of the first NPU of every stage."""
    width = case.topology.npus // case.stages
    first: list[int] = class_of(ranks)[::width].tolist()
    return first
