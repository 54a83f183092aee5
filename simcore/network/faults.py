"""Links that are slow or down for a while: what that means for transfers, and what it did to them.

A link that is down takes no new messages. A message takes the way that is there when it is sent; when its head comes to
a link that has gone down since, it is led around from the node it is at, by the fewest links, and waits there while
there is no way. What a link had taken before it went down it still carries, at its usual rate.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf, prod

import numpy as np

from simcore.errors import InputError
from simcore.network.topology.fabric import FloatArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Fault
from simcore.network.topology.paths import ShortestPaths
from simcore.options import number
from simcore.timeline.events import FOREVER, FaultCount
from simcore.units import parse_ns, transfer_ns, whole_ns

LEAST_FACTOR = 1e-6
EXAMPLE = "'link 3-4 x0.5 @ 1ms-2ms', or 'link 3>4 down @ 1ms-'"
_FAULT = re.compile(r"\s*link\s+(?P<ends>\S.*?)\s+(?P<what>down|x\S+)\s*(?:@\s*(?P<window>.*?)\s*)?")


class Outlook:
    """What the faults of a run do to its links at every time; counts the transfers that they hit."""

    def __init__(self, links: LinkGraph):
        self._links, self._faults = links, links.topology.faults
        times = {time_ns for fault in self._faults for time_ns in (fault.begin_ns, fault.end_ns)}
        self.changes = sorted(times - {0, FOREVER})
        self._of_link: dict[int, list[int]] = {}
        for index, fault in enumerate(self._faults):
            for link in fault.links:
                self._of_link.setdefault(link, []).append(index)
        self._transfers, self._size_bytes, self._rerouted = ([0] * len(self._faults) for _ in range(3))
        self._ways: dict[int, tuple[np.ndarray, ShortestPaths]] = {}

    def counts(self) -> tuple[FaultCount, ...]:
        """What every fault did."""
        columns = zip(self._faults, self._transfers, self._size_bytes, self._rerouted, strict=True)
        return tuple(FaultCount(fault.text, fault.begin_ns, fault.end_ns, *counted) for fault, *counted in columns)

    def next_change(self, now_ns: int) -> int:
        """When a fault begins or ends next; FOREVER when none does."""
        epoch = bisect_right(self.changes, now_ns)
        return self.changes[epoch] if epoch < len(self.changes) else FOREVER

    def slow(self, now_ns: int) -> list[tuple[int, frozenset[int]]]:
        """The faults that slow their links down now, and these."""
        active = self._active(range(len(self._faults)), now_ns)
        return [(index, frozenset(self._faults[index].links)) for index in active if self._faults[index].factor]

    def _active(self, faults: Iterable[int], now_ns: int) -> list[int]:
        return [i for i in faults if self._faults[i].begin_ns <= now_ns < self._faults[i].end_ns]

    def capacity(self, now_ns: int) -> FloatArray:
        """Bandwidth of every link now; that of links that are down, for what they have taken, is the usual."""
        found = self._links.bandwidth_bytes_per_s.copy()
        for index, links in self.slow(now_ns):
            found[list(links)] *= self._faults[index].factor
        return found

    def _factor(self, link: int, now_ns: int) -> float:
        """On the bandwidth of a link; being down counts for nothing here."""
        return prod(self._faults[index].factor or 1.0 for index in self._active(self._of_link[link], now_ns))

    def end_ns(self, link: int, start_ns: int, size_bytes: int, rate: float) -> int:
        """When a transfer that begins now has left its link: the integral of the rate is its size; rounded up."""
        left_ns, at_ns = round(size_bytes / rate * 1e9, 3), start_ns
        if link not in self._of_link:
            return start_ns + transfer_ns(size_bytes, rate)
        while at_ns < FOREVER and left_ns > (room_ns := (self.next_change(at_ns) - at_ns) * self._factor(link, at_ns)):
            left_ns -= room_ns
            at_ns = self.next_change(at_ns)
        end_ns = at_ns + whole_ns(left_ns / self._factor(link, at_ns))
        for index in self._of_link[link]:
            fault = self._faults[index]
            if fault.factor and start_ns < fault.end_ns and end_ns > fault.begin_ns:
                self.note(index, size_bytes)
        return end_ns

    def note(self, fault: int, size_bytes: int) -> None:
        """A transfer that a fault has slowed down."""
        self._transfers[fault] += 1
        self._size_bytes[fault] += size_bytes

    def down(self, link: int, now_ns: int) -> list[int]:
        """The faults that keep a link from taking messages now."""
        return [index for index in self._active(self._of_link.get(link, ()), now_ns) if not self._faults[index].factor]

    def around(self, way: Sequence[int], src: int, dst: int, now_ns: int) -> tuple[int, ...] | None:
        """The way itself when all its links are up, else one around those that are down, if there is any now.

        InputError when there is no way and never will be.
        """
        broken = {fault for link in self._of_link.keys() & way for fault in self.down(link, now_ns)}
        if not broken:
            return tuple(way)
        alive, paths = self._paths(now_ns)
        if paths.toward(dst)[src] < 0:
            if self.next_change(now_ns) == FOREVER:
                names, text = self._links.names, self._faults[min(broken)].text
                message = f"no way is left from {names[src]} to {names[dst]}"
                raise InputError.at("--fault", message, expected="links that leave a way around", found=repr(text))
            return None
        for fault in broken:
            self._rerouted[fault] += 1
        return tuple(alive[paths.table(np.array([src]), np.array([dst]))[0]].tolist())

    def _paths(self, now_ns: int) -> tuple[np.ndarray, ShortestPaths]:
        """The links that are up now, and shortest paths over them."""
        epoch = bisect_right(self.changes, now_ns)
        if epoch not in self._ways:
            dead = [link for link in self._of_link if self.down(link, now_ns)]
            alive = np.setdiff1d(np.arange(len(self._links)), dead)
            paths = ShortestPaths(self._links.nodes, self._links.src[alive], self._links.dst[alive])
            self._ways[epoch] = alive, paths
        return self._ways[epoch]


def parse_faults(texts: Sequence[str], links: LinkGraph) -> tuple[Fault, ...]:
    """`link A-B xFACTOR @ BEGIN-END` each: both directions; `A>B` means one, `down` that the link takes nothing.

    A and B are nodes as the report names them. Without `@` a fault holds for the whole run, without END to its end.
    """
    return tuple(_fault(text, links) for text in texts)


def _fault(text: str, links: LinkGraph) -> Fault:
    match = _FAULT.fullmatch(text)
    if not match:
        raise InputError.at("--fault", "not a fault", expected=EXAMPLE, found=repr(text))
    begin_ns, end_ns = _window(text, match["window"])
    return Fault(text.strip(), _links(text, match["ends"], links), _factor(text, match["what"]), begin_ns, end_ns)


def _factor(text: str, what: str) -> float:
    """The factor on the bandwidth; 0 = down."""
    try:
        factor = 0.0 if what == "down" else number(what[1:], 0)
    except ValueError:
        factor = -1.0
    if factor == 0 or LEAST_FACTOR <= factor < inf:
        return factor
    expected = f"x0.5, at least x{LEAST_FACTOR:g}, or down"
    raise InputError.at("--fault", "not a factor on a bandwidth", expected=expected, found=repr(text))


def _window(text: str, window: str | None) -> tuple[int, int]:
    """Begin and end in whole nanoseconds."""
    if window is None:
        return 0, FOREVER
    begin, dash, end = window.partition("-")
    try:
        first, last = round(parse_ns(begin)), round(parse_ns(end)) if end.strip() else FOREVER
    except ValueError as error:
        raise InputError.at("--fault", str(error), expected=EXAMPLE, found=repr(text)) from error
    if not dash or not 0 <= first < last <= FOREVER:
        raise InputError.at("--fault", "not a span of time", expected="BEGIN-END or BEGIN-", found=repr(text))
    return first, last


def _links(text: str, ends: str, links: LinkGraph) -> tuple[int, ...]:
    """The links between two nodes; names may hold dashes, so every one may be the one between them."""
    known = {name: node for node, name in enumerate(links.names)}
    for cut in (index for index, character in enumerate(ends) if character in "->"):
        a, b = known.get(ends[:cut].strip()), known.get(ends[cut + 1 :].strip())
        if a is not None and b is not None:
            there = (links.src == a) & (links.dst == b)
            back = (links.src == b) & (links.dst == a) & (ends[cut] == "-")
            if found := tuple(np.flatnonzero(there | back).tolist()):
                return found
    few = zip(links.src[:3].tolist(), links.dst[:3].tolist(), strict=True)
    expected = "two joined nodes, for example " + ", ".join(f"{links.names[a]}-{links.names[b]}" for a, b in few)
    raise InputError.at("--fault", "there is no such link", expected=expected, found=repr(text))
