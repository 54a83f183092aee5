"""Phases that have their links for themselves, on NPUs that are all alike: each shape is played once and remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import simpy

from simcore.network.congested import CutThrough
from simcore.network.instant import Timers
from simcore.network.topology.links import LinkGraph
from simcore.system.meetings import InUse
from simcore.system.plans import Costs
from simcore.system.played import Played
from simcore.system.streams import Dataset, Request, Stream, StreamPhase
from simcore.system.transport import Done
from simcore.timeline.events import LinkTable
from simcore.workload.model import CollectiveKind

__all__ = ["Isolated"]

EVERY_LINK = 1


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
        links: LinkGraph,
        network: Callable[[simpy.Environment, LinkGraph], CutThrough],
        costs: Costs,
        *,
        never_meet: bool = True,
    ):
        self._env, self._links, self._network, self._costs = env, links, network, costs
        self._timers, self._in_use, self._never_meet = Timers(env), InUse(), never_meet
        self._everyone = [range(sum(map(len, ranks)))]
        self._duration_ns: dict[StreamPhase, int] = {}
        self._carried: dict[StreamPhase, tuple[np.ndarray, np.ndarray]] = {}
        self._times: Counter[StreamPhase] = Counter()
        self._plans = Played(env, ranks, network(env, links), costs)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Point-to-point messages would meet the phases: a run that has them is not isolated."""
        raise NotImplementedError

    def links(self) -> LinkTable:
        """What every link carried: each shape's bytes as often as it was played."""
        size_bytes = np.zeros(len(self._links), np.int64)
        busy_ns = np.zeros(len(self._links), np.int64)
        for phase, times in self._times.items():
            size_bytes += times * self._carried[phase][0]
            busy_ns += times * self._carried[phase][1]
        return self._links.table(size_bytes, busy_ns)

    def bytes_sent(self, npu_class: int, stream: Stream) -> int:
        """What one NPU sends in the phase."""
        return self._plans.bytes_sent(npu_class, stream)

    def start(self, npu_class: int, stream: Stream, done: Done) -> None:
        """Call back after the phase's own time."""
        phase = stream.phase
        if phase not in self._duration_ns:
            self._play(phase)
        if npu_class == 0:  # every NPU takes part in as many
            self._times[phase] += 1
        duration_ns = self._duration_ns[phase]
        if not self._never_meet:
            now_ns = int(self._env.now)
            self._in_use.take((npu_class, phase.lane.dim.index), EVERY_LINK, now_ns, now_ns + duration_ns)
        self._timers.after(duration_ns, partial(done, stream))

    def _play(self, phase: StreamPhase) -> None:
        """Play the phase alone, in an environment of its own."""
        env = simpy.Environment()
        network = self._network(env, self._links)
        dataset = Dataset(env, Request(CollectiveKind(phase.kind), phase.data_bytes, (phase.lane,), 0))
        ends: list[int] = []
        stream = Stream(("", 0), dataset, (phase,))
        Played(env, self._everyone, network, self._costs).start(0, stream, lambda _: ends.append(int(env.now)))
        env.run()
        self._duration_ns[phase] = ends[0]
        self._carried[phase] = network.counts()
