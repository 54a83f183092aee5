"""Which of several ways a segment takes: by a hash of its ends, in turn, over a third NPU, or where least waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import lcm

import numpy as np

from simcore.network.topology.fabric import Fabric, mixed
from simcore.network.topology.links import Axis, LinkGraph
from simcore.network.topology.moves import Moves, Symmetry, Turns
from simcore.network.topology.paths import ShortestPaths

Links = tuple[int, ...]
MOST_WAYS = 64
STEPS = {"": 0, "ecmp": 0, "spray": 1, "valiant": 1, "adaptive": 1}  # how far each segment moves on among the ways


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
            first = (hashed + STEPS[how] * turn) % len(ways)
            if how == "adaptive":  # the way whose fullest queue is the least, of equal ones in turn
                turned = [*ways[first:], *ways[:first]]
                route += min(turned, key=fullest)
            else:
                route += ways[first]
        return route

    def turns(self, src: int, dst: int) -> tuple[int, set[int]]:
        """After how many turns the choice is the same again, and the links among which it chooses."""
        found = self.found(src, dst)
        links = {link for _, _, ways in found for way in ways for link in way}
        return lcm(*(len(ways) if STEPS[how] else 1 for how, _, ways in found)), links

    def found(self, src: int, dst: int) -> list[tuple[str, int, list[Links]]]:
        """How each dimension that is crossed chooses, from which on, and among which ways."""
        if (src, dst) not in self._known:
            self._known[src, dst] = [*self._parts(src, dst)]
        return self._known[src, dst]

    def _parts(self, src: int, dst: int) -> Iterator[tuple[str, int, list[Links]]]:
        """The ways through each dimension."""
        if not self.several:
            yield "", 0, [self._links.route(src, dst)]
            return
        for axis, rules in zip(self._links.axes, self._rules, strict=True):
            size = axis.fabric.npus
            first = axis.links_before + (src // (axis.stride * size) * axis.stride + dst % axis.stride) * axis.links
            here, there = src // axis.stride % size, dst // axis.stride % size
            if here != there:
                moves = _moves(axis.fabric) if rules.routing == "valiant" else None
                seen = (0, moves.back(there, here)) if moves else (here, there)
                word = np.array([seen[0] + rules.seed * size]), np.array([seen[1]])
                local = _ways(axis, here, there, rules.routing)
                ways = [tuple(first + link for link in way) for way in local]
                yield rules.routing, int(mixed(*word)[0]), [*map(self._links.instead_of, ways)]


@lru_cache(maxsize=1 << 12)
def _ways(axis: Axis, src: int, dst: int, routing: str) -> list[Links]:
    """Inside one dimension."""
    if not routing:
        return [_usual(axis, src, dst)]
    if routing == "valiant":
        moves = _moves(axis.fabric)
        onwards = (moves.on(npu, src) if moves else npu for npu in range(axis.fabric.npus))
        others = [npu for npu in onwards if npu not in (src, dst)]
        few = others[:: -(-len(others) // MOST_WAYS)] if others else []
        return [_usual(axis, src, npu) + _usual(axis, npu, dst) for npu in few] or [_usual(axis, src, dst)]
    begins, ends = axis.ends
    away = ShortestPaths(axis.fabric.npus + len(axis.devices), ends, begins).distances(np.array([dst]))[0]
    nearer = np.flatnonzero(away[begins] == away[ends] + 1)
    onward: dict[int, list[tuple[int, int]]] = {}
    for link in nearer.tolist():
        onward.setdefault(int(begins[link]), []).append((link, int(ends[link])))
    found: list[Links] = []
    open_ways: list[tuple[Links, int]] = [((), src)]
    while open_ways and len(found) < MOST_WAYS:
        way, node = open_ways.pop()
        if node == dst:
            found.append(way)
        open_ways.extend(((*way, link), end) for link, end in reversed(onward.get(node, ())))
    return found


def _moves(fabric: Fabric) -> Moves | None:
    """Which bring an NPU to any other, and the network to itself; None where it does not look the same from all."""
    return fabric.moves or (Turns(fabric.npus) if Symmetry.TURNS in fabric.symmetries else None)


def _usual(axis: Axis, src: int, dst: int) -> Links:
    return tuple(axis.fabric.routes(np.array([src]), np.array([dst])).links.tolist())
