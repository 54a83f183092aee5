"""The system layer of one NPU (or class of equal NPUs): issues collectives, queues chunks, starts their phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import simpy

from simcore.system.gates import Gate
from simcore.system.phases import PhaseMaker
from simcore.system.precedence import Precedence
from simcore.system.streams import Dataset, Request, Stream, Turns
from simcore.timeline.events import EventBuffer, EventKind, LinkTable

__all__ = ["Scheduler", "Transport"]

CHUNK = int(EventKind.CHUNK)


class Transport(Protocol):
    """Plays one phase of one chunk on one NPU and calls back when the NPU leaves it."""

    def start(self, npu_class: int, stream: Stream, done: Callable[[Stream], None]) -> None:
        """Begin `stream.phase` now."""

    def bytes_sent(self, npu_class: int, stream: Stream) -> int:
        """What one NPU sends in the phase."""

    def links(self) -> LinkTable | None:
        """What every link carried, where links are modelled."""


class Scheduler:
    """Queues of one NPU class."""

    def __init__(
        self,
        env: simpy.Environment,
        npu_class: int,
        phases: PhaseMaker,
        transport: Transport,
        events: EventBuffer,
        gate: Callable[[int, Callable[[Stream], None]], Gate],
        precedence: Precedence | None = None,
    ):
        self.env, self.npu_class, self._phases, self._transport = env, npu_class, phases, transport
        self.events, self._gate = events, gate(npu_class, self._begin)
        self._precedence = precedence
        self._order: Turns = ()  # in which the NPUs do what is done now
        self._num_streams: dict[str, int] = {}
        self.outstanding: dict[Dataset, None] = {}  # in order of issue
        self.ended: list[Dataset] = []  # in order of their ends, for who waits for the last ones
        self.live: dict[tuple[str, int], Stream] = {}  # chunks on their way

    def issue(self, request: Request, order: Turns = ()) -> Dataset:
        """Send a collective on its way; the NPUs do so in some order, () = that of their ids."""
        dataset = Dataset(self.env, request)
        streams = []
        for phases in self._phases.split(request, int(self.env.now), order):
            number = self._num_streams.get(request.group, 0)
            streams.append(Stream((request.group, number), dataset, phases))
            self._num_streams[request.group] = number + 1
        dataset.remaining = len(streams)
        self.outstanding[dataset] = None
        self._order = ()  # the last NPU to issue lets all begin
        for stream in streams:
            self.live[stream.key] = stream
            self._gate.enter(stream)
            self._gate.refill(stream.phase.queue)
        if not streams:
            self._complete(dataset)
        return dataset

    def pass_over(self, request: Request, order: Turns) -> None:
        """A collective that has nobody to go to: nothing is sent, but it takes its turn (ASTRA-sim)."""
        self._phases.pass_over(request, int(self.env.now), order)

    def _begin(self, stream: Stream) -> None:
        stream.begin_ns, stream.begun = int(self.env.now), True
        stream.order = self._order
        self._transport.start(self.npu_class, stream, self._through)

    def _through(self, stream: Stream) -> None:
        """A chunk leaves its phase."""
        if self._precedence:
            self._order = self._precedence.after(stream.phase, stream.order)
        request, phase = stream.dataset.request, stream.phase
        sent_bytes = self._transport.bytes_sent(self.npu_class, stream)
        self.events.append(
            (
                self.npu_class, 1 + phase.lane.dim.index, stream.begin_ns, int(self.env.now), CHUNK, request.name,
                request.layer, request.phase, sent_bytes, request.iteration,
            )
        )  # fmt: skip
        self._advance(stream)

    def _advance(self, stream: Stream) -> None:
        """A phase is over: leave its queue, enter the next one's, refill the old, then the new (ASTRA-sim's order).

        Before its last chunk leaves, what waits for a collective goes on.
        """
        old = stream.phase.queue
        if stream.remaining:
            self._gate.leave(stream)
            stream.advance()
            self._gate.enter(stream)
            self._gate.refill(old)
            self._gate.refill(stream.phase.queue)
            return
        del self.live[stream.key]
        stream.dataset.remaining -= 1
        if stream.dataset.remaining == 0:
            self._complete(stream.dataset)
        self._gate.leave(stream)
        self._gate.refill(old)

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
        request = dataset.request
        row = (self.npu_class, 0, int(dataset.issue_ns), int(self.env.now), EventKind.COLLECTIVE, request.name)
        self.events.append((*row, request.layer, request.phase, request.size_bytes, request.iteration))
        del self.outstanding[dataset]
        self.ended.append(dataset)
        if dataset.then:
            dataset.then()
        dataset.done.succeed()
