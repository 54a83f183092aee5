"""The tables of flows: what their rows are. A flow is what one NPU sends another, over one way or several at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from simcore.network.core import NEVER
from simcore.network.queued.tables import NOBODY

PARTS = 65536
FINE = 1024
"""Times of links and chances of marks are added up in such parts of a nanosecond and of a packet."""
SIGNALS = 32
SLOPES = 1 << 18
"""Of what is added before a link, one way's share is in such parts."""


@dataclass(slots=True)
class Flow:
    """What one NPU sends another under a law, over so many `ways` from row `at` on, of which it plays `lanes`.

    Each takes as much as the others, or, `adaptive`, the more the less waits on it. `pledged` are the parts of all its
    messages, `injected` those that have been put before first links, `loaded` those in its tanks, `waiting` those still
    before first links; whether it `sends` in a step. Where all ways begin over one link, all that is sent `begins`
    there with such a part (of `FINE`). Its messages are chained from the `oldest` that is not there yet to the
    `current` one. `unsaid` parts have left since the last signal was sent; of the first `unmarked` ones it is known
    since `asked_ns` that nothing marked them. `signals` are under way, the first in row `first` of the flow's own, of
    which so many have `read` the links. `acked` parts were back at `heard_ns`, the last after `round_ns`. Flows of the
    same `rules` and `kind` have fared alike so far, 0 = are new.
    """

    law: int
    at: int
    ways: int
    line: float  # parts a nanosecond
    idle_ns: int
    back_ns: int
    period_ns: int
    packet_bytes: int
    rules: int = 0
    adaptive: int = 0
    kind: int = 0
    lane: int = 0
    lanes: int = 0
    pledged: int = 0
    begins: int = 0
    sends: int = 0
    injected: int = 0
    loaded: int = 0
    waiting: int = 0
    oldest: int = NOBODY
    current: int = NOBODY
    unsaid: int = 0
    unmarked: int = 0
    said_ns: int = 0
    asked_ns: int = 0
    due_ns: int = NEVER  # the first signal
    first: int = 0
    signals: int = 0
    read: int = 0
    acked: int = 0
    heard_ns: int = 0
    round_ns: int = 1


@dataclass(slots=True)
class Way:
    """Of a flow, over `hops` links from row `at` on; it stands for so many of the flow's ways that are `alike`.

    Those from hop `fork` up to hop `join` are not those of all its ways; it is such a `part` (of `FINE`) of those that
    have its first link. Of the parts that were `injected`, messages that have left their sender `ended` with so many.
    In a step so many `more` are put before its first link; `fullest` waits for one of its links, whose `slope` it has,
    and what its sender sends while it takes `longer` than others (NEVER: the way is out). In the last step so many were
    `put` there, what that `changes` from step to step, and how that `bends`; the way `moves` until all are 0.
    """

    at: int
    hops: int
    part: int = FINE
    alike: int = 1
    injected: int = 0
    loaded: int = 0
    unsaid: int = 0
    more: int = 0
    put: int = 0
    changes: int = 0
    bends: int = 0
    moves: int = 0
    # What is seldom looked at.
    latency_ns: int = 0
    fork: int = 0
    join: int = 0
    longer: int = 0
    kind: int = 0
    ended: int = 0
    fullest: int = 0
    slope: int = SLOPES
    counted: int = 0  # of what is reported


class Hop(Struct, gc=False):
    """A way's tank before a link; of such ways `weight` share it. The link before it has `weight_before` of them.

    What has `gone` in the last step, what that `changes` from step to step, and how that `bends`.
    """

    home: int
    link: int
    before: int = NOBODY
    weight: int = 1
    weight_before: int = 1
    tank: int = 0
    gone: int = 0
    changes: int = 0
    bends: int = 0


