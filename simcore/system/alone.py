"""Phases that have their links for themselves, on NPUs that are not alike: each shape is played once for its group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import simpy

from simcore.network.congested import CutThrough, LinkNetwork
from simcore.network.instant import Timers
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.system.collectives import AnyPlan
from simcore.system.columns import Columns
from simcore.system.explicit import Explicit
from simcore.system.groups import Communicator, GroupDim, LogicalDim
from simcore.system.meetings import InUse, bits
from simcore.system.performance import Performance, peers_of, solve_alone
from simcore.system.plan import Plan
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.streams import Dataset, Request, Stream, StreamPhase
from simcore.system.transport import Done
from simcore.timeline.events import LinkTable
from simcore.timeline.link_use import LinkUse, OccupiedLinks
from simcore.workload.model import CollectiveKind

__all__ = ["Alone", "has_own_links"]


def has_own_links(topology: Topology, dims: Sequence[LogicalDim]) -> bool:
    """Whether phases in different groups or dimensions never share a link.

    So it is when every logical dimension is a whole dimension of the topology; but routes around the dead of a wafer
    lead through other rows and columns.
    """
    whole = all(dim.size == topology.dims[dim.index].npus for dim in dims)
    return whole and (topology.wafer is None or len(topology.dims) == 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """Where a group plays: a part of the network with links of its own, from link `first` on, with the members' ids.

    Groups of equal `shape` play alike.
    """

    shape: Hashable
    part: LinkGraph
    first: int
    members: IntArray


class Alone:
    """Transport for an unfolded machine whose phases do not meet on any link, and whose groups begin them together.

    Exact: a phase that meets nobody takes as long whenever it begins. Unless the caller answers for it (`never_meet`),
    that is checked: MeetingError says that two phases met. Plans are solved for the whole group where that can be done,
    anything else is played message by message.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        links: LinkGraph,
        network: Callable[[simpy.Environment, LinkGraph], LinkNetwork],
        costs: Costs,
        *,
        never_meet: bool = True,
        columns: Columns | None = None,
    ):
        self._columns = columns
        self._env, self._ranks, self._links, self._network, self._costs = env, ranks, links, network, costs
        self._timers, self._in_use, self._never_meet = Timers(env), InUse(), never_meet
        self._performances: dict[tuple[StreamPhase, Hashable], Performance] = {}
        self._begins_ns: dict[tuple[StreamPhase, Hashable, int], list[int]] = {}  # by the first link of the part
        self._stages: dict[tuple[GroupDim, int], _Stage] = {}
        self._used: dict[tuple[StreamPhase, Hashable], int] = {}
        self._parts: dict[Hashable, LinkGraph] = {}
        self._plans = Played(env, ranks, network(env, links), costs)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between stages; a run with other messages has no phase alone."""
        if self._columns is None:
            raise NotImplementedError
        self._columns.carry(src, dst, size_bytes, key, deliver)

    def links(self) -> LinkTable:
        """What every link carried: each shape's bytes as often as a group played it."""
        size_bytes, busy_ns = np.zeros((2, len(self._links)), np.int64)
        for (phase, shape, first), begins_ns in self._begins_ns.items():
            played = self._performances[phase, shape]
            own = slice(first, first + len(played.size_bytes))
            size_bytes[own] += len(begins_ns) * played.size_bytes
            busy_ns[own] += len(begins_ns) * played.busy_ns
        if self._columns:
            self._columns.add_to(size_bytes, busy_ns)
        return replace(self._links.table(size_bytes, busy_ns), use=self._use())

    def _use(self) -> LinkUse | None:
        """When links were occupied: as in the performances, each time one began."""
        if not self._links.timed:
            return None
        parts: list[OccupiedLinks] = []
        for (phase, shape, first), begins_ns in self._begins_ns.items():
            occupied = self._performances[phase, shape].occupied
            if occupied is None:
                return None
            parts.append(occupied.again(first, begins_ns))
        use = LinkUse(parts, np.arange(len(self._links)))
        return self._columns.added(use) if self._columns else use

    def bytes_sent(self, npu_class: int, stream: Stream) -> int:
        """What one NPU sends in the phase."""
        return self._plans.bytes_sent(npu_class, stream)

    def start(self, npu_class: int, stream: Stream, done: Done) -> None:
        """Call back after the phase's own time."""
        npu, phase = self._ranks[npu_class][0], stream.phase
        position = phase.lane.dim.position(npu)
        stage = self._stage(phase.lane.dim, npu, position)
        played = self._performances.get((phase, stage.shape))
        if played is None:
            played = self._performances[phase, stage.shape] = self._play(phase, stage, npu)
        if position == 0:
            self._begin(phase, stage, played)
        self._timers.after(played.exits_ns[position], partial(done, stream))

    def _begin(self, phase: StreamPhase, stage: _Stage, played: Performance) -> None:
        """Note a group that begins a phase; its first NPU is the first to say so."""
        now_ns = int(self._env.now)
        self._begins_ns.setdefault((phase, stage.shape, stage.first), []).append(now_ns)
        if not self._never_meet:
            self._in_use.take(stage.first, self._used[phase, stage.shape], now_ns, now_ns + max(played.exits_ns))

    def _stage(self, dim: GroupDim, npu: int, position: int) -> _Stage:
        """Where the group of an NPU plays."""
        key = (dim, npu - position * dim.stride) if isinstance(dim, LogicalDim) else (dim, int(dim.members(npu)[0]))
        found = self._stages.get(key)
        if found is None:
            found = self._stages[key] = self._stage_of(dim, dim.members(npu))
        return found

    def _stage_of(self, dim: GroupDim, members: IntArray) -> _Stage:
        topology, first = self._links.topology, int(members[0])
        if (
            not isinstance(dim, LogicalDim)
            or dim.size == self._links.npus
            or len(self._links.axes) < len(topology.dims)
        ):
            return _Stage((dim, first), self._links, 0, members)
        axis = self._links.axes[dim.index]
        size = axis.fabric.npus
        group = first // (axis.stride * size) * axis.stride + first % axis.stride
        first_link, noisy = axis.links_before + group * axis.links, bool(topology.noise.links)
        local = members // axis.stride % size
        part = self._part(dim.index, first_link, axis.links, noisy=noisy)
        return _Stage((dim, int(local[0]), first_link if noisy else 0), part, first_link, local)

    def _part(self, index: int, first: int, count: int, *, noisy: bool) -> LinkGraph:
        """The links of one group of a dimension; without noise all groups have the same."""
        key = (index, first if noisy else 0)
        if key not in self._parts:
            part = self._parts[key] = LinkGraph(Topology((self._links.topology.dims[index],)), timed=self._links.timed)
            part.bandwidth_bytes_per_s = self._links.bandwidth_bytes_per_s[first : first + count]
        return self._parts[key]

    def _play(self, phase: StreamPhase, stage: _Stage, npu: int) -> Performance:
        """Play the phase alone on its links, in an environment of its own."""
        plan = self._plans.plans.of(phase, npu)
        if not self._never_meet:
            self._used[phase, stage.shape] = _links_of(plan, stage, rendezvous=self._costs.rendezvous)
        if self._network is CutThrough and isinstance(plan, Plan) and not self._links.timed:
            solved = solve_alone(plan, stage.members, stage.part, self._costs.of(phase.lane.dim))
            if solved:
                return solved
        return self._step(phase, stage, plan)

    def _step(self, phase: StreamPhase, stage: _Stage, plan: AnyPlan) -> Performance:
        """Message by message."""
        env, members = simpy.Environment(), stage.members.tolist()
        network = self._network(env, stage.part)
        everyone = [range(npu, npu + 1) for npu in range(stage.part.npus)]
        transport = Played(env, everyone, network, self._costs.of(phase.lane.dim))
        here = replace(phase, lane=replace(phase.lane, dim=Communicator(tuple(members))))
        transport.plans.know(here, members[0], plan)
        dataset = Dataset(env, Request(CollectiveKind(phase.kind), phase.data_bytes, (here.lane,), 0))
        exits_ns = [0] * len(members)

        def leave(position: int, _: Stream) -> None:
            exits_ns[position] = int(env.now)

        for position, npu in enumerate(members):
            transport.start(npu, Stream(("", 0), dataset, (here,)), partial(leave, position))
        env.run()
        rows = network.times()
        return Performance(exits_ns, *network.counts(), None if rows is None else OccupiedLinks.of(rows))


def _links_of(plan: AnyPlan, stage: _Stage, *, rendezvous: bool) -> int:
    """The links of a stage that a plan's messages take, a bit for each; all where a plan does not say."""
    if isinstance(plan, Explicit):
        src = np.array([entry.src for entry in plan.transfers], np.int64)
        dst = np.array([entry.dst for entry in plan.transfers], np.int64)
    elif not isinstance(plan, Plan):
        return bits(np.arange(len(stage.part)), len(stage.part))
    else:
        hops = sorted({entry.hop for entry, _ in plan.rounds})
        src = np.tile(np.arange(plan.size), len(hops))
        dst = np.concatenate([peers_of(plan, hop) for hop in hops]) if hops else src
    src, dst = stage.members[src], stage.members[dst]
    if rendezvous:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return bits(stage.part.routes(src, dst).links, len(stage.part))
