"""Which of several ways a segment takes: in turn, over a third NPU, or where least waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product, takewhile
from math import lcm

import numpy as np

from simcore.network.topology.grid import moves_of
from simcore.network.topology.hashes import mixed
from simcore.network.topology.links import Axis, LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import ROUTINGS, Routing

Links = tuple[int, ...]
USUAL = ROUTINGS[""]
MOST_WAYS = 64
SHORTEST_STEP_NS = 50


def as_flows(topology: Topology) -> bool:
    """Whether there is a law or a choice of ways, no link is too short for steps, and nobody asks for segments."""
    rules = [dim.ports for dim in topology.dims]
    latencies = topology.graph.latency_ns if topology.graph else [dim.latency_ns for dim in topology.dims]
    wanted = any(each.law or each.how.steps for each in rules) and all(each.flows for each in rules)
    return wanted and min(latencies) >= SHORTEST_STEP_NS


def chooses_alike(topology: Topology, index: int) -> bool:
    """Whether all NPUs that look the same choose ways in the same manner: by how far they send, not by where they are.

    By queues only flows do, which all choose at once: a segment that chooses changes what the next one sees.
    """
    how = topology.dims[index].ports.how
    return not how.hashed and (not how.by_queues or as_flows(topology))


class Ways:
    """The ways of a machine, dimension by dimension; where a dimension says nothing, its usual one."""

    def __init__(self, links: LinkGraph):
        self._links = links
        self._rules = [dim.ports for dim in links.topology.dims]
        self.several = any(rules.how.steps for rules in self._rules)
        self.apart = not self.several or len(links.axes) == 1  # who chooses does so in one dimension
        self._known: dict[tuple[int, int], list[tuple[Routing, int, list[Links]]]] = {}

    @staticmethod
    @lru_cache(maxsize=16)
    def of(links: LinkGraph) -> Ways:
        """Those of a machine, worked out once."""
        return Ways(links)

    def choose(self, src: int, dst: int, turn: int, fullest: Callable[[Links], float]) -> Links:
        """The links of a segment, whose turn it is."""
        route: Links = ()
        for how, hashed, ways in self.found(src, dst):
            first = (hashed + how.steps * turn) % len(ways)
            if how.by_queues:  # the way whose fullest queue is the least, of equal ones in turn
                turned = [*ways[first:], *ways[:first]]
                route += min(turned, key=fullest)
            else:
                route += ways[first]
        return route

    def at_once(self, src: int, dst: int) -> tuple[list[Links], bool]:
        """The ways over which a message is spread, and whether the less waits on one the more of it takes that."""
        found = self.found(src, dst)
        ways = [sum(parts, ()) for parts in product(*(ways for *_, ways in found))]
        few = ways[:: -(-len(ways) // MOST_WAYS)]
        return few, len(few) > 1 and any(how.by_queues for how, *_ in found)

    def turns(self, src: int, dst: int) -> tuple[int, set[int]]:
        """After how many turns the choice is the same again, and the links among which it chooses."""
        found = self.found(src, dst)
        links = {link for _, _, ways in found for way in ways for link in way}
        return lcm(*(len(ways) for *_, ways in found)), links

    def found(self, src: int, dst: int) -> list[tuple[Routing, int, list[Links]]]:
        """How each dimension that is crossed chooses, from which on, and among which ways."""
        if (src, dst) not in self._known:
            self._known[src, dst] = [*self._parts(src, dst)]
        return self._known[src, dst]

    def _parts(self, src: int, dst: int) -> Iterator[tuple[Routing, int, list[Links]]]:
        """The ways through each dimension, which lead from one of its places to another."""
        links = self._links
        if not self.several:
            yield USUAL, 0, [links.route(src, dst)]
            return
        for axis, cut, rules in zip(links.axes, links.cuts, self._rules, strict=True):
            size, stride = axis.fabric.npus, axis.stride
            here, there = src // stride % size, dst // stride % size
            if here == there:
                continue
            how, moves = rules.how, moves_of(axis.fabric, cut)
            by = np.array(here - here % axis.fabric.turn if axis.fabric.symmetries and how.steps else 0)
            seen: list[int] = moves.back(np.array([here, there]), by).tolist()
            place_0 = src // (stride * size) * stride * size + dst % stride
            if not how.steps:
                ways = [links.route(place_0 + here * stride, place_0 + there * stride)]
            else:
                first = axis.links_before + (src // (stride * size) * stride + dst % stride) * axis.links
                local = map(np.array, _among(axis, *seen, how))
                ways = [tuple((first + (axis.moved(way, cut, by) if by else way)).tolist()) for way in local]
            word = np.array([seen[0] + rules.seed * size]), np.array([seen[1]])
            yield how, int(mixed(*word)[0]), ways


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
def _among(axis: Axis, src: int, dst: int, how: Routing) -> list[Links]:
    """The ways inside one dimension: the shortest, longer ones, or both."""
    found = axis.fabric.paths.several(src, dst, MOST_WAYS)
    if how.by_thirds:
        return axis.fabric.detours(src, dst, MOST_WAYS) or found
    if how.longer:
        return [*dict.fromkeys([*found, *axis.fabric.detours(src, dst, max(MOST_WAYS - len(found), 1))])]
    return found
