"""Phases that have their links for themselves, on NPUs that are not alike: each shape is played once for its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import simpy

from simcore.network.batch import solve_batch
from simcore.network.congested import CutThrough, LinkNetwork
from simcore.network.instant import after
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.system.collectives import AnyPlan
from simcore.system.columns import Columns
from simcore.system.groups import GroupDim, LogicalDim
from simcore.system.plan import Plan
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.streams import Dataset, Request, Stream, StreamPhase
from simcore.system.transport import Done
from simcore.timeline.events import LinkTable
from simcore.workload.model import CollectiveKind

__all__ = ["Alone", "has_own_links"]


@dataclass(frozen=True, slots=True, eq=False)
class _Performance:
    """A phase that was played: when each member left, counted from its beginning, and what each link carried."""

    exits_ns: list[int]
    size_bytes: IntArray
    busy_ns: IntArray


def has_own_links(topology: Topology, dims: Sequence[LogicalDim]) -> bool:
    """Whether phases in different groups or dimensions never share a link.

    So it is when every logical dimension is a whole dimension of the topology; but routes around the dead of a wafer
    lead through other rows and columns.
    """
    whole = all(dim.size == topology.dims[dim.index].npus for dim in dims)
    return whole and (topology.wafer is None or len(topology.dims) == 1)


class Alone:
    """Transport for an unfolded machine on which no two phases ever share a link, and groups begin them together.

    Exact: a phase that meets nobody takes as long whenever it begins, and in every group of its dimension. The caller
    answers for the exclusivity (`has_own_links`, one chunk at a time in every dimension). What is sent all at once over
    links that do not wait for each other is solved as a batch, anything else is played message by message.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        links: LinkGraph,
        network: Callable[[simpy.Environment, LinkGraph], LinkNetwork],
        costs: Costs,
        *,
        columns: Columns | None = None,
    ):
        self._columns = columns
        self._env, self._ranks, self._links, self._network, self._costs = env, ranks, links, network, costs
        self._performances: dict[StreamPhase, _Performance] = {}
        self._times: Counter[tuple[int, StreamPhase]] = Counter()  # by the first link of the group
        self._groups: dict[int, LinkGraph] = {}
        self._plans = Played(env, ranks, network(env, links), costs)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between stages; a run with other messages has no phase alone."""
        if self._columns is None:
            raise NotImplementedError
        self._columns.carry(src, dst, size_bytes, key, deliver)

    def links(self) -> LinkTable:
        """What every link carried: each shape's bytes as often as a group played it."""
        size_bytes, busy_ns = np.zeros((2, len(self._links)), np.int64)
        for (first, phase), times in self._times.items():
            played = self._performances[phase]
            own = slice(first, first + len(played.size_bytes))
            size_bytes[own] += times * played.size_bytes
            busy_ns[own] += times * played.busy_ns
        if self._columns:
            self._columns.add_to(size_bytes, busy_ns)
        return self._links.table(size_bytes, busy_ns)

    def bytes_sent(self, npu_class: int, stream: Stream) -> int:
        """What one NPU sends in the phase."""
        return self._plans.bytes_sent(npu_class, stream)

    def start(self, npu_class: int, stream: Stream, done: Done) -> None:
        """Call back after the phase's own time."""
        npu, phase = self._ranks[npu_class][0], stream.phase
        if phase not in self._performances:
            self._performances[phase] = self._play(phase, npu)
        dim = phase.lane.dim
        place = npu if dim.size == self._links.npus else dim.position(npu)
        if place == 0:
            self._times[self._first_link(dim, npu), phase] += 1
        after(self._env, self._performances[phase].exits_ns[place], lambda _: done(stream))

    def _first_link(self, dim: GroupDim, npu: int) -> int:
        """The first link of the group that `npu` is in."""
        if dim.size == self._links.npus:
            return 0
        axis = self._links.axes[dim.index]
        group = npu // (axis.stride * dim.size) * axis.stride + npu % axis.stride
        return axis.links_before + group * axis.links

    def _group(self, dim: GroupDim) -> LinkGraph:
        """The links of one group of a dimension: all groups have the same."""
        if dim.size == self._links.npus:
            return self._links
        if dim.index not in self._groups:
            self._groups[dim.index] = LinkGraph(Topology((self._links.topology.dims[dim.index],)))
        return self._groups[dim.index]

    def _play(self, phase: StreamPhase, npu: int) -> _Performance:
        """Play the phase alone on the links of one group, in an environment of its own."""
        links = self._group(phase.lane.dim)
        here = LogicalDim(0, links.npus, 1) if links is not self._links else phase.lane.dim
        plan = self._plans.plans.of(phase, npu)
        if self._network is CutThrough and isinstance(plan, Plan) and not self._costs.rendezvous:
            solved = _solve(plan, here.members(0), links, self._costs.of(phase.lane.dim))
            if solved:
                return solved
        return self._step(replace(phase, lane=replace(phase.lane, dim=here)), links, plan)

    def _step(self, phase: StreamPhase, links: LinkGraph, plan: AnyPlan) -> _Performance:
        """Message by message."""
        env = simpy.Environment()
        network = self._network(env, links)
        transport = Played(env, [range(npu, npu + 1) for npu in range(links.npus)], network, self._costs)
        transport.plans.know(phase, 0, plan)
        dataset = Dataset(env, Request(CollectiveKind(phase.kind), phase.data_bytes, (phase.lane,), 0))
        exits_ns = [0] * links.npus

        def leave(npu: int, _: Stream) -> None:
            exits_ns[npu] = int(env.now)

        for npu in range(links.npus):
            transport.start(npu, Stream(("", 0), dataset, (phase,)), partial(leave, npu))
        env.run()
        return _Performance(exits_ns, *network.counts())


def _solve(plan: Plan, npus: IntArray, links: LinkGraph, costs: Costs) -> _Performance | None:
    """A plan that sends everything at once, as a batch; None where that cannot be done."""
    rounds = list(plan.expanded())
    reduced = {entry.reduce_bytes for entry in rounds}
    if plan.half or plan.window < len(rounds) or len(reduced) != 1:
        return None
    rank = np.arange(plan.size)
    hops = np.array([entry.hop for entry in rounds])[:, None]
    peers = npus[rank ^ hops if plan.exchange else (rank + hops) % plan.size]
    size_bytes = np.repeat([entry.size_bytes for entry in rounds], plan.size)
    src = np.tile(npus, len(rounds))
    batch = solve_batch(links, src, peers.ravel(), size_bytes, costs.endpoint_ns)
    if batch is None:
        return None
    reduce_bytes = reduced.pop()
    exits = np.zeros(plan.size, np.int64)
    np.maximum.at(exits, peers.ravel(), batch.arrival_ns)
    exits += costs.endpoint_ns + (costs.reduction_ns(reduce_bytes) if reduce_bytes else 0)
    return _Performance(exits.tolist(), batch.size_bytes, batch.busy_ns)
