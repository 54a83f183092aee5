"""The SimPy process of an NPU that runs a dependency graph: nodes start when what they wait for has finished."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from heapq import heappop, heappush

import numpy as np
import simpy

from simcore.network.instant import LOOK, Timers, after
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.groups import first_apart
from simcore.system.messages.point_to_point import Mail, Mailbox
from simcore.system.streams import Request
from simcore.timeline.events import COMPUTE_STREAM, NO_LAYER, EventBuffer, EventKind
from simcore.workload.model import Graph, NodeKind

NOTHING = (int(NodeKind.INVALID), int(NodeKind.METADATA))  # these nodes do nothing
COMPUTE = int(NodeKind.COMPUTE)  # plain: compared often
TAGS = 500_000_000
Done = Callable[..., None]  # also takes the event that it follows


@dataclass(frozen=True)
class GraphProgram:
    """A graph with what its nodes cost: shared by all NPUs that run it.

    `kinds[row]` says what a node does: those that are replayed just take their time, as computations do.
    `duration_ns[row]` is that time, `slot[row]` the resource it holds while it runs ("" = none): one node at a time.
    `dims` says how many NPUs lie along each dimension of the machine. `names[row]` are numbers of event names.
    `requests[row]` are the collectives; `customs[row]` those that are programs themselves, of every NPU. `behind[row]`
    is one more row that a row waits for, the collective before it. With `lifo` the last collective that an NPU issues
    goes first. Where it is `strict`, nobody looks for what INVALID nodes make ready until something else has finished,
    be it never, and tags of messages begin anew after `TAGS` (ASTRA-sim 2.x).
    """

    graph: Graph
    kinds: list[int]
    duration_ns: list[int]
    slot: list[str]
    dims: tuple[int, ...]
    names: Sequence[int]
    requests: Mapping[int, Request]
    customs: Mapping[int, Mapping[int, GraphProgram]] = field(default_factory=dict)
    behind: Mapping[int, int] = field(default_factory=dict)
    lifo: bool = False
    strict: bool = False

    @cached_property
    def waits(self) -> tuple[list[int], list[list[int]]]:
        """How many rows each row waits for, and the rows that wait for each."""
        graph, ends = self.graph, np.diff(self.graph.dep_offsets)
        counts: list[int] = ends.tolist()
        successors: list[list[int]] = [[] for _ in counts]
        for row, dependency in zip(np.repeat(np.arange(len(ends)), ends).tolist(), graph.deps.tolist(), strict=True):
            successors[dependency].append(row)
        for row, before in self.behind.items():
            counts[row] += 1
            successors[before].append(row)
        return counts, successors

    @cached_property
    def sizes(self) -> array[int]:
        """The bytes of every row."""
        return array("q", self.graph.size_bytes.astype(np.int64).tobytes())

    @cached_property
    def shown(self) -> list[int]:
        """As what the timeline shows every row; -1: collectives are recorded where they are issued, and delays of a
        device, in which nothing happens, nowhere.
        """
        table = np.full(len(NodeKind), -1)
        table[list(_SHOWN)] = list(_SHOWN.values())
        shown = table[self.graph.kind]
        shown[(shown == EventKind.COMPUTE) & self.graph.on_cpu] = EventKind.CPU
        shown[[*self.requests, *np.flatnonzero(self.graph.delays & ~self.graph.on_cpu)]] = -1
        rows: list[int] = shown.tolist()
        return rows


class GraphNpu:
    """State of one NPU: which nodes have finished, which are ready, which slots are taken.

    After every completion the ready nodes are looked at in order of their id; those whose slot is free start
    (ASTRA-sim 2.x). One that `gathers` looks when all that ends at a time has ended. `duration_ns` are the program's,
    or with noise those of this NPU, which ends computations by its `timers`.
    """

    def __init__(
        self,
        npu: int,
        program: GraphProgram,
        scheduler: Scheduler,
        mailbox: Mailbox,
        access_memory: Callable[[int, int, Done], None],
        events: EventBuffer,
        duration_ns: Sequence[int],
        timers: Timers,
        *,
        gathers: bool = False,
        start_ns: int = 0,
    ):
        self.env, self.npu, self.npu_class, self.program = scheduler.env, npu, scheduler.npu_class, program
        self._scheduler, self._mailbox, self._access_memory = scheduler, mailbox, access_memory
        self._events, self._duration_ns, self._timers = events, duration_ns, timers
        self._posted: dict[int, tuple[Mail, int]] = {}  # message of a row that sends or receives
        counts, self._successors = program.waits
        self._open = list(counts)
        self._ready: dict[str, list[int]] = {}
        self._taken: set[str] = set()
        self._skipped: list[int] = []
        self._running: set[int] = set()
        self._left = len(program.graph)
        self._finished, self._gathers, self._looks = self.env.event(), gathers, False
        self._start_ns = start_ns
        self.finish_ns = -1

    def run(self) -> Generator[simpy.Event, object, None]:
        """Start when it is time to; the rest follows from completions."""
        if self._start_ns:
            yield self.env.timeout(self._start_ns)
        yield self.start()
        self.finish_ns = int(self.env.now)

    def start(self) -> simpy.Event:
        """Start the nodes that wait for nothing; an event tells that all have finished."""
        for row, count in enumerate(self._open):
            if count == 0:
                self._make_ready(row)
        self._look()
        return self._finished

    def share(self) -> float:
        """What share of its nodes has finished."""
        return 1 - self._left / max(len(self.program.graph), 1)

    def running(self) -> list[str]:
        """Names of the nodes that have started and not finished."""
        return [self.program.graph.names[row] for row in sorted(self._running)]

    def overlooked(self) -> list[str]:
        """Names of the nodes that are ready and whose slot is free, but nobody looks."""
        free = (row for slot, rows in self._ready.items() if slot not in self._taken for row in rows)
        return [self.program.graph.names[row] for row in sorted(free)]

    def _make_ready(self, row: int) -> None:
        heappush(self._ready.setdefault(self.program.slot[row], []), row)

    def _start_ready(self) -> None:
        """Start what may start, lowest id first; nodes that take no time finish only with the next completion."""
        taken = self._taken
        while True:
            row = -1
            for slot, heap in self._ready.items():
                if heap and slot not in taken and not 0 <= row < heap[0]:
                    row = heap[0]
            if row >= 0:
                slot = self.program.slot[row]
                heappop(self._ready[slot])
                if not self._ready[slot]:
                    del self._ready[slot]  # a slot of one node only may be one of thousands
                self._start(row, slot)
            elif self._skipped and not self._running:
                kinds, strict = self.program.kinds, self.program.strict
                unseen = strict and all(kinds[row] == NodeKind.INVALID for row in self._skipped)
                self._release_skipped()
                if unseen:
                    break
            else:
                break

    def _start(self, row: int, slot: str) -> None:
        kind = self.program.kinds[row]
        if kind in NOTHING:
            self._skipped.append(row)
            return
        if slot:
            self._taken.add(slot)
        self._running.add(row)
        self._begin(row, kind, partial(self._complete, row, int(self.env.now), slot))

    def _begin(self, row: int, kind: int, done: Done) -> None:
        graph, program = self.program.graph, self.program
        if kind == COMPUTE:
            self._timers.after(self._duration_ns[row], done)
        elif row in program.customs:
            self._play(program.customs[row][self.npu], done)
        elif kind == NodeKind.COLLECTIVE:
            priority = int(self.env.now) << 32 | row if program.lifo else None  # a time, and a place in the trace
            dataset = self._scheduler.issue(program.requests[row], priority=priority)
            if dataset.done.triggered:
                after(self.env, 0, done)
            else:
                dataset.then = done
        elif kind in {NodeKind.MEM_LOAD, NodeKind.MEM_STORE}:
            self._access_memory(self.npu, int(graph.size_bytes[row]), done)
        else:
            ends = (self.npu, int(graph.peer[row]))
            src, dst = ends if kind == NodeKind.SEND else ends[::-1]
            tag = int(graph.tag[row]) % TAGS if program.strict else int(graph.tag[row])
            mail = Mail(tag, src, dst, int(graph.size_bytes[row]))
            post = self._mailbox.send if kind == NodeKind.SEND else self._mailbox.receive
            self._posted[row] = post(mail, done)

    def _play(self, program: GraphProgram, done: Done) -> None:
        """Play a program in the place of a node; what it does in detail is not recorded."""
        around = self._scheduler, self._mailbox, self._access_memory, EventBuffer()
        inner = GraphNpu(self.npu, program, *around, program.duration_ns, self._timers, gathers=self._gathers)
        inner.start().callbacks.append(lambda _: done())

    def _complete(self, row: int, start_ns: int, slot: str) -> None:
        self._taken.discard(slot)
        self._running.discard(row)
        self._record(row, start_ns)
        self._release_skipped()
        self._release(row)
        if not self._gathers:
            self._look()
        elif not self._looks:
            self._looks = True
            after(self.env, 0, self._look, LOOK)

    def _look(self) -> None:
        self._looks = False
        self._start_ready()
        if not self._left and not self._finished.triggered:
            self._finished.succeed()

    def _release_skipped(self) -> None:
        skipped, self._skipped = self._skipped, []
        for row in skipped:
            self._release(row)

    def _release(self, row: int) -> None:
        """A row has finished: its successors wait for one less."""
        self._left -= 1
        for successor in self._successors[row]:
            self._open[successor] -= 1
            if self._open[successor] == 0:
                self._make_ready(successor)

    def _record(self, row: int, start_ns: int) -> None:
        """The interval of a node."""
        shown = self.program.shown[row]
        if shown >= 0:
            stream = COMPUTE_STREAM
            if row in self._posted:
                stream += 1 + first_apart(self.program.dims, (self.npu, int(self.program.graph.peer[row])))
                self._events.message(self._posted.pop(row), sends=shown == EventKind.SEND)
            span = (self.npu_class, stream, start_ns, int(self.env.now), shown, self.program.names[row])
            self._events.append((*span, NO_LAYER, -1, self.program.sizes[row], 0))


_SHOWN = {
    NodeKind.COMPUTE: EventKind.COMPUTE,
    NodeKind.COLLECTIVE: EventKind.COLLECTIVE,
    NodeKind.SEND: EventKind.SEND,
    NodeKind.RECV: EventKind.RECV,
    NodeKind.MEM_LOAD: EventKind.MEMORY,
    NodeKind.MEM_STORE: EventKind.MEMORY,
}
