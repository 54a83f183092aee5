"""What a rank of a pipeline did in a step, by the names its program gave to ranges: layer by layer, pass by pass.

A range `layer N forward`, `layer N backward` or `layer N weight gradient` (in a backward, or apart) holds the launches
of one layer for one micro-batch; what else a stage runs has names of its own, `embedding forward` for instance. The
n-th range of a name is the n-th micro-batch. What is launched behind the last range ends the step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from simcore.errors import InputError
from simcore.replay.build import Prepared
from simcore.replay.device import SHORT_GAP_NS
from simcore.replay.session import StepReplay
from simcore.replay.views.workloads import collectives
from simcore.replay.whatif.degrees import roles
from simcore.replay.whatif.layers import NamedRange, model_order
from simcore.workload.kineto import Collective, TaskKind
from simcore.workload.model import CollectiveKind, Group

__all__ = ["NEVER", "Cells", "Operation", "read_cells"]

NEVER = 1 << 62
END = "", "", 0  # where launches are put that end the step
TRANSFER = re.compile(r"send|recv", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Operation:
    """Computation up to the next wait or collective, or a collective of `size_bytes`: a gathered total, or one input.

    `place` counts launches; the launch at `awaited` is the first that waits for the collective, NEVER if none does.
    """

    place: int
    compute_ns: int = 0
    weight: bool = False
    collective: CollectiveKind | None = None
    group: Group = Group.LOOP
    size_bytes: int = 0
    awaited: int = NEVER
    stream: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A rank's step: (part of the model, "forward" or "backward") -> operations of every micro-batch.

    `order` are the ranges as they came: (F, B or W, part, micro-batch). `sizes` are those of the groups met,
    `able` launches (place, stream) that could wait for something.
    """

    rank: int
    file: str
    passes: dict[tuple[str, str], list[list[Operation]]]
    end: list[Operation]
    order: list[tuple[str, str, int]]
    parts: tuple[str, ...]
    sizes: dict[Group, int]
    sent_bytes: frozenset[int]
    able: list[tuple[int, int]]

    def following(self, one: Operation, place: int) -> int:
        """The first launch behind `place` that would wait for a collective: on another stream, and no receive.

        Gradients that nothing waits for before the end of the step are waited for by all of that.
        """
        at = bisect_left(self.able, (place + 1, -1))
        found = next((where for where, stream in self.able[at:] if stream != one.stream), NEVER)
        return min(found, self.end[0].place - (one.group == Group.DP)) if self.end else found


def read_cells(prepared: Prepared, step: StepReplay, ranges: Sequence[NamedRange]) -> Cells:
    """The cells of one recorded step; InputError when communication does not say what it does."""
    return _Reader(prepared, step).cells(ranges)


