"""The SimPy process of an NPU of a pipeline stage: cell after cell, with transfers to the stages beside it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from functools import cache, partial

import numpy as np
import simpy
from msgspec import Struct
from numpy.typing import NDArray

from simcore.system.npu import Known, LoopProgram, Npu, Priorities
from simcore.system.point_to_point import Mail, Mailbox
from simcore.system.scheduler import Scheduler
from simcore.system.transport import class_of
from simcore.timeline.events import COMPUTE_STREAM, NO_LAYER, EventBuffer, EventKind
from simcore.workload.loops import Step
from simcore.workload.loops.pipeline import Passage, Transfer


class StageCell(Struct, frozen=True):
    """A cell as it is played: its steps, and what names it in the timeline.

    Cells with the same `content` take as long and do the same on their own rows, which have the same names.
    """

    passage: Passage
    rows: NDArray[np.int64]
    steps: Sequence[Step]
    name: int
    content: Hashable


class StageProgram(Struct, frozen=True):
    """What a stage plays: the cells of an iteration, then what reduces and gathers, then what needs its results."""

    cells: Sequence[StageCell]
    reducing: Sequence[Step]
    closing: Sequence[Step]


class Handovers:
    """Transfers of one run between the stages: every NPU hands over to those with its place in other stages.

    `carry` is the network, `dims` are the sizes of its dimensions, `width` is how many NPUs a stage has. A transfer is
    matched by the classes at its ends, and recorded on both when it arrives.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        carry: Callable[[int, int, int, tuple[int, ...], Callable[[], None]], None],
        events: EventBuffer,
        *,
        dims: Sequence[int],
        width: int,
        size_bytes: int,
        rendezvous: bool,
    ):
        self._env, self._ranks, self._events = env, ranks, events
        self._width, self._size_bytes = width, size_bytes
        self._crossed = cache(partial(_crossed, dims, width))
        self._class_of = class_of(ranks)

        def along(src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
            carry(src, src % width + dst // width * width, size_bytes, key, deliver)

        self._mailbox = Mailbox(env, along, rendezvous=rendezvous)

    def send(self, npu_class: int, transfer: Transfer, cell: StageCell, iteration: int) -> None:
        """Hand over to another stage; nobody waits for the end of it."""
        there = self._partner(npu_class, transfer.stage)
        mail = self._mail(transfer, npu_class, there)
        stream = COMPUTE_STREAM + 1 + self._crossed(mail.src // self._width, transfer.stage)
        sent_ns = int(self._env.now)

        def arrived() -> None:
            phase = 0 if cell.passage.cell.kind == "F" else 1
            for npu, kind in ((npu_class, EventKind.SEND), (there, EventKind.RECV)):
                row = (npu, stream, sent_ns, int(self._env.now), kind, cell.name, NO_LAYER, phase)
                self._events.message(mail, sends=kind == EventKind.SEND)
                self._events.append((*row, self._size_bytes, iteration))

        self._mailbox.send(mail, arrived)

    def receive(self, npu_class: int, transfer: Transfer) -> simpy.Event:
        """What succeeds when the transfer is here."""
        there = self._partner(npu_class, transfer.stage)
        arrival = self._env.event()

        def arrived() -> None:
            arrival.succeed()

        self._mailbox.receive(self._mail(transfer, there, npu_class), arrived)
        return arrival

    def _partner(self, npu_class: int, stage: int) -> int:
        return int(self._class_of[int(self._ranks[npu_class][0]) % self._width + stage * self._width])

    def _mail(self, transfer: Transfer, src: int, dst: int) -> Mail:
        return Mail(transfer.tag, int(self._ranks[src][0]), int(self._ranks[dst][0]), self._size_bytes)


def _crossed(dims: Sequence[int], width: int, *stages: int) -> int:
    """The first dimension in which two stages lie apart."""
    src, dst = np.array(np.unravel_index(np.array(stages) * width, dims[::-1])).T[:, ::-1]
    return int((src != dst).argmax())


class PipelineNpu(Npu):
    """One class of NPUs of a stage."""

    def __init__(
        self,
        program: LoopProgram,
        scheduler: Scheduler,
        priorities: Priorities,
        stage: StageProgram,
        handovers: Handovers,
        legs: Known | None,
    ):
        super().__init__(program, scheduler, priorities, legs)
        self._stage, self._handovers = stage, handovers
        self.cells: list[tuple[StageCell, int, int]] = []  # each with its beginning and end
        self.ends: list[tuple[int, int]] = []  # of steps

    def share(self) -> float:
        """What share of its cells it has played."""
        return len(self.cells) / max(len(self._stage.cells) * self.program.iterations, 1)

    def run(self) -> Generator[simpy.Event, object, None]:
        """Play all iterations."""
        program = self.program
        for self.iteration in range(program.iterations):
            start_ns = int(self.env.now)
            for cell in self._stage.cells:
                yield from self._cell(cell)
            end_ns = int(self.env.now)
            for step in self._stage.reducing:
                yield from self._play(step)
            yield from self._drain()
            for step in self._stage.closing:
                yield from self._play(step)
            self.ends.append((end_ns, int(self.env.now)))
            self.iterations.append((start_ns, int(self.env.now)))
        yield from self._drain()
        self.finish_ns = int(self.env.now)

    def _cell(self, cell: StageCell) -> Generator[simpy.Event, object, None]:
        passage = cell.passage
        if passage.source:
            yield from self._receive(cell, passage.source)
        start_ns = int(self.env.now)
        if self._only_computes(cell):
            busy_ns = self.computed(cell.steps, start_ns, self._events.append) - start_ns
            if busy_ns:
                yield self.env.timeout(busy_ns)
        else:
            yield from self._steps(cell)
        self.cells.append((cell, start_ns, int(self.env.now)))
        if passage.target:
            self._handovers.send(self.npu_class, passage.target, cell, self.iteration)

    def _only_computes(self, cell: StageCell) -> bool:
        """Whether no step of a cell sends or waits, so that one event stands for all of them."""
        sent, pending = self.program.requests, self._pending
        return not any(step.issue in sent or step.before in pending or step.after in pending for step in cell.steps)

    def _receive(self, cell: StageCell, source: Transfer) -> Generator[simpy.Event, object, None]:
        start_ns = int(self.env.now)
        self.waits_for = f"{cell.passage.cell} of stage {source.stage}"
        yield self._handovers.receive(self.npu_class, source)
        self.waits_for = ""
        end_ns = int(self.env.now)
        if end_ns > start_ns:
            row = (self.npu_class, COMPUTE_STREAM, start_ns, end_ns, EventKind.WAIT, cell.name, NO_LAYER, -1)
            self._events.append((*row, 0, self.iteration))
