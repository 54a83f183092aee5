"""The system layer of one NPU (or class of equal NPUs): issues collectives, cuts them into chunks, starts their phases.

`PhaseMaker` makes the chunks' phases: sizes, dimensions in order, queues, trees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from simcore.network.instant import Environment, after
from simcore.system.chunks.gates import Gate, Owner, Span
from simcore.system.chunks.inter_dimension import DimensionOrder
from simcore.system.collectives import ROOTED
from simcore.system.precedence import Precedence
from simcore.system.streams import IDLE, Chunks, Dataset, Lane, Request, Stream, StreamPhase, Turns, through
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, EventKind
from simcore.workload.model import CollectiveKind

if TYPE_CHECKING:
    from simcore.system.meeting.ahead import Route

CHUNK, COLLECTIVE = int(EventKind.CHUNK), int(EventKind.COLLECTIVE)
Row = tuple[int, ...]


class Scheduler:
    """Queues of one NPU class; `phases` has what cuts the collectives of a communicator into phases."""

    def __init__(
        self,
        env: Environment,
        npu_class: int,
        phases: Callable[[str], PhaseMaker],
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
        self._carries = cache(lambda phase: (1 + phase.lane.dim.index, transport.bytes_sent(npu_class, phase)))
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
        chunks = self._phases(request.group).split(request, int(self.env.now), order)
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
        return self._phases(request.group).split(request, int(self.env.now), ())

    def replace(self, told: Dataset, request: Request, chunks: Chunks, issue_ns: int, priority: int) -> Dataset:
        """A collective that was sent at some time while another one was told ahead, and takes its place."""
        dataset = self._dataset(request, chunks, priority, told.iteration)
        dataset.issue_ns, dataset.done = issue_ns, told.done
        del self.outstanding[told]
        return dataset

    def pass_over(self, request: Request, order: Turns) -> None:
        """A collective that has nobody to go to: nothing is sent, but it takes its turn (ASTRA-sim)."""
        self._phases(request.group).pass_over(request, int(self.env.now), order)

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
        stream, size_bytes = self._carries(phase)
        row = (self.npu_class, stream, begin_ns, end_ns, CHUNK, request.name, request.layer, request.phase)
        return (*row, size_bytes, iteration)

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
            after(self.env, update_ns, partial(self._finish, dataset))
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


ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
GATHER, SCATTER = CollectiveKind.GATHER, CollectiveKind.SCATTER
REDUCE_SCATTER = CollectiveKind.REDUCE_SCATTER

# (kind of the phase, whether it is part of a decomposed all-reduce, queues per dimension) -> the queues that it takes
# in turn, each with whether they go the other way round there.
QueueChoice = Callable[[CollectiveKind, bool, int], tuple[tuple[int, bool], ...]]


class PhaseMaker:
    """Makes the phases of one NPU's chunks; keeps the round-robin counters of its queues and trees.

    `npu` is one of the NPUs. `chunks(kind, size_bytes, colours)` yields the sizes of a multiple of `colours` chunks.
    `order` says in which order a chunk visits the dimensions. What is `known` of collectives serves all NPUs.
    """

    def __init__(
        self,
        *,
        npu: int,
        chunks: Callable[[CollectiveKind, int, int], Iterator[int]],
        order: DimensionOrder,
        decompose: bool,
        num_queues: int,
        queue_choice: QueueChoice,
        known: dict[Hashable, Chunks],
    ):
        self._chunks, self._order, self._decompose = chunks, order, decompose
        self._npu, self._num_queues, self._queue_choice = npu, num_queues, queue_choice
        self._turns: dict[tuple[int, tuple[tuple[int, bool], ...]], int] = {}
        self._trees: dict[tuple[int, CollectiveKind], bool] = {}
        self._steady = num_queues == 1 and order.steady
        self._known = known

    def split(self, request: Request, now_ns: int, order: Turns) -> Chunks:
        """The phases of every chunk of a collective, issued by the NPUs in some order; none for an NPU alone.

        Where nothing is taken in turns, equal collectives are split only once.
        """
        if not self._steady or any(map(in_trees, request.lanes)):
            self._order.begin(now_ns, order)
            return tuple(self._split(request))
        place = (self._npu, request.root) if request.kind in ROOTED else ()
        key = (request.kind, request.size_bytes, request.lanes, place)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._split(request))
        return found

    def pass_over(self, request: Request, now_ns: int, order: Turns) -> None:
        """A collective that nobody takes part in."""
        self._order.begin(now_ns, order)
        if request.size_bytes:
            self._order.pass_over()

    def _split(self, request: Request) -> Iterator[tuple[StreamPhase, ...]]:
        if not request.lanes:
            return
        if self._order.balances(request.kind):
            yield from self._balanced(request)
            return
        colours = self._order.colours(request)
        for number, size_bytes in enumerate(self._chunks(request.kind, request.size_bytes, colours)):
            lanes = self._order.lanes(request, number)
            visits = [(request.kind, lane) for lane in lanes]
            if request.kind == ALL_REDUCE and self._decompose:
                down = [(REDUCE_SCATTER, lane) for lane in lanes[:-1]]
                visits = [*down, visits[-1], *((ALL_GATHER, lane) for _, lane in reversed(down))]
            yield self._phases(request, size_bytes, visits)

    def _balanced(self, request: Request) -> Iterator[tuple[StreamPhase, ...]]:
        """Chunks whose order evens out the dimensions' load; a decomposed all-reduce has no all-reduce phase then."""
        left = request.size_bytes
        chunk = next(self._chunks(request.kind, left, 1), 0)
        while left > 0:
            lanes, size_bytes = self._order.balanced(request, chunk, left)
            visits = [(request.kind, lane) for lane in lanes]
            if request.kind == ALL_REDUCE and self._decompose:
                visits = [(REDUCE_SCATTER, lane) for lane in lanes] + [(ALL_GATHER, lane) for lane in reversed(lanes)]
            yield self._phases(request, size_bytes, visits)
            left -= size_bytes

    def _phases(
        self, request: Request, size_bytes: int, visits: Sequence[tuple[CollectiveKind, Lane]]
    ) -> tuple[StreamPhase, ...]:
        decomposed = request.kind == ALL_REDUCE and self._decompose
        steps = []
        for (wanted, lane), root in zip(visits, self._roots(request, [lane for _, lane in visits]), strict=True):
            # The next queue of the dimension, in turn among those that this phase may use; it may go the other way.
            choice = self._queue_choice(wanted, decomposed, self._num_queues)
            turn = self._turns.get((lane.position, choice), 0)
            self._turns[lane.position, choice] = (turn + 1) % len(choice)
            queue, back = choice[turn]
            trees = in_trees(lane)
            mirrored = trees and self._trees.get((lane.position, request.kind), False)
            if trees:
                self._trees[lane.position, request.kind] = not mirrored
            way = lane.backward if back and not trees else lane
            steps.append((wanted, way, lane.position * self._num_queues + queue, mirrored, root))
        return _chain(size_bytes, tuple(steps))

    def _roots(self, request: Request, lanes: Sequence[Lane]) -> list[int]:
        """The root's place in the group of every phase, IDLE where the group has no part.

        A broadcast reaches the groups that are in line with the root in all dimensions to come, a reduction is left to
        those that are in line with it in all dimensions before.
        """
        if request.kind not in ROOTED:
            return [0] * len(lanes)
        places = [lane.dim.position(request.root) for lane in lanes]
        off = [lane.dim.position(self._npu) != place for lane, place in zip(lanes, places, strict=True)]
        down = request.kind in {CollectiveKind.BROADCAST, SCATTER}
        others = [off[at + 1 :] if down else off[:at] for at in range(len(lanes))]
        return [IDLE if any(other) else place for place, other in zip(places, others, strict=True)]


def in_trees(lane: Lane) -> bool:
    """Whether chunks take two trees in turns."""
    return lane.algorithm.traits.in_trees


@lru_cache(maxsize=1 << 14)
def _chain(data_bytes: int, steps: tuple[tuple[CollectiveKind, Lane, int, bool, int], ...]) -> tuple[StreamPhase, ...]:
    """The phases of a chunk: kinds, lanes, queues, trees, roots; all NPUs that do the same get the same ones."""
    phases = []
    for wanted, lane, queue, mirrored, root in steps:
        kind = ALL_REDUCE if in_trees(lane) else wanted  # a tree can only all-reduce, whatever its place (ASTRA-sim)
        final_bytes = data_bytes  # on one rank, after the phase
        if kind in {REDUCE_SCATTER, SCATTER}:
            final_bytes = data_bytes // lane.dim.size
        elif kind in {ALL_GATHER, GATHER}:
            final_bytes = data_bytes * lane.dim.size
        phases.append(_phase(kind, lane, data_bytes, final_bytes, queue, mirrored, root))
        data_bytes = final_bytes
    return tuple(phases)


_phase = lru_cache(maxsize=1 << 16)(StreamPhase)
