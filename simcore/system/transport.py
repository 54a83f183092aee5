"""Phases solved at their last arrival: nothing leaves a collective before everybody is in it, so nothing is stepped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.network.instant import after
from simcore.system.groups import Delay, GroupDim, RankGroup
from simcore.system.plan import Symmetry
from simcore.system.plans import Costs, Plans
from simcore.system.solver import solve
from simcore.system.streams import Stream, StreamPhase

Done = Callable[[Stream], None]


class AsymmetryError(Exception):
    """NPUs that were folded into one class turn out to differ: the run must be repeated unfolded."""


class MeetingError(Exception):
    """Phases that were timed each by itself meet: the run must be repeated message by message."""


_Meeting = dict[int, tuple[float, Stream, Done]]
"""Who has entered a phase: class -> (arrival time, chunk, callback).

Times are whole but for ASTRA-sim 1.0's memory floor, which is a fraction that carries on.
"""


class Solved:
    """Transport on a network without contention (or whose links a phase has for itself).

    `ranks[c]` are the NPUs of class c. With `barrier`, a chunk leaves a phase only when the whole machine has finished
    it (ASTRA-sim 1.0).
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        delay: Delay,
        costs: Costs,
        *,
        barrier: bool = False,
    ):
        self._env, self._ranks, self._delay, self._costs, self._barrier = env, ranks, delay, costs, barrier
        self.plans = Plans(costs)
        self._class_of = class_of(ranks)
        self._meetings: dict[tuple[object, ...], _Meeting] = {}
        self._groups: dict[tuple[GroupDim, int], RankGroup] = {}
        self._classes: dict[RankGroup, NDArray[np.int64]] = {}
        self._names: dict[RankGroup, Hashable] = {}
        self._lockstep: dict[tuple[RankGroup, StreamPhase], NDArray[np.int64]] = {}

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends in a phase."""
        return self.plans.bytes_of(phase, self._ranks[npu_class][0])

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Note arrivals; the last one settles the phase for all."""
        for npu_class, stream in streams.items():
            self._arrive(npu_class, stream, done)

    def _arrive(self, npu_class: int, stream: Stream, done: Done) -> None:
        group = self._group(stream.phase.lane.dim, self._ranks[npu_class][0])
        key = (stream.key, stream.at, 0 if self._barrier else self._name(group))
        meeting = self._meetings.setdefault(key, {})
        meeting[npu_class] = (self._env.now, stream, done)
        expected = len(self._ranks) if self._barrier else len(set(self._members(group).tolist()))
        if len(meeting) == expected:
            del self._meetings[key]
            self._settle(meeting, stream.phase)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message."""
        time_ns = int(self._delay(np.array([src]), np.array([dst]), size_bytes)[0])
        after(self._env, time_ns, lambda _: deliver())

    def links(self) -> None:
        """Links are not modelled."""

    def notes(self) -> list[str]:
        """Nothing to be said of how times were found."""
        return []

    def _settle(self, meeting: _Meeting, phase: StreamPhase) -> None:
        """Work out when each class leaves, and call it back then."""
        leave: dict[int, float] = {}
        for npu_class in meeting:
            if npu_class not in leave:
                leave |= self._exits(self._group(phase.lane.dim, self._ranks[npu_class][0]), meeting, phase)
        if self._barrier:
            leave = dict.fromkeys(leave, max(leave.values()))
        for npu_class, (_, stream, done) in meeting.items():
            timer = self._env.timeout(leave[npu_class] - self._env.now)
            timer.callbacks.append(partial(_leave, done, stream))

    def _exits(self, group: RankGroup, meeting: _Meeting, phase: StreamPhase) -> dict[int, float]:
        """When each class of a group leaves."""
        classes = self._members(group)
        arrivals = np.array([meeting[c][0] for c in classes.tolist()])
        if (arrivals == arrivals[0]).all():
            if (group, phase) not in self._lockstep:
                self._lockstep[group, phase] = self._solve(group, np.zeros(len(group), np.int64), phase)
            lockstep = self._lockstep[group, phase]
            # Fractions are added up from the beginning: a sum of floats depends on the order.
            exits = arrivals + lockstep if lockstep.dtype == np.int64 else self._solve(group, arrivals, phase)
        else:
            exits = self._solve(group, arrivals, phase)
        leave: dict[int, float] = {}
        for npu_class, exit_ns in zip(classes.tolist(), exits.tolist(), strict=True):
            if leave.setdefault(npu_class, exit_ns) != exit_ns:
                if not self._barrier:
                    raise AsymmetryError
                leave[npu_class] = max(leave[npu_class], exit_ns)
        return leave

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        plan = self.plans.of(phase, group.ids[0])
        if plan.symmetry == Symmetry.NONE and 1 < len(self._ranks) < len(self._class_of):
            raise AsymmetryError  # places matter: groups of equal classes need not be equal
        return solve(plan, group, arrivals, self._costs.of(phase.lane.dim))

    def _group(self, dim: GroupDim, npu: int) -> RankGroup:
        members = dim.members(npu)
        key = (dim, int(members[0]))
        if key not in self._groups:
            self._groups[key] = RankGroup(members, self._delay)
        return self._groups[key]

    def _members(self, group: RankGroup) -> NDArray[np.int64]:
        """The class of each member."""
        if group not in self._classes:
            self._classes[group] = self._class_of[group.members]
        return self._classes[group]

    def _name(self, group: RankGroup) -> Hashable:
        """Of a group, whichever way its members go round: two need not agree.

        In a folded run groups of equal classes are one: a class stands for members of all of them.
        """
        if group not in self._names:
            unfolded = len(self._ranks) == len(self._class_of)
            self._names[group] = min(group.ids) if unfolded else tuple(sorted(self._members(group).tolist()))
        return self._names[group]


def _leave(done: Done, stream: Stream, _: simpy.Event) -> None:
    done(stream)


def class_of(ranks: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The class of every NPU."""
    found = np.empty(sum(map(len, ranks)), dtype=np.int64)
    for npu_class, members in enumerate(ranks):
        own = slice(members.start, members.stop, members.step) if isinstance(members, range) else np.asarray(members)
        found[own] = npu_class
    return found
