"""Phases of groups made ready to be played as columns by `network.core`; their plans look up what they need once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import cut_through
from simcore.network.compiled import Arrays, Known, installed, kept
from simcore.network.core import AT_ONCE, IN_TURN, NEVER, Columns, Instance, Layout, Rank, Round, Slot, State, Transfer
from simcore.network.lists import Lists, modules_of
from simcore.network.topology.fabric import IntArray, Routes
from simcore.network.topology.links import LinkGraph
from simcore.system.alone.solver import sends_at_once
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan
from simcore.timeline.link_use import LinkRows

Cross = Callable[[LinkGraph, Routes, IntArray], tuple[IntArray, IntArray]]
MESSAGE = -1
"""The layout of a message of no phase."""
MESSAGES_AT_ONCE = 1 << 16
ENOUGH = {True: 600_000, False: 10_000_000}
"""So many messages and links that they cross take Python as long as loading what is compiled, and as compiling it.

Loading takes 0.5 s, compiling 6.5 s. Each message and each link takes 0.5 to 1.4 us in Python, 0.1 to 0.25 us compiled,
measured on rings, meshes, tori and switches, where ranks send in turn or all at once. In the order of events it is two
to three times that (`State.weight`).
"""

SOME = 0.01
"""From such a share of the run on it says how much is still to come."""


class Shape(Struct, frozen=True, eq=False):
    """What places of one kind have in common: `graph` are their links, which may stand for those of others.

    Some then play for all of their group, and receive what these would send them.
    """

    name: Hashable
    graph: LinkGraph
    known: dict[tuple[bytes, bytes], Routes] = field(default_factory=dict)

    def players(self, members: IntArray) -> int:
        """How many of a group play for all of it, the first ones."""
        return self.graph.fold.players(members)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """The links that messages take; what a round of a plan needs is looked up once."""
        if len(src) > self.graph.npus:
            return self.graph.routes(src, dst)
        key = src.tobytes(), dst.tobytes()
        if key not in self.known:
            self.known[key] = self.graph.routes(src, dst)
        return self.known[key]


class Extent(NamedTuple):
    """How large an instance of a layout is: `marks` in `early`, and at most so many `entries` of it in a heap.

    What is on its way has one entry each, a credit before it comes back, too; ranks have no more than their windows.
    """

    ranks: int
    marks: int
    entries: int


class Layouts:
    """The columns of `State` that do not change in a run, filled as phases and messages come along.

    `begun` counts messages of instances and the links that they cross, `under_way` those of phases that have not ended,
    `work` those of each layout; `known`: the same columns as arrays, where compiled functions can play. `share` says
    how much of the run is over, 0 where nobody knows.
    """

    def __init__(
        self,
        *,
        timed: bool,
        share: Callable[[], float] = lambda: 0.0,
        kind: type[State] = State,
        cross: Cross = cut_through,
    ):
        self.state, self._cross = kind.empty(timed=timed), cross
        self.begun, self.under_way, self._share = 0, 0, share
        self._compiles, self._enough = False, ENOUGH[kept(modules_of(kind)[-1])] / kind.weight
        self._asks_from = self._enough / 4
        self.columns = {"hops": Columns(5), "messages": Columns(3)}
        self.known = Known(self.state, self.columns) if installed() and not timed else None
        self.work: list[int] = []
        self._hops: dict[Shape, dict[tuple[int, int, int], int]] = {}
        self.extents = {MESSAGE: Extent(0, 0, 1)}
        self._work: dict[int, int] = {-1: 1}  # of messages, by first hops

    @property
    def compiles(self) -> bool:
        """Whether so much is under way or will begin that compiled functions repay loading them.

        As much is taken to begin as has, where nobody knows how much of the run is over, or only some have begun.
        """
        if not self._compiles and self.begun > self._asks_from:
            share, self._asks_from = self._share(), 1.25 * self.begun
            to_begin = self.begun * (1 / share - 1 if share > SOME else 1)
            self._compiles = self.under_way + to_begin > self._enough
        return self._compiles

    def hops(self, shape: Shape, src: IntArray, dst: IntArray, size_bytes: Sequence[int]) -> list[int]:
        """The first hops of messages between NPUs of a place; -1 of one to itself."""
        keys = list(zip(src.tolist(), dst.tolist(), size_bytes, strict=True))
        known = self._hops.setdefault(shape, {})
        new = list(dict.fromkeys(key for key in keys if key not in known))
        if new:
            known.update(zip(new, self._new_hops(shape, np.array(new)), strict=True))
        return [known[key] for key in keys]

    def _new_hops(self, shape: Shape, messages: IntArray) -> list[int]:
        """Of messages, each a row of source, destination and size."""
        first = self.columns["hops"].length
        graph, routes = shape.graph, shape.routes(messages[:, 0], messages[:, 1])
        sizes, left = np.repeat(messages[:, 2], routes.counts), np.repeat(routes.offsets[1:], routes.counts) - 1
        left -= np.arange(len(sizes))
        self.columns["hops"].add(routes.links, *self._cross(graph, routes, sizes), sizes, left)
        found: list[int] = np.where(routes.counts > 0, first + routes.offsets[:-1], -1).tolist()
        self._work.update(zip(found, (routes.counts + 1).tolist(), strict=True))
        return found

    def work_of(self, hops: Sequence[int]) -> list[int]:
        """Of messages, how much is played: themselves and the links that they cross."""
        return [self._work[hop] for hop in hops]

    def of(self, shape: Shape, plan: Plan, members: IntArray, costs: Costs) -> list[tuple[int, int]]:
        """Of a playable plan among some NPUs of a place: its layouts, and the number of the first message of each."""
        made = self._rounds if plan.rounds else self._transfers
        return [(made(shape, part, members, costs), first) for first, part in plan.parts]

    def carried(self, links: int, phases: Mapping[int, int], messages: Mapping[int, int]) -> tuple[IntArray, IntArray]:
        """Bytes and ns of so many links, of layouts by how often they were played, and of messages by first hops."""
        hops, sent = self.columns["hops"].since(0), self.columns["messages"].since(0)
        ends = [*(layout.message_at for layout in self.state.layouts[1:]), sent.shape[1]]
        played = [phases.get(layout, 0) for layout in range(len(self.state.layouts))]
        counts = np.zeros(hops.shape[1] + 1, np.int64)  # the last one is of messages without hops
        np.add.at(counts, sent[0], sent[2] * np.repeat(played, np.diff(ends, prepend=0)[: len(played)]))
        np.add.at(counts, np.array([*messages], np.int64), [*messages.values()])
        firsts = np.flatnonzero(np.append(0, hops[4])[:-1] == 0)
        counts = np.repeat(counts[firsts], hops[4, firsts] + 1)
        link, _, occupied_ns, size_bytes, _ = hops[:, counts > 0]
        found = np.zeros((2, links), np.int64)
        for own, each in zip(found, (size_bytes, occupied_ns), strict=True):
            np.add.at(own, link, counts[counts > 0] * each)
        return found[0], found[1]

    def _rounds(self, shape: Shape, plan: Plan, members: IntArray, costs: Costs) -> int:
        s, senders = self.state, np.arange(shape.players(members))
        layout = self._layout(members[senders], plan.num_rounds, plan.window, plan.half, costs.endpoint_ns)
        for number, (entry, count) in enumerate(plan.rounds):
            s.rounds.extend(Round(number, costs.received_ns(entry.reduce_bytes)) for _ in range(count))
        waits = plan.half and s.rounds[-plan.num_rounds].pay
        if plan.window == 1:
            s.layouts[layout].foreseen = IN_TURN
        elif sends_at_once(plan, costs) and not waits:
            s.layouts[layout].foreseen = AT_ONCE
        most = max(1, MESSAGES_AT_ONCE // len(senders))
        for first in range(0, len(plan.rounds), most):
            entries = [entry for entry, _ in plan.rounds[first : first + most]]
            peers = plan.peers(np.array([[entry.hop] for entry in entries]), len(senders)).reshape(-1)
            sizes = np.repeat([entry.size_bytes for entry in entries], len(senders))
            hops = self.hops(shape, np.tile(members[senders], len(entries)), members[peers], sizes.tolist())
            counts = np.repeat([count for _, count in plan.rounds[first : first + most]], len(senders))
            self.columns["messages"].add(np.array(hops), peers % len(senders), counts)
            self.work[layout] += int(np.dot(self.work_of(hops), counts))
        return layout

    def _transfers(self, shape: Shape, plan: Plan, members: IntArray, costs: Costs) -> int:
        s, entries = self.state, plan.transfers
        layout = self._layout(members, len(entries), 0, 0, costs.endpoint_ns)
        src, dst = (np.array([getattr(entry, end) for entry in entries], np.int64) for end in ("src", "dst"))
        hops = self.hops(shape, members[src], members[dst], [entry.size_bytes for entry in entries])
        self.columns["messages"].add(np.array(hops, np.int64), dst, np.ones_like(dst))
        self.work[layout] = sum(self.work_of(hops))
        s.rounds.extend(Round(entry.src, costs.received_ns(entry.charge_bytes)) for entry in entries)
        for index, (after, before) in enumerate(zip(plan.after, plan.before, strict=True)):
            waits = plan.waits[index] + (not after)
            s.transfers.append(Transfer(int(not after), waits, plan.behind.get(index, -1), len(s.then)))
            s.then.extend(before)
        s.transfers.append(Transfer(0, 0, 0, len(s.then)))
        for rank, sent, received in zip(s.ranks[-len(members) :], plan.sends, plan.receives, strict=True):
            rank.tasks = len(sent) + len(received)
        return layout

    def _layout(self, members: IntArray, rounds: int, window: int, half: int, endpoint_ns: int) -> int:
        s = self.state
        firsts = [len(s.rounds), self.columns["messages"].length, len(s.ranks), len(s.transfers)]
        ranks = len(members)
        s.layouts.append(Layout(ranks, rounds, window, half, endpoint_ns, *firsts))
        s.ranks.extend(Rank(name, 0) for name in members.tolist())
        self.work.append(0)
        number, most = len(s.layouts) - 1, ranks * rounds
        many = Extent(ranks, most, min(ranks * window, most) + ranks)
        self.extents[number] = many if window else Extent(ranks, rounds, ranks + rounds)
        return number


class Running:
    """What is on its way: instances of layouts, and messages of no phase, on links numbered from 0.

    The columns become arrays, and the functions compiled ones, where there is much to play.
    """

    def __init__(self, layouts: Layouts, links: int = 0):
        self._layouts = layouts
        self._columns: Lists | Arrays = Lists(layouts.state.apart(), layouts.columns)
        self.links = self._instances = self._slots = self._marks = 0
        self._entries = 0  # that a heap may have
        self._played: dict[int, Counter[int]] = defaultdict(Counter)  # layouts, by the shift of links
        self._sent: dict[int, Counter[int]] = defaultdict(Counter)  # first hops of messages of no phase
        self._idle: dict[int, list[int]] = {}  # heaps
        self._latest = -1, -1  # when messages of no phase were sent, and the number of the last one
        self.add_links(links)

    @property
    def used(self) -> bool:
        """Whether anything was ever on its way."""
        return self._instances > 0

    def add_links(self, count: int) -> int:
        """More links; the number of the first."""
        first, self.links = self.links, self.links + count
        self._columns.add("links", [0] * count)
        return first

    def counts(self, first: int, links: int) -> tuple[IntArray, IntArray]:
        """Bytes and nanoseconds of some links."""
        return self._layouts.carried(links, self._played[first], self._sent[first])

    def rows(self) -> LinkRows:
        """Link, begin and length of each time that one was occupied, where that is kept."""
        return LinkRows.of(np.array(self._columns.state.rows, np.int64).reshape(-1, 3))

    def start(self, layout: int, order: int, base: int, shift: int, now_ns: int) -> int:
        """Begin a phase of a group; the instance."""
        self._layouts.begun += self._layouts.work[layout]
        self._layouts.under_way += self._layouts.work[layout]
        instance = self._instance(layout, order, base, shift)
        self._played[shift][layout] += 1
        self._columns.core.begin(self._columns.state, instance, now_ns)
        return instance

    def send(self, order: int, number: int, sender: int, hop: int, shift: int, now_ns: int) -> int:
        """Send a message of no phase; the instance. Of equal ones the lowest number goes first, that of the first."""
        sent_ns, last = self._latest
        instance = self._instance(MESSAGE, order, number, shift, after=last if sent_ns == now_ns else -1)
        self._latest = now_ns, instance
        self._sent[shift][hop] += 1
        self._layouts.begun += self._layouts.work_of([hop])[0]
        self._columns.core.hand_over(self._columns.state, instance, sender, hop, now_ns)
        return instance

    def end(self, instance: int) -> None:
        """All have left: the instance may serve again."""
        layout = int(self._columns.state.instances[instance].layout)
        self._entries -= self._layouts.extents[layout].entries
        self._layouts.under_way -= self._layouts.work[layout] if layout != MESSAGE else 0
        heappush(self._idle.setdefault(layout, []), instance)

    def happen(self, now_ns: int) -> None:
        """What is due now, before the heads of this instant move."""
        self._columns.core.happen(self._columns.state, now_ns)

    def play(self, limit_ns: int, now_ns: int = -1) -> int:
        """As `core.play`."""
        then_ns: int = self._columns.core.play(self._columns.state, limit_ns, now_ns)
        return then_ns

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return self._columns.leaving

    def left(self) -> Sequence[Sequence[int]]:
        """(time, instance, position) of who leaves; they are told once."""
        return self._columns.left()

    def drain(self) -> Iterator[Sequence[int]]:
        """Play to the end: who leaves."""
        self.play(NEVER)
        while left := self.left():
            yield from left
            self.play(NEVER)

    def _instance(self, layout: int, order: int, base: int, shift: int, after: int = -1) -> int:
        extent = self._layouts.extents[layout]
        self._entries += extent.entries
        idle = self._idle.get(layout)
        instance = heappop(idle) if idle and idle[0] > after else self._instances
        if instance == self._instances:
            foreseen = 0 if layout == MESSAGE else self._layouts.state.layouts[layout].foreseen
            self._columns.add("instances", [Instance(layout, self._slots, self._marks, foreseen)])
            self._columns.add("slots", [Slot() for _ in range(extent.ranks)])
            self._columns.add("early", [0] * extent.marks)
            self._instances, self._slots = self._instances + 1, self._slots + extent.ranks
            self._marks += extent.marks
        if self._layouts.known and isinstance(self._columns, Lists) and self._layouts.compiles:
            self._columns = Arrays(self._columns.state, self._layouts.known)
        self._columns.follow(self._entries)
        own = self._columns.state.instances[instance]
        own.shift, own.order, own.base = shift, order, base
        return instance
