"""Phases played in the order of events, their messages as columns: each NPU begins when it can (ASTRA-sim 2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from heapq import heappush
from itertools import count
from typing import Any

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import stored
from simcore.network.core import NEVER
from simcore.network.in_order import BEFORE, CALLED, NUMBER, ORDER, Line, StateInOrder, Turn, Waiting
from simcore.network.instant import NORMAL, Environment, Timers, TimersOfNpus
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.moves import Symmetry
from simcore.system.groups import GroupDim
from simcore.system.messages.layouts import MESSAGE, Layouts, Running, Shape
from simcore.system.plans.maker import Costs, uneven
from simcore.system.plans.plan import Plan
from simcore.system.streams import Stream, StreamPhase
from simcore.system.transport import Done, Transport
from simcore.timeline.events import LinkTable
from simcore.timeline.link_use import OccupiedLinks

Key = tuple[object, int]
"""A chunk, and the number of its phase."""


class _Costs(Costs):
    """A reduction is paid apart from the endpoint's delay, also where it takes no time; -1: there is none."""

    def received_ns(self, reduce_bytes: int) -> int:
        return self.reduction_ns(reduce_bytes) if reduce_bytes else -1


class _Group(Struct, eq=False):
    """NPUs that play a phase of a chunk together, in instances with the number of the first message of each.

    `npus` are those that play themselves, `there` the positions that do so now, with how many instances each is still
    in (`parts`), `left` counts those that have. `expected` is what positions wait for, by sender and size.
    """

    key: Key
    plan: Plan
    members: IntArray
    npus: list[int]
    instances: dict[int, int]
    there: dict[int, tuple[Stream, Done]] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    left: int = 0
    expected: dict[int, dict[tuple[int, int], deque[int]]] = field(default_factory=dict)

    def position(self, npu: int) -> int:
        """Where an NPU is."""
        return self.npus.index(npu)

    def awaits(self, position: int) -> dict[tuple[int, int], deque[int]]:
        """The numbers of messages that a position still takes from others, by sender and size."""
        if position not in self.expected:
            found = self.expected[position] = dict[tuple[int, int], deque[int]]()
            for peer, size_bytes, number in self.plan.comes(position):
                found.setdefault((int(self.members[peer]), size_bytes), deque()).append(number)
        return self.expected[position]


class _Running(Running):
    """`Running` over `in_order`, which takes its turns with an environment; `leave` is told who leaves what."""

    _columns: Any

    def __init__(self, env: Environment, layouts: Layouts, links: int, npus: int, leave: Callable[[int, int], None]):
        super().__init__(layouts)
        self._env, self._leave, self._room, self._links = env, leave, 1, links
        self._calls: dict[int, Callable[[], None]] = {}
        self._numbers, self._due = count(), set[tuple[int, int]]()
        tables: dict[str, list[Any]] = {"lines": [Line() for _ in range(links)], "npus": [0] * npus, "clock": [0] * 4}
        for name, rows in (tables | {"waiting": [Waiting(0)], "turns": [Turn(0)]}).items():
            self._columns.add(name, rows)

    def send(self, order: int, number: int, sender: int, hop: int, shift: int, now_ns: int) -> int:
        """As `Running.send`."""
        instance = self._instance(MESSAGE, order, number, shift)
        self._layouts.begun += self._layouts.work_of([hop])[0]
        self.do("hand_over", instance, sender, hop, now_ns)
        return instance

    def call(self, npu: int, delay_ns: int, callback: Callable[[], None]) -> None:
        """Call back what an NPU does later."""
        own = next(self._numbers)
        self._calls[own] = callback
        self._make_room()
        self.do("later", npu, self._env.now + delay_ns, CALLED, own, 0)

    def do(self, name: str, *arguments: int) -> None:
        """Call one of the core's functions, as part of what happens now."""
        _, priority, number, _ = self._env.entry
        self._columns.state.clock[ORDER] = _order(priority, number)
        self._call(name, *arguments)
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

    def _instance(self, layout: int, order: int, base: int, shift: int) -> int:
        instance = super()._instance(layout, order, base, shift)
        self._make_room()
        return instance

    def _make_room(self) -> None:
        """For as many that wait, and as many turns, as there may be events."""
        before, wanted = self._room, self._entries + len(self._calls)
        if wanted >= before:
            self._room = 2 * wanted + 1
            self._columns.follow(self._room + self._links)
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
        if time_ns < NEVER and due not in self._due:
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
                    self._leave(instance, position)
            self._play_to_next()
        self._wait()

    def _play_to_next(self) -> None:
        limit_ns, priority, number, _ = self._env.calls[0] if self._env.calls else (NEVER - 1, NORMAL, 0, None)
        self._call("play", limit_ns, _order(priority, number))


def _order(priority: int, number: int) -> int:
    """Where an entry of an environment stands among events of its time."""
    return number if priority == NORMAL else -1 if priority < NORMAL else NEVER


class _Timers(Timers):
    """What an NPU does later, in its place among its packets."""

    def __init__(self, running: _Running, npu: int):
        self.after = partial(running.call, npu)  # type: ignore[method-assign]


