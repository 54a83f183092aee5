"""A step of many nodes on a network with shared links: phases of computing and communication, link by link.

The model is a bound without queues: in a phase every link carries the bytes of all its flows, a flow takes as long
as the fullest of its links plus the latency of its hops, and a group goes on when its last flow has arrived.
Operators of a node run one after the other; each is bound by its arithmetic or its memory, summed over the phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.fabric import Routes
from simcore.network.topology.links import LinkGraph

__all__ = ["PhaseTimes", "Rates", "Work", "link_bytes", "play"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Work(Protocol):
    """A phase: what every node computes, who exchanges what, who waits for whom
    (`simcore.generate.wse.traffic.Phase`).
    """

    @property
    def name(self) -> str:
        """What the phase is called."""

    @property
    def macs(self) -> IntArray:
        """Multiply-accumulates of every node."""

    @property
    def hbm_bytes(self) -> IntArray:
        """Bytes that every node reads from memory."""

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Nodes that leave the phase together."""

    @property
    def source(self) -> IntArray:
        """Sending node of every flow."""

    @property
    def target(self) -> IntArray:
        """Receiving node of every flow."""

    @property
    def size_bytes(self) -> IntArray:
        """Bytes of every flow."""

    @property
    def tree(self) -> IntArray:
        """Flows of the same number >= 0 are one multicast."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a node computes and reads per second."""

    macs_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class PhaseTimes:
    """The played step: per phase its name, its end, its fullest link's bytes; per node its computing; per link its
    bytes.
    """

    names: tuple[str, ...]
    end_ns: IntArray
    hottest_bytes: IntArray
    compute_ns: IntArray
    link_bytes: IntArray

    @property
    def time_ns(self) -> int:
        """The end of the step."""
        return int(self.end_ns.max(initial=0))


def link_bytes(graph: LinkGraph, phase: Work) -> IntArray:
    """Bytes that every link carries in a phase; a multicast crosses a link once. Shape [links]."""
    return _loads(graph, phase, graph.routes(phase.source, phase.target))


def _loads(graph: LinkGraph, phase: Work, routes: Routes) -> IntArray:
    flow = np.repeat(np.arange(len(phase.source)), routes.counts)
    single = phase.tree[flow] < 0
    pairs = phase.tree[flow] * len(graph) + routes.links
    _, first = np.unique(pairs[~single], return_index=True)
    kept = np.concatenate([np.flatnonzero(single), np.flatnonzero(~single)[first]])
    loads = np.zeros(len(graph), np.int64)
    np.add.at(loads, routes.links[kept], phase.size_bytes[flow[kept]])
    return loads


def _flow_ns(graph: LinkGraph, routes: Routes, loads: IntArray) -> FloatArray:
    """How long every flow takes: its fullest link, and the latency of every hop."""
    link_ns = loads / graph.bandwidth_bytes_per_s * 1e9
    flow = np.repeat(np.arange(len(routes.counts)), routes.counts)
    fullest, latency = np.zeros(len(routes.counts)), np.zeros(len(routes.counts))
    np.maximum.at(fullest, flow, link_ns[routes.links])
    np.add.at(latency, flow, graph.latency_ns[routes.links])
    return fullest + latency


def play(graph: LinkGraph, steps: Iterable[Work], rates: Rates) -> PhaseTimes:
    """Play the phases of a step in order; node n of the phases is NPU n of the network.

    Raises
    ------
    ValueError
        When a flow has no way through what is left of the network.
    """
    names, ends, hottest = [], [], []
    clock = np.zeros(graph.npus)
    compute, carried = np.zeros(graph.npus), np.zeros(len(graph), np.int64)
    for phase in steps:
        spent = np.maximum(phase.macs / rates.macs_per_s, phase.hbm_bytes / rates.memory_bytes_per_s) * 1e9
        nodes = len(spent)
        compute[:nodes] += spent
        clock[:nodes] += spent
        routes = graph.routes(phase.source, phase.target)
        loads = _loads(graph, phase, routes)
        _meet(clock, phase, _flow_ns(graph, routes, loads))
        carried += loads
        names.append(phase.name)
        ends.append(ceil(round(clock.max(), 3)))
        hottest.append(int(loads.max(initial=0)))
    whole = np.ceil(np.round(compute, 3)).astype(np.int64)
    return PhaseTimes(tuple(names), np.array(ends, np.int64), np.array(hottest, np.int64), whole, carried)


def _meet(clock: FloatArray, phase: Work, flow_ns: FloatArray) -> None:
    """Every group leaves together: when its last member has come and its last flow has arrived."""
    for group in phase.groups:
        members = list(group)
        start = clock[members].max()
        mine = np.isin(phase.source, members)
        clock[members] = start + flow_ns[mine].max(initial=0.0)
