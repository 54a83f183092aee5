"""The SimPy process of an NPU that plays cells: forward, weight gradient, input gradient, and the waits between.

An iteration of a training loop is a cell; a stage of a pipeline has many, with transfers to the stages beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import simpy
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.network.instant import at_once
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.messages.point_to_point import Handovers
from simcore.system.streams import Dataset, Request, Turns
from simcore.timeline.events import COLUMNS, COMPUTE_STREAM, NO_LAYER, EventKind
from simcore.workload.loops import Order, Ref, Step
from simcore.workload.model import PhaseName

if TYPE_CHECKING:  # pipelines are imported where there are some
    from simcore.workload.loops.pipeline import Passage

PHASES, LAYER = list(PhaseName), COLUMNS.index("layer")
HIGHEST_PRIORITY = 100_000_000
FIRST_TAIL = Ref(PhaseName.WEIGHT_GRAD, 0)


class Priorities:
    """One counter for all collectives of an NPU: LIFO counts up, FIFO down (ASTRA-sim); larger goes first."""

    def __init__(self, policy: Order):
        self._policy, self._counter = policy, 0

    def next(self, order: Order) -> int:
        """The priority of the next collective; the counter moves even when nothing is sent."""
        order = self._policy if order == Order.SYSTEM else order
        if order == Order.HIGHEST:
            return HIGHEST_PRIORITY
        value = self._counter
        self._counter += 1 if order == Order.LIFO else -1
        return value


class Cell(Struct, frozen=True):
    """Steps that an NPU plays one after the other, and the rows of the workload that they are about, ascending.

    Cells with the same `content` take as long and do the same on their own rows, which have the same names. A cell of a
    pipeline has a `name` in the timeline, and a `passage`: what is received before and handed on behind. One that
    `drains` begins when nothing is on its way any more.
    """

    steps: Sequence[Step]
    rows: NDArray[np.int64]
    content: Hashable = None
    name: int = 0
    passage: Passage | None = None
    drains: bool = False


class Program(Struct, frozen=True):
    """What an NPU plays: the cells of an iteration, compute times by (phase, layer), and collectives to issue.

    `compute_ns` has an entry for every iteration, or one for all of them.

    `requests` holds what each `Ref` sends (priority and iteration are filled in at issue); a Ref without an entry sends
    nothing, one without lanes has nobody to send to. `step_ns` is the cost of a state of the loop (1 in ASTRA-sim 1.0).
    `names` are event names by layer.
    """

    cells: Sequence[Cell]
    compute_ns: Sequence[Mapping[tuple[PhaseName, int], int]]
    requests: Mapping[Ref, Request]
    names: Sequence[int]
    iterations: int = 1
    step_ns: int = 0
    first_layer_tail_only: bool = False


class Rejoin(NamedTuple):
    """Where an NPU goes on by itself: with a step of its cell, whose computation may be done.

    Where it waits for a collective until then, that is `ref`; it computes until `busy_ns` in any case.
    """

    step: int
    computed: bool
    ref: Ref | None = None
    busy_ns: int = 0


class Leg(Struct, eq=False):
    """A collective of a cell that is sent in a step, and awaited before the step `then` (0: together with others).

    `inside` is computed meanwhile, `after` behind it, up to `rejoin`: the next collective, or the end. `played` keeps
    what NPUs did in it.
    """

    step: int
    ref: Ref
    order: Order
    then: int = 0
    rejoin: Rejoin | None = None
    inside: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    played: dict[Hashable, Any] = field(default_factory=dict)


class Legs(Struct, frozen=True, eq=False):
    """Collectives of a cell that follow each other, and the cell's rows."""

    rows: NDArray[np.int64]
    legs: list[Leg] = field(default_factory=list)


class Route(NamedTuple):
    """Where in its cell an NPU sends a collective: number `at` of some legs."""

    npu: Npu
    cell: Cell
    legs: Legs
    at: int


