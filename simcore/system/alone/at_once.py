"""Groups whose ranks send all messages of a phase at the beginning, or half of them and the others when those came.

They are worked out together, in columns; `automaton` says the same message by message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simcore.memory import check_room
from simcore.network.batch import Batch, play_windows, solve_batch
from simcore.network.core import NEVER
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.system.alone.solver import PhaseTimes, sends_at_once
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan

MESSAGE_BYTES = 256  # of one of many messages that are worked out together


def all_at_once(
    plans: Sequence[Plan], groups: Sequence[IntArray], links: LinkGraph, costs: Costs, players: int
) -> PhaseTimes | None:
    """What `CutThrough` would do with the plans of some NPUs; None where messages wait, or must be stepped.

    The first `players` of each play for all, on links that stand for those of all: they receive what these would send.
    """
    if costs.rendezvous or costs.bus or not all(sends_at_once(plan, costs) for plan in plans):
        return None
    count = players * sum(plan.num_rounds for plan in plans)
    check_room(count * MESSAGE_BYTES, f"the messages of a collective of {sum(map(len, groups)):,} NPUs")
    messages = _Messages(plans, groups, players, costs)
    batch = messages.batch(links)
    if batch is None or messages.hurries(batch.arrival_ns):
        return None
    exits = np.split(messages.exits_ns(batch.arrival_ns), len(plans))
    full = [np.resize(own, plan.size).tolist() for own, plan in zip(exits, plans, strict=True)]
    return PhaseTimes(full, batch.size_bytes, batch.busy_ns)


class _Messages:
    """Columns of messages, by round and then by source: of those that come at one time the first is served first."""

    def __init__(self, plans: Sequence[Plan], groups: Sequence[IntArray], players: int, costs: Costs):
        numbered = enumerate(zip(plans, groups, strict=True))
        own = [_columns(plan, members, players, number * players, costs) for number, (plan, members) in numbered]
        columns = np.concatenate(own, axis=1)
        columns = columns[:, np.lexsort((columns[1], columns[0]))]
        self._round, self._src, self._dst, self._size, self._pay, self._sender, self._receiver, others = columns
        self._first, self._costs = others == 0, costs
        self._to = _of_ranks(self._receiver, self._first, players * len(plans))
        self._by = _of_ranks(self._sender, ~self._first, players * len(plans))
        self._begin()

    def _begin(self) -> None:
        """Nothing is there, and the other half is not sent."""
        self._start_ns = np.where(self._first, self._costs.endpoint_ns, NEVER)
        self._came_ns = np.zeros_like(self._start_ns)
        self._missing = np.array([len(each) for each in self._to])

    def batch(self, links: LinkGraph) -> Batch | None:
        """What becomes of all of them, half by half where the first is over when the other begins."""
        routes, first = links.routes(self._src, self._dst), np.flatnonzero(self._first)
        whole = len(first) == len(self._first)

        def solved(own: IntArray) -> Batch | None:
            ways = routes if whole else links.routes(self._src[own], self._dst[own])
            return solve_batch(links, ways, self._size[own], self._start_ns[own], rounds=self._round[own])

        found = solved(first)
        if found and not whole:
            sent, start_ns = self._arrived(first, found.arrival_ns)
            if start_ns.min() >= found.arrival_ns.max():
                other = solved(sent)
                return other and found.then(other, first, sent)
            self._begin()
            found = None
        return found or play_windows(links, routes, self._src, self._size, self._start_ns, self._round, self._arrived)

    def _arrived(self, messages: IntArray, times_ns: IntArray) -> tuple[IntArray, IntArray]:
        """As `batch.Arrived`: a rank sends the other half as it is done with the first, once all of that is there."""
        self._came_ns[messages] = times_ns
        ranks = self._receiver[messages[self._first[messages]]]
        np.subtract.at(self._missing, ranks, 1)
        over = np.flatnonzero(np.bincount(ranks, self._missing[ranks] == 0)).tolist()
        for rank in over:
            own = self._to[rank]
            came_ns, done_ns = self._came_ns[own], np.sort(self._came_ns[own] + self._pay[own])
            begin_ns = done_ns[min(np.searchsorted(done_ns, came_ns.max(), "right"), len(done_ns) - 1)]
            self._start_ns[self._by[rank]] = np.maximum(done_ns, begin_ns)[: len(self._by[rank])]
        sent = np.concatenate([self._src[:0], *(self._by[rank] for rank in over)])
        return sent, self._start_ns[sent]

    def hurries(self, arrival_ns: IntArray) -> bool:
        """Whether a packet of the other half is done at a rank that still waits for one of the first to send more.

        What comes before a rank sends its own of that round waits for it.
        """
        other = ~self._first
        if not other.any():
            return False
        start_ns = np.zeros((self._round.max() + 1, len(self._to)), np.int64)
        start_ns[self._round, self._sender] = self._start_ns
        paid_ns = np.maximum(arrival_ns, start_ns[self._round, self._receiver]) + self._pay
        return bool((paid_ns < start_ns.max(axis=0)[self._receiver])[other].any())

    def exits_ns(self, arrival_ns: IntArray) -> IntArray:
        """When each rank is done with all that it sent and received."""
        exits = np.zeros(len(self._to), np.int64)
        np.maximum.at(exits, self._receiver, arrival_ns + self._pay)
        np.maximum.at(exits, self._sender, self._start_ns + self._pay)
        return exits


def _columns(plan: Plan, members: IntArray, ranks: int, before: int, costs: Costs) -> IntArray:
    """Rows: rounds, sources, destinations, sizes, what a receive costs, senders, receivers, halves; of all messages."""
    entries = plan.expanded
    peers = plan.peers(np.array([[entry.hop] for entry in entries]), ranks).reshape(-1)
    everyone = np.tile(np.arange(ranks), len(entries))
    said = [(each.size_bytes, costs.received_ns(each.reduce_bytes)) for each in entries]
    size, pay = np.repeat(np.array(said, np.int64), ranks, axis=0).T
    number = np.arange(len(entries)).repeat(ranks)
    half = number >= (plan.half or len(entries))
    columns = number, members[everyone], members[peers], size, pay, before + everyone, before + peers % ranks, half
    return np.stack(columns).astype(np.int64)


def _of_ranks(ranks: IntArray, wanted: NDArray[np.bool_], count: int) -> list[IntArray]:
    """The wanted messages of each rank, in order."""
    found = np.flatnonzero(wanted)
    own = ranks[found]
    return np.split(found[np.argsort(own, kind="stable")], np.cumsum(np.bincount(own, minlength=count))[:-1])
