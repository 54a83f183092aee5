"""When every rank leaves a phase, computed rather than stepped; equal to `machine.simulate` to the nanosecond.

Exact while the phase has its links for itself. Three ways, the cheapest that holds: all ranks alike (a sum), one
message in flight (max-plus rounds on arrays), anything else message by message. Fractions of a nanosecond (ASTRA-sim
1.0's memory) are added one message after the other, as that does: a sum of floats depends on the order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.system.groups import RankGroup
from simcore.system.machine import simulate
from simcore.system.plan import Plan, Round
from simcore.system.plans import Costs
from simcore.system.point_to_point import RENDEZVOUS_BYTES

__all__ = ["solve"]

Delays = dict[Round, NDArray[np.int64]]


def solve(plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """Exit times of the group's members, given when each arrives."""
    rendezvous = costs.rendezvous
    delays = {entry: group.delays(entry.hop, plan.exchange, entry.size_bytes) for entry, _ in plan.rounds}
    together = bool((arrivals_ns == arrivals_ns[0]).all())
    asked = {entry.hop: group.requests(entry.hop, plan.exchange, RENDEZVOUS_BYTES) for entry in delays if rendezvous}
    alike = together and all((column == column[0]).all() for column in (*delays.values(), *asked.values()))
    whole = all(column.dtype == np.int64 for column in delays.values())
    if alike and plan.window == 1 and whole:
        delays = {entry: delay + asked.get(entry.hop, 0) for entry, delay in delays.items()}
        return arrivals_ns + _sum(plan, delays, costs)
    if plan.window == 1 and not rendezvous:
        return _rounds(plan, delays, arrivals_ns, costs)
    by_message = {(entry.hop, entry.size_bytes): column for entry, column in delays.items()}

    def delay_ns(rank: int, hop: int, size_bytes: int) -> int:
        return by_message[hop, size_bytes][rank].item()  # type: ignore[no-any-return]

    def request_ns(rank: int, hop: int) -> int:
        return asked[hop][rank].item()  # type: ignore[no-any-return]

    starts = arrivals_ns[:1] if alike else arrivals_ns
    request = request_ns if rendezvous else None
    exits = simulate(plan, starts.tolist(), delay_ns, costs.endpoint_ns, costs.reduction_ns, request)
    return np.full(len(group), exits[0]) if alike else np.array(exits)


def _received_ns(entry: Round, costs: Costs) -> int:
    """What a rank spends on a message that is here."""
    return costs.endpoint_ns + (costs.reduction_ns(entry.reduce_bytes) if entry.reduce_bytes else 0)


def _sum(plan: Plan, delays: Delays, costs: Costs) -> int:
    """All ranks in lockstep: the endpoint once, then every round's message, endpoint and reduction."""
    rounds = (count * (delays[entry][0] + _received_ns(entry, costs)) for entry, count in plan.rounds)
    total: int = costs.endpoint_ns + sum(rounds)
    return total


def _rounds(plan: Plan, delays: Delays, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """One message in flight: a rank sends on when it has sent and received the round before (max-plus)."""
    ready = arrivals_ns + costs.endpoint_ns
    positions = np.arange(plan.size)
    for entry, count in plan.rounds:
        source = positions ^ entry.hop if plan.exchange else positions - entry.hop
        delay, cost = delays[entry], _received_ns(entry, costs)
        for _ in range(count):
            ready = np.maximum((ready + delay)[source], ready) + cost
    return ready
