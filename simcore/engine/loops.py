"""Text workloads made ready to run: training loops, and pipelines of stages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.engine.folding import kinds_of
from simcore.engine.settings import Settings
from simcore.engine.setup import Placement, Scene, Setup
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.system.chunks.cut import THEMIS, Precedence, in_trees
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.config import SystemConfig
from simcore.system.groups import class_of
from simcore.system.messages.point_to_point import Handovers
from simcore.system.npus.npu import PHASES, Cell, Known, Npu, Priorities, Program
from simcore.system.streams import Request
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, PipelineRun, Timeline
from simcore.units import format_ranks
from simcore.workload.loops import Order, Ref, Span, Step, loops
from simcore.workload.loops.step import column_group
from simcore.workload.model import CollectiveKind, Group, Phase, PhaseName, Workload

if TYPE_CHECKING:  # pipelines are imported where there are some
    from simcore.workload.loops.pipeline import Passage, Pipeline

Column = tuple[int, PhaseName, Phase, CollectiveKind, Group | Span]
"""A row's phase that has a collective, and what that spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCase(Setup):
    """A text workload, and its pipeline where it has one."""

    workload: Workload
    columns: Sequence[Column]
    pipeline: Pipeline | None = None

    @classmethod
    def of(cls, workload: Workload, setup: Setup) -> LoopCase:
        """InputError when the workload does not fit the machine."""
        _refuse_custom(setup.system)
        columns = list(_columns(workload, setup.profile))
        placement = _used(columns, setup.placement)
        pipeline = _pipeline(workload, setup.profile, setup.settings)
        if pipeline:
            _check_stages(workload, setup.topology, placement)
        stages = pipeline.schedule.stages if pipeline else 1
        return cls(
            setup.topology, setup.system, setup.profile, setup.settings, placement, stages,
            workload=workload, columns=columns, pipeline=pipeline,
        )  # fmt: skip

    def kinds(self) -> NDArray[np.int64]:
        """A number for what every NPU does, equal where it is the same: stragglers and stages differ."""
        kinds = kinds_of(self.settings.stragglers, self.topology.npus).reshape(self.stages, -1)
        found: NDArray[np.int64] = kinds + np.arange(self.stages)[:, None] * (kinds.max() + 1)
        return found.reshape(-1)

    def players(self, scene: Scene) -> _LoopPlayers:
        """The NPUs of a run."""
        return _LoopPlayers(self, scene)


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


