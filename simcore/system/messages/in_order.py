"""Phases played in the order of events, their messages as columns: each NPU begins when it can (ASTRA-sim 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from heapq import heappush
from itertools import count
from typing import Any

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import stored
from simcore.network.congested import LinkNetwork, Network
from simcore.network.core import NEVER
from simcore.network.in_order import BEFORE, CALLED, NUMBER, ORDER, Line, StateInOrder, Turn, Waiting
from simcore.network.instant import NORMAL, Environment, Timers
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.system.messages.layouts import Layouts, Running, Shape
from simcore.system.plans.automaton import Done, Player
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan
from simcore.system.streams import StreamPhase
from simcore.system.transport import Played, Seat, SeatName
from simcore.timeline.link_use import LinkRows


class _Costs(Costs):
    """A reduction is paid apart from the endpoint's delay, also where it takes no time; -1: there is none."""

    def received_ns(self, reduce_bytes: int) -> int:
        return self.reduction_ns(reduce_bytes) if reduce_bytes else -1


class _Running(Running):
    """`Running` over `in_order`, which takes its turns with an environment."""

    _columns: Any

    def __init__(self, env: Environment, layouts: Layouts, links: int, npus: int):
        super().__init__(layouts)
        self._env, self._room, self._links = env, 1, links
        self._calls: dict[int, Done] = {}
        self._told: dict[int, Callable[[int], None]] = {}  # who leaves an instance
        self._numbers, self._due = count(), set[tuple[int, int]]()
        tables: dict[str, list[Any]] = {"lines": [Line() for _ in range(links)], "npus": [0] * npus, "clock": [0] * 4}
        for name, rows in (tables | {"waiting": [Waiting(0)], "turns": [Turn(0)]}).items():
            self._columns.add(name, rows)

    def carry(self, hop: int, deliver: Done) -> None:
        """Send a message of no phase."""
        self.do("depart", CALLED, self._numbered(deliver), 0, hop)

    def begin(self, layout: int, told: Callable[[int], None]) -> int:
        """Make a phase of a group ready; who leaves it is told."""
        instance = self.start(layout, 0, 0, 0, 0)
        self._told[instance] = told
        return instance

    def call(self, npu: int, delay_ns: int, callback: Done) -> None:
        """Call back what an NPU does later."""
        self.do("later", npu, CALLED, self._numbered(callback), 0, delay_ns=delay_ns)

    def _numbered(self, callback: Done) -> int:
        own = next(self._numbers)
        self._calls[own] = callback
        self._make_room()
        return own

    def do(self, name: str, *arguments: int, delay_ns: int = 0) -> None:
        """Call one of the core's functions, as part of what happens now; it is given the time, or a later one."""
        self._columns.state.clock[ORDER] = self._env.entry[2]
        self._call(name, *arguments, int(self._env.now) + delay_ns)
        self._wait()

    def carried(self) -> tuple[IntArray, IntArray]:
        """Bytes and nanoseconds of all links."""
        lines = self._columns.state.lines[: self._links]
        counts = np.array([(line.size_bytes, line.busy_ns) for line in lines], np.int64).reshape(-1, 2)
        return counts[:, 0], counts[:, 1]

    def estrange(self, instance: int, position: int) -> list[int]:
        """A rank has no part in an instance: Python is told of messages to it. The numbers of those that are here."""
        state = self._columns.state
        own = state.instances[instance]
        layout, slot = self._layouts.state.layouts[own.layout], state.slots[own.slot + position]
        slot.ready = 1
        if layout.window:
            return [number for number in range(layout.rounds) if state.early[slot.mark + number]]
        came = (number for number in range(layout.rounds) if state.early[own.mark + number] >= BEFORE)
        receivers = self._layouts.columns["messages"].since(0)[1]
        return [number for number in came if receivers[layout.message_at + number] == position]

    def _instance(self, layout: int, order: int, base: int, shift: int, after: int = -1) -> int:
        instance = super()._instance(layout, order, base, shift, after)
        self._make_room()
        return instance

    def follow(self) -> None:
        """All that is known by now, and room for all events."""
        self._columns.follow(self._room + self._links)

    def _make_room(self) -> None:
        """For as many that wait, and as many turns, as there may be events."""
        before, wanted = self._room, self._entries + len(self._calls)
        if wanted >= before:
            self._room = 2 * wanted + 1
            self.follow()
            for name, kind in (("waiting", Waiting), ("turns", Turn)):
                rows = [kind(number + 1) for number in range(before, self._room)]
                rows[-1].next = int(getattr(self._columns.state, name)[0].next)
                self._columns.add(name, rows)
                getattr(self._columns.state, name)[0].next = before

    def _call(self, name: str, *arguments: int) -> None:
        """Call one of the core's functions; both number what happens in one row."""
        state = self._columns.state
        state.clock[NUMBER] = next(self._env.numbers)
        getattr(self._columns.core, name)(state, *arguments)
        self._env.numbers = count(int(state.clock[NUMBER]))

    def _wait(self) -> None:
        """Be there when something happens next."""
        due = time_ns, number = self._columns.next
        if due not in self._due and (time_ns < NEVER or self._columns.late):
            self._due.add(due)
            call: Callable[[], object] = partial(self._play, due)
            heappush(self._env.calls, (time_ns, NORMAL, number, call))

    def _play(self, due: tuple[int, int]) -> None:
        """Play until the environment has something else to do."""
        env, columns = self._env, self._columns
        self._due.discard(due)
        self._play_to_next()
        while left := columns.left():
            for now_ns, instance, position in left:
                env.now, env.entry = now_ns, (now_ns, NORMAL, int(columns.state.clock[ORDER]), self._wait)
                if instance == CALLED:
                    self._calls.pop(position)()
                else:
                    self._told[instance](position)
            self._play_to_next()
        self._wait()

    def _play_to_next(self) -> None:
        limit_ns, priority, number, _ = self._env.calls[0] if self._env.calls else (NEVER, NORMAL, 0, None)
        last = number if priority <= NORMAL else NEVER  # gangs decide behind all of an instant
        self._call("play", min(limit_ns, NEVER - 1), last)


