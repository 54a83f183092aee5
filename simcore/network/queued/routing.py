"""Which of several ways a segment takes: by a hash of its ends, in turn, over a third NPU, or where least waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product, takewhile
from math import lcm
from typing import NamedTuple

import numpy as np

from simcore.network.topology.fabric import IntArray, mixed
from simcore.network.topology.grid import moves_of
from simcore.network.topology.links import Axis, LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.paths import ShortestPaths

Links = tuple[int, ...]
MOST_WAYS = 64
SHORTEST_STEP_NS = 50


class Routing(NamedTuple):
    """How one of several ways is chosen.

    Each segment moves on so many `steps` among them, or takes the one where least waits, `by_queues`. They are the
    shortest ones, `longer` ones, too, or lead over third NPUs.
    """

    steps: int = 0
    by_queues: bool = False
    longer: bool = False


ROUTINGS = {
    "": Routing(),
    "ecmp": Routing(),
    "spray": Routing(1),
    "valiant": Routing(1),
    "adaptive": Routing(1, by_queues=True),
    "ugal": Routing(1, by_queues=True, longer=True),
}


def as_flows(topology: Topology) -> bool:
    """Whether there is a law or a choice of ways, no link is too short for steps, and nobody asks for segments."""
    rules = [dim.ports for dim in topology.dims]
    latencies = topology.graph.latency_ns if topology.graph else [dim.latency_ns for dim in topology.dims]
    wanted = any(each.law or ROUTINGS[each.routing].steps for each in rules) and all(each.flows for each in rules)
    return wanted and min(latencies) >= SHORTEST_STEP_NS


def chooses_alike(topology: Topology, index: int) -> bool:
    """Whether all NPUs that look the same choose ways in the same manner: by how far they send, not by where they are.

    By queues only flows do, which all choose at once: a segment that chooses changes what the next one sees.
    """
    routing = topology.dims[index].ports.routing
    how = ROUTINGS[routing]
    return not routing or (how.steps > 0 and (not how.by_queues or as_flows(topology)))


class Ways:
    """The ways of a machine, dimension by dimension; where a dimension says nothing, its usual one."""

    def __init__(self, links: LinkGraph):
        self._links = links
        self._rules = [dim.ports for dim in links.topology.dims]
        self.several = any(rules.routing for rules in self._rules)
        self.apart = not self.several or len(links.axes) == 1  # who chooses does so in one dimension
        self._known: dict[tuple[int, int], list[tuple[str, int, list[Links]]]] = {}

    @staticmethod
    @lru_cache(maxsize=16)
    def of(links: LinkGraph) -> Ways:
        """Those of a machine, worked out once."""
        return Ways(links)

    def choose(self, src: int, dst: int, turn: int, fullest: Callable[[Links], float]) -> Links:
        """The links of a segment, whose turn it is."""
        route: Links = ()
        for how, hashed, ways in self.found(src, dst):
            first = (hashed + ROUTINGS[how].steps * turn) % len(ways)
            if ROUTINGS[how].by_queues:  # the way whose fullest queue is the least, of equal ones in turn
                turned = [*ways[first:], *ways[:first]]
                route += min(turned, key=fullest)
            else:
                route += ways[first]
        return route

    def at_once(self, src: int, dst: int) -> tuple[list[Links], bool]:
        """The ways over which a message is spread, and whether the less waits on one the more of it takes that."""
        found = self.found(src, dst)
        choices = [ways if ROUTINGS[how].steps else [ways[hashed % len(ways)]] for how, hashed, ways in found]
        ways = [sum(parts, ()) for parts in product(*choices)]
        few = ways[:: -(-len(ways) // MOST_WAYS)]
        return few, len(few) > 1 and any(ROUTINGS[how].by_queues for how, *_ in found)

    def turns(self, src: int, dst: int) -> tuple[int, set[int]]:
        """After how many turns the choice is the same again, and the links among which it chooses."""
        found = self.found(src, dst)
        links = {link for _, _, ways in found for way in ways for link in way}
        return lcm(*(len(ways) if ROUTINGS[how].steps else 1 for how, _, ways in found)), links

    def found(self, src: int, dst: int) -> list[tuple[str, int, list[Links]]]:
        """How each dimension that is crossed chooses, from which on, and among which ways."""
        if (src, dst) not in self._known:
            self._known[src, dst] = [*self._parts(src, dst)]
        return self._known[src, dst]

    def _parts(self, src: int, dst: int) -> Iterator[tuple[str, int, list[Links]]]:
        """The ways through each dimension, which lead from one of its places to another."""
        links = self._links
        if not self.several:
            yield "", 0, [links.route(src, dst)]
            return
        for axis, cut, rules in zip(links.axes, links.cuts, self._rules, strict=True):
            size, stride = axis.fabric.npus, axis.stride
            here, there = src // stride % size, dst // stride % size
            if here == there:
                continue
            how, moves = ROUTINGS[rules.routing], moves_of(axis.fabric, cut)
            by = np.array(here - here % axis.fabric.turn if axis.fabric.symmetries and how.steps else 0)
            seen: list[int] = moves.back(np.array([here, there]), by).tolist()
            place_0 = src // (stride * size) * stride * size + dst % stride
            if not rules.routing:
                ways = [links.route(place_0 + here * stride, place_0 + there * stride)]
            elif rules.routing == "valiant":
                thirds = moves.on(np.arange(size), by)
                thirds = thirds[(thirds != here) & (thirds != there)]
                ways = self._over(place_0 + np.array([here, there]) * stride, place_0 + thirds * stride)
            else:
                first = axis.links_before + (src // (stride * size) * stride + dst % stride) * axis.links
                local = map(np.array, _among(axis, *seen, longer=how.longer))
                ways = [tuple((first + (axis.moved(way, cut, by) if by else way)).tolist()) for way in local]
            word = np.array([seen[0] + rules.seed * size]), np.array([seen[1]])
            yield rules.routing, int(mixed(*word)[0]), ways

    def _over(self, ends: IntArray, thirds: IntArray) -> list[Links]:
        """Ways over some of the third NPUs, in their order; where there are none, the usual one."""
        links, (src, dst) = self._links, ends.tolist()
        few = thirds[:: -(-len(thirds) // MOST_WAYS)] if len(thirds) else ends[1:]
        links.remember(np.repeat(src, len(few)), few)
        links.remember(few, np.repeat(dst, len(few)))
        return [links.route(src, third) + links.route(third, dst) for third in few.tolist()]


def in_common(ways: Sequence[Links]) -> tuple[int, int]:
    """How many links several ways have in common, at the beginning and at the end."""
    if len(ways) < 2:
        return 0, 0
    sides = ways, [way[::-1] for way in ways]
    before, behind = (
        sum(1 for _ in takewhile(lambda links: len({*links}) == 1, zip(*side, strict=False))) for side in sides
    )
    return before, behind


@lru_cache(maxsize=1 << 12)
def _among(axis: Axis, src: int, dst: int, *, longer: bool) -> list[Links]:
    """The ways inside one dimension: the shortest, and others where `longer` ones are wanted, too."""
    found = _shortest(axis, src, dst)
    return (
        [*dict.fromkeys([*found, *axis.fabric.detours(src, dst, max(MOST_WAYS - len(found), 1))])] if longer else found
    )


@lru_cache(maxsize=1 << 12)
def _shortest(axis: Axis, src: int, dst: int) -> list[Links]:
    """Inside one dimension."""
    onward, found = _nearer(axis, dst), list[Links]()
    open_ways: list[tuple[Links, int]] = [((), src)]
    while open_ways and len(found) < MOST_WAYS:
        way, node = open_ways.pop()
        if node == dst:
            found.append(way)
        open_ways.extend(((*way, link), end) for link, end in reversed(onward.get(node, ())))
    return found


@lru_cache(maxsize=1 << 12)
def _nearer(axis: Axis, dst: int) -> dict[int, list[tuple[int, int]]]:
    """From each node the links that lead nearer to an NPU of a dimension, and where they end."""
    begins, ends = axis.ends
    away = ShortestPaths(axis.fabric.npus + len(axis.devices), ends, begins).distances(np.array([dst]))[0]
    found: dict[int, list[tuple[int, int]]] = {}
    for link in np.flatnonzero(away[begins] == away[ends] + 1).tolist():
        found.setdefault(int(begins[link]), []).append((link, int(ends[link])))
    return found
