"""A whole replay: every step of every rank from its own graph, coupled across ranks where steps are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import prod
from operator import attrgetter

from msgspec import Struct

from simcore.progress import meter
from simcore.replay.run import NULL, UNAIDED, Changes, Timing, reordered, replay
from simcore.replay.steps.build import Prepared, build_step
from simcore.replay.steps.coupling import Estimate, clock_offsets_ns, estimated, match_collectives
from simcore.replay.steps.graph import StepGraph
from simcore.replay.whatif.changes import WhatIf
from simcore.replay.whatif.retiming import Retimed
from simcore.workload.kineto import KinetoTrace

MOST_ORDERS = 8  # how often streams are put into a new launch order before the recorded one is kept
BACKLOG_SHARE = 0.02  # a step whose GPU backlog changes by more than this share of it is not steady


class Period(Struct, frozen=True):
    """One predicted step: from mark to mark on the driving thread, and between latest ends on any thread or stream.

    They differ where nothing holds a host that is faster than its device: then the device falls further behind.
    """

    marks_ns: int
    device_ns: int


class StreamOrder(Enum):
    """Where the order of tasks on streams comes from when a change lets another thread launch first."""

    RECORDED = ""
    CHANGED = "other threads launch first than in the trace; the streams follow the launches"
    UNSETTLED = "threads that launch on one stream find no lasting order; the recorded one is kept"


Played = tuple[StepGraph, Timing]


class StepReplay:
    """One step of one rank, measured and predicted.

    `source` is the step of all ranks that recorded it, `number` this one's position among them, `prepared` its trace,
    `position` that of the step among the trace's windows, `tasks` the rows of what it launched. The span [`from_ns`,
    `to_ns`) of the timing is one predicted period. `device_span_ns` are the times at which the device was
    done with what had been launched by the step's start and by its end, which `device_ns` are apart: the measured time
    and what it fell behind. `measured_span_ns` is what the period is compared with: between marks, or the device's own
    where that is not `steady`. `baseline` is `period` without changes, `unaided` what dependencies alone give, `null`
    what the null model does; `predicted_ns` and `baseline_ns` are what they give for the time between marks.
    """

    def __init__(self, source: RecordedStep, number: int, order: StreamOrder, played: Played, others: Sequence[Played]):
        self.source, self.number, self.stream_order = source, number, order
        self.prepared, self.position, self.window = source.ranks[number], source.steps[number], source.windows[number]
        self.graph, self.timing = played
        self.tasks: list[int] = self.graph.ranks[number].tasks
        self.period, self.baseline, self.unaided, self.null = (
            source.period(*each, number) for each in (played, *others)
        )
        self.device_span_ns, marked_ns = source.device_spans[number], self.window.length_ns
        self.device_ns = self.device_span_ns[1] - self.device_span_ns[0]
        self.steady = abs(self.device_ns - marked_ns) <= BACKLOG_SHARE * marked_ns
        self.measured_span_ns = (self.window.start_ns, self.window.end_ns) if self.steady else self.device_span_ns
        self.measured_ns = self.measured_span_ns[1] - self.measured_span_ns[0]
        self.predicted_ns, self.baseline_ns = map(self.between_marks_ns, (self.period, self.baseline))
        self.error = self.predicted_ns / marked_ns - 1 if marked_ns else 0.0
        self.from_ns, self.to_ns = _span(*played, number)
        if self.timing.copies == 1 and not self.steady:
            self.from_ns += self.device_span_ns[0] - self.window.start_ns
            self.to_ns = max(int(self.timing.latest_ns(self.graph.rank == number)[0]), self.from_ns)

    def between_marks_ns(self, period: Period) -> int:
        """What a period gives for the time that was measured between marks.

        Where the device keeps up with its host its own period is that time, too: in steady copies, not in the only
        step of a trace.
        """
        return period.device_ns if self.steady and self.timing.copies > 1 else period.marks_ns

    def error_of(self, period: Period) -> float:
        """Predicted / measured - 1, of the device's own time where it falls behind its marks."""
        found = self.between_marks_ns(period) if self.steady else period.device_ns
        return found / self.measured_ns - 1 if self.measured_ns else 0.0


