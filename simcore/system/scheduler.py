"""The system layer of one NPU (or class of equal NPUs): issues collectives, queues chunks, starts their phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import simpy

from simcore.system.gates import Gate, Owner, Span
from simcore.system.phases import PhaseMaker
from simcore.system.precedence import Precedence
from simcore.system.streams import Chunks, Dataset, Request, Stream, StreamPhase, Turns, through
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, EventKind

if TYPE_CHECKING:
    from simcore.system.ahead import Route

CHUNK, COLLECTIVE = int(EventKind.CHUNK), int(EventKind.COLLECTIVE)
Row = tuple[int, ...]


class Scheduler:
    """Queues of one NPU class."""

    def __init__(
        self,
        env: simpy.Environment,
        npu_class: int,
        phases: PhaseMaker,
        transport: Transport,
        events: EventBuffer,
        gate: Callable[[int, Owner], Gate],
        precedence: Precedence | None = None,
    ):
        self.env, self.npu_class, self._phases, self._transport = env, npu_class, phases, transport
        self.events, self._gate = events, gate(npu_class, self)
        self._precedence = precedence
        self.due: tuple[Request | None, int] = (None, 0)
        self._order: Turns = ()  # in which the NPUs do what is done now
        self._num_streams: dict[str, int] = {}
        self.sent_bytes = cache(partial(transport.bytes_sent, npu_class))  # in a phase
        self.outstanding: dict[Dataset, None] = {}  # in order of issue
        self.ended: list[Dataset] = []  # in order of their ends, for who waits for the last ones

    def issue(
        self,
        request: Request,
        order: Turns = (),
        *,
        priority: int | None = None,
        iteration: int = 0,
        route: Route | None = None,
    ) -> Dataset:
        """Send a collective on its way; the NPUs do so in some order, () = that of their ids."""
        chunks = self._phases.split(request, int(self.env.now), order)
        dataset = self._dataset(request, chunks, priority, iteration)
        dataset.route = route
        self._order = ()  # the last NPU to issue lets all begin
        if chunks:
            self._gate.send(dataset, idle=len(self.outstanding) == 1)
        else:
            self._complete(dataset)
        return dataset

    def _dataset(self, request: Request, chunks: Chunks, priority: int | None, iteration: int) -> Dataset:
        number = self._num_streams.get(request.group, 0)
        dataset = Dataset(self.env, request, chunks, number, priority, iteration)
        dataset.through = self.through
        self.count(request.group, len(chunks))
        self.outstanding[dataset] = None
        return dataset

    def count(self, group: str, chunks: int) -> None:
        """Chunks have their numbers, whoever sends them."""
        self._num_streams[group] = self._num_streams.get(group, 0) + chunks

    def chunks_of(self, request: Request) -> Chunks:
        """How a collective is cut that takes nothing in turns."""
        return self._phases.split(request, int(self.env.now), ())

    def replace(self, told: Dataset, request: Request, chunks: Chunks, issue_ns: int, priority: int) -> Dataset:
        """A collective that was sent at some time while another one was told ahead, and takes its place."""
        dataset = self._dataset(request, chunks, priority, told.iteration)
        dataset.issue_ns, dataset.done = issue_ns, told.done
        del self.outstanding[told]
        return dataset

    def pass_over(self, request: Request, order: Turns) -> None:
        """A collective that has nobody to go to: nothing is sent, but it takes its turn (ASTRA-sim)."""
        self._phases.pass_over(request, int(self.env.now), order)

    def begin(self, streams: Mapping[int, Stream]) -> None:
        """Chunks, this class's among them, begin a phase together."""
        now_ns = int(self.env.now)
        for stream in streams.values():
            stream.begin_ns, stream.begun, stream.order = now_ns, True, self._order
        self._transport.start(streams, through)

    def through(self, stream: Stream) -> None:
        """A chunk leaves its phase; before its last chunk leaves, what waits for a collective goes on (ASTRA-sim)."""
        phase, dataset = stream.phase, stream.dataset
        if self._precedence:
            self._order = self._precedence.after(phase, stream.order)
        now_ns = int(self.env.now)
        self.events.append(self.chunk(dataset.request, phase, stream.begin_ns, now_ns, dataset.iteration))
        if stream.at + 1 < len(stream.phases):
            self._gate.move(stream)
            return
        self._arrive(stream)
        self._gate.leave(stream)

    def told(self, stream: Stream, spans: Sequence[Span], begin_ns: int) -> None:
        """The next phases of a chunk went by, between these times counted from a beginning."""
        self._write(stream.dataset, stream.phases[stream.at :], spans, begin_ns)
        stream.at += len(spans)
        if stream.at == len(stream.phases):
            self._arrive(stream)
        else:
            stream.phase = stream.phases[stream.at]

    def arrived(self, dataset: Dataset, spans: Sequence[Sequence[Span]], begin_ns: int) -> None:
        """All chunks of a collective went through all their phases, between these times counted from a beginning."""
        for phases, own in zip(dataset.chunks, spans, strict=True):
            self._write(dataset, phases, own, begin_ns)
        dataset.arrive()
        self._complete(dataset)

    def _write(self, dataset: Dataset, phases: Sequence[StreamPhase], spans: Sequence[Span], begin_ns: int) -> None:
        request, iteration, write = dataset.request, dataset.iteration, self.events.append
        for phase, (first_ns, last_ns) in zip(phases, spans, strict=False):
            write(self.chunk(request, phase, begin_ns + first_ns, begin_ns + last_ns, iteration))

    def chunk(self, request: Request, phase: StreamPhase, begin_ns: int, end_ns: int, iteration: int) -> Row:
        """The event of a chunk's phase."""
        return (
            self.npu_class, 1 + phase.lane.dim.index, begin_ns, end_ns, CHUNK, request.name, request.layer,
            request.phase, self.sent_bytes(phase), iteration,
        )  # fmt: skip

    def collective(self, request: Request, issue_ns: int, end_ns: int, iteration: int) -> Row:
        """The event of a collective."""
        row = (self.npu_class, 0, issue_ns, end_ns, COLLECTIVE, request.name)
        return (*row, request.layer, request.phase, request.size_bytes, iteration)

    def _arrive(self, stream: Stream) -> None:
        """All of a chunk is there."""
        streams = stream.dataset.streams
        del streams[stream.key]
        if not streams:
            self._complete(stream.dataset)

    @property
    def live(self) -> dict[tuple[str, int], Stream]:
        """The chunks on their way."""
        return {key: stream for dataset in self.outstanding for key, stream in dataset.streams.items()}

    def _complete(self, dataset: Dataset) -> None:
        """All chunks are there: after the update delay the collective is done."""
        dataset.order = self._order
        update_ns = dataset.request.update_ns
        if update_ns:
            timer = self.env.timeout(update_ns)
            timer.callbacks.append(lambda _: self._finish(dataset))
        else:
            self._finish(dataset)

    def _finish(self, dataset: Dataset) -> None:
        row = self.collective(dataset.request, int(dataset.issue_ns), int(self.env.now), dataset.iteration)
        self.events.append(row)
        self.close(dataset)

    def close(self, dataset: Dataset) -> None:
        """A collective is over: who waits for it goes on."""
        del self.outstanding[dataset]
        self.ended.append(dataset)
        if dataset.then:
            dataset.then()
        dataset.done.succeed()
