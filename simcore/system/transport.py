"""Who says when an NPU leaves a phase, and those that work it out, or look it up, at the last arrival.

Nothing leaves a collective before everybody is in it: without contention nothing has to be stepped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from simcore.network.instant import Environment, Timers, TimersOfNpus, after
from simcore.system.alone.solver import solve
from simcore.system.collectives.nccl import Choice, Fabric, choose, point_to_point_s
from simcore.system.groups import Delay, Groups, LogicalDim, RankGroup
from simcore.system.plans.maker import Costs, Plans, uneven
from simcore.system.streams import Stream, StreamPhase
from simcore.timeline.events import CircuitRun, LinkTable
from simcore.units import format_bytes, whole_ns
from simcore.workload.model import CollectiveKind

Done = Callable[[Stream], None]


Meeting = dict[int, tuple[float, Stream, Done]]
"""Who has entered a phase: class -> (arrival time, chunk, callback).

Times are whole but for ASTRA-sim 1.0's memory floor, which is a fraction that carries on.
"""
Exits = dict[int, float]
"""When each class leaves."""


class Transport(ABC):
    """What says when NPUs leave phases; `ranks[c]` are the NPUs of class c, `timers` those of the NPUs."""

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], costs: Costs):
        self._env, self._ranks, self._costs = env, ranks, costs
        self.plans, self.timers = Plans(costs), TimersOfNpus(partial(Timers, env))

    @abstractmethod
    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase on some classes, which leave it when `done` is called."""

    @abstractmethod
    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; of those of one time, that of the least `key` goes first."""

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends in a phase."""
        return self.plans.bytes_of(phase, int(self._ranks[npu_class][0]))

    def links(self) -> LinkTable | None:
        """What every link carried, where links are modelled."""
        return None

    def notes(self) -> list[str]:
        """What is to be said of how times were found."""
        return []

    def stuck(self) -> list[str]:
        """What of the network waits for each other, when nothing moves any more."""
        return []

    @property
    def parts(self) -> Sequence[Transport]:
        """The transports that do the work."""
        return [self]

    def told(self) -> CircuitRun | None:
        """Which circuits were in place when, where some are switched."""
        return None


class Solved(Transport):
    """Transport on a network without contention (or whose links a phase has for itself).

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0).
    """

    def __init__(
        self,
        env: Environment,
        ranks: Sequence[Sequence[int]],
        delay: Delay,
        costs: Costs,
        *,
        barrier: bool = False,
    ):
        super().__init__(env, ranks, costs)
        self._delay, self._barrier = delay, barrier
        self._groups, self._meetings = Groups(ranks, delay), dict[tuple[object, ...], Meeting]()
        self._lockstep: dict[tuple[RankGroup, StreamPhase], NDArray[np.int64]] = {}

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Note arrivals; the last one settles the phase for all."""
        for npu_class, stream in streams.items():
            group = self._groups.of(npu_class, stream.phase.lane.dim)
            key = (stream.key, stream.at, 0 if self._barrier else group.name)
            meeting = self._meetings.setdefault(key, {})
            meeting[npu_class] = (self._env.now, stream, done)
            if len(meeting) == (len(self._ranks) if self._barrier else len(group.met)):
                del self._meetings[key]
                self._settle(meeting, stream.phase)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message, which meets nobody."""
        time_ns = int(self._delay(np.array([src]), np.array([dst]), size_bytes)[0])
        after(self._env, time_ns, deliver)

    def _settle(self, meeting: Meeting, phase: StreamPhase) -> None:
        """Work out when each class leaves, and call it back then."""
        leave: Exits = {}
        for npu_class in meeting:
            if npu_class not in leave:
                leave |= self._exits(self._groups.of(npu_class, phase.lane.dim), meeting, phase)
        if self._barrier:
            leave = dict.fromkeys(leave, max(leave.values()))
        for npu_class, (_, stream, done) in meeting.items():
            if npu_class in leave:
                after(self._env, max(leave[npu_class] - self._env.now, 0), partial(done, stream))

    def _exits(self, group: RankGroup, meeting: Meeting, phase: StreamPhase) -> Exits:
        """When each class of a group leaves."""
        exits = self._times(group, np.array([meeting[npu_class][0] for npu_class in group.classes]), phase)
        leave: Exits = {}
        for npu_class, exit_ns in zip(group.classes, exits.tolist(), strict=True):
            if leave.setdefault(npu_class, exit_ns) != exit_ns:
                if not self._barrier:
                    raise uneven(phase)
                leave[npu_class] = max(leave[npu_class], exit_ns)
        return leave

    def _times(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        """When each member leaves; those who come together do so as ever."""
        if (arrivals == arrivals[0]).all():
            if (group, phase) not in self._lockstep:
                self._lockstep[group, phase] = self._solve(group, np.zeros(len(group), np.int64), phase)
            lockstep = self._lockstep[group, phase]
            if lockstep.dtype == np.int64:  # fractions are added up from the beginning: a sum depends on the order
                return arrivals + lockstep
        return self._solve(group, arrivals, phase)

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        plan = self.plans.of(phase, group.ids[0])
        return solve(plan, group, arrivals, self._costs.of(phase.lane.dim))


# Sizes are what one rank has; the measured curves' are those of all ranks together.
_OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}


