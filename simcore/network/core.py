"""Messages that meet on links, played as integers in columns: no object, no callback and no event for each of them.

Links carry one message at a time, first come, first served; a message's head goes on as soon as a link is its own
(cut-through; `congested.CutThrough` with `system.plans.automaton` is the reference). Of heads that come to links at one
time the lowest (order of the phase, message in it, links behind it, sender) is served first: an order that
stays when all NPUs move on along a ring, so that what is symmetric remains so.

The tables are lists of rows here, heads and timers heaps. Other modules make the same functions work on other things:
`network.lists` on calendars of heads, where there are many, `network.compiled` on arrays of records, where runs are
large. What heads, timers and lists of tuples can do is therefore called by the few names below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush, heappushpop
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NEVER = 1 << 62
NONE = 0
IN_TURN, AT_ONCE = 1, 2
"""How ranks send whose messages are foreseen: one at a time, or all of a half at once."""
START, CREDIT, RELEASE, LEAVE, RECEIVED = -1, -2, -3, -4, 1 << 40
"""What a timer may be, beside the number of a message that arrives; RECEIVED is added to a transfer's number."""

Head = tuple[int, int, int, int, int, int, int, int, int, int]
"""The head of a message: (time, order, number, links behind, sender, instance, receiver, hop, last byte's time, line).

Those of a line mostly come in order: a link has passed them on, or a rank sends them at once. Line 0 is none.
"""
Timer = tuple[int, int, int, int]
"""(time, instance, number of the message or what else, position or transfer)."""
NOBODY: Head = (NEVER, NONE, 0, 0, 0, 0, 0, 0, 0, 0)
"""No message."""
append, length, swap = list.append, len, heappushpop
push = heappush
pop_timer = pop_head = heappop


def first(heap: list[Any]) -> int:
    """The time of the first entry, `NEVER` of none."""
    time: int = heap[0][0]
    return time


class Hop(Struct, eq=False):
    """Of messages that have ends and size in common: a link, ns of the head and of the whole, how many hops follow."""

    link: int
    step: int
    occupied: int
    size: int
    left: int


class Layout(Struct, eq=False):
    """What equal phases of equal groups share: `window` and `half` as in `plan.Plan`, a packet's `endpoint` ns.

    From `round_at` on are its rounds, from `message_at` on the messages of an entry by position, from `rank_at` on its
    ranks. One with `window` 0 is a list of transfers, from `transfer_at` on (with one behind the last); their senders
    and the packets of their receives are in the rounds, hops and receivers in the messages. Where it is `foreseen`,
    what ranks do is known when messages are on their last links (`IN_TURN`, `AT_ONCE`; 0: it is not).
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
    foreseen: int = 0


class Round(Struct, eq=False):
    """Which entry's messages it sends, and ns of the packet of the receive of that number."""

    entry: int
    pay: int


class Message(Struct, eq=False):
    """Its first hop, -1 where it needs none, the receiver's position, and how often a phase sends it."""

    hop: int
    peer: int
    count: int


class Transfer(Struct, eq=False):
    """Whether it waits for its first packet only, for how many things, which one waits for its departure (-1: none).

    Those that wait for its receive are in `then` from `then_at` on, to the next one's.
    """

    opens: int
    waits: int
    line: int
    then_at: int


class Rank(Struct, eq=False):
    """Its `name` orders senders; `tasks` are its sends and receives in a list of transfers."""

    name: int
    tasks: int


@dataclass(slots=True)
class Instance:
    """A phase of one group: `layout` (-1: a message of no phase), `shift` of its links' numbers, number of its first
    message, its first slot and mark; whether it is `foreseen`.
    """

    layout: int
    slot: int
    mark: int
    foreseen: int = 0
    shift: int = 0
    order: int = 0
    base: int = 0


@dataclass(slots=True)
class Slot:
    """What a rank has sent, its credits and packets, and what it received (in a list: has still to send or receive).

    As long as a phase lasts, `name` orders it among senders, and its messages have marks from `mark` on. Of what is
    foreseen: when it is `ready` for the next message, or has all of the first half, of which it `received` so many; of
    the other half, `credits` count what came, the last one at `packets`.
    """

    sent: int = 0
    ready: int = 0
    credits: int = 0
    packets: int = 0
    received: int = 0
    name: int = 0
    mark: int = 0


