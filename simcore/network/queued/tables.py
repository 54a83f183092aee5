"""The tables of queued links: what their rows are. What is asked most stands first, as few lines of a cache hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from simcore.network.core import NEVER

NOBODY = -1
FREE, CREDITS, PFC, DROP = range(4)
"""How the buffer behind a link is guarded."""
ROWS = 1 << 13
"""So much of what queues and links do is noted before it is taken."""
Time = int
"""A moment of what goes on: all of them are later by as much where something that repeats itself is left out."""
Row = int
"""The number of a row, or a few of something: half a word in arrays, of which a cache then holds more."""


class Port(Struct, kw_only=True, gc=False):
    """The sending end of a link's channel: a queue waits for it (`head` to `tail`); what it has sent lies in the buffer
    behind.

    The wire that the channels of a link share is in the row of the first one, `link`, and with it what the link does
    and reports: so many segments are `waiting` for it in all queues, so many channels are `open`, not paused; those in
    whose queues some wait are `occupied`, a `channel_bit` for each. This is row `number`, channels are so many rows
    `apart` (0 where there is one).
    `taken_bytes` of that buffer are taken from the sender's point of view, where it goes by credits: these are known in
    the order from `credit` to `last_credit`; while it `awaits` room it is told of each. The first of the queue needs
    `head_bytes` there, nothing where it is for an NPU, and came at `head_ns`. `lying_bytes` are in it, where what finds
    no room is dropped or the sender paused. `kmax_bytes` 0: nothing is marked.
    """

    head: Row = NOBODY
    tail: Row = NOBODY
    credit: Row = NOBODY
    last_credit: Row = NOBODY
    paused: Row = 0
    awaits: Row = 0
    control: Row
    channel_bit: Row
    taken_bytes: int = 0
    buffer_bytes: int
    head_bytes: int = 0
    head_ns: Time = 0
    # Of the wire.
    occupied: Row = 0
    waiting: Row = 0
    apart: Row
    open: Row
    free_ns: Time = 0
    alarm_ns: Time = -1
    waiting_bytes: int = 0
    queued_bytes: int = 0  # of those that come from elsewhere: an NPU's own data wait in its memory
    bytes_per_s: float
    kmax_bytes: int = 0
    latency_ns: int
    still_since_ns: Time = -1
    noted_bytes: int = 0  # the last row of its curve
    sent_bytes: int = 0
    busy_ns: int = 0
    link: int
    number: int
    lying_bytes: int = 0
    asked_to_pause: int = 0
    xoff_bytes: int
    xon_bytes: int
    kmin_bytes: int = 0
    pmax: float = 0.0
    packet_bytes: int = 1
    chances: int = NOBODY  # of marks, since nothing waited
    asked: int = 0  # how often there was one
    # What else is reported.
    peak_bytes: int = 0
    still_ns: int = 0
    stops: int = 0
    marks: int = 0
    drops: int = 0
    dropped_bytes: int = 0


class Hop(Struct, gc=False):
    """Of a way: a link, ns of the head; how many are left behind it.

    `own` is the link of the whole network for which it stands, `port` the row of its channel that is taken.
    """

    link: Row
    left: Row
    own: Row
    port: Row
    step_ns: int


@dataclass(slots=True)
class Way:
    """Its `hops`, from number `at` on, and the latency of the way back in whole nanoseconds.

    Those from `fork` up to `join` are not those of all ways of its pair. What is sent while it takes longer than the
    shortest one are `longer_bytes`.
    """

    at: Row
    hops: Row
    back_ns: int
    fork: Row
    join: Row
    longer_bytes: float


@dataclass(slots=True)
class Pair:
    """Two NPUs: the `ways` between them stand in `routes` from `at` on, 0 = in several dimensions (`several`).

    The first one is `hashed`; each turn moves on by `step`. Where it is `adaptive` the one with the least queue.
    """

    at: Row = 0
    ways: Row = 0
    hashed: Row = 0
    step: Row = 0
    adaptive: Row = 0


@dataclass(slots=True, kw_only=True)
class Message:
    """Of `count` segments, all of `segment_bytes` but for the last; `sent` have left, `missing` have not arrived.

    `order`, `part` and `ends` order who comes at one time. It is of a chunk's `phase`, 0 = of none. Its segments go
    over the ways of its `pair` in turn, from number `turn` on, which is that of the message in its phase: so nothing
    that was sent before matters. Where they all take one `way` it is known. `next` is the one that its sender sends
    after it.
    """

    order: Any
    pair: Row
    way: Row = NOBODY
    size_bytes: int
    segment_bytes: int
    count: int
    sent: int = 0
    missing: int = 0
    tail_ns: Time = 0
    next: Row = NOBODY
    part: int
    ends: int
    phase: int
    turn: int
    begin_ns: int


@dataclass(slots=True)
class Segment:
    """On its way: `at` is the number of the next link among `hops`. `held` is the row of the channel in whose buffer it
    lies, -1 at its source.

    On links of `bytes_per_s` it takes `takes_ns`; `step_ns` and `left` are those of the link whose queue it is in.
    There `next` is behind it, and it comes at `comes_ns`. Its readings of links are chained from the last one,
    `reading`, on.
    """

    next: Row
    left: Row = 0
    size_bytes: int = 0
    comes_ns: Time = 0
    held: Row = NOBODY
    at: Row = 0
    step_ns: int = 0
    tail_ns: Time = 0
    takes_ns: int = 0
    bytes_per_s: float = 0.0
    message: Row = 0
    sender: Row = 0
    index: int = 0
    way: Row = 0
    marked: Row = 0
    sent_ns: Time = 0
    reading: Row = NOBODY
    readings: Row = 0


@dataclass(slots=True)
class Reading:
    """What a segment saw when a link (`own` as of `Hop`) took it: bytes waiting, bytes it had sent, the time."""

    next: int
    link: int = 0
    own: int = 0
    queue_bytes: int = 0
    sent_bytes: int = 0
    now_ns: Time = 0


@dataclass(slots=True)
class Credit:
    """So many bytes behind a link will be known to be free; `next` is the link's one after it."""

    next: int
    time_ns: Time = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Sender:
    """Messages that go one after the other: those of two NPUs in a phase under one law, else each by itself.

    The next segment is ready when the one before has begun (`ready`), the window has room and it is time. What was
    lost goes first, segments from `lost` to `last_lost`. The readings that came back last are kept.
    """

    law: Row = NOBODY
    ready: Row = 1
    current: Row = NOBODY
    waiting: Row = NOBODY
    lost: Row = NOBODY
    last_lost: Row = NOBODY
    reading: Row = NOBODY
    readings: Row = 0
    free_ns: Time = 0
    alarm_ns: Time = -1
    under_way_bytes: int = 0


