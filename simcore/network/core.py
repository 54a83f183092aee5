"""Messages that meet on links, played as integers in columns: no object, no callback and no event for each of them.

Links carry one message at a time, first come, first served; a message's head goes on as soon as a link is its own
(cut-through; `congested.CutThrough` with `system.plans.automaton` is the reference). Of heads that come to links at one
time the lowest (order of the phase, message in it, links behind it, sender) is served first: an order that
stays when all NPUs move on along a ring, so that what is symmetric remains so.

The tables are lists of rows here. `network.compiled` compiles the same functions for arrays of records in their place,
where runs are large; what calendars and lists of tuples can do is therefore called by the few names below.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEVER = 1 << 62
NONE = 0
START, CREDIT, RELEASE, RECEIVED = -1, -2, -3, 1 << 40
"""What a timer may be, beside the number of a message that arrives; RECEIVED is added to a transfer's number."""

Head = tuple[int, int, int, int, int, int, int, int, int]
"""A message before a link: (time, order, number, links behind, sender, instance, receiver, hop, last byte's time)."""
Timer = tuple[int, int, int, int]
"""(time, instance, number of the message or what else, position or transfer)."""


class Calendar:
    """Entries in order: those of one time are kept together and sorted once, when that time has come.

    `times` are those that are to come, the first of them first, and `NEVER` behind them. Of each there is an entry, or
    a list of several.
    """

    __slots__ = ("_now", "_of", "times")

    def __init__(self) -> None:
        self.times = [NEVER]
        self._of: dict[int, Any] = {}
        self._now = -1  # of a list that is sorted, the last entry first

    def push(self, entry: tuple[int, ...]) -> None:
        """One more, which may come at the time that is running, behind what has come."""
        time = entry[0]
        there = self._of.get(time)
        if there is None:
            self._of[time] = entry
            heappush(self.times, time)
        elif time == self._now:
            insort(there, entry, key=_backwards)
        elif type(there) is list:
            there.append(entry)
        else:
            self._of[time] = [there, entry]

    def pop(self) -> Any:
        """Take the first."""
        time = self.times[0]
        entry = there = self._of[time]
        if type(there) is list:
            if time != self._now:
                there.sort(reverse=True)
                self._now = time
            entry = there.pop()
            if there:
                return entry
            self._now = -1
        del self._of[heappop(self.times)]
        return entry

    def __len__(self) -> int:
        """How many there are."""
        return sum(len(there) if type(there) is list else 1 for there in self._of.values())


def _backwards(entry: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-number for number in entry)


append, length, push, pop_head, pop_timer = list.append, len, Calendar.push, Calendar.pop, Calendar.pop


@dataclass(slots=True)
class Link:
    """When it is free, bytes carried, ns busy."""

    free: int = 0
    carried: int = 0
    busy: int = 0


@dataclass(slots=True)
class Hop:
    """Of messages that have ends and size in common: a link, ns of the head and of the whole, how many hops follow."""

    link: int
    step: int
    occupied: int
    size: int
    left: int


@dataclass(slots=True)
class Layout:
    """What equal phases of equal groups share: `window` and `half` as in `plan.Plan`, a packet's `endpoint` ns.

    From `round_at` on are its rounds, from `message_at` on the messages of an entry by position, from `rank_at` on its
    ranks. One with `window` 0 is a list of transfers, from `transfer_at` on (with one behind the last); their senders
    and the packets of their receives are in the rounds, hops and receivers in the messages.
    """

    ranks: int
    rounds: int
    window: int
    half: int
    endpoint: int
    round_at: int
    message_at: int
    rank_at: int
    transfer_at: int


@dataclass(slots=True)
class Round:
    """Which entry's messages it sends, and ns of the packet of the receive of that number."""

    entry: int
    pay: int


@dataclass(slots=True)
class Message:
    """Its first hop, -1 where it needs none, and the receiver's position."""

    hop: int
    peer: int


@dataclass(slots=True)
class Transfer:
    """Whether it waits for its first packet only, for how many things, which one waits for its departure (-1: none).

    Those that wait for its receive are in `then` from `then_at` on, to the next one's.
    """

    opens: int
    waits: int
    line: int
    then_at: int


@dataclass(slots=True)
class Rank:
    """Its `name` orders senders; `tasks` are its sends and receives in a list of transfers."""

    name: int
    tasks: int


@dataclass(slots=True)
class Instance:
    """A phase of one group: `layout` (-1: a message of no phase), `shift` of its links' numbers, number of its first
    message, its first slot and mark.
    """

    layout: int
    slot: int
    mark: int
    shift: int = 0
    order: int = 0
    base: int = 0


@dataclass(slots=True)
class Slot:
    """What a rank has sent, its credits and packets, and what it received (in a list: has still to send or receive)."""

    sent: int = 0
    credits: int = 0
    packets: int = 0
    received: int = 0


