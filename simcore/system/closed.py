"""What a phase takes that has its links for itself, on NPUs that are all alike, where it need not be played."""

from __future__ import annotations

from itertools import islice

import numpy as np

from simcore.network.batch import solve_batch
from simcore.network.congested import whole_steps
from simcore.network.folded import FoldedLinks
from simcore.network.topology.fabric import IntArray
from simcore.system.performance import PhaseTimes
from simcore.system.plan import Plan, Round
from simcore.system.plans import Costs
from simcore.units import transfer_ns

__all__ = ["solve_alike"]


def solve_alike(plan: Plan, members: IntArray, links: FoldedLinks, costs: Costs) -> PhaseTimes | None:
    """The phase as the first member plays it on representative links; None when its messages wait for each other.

    One message in flight at a time waits for nobody; messages that are all sent at once are served in a batch.
    """
    if costs.rendezvous or costs.bus:
        return None
    if plan.window == 1:
        return _one_by_one(plan, members, links, costs)
    halves = 2 if plan.half else 1
    free = not costs.endpoint_ns and not any(costs.reduction_ns(size) for size in _reduced(plan))
    if plan.window * halves < plan.num_rounds or (plan.half and not free):
        return None
    return _at_once(plan, members, links, costs, halves)


def _reduced(plan: Plan) -> set[int]:
    return {entry.reduce_bytes for entry, _ in plan.rounds}


def _one_by_one(plan: Plan, members: IntArray, links: FoldedLinks, costs: Costs) -> PhaseTimes | None:
    """Every round's message, endpoint and reduction, one after the other."""
    total_ns = costs.endpoint_ns
    size_bytes, busy_ns = np.zeros((2, len(links)), np.int64)
    for entry, count in plan.rounds:
        route = list(links.route(int(members[0]), int(members[plan.peer(0, entry.hop)])))
        if len(set(route)) < len(route):
            return None
        occupied_ns = [transfer_ns(entry.size_bytes, rate) for rate in links.bandwidth_bytes_per_s[route].tolist()]
        size_bytes[route] += count * entry.size_bytes
        busy_ns[route] += count * np.array(occupied_ns, np.int64)
        reduction_ns = costs.reduction_ns(entry.reduce_bytes) if entry.reduce_bytes else 0
        message_ns = _message_ns(occupied_ns, links.latency_ns[route].tolist())
        total_ns += count * (message_ns + costs.endpoint_ns + reduction_ns)
    return PhaseTimes([[total_ns] * plan.size], size_bytes, busy_ns)


def _message_ns(occupied_ns: list[int], latencies_ns: list[float]) -> int:
    """Of a message that cuts through idle links."""
    head = tail = 0
    for occupied, step in zip(occupied_ns, whole_steps(latencies_ns), strict=True):
        tail = max(tail, head + occupied) + step
        head += step
    return tail


def _at_once(plan: Plan, members: IntArray, links: FoldedLinks, costs: Costs, halves: int) -> PhaseTimes | None:
    """All messages at the beginning, or half of them, and the others when those have come."""
    rounds = list(islice(plan.expanded(), plan.num_rounds // halves))
    if halves == 2 and not _repeats(plan, rounds):
        return None
    reduced = {entry.reduce_bytes for entry in rounds}
    if len(reduced) != 1:
        return None
    hops = np.array([entry.hop for entry in rounds])
    peers = hops if plan.exchange else hops % plan.size
    src = np.full(len(hops), members[0])
    sizes = np.array([entry.size_bytes for entry in rounds])
    batch = solve_batch(links, src, members[peers], sizes, costs.endpoint_ns)
    if batch is None:
        return None
    reduce_bytes = reduced.pop()
    last_ns = int(batch.arrival_ns.max()) + costs.endpoint_ns
    last_ns += costs.reduction_ns(reduce_bytes) if reduce_bytes else 0
    return PhaseTimes([[halves * last_ns] * plan.size], halves * batch.size_bytes, halves * batch.busy_ns)


def _repeats(plan: Plan, rounds: list[Round]) -> bool:
    """Whether the second half sends what the first did."""
    second = islice(plan.expanded(), plan.half, None)
    return plan.half == len(rounds) and all(
        (a.hop, a.size_bytes) == (b.hop, b.size_bytes) for a, b in zip(rounds, second, strict=True)
    )
