"""Which NPU and which chunk is first of those of one nanosecond: ASTRA-sim 1.0's events, those of all NPUs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, lru_cache, partial
from heapq import heappush
from itertools import groupby
from operator import attrgetter
from typing import cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.network.instant import NORMAL, Entry, Environment
from simcore.network.topology.fabric import IntArray
from simcore.system.groups import Delay, GroupDim, RankGroup
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES
from simcore.system.plans.automaton import Pay, RoundAutomaton, at_endpoint
from simcore.system.plans.maker import Plans
from simcore.system.plans.plan import Plan, Transfer
from simcore.system.streams import StreamPhase

Call = Callable[[], None]
Flags = NDArray[np.bool]
_FIRST = np.zeros((1, 1), np.int64)


class _Message(Struct, frozen=True, eq=False):
    """What NPUs send at one time: it arrives after `delay_ns`, at the `receivers` by sender, -1 for none.

    Equal `receivers` are the same object. In a tree `some` get it, a flag for every NPU, and reduce `charge_bytes`.
    """

    delay_ns: int
    receivers: IntArray
    some: Flags | None = None
    charge_bytes: int = 0


class Step(Struct, frozen=True, eq=False):
    """What NPUs do in a phase, asked for in the step `before`, if it is not the first.

    They do it by themselves, or get it from those whose `receivers` they are.
    """

    phase: Hashable
    asked_ns: float
    before: Step | None = None
    receivers: IntArray | None = None


_Call = tuple[IntArray, Flags | None, Step, Call]
"""With its place among what each NPU does, or one for all of them, and which of them do it if only some do."""


class _Turn(Struct, eq=False):
    """What NPUs do at a time, one NPU after the other, all of it in the place of one `entry`.

    In a tree only some ask for it; they stand behind those `before`, who have asked for it in another order.
    """

    entry: Entry
    order: IntArray
    asked: IntArray
    before: IntArray
    calls: list[_Call] = field(default_factory=list)
    over: bool = False


_Sent = list[tuple[IntArray, Step, _Message, Call]]
"""With the place of each among what its sender does, and what its receivers do."""


class Precedence:
    """The order of NPUs in all that they do: `Themis.begin` asks who issues a collective first.

    What an NPU does later joins all that it does then, in the place of what was asked for first. NPUs are all alike,
    without contention: what happens to all of them at one time is one event, and one automaton plays a phase for all.
    `delay` times messages.
    """

    def __init__(self, npus: int, plans: Plans, delay: Delay):
        self._npus, self._plans, self._delay = np.arange(npus), plans, delay
        self._env, self._turns, self._asked, self._rung_ns = Environment(), dict[float, _Turn](), 0, 0
        self._sent: dict[float, _Sent] = defaultdict(list)
        self._order = self._npus  # in what happens now, and where it stands in what each does
        self._places, self._step, self._some = _FIRST[0], Step(None, 0), cast("Flags | None", None)  # who does it
        self._begun, self._left = set[Hashable](), dict[Hashable, tuple[int, IntArray]]()  # of phases
        self._group, self._play, self._same = cache(self._group_of), cache(self._play_of), dict[bytes, IntArray]()
        self._arrival = lru_cache(1 << 12)(self._arrival_of)

    def later(self, time_ns: float, order: IntArray | None = None) -> None:
        """NPUs do something later, in an order, or in that of what they do then already; None = as their ids are."""
        self._turn(time_ns, self._npus if order is None else order)

    def now(self, time_ns: float, order: IntArray | None = None) -> IntArray | None:
        """The order of NPUs in what they do at a time, that of `order` if nothing is known of it."""
        turn = self._turns.get(time_ns)
        if turn is None:
            return order
        while self._env.calls and self._env.calls[0] < turn.entry:
            self._env.step()
        return turn.order

    def begin(self, name: Hashable, phase: StreamPhase, time_ns: float, order: IntArray | None = None) -> None:
        """NPUs begin a phase, of which one of them tells."""
        if name in self._begun:
            return
        self._begun.add(name)
        costs, (plan, messages) = self._plans.costs.of(phase.lane), self._play(phase)
        pay = at_endpoint(self._after, costs.endpoint_ns, costs.reduction_ns)
        self._env.now = time_ns  # type: ignore[assignment]  # what memory adds is a fraction
        self._order, self._step = self._npus.copy() if order is None else order, Step(name, time_ns)
        self._asked += 1
        self._places, self._some = _FIRST[0] + self._asked, None
        if plan.transfers:
            self._some = messages[0].receivers[:, 0] >= 0  # the leaves: the others have nothing to do yet
            pay(0, 0, partial(self._climb, name, iter(messages), pay))
            return

        def send(number: int, _: int, __: int) -> None:
            self._send(messages[number], partial(automaton.arrive, number))

        automaton = RoundAutomaton(plan, 0, pay, self._after, send, partial(self._leave, name))
        automaton.start()

    def after(self, names: Sequence[Hashable]) -> tuple[Hashable, IntArray]:
        """Which of some phases is over first, and who leaves it first."""
        while not self._left.keys() >= set(names):
            self._env.step()
        first = min(names, key=self._left.__getitem__)
        return first, self._left[first][1]

    def meets(self, phase: StreamPhase) -> bool:
        """Whether a message takes exactly as long as the endpoint's delay.

        Where a second half waits for the first, one that takes less may come together with a credit, too.
        """
        dim, plan = phase.lane.dim, self._plans.of(phase, 0)
        costs, (group, _), places = self._plans.costs.of(phase.lane), self._group(dim), np.arange(dim.size)
        sent = [(plan.moves.on(places, np.array(entry.hop)), entry.size_bytes) for entry, _ in plan.rounds]
        ways = [(places, there, size_bytes) for there, size_bytes in sent]
        ways += [(np.array([each.src]), np.array([each.dst]), each.size_bytes) for each in plan.transfers]
        ways += [(src, dst, RENDEZVOUS_BYTES) for src, dst, _ in ways if costs.rendezvous]
        like = np.less_equal if plan.half else np.equal
        return any(like(group.between(*way), costs.endpoint_ns).any() for way in ways)

    def way(self, phase: StreamPhase) -> tuple[float, Step]:
        """How long a phase takes that is played alone, and its last step."""
        alone = Precedence(len(self._npus), self._plans, self._delay)
        alone._play = self._play
        alone.begin("", phase, 0)
        alone.after([""])
        return alone._env.now, alone._step

    def _at(self, time_ns: float, call: Call) -> Entry:
        entry = time_ns, NORMAL, next(self._env.numbers), call
        heappush(self._env.calls, entry)
        return entry

    def _turn(self, time_ns: float, order: IntArray, some: Flags | None = None) -> _Turn:
        turn = self._turns.get(time_ns)
        if turn is None or turn.over:
            entry, nobody = self._at(time_ns, self._ring), order[:0]
            turn = self._turns[time_ns] = _Turn(entry, order if some is None else nobody, order, nobody)
        if len(turn.order) < len(self._npus):
            if turn.asked is not order:
                turn.asked, turn.before = order, turn.order
            own = order if some is None else order[some[order] | np.isin(order, turn.order)]
            turn.order = np.concatenate([turn.before, own[np.isin(own, turn.before, invert=True)]])
        return turn

    def _after(self, delay_ns: float, call: Call) -> None:
        """What NPUs do now has them do something later."""
        turn = self._turn(self._env.now + delay_ns, self._order, self._some)
        turn.calls.append((self._places, self._some, Step(self._step.phase, self._env.now, self._step), call))

    def _ring(self) -> None:
        """NPUs do one after the other all that they do now; what they send is on its way.

        The last of them says in which order phases are over. What is asked for goes behind what was asked for before.
        """
        if self._rung_ns != self._env.now:
            self._turns.pop(self._rung_ns, None)
            self._rung_ns = self._env.now
        turn = self._turns[self._rung_ns]
        self._order, width = turn.order, len(turn.calls)
        if width:
            ranks = self._asked + _ranks([places for places, *_ in turn.calls])
            for numbers in _of_one_phase(turn.calls) if width > 1 else ():  # the first is so on every NPU
                ranks[numbers] = np.sort(ranks[numbers], axis=0)
            turn.calls = [(places, *call[1:]) for places, call in zip(ranks, turn.calls, strict=True)]
            self._asked += 4 * width
        while turn.calls:  # grows while it runs
            at = 0
            if len(turn.calls) > 1:
                at = min(range(len(turn.calls)), key=lambda number: _last(turn.order, *turn.calls[number][:2]))
            places, self._some, self._step, call = turn.calls.pop(at)
            self._places = places + width
            call()
        turn.over = True
        for arrival_ns, sent in self._sent.items():
            self._at(arrival_ns, partial(self._arrive, sent, turn.order))
        self._sent.clear()

    def _send(self, message: _Message, arrive: Call) -> None:
        step = Step(self._step.phase, self._env.now, self._step, message.receivers)
        self._sent[self._env.now + message.delay_ns].append((self._places, step, message, arrive))

    def _arrive(self, sent: _Sent, order: IntArray) -> None:
        ranks, messages = _ranks([places for places, *_ in sent]), tuple(each[2] for each in sent)
        receivers = messages[0].receivers
        alike = all(each.receivers is receivers for each in messages) and messages[0].some is None
        if alike and ranks.shape[1] == receivers.shape[1] == 1:  # each NPU gets all from one
            self._order, found = receivers[order, 0], ranks
        else:
            self._order, found = self._arrival(messages, ranks.tobytes(), order.tobytes())
        asked = self._asked + 1
        self._asked += sum(message.receivers.size for message in messages)
        for places, (_, self._step, message, arrive) in zip(found, sent, strict=True):
            self._places, self._some = asked + places, message.some
            arrive()

    def _climb(self, name: Hashable, steps: Iterator[_Message], pay: Pay, before: IntArray = _FIRST[0, :0]) -> None:
        """Send what comes next in a tree, in which some have got something now, or leave it."""
        there = self._order if self._some is None else self._order[self._some[self._order]]
        order = np.concatenate([before[np.isin(before, there, invert=True)], there])
        step = next(steps, None)
        if step:
            self._send(step, partial(pay, 0, step.charge_bytes, partial(self._climb, name, steps, pay, order)))
        else:
            self._leave(name, order)

    def _leave(self, name: Hashable, order: IntArray | None = None) -> None:
        self._left[name] = next(self._env.numbers), self._order if order is None else order

    def _arrival_of(self, messages: tuple[_Message, ...], ranks: bytes, order: bytes) -> tuple[IntArray, IntArray]:
        """In which order NPUs get messages that others send one after the other, each its own by their ranks.

        Where NPUs get the last of each, too.
        """
        senders, count, npus = np.frombuffer(order, np.int64), len(messages), len(self._npus)
        own = np.broadcast_to(np.frombuffer(ranks, np.int64).reshape(count, -1), (count, npus))
        turns = np.arange(len(senders)) * count + own[:, senders]
        rows = [message.receivers[senders] for message in messages]
        when = np.concatenate([np.repeat(own, row.shape[1]) for own, row in zip(turns, rows, strict=True)])
        whose = np.repeat(np.arange(count), [row.size for row in rows])
        there = np.concatenate([row.ravel() for row in rows])
        line = np.argsort(when, kind="stable")
        line = line[there[line] >= 0]
        receivers, first = np.unique(there[line], return_index=True)
        found = np.zeros((count, npus), np.int64)
        found[whose[line], there[line]] = np.arange(len(line))
        return receivers[np.argsort(first)], found

    def _play_of(self, phase: StreamPhase) -> tuple[Plan, Sequence[_Message]]:
        """How a phase is played, and what it sends one after the other."""
        dim, plan = phase.lane.dim, self._plans.of(phase, 0)
        group, place = self._group(dim)
        if plan.transfers:
            steps = groupby(plan.transfers, attrgetter("step"))
            return plan, [self._tree_step(list(own), group, place) for _, own in steps]
        asks = [RENDEZVOUS_BYTES] if self._plans.costs.rendezvous else []

        @cache
        def message(hop: int, size_bytes: int) -> _Message:
            delays = (group.delays(hop, plan.moves, each)[0].item() for each in (*asks, size_bytes))
            there = place ^ hop if plan.exchange else (place + hop) % plan.size
            moved = 0 if asks else group.members[there] - group.members[place]  # who asks first is first
            return _Message(sum(delays), self._one((self._npus + moved)[:, None]))

        messages = [message(entry.hop, entry.size_bytes) for entry in plan.expanded]
        return self._plans.of(replace(phase, data_bytes=max(phase.data_bytes, dim.size)), 0), messages

    def _group_of(self, dim: GroupDim) -> tuple[RankGroup, IntArray]:
        """The group of NPU 0 in a dimension, and the places of all NPUs in theirs."""
        return RankGroup(dim.members(0), self._delay), np.array([*map(dim.position, self._npus.tolist())])

    def _tree_step(self, transfers: Sequence[Transfer], group: RankGroup, place: IntArray) -> _Message:
        """What NPUs send in one step of a tree."""
        sends = defaultdict[int, list[int]](list)
        for each in transfers:
            sends[each.src].append(each.dst)
        receivers = np.full((len(place), max(map(len, sends.values()))), -1)
        for src, dst in sends.items():
            own = self._npus[place == src]
            receivers[own, : len(dst)] = own[:, None] + group.members[dst] - group.members[src]
        first, (src, dst) = transfers[0], np.array([(each.src, each.dst) for each in transfers]).T
        delay_ns = group.between(src, dst, first.size_bytes).max().item()
        some = np.isin(self._npus, receivers)
        return _Message(delay_ns, self._one(receivers), some, first.charge_bytes)

    def _one(self, receivers: IntArray) -> IntArray:
        """The same object for equal ones."""
        return self._same.setdefault(receivers.tobytes(), receivers)


def _last(order: IntArray, places: IntArray, some: Flags | None) -> tuple[int, int]:
    """When the last one of an order does what some do: its place in the order, and that among what it does."""
    at = len(order) - 1 if some is None else int(np.flatnonzero(some[order])[-1])
    return at, places.take(order[at], mode="clip").item()


def _of_one_phase(calls: Sequence[_Call]) -> Sequence[list[int]]:
    """The numbers of calls that belong to one phase, where there are several."""
    own = defaultdict[Hashable, list[int]](list)
    for number, (_, _, step, _) in enumerate(calls):
        own[step.phase].append(number)
    return [numbers for numbers in own.values() if len(numbers) > 1]


def _ranks(places: Sequence[IntArray]) -> IntArray:
    """Where each of some calls stands among them, for every NPU; in one column where all NPUs do them in one order."""
    if len(places) == 1:
        return _FIRST
    table = np.array(places if len({each.size for each in places}) == 1 else np.broadcast_arrays(*places))
    return table.argsort(axis=0).argsort(axis=0)