@dataclass(slots=True)
class Queue:
    """A link's channel, and all that is before it. Sizes are parts, rates parts a nanosecond.

    What all channels of a link share, and what is reported, is in the row of the first one, its `wire`. In a step:
    `backlog` before it, of which `passing` comes from other links and `going` goes on to others; as it `sends` so much
    `waits` is what it leaves, and who comes later finds `later`; `lying` in the buffer at its end; `able` to be sent,
    `asked` of the wire by all channels, of what was `before` them; `came` in the step before, where that may be marked.
    `left` waits when the step is over. So many ways were `crossing` it, and its `slope` is what each added to all that
    they did. Not noted yet: it stood `still` for so long, so many packets were `marked` (of which `marking` in
    this step), it was `used` for so long; `highest` since a row.
    """

    wire: int
    line: float
    latency_ns: int
    control: int
    buffer: int
    xoff: int
    xon: int
    kmin: int = 0
    kmax: int = 0
    pmax: float = 0.0
    packet_bytes: int = 1
    kind: int = 0
    slope: int = SLOPES
    crossing: int = 0
    backlog: int = 0
    passing: int = 0
    going: int = 0
    lying: int = 0
    backlog_next: int = 0
    passing_next: int = 0
    going_next: int = 0
    lying_next: int = 0
    own: int = 0
    own_next: int = 0
    came: int = 0
    marking: int = 0
    able: float = 0.0
    asked: float = 0.0
    before: float = 0.0
    share: float = 0.0
    waits: int = 0
    later: int = 0
    sends: int = 0
    left: float = 0.0
    chance: float = 0.0
    use: float = 0.0
    mean_use: float = 0.0
    paused: int = 0
    stands: int = 0
    noted: int = 0
    highest: float = 0.0
    highest_ns: int = 0
    still: int = 0
    still_since_ns: int = -1
    marked: int = 0
    used: int = 0
    used_since_ns: int = 0
    # What is reported.
    peak_bytes: int = 0
    still_ns: int = 0
    stops: int = 0
    marks: int = 0


@dataclass(slots=True)
class Message:
    """Ends when its flow has injected `end` parts. It is there at `ends_ns`, when none of its ways is `missing`.

    Its last byte on each of them is traced from row `tails` on.
    """

    end: int
    tails: int
    missing: int
    next: int = NOBODY
    ends_ns: int = 0


@dataclass(slots=True)
class Tail:
    """The last byte of a message on a way, which had injected `end` parts: `ahead` of it before link `hop`.

    In a step it goes on after `offset_ns`. `late_ns` is what the steps have taken that it needed to come here: links
    take their latency in their place.
    """

    end: int = 0
    hop: int = 0
    ahead: float = -1.0
    offset_ns: float = 0.0
    late_ns: int = 0


@dataclass(slots=True)
class Signal:
    """So many parts were sent at a time, and come back; none is marked with a chance, a link was used."""

    sent_ns: int = 0
    due_ns: int = 0
    parts: int = 0
    unmarked: float = 1.0
    use: float = 0.0


@dataclass(slots=True)
class Counts:
    """Of an island: when it is, how long a step takes, when the first message is through; whether anything moves.

    So many steps have been played `since_look`, when it was last asked how many more are alike: those of a `leap`. It
    is asked every so many steps, `between`.
    Curves and occupations of links are noted where `curved` and `timed` say so: so many `rows`, noted or not.
    """

    now_ns: int
    step_ns: int
    first_ns: int = NEVER
    soonest_ns: int = 0
    moves: int = 1
    since_look: int = 0
    between: int = 1
    leap: int = 0
    curved: int = 1
    timed: int = 0
    rows: int = 0


TABLES: dict[str, Any] = {
    "flows": Flow, "ways": Way, "hops": Hop, "queues": Queue, "messages": Message, "tails": Tail, "signals": Signal,
    "counts": Counts,
}  # fmt: skip


@dataclass(slots=True)
class State:
    """All tables; the flows, their ways (`lanes`) and the links of an island. `left` takes (flow, time) of messages.

    Where some choose by queues there is room for the ways that one has `taken`.
    """

    flows: list[Flow] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tails: list[Tail] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    laws: list[Any] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    active: Any = ()
    lanes: Any = ()
    taken: Any = ()
    used: Any = ()
    left: list[tuple[int, int]] = field(default_factory=list)
    curves: list[tuple[int, int, int, int]] = field(default_factory=list)
    times: list[tuple[int, int, int]] = field(default_factory=list)