def legs_of(cell: Cell, requests: Mapping[Ref, Request]) -> dict[int, tuple[Legs, int]]:
    """Which of some legs each collective of a cell is, by the step that sends it.

    Legs end where anything else is awaited than the collective that was sent last.
    """
    found: dict[int, tuple[Legs, int]] = {}
    legs, sent, last = Legs(cell.rows), None, None
    for at, step in enumerate(cell.steps):
        others = ({step.before, step.after} - {sent, step.issue}) & requests.keys()
        sent = step.issue if step.issue in requests else sent
        if others:
            _end(last, at)
            legs, last = Legs(cell.rows), None
        if step.after in others:
            continue
        if last:
            last.then = last.then or (at if step.before == last.ref else 0)
            (last.after if last.then else last.inside).append(step)
        if step.issue and step.issue in requests:
            if last:
                last.rejoin = Rejoin(at, computed=True)
            if (last and not last.then) or not requests[step.issue].lanes:
                legs, last = Legs(cell.rows), None
            if requests[step.issue].lanes:
                found[at] = (legs, len(legs.legs))
                last = Leg(at, step.issue, step.order)
                legs.legs.append(last)
        if last and (step.after == last.ref or (step.blocking and step.issue == last.ref)):
            last.then = last.then or at + 1
    _end(last, len(cell.steps))
    return found


def _end(last: Leg | None, at: int) -> None:
    """What follows the last leg is another matter."""
    if last:
        last.rejoin = Rejoin(at, computed=False)


Known = dict[Hashable, dict[int, tuple[Legs, int]]]
"""Which legs begin in which steps of cells, by their content."""


