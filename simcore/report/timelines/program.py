"""What an NPU of a pipelined run did, as a program: kernels in the order of launch, and what each waited for.

The schedule and the rows say what was to be done in which order, the timeline when it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from simcore.errors import InputError
from simcore.report.model import Report
from simcore.timeline.events import SAID, EventKind, EventTable, Timeline
from simcore.workload.loops import Ref, Span, Step
from simcore.workload.loops.pipeline import Passage, Pipeline, Transfer, end_steps, pipeline_of, steps_of
from simcore.workload.loops.step import column_group, group_axes
from simcore.workload.model import Group, PhaseName, Workload

COMPUTE = "compute"  # the stream of computation; others are named by their group or pair of ranks
PHASES = list(PhaseName)
OF_LAYER = re.compile(r"layer_\d+")  # a row that says so itself, as those of a step that a replay compiled
PASSES = {"F": "forward", "B": "backward", "W": "weight gradient"}
OWN_GROUP = {Span.MODEL: Group.TP, Span.DATA: Group.DP}

Times = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Said:
    """What a communication kernel tells of itself; `source` and `destination` of a transfer, else -1."""

    operation: str
    group: Group
    ranks: tuple[int, ...]
    size_bytes: int
    source: int = -1
    destination: int = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel; `ranges` are the names of what it is part of, `waits` positions of kernels on other streams."""

    name: str
    stream: str
    start_ns: int
    end_ns: int
    ranges: tuple[str, ...]
    waits: tuple[int, ...]
    said: Said | None = None


Iterations = list[tuple[Times, tuple[Kernel, ...]]]  # when each of a rank began and ended, and its kernels


def programs(report: Report) -> Iterator[tuple[int, int, Iterations]]:
    """Every class of NPUs, its first rank and what that did; InputError where no text workload ran in stages."""
    workload, run = report.workload, report.timeline.pipeline
    if workload is None or run is None:
        raise InputError.at(
            "--timeline",
            "a trace of ranks needs to know what every NPU had to do, in which order",
            expected="a run of a text workload whose header has pp: 2 or more, in profile native",
            found="a run without pipeline stages" if workload else "a run without a text workload",
        )
    pipeline = pipeline_of(workload, run.schedule)
    ranges = _ranges(workload, pipeline)
    width = report.timeline.npus // run.stages
    for npu_class, members in enumerate(report.timeline.ranks):
        rank = int(members[0])
        yield npu_class, rank, _Rank(report.timeline, workload, pipeline, ranges, npu_class, rank, width).iterations()


def _ranges(workload: Workload, pipeline: Pipeline) -> dict[tuple[int, int], str]:
    """What each (stage, row) of a micro-batch belongs to: `layer N`, or its own name where it is in no layer.

    Where no row says its layer, one begins where the first of the most frequent rows does; what only follows the last
    one is in none.
    """
    held = [
        (pipeline.schedule.part(stage, passage.cell.chunk), stage, passage.rows)
        for stage, passages in enumerate(pipeline.stages)
        for passage in passages
        if passage.cell.kind == "F"
    ]
    model = sorted({part: rows for part, _, rows in held}.items())
    titles = dict(_titles([[workload.layers[row].name for row in rows] for _, rows in model]))
    return {(stage, row): titles[part, at] for part, stage, rows in held for at, row in enumerate(rows)}


def _titles(parts: Sequence[Sequence[str]]) -> Iterator[tuple[tuple[int, int], str]]:
    """((part, position), title) of every row of the model."""
    if any(map(OF_LAYER.fullmatch, chain.from_iterable(parts))):
        for part, names in enumerate(parts):
            yield from (((part, at), name.replace("_", " ")) for at, name in enumerate(names))
        return
    counts = Counter(chain.from_iterable(parts))
    opening = max(counts, key=lambda name: counts[name])  # the first of those that occur most
    begins = [names.index(opening) if opening in names else len(names) for names in parts]
    last = max((at for at, name in enumerate(parts[-1]) if name == opening), default=0)
    ends = [*(len(names) for names in parts[:-1]), last]
    inside = {name for names, begin, end in zip(parts, begins, ends, strict=True) for name in names[begin:end]}
    number = -1
    for part, names in enumerate(parts):
        within = False
        for at, name in enumerate(names):
            number += name == opening
            within = name == opening or (within and name in inside)
            yield (part, at), f"layer {number}" if within else name


