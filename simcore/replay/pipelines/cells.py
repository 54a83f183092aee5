"""What a rank of a pipeline did in a step, by the names its program gave to ranges, and as rows of a workload.

A range `layer N forward`, `layer N backward` or `layer N weight gradient` (in a backward, or apart) holds the launches
of one layer for one micro-batch; what else a stage runs has names of its own, `embedding forward` for instance. The
n-th range of a name is the n-th micro-batch. What is launched behind the last range ends the step.

A row that is played backwards computes, sends its input gradient, computes the weight gradient beside that, sends it,
and waits for the first (`simcore.workload.loops.hybrid.backward`): recorded operations are put into these places.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from statistics import mean

import numpy as np
from msgspec import Struct

from simcore.errors import InputError
from simcore.replay.session import StepReplay
from simcore.replay.steps.device import SHORT_GAP_NS
from simcore.replay.views.workloads import collectives
from simcore.replay.whatif.layers import NamedRange, layer_number, model_order
from simcore.replay.whatif.retiming import roles
from simcore.workload.kineto import KERNEL, Collective
from simcore.workload.model import CollectiveKind, Group, Layer, Phase

NEVER = 1 << 62
END = "", "", 0  # where launches are put that end the step
TRANSFER = re.compile(r"send|recv", re.IGNORECASE)


class Operation(Struct, frozen=True):
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


class Cells:
    """One step of one rank by its named ranges; InputError when communication does not say what it does.

    `rank` is its number, `file` where it was recorded. `order` are the ranges as they came, (F, B or W, part,
    micro-batch), `parts` those of the model in its order, `layers` the numbers of those that are layers, ascending,
    `tasks` what was launched, in that order. `passes` are (part, "forward" or "backward") -> operations of every
    micro-batch, `sizes` those of the groups met, `able` launches (place, stream) that could wait.
    """

    def __init__(self, step: StepReplay, ranges: Sequence[NamedRange]):
        self.prepared, view = step.prepared, step.prepared.view
        self.rank, self.file, self.parts = view.trace.rank, view.trace.file, model_order(ranges)
        self.layers = tuple(sorted({layer_number(part) for part in self.parts} - {-1}))
        self.order = [(one.kind, one.part, one.micro_batch) for one in ranges if one.kind]
        order, lane = view.launch_order, view.trace.tasks.lane
        self.sizes, self.sent_bytes = dict[Group, int](), set[int]()
        self.tasks: list[int] = order[view.task_step[order] == step.position].tolist()
        self.waiters = self._waiters()
        held = self._owners(ranges)
        counts: dict[tuple[str, str], int] = {}
        for one in ranges:
            counts[one.part, one.way] = max(counts.get((one.part, one.way), 0), one.micro_batch + 1)
        self.passes = {
            part: [self._operations(held.get((*part, number), [])) for number in range(count)]
            for part, count in counts.items()
        }
        self.end = self._operations(held.get(END, []))
        said = [(at, task, view.trace.collectives.get(task)) for at, task in enumerate(self.tasks)]
        self.able = [(at, int(lane[task])) for at, task, one in said if not one or _operation(one) != "recv"]

    def following(self, one: Operation, place: int) -> int:
        """The first launch behind `place` that would wait for a collective: on another stream, and no receive.

        Gradients that nothing waits for before the end of the step are waited for by all of that.
        """
        at = bisect_left(self.able, (place + 1, -1))
        found = next((where for where, stream in self.able[at:] if stream != one.stream), NEVER)
        return min(found, self.end[0].place - (one.group == Group.DP)) if self.end else found

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
        view, waits = self.prepared.view, self.prepared.delays.waits
        first: dict[int, int] = {}
        for at, task in enumerate(self.tasks):
            for wait in waits.get(task, ()):
                first.setdefault(wait.source, at)
        if not any(wait.recorded for some in waits.values() for wait in some):
            # What starts next and not before a collective's end has waited for it.
            start, end = view.trace.tasks.start_ns, view.trace.tasks.end_ns
            for at, (task, following) in enumerate(pairwise(self.tasks), 1):
                if view.communication[task] and start[following] >= end[task]:
                    first[task] = min(first.get(task, NEVER), at)
        found, later = dict[int, int](), dict[int, int]()
        for task in reversed(self.tasks):
            lane = int(view.trace.tasks.lane[task])
            later[lane] = found[task] = min(first.get(task, NEVER), later.get(lane, NEVER))
        return found

    def _operations(self, launches: Iterable[tuple[int, bool]]) -> list[Operation]:
        """Computation between waits as one operation each, collectives as they came; transfers are the schedule's."""
        view, made = self.prepared.view, list[Operation]()
        tasks, awaiting = view.trace.tasks, set(self.waiters.values())
        known, until_ns = collectives(view.trace), 0
        for place, weight in launches:
            task = self.tasks[place]
            start, end = int(tasks.start_ns[task]), int(tasks.end_ns[task])
            if view.communication[task] and tasks.kind[task] == KERNEL:
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
                self.sent_bytes.add(said.size_bytes)
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


IDLE = Layer("")
Rows = tuple[Layer, ...]
Following = Callable[[Operation, int], int]  # as `Cells.following`


class ModelPart(Struct, frozen=True):
    """A layer or another part of the model: rows of its passes, each in the order in which they are played.

    Means over micro-batches; `last` is the backward pass of the last one, whose gradients are complete, and has as many
    rows as `backward`. `gradient_bytes` are reduced over data parallel ranks behind it.
    """

    name: str
    forward: Rows
    backward: Rows
    last: Rows
    gradient_bytes: int

    @property
    def compute_ns(self) -> int:
        """Computation for one micro-batch."""
        return sum(phase.compute_ns for row in (*self.forward, *self.backward) for phase in row.phases)