ROWS: dict[str, type] = {
    "links": Link,
    "hops": Hop,
    "layouts": Layout,
    "rounds": Round,
    "messages": Message,
    "transfers": Transfer,
    "then": int,
    "ranks": Rank,
    "instances": Instance,
    "slots": Slot,
    "early": int,
}
"""What the rows of each table are."""
MOVING = ("links", "instances", "slots", "early")
"""The tables of links and instances; the others grow, and what is in them stays."""


@dataclass(slots=True)
class State:
    """All tables.

    `heads` and `timers` are in order; `left` takes (time, instance, position) of who leaves a phase, and of messages of
    no phase that arrive; `rows` takes (link, start, end) of every occupation where `timed` is true. `early` says by
    mark whether a message came before it was listened for (in lists of transfers: for how many things it still waits).
    """

    heads: Calendar
    timers: Calendar
    left: list[tuple[int, int, int]]
    rows: list[tuple[int, int, int]]
    timed: bool
    links: list[Link]
    hops: list[Hop]
    layouts: list[Layout]
    rounds: list[Round]
    messages: list[Message]
    transfers: list[Transfer]
    then: list[int]
    ranks: list[Rank]
    instances: list[Instance]
    slots: list[Slot]
    early: list[int]

    @classmethod
    def empty(cls, *, timed: bool) -> State:
        """Nothing on its way, and no links."""
        tables: dict[str, Any] = {name: [] for name in ROWS}
        return cls(heads=Calendar(), timers=Calendar(), left=[], rows=[], timed=timed, **tables)

    def apart(self) -> State:
        """The same layouts, with nothing on its way on links of their own."""
        known = {name: getattr(self, name) for name in ROWS if name not in MOVING}
        return replace(State.empty(timed=self.timed), **known)


class Columns:
    """Rows of a table by columns, as they are added; who needs them as rows asks for those that are new to him."""

    def __init__(self) -> None:
        self.length = 0
        self._parts: list[NDArray[np.int64]] = []

    def add(self, *columns: NDArray[np.int64]) -> None:
        """More rows."""
        self._parts.append(np.stack(columns))
        self.length += len(columns[0])

    def since(self, length: int) -> NDArray[np.int64]:
        """The columns of all rows behind so many, which some parts are."""
        missing, parts = self.length - length, []
        for part in reversed(self._parts):
            if missing:
                parts.append(part)
                missing -= part.shape[1]
        return np.concatenate(parts[::-1], axis=1)


class Lists:
    """A state whose tables are lists, which follow the columns; `compiled.Arrays` has others."""

    def __init__(self, state: State, columns: Mapping[str, Columns]):
        self.core, self.state, self._columns = sys.modules[__name__], state, columns

    def add(self, name: str, rows: list[Any]) -> None:
        """More rows of a table."""
        getattr(self.state, name).extend(rows)

    def follow(self, entries: int) -> None:
        """All that is known by now, and room in the heaps, which lists do not need."""
        for name, columns in self._columns.items():
            rows = getattr(self.state, name)
            if len(rows) < columns.length:
                rows.extend(map(ROWS[name], *columns.since(len(rows)).tolist()))

    @property
    def leaving(self) -> bool:
        """Whether somebody leaves."""
        return bool(self.state.left)

    def left(self) -> list[tuple[int, int, int]]:
        """Who leaves; they are told once."""
        entries = self.state.left[:]
        self.state.left.clear()
        return entries


def begin(s: State, number: int, now: int) -> None:
    """All ranks of an instance begin."""
    instance = s.instances[number]
    layout = s.layouts[instance.layout]
    then = now + layout.endpoint
    for position in range(layout.ranks):
        slot = s.slots[instance.slot + position]
        slot.sent, slot.credits, slot.packets = 0, 0, layout.window
        slot.received = s.ranks[layout.rank_at + position].tasks
        if layout.window:
            push(s.timers, (then, number, START, position))
        elif slot.received == 0:
            append(s.left, (now, number, position))
    if not layout.window:
        for index in range(layout.rounds):
            transfer = s.transfers[layout.transfer_at + index]
            s.early[instance.mark + index] = transfer.waits
            if transfer.opens:
                push(s.timers, (then, number, RELEASE, index))


def hand_over(s: State, instance: int, sender: int, hop: int, now: int) -> None:
    """Send a message of no phase."""
    _send(s, s.instances[instance], instance, 0, sender, hop, 0, now)


def play(s: State, limit: int, now: int = -1) -> int:
    """Play all that happens before `limit`, but stop where somebody leaves, before the heads of that instant move.

    `now` is an instant whose heads move in any case; what happens in it after that is left for another call.
    Returns when something happens next.
    """
    heads, timers = s.heads, s.timers
    then = now
    while True:
        if timers.times[0] == then:
            happen(s, then)
            if then > now and length(s.left):
                return then
        if heads.times[0] == then:
            serve(s, then)
        if 0 <= then == now and length(s.left):
            return then
        then = min(heads.times[0], timers.times[0])
        if then >= limit or then == now:
            return then