class _Timers(Timers):
    """What an NPU does later, in its place among its packets."""

    def __init__(self, running: _Running, npu: int):
        self.after = partial(running.call, npu)  # type: ignore[method-assign]


class StoreAndForward(LinkNetwork):
    """ASTRA-sim 2's congestion-aware network (analytical backend 599a0473): every hop receives the whole message first.

    A link that starts on a message at t delivers it at t + floor(latency + size / rate) and is free at
    t + floor(size / rate); the delivery is scheduled before. Events of one time run in the order they were scheduled;
    a link serves its queue first in, first out. `key` plays no part.
    """

    by_event = True

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self.layouts = Layouts(
            timed=links.timed,
            share=lambda: env.share(),  # noqa: PLW0108 - set later
            kind=StateInOrder,
            cross=stored,
        )
        self.shape, self._hops = Shape("", links), dict[tuple[int, int, int], int]()
        self.running = _Running(env, self.layouts, len(links), links.npus)

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Done) -> None:
        """As `Network.send`; a message to itself arrives at once."""
        ends = src, dst, size_bytes
        if ends not in self._hops:
            self._hops[ends] = self.layouts.hops(self.shape, np.array([src]), np.array([dst]), [size_bytes])[0]
            self.running.follow()
        self.running.carry(self._hops[ends], deliver)

    def counts(self) -> tuple[IntArray, IntArray]:
        """As `LinkNetwork.counts`."""
        return self.running.carried()

    def times(self) -> LinkRows | None:
        """As `LinkNetwork.times`."""
        return self.running.rows() if self.links.timed else None


class _Group(Struct, eq=False):
    """NPUs that play a phase of a chunk together: the instances with the number of the first message of each.

    `npus` are those that play themselves, `finished` is called for each of them that is through with an instance.
    """

    plan: Plan
    members: Sequence[int]
    npus: Sequence[int]
    instances: dict[int, int]
    finished: dict[int, Done] = field(default_factory=dict)
    left: int = 0