@dataclass(slots=True)
class _Reader:
    """Reads one step of one rank; `tasks` are those it launched, in that order."""

    prepared: Prepared
    step: StepReplay
    tasks: list[int] = field(default_factory=list)
    waiters: dict[int, int] = field(default_factory=dict)
    sizes: dict[Group, int] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)

    def cells(self, ranges: Sequence[NamedRange]) -> Cells:
        """Everything, found range by range."""
        view = self.prepared.view
        own = set(np.flatnonzero(view.task_step == self.step.position).tolist())
        self.tasks = [task for task in view.launch_order.tolist() if task in own]
        self.waiters = self._waiters()
        held = self._owners(ranges)
        counts: dict[tuple[str, str], int] = {}
        for one in ranges:
            counts[one.part, one.way] = max(counts.get((one.part, one.way), 0), one.micro_batch + 1)
        passes = {
            part: [self._operations(held.get((*part, number), [])) for number in range(count)]
            for part, count in counts.items()
        }
        end = self._operations(held.get(END, []))
        order = [(one.kind, one.part, one.micro_batch) for one in ranges if one.kind]
        rank, file, model, sent = view.trace.rank, view.trace.file, model_order(ranges), frozenset(self.sent)
        return Cells(rank, file, passes, end, order, model, self.sizes, sent, self._able())

    def _able(self) -> list[tuple[int, int]]:
        """(place, stream) of launches that could wait for something: all but receives."""
        trace = self.prepared.view.trace
        lanes = trace.tasks.lane[self.tasks].tolist()
        said = [trace.collectives.get(task) for task in self.tasks]
        return [(at, lane) for at, lane in enumerate(lanes) if not (one := said[at]) or _operation(one) != "recv"]

    def _owners(self, ranges: Sequence[NamedRange]) -> dict[tuple[str, str, int], list[tuple[int, bool]]]:
        """(place, weight gradient) of launches by part, pass and micro-batch, or END.

        What is launched between ranges goes with the one before it.
        """
        view = self.prepared.view
        launch_ns, call = view.launch_ns[self.tasks], view.launch[self.tasks]
        owner = np.full(len(self.tasks), -1)
        lanes = np.where(call >= 0, view.trace.calls.lane[call], -1) if len(view.trace.calls) else owner
        for number, one in enumerate(ranges):
            first, last = np.searchsorted(launch_ns, (one.start_ns, one.end_ns))
            owner[first:last][lanes[first:last] == one.lane] = number
        inside = np.flatnonzero(owner >= 0)
        held: dict[tuple[str, str, int], list[tuple[int, bool]]] = {}
        closing: list[tuple[int, bool]] = []
        before = -1
        for place, number in enumerate(owner.tolist()):
            before = number if number >= 0 else before
            if not len(inside) or place > inside[-1]:
                held.setdefault(END, []).append((place, False))
            elif before < 0:
                closing.append((place, False))
            else:
                one = ranges[before]
                held.setdefault((one.part, one.way, one.micro_batch), []).append((place, one.weight))
        held.setdefault(END, []).extend(closing)
        return held

    def _waiters(self) -> dict[int, int]:
        """The first launch that waits for a task, or for a later one of its stream."""
        view, place = self.prepared.view, {task: at for at, task in enumerate(self.tasks)}
        waits = self.prepared.delays.waits
        first: dict[int, int] = {}
        for task in self.tasks:
            for wait in waits.get(task, ()):
                first[wait.source] = min(first.get(wait.source, NEVER), place[task])
        if not any(wait.recorded for some in waits.values() for wait in some):
            self._by_times(first)
        found, later = dict[int, int](), dict[int, int]()
        for task in reversed(self.tasks):
            lane = int(view.trace.tasks.lane[task])
            later[lane] = found[task] = min(first.get(task, NEVER), later.get(lane, NEVER))
        return found

    def _by_times(self, first: dict[int, int]) -> None:
        """Without recorded waits, what starts next and not before a collective's end has waited for it."""
        view = self.prepared.view
        start, end = view.trace.tasks.start_ns, view.trace.tasks.end_ns
        for place, task in enumerate(self.tasks[:-1]):
            if view.communication[task] and start[self.tasks[place + 1]] >= end[task]:
                first[task] = min(first.get(task, NEVER), place + 1)

    def _operations(self, launches: Iterable[tuple[int, bool]]) -> list[Operation]:
        """Computation between waits as one operation each, collectives as they came; transfers are the schedule's."""
        view, made = self.prepared.view, list[Operation]()
        tasks, awaiting = view.trace.tasks, set(self.waiters.values())
        known, until_ns = collectives(view.trace), 0
        for place, weight in launches:
            task = self.tasks[place]
            start, end = int(tasks.start_ns[task]), int(tasks.end_ns[task])
            if view.communication[task] and tasks.kind[task] == TaskKind.KERNEL:
                said = view.trace.collectives.get(task)
                if said is None or _operation(said) == "":
                    made.append(self._collective(place, task, known.get(task)))
                continue
            last = made[-1] if made else None
            gap = start - until_ns if last and start - until_ns <= SHORT_GAP_NS else 0
            if last and last.collective is None and last.weight == weight and place not in awaiting:
                more = max(end - max(start, until_ns), 0) + max(gap, 0)
                made[-1] = Operation(last.place, last.compute_ns + more, weight)
            else:
                made.append(Operation(place, end - start, weight))
            until_ns = max(until_ns, end)
        for task in (self.tasks[place] for place, _ in launches):
            said = view.trace.collectives.get(task)
            if said is not None and _operation(said) == "send":
                self.sent.add(said.size_bytes)
                self.sizes[Group.PP] = said.size
        return made

    def _collective(self, place: int, task: int, known: tuple[CollectiveKind, Collective] | None) -> Operation:
        trace = self.prepared.view.trace
        group = next(iter(roles(known[1].description)), None) if known else None
        if known is None or group is None:
            raise InputError.at(
                trace.file,
                f"a communication kernel does not say what it does: {trace.names[trace.tasks.name[task]]}",
                expected="NCCL's arguments: collective, elements, type, ranks and description of the process group",
                found=f"group {known[1].description!r}" if known else "none of them",
                hint="recent PyTorch versions record them; groups are described as tensor, data or pipeline parallel",
            )
        kind, said = known
        self.sizes[group] = said.size
        size = said.size_bytes * (said.size if kind == CollectiveKind.ALL_GATHER else 1)
        return Operation(
            place,
            collective=kind,
            group=group,
            size_bytes=size,
            awaited=self.waiters.get(task, NEVER),
            stream=int(trace.tasks.lane[task]),
        )


def _operation(said: Collective) -> str:
    """`send` or `recv` of a transfer, "" of a collective."""
    found = TRANSFER.match(said.operation)
    return found[0].lower() if found else ""