class InOrder(Transport):
    """As `Played` over `StoreAndForward`, with messages as columns; a message is the next of its size, as there."""

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], links: LinkGraph, costs: Costs):
        super().__init__(env, ranks, costs)
        npus = sum(map(len, ranks))
        self._folded, self._links = len(ranks) < npus, links
        self._own_costs = _Costs(**{each.name: getattr(costs, each.name) for each in fields(costs)})
        self._layouts = Layouts(
            timed=links.timed,
            share=lambda: env.share(),  # noqa: PLW0108 - set later
            kind=StateInOrder,
            cross=stored,
        )
        self._shape = Shape("", links, self._folded)
        self._running = _Running(env, self._layouts, len(links), npus, self._leave)
        self.timers = TimersOfNpus(None, {int(own[0]): _Timers(self._running, int(own[0])) for own in ranks})
        self._laid: dict[tuple[Plan, int], list[tuple[int, int]]] = {}
        self._members: dict[tuple[GroupDim, int], IntArray] = {}
        self._groups: dict[tuple[Key, int], list[_Group]] = {}  # that an NPU is a member of
        self._group_of: dict[int, _Group] = {}
        self._messages: dict[int, Callable[[], None]] = {}

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between two NPUs."""
        hop = self._layouts.hops(self._shape, np.array([src]), np.array([dst]), [size_bytes])[0]
        self._messages[self._running.send(0, 0, src, hop, 0, int(self._env.now))] = deliver

    def links(self) -> LinkTable:
        """What every link carried."""
        rows = self._running.rows() if self._links.timed else None
        return self._links.table(*self._running.carried(), None if rows is None else [OccupiedLinks.of(rows)])

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase on some NPUs; messages that came before it are waiting."""
        for npu_class, stream in streams.items():
            self._start(int(self._ranks[npu_class][0]), stream, done)

    def _start(self, npu: int, stream: Stream, done: Done) -> None:
        key, dim = (stream.key, stream.at), stream.phase.lane.dim
        plan, position = self.plans.of(stream.phase, npu), 0 if self._folded else dim.position(npu)
        if self._folded and Symmetry.NONE in plan.symmetries:
            raise uneven(stream.phase)
        found = dim.members(npu)
        members = self._members.setdefault((dim, int(found[0])), found)
        known = self._groups.get((key, npu), ())
        group = next((each for each in known if each.plan is plan and each.members is members), None)
        group = group or self._group(key, stream.phase, plan, members, npu)
        group.there[position], group.parts[position] = (stream, done), len(group.instances)
        for other in self._groups[key, npu]:
            if other is not group:
                self._estrange(other, npu)
        for instance in group.instances:
            self._running.do("enter", instance, position, int(self._env.now))

    def _group(self, key: Key, phase: StreamPhase, plan: Plan, members: IntArray, npu: int) -> _Group:
        """The first NPU of a group is there."""
        laid = self._laid.get((plan, id(members)))
        if laid is None:
            laid = self._layouts.of(self._shape, plan, members, self._own_costs.of(phase.lane.dim))
            self._laid[plan, id(members)] = laid
            if self._folded:  # who plays for all is the one whose timers are known
                for layout, _ in laid:
                    self._layouts.state.ranks[self._layouts.state.layouts[layout].rank_at].name = npu
        instances = {self._running.start(layout, 0, first, 0, 0): first for layout, first in laid}
        group = _Group(key, plan, members, [npu] if self._folded else members.tolist(), instances)
        self._group_of |= dict.fromkeys(instances, group)
        for member in group.npus:
            others = self._groups.setdefault((key, member), [])
            if any(other.position(member) in other.there for other in others):
                self._estrange(group, member)
            others.append(group)
        return group

    def _leave(self, instance: int, position: int) -> None:
        """A rank leaves a phase, a message of no phase arrives, or one for who plays something else."""
        deliver = self._messages.pop(instance, None)
        if deliver:
            self._running.end(instance)
            deliver()
            return
        group = self._group_of[instance]
        if position >= len(group.npus):
            number, position = divmod(position, len(group.npus))
            self._match(group, position, number - 1 + group.instances[instance])
            return
        group.parts[position] -= 1
        if not group.parts[position]:
            stream, done = group.there.pop(position)
            group.left += 1
            if group.left == len(group.npus):
                self._end(group)
            done(stream)

    def _end(self, group: _Group) -> None:
        """All are through."""
        for instance in group.instances:
            del self._group_of[instance]
            self._running.end(instance)
        for member in group.npus:
            self._groups[group.key, member].remove(group)
            if not self._groups[group.key, member]:
                del self._groups[group.key, member]

    def _estrange(self, group: _Group, npu: int) -> None:
        """An NPU plays something else: what comes, or has come, is taken for messages of that."""
        position = group.position(npu)
        for instance, first in group.instances.items():
            for number in self._running.estrange(instance, position):
                self._match(group, position, first + number)

    def _match(self, group: _Group, position: int, number: int) -> None:
        """Deliver a message to who plays something else, as the next one expected there from its sender in its size."""
        npu = group.npus[position]
        ends = {own: (int(group.members[peer]), size_bytes) for peer, size_bytes, own in group.plan.comes(position)}
        for other in self._groups[group.key, npu]:
            seat = other.position(npu)
            if seat in other.there:
                numbers = other.awaits(seat).get(ends[number])
                if numbers:
                    own = numbers.popleft()
                    instance, first = next(each for each in [*other.instances.items()][::-1] if own >= each[1])
                    self._running.do("arrive", instance, own - first, seat, int(self._env.now))
