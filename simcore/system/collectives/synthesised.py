"""Collectives synthesised for the network at hand, in the spirit of TACOS (Won et al., MICRO 2024).

Time runs forward; whenever a way between neighbours is free, it takes a chunk that its end still lacks and its start
already has: the one with the fewest copies, or the one that the fewest neighbours of the end could send, whichever rule
ends sooner. That is an all-gather; a reduce-scatter is one on the reversed network, backwards in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simcore.network.clock import whole_latency
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.progress import meter
from simcore.system.collectives.registry import PlanOptions, Wire, native
from simcore.system.plans.plan import Plan, Transfer, backwards
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind

MOST_TRANSFERS = 1 << 18
FEW = 8  # ways, of which it is not worth while to look again which are free


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
    found, offsets = [], routes.offsets.tolist()
    for pair in np.flatnonzero((src != dst) & (passed == 0)).tolist():
        links = routes.links[offsets[pair] : offsets[pair + 1]]
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
        times_ns = {rate: transfer_ns(chunk_bytes, rate) for rate in {rate for wire in wires for rate in wire.rates}}
        self._own_ns = [[max(times_ns[rate], 1) for rate in wire.rates] for wire in wires]
        self._whole_ns = [max(max(times_ns[rate] for rate in wire.rates) + wire.latency_ns, 1) for wire in wires]
        out: list[list[int]] = [[] for _ in range(size)]
        users: dict[int, list[int]] = {}
        self._sources = np.zeros((size, count), np.int64)  # neighbours that hold a chunk
        for index, wire in enumerate(wires):
            out[wire.src].append(index)
            self._sources[wire.dst, wire.src * pieces : (wire.src + 1) * pieces] += 1
            for link in wire.links:
                users.setdefault(link, []).append(index)
        # Sets of chunks as bits of a number: most looks at two ranks find nothing to send, and these are quick.
        self._held = [own << rank * pieces for rank in range(size)]
        self._lacked = [((1 << count) - 1) ^ held for held in self._held]  # neither there nor on its way
        self._copies = np.ones(count, np.int64)  # there or on their way
        self._out = [np.array(each, np.int64) for each in out]
        self._users = {link: np.array(each, np.int64) for link, each in users.items()}
        ends = [np.array([wires[index].dst for index in each], np.int64) for each in out]
        self._reached = [np.unique(each, return_counts=True) for each in ends]
        self._nearby = nearby
        most = max((len(wire.links) for wire in wires), default=0)
        same = [wire.links + wire.links[:1] * (most - len(wire.links)) for wire in wires]  # as many links for each
        self._links = np.array(same, dtype=np.int64).reshape(len(wires), most)
        self._free_ns = np.zeros(max(users, default=0) + 1, np.int64)
        self._now_ns = self.end_ns = 0
        self._awake = [np.arange(len(wires))]
        self._times_ns: list[int] = []  # at which something happens: a chunk arrives at a rank, or (-1) a link is free
        self._happens: dict[int, list[tuple[int, int]]] = {}
        self._missing = count * (size - 1)
        self.sent: list[tuple[int, Wire, int]] = []

    def run(self) -> None:
        """Until everybody has everything."""
        while self._missing:
            self._match()
            if self._missing and not self._advance():
                raise ValueError("not every rank can be reached from every other")

    def _match(self) -> None:
        """Send what can be sent now, over the ways that something has changed for.

        Of ways that begin with one link, which follow each other, one sends: the first that has what its end lacks.
        """
        changed = np.zeros(len(self._wires), bool)
        changed[np.concatenate(self._awake)] = True
        awake, taken, self._awake = np.flatnonzero(changed), set[int](), []
        awake = awake[self._free(awake)]
        begins = np.flatnonzero(np.diff(self._links[awake, :1], axis=0)) + 1
        for begin, end in pairwise((0, *begins.tolist(), len(awake))):
            together = awake[begin:end]
            for index in (together[self._free(together)] if len(together) > FEW else together).tolist():
                wire = self._wires[index]
                if (wanted := self._held[wire.src] & self._lacked[wire.dst]) and taken.isdisjoint(wire.links):
                    self._send(index, wire, self._rarest(wanted, wire.dst))
                    taken.update(wire.links)
                    break

    def _free(self, wires: IntArray) -> NDArray[np.bool_]:
        """Which ways have no link that is busy."""
        free: NDArray[np.bool_] = np.all(self._free_ns[self._links[wires]] <= self._now_ns, axis=1)
        return free

    def _rarest(self, chunks: int, dst: int) -> int:
        """The rarest of a set of chunks; the next behind the receiver's own of those that are as rare."""
        copies = self._sources[dst] if self._nearby else self._copies
        bits = np.frombuffer(chunks.to_bytes(len(copies) // 8 + 1, "little"), np.uint8)
        wanted = np.unpackbits(bits, bitorder="little").nonzero()[0]
        behind = (wanted - dst * len(copies) // len(self._out)) % len(copies)
        return int(wanted[(copies[wanted] * len(copies) + behind).argmin()])

    def _send(self, index: int, wire: Wire, chunk: int) -> None:
        self._lacked[wire.dst] &= ~(1 << chunk)
        self._copies[chunk] += 1
        self._missing -= 1
        self.sent.append((self._now_ns, wire, chunk))
        arrival_ns = self._now_ns + self._whole_ns[index]
        self.end_ns = max(self.end_ns, arrival_ns)
        self._note(arrival_ns, chunk, wire.dst)
        for link, own_ns in zip(wire.links, self._own_ns[index], strict=True):
            self._free_ns[link] = self._now_ns + own_ns
            self._note(self._now_ns + own_ns, -1, link)

    def _note(self, time_ns: int, chunk: int, place: int) -> None:
        if time_ns not in self._happens:
            heapq.heappush(self._times_ns, time_ns)
            self._happens[time_ns] = []
        self._happens[time_ns].append((chunk, place))

    def _advance(self) -> bool:
        """Go to the next time at which something arrives or a link is free; False when nothing is under way."""
        if not self._times_ns:
            return False
        self._now_ns = heapq.heappop(self._times_ns)
        for chunk, place in self._happens.pop(self._now_ns):
            if chunk < 0:
                self._awake.append(self._users[place])
                continue
            self._held[place] |= 1 << chunk
            self._awake.append(self._out[place])
            if self._nearby:
                ends, ways = self._reached[place]
                self._sources[ends, chunk] += ways
        return True
