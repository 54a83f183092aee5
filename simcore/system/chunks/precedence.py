"""Which NPU acts first of those that act in the same nanosecond: ASTRA-sim 1.0's events, those of all NPUs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, partial
from heapq import heappush
from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.network.instant import NORMAL, Entry, Environment
from simcore.system.alone.solver import transfers
from simcore.system.groups import Delay, RankGroup
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES
from simcore.system.plans.maker import Plans
from simcore.system.streams import StreamPhase, Turns

Call = Callable[[], None]


class _Batch(Struct, frozen=True, eq=False):
    """What every NPU sends at one time: it arrives after `delay_ns`, and is reduced in `reduction_ns` (-1: it is not).

    `receivers` of the messages that come last, by sender; in a tree those of each round, -1 where there is none.
    """

    delay_ns: int
    receivers: NDArray[np.int64] | Sequence[NDArray[np.int64]]
    endpoint_ns: int
    reduction_ns: int = -1
    tree: bool = False


class _Turn(Struct, eq=False):
    """What NPUs do at a time, one after the other, all of it in the place of one `entry`."""

    entry: Entry
    order: Turns
    calls: list[Call] = field(default_factory=list)
    over: bool = False


class Precedence:
    """The order of NPUs in all that they do: `Themis.begin` asks who issues a collective first.

    What an NPU does later joins all that it does then, in the place of what was asked for first. NPUs are all alike,
    without contention: what happens to all of them at one time is one event. `delay` times messages. Of `num_queues`
    queues of a dimension the second half goes round anticlockwise.
    """

    def __init__(self, npus: int, plans: Plans, delay: Delay, num_queues: int):
        self._npus, self._plans, self._delay, self._num_queues = npus, plans, delay, num_queues
        self._env, self._turns = Environment(), dict[float, _Turn]()
        self._sent: dict[tuple[float, _Batch | None], list[tuple[_Batch, Call]]] = defaultdict(list)
        self._left: dict[Hashable, Turns] = {}  # of every phase that has begun
        self._batches, self._arrival = cache(self._batches_of), cache(self._arrival_of)

    def later(self, time_ns: float, order: Turns, call: Call | None = None) -> None:
        """NPUs do something later, in an order, or in that of what they do then already."""
        turn = self._turns.get(time_ns)
        if turn is None or turn.over:
            turn = self._turns[time_ns] = _Turn(self._at(time_ns, self._ring), ())
        if len(turn.order) < self._npus:
            turn.order = tuple(dict.fromkeys((*turn.order, *(order or range(self._npus)))))
        if call:
            turn.calls.append(call)

    def now(self, time_ns: float, order: Turns) -> Turns:
        """The order of NPUs in what they do at a time, that of `order` if nothing is known of it."""
        turn = self._turns.get(time_ns)
        if turn is None:
            return order
        while self._env.calls and self._env.calls[0] < turn.entry:
            self._env.step()
        return turn.order

    def begin(self, name: Hashable, phase: StreamPhase, time_ns: float, order: Turns) -> None:
        """NPUs begin a phase, of which one of them tells."""
        if name not in self._left:
            self._left[name] = ()
            go_on = partial(self._go_on, name, iter(self._batches(phase)))
            self.later(time_ns + self._plans.costs.of(phase.lane.dim).endpoint_ns, order, go_on)

    def after(self, name: Hashable) -> Turns:
        """Who leaves a phase first."""
        while not self._left[name]:
            self._env.step()
        return self._left[name]

    def _at(self, time_ns: float, call: Call) -> Entry:
        entry = time_ns, NORMAL, next(self._env.numbers), call
        heappush(self._env.calls, entry)
        return entry

    def _ring(self) -> None:
        """NPUs do one after the other all that they do now; what they send is on its way."""
        now_ns = self._env.now
        self._turns = {each: turn for each, turn in self._turns.items() if each >= now_ns}
        turn = self._turns[now_ns]
        for call in turn.calls:  # grows while it runs
            call()
        turn.over = True
        for (arrival_ns, _), sent in self._sent.items():
            self._at(arrival_ns, partial(self._arrive, sent, turn.order))
        self._sent.clear()

    def _go_on(self, name: Hashable, batches: Iterator[_Batch], first: Turns = ()) -> None:
        """Send the next messages of a phase, or leave it, behind those that were through before."""
        batch = next(batches, None)
        if batch:
            sent = self._sent[self._env.now + batch.delay_ns, batch if batch.tree else None]
            sent.append((batch, partial(self._go_on, name, batches)))
        else:
            self._left[name] = tuple(dict.fromkeys((*first, *self._turns[self._env.now].order)))

    def _arrive(self, sent: Sequence[tuple[_Batch, Call]], order: Turns) -> None:
        order = self._arrival(tuple(batch for batch, _ in sent), order)
        for batch, go_on in sent:
            then = go_on if batch.reduction_ns < 0 else partial(self._reduce, batch.reduction_ns, go_on)
            last = -np.count_nonzero(batch.receivers[-1] >= 0) if batch.tree else 0
            self.later(self._env.now + batch.endpoint_ns, order[last:], partial(go_on, order[:last]) if last else then)

    def _reduce(self, reduction_ns: int, go_on: Call) -> None:
        self.later(self._env.now + reduction_ns, self._turns[self._env.now].order, go_on)

    def _arrival_of(self, batches: tuple[_Batch, ...], order: Turns) -> Turns:
        """In which order NPUs get the first of the messages that others send one after the other."""
        senders = np.array(order)
        rounds = batches[0].receivers if batches[0].tree else [np.hstack([batch.receivers for batch in batches])]
        for receivers in rounds:  # who gets something comes behind those who do not
            there = receivers[senders].ravel()
            first = np.sort(np.unique(there, return_index=True)[1])
            found = there[first][there[first] >= 0]
            senders = np.concatenate([senders[~np.isin(senders, found)], found])
        return tuple(senders.tolist())

    def _batches_of(self, phase: StreamPhase) -> Sequence[_Batch]:
        """What a phase sends, batch by batch."""
        plan, dim = self._plans.of(phase, 0), phase.lane.dim
        costs, group = self._plans.costs.of(dim), RankGroup(dim.members(0), self._delay)
        npus, place = np.arange(self._npus), np.array([*map(dim.position, range(self._npus))])
        if plan.transfers:
            exits = transfers(plan, group, np.zeros(len(group), np.int64), self._plans.costs)
            rounds = [np.full((self._npus, plan.size), -1) for _ in range(1 + plan.transfers[-1].step)]
            for each in plan.transfers:
                own = npus[place == each.src]
                rounds[each.step][own, each.dst] = own + group.members[each.dst] - group.members[each.src]
            return [_Batch(int(exits.max()) - 2 * costs.endpoint_ns, rounds, costs.endpoint_ns, tree=True)]
        turn, entries, half = phase.queue % self._num_queues, plan.expanded, plan.half
        step = -1 if turn and turn >= self._num_queues // 2 else 1
        asks, found = [RENDEZVOUS_BYTES] if costs.rendezvous else [], []
        ends = [*range(0, half, plan.window), *range(half, len(entries), plan.window), len(entries)]
        for first, end in pairwise(ends):
            batch, reduced = entries[first:end], entries[first].reduce_bytes
            sizes = [(*asks, entry.size_bytes) for entry in batch]
            times = [
                sum(group.delays(entry.hop, plan.moves, each)[0].item() for each in own)
                for entry, own in zip(batch, sizes, strict=True)
            ]
            hops = np.array([entry.hop for entry, time in zip(batch, times, strict=True) if time == max(times)])
            there = place[:, None] ^ hops if plan.exchange else (place[:, None] + step * hops) % plan.size
            receivers = npus[:, None] + group.members[there] - group.members[place][:, None]
            if asks:  # who asks first is served first
                receivers = npus[:, None]
            reduction_ns = costs.reduction_ns(reduced) if reduced else -1
            found.append(_Batch(max(times), receivers, costs.endpoint_ns, reduction_ns))
        return found
