"""Messages in the order of events, as integers in columns: every link takes them whole, first in, first out.

Events of one time happen in the order in which they were asked for, so every event has a number. What an NPU does
later shares the number of what it does then already (`instant.Timers`). Ranks play their parts as in `core`, whose
functions call those of the same names here (`lists.bound`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from simcore.network.core import (
    CREDIT,
    LEAVE,
    MOVING,
    NONE,
    RECEIVED,
    RELEASE,
    ROWS,
    START,
    Instance,
    Layout,
    Slot,
    State,
    _round,
    _transfer,
    append,
    length,
    pop_head,
    push,
)

CALLED, FREED = -1, -2
"""What events have in place of an instance: something that Python calls by a number, a link that is free again."""
REDUCED = 1 << 41
"""Added to the number of a receive whose reduction is still to be paid."""
BEFORE = 1 << 40
"""Added to what a transfer waits for: it came before its receiver was there."""
OWN, NOWHERE = -1, -1
"""An event's own number; a message that crosses no link."""
ORDER, TURN, NPU, NUMBER = range(4)
"""Of the `clock`: the number of the event that happens, its turn, whose that is, and the next number."""


@dataclass(slots=True)
class Line:
    """A link: when it is free and the number of that event, the first and last that wait, what it has carried."""

    free_ns: int = -1
    number: int = 0
    first: int = 0
    last: int = 0
    size_bytes: int = 0
    busy_ns: int = 0


@dataclass(slots=True)
class Waiting:
    """A message that waits for a link, and the `next` one; of rows that are free only that. Row 0 has their first."""

    next: int
    instance: int = 0
    message: int = 0
    receiver: int = 0
    hop: int = 0


@dataclass(slots=True)
class Turn:
    """What an NPU does at a time, all under one number, and how much of it is `left`; `next` as of `Waiting`."""

    next: int
    time: int = 0
    number: int = 0
    left: int = 0


@dataclass(slots=True)
class StateInOrder(State):
    """More tables: `npus` have the first of their turns. `heads` are all events; nothing is in `timers`.

    An event is (time, number to be ordered by, its own, instance, what, position, hop, turn, NPU, 0).
    """

    lines: list[Line]
    waiting: list[Waiting]
    turns: list[Turn]
    npus: list[int]
    clock: list[int]

    entries: ClassVar[tuple[str, ...]] = ("begin", "depart", "enter", "arrive", "later", "play")
    weight: ClassVar[int] = 2
    kinds: ClassVar[dict[str, Any]] = ROWS | {
        "lines": Line, "waiting": Waiting, "turns": Turn, "npus": int, "clock": int
    }  # fmt: skip
    moving: ClassVar[tuple[str, ...]] = (*MOVING, "lines", "waiting", "turns", "npus", "clock")


def begin(s: State, number: int, _: int) -> None:
    """An instance is there; its ranks begin one by one."""
    instance = s.instances[number]
    layout, mark = s.layouts[instance.layout], instance.mark
    for position in range(layout.ranks):
        slot, rank = s.slots[instance.slot + position], s.ranks[layout.rank_at + position]
        slot.name, slot.mark, slot.received = rank.name, mark, rank.tasks
        slot.sent, slot.credits, slot.packets, slot.ready = 0, 0, layout.window, 0
        mark += layout.rounds
    if not layout.window:
        for index in range(layout.rounds):
            s.early[instance.mark + index] = s.transfers[layout.transfer_at + index].waits


def enter(s: StateInOrder, number: int, position: int, now: int) -> None:
    """A rank begins."""
    instance = s.instances[number]
    layout, slot = s.layouts[instance.layout], s.slots[instance.slot + position]
    then, mark = now + layout.endpoint, instance.mark
    if layout.window:
        later(s, slot.name, number, START, position, then)
        return
    slot.packets = 1  # it is there
    if slot.received == 0:
        _event(s, now, OWN, number, LEAVE, position, NOWHERE)
    for index in range(layout.rounds):
        if s.rounds[layout.round_at + index].entry == position and s.transfers[layout.transfer_at + index].opens:
            later(s, slot.name, number, RELEASE, index, then)
    for index in range(layout.rounds):
        if s.messages[layout.message_at + index].peer == position and s.early[mark + index] >= BEFORE:
            s.early[mark + index] -= BEFORE
            _event(s, now, OWN, number, index, position, NOWHERE)


def play(s: StateInOrder, limit: int, limit_number: int) -> None:
    """Play all that comes before a time and number, but stop behind an event by which somebody leaves."""
    heads, clock, hops, turns = s.heads, s.clock, s.hops, s.turns
    while True:
        turn = clock[TURN]
        if turn:
            turns[turn].left -= 1
            if not turns[turn].left:
                _over(s, turn, clock[NPU])
        event = pop_head(heads)
        time, order, _, number, what, position, hop, turn, npu, _ = event
        if time > limit or (time == limit and order >= limit_number):
            push(heads, event)
            clock[TURN] = 0
            return
        clock[ORDER], clock[TURN], clock[NPU] = order, turn, npu
        if number == FREED:
            _freed(s, what, time)
        elif hop >= 0 and hops[hop].left:
            _come(s, number, what, position, hop + 1, time)
        elif number == CALLED:
            append(s.left, (time, CALLED, what))
        else:
            arrive(s, number, what, position, time)
        if length(s.left):
            return


