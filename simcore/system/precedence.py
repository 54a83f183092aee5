"""Which NPU acts first of those that act in the same nanosecond; ASTRA-sim's answer depends on it in one place.

NPUs begin a collective in the order of their ids and leave a phase in the order in which its last messages came, one
message after the other from the first sender on. `Themis.begin` asks who issues first.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simcore.system.alone.solver import transfers
from simcore.system.groups import Delay, RankGroup
from simcore.system.plans.maker import Plans
from simcore.system.plans.plan import Plan
from simcore.system.streams import StreamPhase, Turns


class Precedence:
    """The order in which NPUs leave phases, for NPUs that are all alike on a network without contention.

    `delay` times messages. Of `num_queues` queues of a dimension the second half goes round anticlockwise.
    """

    def __init__(self, npus: int, plans: Plans, delay: Delay, num_queues: int):
        self._npus, self._plans, self._delay, self._num_queues = npus, plans, delay, num_queues
        self._known: dict[tuple[StreamPhase, Turns], Turns] = {}

    def after(self, phase: StreamPhase, order: Turns) -> Turns:
        """Who leaves a phase first, of those that began it in an order."""
        key = (phase, order)
        if key not in self._known:
            plan = self._plans.of(phase, 0)
            found = np.array(order or range(self._npus))
            if plan.transfers:
                # Places of a tree differ: who is through first.
                dim = phase.lane.dim
                group = RankGroup(dim.members(0), self._delay)
                exits = transfers(plan, group, np.zeros(len(group), np.int64), self._plans.costs)
                times = exits[[dim.position(npu) for npu in found.tolist()]]
                found = found[np.argsort(times, kind="stable")]
            elif not self._plans.costs.rendezvous:
                found = self._by_messages(plan, phase, found)
            self._known[key] = tuple(found.tolist())
        return self._known[key]

    def _by_messages(self, plan: Plan, phase: StreamPhase, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Batch by batch: who gets the first of the messages that arrive last goes on first.

        Under rendezvous receivers ask in their order and are served in it: nothing changes.
        """
        dim = phase.lane.dim
        members = dim.members(0)
        group = RankGroup(members, self._delay)
        place = np.array([dim.position(npu) for npu in range(len(order))])
        turn = phase.queue % self._num_queues
        step = -1 if turn and turn >= self._num_queues // 2 else 1
        entries, half = plan.expanded, plan.half
        ends = [*range(0, half, plan.window), *range(half, len(entries), plan.window), len(entries)]
        for first, end in pairwise(ends):  # what a rank sends at one time
            batch = entries[first:end]
            times = [group.delays(entry.hop, plan.moves, entry.size_bytes)[0] for entry in batch]
            hops = np.array([entry.hop for entry, time in zip(batch, times, strict=True) if time == max(times)])
            here = place[order][:, None]
            there = here ^ hops if plan.exchange else (here + step * hops) % plan.size
            receivers = (order[:, None] + members[there] - members[here]).ravel()
            order = receivers[np.sort(np.unique(receivers, return_index=True)[1])]
        return order
