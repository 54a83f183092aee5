"""Which NPU acts first of those that act in the same nanosecond: ASTRA-sim 1.0's events, those of all NPUs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache, partial
from heapq import heappush
from itertools import groupby, pairwise
from operator import attrgetter

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from simcore.network.instant import NORMAL, Entry, Environment
from simcore.network.topology.fabric import IntArray
from simcore.system.groups import Delay, RankGroup
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES
from simcore.system.plans.maker import Costs, Plans
from simcore.system.plans.plan import Transfer
from simcore.system.streams import StreamPhase, Turns

Call = Callable[[IntArray], None]
"""What all NPUs do, each in its place among what it does then: the places are those of each NPU."""


class _Batch(Struct, frozen=True, eq=False):
    """What NPUs send at one time: it arrives after `delay_ns`, and is reduced in `reduction_ns` (-1: it is not).

    `receivers` of the messages that come last, by sender, -1 for none; `some` are those where not all get any.
    """

    delay_ns: int
    receivers: IntArray
    endpoint_ns: int
    reduction_ns: int = -1
    some: frozenset[int] = frozenset()


class _Turn(Struct, eq=False):
    """What NPUs do at a time, one NPU after the other, all of it in the place of one `entry`.

    What one of `width` calls asks for goes behind all of them.
    """

    entry: Entry
    order: Turns
    calls: list[tuple[IntArray, Call]] = field(default_factory=list)
    over: bool = False
    width: int = 0


_Sent = list[tuple[_Batch, IntArray, Call]]


class Precedence:
    """The order of NPUs in all that they do: `Themis.begin` asks who issues a collective first.

    What an NPU does later joins all that it does then, in the place of what was asked for first. NPUs are all alike,
    without contention: what happens to all of them at one time is one event. `delay` times messages. Of `num_queues`
    queues of a dimension the second half goes round anticlockwise.
    """

    def __init__(self, npus: int, plans: Plans, delay: Delay, num_queues: int):
        self._npus, self._plans, self._delay, self._num_queues = npus, plans, delay, num_queues
        self._env, self._turns, self._asked = Environment(), dict[float, _Turn](), 0
        self._sent: dict[float, _Sent] = defaultdict(list)
        self._begun, self._left = set[Hashable](), dict[Hashable, tuple[int, Turns]]()  # of phases
        self._batches, self._arrival = cache(self._batches_of), cache(self._arrival_of)

    def later(self, time_ns: float, order: Turns, call: Call | None = None, places: IntArray | None = None) -> None:
        """NPUs do something later, in an order, or in that of what they do then already."""
        turn = self._turns.get(time_ns)
        if turn is None or turn.over:
            turn = self._turns[time_ns] = _Turn(self._at(time_ns, self._ring), order or tuple(range(self._npus)))
        elif len(turn.order) < self._npus:
            turn.order = tuple(dict.fromkeys((*turn.order, *(order or range(self._npus)))))
        if call:
            self._asked += 1
            turn.calls.append((np.full(self._npus, self._asked) if places is None else places, call))

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
        if name not in self._begun:
            self._begun.add(name)
            go_on = partial(self._go_on, name, iter(self._batches(phase)), (), frozenset())
            self.later(time_ns + self._plans.costs.of(phase.lane.dim).endpoint_ns, order, go_on)

    def after(self, names: Iterable[Hashable]) -> tuple[Hashable, Turns]:
        """Which of some phases is over first, and who leaves it first."""
        names = list(names)
        while not self._left.keys() >= set(names):
            self._env.step()
        first = min(names, key=self._left.__getitem__)
        return first, self._left[first][1]

    def _at(self, time_ns: float, call: Callable[[], None]) -> Entry:
        entry = time_ns, NORMAL, next(self._env.numbers), call
        heappush(self._env.calls, entry)
        return entry

    def _ring(self) -> None:
        """NPUs do one after the other all that they do now; what they send is on its way.

        The last of them says in which order phases are over.
        """
        now_ns = self._env.now
        self._turns = {each: turn for each, turn in self._turns.items() if each >= now_ns}
        turn = self._turns[now_ns]
        last = turn.order[-1]
        turn.width = len(turn.calls)
        if turn.calls:
            ranks = self._asked + _ranks([places for places, _ in turn.calls])
            turn.calls = [(own, call) for own, (_, call) in zip(ranks, turn.calls, strict=True)]
            self._asked += 2 * turn.width
        while turn.calls:  # grows while it runs
            at = min(range(len(turn.calls)), key=lambda number: turn.calls[number][0][last])
            places, call = turn.calls.pop(at)
            call(places)
        turn.over = True
        for arrival_ns, sent in self._sent.items():
            self._at(arrival_ns, partial(self._arrive, sent, turn.order))
        self._sent.clear()

    def _go_on(
        self, name: Hashable, batches: Iterator[_Batch], before: Turns, some: frozenset[int], places: IntArray
    ) -> None:
        """Send the next messages of a phase, or leave it; `some` have got those before it, in place of all."""
        order = self._turns[self._env.now].order
        if some:
            order = (*(npu for npu in before if npu not in some), *(npu for npu in order if npu in some))
        batch = next(batches, None)
        if batch:
            go_on = partial(self._go_on, name, batches, order, batch.some)
            self._sent[self._env.now + batch.delay_ns].append((batch, places, go_on))
        else:
            self._left[name] = next(self._env.numbers), order

    def _arrive(self, sent: _Sent, order: Turns) -> None:
        ranks = _ranks([places for _, places, _ in sent]).tobytes()
        order, found = self._arrival(tuple(batch for batch, _, _ in sent), ranks, order)
        asked = self._asked = self._asked + 1
        for (batch, _, go_on), places in zip(sent, found, strict=True):
            then = go_on if batch.reduction_ns < 0 else partial(self._reduce, batch, go_on)
            self.later(self._env.now + batch.endpoint_ns, order, then, asked + places)
        self._asked += sum(batch.receivers.size for batch, _, _ in sent)

    def _reduce(self, batch: _Batch, go_on: Call, places: IntArray) -> None:
        turn = self._turns[self._env.now]
        order = tuple(npu for npu in turn.order if npu in batch.some) if batch.some else turn.order
        self.later(self._env.now + batch.reduction_ns, order, go_on, places + turn.width)

    def _arrival_of(self, batches: tuple[_Batch, ...], ranks: bytes, order: Turns) -> tuple[Turns, list[IntArray]]:
        """In which order NPUs get messages that others send one after the other, each its batches by their ranks.

        Where NPUs get the last message of each batch, too.
        """
        senders, count = np.array(order), len(batches)
        if count == 1 and not batches[0].some and batches[0].receivers.shape[1] == 1:  # all get one message
            return tuple(batches[0].receivers[senders, 0].tolist()), [np.zeros(self._npus, np.int64)]
        turns = np.arange(len(senders)) * count + np.frombuffer(ranks, np.int64).reshape(count, -1)[:, senders]
        rows = [batch.receivers[senders] for batch in batches]
        when = np.concatenate([np.repeat(own, row.shape[1]) for own, row in zip(turns, rows, strict=True)])
        whose = np.repeat(np.arange(count), [row.size for row in rows])
        there = np.concatenate([row.ravel() for row in rows])
        line = np.argsort(when, kind="stable")
        line = line[there[line] >= 0]
        receivers, first = np.unique(there[line], return_index=True)
        found = np.zeros((count, self._npus), np.int64)
        found[whose[line], there[line]] = np.arange(len(line))
        return tuple(receivers[np.argsort(first)].tolist()), list(found)

    def _batches_of(self, phase: StreamPhase) -> Sequence[_Batch]:
        """What a phase sends, batch by batch."""
        plan, dim = self._plans.of(phase, 0), phase.lane.dim
        costs, group = self._plans.costs.of(dim), RankGroup(dim.members(0), self._delay)
        npus, place = np.arange(self._npus), np.array([*map(dim.position, range(self._npus))])
        if plan.transfers:
            steps = groupby(plan.transfers, attrgetter("step"))
            return [_step(list(own), group, place, costs) for _, own in steps]
        turn, entries, half = phase.queue % self._num_queues, plan.expanded, plan.half
        full = self._plans.of(replace(phase, data_bytes=max(phase.data_bytes, plan.size)), 0).expanded
        step = -1 if turn and turn >= self._num_queues // 2 else 1
        asks, found = [RENDEZVOUS_BYTES] if costs.rendezvous else [], []
        ends = [*range(0, half, plan.window), *range(half, len(entries), plan.window), len(entries)]
        for first, end in pairwise(ends):
            batch, reduces = entries[first:end], full[first].reduce_bytes > 0  # also what has no bytes
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
            reduction_ns = costs.reduction_ns(entries[first].reduce_bytes) if reduces else -1
            found.append(_Batch(max(times), receivers, costs.endpoint_ns, reduction_ns))
        return found


def _step(transfers: Sequence[Transfer], group: RankGroup, place: IntArray, costs: Costs) -> _Batch:
    """What NPUs send in one step of a tree."""
    some, sends = np.arange(len(place)), defaultdict[int, list[int]](list)
    for each in transfers:
        sends[each.src].append(each.dst)
    receivers = np.full((len(place), max(map(len, sends.values()))), -1)
    for src, dst in sends.items():
        own = some[place == src]
        receivers[own, : len(dst)] = own[:, None] + group.members[dst] - group.members[src]
    first, (src, dst) = transfers[0], np.array([(each.src, each.dst) for each in transfers]).T
    delay_ns = group.between(src, dst, first.size_bytes).max().item()
    reduction_ns = costs.reduction_ns(first.charge_bytes) if first.charge_bytes else -1
    return _Batch(delay_ns, receivers, costs.endpoint_ns, reduction_ns, frozenset(receivers.ravel().tolist()) - {-1})


def _ranks(places: Sequence[IntArray]) -> IntArray:
    """Where each of some calls stands among them, for every NPU."""
    if len(places) == 1:
        return np.zeros((1, len(places[0])), np.int64)
    return np.argsort(np.argsort(places, axis=0), axis=0)