def serve(s: State, now: int) -> None:
    """Give links to the heads that are there now."""
    heads, links, hops, instances = s.heads, s.links, s.hops, s.instances
    while heads.times[0] == now:
        _, order, number, behind, sender, instance, receiver, at, tail = pop_head(heads)
        hop, phase = hops[at], instances[instance]
        link, occupied, step = links[hop.link + phase.shift], hop.occupied, hop.step
        begins = link.free
        if begins < now:
            begins = now
        link.free = ends = begins + occupied
        link.carried += hop.size
        link.busy += occupied
        if s.timed:
            append(s.rows, (hop.link + phase.shift, begins, ends))
        if ends < tail:
            ends = tail
        if hop.left:
            push(heads, (begins + step, order, number, behind + 1, sender, instance, receiver, at + 1, ends + step))
        else:
            push(s.timers, (ends + step, instance, number - phase.base, receiver))


def happen(s: State, now: int) -> None:
    """Deliveries and credits that are due now, and what ranks do at once."""
    instances, layouts, slots, timers = s.instances, s.layouts, s.slots, s.timers
    while timers.times[0] == now:
        _, number, what, position = pop_timer(timers)
        instance = instances[number]
        if instance.layout < 0:
            append(s.left, (now, number, position))
            continue
        layout = layouts[instance.layout]
        if not layout.window:
            _transfer(s, number, what, position, now)
            continue
        slot = slots[instance.slot + position]
        if what < 0:
            _credits(s, number, position, layout.window if what == START else 1, now)
        elif what >= slot.sent:
            s.early[instance.mark + position * layout.rounds + what] = 1
        elif _received(s, number, layout, slot, position, now):
            _credits(s, number, position, 1, now)


def _received(s: State, number: int, layout: Layout, slot: Slot, position: int, now: int) -> bool:
    """A message that was listened for: whether its packet gives a credit at once; one that costs something gives it
    later.
    """
    pay = s.rounds[layout.round_at + slot.received].pay
    slot.received += 1
    slot.packets += 1
    if pay:
        push(s.timers, (now + pay, number, CREDIT, position))
    return not pay


def _credits(s: State, number: int, position: int, count: int, now: int) -> None:
    """A rank may send on, once for each credit; with all sent and all credits back it leaves."""
    instance = s.instances[number]
    layout, slot = s.layouts[instance.layout], s.slots[instance.slot + position]
    rounds, half, name = layout.rounds, layout.half, s.ranks[layout.rank_at + position].name
    while count:
        count -= 1
        slot.credits += 1
        times = 1
        if half and slot.sent >= half:
            times = 0
            if slot.received >= half:
                times = min(layout.window, slot.packets, slot.credits, rounds - slot.sent)
        while times and slot.packets and slot.sent < rounds and slot.credits:
            times -= 1
            sent = slot.sent
            slot.sent += 1
            slot.credits -= 1
            slot.packets -= 1
            entry = s.rounds[layout.round_at + sent].entry
            message = s.messages[layout.message_at + entry * layout.ranks + position]
            _send(s, instance, number, sent, name, message.hop, message.peer, now)
            mark = instance.mark + position * rounds + sent
            if s.early[mark]:
                s.early[mark] = 0
                count += _received(s, number, layout, slot, position, now)
        if slot.sent == rounds and slot.credits == layout.window:
            append(s.left, (now, number, position))


def _send(
    s: State, instance: Instance, number: int, message: int, sender: int, hop: int, receiver: int, now: int
) -> None:
    """A message of an instance, from its first hop on."""
    if hop < 0:
        push(s.timers, (now, number, message, receiver))
    else:
        push(s.heads, (now, instance.order, instance.base + message, NONE, sender, number, receiver, hop, now))


def _transfer(s: State, number: int, what: int, position: int, now: int) -> None:
    """Something happens to a transfer of a list: it arrives, has been received, or waits for one thing less."""
    layout = s.layouts[s.instances[number].layout]
    if 0 <= what < RECEIVED:
        push(s.timers, (now + s.rounds[layout.round_at + what].pay, number, RECEIVED + what, position))
    elif what == RELEASE:
        _release(s, number, position, now)
    else:
        _one_less(s, number, position, now)
        at = layout.transfer_at + what - RECEIVED
        for index in range(s.transfers[at].then_at, s.transfers[at + 1].then_at):
            _release(s, number, s.then[index], now)


def _release(s: State, number: int, transfer: int, now: int) -> None:
    """A transfer waits for one thing less; with none it is sent, and the next to the same rank need not wait for it."""
    instance = s.instances[number]
    layout = s.layouts[instance.layout]
    while transfer >= 0:
        s.early[instance.mark + transfer] -= 1
        if s.early[instance.mark + transfer]:
            return
        sender, message = s.rounds[layout.round_at + transfer].entry, s.messages[layout.message_at + transfer]
        _send(s, instance, number, transfer, s.ranks[layout.rank_at + sender].name, message.hop, message.peer, now)
        _one_less(s, number, sender, now)
        transfer = s.transfers[layout.transfer_at + transfer].line


def _one_less(s: State, number: int, position: int, now: int) -> None:
    """A rank has one thing less to do; with none it leaves."""
    slot = s.slots[s.instances[number].slot + position]
    slot.received -= 1
    if not slot.received:
        append(s.left, (now, number, position))
