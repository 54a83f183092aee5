"""A small synthesiser of collectives for any network, in the spirit of TACOS (Won et al., MICRO 2024).

Time runs forward; whenever a way between neighbours is free, it takes a chunk that its end still lacks and its start
already has: the one with the fewest copies, or the one that the fewest neighbours of the end could send, whichever rule
ends sooner. That is an all-gather; a reduce-scatter is one on the reversed network, backwards in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from simcore.progress import meter
from simcore.system.wires import Wire
from simcore.units import transfer_ns


class Sent(Struct, frozen=True):
    """A chunk on its way from rank `src` to rank `dst`; `step` counts the times at which something begins."""

    step: int
    src: int
    dst: int
    chunk: int


def gather(wires: Sequence[Wire], size: int, pieces: int, chunk_bytes: int) -> list[Sent]:
    """An all-gather of `pieces` chunks of every rank, in order of time; ValueError where not all can be reached."""
    tried = [_State(wires, size, pieces, chunk_bytes, nearby=nearby) for nearby in (False, True)]
    for state in meter().over(tried):
        state.run()
    state = min(tried, key=lambda state: state.end_ns)
    times = {time_ns: step for step, time_ns in enumerate(sorted({time_ns for time_ns, _, _ in state.sent}))}
    return [Sent(times[time_ns], wire.src, wire.dst, chunk) for time_ns, wire, chunk in state.sent]


def scatter(wires: Sequence[Wire], size: int, pieces: int, chunk_bytes: int) -> list[Sent]:
    """A reduce-scatter, every chunk reduced along a tree to the rank that the gather would send it from."""
    turned = [Wire(wire.dst, wire.src, wire.links, wire.rates, wire.latency_ns) for wire in wires]
    forward = gather(turned, size, pieces, chunk_bytes)
    last = max(sent.step for sent in forward)
    return [Sent(last - sent.step, sent.dst, sent.src, sent.chunk) for sent in reversed(forward)]


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
