"""Phases that have their links for themselves, on NPUs that are all alike: each shape is played once and remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import simpy

from simcore.network.congested import CutThrough
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Timers
from simcore.network.topology.links import LinkGraph
from simcore.system.closed import solve_alike
from simcore.system.columns import Columns
from simcore.system.meetings import InUse
from simcore.system.plan import Plan
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.streams import Dataset, Request, Stream, StreamPhase
from simcore.system.transport import Done, class_of
from simcore.timeline.events import LinkTable
from simcore.timeline.link_use import LinkUse, OccupiedLinks
from simcore.workload.model import CollectiveKind

__all__ = ["Isolated"]

EVERY_LINK = 1
Begun = tuple[int, StreamPhase]
"""When a phase began, in nanoseconds, and which."""


class Isolated:
    """Transport for a symmetric machine on which no two phases ever share a link, and groups begin them together.

    Exact: a phase that meets nobody takes as long whenever it begins. The caller answers for one chunk at a time in
    every logical dimension, and for every such dimension having links of its own (`never_meet`); otherwise a
    MeetingError says that an NPU was in two phases of one dimension at once. `links` are folded.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        links: FoldedLinks,
        network: Callable[[simpy.Environment, LinkGraph], CutThrough],
        costs: Costs,
        *,
        never_meet: bool = True,
        columns: Columns | None = None,
        stages: int = 1,
    ):
        self._env, self._links, self._network, self._costs = env, links, network, costs
        self._timers, self._in_use, self._never_meet = Timers(env), InUse(), never_meet
        self._columns, self._stages, self._class_of = columns, stages, class_of(ranks)
        self._everyone = [range(sum(map(len, ranks)))]
        self._duration_ns: dict[StreamPhase, int] = {}
        self._carried: dict[StreamPhase, tuple[np.ndarray, np.ndarray]] = {}
        self._sent: dict[tuple[int, StreamPhase], int] = {}
        self._log: dict[int, list[Begun]] = {}
        self._occupied: dict[StreamPhase, OccupiedLinks | None] = {}
        self._plans = Played(env, ranks, network(env, links), costs)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between stages; other messages would meet the phases: a run with them is not isolated."""
        if self._columns is None:
            raise NotImplementedError
        self._columns.carry(src, dst, size_bytes, key, deliver)

    def played(self, npu_class: int) -> list[Begun]:
        """The phases that a class has played, each with its beginning; who repeats what it has seen adds to them."""
        return self._log.setdefault(npu_class, [])

    def links(self) -> LinkTable:
        """What every link carried: each shape's bytes as often as the NPUs of its stage played it."""
        size_bytes, busy_ns = np.zeros((2, len(self._links.stands_for)), np.int64)
        for stage in range(self._stages):
            first = int(self._class_of[stage * (len(self._class_of) // self._stages)])
            carried = np.zeros((2, len(self._links)), np.int64)
            for phase, times in Counter(phase for _, phase in self.played(first)).items():
                carried += times * np.stack(self._carried[phase])
            for own in self._links.of_stage(stage, self._stages):
                size_bytes[own], busy_ns[own] = carried[:, self._links.stands_for[own]]
        if self._columns:
            self._columns.add_to(size_bytes, busy_ns)
        return replace(self._links.whole.table(size_bytes, busy_ns), use=self._use())

    def _use(self) -> LinkUse | None:
        """When links were occupied: as their representatives, each time their NPU's class began a phase."""
        if not self._links.timed:
            return None
        parts = []
        for npu_class in sorted(self._log):
            begins_ns: dict[StreamPhase, list[int]] = {}
            for begin_ns, phase in self.played(npu_class):
                begins_ns.setdefault(phase, []).append(begin_ns)
            for phase, times in begins_ns.items():
                occupied = self._occupied[phase]
                if occupied is None:
                    return None
                parts.append(occupied.again(npu_class * len(self._links), times))
        whole = self._links.whole
        owner = np.where(whole.src < whole.npus, whole.src, whole.dst)
        use = LinkUse(parts, self._links.stands_for + self._class_of[owner] * len(self._links))
        return self._columns.added(use) if self._columns else use

    def bytes_sent(self, npu_class: int, stream: Stream) -> int:
        """What one NPU sends in the phase."""
        sent = self._sent.get((npu_class, stream.phase))
        if sent is None:
            sent = self._sent[npu_class, stream.phase] = self._plans.bytes_sent(npu_class, stream)
        return sent

    def start(self, npu_class: int, stream: Stream, done: Done) -> None:
        """Call back after the phase's own time."""
        phase = stream.phase
        duration_ns = self._duration_ns.get(phase)
        if duration_ns is None:
            self._play(phase)
            duration_ns = self._duration_ns[phase]
        now_ns = int(self._env.now)
        self.played(npu_class).append((now_ns, phase))
        if not self._never_meet:
            self._in_use.take((npu_class, phase.lane.dim.index), EVERY_LINK, now_ns, now_ns + duration_ns)
        self._timers.after(duration_ns, partial(done, stream))

    def _play(self, phase: StreamPhase) -> None:
        """Play the phase alone, in an environment of its own, where it has no closed form."""
        plan = self._plans.plans.of(phase, 0)
        if isinstance(plan, Plan) and not self._links.timed:
            costs = self._costs.of(phase.lane.dim)
            solved = solve_alike(plan, phase.lane.dim.members(0), self._links, costs)
            if solved:
                self._duration_ns[phase], *carried = solved
                self._carried[phase] = (carried[0], carried[1])
                return
        env = simpy.Environment()
        network = self._network(env, self._links)
        dataset = Dataset(env, Request(CollectiveKind(phase.kind), phase.data_bytes, (phase.lane,), 0))
        ends: list[int] = []
        stream = Stream(("", 0), dataset, (phase,))
        Played(env, self._everyone, network, self._costs).start(0, stream, lambda _: ends.append(int(env.now)))
        env.run()
        self._duration_ns[phase] = ends[0]
        self._carried[phase], rows = network.counts(), network.times()
        self._occupied[phase] = None if rows is None else OccupiedLinks.of(rows)