class Npu:
    """State of one NPU class: what it has sent and not yet seen complete, and the cells that it has `played`.

    `legs` keeps which collectives of cells may be told ahead, by content; None where what they do depends on more
    than that. `handovers` are those of a pipeline.
    """

    def __init__(
        self,
        program: Program,
        scheduler: Scheduler,
        priorities: Priorities,
        legs: Known | None = None,
        handovers: Handovers | None = None,
    ):
        self.env, self.npu_class, self._events = scheduler.env, scheduler.npu_class, scheduler.events
        self.program, self.scheduler, self.priorities, self._legs = program, scheduler, priorities, legs
        self._handovers = handovers
        self._pending: dict[Ref, list[Dataset]] = {}
        self._order = scheduler.turns
        self._route: Route | None = None
        self.rejoin: Rejoin | None = None
        self.iterations: list[tuple[int, int]] = []
        self.played: list[tuple[Cell, int, int]] = []  # each with its beginning and end
        self.iteration, self._at = 0, 0
        self.finish_ns = -1
        self.waits_for: object = ""

    def run(self) -> Generator[simpy.Event, object, None]:
        """Play all iterations, then drain."""
        program = self.program
        for self.iteration in range(program.iterations if program.cells else 0):
            start_ns = int(self.env.now)
            for cell in program.cells:
                yield from self._cell(cell)
            self.iterations.append((start_ns, int(self.env.now)))
            if program.step_ns:
                yield from self._move_on(program.cells[-1].steps[-1])
        yield from self._drain()
        self.finish_ns = int(self.env.now)

    def share(self) -> float:
        """What share of its cells it has played, and of the steps of the one that it plays, with what they sent."""
        cells, played = self.program.cells, len(self.played)
        steps = cells[played % len(cells)].steps if cells else ()
        over = self._at - sum(dataset.missing for dataset in self.scheduler.outstanding)
        return max(played + over / max(len(steps), 1), 0) / max(len(cells) * self.program.iterations, 1)

    def _cell(self, cell: Cell) -> Generator[simpy.Event, object, None]:
        """What a cell waits for, its steps, and what it hands on."""
        passage, handovers = cell.passage, self._handovers
        if handovers and passage and passage.source:
            self.waits_for = f"{passage.cell} of stage {passage.source.stage}"
            yield from self._receive(handovers.receive(self.npu_class, passage.source), cell.name)
        if cell.drains:
            yield from self._drain()
        start_ns = int(self.env.now)
        yield from self._steps(cell)
        self._at, self._route = 0, None
        self.played.append((cell, start_ns, int(self.env.now)))
        if handovers and passage and passage.target:
            kind = 0 if passage.cell.kind == "F" else 1
            handovers.send(self.npu_class, passage.target, cell.name, kind, self.iteration)

    def _receive(self, arrival: simpy.Event, name: int) -> Generator[simpy.Event, object, None]:
        start_ns = int(self.env.now)
        yield arrival
        self.waits_for = ""
        if self.env.now > start_ns:
            row = (self.npu_class, COMPUTE_STREAM, start_ns, int(self.env.now), EventKind.WAIT, name, NO_LAYER, -1)
            self._events.append((*row, 0, self.iteration))

    def _steps(self, cell: Cell) -> Generator[simpy.Event, object, None]:
        """Step by step, but for what is told ahead."""
        legs, computed = self._legs_of(cell), False
        while self._at < len(cell.steps):
            if self.program.step_ns and self._at:
                yield from self._move_on(cell.steps[self._at - 1])
            self._route = Route(self, cell, *legs[self._at]) if self._at in legs else None
            yield from self._play(cell.steps[self._at], computed=computed)
            self._at, computed = (self.rejoin.step, self.rejoin.computed) if self.rejoin else (self._at + 1, False)
            self.rejoin = None

    def _move_on(self, step: Step) -> Generator[simpy.Event, object, None]:
        """From a state of the loop to the next one."""
        if not step.instant:
            yield from self._pass(self.program.step_ns)

    def _pass(self, duration_ns: int) -> Generator[simpy.Event, object, None]:
        """Let time go by; NPUs go on in the order in which they do what else they do then."""
        if not self.scheduler.orders:
            yield self.env.timeout(duration_ns)
            return
        over = self.env.event()
        self.scheduler.after(duration_ns, self._order, partial(at_once, self.env, over))
        self._order = cast("Turns", (yield over))

    def _legs_of(self, cell: Cell) -> dict[int, tuple[Legs, int]]:
        """What can be told ahead, by the step that begins it."""
        if self._legs is None:
            return {}
        known = self._legs.get(cell.content)
        if known is None:
            known = self._legs[cell.content] = legs_of(cell, self.program.requests)
        return known

    def _play(self, step: Step, *, computed: bool = False) -> Generator[simpy.Event, object, None]:
        """A step, which may have been `computed` already; what was told ahead meanwhile says where to `rejoin`."""
        if step.before in self._pending:
            yield from self._wait(step.before)
            if self.rejoin:
                return
        duration_ns = self._compute_ns(step) if step.computes and not computed else 0
        if duration_ns:
            start_ns = int(self.env.now)
            self.sends(step, start_ns + duration_ns)
            yield from self._pass(duration_ns)
            ref = Ref(step.phase, step.layer)
            self._events.append(self._row(EventKind.COMPUTE, start_ns, start_ns + duration_ns, ref, self.iteration))
        if step.issue:
            if self.scheduler.in_turn and (soon_ns := self._soon_ns(step)):
                # When the last NPU lets a chunk begin, the others have asked for their next state already.
                self.scheduler.in_turn.ahead(self.env, soon_ns, self._order)
            self._issue(step.issue, step.order)
            if step.blocking and step.issue in self._pending:
                yield from self._wait(step.issue)
        if step.after in self._pending:
            yield from self._wait(step.after)

    def _soon_ns(self, step: Step) -> int:
        """How long what it does next by itself takes, when a step is computed; 0 where it waits."""
        sent = self.program.requests.get(step.issue) if step.issue else None
        waits = sent and sent.lanes and (step.blocking or step.after == step.issue)
        return 0 if waits or step.instant or self._misses(step.after) else self.program.step_ns

    def _misses(self, ref: Ref | None) -> bool:
        """Whether something of `ref` is on its way."""
        return ref is not None and not all(dataset.done.triggered for dataset in self._pending.get(ref, ()))

    def sends(self, step: Step | None, when_ns: int) -> None:
        """A step is computed until then; what it sends comes next."""
        self.scheduler.due = (self.program.requests.get(step.issue) if step and step.issue else None, when_ns)

    def _compute_ns(self, step: Step) -> int:
        times = self.program.compute_ns
        return times[self.iteration % len(times)][step.phase, step.layer]

    def _issue(self, ref: Ref, order: Order) -> None:
        request = self.program.requests.get(ref)
        if request is None:
            return
        priority = self.priorities.next(order)
        if not request.lanes:
            self.scheduler.pass_over(request, self._order)
            return
        dataset = self.scheduler.issue(
            request, self._order, priority=priority, iteration=self.iteration, route=self._route
        )
        self._pending.setdefault(ref, []).append(dataset)

    def _wait(self, ref: Ref) -> Generator[simpy.Event, object, None]:
        """Stand still until nothing of `ref` is on its way."""
        start_ns = int(self.env.now)
        self.waits_for = ref
        for dataset in self._pending.pop(ref):
            if not dataset.done.processed:
                yield dataset.done
                self._order = dataset.order
        self.waits_for = ""
        told: Ref | None = ref
        if self.rejoin:  # the collective and the computation that were under way behind what was told ahead
            told, start_ns = self.rejoin.ref, self.rejoin.busy_ns
            yield self.env.timeout(max(start_ns - int(self.env.now), 0))
        if told:
            self._waited(start_ns, told, int(self.env.now))

    def _drain(self) -> Generator[simpy.Event, object, None]:
        """Wait for everything that is still on its way.

        Each wait is charged to the layer it ends with; ASTRA-sim 1.0 charges layer 0's first weight gradient only.
        """
        start_ns, ends = int(self.env.now), list[tuple[int, int]]()
        refs = {dataset: ref for ref, datasets in self._pending.items() for dataset in datasets}
        issued = [*self.scheduler.outstanding]

        def note(number: int, _: simpy.Event) -> None:
            ends.append((int(self.env.now), number))

        for number, dataset in enumerate(issued):
            dataset.done.callbacks.append(partial(note, number))
        self.waits_for = "the last collectives"
        for dataset in issued:
            if not dataset.done.processed:
                yield dataset.done
        waits = [(end_ns, refs[issued[number]]) for end_ns, number in sorted(ends)]
        if self.program.first_layer_tail_only:
            waits = [each for each in waits if each[1] == FIRST_TAIL][:1]
        for end_ns, ref in waits:
            self._waited(start_ns, ref, end_ns)
            start_ns = end_ns

    def _waited(self, start_ns: int, ref: Ref, end_ns: int) -> None:
        if end_ns > start_ns:
            self._events.append(self._row(EventKind.WAIT, start_ns, end_ns, ref, self.iteration))

    def _row(self, kind: EventKind, start_ns: int, end_ns: int, ref: Ref, iteration: int) -> tuple[int, ...]:
        name = self.program.names[ref.layer] if ref.layer >= 0 else NO_LAYER
        row = (self.npu_class, COMPUTE_STREAM, start_ns, end_ns, kind, name, ref.layer, PHASES.index(ref.phase))
        return (*row, 0, iteration)

    def computed(self, steps: Sequence[Step], from_ns: int, write: Callable[[tuple[int, ...]], None]) -> int:
        """Until when some steps compute; `write` takes the events of that."""
        for step in steps:
            duration_ns = self._compute_ns(step) if step.computes else 0
            if duration_ns:
                ref = Ref(step.phase, step.layer)
                write(self._row(EventKind.COMPUTE, from_ns, from_ns + duration_ns, ref, self.iteration))
                from_ns += duration_ns
        return from_ns

    def awaited(
        self, request: Request, issue_ns: int, busy_ns: int, done_ns: int, iteration: int
    ) -> Iterator[tuple[int, ...]]:
        """The events of a collective that was sent, and waited for when the NPU was no longer busy."""
        yield self.scheduler.collective(request, issue_ns, done_ns, iteration)
        if done_ns > busy_ns:
            ref = Ref(PHASES[request.phase], request.layer)
            yield self._row(EventKind.WAIT, busy_ns, done_ns, ref, iteration)

    def go_on(self, dataset: Dataset, rejoin: Rejoin) -> None:
        """Go on by itself behind what was told ahead."""
        self.rejoin = rejoin
        self.scheduler.close(dataset)

    def write(self, told: NDArray[np.int64], cell: Cell, zero_ns: int) -> None:
        """Write events of rows of a cell, which are counted from a time."""
        if len(told):
            rows = np.add(told, (self.npu_class, 0, zero_ns, zero_ns, 0, 0, 0, 0, 0, self.iteration))
            rows[:, LAYER] = cell.rows[rows[:, LAYER]]
            self._events.extend(rows)
