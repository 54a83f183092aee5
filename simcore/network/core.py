"""Messages that meet on links, played as integers in columns: no object, no callback and no event for each of them.

Links carry one message at a time, first come, first served; a message's head goes on as soon as a link is its own
(cut-through; `congested.CutThrough` with `system.automaton` is the reference). Of heads that come to links at one time
the lowest (order of the phase, number of the message in it, links behind it, sender) is served first: an order that
stays when all NPUs move on along a ring, so that what is symmetric remains so.

The columns are lists here. `network.compiled` compiles the same functions for arrays in their place, where runs are
large; what heaps and lists of tuples can do is therefore called by the few names below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

__all__ = ["KNOWN", "MOVING", "NEVER", "Lists", "State", "begin", "hand_over", "happen", "play"]

NEVER = 1 << 62
START, CREDIT, RELEASE, RECEIVED = -1, -2, -3, 1 << 40
"""What a timer may be, beside the number of a message that arrives; RECEIVED is added to a transfer's number."""

Head = tuple[int, int, int, int, int, int, int, int, int]
"""A message before a link: (time, order, number, links behind, sender, instance, receiver, kind, last byte's time)."""
Timer = tuple[int, int, int, int]
"""(time, instance, number of the message or what else, position or transfer)."""


push, pop_head, pop_timer, append, length = heappush, heappop, heappop, list.append, len


def first_ns(heap: list[Head] | list[Timer]) -> int:
    """The time of the first in a heap."""
    return heap[0][0] if heap else NEVER


class State(NamedTuple):
    """All columns.

    `heads` and `timers` are heaps; `left` takes (time, instance, position) of who leaves a phase, and of messages of
    no phase that arrive.

    Of links: when they are `free`, bytes `carried`, ns `busy`; `rows` takes (link, start, end) of every occupation
    where `timed` is true. Of kinds of messages, which have ends and size in common: their `size`, and hops `hop_at[k]`
    to `hop_at[k + 1]` in the columns `link`, `step` (ns of the head) and `occupied` (ns).

    Of layouts, what equal phases of equal groups share: `ranks`, `rounds`, `window` and `half` as in `plan.Plan`, a
    packet's `endpoint` ns; from `round_at` on, its rounds' `entry` and `pay` (ns of the packet of the receive of that
    number); from `table_at` on, an entry's row of message `kind` and `peer` by position.

    A layout with `window` 0 is a list of transfers: from `round_at` on `entry` holds their senders and `pay` the
    packets of their receives, from `table_at` on `kind` and `peer`. From `more_at` on, `opens` says which transfers
    wait for nothing but their first packet, `waits` for how many things each one waits, `line` which one waits for its
    departure (-1: none), and `then_at` to the next in `then` which wait for its receive. From `name_at` on, `name` of
    every rank orders senders, `tasks` are its sends and receives in a list.

    Of instances, a phase of one group each: `layout` (-1: a message of no phase), `shift` of its links' numbers,
    `order`, `base` (the number of its first message), `slot` of its first rank, `mark` of its first message. Of rank
    slots: messages `sent`, `credits`, `packets`, messages `received` (in lists of transfers: how many are still to be
    sent or received). By mark: whether a message came `early`, before it was listened for (in lists of transfers: for
    how many things it still waits).
    """

    heads: list[Head]
    timers: list[Timer]
    left: list[tuple[int, int, int]]
    free: list[int]
    carried: list[int]
    busy: list[int]
    rows: list[tuple[int, int, int]]
    timed: bool
    size: list[int]
    hop_at: list[int]
    link: list[int]
    step: list[int]
    occupied: list[int]
    ranks: list[int]
    rounds: list[int]
    window: list[int]
    half: list[int]
    endpoint: list[int]
    round_at: list[int]
    table_at: list[int]
    name_at: list[int]
    entry: list[int]
    pay: list[int]
    kind: list[int]
    peer: list[int]
    more_at: list[int]
    opens: list[int]
    waits: list[int]
    then_at: list[int]
    then: list[int]
    line: list[int]
    name: list[int]
    tasks: list[int]
    layout: list[int]
    shift: list[int]
    order: list[int]
    base: list[int]
    slot: list[int]
    mark: list[int]
    sent: list[int]
    credits: list[int]
    packets: list[int]
    received: list[int]
    early: list[int]

    @classmethod
    def empty(cls, *, timed: bool) -> State:
        """Nothing on its way, and no links."""
        columns: dict[str, list[int]] = {name: [] for name in KNOWN + MOVING}
        return cls(heads=[], timers=[], left=[], rows=[], timed=timed, **{**columns, "hop_at": [0]})

    def apart(self) -> State:
        """The same kinds and layouts, with nothing on its way on links of their own."""
        return State.empty(timed=self.timed)._replace(**{name: getattr(self, name) for name in KNOWN})