class StepEnd(Struct, frozen=True):
    """The end of a step: rows that reduce gradients, and what follows when they and all others have arrived."""

    reducing: Rows
    closing: Rows


def part_of(cells: Cells, name: str) -> ModelPart:
    """The rows of one part of the model; those of a micro-batch only where most micro-batches have them."""
    ahead = [
        _forward(operations, cells.following, f"{cells.file}: {name}")
        for operations in cells.passes.get((name, "forward"), [])
    ]
    back = [_backward(operations, cells.following) for operations in cells.passes.get((name, "backward"), [])]
    # What a micro-batch would do that is not the last one.
    usual = _mean(back[:-1] or [tuple(_without_gradients(row) for row in rows) for rows in back])
    pairs = list(zip_longest(usual, back[-1] if back else (), fillvalue=IDLE))
    last = tuple(row for _, row in pairs)
    reduced = sum(row.weight_grad.size_bytes for row in last if row.weight_grad.group == Group.DP)
    return ModelPart(name, _mean(ahead), tuple(row for row, _ in pairs), last, reduced)


def step_end(cells: Cells) -> StepEnd:
    """What ends the step; it closes when something waits for a collective for the first time."""
    if not cells.end:
        return StepEnd((), ())
    every = [*cells.end, *(one for some in cells.passes.values() for operations in some for one in operations)]
    awaited = {one.awaited for one in every if one.collective and one.awaited > cells.end[0].place}
    first = next((at for at, one in enumerate(cells.end) if one.place in awaited), len(cells.end))
    if not any(one.collective for one in cells.end[:first]):
        first = 0
    reducing = _backward(cells.end[:first], lambda *_: -1)
    return StepEnd(reducing, _forward(cells.end[first:], lambda *_: NEVER, cells.file))


def _forward(operations: Sequence[Operation], following: Following, place: str) -> Rows:
    """Computation and the collective that what follows waits for."""
    made, compute_ns = list[Layer](), 0
    for one in operations:
        if one.collective is None:
            compute_ns += one.compute_ns
            continue
        if following(one, one.place) < one.awaited < NEVER:
            raise InputError.at(
                place,
                f"what follows an {one.collective} does not wait for it",
                expected="forward passes whose collectives are awaited at once",
                found=f"{one.size_bytes} bytes in group {one.group}, beside computation",
            )
        made.append(Layer("", forward=_phase(compute_ns, one)))
        compute_ns = 0
    return (*made, Layer("", forward=Phase(compute_ns))) if compute_ns else tuple(made)


def _backward(operations: Sequence[Operation], following: Following) -> Rows:
    """Rows in the order in which they are played."""
    made, row = list[Layer](), IDLE
    sent = -1  # the launch that waits for the row's input gradient
    for one in operations:
        if row.weight_grad.collective or (row.input_grad.collective and one.place >= sent):
            made.append(row)
            row = IDLE
        blocks = one.awaited <= following(one, operations[-1].place)
        if one.collective is None:
            covered = one.weight or row.input_grad.collective is not None
            if row.weight_grad.compute_ns and not covered:
                made.append(row)
                row = IDLE
            more = (0, one.compute_ns) if covered else (one.compute_ns, 0)
            row = replace(
                row, input_grad=_longer(row.input_grad, more[0]), weight_grad=_longer(row.weight_grad, more[1])
            )
        elif blocks and not row.input_grad.collective and not row.weight_grad.compute_ns:
            row, sent = replace(row, input_grad=_phase(row.input_grad.compute_ns, one)), one.awaited
        elif blocks:
            made.append(row)
            row, sent = Layer("", input_grad=_phase(0, one)), one.awaited
        else:
            row = replace(row, weight_grad=_phase(row.weight_grad.compute_ns, one))
    return tuple(made if row is IDLE else [*made, row])


def _longer(phase: Phase, compute_ns: int) -> Phase:
    return replace(phase, compute_ns=phase.compute_ns + compute_ns)


def _phase(compute_ns: int, one: Operation) -> Phase:
    return Phase(compute_ns, one.collective, one.size_bytes, one.group)


def _without_gradients(row: Layer) -> Layer:
    return replace(row, weight_grad=Phase(row.weight_grad.compute_ns)) if row.weight_grad.group == Group.DP else row


def _structure(rows: Rows) -> tuple[object, ...]:
    return tuple((p.compute_ns > 0, p.collective, p.size_bytes, p.group) for r in rows for p in r.phases)


def _mean(samples: Sequence[Rows]) -> Rows:
    """The mean of those samples that do what most do."""
    if not samples:
        return ()
    usual, _ = Counter(map(_structure, samples)).most_common(1)[0]
    alike = [rows for rows in samples if _structure(rows) == usual]

    def mixed(same: Sequence[Phase]) -> Phase:
        return replace(same[0], compute_ns=round(mean(one.compute_ns for one in same)))

    return tuple(mixed_row(rows, mixed) for rows in zip(*alike, strict=True))


def mixed_row(rows: Sequence[Layer], mixed: Callable[[Sequence[Phase]], Phase]) -> Layer:
    """One row out of several: each phase out of theirs."""
    forward, input_grad, weight_grad = (mixed(same) for same in zip(*(row.phases for row in rows), strict=True))
    return Layer("", forward, input_grad, weight_grad)
