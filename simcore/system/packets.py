"""The packets of a collective on the memory bus: how large they are, where they go, which are reduced (ASTRA-sim)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import simpy

from simcore.network.instant import TimersOfNpus
from simcore.system.memory_bus import BusCosts, MemoryBus, Route
from simcore.system.plans.automaton import Pay
from simcore.system.plans.plan import Plan
from simcore.system.streams import StreamPhase
from simcore.workload.model import CollectiveKind

Done = Callable[[], None]
Carry = Callable[[Route, int, Done], None]


def routes(algorithm: str, kind: CollectiveKind, plan: Plan) -> list[Route]:
    """Of all packets of a phase: `plan.window` are there from the start, every receive adds one.

    Packets come in batches: `plan.window` go to the memory, those after them to the NPU and, but for the last
    `plan.window`, back. A reduce-scatter reduces them, an all-reduce those of every other batch.
    """
    window = plan.window
    behind = {"direct": window, "halvingDoubling": plan.size.bit_length() - 2}.get(algorithm, plan.size - 1)
    found = []
    for number in range(window + plan.num_rounds):
        batch, place = divmod(number, window + behind)
        to_memory = place < window
        reduces = kind == CollectiveKind.REDUCE_SCATTER or (kind == CollectiveKind.ALL_REDUCE and batch % 2 == 0)
        found.append(Route(to_memory, reduces and not to_memory, not to_memory and place < behind))
    return found


def packet_sizes(algorithm: str, kind: CollectiveKind, plan: Plan) -> list[int]:
    """Of all packets of a phase; those that no message follows are as large as the message that would."""
    sizes = [entry.size_bytes for entry in plan.expanded]
    following = sizes[-1]
    if algorithm == "halvingDoubling":
        following = following // 2 if kind == CollectiveKind.REDUCE_SCATTER else following * 2
    return sizes + [following] * plan.window


class Packets:
    """Takes packets over the buses of all NPUs."""

    def __init__(self, env: simpy.Environment, timers: TimersOfNpus, costs: BusCosts):
        self._env, self._timers, self._costs = env, timers, costs
        self._known: dict[StreamPhase, list[tuple[Route, int]]] = {}
        self._buses: dict[int, MemoryBus] = {}

    def pay(self, npu: int, phase: StreamPhase, plan: Plan, reduction_ns: Callable[[int], int]) -> Pay:
        """What the packets of a phase cost on one NPU; reductions cost as much again as without a bus."""
        carry = partial(self._carry, npu, reduction_ns)
        if plan.transfers:
            return _of_transfers(plan, carry)
        if phase not in self._known:
            name, kind = phase.lane.algorithm.name, phase.kind
            self._known[phase] = list(zip(routes(name, kind, plan), packet_sizes(name, kind, plan), strict=True))
        packets = self._known[phase]
        return lambda number, reduce_bytes, credit: carry(*packets[number], credit)

    def _carry(self, npu: int, reduction_ns: Callable[[int], int], route: Route, size_bytes: int, credit: Done) -> None:
        if npu not in self._buses:
            self._buses[npu] = MemoryBus(self._env, self._timers[npu], self._costs)
        then = partial(self._timers[npu].after, reduction_ns(size_bytes), credit) if route.reduced else credit
        self._buses[npu].carry(route, size_bytes, then)


def _of_transfers(plan: Plan, carry: Carry) -> Pay:
    """Packets of an explicit plan: those that its sends begin with, and those it receives, sent back if it goes on."""
    missing: dict[int, int] = {}

    def pay(number: int, reduce_bytes: int, credit: Done) -> None:
        if number < 0:
            carry(Route(to_memory=True), plan.transfers[~number].size_bytes, credit)
            return
        for follower in plan.before[number]:
            missing[follower] = missing.get(follower, len(plan.after[follower])) - 1
        goes_on = any(missing[follower] == 0 for follower in plan.before[number])
        carry(Route(False, reduce_bytes > 0, goes_on), plan.transfers[number].size_bytes, credit)

    return pay
