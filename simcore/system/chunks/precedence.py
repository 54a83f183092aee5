"""Which NPU acts first of those that act in the same nanosecond: ASTRA-sim 1.0's events, those of all NPUs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count, pairwise

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.system.alone.solver import transfers
from simcore.system.groups import Delay, RankGroup
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES
from simcore.system.plans.maker import Plans
from simcore.system.plans.plan import Plan
from simcore.system.streams import StreamPhase, Turns


class _Batch(Struct, frozen=True, eq=False):
    """What every NPU sends at one time: it arrives after `delay_ns`, and is reduced in `reduction_ns` (-1: it is not).

    `receivers` of the messages that come last, by sender; those of a tree are in the order of these numbers.
    """

    delay_ns: int
    receivers: NDArray[np.int64]
    reduction_ns: int = -1
    ranked: bool = False


class _Playing(Struct, eq=False):
    """A phase of a chunk, by `name`: the batches that are still to be sent, the next one last."""

    name: Hashable
    batches: list[_Batch]
    endpoint_ns: int


class _Turn(Struct, eq=False):
    """What NPUs do at a time, one after the other, in the place of the event `number`."""

    number: int
    order: Turns
    calls: list[Callable[[float], None]] = field(default_factory=list)
    over: bool = False


class Precedence:
    """The order of NPUs in all that they do: `Themis.begin` asks who issues a collective first.

    What an NPU does later joins all that it does then, in the place of what was asked for first. NPUs are all alike,
    without contention: what happens to all of them at one time is one event. `delay` times messages. Of `num_queues`
    queues of a dimension the second half goes round anticlockwise.
    """

    def __init__(self, npus: int, plans: Plans, delay: Delay, num_queues: int):
        self._npus, self._plans, self._delay, self._num_queues = npus, plans, delay, num_queues
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._turns: dict[float, _Turn] = {}
        self._sent: dict[tuple[float, bool], list[tuple[_Batch, _Playing]]] = defaultdict(list)
        self._left: dict[Hashable, Turns] = {}  # of every phase that has begun
        self._batches, self._arrival = cache(self._batches_of), cache(self._arrival_of)

    def later(self, time_ns: float, order: Turns, call: Callable[[float], None] | None = None) -> None:
        """NPUs do something later, in an order, or in that of what they do then already."""
        if time_ns not in self._turns or self._turns[time_ns].over:
            number = self._at(time_ns, partial(self._ring, time_ns))
            self._turns[time_ns] = _Turn(number, order or tuple(range(self._npus)))
        if call:
            self._turns[time_ns].calls.append(call)

    def now(self, time_ns: float, order: Turns) -> Turns:
        """The order of NPUs in what they do at a time, that of `order` if nothing is known of it."""
        if time_ns not in self._turns:
            return order
        turn = self._turns[time_ns]
        while self._events and self._events[0][:2] < (time_ns, turn.number):
            heappop(self._events)[2]()
        return turn.order

    def begin(self, name: Hashable, phase: StreamPhase, time_ns: float, order: Turns) -> None:
        """NPUs begin a phase, of which one of them tells."""
        if name in self._left:
            return
        self._left[name] = ()
        endpoint_ns = self._plans.costs.of(phase.lane.dim).endpoint_ns
        playing = _Playing(name, [*reversed(self._batches(phase))], endpoint_ns)
        self.later(time_ns + endpoint_ns, order, partial(self._go_on, playing))

    def after(self, name: Hashable) -> Turns:
        """Who leaves a phase first."""
        while not self._left[name]:
            heappop(self._events)[2]()
        return self._left[name]

    def _at(self, time_ns: float, call: Callable[[], None]) -> int:
        number = next(self._numbers)
        heappush(self._events, (time_ns, number, call))
        return number

    def _ring(self, time_ns: float) -> None:
        """NPUs do one after the other all that they do now; what they send is on its way."""
        self._turns = {each: turn for each, turn in self._turns.items() if each >= time_ns}
        turn = self._turns[time_ns]
        for call in turn.calls:  # grows while it runs
            call(time_ns)
        turn.over = True
        sent, self._sent = self._sent, defaultdict(list)
        for (arrival_ns, _), some in sent.items():
            self._at(arrival_ns, partial(self._arrive, arrival_ns, some, turn.order))

    def _go_on(self, playing: _Playing, time_ns: float) -> None:
        """Send the next messages of a phase, or leave it."""
        if playing.batches:
            batch = playing.batches.pop()
            self._sent[time_ns + batch.delay_ns, batch.ranked].append((batch, playing))
        else:
            self._left[playing.name] = self._turns[time_ns].order

    def _arrive(self, time_ns: float, some: Sequence[tuple[_Batch, _Playing]], order: Turns) -> None:
        order = self._arrival(tuple(batch for batch, _ in some), order)
        for batch, playing in some:
            go_on = partial(self._go_on, playing)
            call = go_on if batch.reduction_ns < 0 else partial(self._reduce, batch.reduction_ns, go_on)
            self.later(time_ns + playing.endpoint_ns, order, call)

    def _reduce(self, reduction_ns: int, go_on: Callable[[float], None], time_ns: float) -> None:
        self.later(time_ns + reduction_ns, self._turns[time_ns].order, go_on)

    def _arrival_of(self, batches: tuple[_Batch, ...], order: Turns) -> Turns:
        """In which order NPUs get the first of the messages that others send one after the other."""
        senders = np.array(order)
        if batches[0].ranked:
            ranked: list[int] = senders[np.argsort(batches[0].receivers[senders], kind="stable")].tolist()
            return tuple(ranked)
        receivers = np.concatenate([batch.receivers[senders] for batch in batches], axis=1).ravel()
        found: list[int] = receivers[np.sort(np.unique(receivers, return_index=True)[1])].tolist()
        return tuple(found)

    def _batches_of(self, phase: StreamPhase) -> Sequence[_Batch]:
        """What a phase sends, batch by batch."""
        plan, dim = self._plans.of(phase, 0), phase.lane.dim
        group, place = RankGroup(dim.members(0), self._delay), np.array([*map(dim.position, range(self._npus))])
        costs = self._plans.costs.of(dim)
        if plan.transfers:  # places of a tree differ: who is through first
            exits = transfers(plan, group, np.zeros(len(group), np.int64), self._plans.costs)
            return [_Batch(int(exits.max()) - 2 * costs.endpoint_ns, exits[place], ranked=True)]
        entries, half = plan.expanded, plan.half
        ends = [*range(0, half, plan.window), *range(half, len(entries), plan.window), len(entries)]
        found = []
        for first, end in pairwise(ends):
            hops, time_ns = self._last(plan, phase, group, first, end)
            there = place[:, None] ^ hops if plan.exchange else (place[:, None] + hops) % plan.size
            receivers = np.arange(self._npus)[:, None]
            if not costs.rendezvous:  # there who asks first is served first
                receivers = receivers + group.members[there] - group.members[place][:, None]
            reduce_bytes = entries[first].reduce_bytes
            reduction_ns = costs.reduction_ns(reduce_bytes) if reduce_bytes else -1
            found.append(_Batch(time_ns, receivers, reduction_ns))
        return found

    def _last(
        self, plan: Plan, phase: StreamPhase, group: RankGroup, first: int, end: int
    ) -> tuple[NDArray[np.int64], int]:
        """How far go those of some messages that arrive last, and when they do."""
        turn, entries = phase.queue % self._num_queues, plan.expanded[first:end]
        step = -1 if turn and turn >= self._num_queues // 2 and not plan.exchange else 1
        asks = [RENDEZVOUS_BYTES] if self._plans.costs.rendezvous else []
        times = [
            sum(group.delays(entry.hop, plan.moves, each)[0].item() for each in (*asks, entry.size_bytes))
            for entry in entries
        ]
        hops = [entry.hop for entry, time in zip(entries, times, strict=True) if time == max(times)]
        return step * np.array(hops), max(times)