ROWS: dict[str, Any] = {
    "links": int,
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
    """All tables; of links, when each is free.

    `heads` and `timers` are heaps; `left` takes (time, instance, position) of who leaves a phase, and of messages of
    no phase that arrive; `rows` takes (link, start, end) of every occupation where `timed` is true. `early` says by
    mark that a message came before it was listened for, of a rank that sends one at a time 1 + when (in lists of
    transfers: for how many things it still waits).
    """

    heads: list[Head]
    timers: list[Timer]
    left: list[tuple[int, int, int]]
    rows: list[tuple[int, int, int]]
    timed: bool
    links: list[int]
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

    entries: ClassVar[tuple[str, ...]] = ("begin", "hand_over", "happen", "play")  # what Python calls of its module
    weight: ClassVar[int] = 1  # how long they take in Python, compared with others
    kinds: ClassVar[dict[str, Any]] = ROWS
    moving: ClassVar[tuple[str, ...]] = MOVING

    @classmethod
    def empty(cls, *, timed: bool) -> Self:
        """Nothing on its way, and no links."""
        tables: dict[str, Any] = {name: [] for name in cls.kinds}
        never = NEVER, NONE - 1, 0, 0  # before what compiled heaps have in rows that are free
        return cls(heads=[(*never, 0, 0, 0, 0, 0, 0)], timers=[never], left=[], rows=[], timed=timed, **tables)

    def apart(self) -> Self:
        """The same layouts, with nothing on its way on links of their own."""
        known = {name: getattr(self, name) for name in self.kinds if name not in self.moving}
        return replace(self.empty(timed=self.timed), **known)


class Columns:
    """Rows of a table by columns, as they are added; who needs them as rows asks for those that are new to him."""

    def __init__(self, width: int) -> None:
        self.length = 0
        self._parts = [np.zeros((width, 0), np.int64)]

    def add(self, *columns: NDArray[np.int64]) -> None:
        """More rows."""
        self._parts.append(np.stack(columns))
        self.length += len(columns[0])

    def since(self, length: int) -> NDArray[np.int64]:
        """The columns of all rows behind so many, which some parts are."""
        missing, parts = self.length - length, self._parts[:1]
        for part in reversed(self._parts):
            if missing:
                parts.append(part)
                missing -= part.shape[1]
        return np.concatenate(parts[::-1], axis=1)


def begin(s: State, number: int, now: int) -> None:
    """All ranks of an instance begin."""
    instance = s.instances[number]
    layout = s.layouts[instance.layout]
    then, mark = now + layout.endpoint, instance.mark
    for position in range(layout.ranks):
        slot, rank = s.slots[instance.slot + position], s.ranks[layout.rank_at + position]
        slot.name, slot.mark, slot.ready, slot.received = rank.name, mark, then, rank.tasks
        slot.sent, slot.credits, slot.packets = 0, 0, 0 if instance.foreseen else layout.window
        mark += layout.rounds
        if instance.foreseen == IN_TURN:
            head = _next(s, instance, number, -1, position, then)
            if head[0] < NEVER:
                push(s.heads, head)
        elif instance.foreseen == AT_ONCE:
            _burst(s, instance, number, position, 0, layout.half or layout.rounds, then)
        elif layout.window:
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

    What happens in the instant `now` after its heads have moved is left for another call, and so is what happens after
    those of a later one have: messages that took no time. Without `now`, nobody asks for waves within an instant.
    Returns when something happens next.
    """
    if first(s.timers) == now:
        happen(s, now)
    if now >= 0 and length(s.left):
        return now
    then, moved = serve(s, now, now)
    while now < then < limit:
        if first(s.timers) == then:
            if moved == then and now >= 0:
                return then
            happen(s, then)
            if length(s.left):
                return then
        then, moved = serve(s, then, limit)
    return then


def serve(s: State, now: int, limit: int) -> tuple[int, int]:
    """Give links to the heads that are there now, and to later ones before `limit` or something else happens.

    Returns when something happens next, and the last instant whose heads have moved.
    """
    heads, timers, links, hops, instances, timed = s.heads, s.timers, s.links, s.hops, s.instances, s.timed
    until = min(first(timers), limit)
    head = pop_head(heads)
    while head[0] < until or head[0] == now:
        time, order, number, behind, sender, instance, receiver, at, tail, _ = head
        now = time
        hop, phase = hops[at], instances[instance]
        link, step = hop.link + phase.shift, hop.step
        begins = links[link]
        if begins < time:
            begins = time
        links[link] = ends = begins + hop.occupied
        if timed:
            append(s.rows, (link, begins, hop.occupied))
        if ends < tail:
            ends = tail
        ends += step
        if hop.left:
            line, behind, at = 2 * link + 1, behind + 1, at + 1
            head = swap(heads, (begins + step, order, number, behind, sender, instance, receiver, at, ends, line))
            continue
        if phase.foreseen == IN_TURN and ends > time:
            head = _next(s, phase, instance, number - phase.base, receiver, ends)
            if head[0] < NEVER:
                head = swap(heads, head)
                continue
        elif phase.foreseen == AT_ONCE and ends > time:
            if not _gathered(s, phase, instance, number - phase.base, receiver, ends):
                head = pop_head(heads)
                continue
        else:
            push(timers, (ends, instance, number - phase.base, receiver))
        until = min(first(timers), limit)
        head = pop_head(heads)
    push(heads, head)
    return min(first(heads), first(timers)), now


def happen(s: State, now: int) -> None:
    """Deliveries and credits that are due now, and what ranks do at once."""
    instances, layouts, slots, timers = s.instances, s.layouts, s.slots, s.timers
    while first(timers) == now:
        _, number, what, position = pop_timer(timers)
        instance = instances[number]
        if instance.layout < 0 or what == LEAVE:
            append(s.left, (now, number, position))
            continue
        if instance.foreseen and what >= 0:
            if instance.foreseen == IN_TURN:
                head = _next(s, instance, number, what, position, now)
                if head[0] < NEVER:
                    push(s.heads, head)
            else:
                _gathered(s, instance, number, what, position, now)
            continue
        layout = layouts[instance.layout]
        if layout.window:
            _round(s, number, layout, slots[instance.slot + position], what, position, now)
        else:
            _transfer(s, number, what, position, now)


def _round(s: State, number: int, layout: Layout, slot: Slot, what: int, position: int, now: int) -> None:
    """To a rank that plays rounds comes a message or a credit, or it starts."""
    if what < 0:
        _credits(s, number, layout, slot, position, layout.window if what == START else 1, now)
    elif what >= slot.sent:
        s.early[slot.mark + what] = 1
    elif _listened(s, number, layout, slot, position, now):
        _credits(s, number, layout, slot, position, 1, now)


def _next(s: State, instance: Instance, number: int, message: int, position: int, time: int) -> Head:
    """To a rank comes a message, or will come, in what is foreseen: done with it, it sends what is next or leaves.

    Returns the head of what it sends, `NOBODY` where it waits, or what it does next is among the timers.
    """
    slot, layout = s.slots[instance.slot + position], s.layouts[instance.layout]
    sent = slot.sent
    if message + 1 != sent:
        s.early[slot.mark + message] = time + 1
        return NOBODY
    if time < slot.ready:
        time = slot.ready
    round_at, base = layout.round_at + sent, layout.message_at + position
    if sent:
        time += s.rounds[round_at - 1].pay
    while sent < layout.rounds:
        entry, came = s.messages[base + s.rounds[round_at].entry * layout.ranks], s.early[slot.mark + sent]
        if not came:
            slot.sent, slot.ready = sent + 1, time
            if entry.hop >= 0:
                order, behind = instance.order, NONE
                return time, order, instance.base + sent, behind, slot.name, number, entry.peer, entry.hop, time, NONE
            push(s.timers, (time, number, sent, entry.peer))
            return NOBODY
        _send(s, instance, number, sent, slot.name, entry.hop, entry.peer, time)
        s.early[slot.mark + sent] = 0
        time = max(time, came - 1) + s.rounds[round_at].pay
        sent, round_at = sent + 1, round_at + 1
    push(s.timers, (time, number, LEAVE, position))
    return NOBODY


def _gathered(s: State, instance: Instance, number: int, message: int, position: int, time: int) -> bool:
    """As `_next`, where all messages of a half are sent at once; whether that changes what else happens."""
    slot, layout = s.slots[instance.slot + position], s.layouts[instance.layout]
    half = layout.half or layout.rounds
    if message < half:
        received = slot.received = slot.received + 1
        if slot.ready < time:
            slot.ready = time
        if received < half:
            return False
        _burst(s, instance, number, position, half, layout.rounds, slot.ready)
    else:
        slot.credits += 1
        if slot.packets < time:
            slot.packets = time
    over = slot.received + slot.credits == layout.rounds
    if over:
        leaves = max(slot.ready, slot.packets) + s.rounds[layout.round_at + layout.rounds - 1].pay
        push(s.timers, (leaves, number, LEAVE, position))
    return over or message < half


def _burst(s: State, instance: Instance, number: int, position: int, first_one: int, end: int, time: int) -> None:
    """A rank sends some messages at once."""
    layout, name = s.layouts[instance.layout], s.slots[instance.slot + position].name
    heads, order, base = s.heads, instance.order, instance.base
    at, ranks, line = layout.message_at + position, layout.ranks, 2 * (instance.slot + position) + 2
    for sent in range(first_one, end):
        message = s.messages[at + s.rounds[layout.round_at + sent].entry * ranks]
        if message.hop < 0:
            push(s.timers, (time, number, sent, message.peer))
        else:
            push(heads, (time, order, base + sent, NONE, name, number, message.peer, message.hop, time, line))


def _listened(s: State, number: int, layout: Layout, slot: Slot, position: int, now: int) -> bool:
    """A message that was listened for: whether its packet gives a credit at once; one that costs something gives it
    later.
    """
    pay = s.rounds[layout.round_at + slot.received].pay
    slot.received += 1
    slot.packets += 1
    if pay:
        push(s.timers, (now + pay, number, CREDIT, position))
    return not pay


def _came(s: State, number: int, layout: Layout, slot: Slot, _message: int, position: int, now: int) -> bool:
    """As `_listened`, of a message that had come before."""
    return _listened(s, number, layout, slot, position, now)


def _pay(s: State, number: int, layout: Layout, index: int, what: int, position: int, now: int) -> None:
    """A rank is done with the packet of a receive after its time."""
    push(s.timers, (now + s.rounds[layout.round_at + index].pay, number, what, position))


def _credits(s: State, number: int, layout: Layout, slot: Slot, position: int, count: int, now: int) -> None:
    """A rank may send on, once for each credit; with all sent and all credits back it leaves."""
    instance, rounds, half = s.instances[number], layout.rounds, layout.half
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
            _send(s, instance, number, sent, slot.name, message.hop, message.peer, now)
            mark = slot.mark + sent
            if s.early[mark]:
                s.early[mark] = 0
                count += _came(s, number, layout, slot, sent, position, now)
        if slot.sent == rounds and slot.credits == layout.window:
            append(s.left, (now, number, position))


def _send(
    s: State, instance: Instance, number: int, message: int, sender: int, hop: int, receiver: int, now: int
) -> None:
    """A message of an instance, from its first hop on."""
    if hop < 0:
        push(s.timers, (now, number, message, receiver))
    else:
        order, message = instance.order, instance.base + message
        push(s.heads, (now, order, message, NONE, sender, number, receiver, hop, now, NONE))


def _transfer(s: State, number: int, what: int, position: int, now: int) -> None:
    """Something happens to a transfer of a list: it arrives, has been received, or waits for one thing less."""
    layout = s.layouts[s.instances[number].layout]
    if 0 <= what < RECEIVED:
        _pay(s, number, layout, what, RECEIVED + what, position, now)
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
