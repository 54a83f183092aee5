"""Steps of many nodes played on a network with shared links: phases of computing and communication.

In a phase every node computes, as long as its arithmetic or its memory needs, then sends; its messages cross shared
links first come, first served. A group goes into the next round, or leaves the phase, when its last message has
arrived. Links serve phases in the order of the program: a group that is ahead waits for what an earlier
phase of others sends over its links.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.batch import Batch, solve_batch
from simcore.network.clock import idle_ns, occupied_ns, steps, whole_column
from simcore.network.topology.fabric import IntArray, Routes
from simcore.network.topology.links import LinkGraph
from simcore.workload.wafer import NodeStep


class Rates(Struct, frozen=True):
    """What a node, or a core, computes and reads per second."""

    macs_per_s: float
    memory_bytes_per_s: float

    def spent_ns(self, macs: IntArray, size_bytes: IntArray) -> IntArray:
        """Whole nanoseconds of the slower of the two."""
        seconds = np.maximum(macs / self.macs_per_s, size_bytes / self.memory_bytes_per_s)
        return whole_column(seconds * 1e9)


class StepTimes(Struct, frozen=True, eq=False):
    """A played step. Per phase and node, shape [phases, nodes]: when the phase begins, when it has computed, when it
    leaves. Per link: its bytes and how long it was occupied.
    """

    begin_ns: IntArray
    ready_ns: IntArray
    end_ns: IntArray
    link_bytes: IntArray
    busy_ns: IntArray

    @property
    def time_ns(self) -> int:
        """The end of the step."""
        return int(self.end_ns.max(initial=0))

    @property
    def compute_ns(self) -> IntArray:
        """How long every node computes."""
        total: IntArray = (self.ready_ns - self.begin_ns).sum(axis=0)
        return total


def play(
    graph: LinkGraph, step: NodeStep, rates: Rates, *, factors: NDArray[np.float64] | None = None, queues: bool = True
) -> StepTimes:
    """Play the phases of a step in order; node n of the phases is NPU n of the network.

    `factors` slow the computing of nodes down. Without `queues` messages do not meet each other. ValueError when a
    message has no way through what is left of the network.
    """
    clock, free = np.zeros(step.nodes, np.int64), np.zeros(len(graph), np.int64)
    carried, busy = np.zeros((2, len(graph)), np.int64)
    times = np.zeros((3, len(step.phases), step.nodes), np.int64)
    for number, phase in enumerate(step.phases):
        spent = rates.spent_ns(phase.macs, phase.hbm_bytes)
        times[0, number] = clock
        clock = clock + (spent if factors is None else np.ceil(spent * factors).astype(np.int64))
        times[1, number] = clock
        group = np.arange(step.nodes)  # nodes that wait for nobody have one of their own
        for members in phase.groups:
            group[list(members)] = members[0]
        for flows in phase.rounds:
            routes, leave = graph.routes(flows.source, flows.target), clock[flows.source]
            batch = send_all(graph, routes, flows.size_bytes, leave, flows.tree, free)
            arrival, free = batch.arrival_ns, batch.free_ns if queues else free
            if not queues:
                arrival = leave + idle_ns(graph, routes, flows.size_bytes)
            carried, busy = carried + batch.size_bytes, busy + batch.busy_ns
            clock = _met(clock, group, flows.source, arrival)
        clock = _met(clock, group, np.zeros(0, np.int64), np.zeros(0, np.int64))
        times[2, number] = clock
    return StepTimes(times[0], times[1], times[2], carried, busy)


def _met(clock: IntArray, group: IntArray, source: IntArray, arrival: IntArray) -> IntArray:
    """All nodes of a group go on when the last of them is there and its last message has arrived."""
    latest = np.zeros(len(clock), np.int64)
    np.maximum.at(latest, group, clock)
    np.maximum.at(latest, group[source], arrival)
    met: IntArray = latest[group]
    return met


def send_all(
    links: LinkGraph, routes: Routes, size_bytes: IntArray, start_ns: IntArray, tree: IntArray, free_ns: IntArray
) -> Batch:
    """`solve_batch` where it has an answer, otherwise `step_batch`."""
    solved = solve_batch(links, routes, size_bytes, start_ns, tree=tree, free_ns=free_ns)
    return solved or step_batch(links, routes, size_bytes, start_ns, tree, free_ns)


def step_batch(
    links: LinkGraph, routes: Routes, size_bytes: IntArray, start_ns: IntArray, tree: IntArray, free_ns: IntArray
) -> Batch:
    """Send all messages at their times; the parameters are those of `solve_batch`, as columns of equal length."""
    owner = np.repeat(np.arange(len(routes.counts), dtype=np.int32), routes.counts)
    occupied = occupied_ns(size_bytes[owner], links.bandwidth_bytes_per_s[routes.links]).tolist()
    step = steps(links.latency_ns, routes).tolist()
    taken, group = routes.links.tolist(), tree.tolist()
    place, last = routes.offsets[:-1].tolist(), routes.offsets[1:].tolist()
    tail, free = start_ns.tolist(), free_ns.tolist()
    carried, busy = [0] * len(links), [0] * len(links)
    crossed: dict[tuple[int, int], int] = {}
    waiting = [(time, message) for message, time in enumerate(tail) if place[message] < last[message]]
    heapify(waiting)
    while waiting:
        time, message = heappop(waiting)
        hop = place[message]
        link = taken[hop]
        start = crossed.get((group[message], link), -1)
        if start < 0:
            start = max(time, free[link])
            free[link] = start + occupied[hop]
            busy[link] += occupied[hop]
            carried[link] += int(size_bytes[message])
            if group[message] >= 0:
                crossed[group[message], link] = start
        start = max(start, time)
        tail[message] = max(start + occupied[hop], tail[message]) + step[hop]
        place[message] = hop + 1
        if hop + 1 < last[message]:
            heappush(waiting, (start + step[hop], message))
    return Batch(np.array(tail), np.array(carried), np.array(busy), np.array(free))
