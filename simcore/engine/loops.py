"""Text workloads made ready to run: training loops, and pipelines of stages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.engine.settings import Settings
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.profiles import Profile
from simcore.system.chunks.apart import Apart
from simcore.system.chunks.cut import in_trees
from simcore.system.chunks.precedence import Precedence
from simcore.system.chunks.scheduler import Gate, LocalGate, Scheduler
from simcore.system.chunks.turns import InTurn
from simcore.system.config import SystemConfig
from simcore.system.groups import class_of
from simcore.system.messages.point_to_point import Handovers
from simcore.system.npus.npu import PHASES, Cell, Known, Npu, Priorities, Program
from simcore.system.streams import Lane, Request
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, PipelineRun, Timeline
from simcore.units import format_ranks
from simcore.workload.loops import Order, Ref, Span, loops
from simcore.workload.loops.step import column_group
from simcore.workload.model import CollectiveKind, Group, Phase, PhaseName, Workload

if TYPE_CHECKING:  # pipelines are imported where there are some
    from simcore.workload.loops.pipeline import Passage, Pipeline

Column = tuple[int, PhaseName, Phase, CollectiveKind, Group | Span]
"""A row's phase that has a collective, and what that spans."""


class LoopCase:
    """A text workload: its NPUs play the steps of a loop, or the cells of their stage of a pipeline."""

    def __init__(self, workload: Workload, setup: Setup):
        """InputError when the workload does not fit the machine."""
        _refuse_custom(setup.system)
        self._workload, self._columns = workload, list(_columns(workload, setup.profile))
        self._pipeline = _pipeline(workload, setup.profile, setup.settings)
        stages = self._pipeline.schedule.stages if self._pipeline else 1
        self.setup = replace(setup, lanes=_used(self._columns, setup), stages=stages)
        if self._pipeline:
            _check_stages(workload, self.setup)
        self._width = setup.topology.npus // stages

    @property
    def machine(self) -> Setup:
        """The setup."""
        return self.setup

    def programs(self) -> NDArray[np.int64]:
        """Which program every NPU runs: that of its stage."""
        return np.arange(self.setup.topology.npus) // self._width

    def npus(
        self, ranks: Sequence[Sequence[int]], transport: Transport, schedulers: Sequence[Scheduler]
    ) -> Sequence[Npu]:
        """The NPUs of every class."""
        setup, workload, events = self.setup, self._workload, schedulers[0].events
        names = [events.name(layer.name) for layer in workload.layers]
        requests, times = self._requests(names), _ComputeTimes(workload, setup)
        legs: Known | None = {} if _steady(setup) else None
        handovers = self._handovers(ranks, transport, schedulers[0]) if self._pipeline else None
        cells = _stage_cells(workload, self._pipeline, events) if self._pipeline else self._cells(times.plain, requests)
        rules = setup.settings.iterations, setup.profile.step_ns, setup.profile.first_layer_tail_only
        self._ranks, self._npus, order = ranks, list[Npu](), _order(setup.system)
        for scheduler, members in zip(schedulers, ranks, strict=True):
            npu = int(members[0])
            program = Program(cells[npu // self._width], times.of(npu), requests, names, *rules)
            self._npus.append(Npu(program, scheduler, Priorities(order), legs, handovers))
        return self._npus

    def _cells(self, plain: _Times, requests: Mapping[Ref, Request]) -> list[list[Cell]]:
        """What the NPUs of the only stage play: an iteration is a cell.

        Steps that neither compute nor send nor wait are left out where they cost nothing; the last ends an iteration.
        """
        steps, sent = loops.get(self._workload.loop).steps(self._workload), requests.keys()
        if not self.setup.profile.step_ns:
            steps = [
                step
                for step in steps
                if (step.computes and plain[step.phase, step.layer])
                or not sent.isdisjoint(filter(None, (step.issue, step.before, step.after)))
                or step is steps[-1]
            ]
        return [[Cell(steps, np.arange(len(self._workload.layers)))] if steps else []]

    def _handovers(self, ranks: Sequence[Sequence[int]], transport: Transport, some: Scheduler) -> Handovers:
        settings, sizes = self.setup.settings, [dim.npus for dim in self.setup.topology.dims]
        size_bytes = self.setup.profile.scale(self._workload.pipeline_bytes, settings.comm_scale)
        ways = ranks, sizes, self._width
        return Handovers(some.env, some.events, transport.carry, *ways, size_bytes, rendezvous=settings.rendezvous)

    def _requests(self, names: Sequence[int]) -> dict[Ref, Request]:
        """What every column's collective sends; columns without one are left out."""
        found, setup, layers = {}, self.setup, self._workload.layers
        lanes_of = cache(setup.lanes_of)
        # All-gather sizes are what all ranks have together: SimAI's files, read as SimAI does.
        totals = setup.profile.total_all_gather and self._workload.dialect == "simai"
        for index, name, phase, kind, group in self._columns:
            lanes = lanes_of(kind, group)
            size_bytes = setup.profile.scale(phase.size_bytes, setup.settings.comm_scale)
            if kind == CollectiveKind.ALL_GATHER and totals:
                size_bytes //= prod(lane.dim.size for lane in lanes)
            found[Ref(name, index)] = Request(
                kind, size_bytes, lanes if size_bytes else (), 0, layers[index].update_ns, index, PHASES.index(name),
                name=names[index],
            )  # fmt: skip
        return found

    def in_turn(self, transport: Transport, gate: Gate) -> InTurn | None:
        """Who acts first, for the profile that asks; it knows NPUs that are all alike, messages that never meet."""
        setup, topology = self.setup, self.setup.topology
        differ = setup.settings.stragglers or setup.settings.noise.compute
        if not setup.profile.in_turn or setup.profile.shared_links or differ or not isinstance(gate, LocalGate):
            return None
        if isinstance(transport, Apart):  # which knows it
            return None
        precedence = Precedence(topology.npus, transport.plans, setup.profile.delay(topology))
        return InTurn(precedence, gate.either_way, gate.crowded)

    def stuck(self) -> list[str]:
        """Who did not finish, and what it waits for."""
        late = [(self._ranks[npu.npu_class], npu.waits_for) for npu in self._npus if npu.finish_ns < 0]
        words = {True: ("NPUs", "wait"), False: ("NPU", "waits")}
        told = [(*words[len(same) > 1], format_ranks(same), what) for same, what in late]
        return [f"{who} {same} {waits} for {what}" for who, waits, same, what in told]

    def told(self, played: Timeline) -> Timeline:
        """The timeline with what only the workload knows."""
        layers, pipeline = self._workload.layers, self._pipeline
        phases = [zip(map(str, PHASES), layer.phases, strict=True) for layer in layers]
        return replace(
            played,
            iterations=tuple(self._npus[0].iterations),
            layers=tuple(layer.name for layer in layers),
            asked=[{name: (each.collective, each.size_bytes) for name, each in own} for own in phases],
            pipeline=self._pipeline_run(pipeline) if pipeline else None,
            notes=(*played.notes, *self.setup.unnamed(self._spans()), *(pipeline.warnings if pipeline else ())),
        )

    def _spans(self) -> Iterator[tuple[CollectiveKind, frozenset[int]]]:
        """What kinds of collectives send something, and which dimensions they span."""
        for _, _, phase, kind, group in self._columns:
            if phase.size_bytes:
                yield kind, self.setup.groups[group]

    def _pipeline_run(self, pipeline: Pipeline) -> PipelineRun:
        """What the report says about the pipeline."""
        schedule, first = pipeline.schedule, class_of(self._ranks)[:: self._width].tolist()
        cells: list[tuple[int, str, int, int, int, int]] = []
        ends: list[tuple[int, str, int, int, int, int]] = []
        for stage, npu_class in enumerate(first):
            own = []
            for cell, *times_ns in self._npus[npu_class].played:
                if cell.passage:
                    at = cell.passage.cell
                    cells.append((stage, at.kind, at.micro_batch, at.chunk, *times_ns))
                else:
                    own.append(times_ns)
            both = enumerate(zip(own[::2], own[1::2], strict=True))  # what reduces, and what needs its results
            ends += [(stage, "E", number, 0, begin, end) for number, ((begin, _), (_, end)) in both if end > begin]
        sizes = schedule.stages, schedule.micro_batches, schedule.chunks
        return PipelineRun(schedule.name, *sizes, tuple(first), (*cells, *ends))


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


def _steady(setup: Setup) -> bool:
    """Whether a collective is sent the same way each time, and computing takes as long: nothing goes in turns."""
    trees = any(map(in_trees, chain.from_iterable(setup.lanes.values())))
    in_order = setup.settings.queues_per_dim == 1 and setup.system.inter_dimension_scheduling == "ascending"
    return in_order and not (trees or setup.settings.noise.compute or setup.profile.step_ns)


def _order(system: SystemConfig) -> Order:
    """Which of several waiting collectives goes first."""
    if system.scheduling_policy not in Order.__members__:
        key = "scheduling-policy"
        message = f"{system.scheduling_policy} takes priorities from execution traces; a text workload has none"
        raise InputError.at(system.at(key), message, expected="LIFO or FIFO", found=system.scheduling_policy)
    return Order[system.scheduling_policy]


_Times = Mapping[tuple[PhaseName, int], int]


class _ComputeTimes:
    """Compute times of all NPUs by (phase, layer): scaled; a straggler's and noisy ones rounded to nanoseconds."""

    def __init__(self, workload: Workload, setup: Setup):
        self._settings, scale = setup.settings, cache(setup.profile.scale)
        self.plain = {
            (name, index): scale(phase.compute_ns, setup.settings.compute_scale)
            for index, layer in enumerate(workload.layers)
            for name, phase in zip(PHASES, layer.phases, strict=True)
        }
        self._known: dict[float, tuple[_Times]] = {1.0: (self.plain,)}

    def of(self, npu: int) -> Sequence[_Times]:
        """One entry for every iteration, or one for all; NPUs that are equally fast share it."""
        factor = self._settings.stragglers.get(npu, 1.0)
        if self._settings.noise.compute:
            return [self._noisy(npu, factor, iteration) for iteration in range(self._settings.iterations)]
        if factor not in self._known:
            self._known[factor] = ({place: round(time_ns * factor) for place, time_ns in self.plain.items()},)
        return self._known[factor]

    def _noisy(self, npu: int, factor: float, iteration: int) -> _Times:
        phases, layers = [PHASES.index(name) for name, _ in self.plain], [layer for _, layer in self.plain]
        drawn = self._settings.noise.compute_factors(npu, iteration, phases, layers).tolist()
        items = zip(self.plain.items(), drawn, strict=True)
        return {place: round(time_ns * factor * noise) for (place, time_ns), noise in items}


def _columns(workload: Workload, profile: Profile) -> Iterator[Column]:
    """The columns that have a collective."""
    group_of = cache(partial(column_group, workload, from_header=profile.pipelines))
    for index, layer in enumerate(workload.layers):
        for name, phase in zip(PHASES, layer.phases, strict=True):
            if phase.collective is not None:
                yield index, name, phase, phase.collective, group_of(layer.loop, index == 0, name, phase.group)


def _used(columns: Sequence[Column], setup: Setup) -> dict[CollectiveKind, tuple[Lane, ...]]:
    """Only the lanes that the workload's collectives take: no other can meet or differ."""
    used: dict[CollectiveKind, frozenset[int]] = {}
    for *_, kind, group in columns:  # which collective comes first, no hash decides
        used[kind] = used.get(kind, frozenset()) | setup.groups[group]
    return {
        kind: tuple(lane for lane in setup.lanes[kind] if lane.position in own or lane.algorithm.whole_machine)
        for kind, own in used.items()
    }


def _check_stages(workload: Workload, setup: Setup) -> None:
    """InputError when the stages are not equal parts of the machine, or some algorithm spans all of it."""
    from simcore.workload.loops.pipeline import check_stages

    check_stages(workload, setup.topology.npus)
    algorithms = (lane.algorithm for lane in chain.from_iterable(setup.lanes.values()))
    across = next((each for each in algorithms if each.whole_machine), None)
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