class _LoopPlayers:
    """NPUs that play the steps of a loop, or the cells of their stage."""

    def __init__(self, case: LoopCase, scene: Scene):
        self._case, self._scene = case, scene
        self._names = [scene.events.name(layer.name) for layer in case.workload.layers]
        self._requests = _requests(case, self._names)
        self._compute_times = _ComputeTimes(case)
        self.precedence = _precedence(case, scene.transport)
        self._legs: Known | None = {} if _steady(case) else None
        self._handovers: Handovers | None = None
        self._cells = self._in_stages(case.pipeline) if case.pipeline else self._in_loop()
        self._npus: list[Npu] = []

    def _in_loop(self) -> list[list[Cell]]:
        """What the NPUs of the only stage play: an iteration is a cell."""
        workload = self._case.workload
        steps = self._effective(loops.get(workload.loop).steps(workload))
        return [[Cell(steps, np.arange(len(workload.layers)))] if steps else []]

    def _in_stages(self, pipeline: Pipeline) -> list[list[Cell]]:
        """What the NPUs of every stage play; they hand over to each other."""
        case, scene = self._case, self._scene
        self._handovers = Handovers(
            scene.env,
            scene.ranks,
            scene.transport.carry,
            scene.events,
            dims=[dim.npus for dim in case.topology.dims],
            width=case.topology.npus // case.stages,
            size_bytes=case.profile.scale(case.workload.pipeline_bytes, case.settings.comm_scale),
            rendezvous=case.settings.rendezvous,
        )
        return _stage_cells(case.workload, pipeline, scene.events)

    def _effective(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Without steps that neither compute nor send nor wait, where they cost nothing; the last ends an iteration."""
        if self._case.profile.step_ns:
            return steps
        plain, sent = self._compute_times.plain, self._requests.keys()
        return [
            step
            for step in steps
            if (step.computes and plain[step.phase, step.layer])
            or not sent.isdisjoint(filter(None, (step.issue, step.before, step.after)))
            or step is steps[-1]
        ]

    def npu(self, scheduler: Scheduler) -> Npu:
        """The NPU of a class; they are made in the order of the classes."""
        profile, npu = self._case.profile, int(self._scene.ranks[scheduler.npu_class][0])
        program = Program(
            self._cells[npu * self._case.stages // self._case.topology.npus], self._compute_times.of(npu),
            self._requests, self._names, self._case.settings.iterations, profile.step_ns, profile.first_layer_tail_only,
        )  # fmt: skip
        priorities = Priorities(_order(self._case.system))
        self._npus.append(Npu(program, scheduler, priorities, self._legs, self._handovers))
        return self._npus[-1]

    def stuck(self) -> list[str]:
        """Who did not finish, and what it waits for."""
        ranks = self._scene.ranks
        late = [(ranks[npu.npu_class], npu.waits_for) for npu in self._npus if npu.finish_ns < 0]
        words = {True: ("NPUs", "wait"), False: ("NPU", "waits")}
        told = [(*words[len(same) > 1], format_ranks(same), what) for same, what in late]
        return [f"{who} {same} {waits} for {what}" for who, waits, same, what in told]

    def told(self, played: Timeline) -> Timeline:
        """The timeline with what only the workload knows."""
        layers, pipeline = self._case.workload.layers, self._case.pipeline
        phases = [zip(map(str, PHASES), layer.phases, strict=True) for layer in layers]
        return replace(
            played,
            iterations=tuple(self._npus[0].iterations),
            layers=tuple(layer.name for layer in layers),
            asked=[{name: (each.collective, each.size_bytes) for name, each in own} for own in phases],
            pipeline=self._pipeline_run(pipeline) if pipeline else None,
            notes=(*played.notes, *(pipeline.warnings if pipeline else ())),
        )

    def _pipeline_run(self, pipeline: Pipeline) -> PipelineRun:
        """What the report says about the pipeline."""
        schedule, width = pipeline.schedule, self._case.topology.npus // self._case.stages
        first = class_of(self._scene.ranks)[::width].tolist()
        cells: list[tuple[int, str, int, int, int, int]] = []
        for stage, npu_class in enumerate(first):
            for cell, start_ns, end_ns in self._npus[npu_class].played:
                if cell.passage:
                    own = cell.passage.cell
                    cells.append((stage, own.kind, own.micro_batch, own.chunk, start_ns, end_ns))
        for stage, npu_class in enumerate(first):
            ends = [times_ns for cell, *times_ns in self._npus[npu_class].played if not cell.passage]
            for index, ((start_ns, _), (_, end_ns)) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
                if end_ns > start_ns:
                    cells.append((stage, "E", index, 0, start_ns, end_ns))
        return PipelineRun(
            schedule.name, schedule.stages, schedule.micro_batches, schedule.chunks, tuple(first), tuple(cells)
        )


def _precedence(case: LoopCase, transport: Transport) -> Precedence | None:
    """Who acts first, for the profile and the policy that ask."""
    if not case.profile.late_clearing or case.system.inter_dimension_scheduling not in THEMIS:
        return None
    topology = case.topology
    return Precedence(topology.npus, transport.plans, case.profile.delay(topology), case.settings.queues_per_dim)


def _steady(case: LoopCase) -> bool:
    """Whether a collective is sent the same way each time, and computing takes as long: nothing goes in turns."""
    trees = any(map(in_trees, case.placement.every_lane))
    in_order = case.settings.queues_per_dim == 1 and case.system.inter_dimension_scheduling == "ascending"
    return in_order and not (trees or case.settings.noise.compute or case.profile.step_ns)


def _order(system: SystemConfig) -> Order:
    """Which of several waiting collectives goes first."""
    if system.scheduling_policy not in Order.__members__:
        key = "scheduling-policy"
        message = f"{system.scheduling_policy} takes priorities from execution traces; a text workload has none"
        raise InputError.at(system.at(key), message, expected="LIFO or FIFO", found=system.scheduling_policy)
    return Order[system.scheduling_policy]


class _ComputeTimes:
    """Compute times of all NPUs by (phase, layer): scaled; a straggler's and noisy ones rounded to nanoseconds."""

    def __init__(self, case: LoopCase):
        self._stragglers, self._noise = case.settings.stragglers, case.settings.noise
        self._iterations, scale = case.settings.iterations, cache(case.profile.scale)
        self.plain = {
            (name, index): scale(phase.compute_ns, case.settings.compute_scale)
            for index, layer in enumerate(case.workload.layers)
            for name, phase in zip(PHASES, layer.phases, strict=True)
        }
        self._known: dict[float, tuple[Mapping[tuple[PhaseName, int], int]]] = {1.0: (self.plain,)}

    def of(self, npu: int) -> Sequence[Mapping[tuple[PhaseName, int], int]]:
        """One entry for every iteration, or one for all; NPUs that are equally fast share it."""
        factor = self._stragglers.get(npu, 1.0)
        if self._noise.compute:
            return [self._noisy(npu, factor, iteration) for iteration in range(self._iterations)]
        if factor not in self._known:
            self._known[factor] = ({place: round(time_ns * factor) for place, time_ns in self.plain.items()},)
        return self._known[factor]

    def _noisy(self, npu: int, factor: float, iteration: int) -> Mapping[tuple[PhaseName, int], int]:
        phases = [PHASES.index(name) for name, _ in self.plain]
        drawn = self._noise.compute_factors(npu, iteration, phases, [layer for _, layer in self.plain]).tolist()
        items = zip(self.plain.items(), drawn, strict=True)
        return {place: round(time_ns * factor * noise) for (place, time_ns), noise in items}


def _requests(case: LoopCase, names: Sequence[int]) -> dict[Ref, Request]:
    """What every column's collective sends; columns without one are left out."""
    found = {}
    lanes_of, layers = cache(case.placement.lanes_of), case.workload.layers
    for index, name, phase, kind, group in case.columns:
        lanes = lanes_of(kind, group)
        size_bytes = case.profile.scale(phase.size_bytes, case.settings.comm_scale)
        if kind == CollectiveKind.ALL_GATHER and _gives_totals(case):
            size_bytes //= prod(lane.dim.size for lane in lanes)
        found[Ref(name, index)] = Request(
            kind, size_bytes, lanes if size_bytes else (), 0, layers[index].update_ns, index, PHASES.index(name),
            name=names[index],
        )  # fmt: skip
    return found


def _columns(workload: Workload, profile: Profile) -> Iterator[Column]:
    """The columns that have a collective."""
    group_of = cache(partial(column_group, workload, from_header=profile.pipelines))
    for index, layer in enumerate(workload.layers):
        for name, phase in zip(PHASES, layer.phases, strict=True):
            if phase.collective is not None:
                yield index, name, phase, phase.collective, group_of(layer.loop, index == 0, name, phase.group)


def _used(columns: Sequence[Column], placement: Placement) -> Placement:
    """The placement with the lanes only that the workload's collectives take: no other can meet or differ."""
    used: dict[CollectiveKind, frozenset[int]] = {}
    for kind, group in {(kind, group) for *_, kind, group in columns}:
        used[kind] = used.get(kind, frozenset()) | placement.groups[group]
    lanes = {
        kind: tuple(lane for lane in placement.lanes[kind] if lane.position in own or lane.algorithm.whole_machine)
        for kind, own in used.items()
    }
    return replace(placement, lanes=lanes)


def _gives_totals(case: LoopCase) -> bool:
    """Whether all-gather sizes are what all ranks have together: SimAI's files, read as SimAI does."""
    return case.profile.total_all_gather and case.workload.dialect == "simai"


def _check_stages(workload: Workload, topology: Topology, placement: Placement) -> None:
    """InputError when the stages are not equal parts of the machine, or some algorithm spans all of it."""
    sizes = workload.parallelism
    model = max(1, sizes.tp) * sizes.pp
    if topology.npus % model:
        raise InputError.at(
            workload.location,
            f"{sizes.pp} stages of groups of {max(1, sizes.tp)} do not fit the topology",
            expected=f"a number of NPUs that {model} divides",
            found=f"{topology.npus} NPUs",
            hint="change pp: or model_parallel_NPU_group: in the header, or the topology",
        )
    across = next((lane.algorithm for lane in placement.every_lane if lane.algorithm.whole_machine), None)
    if across:
        message = f"{across.name} spans the whole machine, a pipeline's collectives stay within a stage"
        raise InputError.at(across.location or "--system", message, expected="an algorithm for each dimension")


def _stage_cells(workload: Workload, pipeline: Pipeline, events: EventBuffer) -> list[list[Cell]]:
    """What every stage plays in an iteration: its cells, then what reduces and gathers, then what needs its results."""
    from simcore.workload.loops.pipeline import end_steps, steps_of

    splits = pipeline.schedule.splits_backward
    made = []
    for passages, (head, tail) in zip(pipeline.stages, pipeline.ends, strict=True):
        cells = [
            Cell(list(steps_of(each, splits=splits)), np.array(each.rows), _content(workload, each), name, each)
            for each, name in ((each, events.name(str(each.cell))) for each in passages)
        ]
        rows, (reducing, closing) = np.array(sorted(head + tail), np.int64), end_steps(head, tail)
        ends = Cell(reducing, rows, ("reducing", head, tail)), Cell(closing, rows, ("closing", head, tail), drains=True)
        made.append([*cells, *ends])
    return made


def _content(workload: Workload, passage: Passage) -> Hashable:
    """Equal for cells that do the same: equal phases of a file are one object."""
    layers = [workload.layers[row] for row in passage.rows]
    if passage.cell.kind == "F":
        return "F", tuple((id(layer.forward), layer.update_ns, layer.name) for layer in layers)
    each = ((id(layer.input_grad), id(layer.weight_grad), layer.update_ns, layer.name) for layer in layers)
    return passage.cell.kind, tuple(each)