class Lists:
    """A state whose columns are lists; `compiled.Arrays` has others."""

    def __init__(self, state: State):
        self.core, self.state = sys.modules[__name__], state

    def widen(self, names: Sequence[str], length: int) -> None:
        """Columns of at least such a length."""
        for name in names:
            column = getattr(self.state, name)
            column.extend([0] * (length - len(column)))

    def follow(self, entries: int) -> None:
        """All that is known by now, and room in the heaps: lists need neither."""

    def left(self) -> list[tuple[int, int, int]]:
        """Who leaves; they are told once."""
        entries = self.state.left[:]
        self.state.left.clear()
        return entries


KNOWN = State._fields[State._fields.index("size") : State._fields.index("layout")]
"""The columns of kinds and layouts: they grow, and what is in them stays."""
MOVING = (*("free", "carried", "busy"), *State._fields[State._fields.index("layout") :])
"""The columns of links and instances."""


def begin(s: State, instance: int, now: int) -> None:
    """All ranks of an instance begin."""
    layout = s.layout[instance]
    then = now + s.endpoint[layout]
    first = s.slot[instance]
    if s.window[layout]:
        for position in range(s.ranks[layout]):
            s.packets[first + position] = s.window[layout]
            push(s.timers, (then, instance, START, position))
        return
    at = s.more_at[layout]
    for transfer in range(s.rounds[layout]):
        if s.opens[at + transfer]:
            push(s.timers, (then, instance, RELEASE, transfer))
    for position in range(s.ranks[layout]):
        if s.received[first + position] == 0:
            append(s.left, (now, instance, position))


def hand_over(s: State, instance: int, number: int, sender: int, kind: int, now: int) -> None:
    """Send a message of no phase."""
    if s.hop_at[kind] == s.hop_at[kind + 1]:
        push(s.timers, (now, instance, 0, 0))
    else:
        push(s.heads, (now, s.order[instance], number, 0, sender, instance, 0, kind, now))


def play(s: State, limit: int, now: int = -1) -> int:
    """Play all that happens before `limit`, but stop where somebody leaves, before the heads of that instant move.

    `now` is an instant whose heads move in any case; what happens in it after that is left for another call.
    Returns when something happens next.
    """
    then = now
    while True:
        if then >= 0:
            if first_ns(s.timers) == then:
                happen(s, then)
            if then > now and length(s.left):
                return then
            if first_ns(s.heads) == then:
                serve(s, then)
            if then == now and length(s.left):
                return then
        then = min(first_ns(s.heads), first_ns(s.timers))
        if then >= limit or then == now:
            return then


def serve(s: State, now: int) -> None:
    """Give links to the heads that are there now."""
    heads, timers, free, carried, busy = s.heads, s.timers, s.free, s.carried, s.busy
    hop_at, link_of, step_of, occupied_of, size, shift = s.hop_at, s.link, s.step, s.occupied, s.size, s.shift
    while first_ns(heads) == now:
        _, order, number, hop, sender, instance, receiver, kind, tail = pop_head(heads)
        at = hop_at[kind] + hop
        link, step, occupied = link_of[at] + shift[instance], step_of[at], occupied_of[at]
        begins = free[link]
        if begins < now:
            begins = now
        ends = begins + occupied
        free[link] = ends
        carried[link] += size[kind]
        busy[link] += occupied
        if s.timed:
            append(s.rows, (link, begins, ends))
        if ends > tail:
            tail = ends
        tail += step
        if at + 1 < hop_at[kind + 1]:
            push(heads, (begins + step, order, number, hop + 1, sender, instance, receiver, kind, tail))
        else:
            push(timers, (tail, instance, number - s.base[instance], receiver))


