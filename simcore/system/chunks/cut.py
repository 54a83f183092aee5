"""Into what a collective is cut: chunks, and of each its phases in the dimensions, one after the other.

A chunk visits the dimensions in ascending order, in turns, in colours, or by load (Themis, ISCA 2022). The figures and
corner cases are ASTRA-sim 1.0's; colours, each starting in a dimension of its own, are native.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, field

from simcore.system.collectives import ROOTED
from simcore.system.streams import IDLE, Chunks, Lane, Request, StreamPhase, Turns
from simcore.workload.model import CollectiveKind

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
GATHER, SCATTER = CollectiveKind.GATHER, CollectiveKind.SCATTER
REDUCE_SCATTER, BROADCAST = CollectiveKind.REDUCE_SCATTER, CollectiveKind.BROADCAST
SPREADING = {ALL_GATHER, BROADCAST, SCATTER}
NEVER_BALANCED = {CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER, *ROOTED}
THEMIS = ("themis", "themisFlex")
_MEBIBYTE, _SMALLEST_SHARE = 1 << 20, 16

# (kind of the phase, whether it is part of a decomposed all-reduce, queues per dimension) -> the queues that it takes
# in turn, each with whether they go the other way round there.
QueueChoice = Callable[[CollectiveKind, bool, int], tuple[tuple[int, bool], ...]]
ChunkSizes = Callable[[CollectiveKind, int, int], Iterator[int]]
"""Of a collective and its bytes: the sizes of a multiple of so many chunks."""


class Cutting(Struct, frozen=True):
    """How collectives are cut, whichever NPU sends them.

    `policy` says in which order a chunk visits the dimensions; `sizes` and `bandwidths` (any common unit) are those of
    all logical dimensions, of which a kind takes the first `counts`, where it does not take all. With `afresh`, no
    collective finds loads of another: where NPUs begin together they must agree, whenever each sends. Where nothing is
    taken in turns, what is `known` of collectives serves all NPUs.
    """

    policy: str
    sizes: Sequence[int]
    bandwidths: Sequence[float]
    chunks: ChunkSizes
    queue_choice: QueueChoice
    num_queues: int = 1
    decompose: bool = True
    afresh: bool = False
    counts: Mapping[CollectiveKind, int] = {}
    known: dict[Hashable, Chunks] = field(default_factory=dict)

    def balances(self, kind: CollectiveKind) -> bool:
        """Whether loads decide; they never do for an all-to-all, a barrier or a rooted collective."""
        return self.policy in THEMIS and kind not in NEVER_BALANCED

    @property
    def steady(self) -> bool:
        """Whether equal collectives get equal orders and queues."""
        return self.num_queues == 1 and self.policy not in {*THEMIS, "roundRobin"}


class PhaseMaker:
    """Makes the phases of the chunks of one NPU, which takes dimensions, queues and trees in turns."""

    def __init__(self, npu: int, rules: Cutting):
        self._npu, self._rules = npu, rules
        self._turns: dict[Hashable, int] = {}
        reference = next((bandwidth for bandwidth in rules.bandwidths if bandwidth), 1.0)  # a single NPU has no links
        speeds = [(bandwidth or reference) / reference for bandwidth in rules.bandwidths]
        self._themis = Themis(rules.sizes, speeds, flexible=rules.policy == "themisFlex")

    def split(self, request: Request, now_ns: int, order: Turns) -> Chunks:
        """The phases of every chunk of a collective, issued by the NPUs in some order; none for an NPU alone.

        Where nothing is taken in turns, equal collectives are split only once.
        """
        if not self._rules.steady or any(map(in_trees, request.lanes)):
            self._issue(now_ns, order)
            return tuple(self._split(request))
        place = (self._npu, request.root) if request.kind in ROOTED else ()
        key = (request.kind, request.size_bytes, request.most_bytes, request.lanes, place)
        found = self._rules.known.get(key)
        if found is None:
            found = self._rules.known[key] = tuple(self._split(request))
        return found

    def pass_over(self, request: Request, now_ns: int, order: Turns) -> None:
        """A collective that nobody takes part in still takes its turn (ASTRA-sim)."""
        self._issue(now_ns, order)
        self._pass_over(request)

    def _pass_over(self, request: Request) -> None:
        if request.size_bytes:
            self._first_dimension(request.kind)

    def _issue(self, now_ns: int, order: Turns) -> None:
        """A collective is issued, by the NPUs in some order."""
        if self._rules.policy in THEMIS:
            if self._rules.afresh:
                self._themis.clear()
            else:
                self._themis.begin(now_ns, late=order.first != 0)

    def _first_dimension(self, kind: CollectiveKind) -> int:
        """Which of its dimensions has its turn; behind a kind's last one the turn of all kinds begins anew.

        ASTRA-sim 1.0 has one turn, too, which another kind may have taken just beyond the last dimension of this one.
        """
        turn, count = self._turns.get("dimension", 0), self._count(kind)
        self._turns["dimension"] = 0 if turn + 1 == count or turn > count else turn + 1
        return turn

    def _count(self, kind: CollectiveKind) -> int:
        """How many dimensions a kind may take."""
        return self._rules.counts.get(kind, len(self._rules.sizes))

    def _turn(self, what: Hashable, count: int) -> int:
        """Which of so many has its turn; the next one has the next."""
        turn = self._turns.get(what, 0)
        self._turns[what] = (turn + 1) % count
        return turn

    def _split(self, request: Request) -> Iterator[tuple[StreamPhase, ...]]:
        if not request.lanes:
            return
        # A decomposed all-reduce all-reduces in the last dimension only, and nowhere where loads decide.
        last = 0 if self._rules.balances(request.kind) else 1
        for lanes, size_bytes in self._chunks(request):
            visits = [(request.kind, lane) for lane in lanes]
            if request.kind == ALL_REDUCE and self._rules.decompose:
                inner = lanes[: len(lanes) - last]
                there, back = ([(kind, lane) for lane in inner] for kind in (REDUCE_SCATTER, ALL_GATHER))
                visits = [*there, *visits[len(inner) :], *reversed(back)]
            yield self._phases(request, size_bytes, visits)

    def _chunks(self, request: Request) -> Iterator[tuple[list[Lane], int]]:
        """As `_cut`, but that an NPU gives its share of what somebody gives who gives more."""
        own_bytes, most_bytes, end_bytes = request.size_bytes, max(request.size_bytes, request.most_bytes), 0
        for lanes, size_bytes in self._cut(request, most_bytes):
            begin_bytes, end_bytes = end_bytes, end_bytes + size_bytes
            if own_bytes == most_bytes:
                yield lanes, size_bytes
            else:
                yield lanes, own_bytes * end_bytes // most_bytes - own_bytes * begin_bytes // most_bytes

    def _cut(self, request: Request, left_bytes: int) -> Iterator[tuple[list[Lane], int]]:
        """The dimensions of each chunk of so many bytes, in order, and its size; the least loaded first, or in turn."""
        lanes, rules = {lane.position: lane for lane in request.lanes}, self._rules
        if not rules.balances(request.kind):
            # As many chunks start in different dimensions at once as there are colours.
            colours = len(request.lanes) if rules.policy == "colours" else 1
            for number, size_bytes in enumerate(rules.chunks(request.kind, left_bytes, colours)):
                yield [lanes[position] for position in self._visits(request, number) if position in lanes], size_bytes
            return
        gathers = request.kind == ALL_GATHER
        full_bytes = next(rules.chunks(request.kind, left_bytes, 1), 0)
        while left_bytes > 0:
            order, size_bytes = self._themis.chunk(lanes, full_bytes, left_bytes, gathers=gathers)
            yield [lanes[position] for position in order], size_bytes
            left_bytes -= size_bytes

    def _visits(self, request: Request, number: int) -> list[int]:
        """The dimensions of a collective's `number`-th chunk, in order; all that spreads data starts outermost."""
        colours = self._rules.policy == "colours"
        order = [lane.position for lane in request.lanes] if colours else list(range(self._count(request.kind)))
        first = number % len(order) if colours else 0
        order = order[first:] + order[:first]
        if request.kind in SPREADING:
            order.reverse()
        if self._rules.policy == "roundRobin":
            turn = self._first_dimension(request.kind)
            order = order[turn:] + order[:turn]
        return order

    def _phases(
        self, request: Request, size_bytes: int, visits: Sequence[tuple[CollectiveKind, Lane]]
    ) -> tuple[StreamPhase, ...]:
        rules, steps = self._rules, []
        decomposed = request.kind == ALL_REDUCE and rules.decompose
        for (wanted, lane), root in zip(visits, self._roots(request, [lane for _, lane in visits]), strict=True):
            # The next queue of the dimension, in turn among those that this phase may use; it may go the other way.
            choice = rules.queue_choice(wanted, decomposed, rules.num_queues)
            queue, back = choice[self._turn((lane.position, choice), len(choice))]
            trees = in_trees(lane)
            pair = lane.position, request.group if lane.local else "", request.kind
            mirrored = trees and self._turn(pair, 2) == 1
            way = lane.backward if back and not trees else lane
            steps.append((wanted, way, lane.position * rules.num_queues + queue, mirrored, root))
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
        down = request.kind in {BROADCAST, SCATTER}
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