class Replay(Struct, frozen=True, eq=False):
    """All ranks and, parallel to them, their steps in order; `tokens` of a recorded step of the job, 0: not said."""

    ranks: tuple[Prepared, ...]
    steps: tuple[tuple[StepReplay, ...], ...]
    changes: Changes
    whats: tuple[WhatIf, ...]
    tokens: int = 0

    def batches(self, rank: int) -> float:
        """By how much a step's samples grow with the changes."""
        changed = (what for what in self.whats if isinstance(what, Retimed))
        return prod(what.batches(self.ranks[rank].view) for what in changed)

    def scored(self, rank: int) -> tuple[StepReplay, ...]:
        """All steps after the first; the only one."""
        return self.steps[rank][1:] or self.steps[rank]

    def by_length(self, rank: int) -> list[StepReplay]:
        """The scored steps, the shortest first."""
        return sorted(self.scored(rank), key=lambda step: (step.measured_ns, step.window.index))

    def typical(self, rank: int) -> StepReplay:
        """The scored step whose measured time is the median."""
        return self.by_length(rank)[(len(self.scored(rank)) - 1) // 2]


def replay_traces(traces: Sequence[KinetoTrace], changes: Changes, whats: Sequence[WhatIf] = ()) -> Replay:
    """Predict every step of every trace; traces are ranks of one job, each rank once. SimulationError when the traces
    contradict each other.
    """
    return replay_prepared([Prepared(trace) for trace in traces], changes, whats)


def replay_prepared(ranks: Sequence[Prepared], changes: Changes, whats: Sequence[WhatIf] = ()) -> Replay:
    """As `replay_traces`, for traces that have been looked through."""
    found: list[list[StepReplay]] = [[] for _ in ranks]
    indices = sorted({index for rank in ranks for index in rank.view.position_of})
    for index in meter().over(indices):
        members = [n for n, rank in enumerate(ranks) if index in rank.view.position_of]
        step = RecordedStep([ranks[number] for number in members], index, changes)
        for number, made in zip(members, step.replayed(whats), strict=True):
            found[number].append(made)
    in_order = (tuple(sorted(own, key=attrgetter("position"))) for own in found)
    return Replay(tuple(ranks), tuple(in_order), changes, tuple(whats))


class RecordedStep:
    """The same step of all ranks that recorded it: its graph, and how it plays with changes.

    Where ranks of a collective were not recorded, `estimate` chooses how much of a collective is transfer.
    """

    def __init__(
        self,
        ranks: Sequence[Prepared],
        index: int,
        changes: Changes,
        estimate: Callable[[Estimate], int] = attrgetter("likely_ns"),
    ):
        self.ranks, self.index, self.changes = tuple(ranks), index, changes
        self.views = [rank.view for rank in ranks]
        self.steps = tuple(view.position_of[index] for view in self.views)
        self.windows = [view.windows[step] for view, step in zip(self.views, self.steps, strict=True)]
        matches = match_collectives(self.views, self.steps) if len(ranks) > 1 else []
        found = [rank.transfers for rank in ranks]
        self.matches = [estimated(match, found, estimate) for match in matches]
        self.match_of = {(one.rank, one.task): match for match in self.matches for one in match.members}
        self.alone_ns = [
            {task: estimate(found) for task, found in rank.transfers.items() if (number, task) not in self.match_of}
            for number, rank in enumerate(ranks)
        ]
        self.graph = self._graph(changes)
        self.copies = 1 if all(len(view.windows) == 1 for view in self.views) else 0
        # When each device was done with what was launched by the start and by the end of the step.
        spans = zip(self.views, self.windows, strict=True)
        self.device_spans = [(view.done_ns(window.start_ns), view.done_ns(window.end_ns)) for view, window in spans]

    def _graph(self, changes: Changes) -> StepGraph:
        return build_step(self.ranks, self.steps, self.matches, coupled=changes.coupling, alone_ns=self.alone_ns)

    def played(self, graph: StepGraph, changes: Changes) -> Timing:
        """A graph of this step, replayed; a trace's only step once, from where it was recorded to begin."""
        offsets = clock_offsets_ns(self.views, self.matches)
        times = [
            view.trace.base_ns + window.start_ns - offset
            for view, window, offset in zip(self.views, self.windows, offsets, strict=True)
        ]  # on one clock, which starts with the earliest of them
        begins = {nodes.begin: time - min(times) for nodes, time in zip(graph.ranks, times, strict=True)}
        before: dict[int, int] = {}  # when streams were done with what came before the step: their last task's end
        for view, window, nodes in zip(self.views, self.windows, graph.ranks, strict=True) if self.copies else ():
            tasks = view.trace.tasks
            last = {int(tasks.lane[task]): node for task, node in zip(nodes.tasks, nodes.ends, strict=True)}
            for lane, node in last.items():
                rows = view.stream_tasks[lane]
                old = rows[view.launch_ns[rows] < window.start_ns]
                if len(old):
                    before[node] = begins[nodes.begin] + int(tasks.end_ns[old].max()) - window.start_ns
        return replay(graph, changes, begins_ns=begins, before_ns=before, copies=self.copies)

    def edited(self, whats: Sequence[WhatIf]) -> StepGraph:
        """The step's graph with changes."""
        graph = self.graph
        for what in whats:
            graph = what.edit(graph, self.views, self.steps)
        return graph

    def ordered(self, graph: StepGraph, changes: Changes) -> tuple[StepGraph, Timing, StreamOrder]:
        """A changed graph, replayed; launches at run time decide the order on streams, unless that never settles."""
        timing, order = self.played(graph, changes), StreamOrder.RECORDED
        first = graph, timing
        for _ in range(MOST_ORDERS):
            changed = reordered(graph, timing)
            if changed is None:
                return graph, timing, order
            graph, timing, order = changed, self.played(changed, changes), StreamOrder.CHANGED
        return *first, StreamOrder.UNSETTLED

    def device_times_ns(self, graph: StepGraph, changes: Changes) -> list[int]:
        """How long a changed graph takes on the device of each rank."""
        graph, timing, _ = self.ordered(graph, changes)
        return [self.period(graph, timing, number).device_ns for number in range(len(self.ranks))]

    def otherwise(self) -> list[RecordedStep]:
        """The step with the least and the most that collectives may transfer; nothing where that is the same."""
        bounds = attrgetter("least_ns"), attrgetter("most_ns")
        others = [RecordedStep(self.ranks, self.index, self.changes, estimate) for estimate in bounds]
        return [other for other in others if not other.graph.same(self.graph)]

    def transfer_ns(self, number: int, task: int) -> int:
        """How long a communication kernel of a rank transfers, without waiting."""
        match, length_ns = self.match_of.get((number, task)), self.views[number].trace.tasks.length_ns(task)
        return match.intrinsic_ns if match else self.alone_ns[number].get(task, length_ns)

    def period(self, graph: StepGraph, timing: Timing, number: int) -> Period:
        """Both measures of one rank's step; without what the device had left to do before a trace's only one."""
        start, end = _span(graph, timing, number)
        marks = timing.end_ns[:, graph.ranks[number].end]
        if timing.copies > 1:
            return Period(int(marks[-1] - marks[-2]), end - start)
        backlog_ns = self.device_spans[number][0] - self.windows[number].start_ns
        latest = int(timing.latest_ns(graph.rank == number)[0])
        return Period(end - start, max(latest - start - backlog_ns, 0))

    def reference(self, changes: Changes) -> tuple[StepGraph, Timing]:
        """The recorded step with other dependencies left out."""
        graph = self.graph if changes.coupling == self.changes.coupling or not self.matches else self._graph(changes)
        return graph, self.played(graph, changes)

    def replayed(self, whats: Sequence[WhatIf]) -> list[StepReplay]:
        """The step of each rank, with changes and without."""
        recorded = self.graph, self.played(self.graph, self.changes)
        order, edited = StreamOrder.RECORDED, self.edited(whats)
        graph, timing = recorded
        if edited is not self.graph:
            graph, timing, order = self.ordered(edited, self.changes)
        references = (recorded if changes == self.changes else self.reference(changes) for changes in (UNAIDED, NULL))
        others = (recorded, *references)
        return [StepReplay(self, number, order, (graph, timing), others) for number in range(len(self.ranks))]


def _span(graph: StepGraph, timing: Timing, number: int) -> tuple[int, int]:
    """The span of one predicted step: of a single copy from mark to mark, else between the last two copies' latest ends
    on any thread or stream.
    """
    nodes = graph.ranks[number]
    if timing.copies == 1:
        return int(timing.start_ns[0, nodes.begin]), int(timing.end_ns[0, nodes.end])
    before, last = timing.latest_ns(graph.rank == number)[-2:].tolist()
    return before, last