def happen(s: State, now: int) -> None:
    """Deliveries and credits that are due now, and what ranks do at once."""
    timers = s.timers
    while first_ns(timers) == now:
        _, instance, what, position = pop_timer(timers)
        layout = s.layout[instance]
        if layout < 0:
            append(s.left, (now, instance, 0))
        elif not s.window[layout]:
            _transfer(s, instance, what, position, now)
        elif what >= 0:
            slot = s.slot[instance] + position
            if what < s.sent[slot]:
                cost = _receive(s, layout, slot)
                if cost:
                    push(timers, (now + cost, instance, CREDIT, position))
                else:  # it would be the next timer
                    _credit(s, instance, position, now)
            else:
                s.early[s.mark[instance] + position * s.rounds[layout] + what] = 1
        elif what == CREDIT:
            _credit(s, instance, position, now)
        else:
            for _ in range(s.window[layout]):
                _credit(s, instance, position, now)


def _receive(s: State, layout: int, slot: int) -> int:
    """A message that was listened for: after so many nanoseconds its packet gives a credit."""
    count = s.received[slot]
    s.received[slot] = count + 1
    s.packets[slot] += 1
    return s.pay[s.round_at[layout] + count]


def _credit(s: State, instance: int, position: int, now: int) -> None:
    """A rank may send on; with all sent and all credits back it leaves."""
    layout, slot = s.layout[instance], s.slot[instance] + position
    s.credits[slot] += 1
    rounds, half, window = s.rounds[layout], s.half[layout], s.window[layout]
    times = 1
    if half and s.sent[slot] >= half:
        times = 0
        if s.received[slot] >= half:
            times = min(window, s.packets[slot], s.credits[slot], rounds - s.sent[slot])
    for _ in range(times):
        number = s.sent[slot]
        if not (s.packets[slot] and number < rounds and s.credits[slot]):
            break
        s.sent[slot] = number + 1
        s.credits[slot] -= 1
        s.packets[slot] -= 1
        at = s.table_at[layout] + s.entry[s.round_at[layout] + number] * s.ranks[layout] + position
        _send(s, instance, layout, number, position, s.kind[at], s.peer[at], now)
        mark = s.mark[instance] + position * rounds + number
        if s.early[mark]:
            s.early[mark] = 0
            push(s.timers, (now + _receive(s, layout, slot), instance, CREDIT, position))
    if s.sent[slot] == rounds and s.credits[slot] == window:
        append(s.left, (now, instance, position))


def _send(s: State, instance: int, layout: int, number: int, position: int, kind: int, receiver: int, now: int) -> None:
    if s.hop_at[kind] == s.hop_at[kind + 1]:
        push(s.timers, (now, instance, number, receiver))
        return
    sender = s.name[s.name_at[layout] + position]
    push(s.heads, (now, s.order[instance], s.base[instance] + number, 0, sender, instance, receiver, kind, now))


def _transfer(s: State, instance: int, what: int, position: int, now: int) -> None:
    """Something happens to a transfer of a list: it arrives, has been received, or waits for one thing less."""
    layout = s.layout[instance]
    at = s.round_at[layout]
    if 0 <= what < RECEIVED:
        push(s.timers, (now + s.pay[at + what], instance, RECEIVED + what, position))
        return
    if what == RELEASE:
        _release(s, instance, layout, position, now)
        return
    transfer = what - RECEIVED
    _one_less(s, instance, position, now)
    more = s.more_at[layout] + transfer
    for index in range(s.then_at[more], s.then_at[more + 1]):
        _release(s, instance, layout, s.then[index], now)


def _release(s: State, instance: int, layout: int, transfer: int, now: int) -> None:
    """A transfer waits for one thing less; with none it is sent, and the next to the same rank need not wait for it."""
    at, table, mark = s.round_at[layout], s.table_at[layout], s.mark[instance]
    while transfer >= 0:
        s.early[mark + transfer] -= 1
        if s.early[mark + transfer]:
            return
        sender = s.entry[at + transfer]
        _send(s, instance, layout, transfer, sender, s.kind[table + transfer], s.peer[table + transfer], now)
        _one_less(s, instance, sender, now)
        transfer = s.line[s.more_at[layout] + transfer]


def _one_less(s: State, instance: int, position: int, now: int) -> None:
    """A rank has one thing less to do; with none it leaves."""
    slot = s.slot[instance] + position
    s.received[slot] -= 1
    if not s.received[slot]:
        append(s.left, (now, instance, position))