class Measured(Solved):
    """Transport with `collectives: nccl`: a phase ends everywhere as long after its last arrival as `choose` says.

    A node holds `fabric.node_ranks` consecutive NPUs. Collectives of different groups do not meet.
    """

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], fabric: Fabric, costs: Costs):
        super().__init__(env, ranks, _measured_delay(fabric), costs)
        self._fabric = fabric
        self._chosen: dict[StreamPhase, Choice] = {}
        self._used: dict[tuple[str, int, int, str], list[int]] = defaultdict(list)

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends."""
        return round(self._chosen[phase].wire_bytes)

    def notes(self) -> list[str]:
        """What was chosen, for which collectives and sizes."""
        lines = []
        for (kind, ranks, per_node, name), sizes in sorted(self._used.items()):
            span = " to ".join(dict.fromkeys(map(format_bytes, sizes)))
            lines.append(f"nccl on {self._fabric.name}: {kind} of {span} on {ranks} ranks, {per_node} a node: {name}")
        return lines

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        per_node = int(np.unique(group.members // self._fabric.node_ranks, return_counts=True)[1].max())
        total_bytes = phase.data_bytes * (len(group) if phase.kind in _OF_ONE_RANK else 1)
        chosen = choose(phase.kind, total_bytes, len(group), per_node, self._fabric)
        self._chosen[phase] = chosen
        sizes = self._used[str(phase.kind), len(group), per_node, str(chosen)]
        sizes[:] = [min([total_bytes, *sizes]), max([total_bytes, *sizes])]
        return np.full_like(arrivals, arrivals.max() + whole_ns(chosen.seconds * 1e9))


def in_equal_nodes(dims: Sequence[LogicalDim], npus: int, node_ranks: int) -> bool:
    """Whether groups of the same dimensions always have as many ranks in a node: one may stand for all then."""
    ids, wide = np.arange(npus), [dim for dim in dims if dim.size > 1]
    for together in chain.from_iterable(combinations(wide, count) for count in range(1, len(wide) + 1)):
        first = ids - sum(ids // dim.stride % dim.size * dim.stride for dim in together)
        shares = np.unique(first * npus + ids // node_ranks, return_counts=True)[1]  # of groups in nodes
        if np.ptp(shares):
            return False
    return True


def _measured_delay(fabric: Fabric) -> Delay:
    """Of messages between two ranks."""

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        same = src // fabric.node_ranks == dst // fabric.node_ranks
        near, far = (whole_ns(point_to_point_s(size_bytes, fabric, same_node=near) * 1e9) for near in (True, False))
        return np.where(same, near, far)

    return times
