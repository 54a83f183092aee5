"""One message to many, and many to one switch and back: every link of the tree carries the data once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import whole_latency
from simcore.network.instant import Environment, after
from simcore.network.topology.links import LinkGraph
from simcore.units import transfer_ns


class Branch(NamedTuple):
    """A link of a multicast tree: to which node it leads, latency to there from the root and for the link, in ns.

    `further` are the numbers of the branches that begin at that node.
    """

    link: int
    node: int
    mark_ns: int
    step_ns: int
    further: list[int]


def branches(links: LinkGraph, src: int, dst: Sequence[int]) -> tuple[list[Branch], list[int]]:
    """The tree of the routes from `src` to all of `dst`: its branches, and the numbers of those at the root.

    Where routes part and meet again (round what is dead), the first one leads on.
    """
    routes = links.routes(np.full(len(dst), src), np.asarray(dst, np.int64))
    ends = links.ends_of(routes.links)[1].tolist()
    latencies = links.latency_ns[routes.links].tolist()
    made: list[Branch] = []
    at_root: list[int] = []
    there: dict[int, tuple[list[int], float]] = {src: (at_root, 0.0)}
    offsets = routes.offsets.tolist()
    for first, end in pairwise(offsets):
        start = max((hop + 1 for hop in range(first, end) if ends[hop] in there), default=first)
        further, total = there[ends[start - 1] if start > first else src]
        for hop in range(start, end):
            before, total = whole_latency(total), total + latencies[hop]
            mark = whole_latency(total)
            further.append(len(made))
            made.append(Branch(int(routes.links[hop]), ends[hop], mark, mark - before, []))
            further = made[-1].further
            there[ends[hop]] = (further, total)
    return made, at_root


class Relays(Protocol):
    """A network that tells when a message's head is at the end of a link, with the time of its last byte."""

    env: Environment

    def relay(
        self, link: int, step_ns: int, size_bytes: int, key: Any, tail_ns: int, reached: Callable[[int], None]
    ) -> None:
        """Send over one link now."""


def multicast(
    network: Relays,
    tree: tuple[list[Branch], list[int]],
    dst: Sequence[int],
    size_bytes: int,
    key: tuple[Any, ...],
    deliver: Callable[[int], None],
) -> None:
    """Send over a tree, every copy as soon as its link is free; `deliver(npu)` is called at the last byte's arrival."""
    made, at_root = tree
    wanted = set(dst)

    def go_on(numbers: Sequence[int], tail_ns: int) -> None:
        for number in numbers:
            branch = made[number]
            further = partial(reached, branch)
            network.relay(branch.link, branch.step_ns, size_bytes, (*key, number), tail_ns, further)

    def reached(branch: Branch, tail_ns: int) -> None:
        if branch.node in wanted:
            after(network.env, tail_ns - network.env.now, partial(deliver, branch.node))
        go_on(branch.further, tail_ns)

    go_on(at_root, network.env.now)


class Combination(NamedTuple):
    """One NPU's part of a reduction in a switch: its links up and down with their latencies, and its call back."""

    key: Any
    up: int
    up_ns: int
    down: int
    down_ns: int
    deliver: Callable[[], None]


class Reduction(Struct, frozen=True):
    """A reduction in a switch: `name` tells it from others, `parts` NPUs take part.

    The switch adds `latency_ns`, and reduces no faster than `bytes_per_s` (0: as fast as the bytes come).
    """

    name: Any
    parts: int
    latency_ns: int = 0
    bytes_per_s: float = 0.0

    def reduced_ns(self, size_bytes: int) -> int:
        """How long the switch reduces."""
        return transfer_ns(size_bytes, self.bytes_per_s) if self.bytes_per_s else 0


class Meeting(Struct):
    """What is at the switch: parts whose first byte has come, the time of the last byte of all."""

    parts: list[Combination] = field(default_factory=list)
    tail_ns: int = 0


def combine(
    network: Relays, meetings: dict[Any, Meeting], part: Combination, size_bytes: int, switch: Reduction
) -> None:
    """Send up; when the last has come, the switch reduces byte by byte and sends the result down to all at once."""
    meeting = meetings.setdefault(switch.name, Meeting())

    def at_switch(tail_ns: int) -> None:
        meeting.parts.append(part)
        meeting.tail_ns = max(meeting.tail_ns, tail_ns)
        if len(meeting.parts) == switch.parts:
            del meetings[switch.name]
            reduced_ns = network.env.now + switch.reduced_ns(size_bytes)
            last_ns = max(meeting.tail_ns, reduced_ns) + switch.latency_ns
            after(network.env, switch.latency_ns, partial(down, last_ns))

    def down(tail_ns: int) -> None:
        for each in sorted(meeting.parts, key=lambda one: one.key):
            network.relay(each.down, each.down_ns, size_bytes, each.key, tail_ns, partial(through, each))

    def through(part: Combination, tail_ns: int) -> None:
        after(network.env, tail_ns - network.env.now, part.deliver)

    network.relay(part.up, part.up_ns, size_bytes, part.key, network.env.now, at_switch)