def arrive(s: StateInOrder, number: int, what: int, position: int, now: int) -> None:
    """A message is here, or something happens to a rank; who has begun something else leaves the message to Python."""
    if what == LEAVE:
        append(s.left, (now, number, position))
        return
    instance = s.instances[number]
    layout = s.layouts[instance.layout]
    if not layout.window and what < 0:
        _transfer(s, number, what, position, now)
        return
    slot = s.slots[instance.slot + position]
    if what >= REDUCED:
        then = now + s.rounds[layout.round_at + what - REDUCED].pay
        later(s, slot.name, number, CREDIT if layout.window else RECEIVED + what - REDUCED, position, then)
    elif slot.ready and 0 <= what < RECEIVED:
        append(s.left, (now, number, position + layout.ranks * (1 + what)))
    elif layout.window:
        _round(s, number, layout, slot, what, position, now)
    elif slot.packets or what >= RECEIVED:
        _transfer(s, number, what, position, now)
    else:
        s.early[instance.mark + what] += BEFORE


def later(s: StateInOrder, npu: int, number: int, what: int, position: int, time: int) -> None:
    """An NPU does something later, behind all that it does at that time already."""
    turns, clock, at = s.turns, s.clock, s.npus[npu]
    while at and turns[at].time != time:
        at = turns[at].next
    if not at:
        at = turns[0].next
        turn = turns[at]
        turns[0].next, s.npus[npu], turn.next = turn.next, at, s.npus[npu]
        turn.time, turn.number, turn.left = time, clock[NUMBER], 0
    turn = turns[at]
    turn.left += 1
    own = clock[NUMBER]
    clock[NUMBER] = own + 1
    push(s.heads, (time, turn.number, own, number, what, position, NOWHERE, at, npu, NONE))


def _over(s: StateInOrder, at: int, npu: int) -> None:
    """Nothing of a turn is left."""
    turns, before = s.turns, s.npus[npu]
    if before == at:
        s.npus[npu] = turns[at].next
    else:
        while turns[before].next != at:
            before = turns[before].next
        turns[before].next = turns[at].next
    turns[at].next, turns[0].next = turns[0].next, at


def _event(s: StateInOrder, time: int, order: int, number: int, what: int, position: int, hop: int) -> None:
    """Something happens, ordered by a number or by its own."""
    own = s.clock[NUMBER]
    s.clock[NUMBER] = own + 1
    push(s.heads, (time, own if order == OWN else order, own, number, what, position, hop, NONE, NONE, NONE))


def _send(
    s: StateInOrder, _instance: Instance, number: int, message: int, _sender: int, hop: int, receiver: int, now: int
) -> None:
    """As in `core`."""
    depart(s, number, message, receiver, hop, now)


def depart(s: StateInOrder, number: int, message: int, receiver: int, hop: int, now: int) -> None:
    """A message of an instance is sent, or of no phase (`CALLED`, with a number for Python)."""
    if hop < 0:
        _event(s, now, OWN, number, message, receiver, NOWHERE)
    else:
        _come(s, number, message, receiver, hop, now)


def _come(s: StateInOrder, number: int, message: int, receiver: int, hop: int, now: int) -> None:
    """A message comes to a link."""
    link = s.hops[hop].link
    line = s.lines[link]
    if now > line.free_ns or (now == line.free_ns and s.clock[ORDER] > line.number):
        _take(s, line, link, number, message, receiver, hop, now)
        return
    at = s.waiting[0].next
    waiting = s.waiting[at]
    s.waiting[0].next = waiting.next
    waiting.instance, waiting.message, waiting.receiver, waiting.hop = number, message, receiver, hop
    if line.first:
        s.waiting[line.last].next = at
    else:
        line.first = at
        _event(s, line.free_ns, line.number, FREED, link, 0, NOWHERE)
    line.last, waiting.next = at, 0


def _take(s: StateInOrder, line: Line, link: int, number: int, message: int, receiver: int, at: int, now: int) -> None:
    """A link takes a message; that it arrives is asked for before that the link is free."""
    hop = s.hops[at]
    _event(s, now + hop.step, OWN, number, message, receiver, at)
    line.free_ns, line.number = now + hop.occupied, s.clock[NUMBER]
    s.clock[NUMBER] += 1
    line.size_bytes += hop.size
    line.busy_ns += hop.occupied
    if s.timed:
        append(s.rows, (link, now, hop.occupied))


def _freed(s: StateInOrder, link: int, now: int) -> None:
    """A link is free for the next of those that wait."""
    line = s.lines[link]
    at = line.first
    waiting = s.waiting[at]
    line.first, waiting.next, s.waiting[0].next = waiting.next, s.waiting[0].next, at
    _take(s, line, link, waiting.instance, waiting.message, waiting.receiver, waiting.hop, now)
    if line.first:
        _event(s, line.free_ns, line.number, FREED, link, 0, NOWHERE)


def _pay(s: StateInOrder, number: int, layout: Layout, index: int, what: int, position: int, now: int) -> None:
    """As in `core`: the endpoint's delay, and behind it a reduction, where there is one."""
    name = s.slots[s.instances[number].slot + position].name
    reduces = s.rounds[layout.round_at + index].pay >= 0
    later(s, name, number, REDUCED + index if reduces else what, position, now + layout.endpoint)


def _listened(s: StateInOrder, number: int, layout: Layout, slot: Slot, position: int, now: int) -> bool:
    """As in `core`."""
    slot.received += 1
    slot.packets += 1
    _pay(s, number, layout, slot.received - 1, CREDIT, position, now)
    return False


def _came(s: StateInOrder, number: int, _layout: Layout, _slot: Slot, message: int, position: int, now: int) -> bool:
    """As in `core`: a message that came early is received behind what else happens now."""
    _event(s, now, OWN, number, message, position, NOWHERE)
    return False