class Themis:
    """Loads of all logical dimensions, in ms of the first one's bandwidth per MiB, and the order they were last in.

    `speeds` are bandwidths in units of the first one's. With `flexible`, a chunk is as large as the difference between
    loads (themisFlex).
    """

    def __init__(self, sizes: Sequence[int], speeds: Sequence[float], *, flexible: bool):
        self._sizes, self._speeds, self._flexible = sizes, speeds, flexible
        self._last_issue_ns, self._overdue = -1, False
        self.clear()

    def clear(self) -> None:
        """Forget all loads."""
        self._loads = [0.0] * len(self._sizes)
        self._sorted = list(range(len(self._sizes)))

    def begin(self, now_ns: int, *, late: bool) -> None:
        """A collective is issued: in a later nanosecond than the one before it finds no load.

        NPU 0 clears the loads. When it is `late`, another one has planned all chunks on the old ones before.
        """
        if self._overdue or (now_ns > self._last_issue_ns and not late):
            self.clear()
        self._overdue = late and now_ns > self._last_issue_ns
        self._last_issue_ns = now_ns

    def chunk(
        self, usable: Collection[int], chunk_bytes: int, left_bytes: int, *, gathers: bool
    ) -> tuple[list[int], int]:
        """The usable dimensions in the order of the next chunk, and how large it is.

        When the loads differ by too little for a chunk of `chunk_bytes` to even them out, the plain order is used.
        """
        self._sorted.sort(key=self._loads.__getitem__)
        if gathers:
            self._sorted.reverse()
        order = [place for place in self._sorted if place in usable]
        if not order:
            return [], min(left_bytes, chunk_bytes)
        slack = self._slack_bytes(order, gathers)
        if slack < (chunk_bytes if self._flexible else chunk_bytes // _SMALLEST_SHARE):
            size_bytes = min(left_bytes, chunk_bytes)
            self._sorted.sort()
            booked = self._sorted[::-1] if gathers else self._sorted  # an all-gather's loads are from the other end
            self._add_loads(sorted(order), size_bytes if self._flexible else chunk_bytes, gathers, booked)
            return sorted(order), size_bytes
        size_bytes = min(left_bytes, slack if self._flexible else chunk_bytes)
        self._add_loads(order, slack if self._flexible else chunk_bytes, gathers, range(len(self._sizes)))
        return order, size_bytes

    def _slack_bytes(self, order: Sequence[int], gathers: bool) -> int:
        """Bytes that would even out the loads of the first usable dimension and the last one."""
        first, last = order[0], order[-1] if gathers else self._sorted[-1]
        if self._sizes[last if gathers else first] == 1:
            return 0  # an algorithm of the whole machine, placed at a dimension of one NPU
        difference = abs(self._loads[last] - self._loads[first])
        if not gathers:
            ranks = self._sizes[first]
            return int(difference * self._speeds[first] / ((ranks - 1) / ranks) * _MEBIBYTE)
        slack = int(difference * self._speeds[last] / (self._sizes[last] - 1) * _MEBIBYTE)
        for place in order[:-1]:
            slack //= self._sizes[place]
        return slack

    def _add_loads(self, order: Sequence[int], chunk_bytes: int, gathers: bool, booked: Sequence[int]) -> None:
        """Charge a chunk, whole even where less is left, to the dimensions that `booked` names in place of `order`."""
        for place in order:
            ranks = self._sizes[place]
            share = ranks - 1 if gathers else (ranks - 1) / ranks
            self._loads[booked[place]] += chunk_bytes / _MEBIBYTE * share / self._speeds[place]
            chunk_bytes = chunk_bytes * ranks if gathers else chunk_bytes // ranks
