"""Collectives synthesised for the network at hand, in the spirit of TACOS (Won et al., MICRO 2024).

Time runs forward; whenever a way between neighbours is free, it takes a chunk that its end still lacks and its start
already has: the one with the fewest copies, or the one that the fewest neighbours of the end could send, whichever rule
ends sooner. That is an all-gather; a reduce-scatter is one on the reversed network, backwards in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from simcore.network.clock import whole_latency
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.progress import meter
from simcore.system.collectives.registry import PlanOptions, native
from simcore.system.plans.plan import Plan, Transfer, backwards
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind

MOST_TRANSFERS = 1 << 18


@native(
    "synthesised",
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    windowed=True,
    network_aware=True,
)
def synthesised(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Chunks go from neighbour to neighbour, the rarest first; an all-reduce reduces and scatters, then gathers.

    `options.window` is the number of pieces that a rank's share is cut into, 1 where it is 0. ValueError for so
    many ranks that it would take long.
    """
    pieces = max(1, options.window)
    if size * size * pieces > MOST_TRANSFERS:
        raise ValueError(f"{size} ranks with {pieces} pieces each are too many to synthesise a collective for")
    wires = options.wires() if options.wires else _everywhere(size)
    total_bytes = data_bytes * (size if kind == CollectiveKind.ALL_GATHER else 1)
    count = size * pieces
    sizes = [total_bytes * (chunk + 1) // count - total_bytes * chunk // count for chunk in range(count)]
    found: list[Transfer] = []
    if kind != CollectiveKind.ALL_GATHER:
        turned = [Wire(wire.dst, wire.src, wire.links, wire.rates, wire.latency_ns) for wire in wires]
        found = backwards(_gathered(turned, size, sizes), reduce=True)
    if kind != CollectiveKind.REDUCE_SCATTER:
        first = max((entry.step + 1 for entry in found), default=0)
        found += _gathered(wires, size, sizes, first)
    return Plan.of(size, found)


def _everywhere(size: int) -> list[Wire]:
    """A link between any two, where nobody says what the network is."""
    pairs = [(src, dst) for src in range(size) for dst in range(size) if src != dst]
    return [Wire(src, dst, (link,), (1e9,), 0) for link, (src, dst) in enumerate(pairs)]


class Wire(Struct, frozen=True):
    """The way from rank `src` to rank `dst`: the links on it with their bytes per second, and its latency."""

    src: int
    dst: int
    links: tuple[int, ...]
    rates: tuple[float, ...]
    latency_ns: int


def wires(graph: LinkGraph, npus: IntArray) -> list[Wire]:
    """The ways between members of a group that lead past no other member, by source and destination.

    Switches and NPUs of other groups may lie on them.
    """
    src, dst = (side.ravel() for side in np.meshgrid(np.arange(len(npus)), np.arange(len(npus)), indexing="ij"))
    routes = graph.routes(npus[src], npus[dst])
    inner = np.ones(len(routes.links), bool)
    inner[np.cumsum(routes.counts)[routes.counts > 0] - 1] = False  # the last link ends at the destination
    passed = np.zeros(len(src), np.int64)
    owner = np.repeat(np.arange(len(src)), routes.counts)
    np.add.at(passed, owner, inner & np.isin(graph.dst[routes.links], npus))
    found = []
    for pair in np.flatnonzero((src != dst) & (passed == 0)).tolist():
        links = routes.links[routes.offsets[pair] : routes.offsets[pair + 1]]
        latency_ns = whole_latency(float(graph.latency_ns[links].sum()))
        rates = tuple(graph.bandwidth_bytes_per_s[links].tolist())
        found.append(Wire(int(src[pair]), int(dst[pair]), tuple(links.tolist()), rates, latency_ns))
    return found


def _gathered(wires: Sequence[Wire], size: int, sizes: Sequence[int], first: int = 0) -> list[Transfer]:
    """An all-gather of chunks of some sizes, as many of every rank, in order of time; the first step has a number.

    ValueError where not all can be reached.
    """
    tried = [_State(wires, size, len(sizes) // size, max(sizes), nearby=nearby) for nearby in (False, True)]
    for state in meter().over(tried):
        state.run()
    sent = min(tried, key=lambda state: state.end_ns).sent
    steps = {time_ns: step for step, time_ns in enumerate(sorted({time_ns for time_ns, _, _ in sent}), first)}
    return [Transfer(steps[time_ns], wire.src, wire.dst, (chunk,), sizes[chunk]) for time_ns, wire, chunk in sent]


class _State:
    """Who has which chunks, which links are free, and what is on its way."""

    def __init__(self, wires: Sequence[Wire], size: int, pieces: int, chunk_bytes: int, *, nearby: bool):
        count, own = size * pieces, (1 << pieces) - 1
        self._wires = wires
        self._own_ns = [[transfer_ns(chunk_bytes, rate) for rate in wire.rates] for wire in wires]
        self._out: list[list[int]] = [[] for _ in range(size)]
        self._users: dict[int, list[int]] = {}
        self._sources = np.zeros((size, count), np.int64)  # neighbours that hold a chunk
        for index, wire in enumerate(wires):
            self._out[wire.src].append(index)
            self._sources[wire.dst, wire.src * pieces : (wire.src + 1) * pieces] += 1
            for link in wire.links:
                self._users.setdefault(link, []).append(index)
        # Sets of chunks as bits of a number: most looks at two ranks find nothing to send, and these are quick.
        self._held = [own << rank * pieces for rank in range(size)]
        self._lacked = [((1 << count) - 1) ^ held for held in self._held]  # neither there nor on its way
        self._copies = np.ones(count, np.int64)  # there or on their way
        ends = [np.array([wires[index].dst for index in out], np.int64) for out in self._out]
        self._reached = [np.unique(each, return_counts=True) for each in ends]
        self._nearby = nearby
        most = max((len(wire.links) for wire in wires), default=0)
        same = [wire.links + wire.links[:1] * (most - len(wire.links)) for wire in wires]  # as many links for each
        self._links = np.array(same, dtype=np.int64).reshape(len(wires), most)
        self._free_ns = np.zeros(max(self._users, default=0) + 1, np.int64)
        self._now_ns = self.end_ns = 0
        self._awake = set(range(len(wires)))
        self._events: list[tuple[int, int, int, int]] = []  # time, 0 = a chunk arrives 1 = a link is free, what, where
        self._missing = count * (size - 1)
        self.sent: list[tuple[int, Wire, int]] = []

    def run(self) -> None:
        """Until everybody has everything."""
        while self._missing:
            self._match()
            if self._missing and not self._advance():
                raise ValueError("not every rank can be reached from every other")

    def _match(self) -> None:
        """Send what can be sent now, over the ways that something has changed for."""
        awake, self._awake, taken = np.array(sorted(self._awake), dtype=np.int64), set(), set[int]()
        free = (self._free_ns[self._links[awake]] <= self._now_ns).all(axis=1)
        for index in awake[free].tolist():
            wire = self._wires[index]
            if (wanted := self._held[wire.src] & self._lacked[wire.dst]) and taken.isdisjoint(wire.links):
                self._send(index, wire, self._rarest(wanted, wire.dst))
                taken.update(wire.links)

    def _rarest(self, chunks: int, dst: int) -> int:
        """The rarest of a set of chunks; the next behind the receiver's own of those that are as rare."""
        copies = self._sources[dst] if self._nearby else self._copies
        bits = np.frombuffer(chunks.to_bytes(len(copies) // 8 + 1, "little"), np.uint8)
        wanted = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        behind = (wanted - dst * len(self._copies) // len(self._out)) % len(self._copies)
        return int(wanted[np.lexsort((behind, copies[wanted]))[0]])

    def _send(self, index: int, wire: Wire, chunk: int) -> None:
        self._lacked[wire.dst] &= ~(1 << chunk)
        self._copies[chunk] += 1
        self._missing -= 1
        self.sent.append((self._now_ns, wire, chunk))
        slowest_ns = max(self._own_ns[index])
        arrival_ns = max(self._now_ns + wire.latency_ns + slowest_ns, self._now_ns + 1)
        self.end_ns = max(self.end_ns, arrival_ns)
        heapq.heappush(self._events, (arrival_ns, 0, wire.dst, chunk))
        for link, own_ns in zip(wire.links, self._own_ns[index], strict=True):
            self._free_ns[link] = self._now_ns + max(own_ns, 1)
            heapq.heappush(self._events, (self._free_ns[link], 1, link, 0))

    def _advance(self) -> bool:
        """Go to the next time at which something arrives or a link is free; False when nothing is under way."""
        if not self._events:
            return False
        self._now_ns = self._events[0][0]
        while self._events and self._events[0][0] == self._now_ns:
            _, frees, place, chunk = heapq.heappop(self._events)
            if frees:
                self._awake.update(self._users[place])
            else:
                self._held[place] |= 1 << chunk
                self._awake.update(self._out[place])
                ends, ways = self._reached[place]
                self._sources[ends, chunk] += ways
        return True
