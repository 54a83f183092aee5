"""Collectives synthesised for the network at hand, in the spirit of TACOS (Won et al., MICRO 2024).

Time runs forward; whenever a way between neighbours is free, it takes a chunk that its end still lacks and its start
already has: the one with the fewest copies, or the one that the fewest neighbours of the end could send, whichever rule
ends sooner. That is an all-gather; a reduce-scatter is one on the reversed network, backwards in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from math import inf

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
    sent, before_ns = list[tuple[int, Wire, int]](), inf
    for nearby in meter().over((False, True)):
        state = _State(wires, size, len(sizes) // size, max(sizes), nearby=nearby)
        if state.run(before_ns):
            sent, before_ns = state.sent, state.end_ns
    steps = {time_ns: step for step, time_ns in enumerate(sorted({time_ns for time_ns, _, _ in sent}), first)}
    return [Transfer(steps[time_ns], wire.src, wire.dst, (chunk,), sizes[chunk]) for time_ns, wire, chunk in sent]


class _Sets:
    """A set of chunks for each rank; `words` has them as rows of bits."""

    def __init__(self, members: NDArray[np.bool_]):
        rows = np.packbits(members, axis=1, bitorder="little")
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))
        self._bytes, self._width = bytearray(rows.tobytes()), rows.shape[1]
        self.words = np.frombuffer(self._bytes, np.uint64).reshape(len(rows), -1)

    def flip(self, rank: int, chunk: int) -> None:
        """Put a chunk in, or take it out."""
        self._bytes[rank * self._width + (chunk >> 3)] ^= 1 << (chunk & 7)

    def of(self, rank: int) -> int:
        """The chunks of a rank as bits of a number."""
        return int.from_bytes(self._bytes[rank * self._width : (rank + 1) * self._width], "little")


class _State:
    """Who has which chunks, which links are free, and what is on its way."""

    def __init__(self, wires: Sequence[Wire], size: int, pieces: int, chunk_bytes: int, *, nearby: bool):
        count = size * pieces
        self._wires = wires
        times_ns = {rate: transfer_ns(chunk_bytes, rate) for rate in {rate for wire in wires for rate in wire.rates}}
        self._own_ns = [[max(times_ns[rate], 1) for rate in wire.rates] for wire in wires]
        self._whole_ns = [max(max(times_ns[rate] for rate in wire.rates) + wire.latency_ns, 1) for wire in wires]
        out: list[list[int]] = [[] for _ in range(size)]
        users: dict[int, list[int]] = {}
        # Neighbours that hold a chunk, times the chunks; and how far it is behind the receiver's own.
        self._ranks = (np.arange(count) - np.arange(size)[:, None] * pieces) % count
        for index, wire in enumerate(wires):
            out[wire.src].append(index)
            self._ranks[wire.dst, wire.src * pieces : (wire.src + 1) * pieces] += count
            for link in wire.links:
                users.setdefault(link, []).append(index)
        own = np.repeat(np.eye(size, dtype=bool), pieces, axis=1)
        self._held, self._lacked = _Sets(own), _Sets(~own)  # lacked: neither there nor on its way
        self._copies = [0] * count  # there or on their way, beside their owner's
        self._levels = [(1 << count) - 1] + [0] * size  # chunks by their copies
        self._out = [np.array(each, np.int64) for each in out]
        self._users = {link: np.array(each, np.int64) for link, each in users.items()}
        self._ends = np.array([(wire.src, wire.dst) for wire in wires], np.int64).reshape(-1, 2).T
        reached = (np.unique(self._ends[1, each], return_counts=True) for each in self._out)
        self._reached = [(end, ways * count) for end, ways in reached]
        self._nearby, self._pieces = nearby, pieces
        most = max((len(wire.links) for wire in wires), default=1)
        same = [wire.links + wire.links[:1] * (most - len(wire.links)) for wire in wires]  # as many links for each
        self._links = np.array(same, dtype=np.int64).reshape(len(wires), most).T.copy()
        self._free_ns = np.zeros(max(users, default=0) + 1, np.int64)
        self._now_ns = self.end_ns = 0
        self._awake = [np.arange(len(wires))]
        self._times_ns: list[int] = []  # at which something happens: a chunk arrives at a rank, or (-1) a link is free
        self._happens: dict[int, list[tuple[int, int]]] = {}
        self._missing = count * (size - 1)
        self.sent: list[tuple[int, Wire, int]] = []

    def run(self, before_ns: float = inf) -> bool:
        """Until everybody has everything; whether that is before a time, without which it stops."""
        while self._missing and self.end_ns < before_ns:
            self._match()
            if self._missing and not self._advance():
                raise ValueError("not every rank can be reached from every other")
        return self.end_ns < before_ns

    def _match(self) -> None:
        """Send what can be sent now, over the ways that something has changed for.

        Of ways that begin with one link, which follow each other, one sends: the first that has what its end lacks.
        """
        ready, taken = self._ready(), set[int]()
        begins = np.flatnonzero(np.diff(self._links[0, ready])) + 1
        indexes = ready.tolist()
        for begin, end in pairwise((0, *begins.tolist(), len(indexes))):
            for index in indexes[begin:end]:
                wire = self._wires[index]
                if taken.isdisjoint(wire.links) and (wanted := self._held.of(wire.src) & self._lacked.of(wire.dst)):
                    self._send(index, wire, self._rarest(wanted, wire.dst))
                    taken.update(wire.links)
                    break

    def _ready(self) -> IntArray:
        """Which of the ways that something has changed for are free and have what their ends lack."""
        changed = np.zeros(len(self._wires), bool)
        changed[np.concatenate(self._awake)] = True
        self._awake = []
        ready = np.flatnonzero(changed)
        for links in self._links:
            ready = ready[self._free_ns[links[ready]] <= self._now_ns]
        src, dst = self._ends[:, ready]
        found: IntArray = ready[(self._held.words[src] & self._lacked.words[dst]).any(axis=1)]
        return found

    def _rarest(self, chunks: int, dst: int) -> int:
        """The rarest of a set of chunks; the next behind the receiver's own of those that are as rare."""
        if self._nearby:
            bits = np.frombuffer(chunks.to_bytes(len(self._ranks[dst]) // 8 + 1, "little"), np.uint8)
            wanted = np.unpackbits(bits, bitorder="little").nonzero()[0]
            return int(wanted[self._ranks[dst, wanted].argmin()])
        rarest = next(rarest for level in self._levels if (rarest := chunks & level))
        own = dst * self._pieces
        behind = rarest >> own << own or rarest
        return (behind & -behind).bit_length() - 1

    def _send(self, index: int, wire: Wire, chunk: int) -> None:
        bit, copies = 1 << chunk, self._copies[chunk]
        self._lacked.flip(wire.dst, chunk)
        self._levels[copies] ^= bit
        self._levels[copies + 1] ^= bit
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
            self._held.flip(place, chunk)
            self._awake.append(self._out[place])
            if self._nearby:
                ends, ways = self._reached[place]
                self._ranks[ends, chunk] += ways
        return True
