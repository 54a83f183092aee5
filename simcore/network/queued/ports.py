"""A link with its queue in front of it and its buffer behind it, and what it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simcore.network.queued.flow import Segment
from simcore.network.topology.ports import UNLIMITED, Ports

GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(slots=True, eq=False)
class Port:
    """The sending end of a link: `queue` waits for it; what it has sent lies in the buffer at its end.

    `taken_bytes` of that buffer are taken from the sender's point of view, where it goes `by_credits`; `lying_bytes`
    are in it, where what finds no room is dropped or the sender paused (`by_room`).
    """

    link: int
    bytes_per_s: float
    latency_ns: int
    rules: Ports  # of the buffer behind it, and of its marks
    queue: deque[Segment] = field(default_factory=deque)
    free_ns: int = 0
    alarm_ns: int = -1
    by_credits: bool = field(init=False)
    by_room: bool = field(init=False)
    waiting_bytes: int = 0
    queued_bytes: int = 0  # of those that come from elsewhere: an NPU's own data wait in its memory
    lying_bytes: int = 0
    taken_bytes: int = 0
    sent_bytes: int = 0
    asked_to_pause: bool = False
    paused: bool = False
    still_since_ns: int = -1
    chances: int = 0  # of marks, in the phase of a chunk that came last
    phase: Any = None
    # What is reported.
    peak_bytes: int = 0
    noted_bytes: int = 0  # the last row of its curve
    still_ns: int = 0
    stops: int = 0
    marks: int = 0
    drops: int = 0
    dropped_bytes: int = 0

    def __post_init__(self) -> None:
        limited, lends = self.rules.buffer_bytes < UNLIMITED, self.rules.flow_control == "credits"
        self.by_credits, self.by_room = limited and lends, limited and not lends

    def backlog_bytes(self, now_ns: int) -> float:
        """In front of the link: what waits, and what is left of the one that is being sent."""
        return self.waiting_bytes + max(self.free_ns - now_ns, 0) * self.bytes_per_s * 1e-9

    def admits(self, segment: Segment) -> bool:
        """Whether a segment may be sent now, as far as it is known what lies at the other end."""
        if self.paused:
            return False
        if not self.by_credits or segment.hop + 1 == len(segment.way.links):
            return True  # an NPU takes at once what is meant for it
        return self.taken_bytes + segment.size_bytes <= self.rules.buffer_bytes

    def mark(self, segment: Segment, now_ns: int) -> bool:
        """Whether a segment that comes is marked: an even sequence, begun anew in each phase, is in chance's place."""
        marking = self.rules.marking
        if marking is None:
            return False
        waiting_bytes = self.backlog_bytes(now_ns)
        if not waiting_bytes and self.phase != segment.message.phase:
            self.phase, self.chances = segment.message.phase, 0
        chance = marking.chance(waiting_bytes, segment.size_bytes) if segment.hop else 0.0
        if not chance:
            return False
        self.chances += 1
        marked = self.chances * GOLDEN_RATIO % 1.0 < chance
        self.marks += marked
        return marked

    def stop(self, now_ns: int) -> None:
        """The link has to stand still, once it has sent what it is sending."""
        if self.still_since_ns < 0:
            self.still_since_ns = max(now_ns, self.free_ns)
            self.stops += 1

    def go(self, now_ns: int) -> None:
        """It may send again."""
        if self.still_since_ns >= 0:
            self.still_ns += max(now_ns - self.still_since_ns, 0)
            self.still_since_ns = -1


def waits_in_a_circle(ports: Sequence[Port]) -> list[int]:
    """Links each of which waits for room behind it, taken by what waits for the next; [] where there is no circle."""
    import networkx

    blocked = {port.link: port for port in ports if port.queue and not port.admits(port.queue[0])}
    waits = networkx.DiGraph(
        (segment.held, link) for link, port in blocked.items() for segment in port.queue if segment.held in blocked
    )
    try:
        return [link for link, _ in networkx.find_cycle(waits)]
    except networkx.NetworkXNoCycle:
        return []
