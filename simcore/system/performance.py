"""A phase that has its links for itself, solved for all its ranks at once: round by round, or all messages together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simcore.network.batch import solve_batch
from simcore.network.congested import whole_steps
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.system.plan import Plan
from simcore.system.plans import Costs
from simcore.timeline.link_use import OccupiedLinks

__all__ = ["PhaseTimes", "peers_of", "solve_alone"]


@dataclass(frozen=True, slots=True, eq=False)
class PhaseTimes:
    """A phase of some groups, alone on their links: when each rank of each group left, counted from the beginning.

    What every link of the place carried and for how long; and when, where that is kept.
    """

    exits_ns: Sequence[Sequence[int]]
    size_bytes: IntArray
    busy_ns: IntArray
    occupied: OccupiedLinks | None = None

    @property
    def end_ns(self) -> int:
        """When the last one left."""
        return max(max(exits) for exits in self.exits_ns)


def solve_alone(plan: Plan, members: IntArray, links: LinkGraph, costs: Costs) -> PhaseTimes | None:
    """What `CutThrough` would do with the messages of a plan among some NPUs; None where that must be stepped."""
    if costs.rendezvous:
        return None
    return _rounds(plan, members, links, costs) if plan.window == 1 else _at_once(plan, members, links, costs)


def peers_of(plan: Plan, hop: int) -> IntArray:
    """To whom every rank sends."""
    ranks = np.arange(plan.size)
    return ranks ^ hop if plan.exchange else (ranks + hop) % plan.size


def _at_once(plan: Plan, members: IntArray, links: LinkGraph, costs: Costs) -> PhaseTimes | None:
    """A plan that sends everything at its beginning."""
    rounds = list(plan.expanded())
    reduced = {entry.reduce_bytes for entry in rounds}
    if plan.half or plan.window < len(rounds) or len(reduced) != 1:
        return None
    peers = np.concatenate([peers_of(plan, entry.hop) for entry in rounds])
    size_bytes = np.repeat([entry.size_bytes for entry in rounds], plan.size)
    numbers = np.repeat(np.arange(len(rounds)), plan.size)
    src = np.tile(members, len(rounds))
    batch = solve_batch(links, src, members[peers], size_bytes, costs.endpoint_ns, rounds=numbers)
    if batch is None:
        return None
    exits = np.zeros(plan.size, np.int64)
    np.maximum.at(exits, peers, batch.arrival_ns)
    exits += costs.endpoint_ns + _reduction(costs, reduced.pop())
    return PhaseTimes([exits.tolist()], batch.size_bytes, batch.busy_ns)


def _reduction(costs: Costs, size_bytes: int) -> int:
    return costs.reduction_ns(size_bytes) if size_bytes else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """The links that some senders' messages take next, with their latency; a round uses a link once."""

    sender: IntArray
    link: IntArray
    step_ns: IntArray
    occupied_ns: IntArray


class _Links:
    """State of the links between rounds: when they are free, who came last and when."""

    def __init__(self, count: int):
        self.free_ns, self.size_bytes, self.busy_ns = np.zeros((3, count), np.int64)
        self._came_ns, self._user = np.full((2, count), -1, np.int64)

    def pass_on(self, hop: _Hop, head_ns: IntArray, tail_ns: IntArray) -> bool:
        """Move heads and tails over a link; False when a message would overtake one of an earlier round.

        Of different senders' messages that come at one time the later round's might be served first.
        """
        link, came_ns = hop.link, head_ns[hop.sender]
        before_ns = self._came_ns[link]
        if ((came_ns < before_ns) | ((came_ns == before_ns) & (self._user[link] != hop.sender))).any():
            return False
        self._came_ns[link], self._user[link] = came_ns, hop.sender
        start_ns = np.maximum(came_ns, self.free_ns[link])
        end_ns = self.free_ns[link] = start_ns + hop.occupied_ns
        head_ns[hop.sender] = start_ns + hop.step_ns
        tail_ns[hop.sender] = np.maximum(tail_ns[hop.sender], end_ns) + hop.step_ns
        return True


def _rounds(plan: Plan, members: IntArray, links: LinkGraph, costs: Costs) -> PhaseTimes | None:
    """One message of every rank in flight (max-plus): a rank sends on when it has sent and received the round before.

    Exact while messages come to every link in the order of their rounds, which is checked on the way.
    """
    state = _Links(len(links))
    ready_ns = np.full(plan.size, costs.endpoint_ns)
    for entry, count in plan.rounds:
        peers = peers_of(plan, entry.hop)
        hops = list(_hops(links, members, members[peers], entry.size_bytes))
        used = np.concatenate([hop.link for hop in hops]) if hops else np.zeros(0, np.int64)
        if len(np.unique(used)) < len(used):
            return None
        source, cost_ns = np.argsort(peers), costs.endpoint_ns + _reduction(costs, entry.reduce_bytes)
        for _ in range(count):
            head_ns, tail_ns = ready_ns.copy(), ready_ns.copy()
            if not all(state.pass_on(hop, head_ns, tail_ns) for hop in hops):
                return None
            ready_ns = np.maximum(tail_ns[source], ready_ns) + cost_ns
        for hop in hops:
            state.size_bytes[hop.link] += count * entry.size_bytes
            state.busy_ns[hop.link] += count * hop.occupied_ns
    return PhaseTimes([ready_ns.tolist()], state.size_bytes, state.busy_ns)


def _hops(links: LinkGraph, src: IntArray, dst: IntArray, size_bytes: int) -> Iterator[_Hop]:
    """First links, second links, .. of the messages of a round; rounded as `congested` does."""
    routes = links.routes(src, dst)
    offsets, rates, latency_ns = routes.offsets[:-1], links.bandwidth_bytes_per_s, links.latency_ns
    steps = _steps(latency_ns[routes.links], routes.counts)
    for hop in range(int(routes.counts.max(initial=0))):
        sender = np.flatnonzero(routes.counts > hop)
        at = offsets[sender] + hop
        occupied_ns = np.ceil(np.round(size_bytes / rates[routes.links[at]] * 1e9, 3)).astype(np.int64)
        yield _Hop(sender, routes.links[at], steps[at], occupied_ns)


def _steps(latency_ns: np.ndarray, counts: IntArray) -> IntArray:
    """Whole latencies of all hops, route by route."""
    parts = np.split(latency_ns, np.cumsum(counts)[:-1])
    return np.array([step for part in parts for step in whole_steps(part.tolist())], np.int64)
