"""From a collective to its chunks' phases: sizes, dimensions in order, queues, trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from simcore.system.collectives import ROOTED
from simcore.system.inter_dimension import DimensionOrder
from simcore.system.streams import IDLE, Chunks, Lane, Request, StreamPhase, Turns
from simcore.workload.model import CollectiveKind

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
GATHER, SCATTER = CollectiveKind.GATHER, CollectiveKind.SCATTER
REDUCE_SCATTER = CollectiveKind.REDUCE_SCATTER

# (kind of the phase, whether it is part of a decomposed all-reduce, queues per dimension) -> the queues that it takes
# in turn, each with whether they go the other way round there.
QueueChoice = Callable[[CollectiveKind, bool, int], tuple[tuple[int, bool], ...]]


class PhaseMaker:
    """Makes the phases of one NPU's chunks; keeps the round-robin counters of its queues and trees.

    `npu` is one of the NPUs. `chunks(kind, size_bytes, colours)` yields the sizes of a multiple of `colours` chunks.
    `order` says in which order a chunk visits the dimensions.
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
    ):
        self._chunks, self._order, self._decompose = chunks, order, decompose
        self._npu, self._num_queues, self._queue_choice = npu, num_queues, queue_choice
        self._turns: dict[tuple[int, tuple[tuple[int, bool], ...]], int] = {}
        self._trees: dict[tuple[int, CollectiveKind], bool] = {}
        self._steady = num_queues == 1 and order.steady
        self._known: dict[tuple[CollectiveKind, int, tuple[Lane, ...], int], Chunks] = {}

    def split(self, request: Request, now_ns: int, order: Turns) -> Chunks:
        """The phases of every chunk of a collective, issued by the NPUs in some order; none for an NPU alone.

        Where nothing is taken in turns, equal collectives are split only once.
        """
        if not self._steady or any(map(in_trees, request.lanes)):
            self._order.begin(now_ns, order)
            return tuple(self._split(request))
        key = (request.kind, request.size_bytes, request.lanes, request.root)
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
