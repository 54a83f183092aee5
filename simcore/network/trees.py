"""One message to many, and many to one switch and back: every link of the tree carries the data once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import whole_latency
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
