"""Traces of a wafer's cores played in time: every core in order, barriers between them, shared links and banks.

A core has two units that work side by side, each in the order of the trace: one computes (GEMM, ADD), one moves
(READ, WRITE, COPY, MULTICAST). An instruction also waits for those it names. A move occupies the port of its banks and
every link of its way for its own length; each serves one move at a time, in the order in which they are issued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.errors import DeadlockError, InputError
from simcore.network.clock import LATENCY_DIGITS, whole_column
from simcore.network.topology.links import LinkGraph
from simcore.units import whole_ns
from simcore.wafer.steps import Rates
from simcore.workload.wafer import Instruction

IntArray = NDArray[np.int64]
Trace = Sequence[Instruction]
COMPUTING = {"GEMM", "ADD"}
Span = tuple[int, int, int, int]  # core, unit (0 computes, 1 moves, 2 waits at a barrier), start, end in ns


class CoreTimes(Struct, frozen=True, eq=False):
    """Per core: when it is through, how long it computes, how long it moves. Per link: bytes, time occupied.

    `spans` are the intervals of the units, those that follow one another without a gap joined.
    """

    end_ns: IntArray
    compute_ns: IntArray
    move_ns: IntArray
    link_bytes: IntArray
    busy_ns: IntArray
    spans: list[Span]

    @property
    def time_ns(self) -> int:
        """When the last core is through."""
        return int(self.end_ns.max(initial=0))


def play_cores(
    graph: LinkGraph, places: IntArray, traces: Sequence[Trace], rates: Rates, *, queues: bool = True
) -> CoreTimes:
    """Play the traces of all cores, in order of their banks; core c stands at NPU `places[c]`, `rates` are one core's.

    Without `queues` moves do not meet each other. DeadlockError when cores wait at barriers that never fill.
    """
    fabric = _Fabric(graph, places.tolist(), rates, queues)
    fabric.find_ways(traces)
    clocks = [_Clock(trace, number) for number, trace in enumerate(traces)]
    _run(clocks, fabric, rates)
    busy = np.array([clock.busy for clock in clocks], np.int64).reshape(-1, 2).T
    ends = np.array([max(clock.free) for clock in clocks], np.int64)
    spans = list(chain.from_iterable(clock.spans for clock in clocks))
    return CoreTimes(ends, busy[0], busy[1], np.array(fabric.carried), np.array(fabric.occupied), spans)


class _Clock:
    """The state of one core: the next instruction, when its units are free, the ends so far."""

    __slots__ = ("busy", "ends", "free", "number", "spans", "trace")

    def __init__(self, trace: Trace, number: int):
        self.trace, self.number = trace, number
        self.ends: list[int] = []
        self.free, self.busy = [0, 0], [0, 0]
        self.spans: list[Span] = []

    def ready(self, unit: int) -> int:
        """When the next instruction can begin."""
        start = self.free[unit]
        for place in self.trace[len(self.ends)].after:
            start = max(start, self.ends[place])
        return start

    def done(self, unit: int, start: int, end: int) -> None:
        """The next instruction took from `start` to `end`."""
        self.ends.append(end)
        self.free[unit] = end
        self.busy[unit] += end - start
        self.mark(unit, start, end)

    def mark(self, unit: int, start: int, end: int) -> None:
        """Note an interval, joined to the last one of its unit where there is no gap."""
        if end == start:
            return
        for place in range(len(self.spans) - 1, max(len(self.spans) - 3, -1), -1):
            core, other, first, last = self.spans[place]
            if other == unit:
                if last == start:
                    self.spans[place] = (core, unit, first, end)
                    return
                break
        self.spans.append((self.number, unit, start, end))


def _run(clocks: list[_Clock], fabric: _Fabric, rates: Rates) -> None:
    """Run every core up to its next move or barrier, and issue the moves of all cores in order of time."""
    barriers = (each for clock in clocks for each in clock.trace if each.kind == "BARRIER")
    missing, waiting = Counter(str(each.arguments[0]) for each in barriers), dict[str, list[_Clock]]()
    queue, todo = list[tuple[int, int]](), list(clocks)
    while todo or queue:
        if not todo:
            start, number = heappop(queue)
            clock = clocks[number]
            clock.done(1, start, fabric.move(clock.trace[len(clock.ends)], number, start))
            todo.append(clock)
        clock = todo.pop()
        while len(clock.ends) < len(clock.trace):
            each = clock.trace[len(clock.ends)]
            if each.kind == "BARRIER":
                name = str(each.arguments[0])
                waiting.setdefault(name, []).append(clock)
                missing[name] -= 1
                if not missing[name]:  # it was the last: all go on
                    todo += waiting[name]
                    now = max(max(member.free) for member in waiting[name])
                    for member in waiting.pop(name):
                        member.mark(2, max(member.free), now)
                        member.free = [now, now]
                        member.ends.append(now)
                break
            if each.kind not in COMPUTING:
                heappush(queue, (clock.ready(1), clock.number))
                break
            start = clock.ready(0)
            work = prod(int(number) for number in each.arguments) / rates.macs_per_s * 1e9
            clock.done(0, start, start + whole_ns(work))
    for name in sorted(waiting)[:1]:
        cores = sorted(clock.number for clock in waiting[name])
        raise DeadlockError(f"cores {cores} wait at barrier {name} for {missing[name]} more")


class _Fabric:
    """Ports of banks (numbered like cores) and links: when each is free, and what links carried."""

    def __init__(self, graph: LinkGraph, places: list[int], rates: Rates, queues: bool):
        self.graph, self.places, self.queues = graph, places, queues
        self.banks = [0] * len(places)
        self.links = [0] * len(graph)
        self.carried, self.occupied = [0] * len(graph), [0] * len(graph)
        self._bank_ns = 1e9 / rates.memory_bytes_per_s
        self._link_ns = (1e9 / graph.bandwidth_bytes_per_s).tolist()
        self._step_ns = whole_column(graph.latency_ns, LATENCY_DIGITS).tolist()

    def find_ways(self, traces: Sequence[Trace]) -> None:
        """Find the routes of all moves at once."""
        pairs = {
            (ends[0], other)
            for core, trace in enumerate(traces)
            for each in trace
            for ends in (each.ends(core),)
            for other in ends[1:]
        }
        banks = len(self.places)
        if beyond := [pair for pair in pairs if max(pair) >= banks]:
            raise InputError.at("--workload", "no such bank", expected=f"0 to {banks - 1}", found=f"{max(beyond[0])}")
        places = np.array([(self.places[a], self.places[b]) for a, b in sorted(pairs)], np.int64).reshape(-1, 2)
        if len(places):
            self.graph.remember(*places.T)

    def move(self, each: Instruction, core: int, start: int) -> int:
        """Take a move over its banks and links; when it is through."""
        source, *targets = each.ends(core)
        size = int(each.arguments[-1])
        bank_ns = whole_ns(size * self._bank_ns)
        head, tail = start, start
        if each.kind != "WRITE":
            head = self._port(source, start, bank_ns)
            tail = head + bank_ns
        begun, ends = (head, tail), []
        crossed: dict[int, tuple[int, int]] = {}  # a link is crossed once, whatever the number of destinations
        for target in targets:
            head, tail = begun
            for link in self.graph.route(self.places[source], self.places[target]):
                if link not in crossed:
                    occupied, step = whole_ns(size * self._link_ns[link]), self._step_ns[link]
                    if self.queues:
                        head = max(head, self.links[link])
                        self.links[link] = head + occupied
                    self.carried[link] += size
                    self.occupied[link] += occupied
                    crossed[link] = head + step, max(tail, head + occupied) + step
                head, tail = crossed[link]
            if each.kind != "READ":
                head = self._port(target, head, bank_ns)
                tail = max(tail, head + bank_ns)
            ends.append(tail)
        return max(ends)

    def _port(self, bank: int, head: int, bank_ns: int) -> int:
        """When a bank's port is there for a move."""
        if self.queues:
            head = max(head, self.banks[bank])
            self.banks[bank] = head + bank_ns
        return head