class _Part(Struct, eq=False):
    """What an NPU plays of an instance, whose messages are numbered from `first` on."""

    running: _Running
    instance: int
    position: int
    first: int

    def start(self) -> None:
        """Begin the phase."""
        self.running.do("enter", self.instance, self.position)

    def arrive(self, number: int) -> None:
        """A message of somebody who plays something else is here."""
        self.running.do("arrive", self.instance, number - self.first, self.position)


class InOrder(Played):
    """`Played` over `StoreAndForward`, ranks as columns, too: where nobody asks for messages, and no bus is there."""

    _network: StoreAndForward

    def __init__(
        self, env: Environment, ranks: Sequence[Sequence[int]], network: Network, costs: Costs, *, by_size: bool = False
    ):
        super().__init__(env, ranks, network, costs, by_size=by_size)
        self._own_costs = _Costs(**{each.name: getattr(costs, each.name) for each in fields(costs)})
        self.timers.update({int(own[0]): _Timers(self._network.running, int(own[0])) for own in ranks})
        self._laid: dict[tuple[Plan, int], list[tuple[int, int]]] = {}
        self._together: dict[SeatName, list[_Group]] = {}  # that an NPU is a member of

    def _automata(self, seat: Seat, phase: StreamPhase, finished: Done) -> Sequence[Player]:
        known = self._together.get(seat.name, [])
        group = next((each for each in known if each.plan is seat.plan and each.members is seat.members), None)
        for other in known:
            if other is not group:
                self._estrange(other, seat)
        group = group or self._group(seat, self._own_costs.of(phase.lane))
        position = 0 if self._folded else seat.position
        group.finished[position] = finished
        return [_Part(self._network.running, own, position, first) for own, first in reversed(group.instances.items())]

    def _group(self, seat: Seat, costs: Costs) -> _Group:
        """The first NPU of a group is there."""
        running, layouts, npu = self._network.running, self._network.layouts, seat.name[2]
        laid = self._laid.get((seat.plan, id(seat.members)))
        if laid is None:
            laid = layouts.of(self._network.shape, seat.plan, np.array(seat.members), costs)
            self._laid[seat.plan, id(seat.members)] = laid
            if self._folded:  # who plays for all is the one whose timers are known
                for layout, _ in laid:
                    layouts.state.ranks[layouts.state.layouts[layout].rank_at].name = npu
        npus = [npu] if self._folded else seat.members
        group = _Group(seat.plan, seat.members, npus, {})
        for layout, first in laid:
            group.instances[running.begin(layout, partial(self._told, *seat.name[:2], group, first))] = first
        for position, member in enumerate(npus):
            name = (*seat.name[:2], member)
            self._together.setdefault(name, []).append(group)
            if member != npu and name in self._seats:  # which plays something else
                for instance in group.instances:
                    running.estrange(instance, position)
        return group

    def _told(self, key: tuple[int, int], at: int, group: _Group, first: int, position: int) -> None:
        """An NPU is through with an instance, or a message is there for one that plays something else."""
        if position >= len(group.npus):
            number, position = divmod(position, len(group.npus))
            self._take((key, at, group.npus[position]), group, position, number - 1 + first)
            return
        group.left += 1
        if group.left == len(group.npus) * len(group.instances):
            for instance in group.instances:
                self._network.running.end(instance)
            for member in group.npus:
                self._together[key, at, member].remove(group)
                if not self._together[key, at, member]:
                    del self._together[key, at, member]
        group.finished[position]()

    def _estrange(self, group: _Group, seat: Seat) -> None:
        """An NPU plays something else: what comes, or has come, is taken for messages of that."""
        position = group.npus.index(seat.name[2])
        for instance, first in group.instances.items():
            for number in self._network.running.estrange(instance, position):
                take = partial(self._take, seat.name, group, position, first + number)
                self._early.setdefault(seat.name, []).append(take)

    def _take(self, name: SeatName, group: _Group, position: int, number: int) -> None:
        """Deliver a message to who plays something else."""
        if name in self._seats:
            ends = ((peer, size_bytes) for peer, size_bytes, own in group.plan.comes(position) if own == number)
            peer, size_bytes = next(ends)
            self._seats[name].take(group.members[peer], size_bytes)
