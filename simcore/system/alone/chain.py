"""How long a phase takes that has its links for itself: a chain of ways to tell, the cheapest that holds first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike

from simcore.network.clock import occupied_ns
from simcore.network.congested import LinkNetwork
from simcore.network.core import NEVER
from simcore.network.instant import Environment
from simcore.network.topology.fabric import IntArray
from simcore.system.alone.at_once import all_at_once
from simcore.system.alone.solver import PhaseTimes, solve_alone
from simcore.system.groups import Communicator
from simcore.system.messages.layouts import Layouts, Running, Shape
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan
from simcore.system.streams import LonePhase, StreamPhase
from simcore.system.transport import Played

_Begin = Callable[[Environment, LinkNetwork, list[list[int]]], None]
"""Begins what is played; it notes there when each of each group is through."""


Learn = Callable[[PhaseTimes | None], None]
"""Takes the times of a phase; None where they cannot be told."""


class Phases:
    """Times of phases on their own, by what they are: each is worked out once.

    `network` plays the plans that `network.core` does not know, and all of them where it is another one than first
    come, first served (`plain` is false).
    """

    def __init__(self, layouts: Layouts, network: type[LinkNetwork], costs: Costs, *, plain: bool):
        self._layouts, self.network, self._costs, self._plain = layouts, network, costs, plain
        self._known: dict[Hashable, PhaseTimes | None] = {}

    def times(
        self, shape: Shape, phase: StreamPhase, plans: Sequence[Plan], groups: Sequence[IntArray]
    ) -> PhaseTimes | None:
        """Of a phase whose groups begin together; `groups` are NPUs of a place, `plans` what each group sends.

        None where it cannot be told by itself: it ends in a deadlock, leaves in queues what others would meet, or a
        message takes no time.
        """
        if _hurries(shape, min(plan.least_bytes for plan in plans)):
            return None
        costs, key = self._costs.of(phase.lane), self._key(shape, phase, plans, groups)
        if key:
            if key not in self._known:
                self._known[key] = self._stepped(shape, phase, plans, groups, costs)
            return self._known[key]
        found = None
        if not shape.graph.timed and all(plan.plain for plan in plans):
            players = shape.players(groups[0])
            found = all_at_once(plans, groups, shape.graph, costs, players)
            if len(plans) == 1:
                found = found or solve_alone(plans[0], groups[0], shape.graph, costs, players)
        return found or self._played(shape, plans, groups, costs)

    def learning(
        self, shape: Shape, phase: StreamPhase, plans: Sequence[Plan], groups: Sequence[IntArray]
    ) -> Learn | None:
        """Of a phase that is played message by message; None where it is not, or its times are known."""
        key = self._key(shape, phase, plans, groups)
        return None if key is None or key in self._known else partial(self._known.__setitem__, key)

    def _key(
        self, shape: Shape, phase: StreamPhase, plans: Sequence[Plan], groups: Sequence[IntArray]
    ) -> Hashable | None:
        """What a phase sends and pays that is played message by message; None, columns are."""
        costs = self._costs.of(phase.lane)
        if self._plain and not costs.rendezvous and all(plan.playable for plan in plans):
            return None
        return shape.name, *(_sent(plan, costs) for plan in plans), *(tuple(group.tolist()) for group in groups)

    def _played(self, shape: Shape, plans: Sequence[Plan], groups: Sequence[IntArray], costs: Costs) -> PhaseTimes:
        """Message by message, as columns."""
        running = Running(self._layouts, len(shape.graph))
        group_of = {}
        exits = [np.full(shape.players(members), -1) for members in groups]
        for index, (plan, members) in enumerate(zip(plans, groups, strict=True)):
            for layout, base in self._layouts.of(shape, plan, members, costs):
                group_of[running.start(layout, 0, base, 0, 0)] = index
        for time_ns, instance, position in running.drain():
            own = exits[group_of[instance]]
            own[position] = max(own[position], time_ns)
        for instance in group_of:
            running.end(instance)
        if min(own.min() for own in exits) < 0:
            raise OverflowError(f"{NEVER:,} ns or more")
        occupied = running.rows() if shape.graph.timed else None
        return PhaseTimes(of_all(exits, groups), *running.counts(0, len(shape.graph)), occupied)

    def _stepped(
        self, shape: Shape, phase: StreamPhase, plans: Sequence[Plan], groups: Sequence[IntArray], costs: Costs
    ) -> PhaseTimes | None:
        """Message by message, in an environment of its own."""
        players = shape.players(groups[0])

        def begin(env: Environment, network: LinkNetwork, exits_ns: list[list[int]]) -> None:
            ranks = [group[own::players].tolist() for group in groups for own in range(players)]
            transport = Played(env, ranks, network, costs)

            def leave(index: int, position: int, _: LonePhase) -> None:
                exits_ns[index][position] = int(env.now)

            for index, (plan, members) in enumerate(zip(plans, groups, strict=True)):
                ids = members.tolist()
                here = structs.replace(phase, lane=structs.replace(phase.lane, dim=Communicator(tuple(ids))))
                transport.plans.know(here, ids[0], plan)
                for position in range(players):
                    lone = LonePhase(0, here)  # nobody else is before it
                    transport.start({index * players + position: lone}, partial(leave, index, position))

        times = self._told(shape, [players] * len(groups), begin)
        return times and structs.replace(times, exits_ns=of_all(times.exits_ns, groups))

    def message(self, shape: Shape, src: int, dst: int, size_bytes: int) -> PhaseTimes | None:
        """Of a message between two NPUs of a place, which leaves when it arrives; None as of `times`."""
        if _hurries(shape, size_bytes):
            return None

        def begin(env: Environment, network: LinkNetwork, exits_ns: list[list[int]]) -> None:
            def deliver() -> None:
                exits_ns[0][0] = int(env.now)

            network.send(src, dst, size_bytes, (0,), deliver)

        return self._told(shape, [1], begin)

    def _told(self, shape: Shape, sizes: Sequence[int], begin: _Begin) -> PhaseTimes | None:
        """What was played; None as of `times`."""
        env = Environment()
        network, exits_ns = self.network(env, shape.graph), [[-1] * size for size in sizes]
        begin(env, network, exits_ns)
        env.run()
        times = PhaseTimes(exits_ns, *network.counts(), network.times(), network.queues())
        told = min(map(min, exits_ns)) >= 0 and not network.remembers(times.end_ns)
        return times if told else None


def of_all(exits_ns: Sequence[ArrayLike], groups: Sequence[IntArray]) -> list[list[int]]:
    """When each of some groups leaves, of those that play for them."""
    return [np.resize(own, len(members)).tolist() for own, members in zip(exits_ns, groups, strict=True)]


def _hurries(shape: Shape, size_bytes: int) -> bool:
    """Whether a message may cross some link in no time: what it brings about comes behind all else of that instant."""
    graph = shape.graph
    return bool(((graph.latency_ns < 1) & (occupied_ns(size_bytes, graph.bandwidth_bytes_per_s) == 0)).any())


def _sent(plan: Plan, costs: Costs) -> Hashable:
    """What ranks send and pay: a gather sends as a scatter does, which pays for reductions."""
    if not plan.plain:
        return plan
    paid = ((entry.hop, entry.size_bytes, costs.received_ns(entry.reduce_bytes), n) for entry, n in plan.rounds)
    return plan.size, plan.window, plan.moves, plan.half, costs.endpoint_ns, *paid