@dataclass(slots=True)
class _Rank:
    """Walks through the steps of a rank, as `Npu` did, and finds the kernel of each."""

    timeline: Timeline
    workload: Workload
    pipeline: Pipeline
    ranges: dict[tuple[int, int], str]
    npu_class: int
    rank: int
    width: int
    kernels: list[Kernel] = field(default_factory=list)
    times: dict[tuple[int, ...], Times] = field(default_factory=dict)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    messages: dict[tuple[int, int, str], Times] = field(default_factory=dict)
    inbox: dict[int, list[tuple[int, Times]]] = field(default_factory=dict)  # by stage, in the order of sending
    received: dict[int, int] = field(default_factory=dict)  # tag -> kernel, posted and not yet awaited
    pending: dict[Ref, int] = field(default_factory=dict)
    awaited: dict[int, None] = field(default_factory=dict)  # what the compute stream was told to wait for
    computed: int = -1
    iteration: int = 0
    begin_ns: int = 0
    streams: dict[str, list[int]] = field(default_factory=dict)  # name -> when its lanes are free

    @property
    def stage(self) -> int:
        """The stage of the rank."""
        return self.rank // self.width

    def iterations(self) -> Iterations:
        """All iterations; one ends when all that its stage waits for is over."""
        events = self.timeline.events.where(self.timeline.events.npu_class == self.npu_class)
        self._read(events)
        own = np.isin(events.kind, (EventKind.COMPUTE, EventKind.WAIT, EventKind.COLLECTIVE))
        made: Iterations = []
        for iteration in range(len(self.timeline.iterations)):
            end_ns = int(events.end_ns[own & (events.iteration <= iteration)].max(initial=self.begin_ns))
            self.iteration, self.kernels, self.awaited, self.computed = iteration, [], {}, -1
            self._iterate()
            made.append(((self.begin_ns, end_ns), tuple(self.kernels)))
            self.begin_ns = end_ns
            self.streams = {name: [max(free, end_ns) for free in lanes] for name, lanes in self.streams.items()}
        return made

    def _read(self, events: EventTable) -> None:
        for start, end, kind, name, layer, phase, size, iteration in events.rows("start_ns", "end_ns", *SAID):
            if kind in (EventKind.COMPUTE, EventKind.COLLECTIVE):
                self.times[kind, iteration, phase, layer] = start, end
                self.sizes[phase, layer] = max(size, self.sizes.get((phase, layer), 0))
            elif kind in (EventKind.SEND, EventKind.RECV):
                self.messages[kind, iteration, events.names[name]] = start, end

    def _iterate(self) -> None:
        plan, own = self.pipeline.schedule, self.pipeline.stages[self.stage]
        senders = {
            (stage, passage.target.tag): str(passage.cell)
            for stage, passages in enumerate(self.pipeline.stages)
            for passage in passages
            if passage.target
        }
        sources = [(passage.source.stage, passage.source.tag) for passage in own if passage.source]
        arrivals = [(self.messages[EventKind.RECV, self.iteration, senders[source]], source) for source in sources]
        self.inbox = {other: [] for other in range(plan.stages)}
        for times, (stage, tag) in sorted(arrivals):
            self.inbox[stage].append((tag, times))
        for passage in own:
            self._cell(passage, steps_of(passage, splits=plan.splits_backward))
        reducing, closing = end_steps(*self.pipeline.ends[self.stage])
        self._play(reducing, ("end of step",))
        self.awaited |= dict.fromkeys(self.pending.values())
        self.pending.clear()
        self._play(closing, ("end of step",))

    def _cell(self, passage: Passage, steps: Iterable[Step]) -> None:
        cell = passage.cell
        outer = f"{PASSES[cell.kind]} micro-batch {cell.micro_batch}"
        outer = f"chunk {cell.chunk} {outer}" if cell.chunk else outer
        if passage.source:
            self._receive(passage.source, outer)
        self._play(steps, (outer,), PASSES[cell.kind])
        if passage.target:
            times = self.messages[EventKind.SEND, self.iteration, str(cell)]
            self._transfer("send", passage.target.stage, times, outer)

    def _receive(self, source: Transfer, outer: str) -> None:
        """Post the receives of a pair of ranks in the order in which the other one sends, up to the one needed."""
        waiting = self.inbox[source.stage]
        while source.tag not in self.received:
            tag, times = waiting.pop(0)
            self.received[tag] = self._transfer("recv", source.stage, times, outer)
        self.awaited[self.received.pop(source.tag)] = None

    def _play(self, steps: Iterable[Step], outer: tuple[str, ...], way: str = "") -> None:
        for step in steps:
            self._await(step.before)
            name, place = self.workload.layers[step.layer].name, (PHASES.index(step.phase), step.layer)
            part = self.ranges.get((self.stage, step.layer), "")
            ranges = (*outer, f"{part} {way}") if way else outer
            if way == PASSES["B"] and step.phase == PhaseName.WEIGHT_GRAD:
                ranges += (f"{part} {PASSES['W']}",)
            times = self.times.get((EventKind.COMPUTE, self.iteration, *place)) if step.computes else None
            if times:
                self._add(Kernel(f"{name} {step.phase}", COMPUTE, *times, ranges, ()))
            if step.issue:
                self._issue(step.issue, ranges)
                self._await(step.issue if step.blocking else None)
            self._await(step.after)

    def _await(self, ref: Ref | None) -> None:
        if ref in self.pending:
            self.awaited[self.pending.pop(ref)] = None

    def _issue(self, ref: Ref, ranges: tuple[str, ...]) -> None:
        times = self.times.get((EventKind.COLLECTIVE, self.iteration, PHASES.index(ref.phase), ref.layer))
        if times is None:
            return
        layer = self.workload.layers[ref.layer]
        phase = layer.phase(ref.phase)
        found = column_group(self.workload, layer.loop, ref.layer == 0, ref.phase, phase.group, from_header=True)
        size, stride = group_axes(self.workload.parallelism, self.timeline.npus)[found]
        group = OWN_GROUP[found] if isinstance(found, Span) else found
        first = self.rank - self.rank // stride % size * stride
        ranks = tuple(range(first, first + size * stride, stride))
        said = Said(str(phase.collective), group, ranks, self.sizes[PHASES.index(ref.phase), ref.layer])
        self.pending[ref] = self._add(Kernel(str(phase.collective), str(group), *times, ranges, (), said))

    def _transfer(self, operation: str, stage: int, times: Times, outer: str) -> int:
        other = self.rank % self.width + stage * self.width
        source, destination = (other, self.rank) if operation == "recv" else (self.rank, other)
        ranks = tuple(range(self.rank % self.width, self.timeline.npus, self.width))
        said = Said(operation, Group.PP, ranks, self.workload.pipeline_bytes, source, destination)
        return self._add(Kernel(operation, f"{source}>{destination}", *times, (outer,), (), said))

    def _add(self, kernel: Kernel) -> int:
        """Put a kernel on its stream, where it begins when the one before it is done; its position."""
        waits = tuple(self.awaited)
        if kernel.stream == COMPUTE:
            self.awaited, self.computed = {}, len(self.kernels)
        elif self.computed >= 0:
            waits = (*waits, self.computed)
        if kernel.said and kernel.said.operation == "recv":
            # One that the rank stood still for begins when it did; another one with its send, beside what runs.
            ready_ns = max((self.kernels[at].end_ns for at in waits), default=self.begin_ns)
            stood_still = ready_ns <= kernel.start_ns
            kernel, waits = (replace(kernel, start_ns=ready_ns), waits) if stood_still else (kernel, ())
        lanes = self.streams.setdefault(kernel.stream, [])
        lane = next((at for at, free in enumerate(lanes) if free <= kernel.end_ns), len(lanes))
        lanes += [self.begin_ns] * (lane == len(lanes))
        start_ns, lanes[lane] = max(kernel.start_ns, lanes[lane]), kernel.end_ns
        stream = kernel.stream if kernel.stream == COMPUTE else f"{kernel.stream} {lane}"
        self.kernels.append(replace(kernel, stream=stream, start_ns=start_ns, waits=waits))
        return len(self.kernels) - 1
