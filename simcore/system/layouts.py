"""Phases of groups made ready to be played as columns by `network.core`; their plans look up what they need once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simcore.network.clock import occupied_ns, steps
from simcore.network.compiled import Arrays, Known, installed
from simcore.network.core import NEVER, Lists, State
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.system.collectives import AnyPlan
from simcore.system.explicit import Explicit
from simcore.system.plan import Plan, SideBySide
from simcore.system.plans import Costs

__all__ = ["MESSAGE", "Layouts", "Running", "Shape", "playable"]

MESSAGE = -1
"""The layout of a message of no phase."""
MESSAGES_AT_ONCE = 1 << 16
ENOUGH = 250_000
"""So many messages take some five seconds in Python: long beside the half of a second that loads what is compiled."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What places of one kind have in common: `graph` are their links.

    A `lone` shape is played by its first NPU for all, on links that stand for those of all: it receives what it sends.
    """

    name: Hashable
    graph: LinkGraph
    lone: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.name == other.name


def playable(plan: AnyPlan) -> bool:
    """Whether its messages go from one rank to one other, at times that ranks alone decide."""
    return isinstance(plan, Plan | SideBySide) or (isinstance(plan, Explicit) and not plan.multicast)


class Extent(NamedTuple):
    """How large an instance of a layout is: `marks` in `early`, and at most so many `entries` of it in a heap.

    What is on its way has one entry each, a credit before it comes back, too; ranks have no more than their windows.
    """

    ranks: int
    messages: int
    marks: int
    entries: int


class Layouts:
    """The columns of `State` that do not change in a run, filled as phases and messages come along.

    `begun` counts messages of instances; `known`: the same columns as arrays, where compiled functions can play.
    """

    def __init__(self, *, timed: bool):
        self.state = State.empty(timed=timed)
        self.begun = 0
        self.known = Known(self.state) if installed() and not timed else None
        self._kinds: dict[Shape, dict[tuple[int, int, int], int]] = {}

    def extent(self, layout: int) -> Extent:
        """The size of an instance."""
        if layout == MESSAGE:
            return Extent(0, 1, 0, 1)
        s = self.state
        ranks, rounds, window = s.ranks[layout], s.rounds[layout], s.window[layout]
        if window:
            return Extent(ranks, ranks * rounds, ranks * rounds, ranks * (min(window, rounds) + 1))
        return Extent(ranks, rounds, rounds, ranks + rounds)

    def kinds(self, shape: Shape, src: IntArray, dst: IntArray, size_bytes: Sequence[int]) -> list[int]:
        """The kinds of messages between NPUs of a place."""
        keys = list(zip(src.tolist(), dst.tolist(), size_bytes, strict=True))
        known = self._kinds.setdefault(shape, {})
        new = list(dict.fromkeys(key for key in keys if key not in known))
        if new:
            known.update(zip(new, self._new_kinds(shape.graph, np.array(new)), strict=True))
        return [known[key] for key in keys]

    def _new_kinds(self, graph: LinkGraph, messages: IntArray) -> range:
        """Of messages, each a row of source, destination and size."""
        s, first = self.state, len(self.state.size)
        routes, sizes = graph.routes(messages[:, 0], messages[:, 1]), messages[:, 2]
        s.hop_at.extend((len(s.link) + routes.offsets[1:]).tolist())
        s.link.extend(routes.links.tolist())
        s.step.extend(steps(graph.latency_ns, routes).tolist())
        rates = graph.bandwidth_bytes_per_s[routes.links]
        s.occupied.extend(occupied_ns(np.repeat(sizes, routes.counts), rates).tolist())
        s.size.extend(sizes.tolist())
        return range(first, len(s.size))

    def of(self, shape: Shape, plan: AnyPlan, members: IntArray, costs: Costs) -> list[tuple[int, int]]:
        """Of a plan among some NPUs of a place: its layouts, and the number of the first message of each."""
        if isinstance(plan, SideBySide):
            firsts = np.cumsum([0, *(part.num_rounds for part in plan.plans)]).tolist()
            parts = zip(plan.plans, firsts, strict=False)
            return [(self._rounds(shape, part, members, costs), first) for part, first in parts]
        if isinstance(plan, Explicit):
            return [(self._transfers(shape, plan, members, costs), 0)]
        if isinstance(plan, Plan):
            return [(self._rounds(shape, plan, members, costs), 0)]
        raise NotImplementedError("whoever asks has asked `playable`")

    def _rounds(self, shape: Shape, plan: Plan, members: IntArray, costs: Costs) -> int:
        s = self.state
        senders = np.arange(1 if shape.lone else plan.size)
        s.round_at.append(len(s.entry))
        s.table_at.append(len(s.kind))
        for number, (entry, count) in enumerate(plan.rounds):
            s.entry.extend([number] * count)
            s.pay.extend([costs.received_ns(entry.reduce_bytes)] * count)
        at_once = max(1, MESSAGES_AT_ONCE // len(senders))
        for first in range(0, len(plan.rounds), at_once):
            entries = [entry for entry, _ in plan.rounds[first : first + at_once]]
            hops = np.array([entry.hop for entry in entries])[:, None]
            peers = senders ^ hops if plan.exchange else (senders + hops) % plan.size
            sizes = np.repeat([entry.size_bytes for entry in entries], len(senders))
            src = np.broadcast_to(members[senders], peers.shape)
            s.kind.extend(self.kinds(shape, src.ravel(), members[peers].ravel(), sizes.tolist()))
            s.peer.extend([0] * peers.size if shape.lone else peers.ravel().tolist())
        return self._layout(members[senders], plan.num_rounds, plan.window, plan.half, costs.endpoint_ns)

    def _transfers(self, shape: Shape, plan: Explicit, members: IntArray, costs: Costs) -> int:
        s, entries = self.state, plan.transfers
        s.round_at.append(len(s.entry))
        s.table_at.append(len(s.kind))
        src, dst = (np.array([getattr(entry, end) for entry in entries], np.int64) for end in ("src", "dst"))
        s.kind.extend(self.kinds(shape, members[src], members[dst], [entry.size_bytes for entry in entries]))
        s.entry.extend(src.tolist())
        s.peer.extend(dst.tolist())
        s.pay.extend(costs.received_ns(entry.charge_bytes) for entry in entries)
        behind = _lines(plan)
        followers = set(behind.values())
        layout = self._layout(members, len(entries), 0, 0, costs.endpoint_ns, len(s.opens))
        for index, (after, before) in enumerate(zip(plan.after, plan.before, strict=True)):
            s.opens.append(int(not after))
            s.waits.append(max(len(after), 1) + (index in followers))
            s.line.append(behind.get(index, -1))
            s.then_at.append(len(s.then))
            s.then.extend(before)
        for column in (s.opens, s.waits, s.line):
            column.append(0)  # one more, as `then_at` has
        s.then_at.append(len(s.then))
        tasks = zip(plan.sends, plan.receives, strict=True)
        s.tasks[s.name_at[layout] :] = [len(sent) + len(received) for sent, received in tasks]
        return layout

    def _layout(
        self, members: IntArray, rounds: int, window: int, half: int, endpoint_ns: int, more_at: int = 0
    ) -> int:
        s = self.state
        s.ranks.append(len(members))
        s.rounds.append(rounds)
        s.window.append(window)
        s.half.append(half)
        s.endpoint.append(endpoint_ns)
        s.more_at.append(more_at)
        s.name_at.append(len(s.name))
        s.name.extend(members.tolist())
        s.tasks.extend([0] * len(members))
        return len(s.ranks) - 1


def _lines(plan: Explicit) -> dict[int, int]:
    """Which transfer follows each one between the same two ranks."""
    found: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for index, entry in enumerate(plan.transfers):
        pair = (entry.src, entry.dst)
        if pair in last:
            found[last[pair]] = index
        last[pair] = index
    return found


class Running:
    """What is on its way: instances of layouts, and messages of no phase, on links numbered from 0.

    The columns become arrays, and the functions compiled ones, where there is much to play.
    """

    def __init__(self, layouts: Layouts, links: int = 0):
        self._layouts = layouts
        self._columns: Lists | Arrays = Lists(layouts.state.apart())
        self.links = self._instances = self._slots = self._marks = 0
        self._entries = 0  # that a heap may have
        self._idle: dict[int, list[int]] = {}
        self.add_links(links)

    @property
    def used(self) -> bool:
        """Whether anything was ever on its way."""
        return self._instances > 0

    def add_links(self, count: int) -> int:
        """More links; the number of the first."""
        first, self.links = self.links, self.links + count
        self._columns.widen(("free", "carried", "busy"), self.links)
        return first

    def counts(self, first: int, links: int) -> tuple[IntArray, IntArray]:
        """Bytes and nanoseconds of some links."""
        s, own = self._columns.state, slice(first, first + links)
        return np.array(s.carried[own], np.int64), np.array(s.busy[own], np.int64)

    def rows(self) -> IntArray:
        """Link, begin and end of each time that one was occupied, where that is kept."""
        return np.array(self._columns.state.rows, np.int64).reshape(-1, 3)

    def start(self, layout: int, order: int, base: int, shift: int, now_ns: int) -> int:
        """Begin a phase of a group; the instance."""
        instance = self._instance(layout, order, base, shift)
        self._columns.core.begin(self._columns.state, instance, now_ns)
        return instance

    def send(self, order: int, number: int, sender: int, kind: int, shift: int, now_ns: int) -> int:
        """Send a message of no phase; the instance."""
        instance = self._instance(MESSAGE, order, number, shift)
        self._columns.core.hand_over(self._columns.state, instance, number, sender, kind, now_ns)
        return instance

    def end(self, instance: int) -> None:
        """All have left: the instance may serve again."""
        layout = int(self._columns.state.layout[instance])
        self._entries -= self._layouts.extent(layout).entries
        self._idle.setdefault(layout, []).append(instance)

    def happen(self, now_ns: int) -> None:
        """What is due now, before the heads of this instant move."""
        self._columns.core.happen(self._columns.state, now_ns)

    def play(self, limit_ns: int, now_ns: int = -1) -> int:
        """As `core.play`."""
        return int(self._columns.core.play(self._columns.state, limit_ns, now_ns))

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return bool(self._columns.core.length(self._columns.state.left))

    def left(self) -> Sequence[Sequence[int]]:
        """(time, instance, position) of who leaves; they are told once."""
        return self._columns.left()

    def drain(self) -> Iterator[Sequence[int]]:
        """Play to the end: who leaves."""
        while self.play(NEVER) < NEVER or self.leaving:
            yield from self.left()

    def _instance(self, layout: int, order: int, base: int, shift: int) -> int:
        extent = self._layouts.extent(layout)
        self._layouts.begun += extent.messages
        self._entries += extent.entries
        idle = self._idle.get(layout)
        instance = idle.pop() if idle else self._another(layout, extent)
        if self._layouts.begun > ENOUGH and isinstance(self._columns, Lists) and self._layouts.known:
            self._columns = Arrays(self._columns.state, self._layouts.known)
        self._columns.follow(self._entries)
        s = self._columns.state
        s.shift[instance], s.order[instance], s.base[instance] = shift, order, base
        if layout != MESSAGE:
            self._reset(instance, layout)
        return instance

    def _another(self, layout: int, extent: Extent) -> int:
        instance, slot, mark = self._instances, self._slots, self._marks
        self._instances, self._slots, self._marks = instance + 1, slot + extent.ranks, mark + extent.marks
        self._columns.widen(("layout", "shift", "order", "base", "slot", "mark"), self._instances)
        self._columns.widen(("sent", "credits", "packets", "received"), self._slots)
        self._columns.widen(("early",), self._marks)
        s = self._columns.state
        s.layout[instance], s.slot[instance], s.mark[instance] = layout, slot, mark
        return instance

    def _reset(self, instance: int, layout: int) -> None:
        s, known, extent = self._columns.state, self._layouts.state, self._layouts.extent(layout)
        ranks, slot, mark = extent.ranks, s.slot[instance], s.mark[instance]
        for column in (s.sent, s.credits, s.packets):
            column[slot : slot + ranks] = [0] * ranks
        name, more = known.name_at[layout], known.more_at[layout]
        s.received[slot : slot + ranks] = known.tasks[name : name + ranks]
        waits = [0] * extent.marks if known.window[layout] else known.waits[more : more + extent.marks]
        s.early[mark : mark + extent.marks] = waits