@dataclass(slots=True)
class Counts:
    """Events so far; changes to come; segments, readings and credits in use, the first free row of each, and room.

    When credits or pauses are last heard of; the message to be looked at when it has sent so much (`guide`); behind
    how many events somebody looks whether to compile; whether curves and occupations of links are noted, and whether
    some law `reads` links. Where nobody sees it what comes to a link that sends until then lines up `early`.
    """

    events: int = 0
    changes: int = 0
    segments: int = 0
    readings: int = 0
    credits: int = 0
    free_segments: int = NOBODY
    free_readings: int = NOBODY
    free_credits: int = NOBODY
    room_of_changes: int = NEVER
    room_of_segments: int = 0
    room_of_readings: int = 0
    room_of_credits: int = 0
    room_of_rows: int = ROWS
    settled_ns: Time = 0
    now_ns: int = 0
    guide: int = NOBODY
    look_at: int = 0
    pause_at: int = NEVER
    curved: int = 1
    timed: int = 0
    reads: int = 0
    early: int = 0


TABLES: dict[str, Any] = {
    "counts": Counts,
    "ports": Port,
    "hops": Hop,
    "ways": Way,
    "routes": int,
    "pairs": Pair,
    "messages": Message,
    "segments": Segment,
    "readings": Reading,
    "credits": Credit,
    "senders": Sender,
}
"""What the rows of each table are; those of `laws` are `queued.laws.Law`."""


@dataclass(slots=True)
class State:
    """All tables.

    `heads` are (time, order, part, links behind, index, ends, number, segment) of those that come to links, `timers`
    (time, number and kind, of whom, bytes) of changes. `left` takes (time, message, last byte's time) of messages that
    are through, `curves` (link, time, what, value) as `QueueTable`, `times` (link, start, how long) of occupations.
    """

    ports: list[Port]
    choose: Callable[[int, int, int], int]
    heads: list[Any] = field(default_factory=lambda: [(NEVER,)])
    timers: list[tuple[int, ...]] = field(default_factory=lambda: [(NEVER,)])
    left: list[tuple[int, int, int]] = field(default_factory=list)
    curves: list[tuple[int, int, int, int]] = field(default_factory=list)
    times: list[tuple[int, int, int]] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=lambda: [Counts()])
    hops: list[Hop] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    routes: list[int] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    credits: list[Credit] = field(default_factory=list)
    senders: list[Sender] = field(default_factory=list)
    laws: list[Any] = field(default_factory=list)
