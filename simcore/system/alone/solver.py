"""When every rank leaves a phase that has its links for itself: worked out where it need not be played.

A chain of ways, the cheapest that holds: ranks that are all alike and wait for one message at a time (a sum), one
message of every rank in flight (max-plus rounds), transfers in their order, message by message. `solve_alone` answers
for links that nobody else wants; `at_once` has another way, and `network.core` plays the rest. `solve` answers always,
for networks without contention. All of it equals the messages to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.network.clock import cross, idle_ns, occupied_ns, steps
from simcore.network.instant import NORMAL, Environment, Timers, after
from simcore.network.topology.fabric import IntArray, Routes
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.moves import Turns
from simcore.system.groups import RankGroup
from simcore.system.plans.automaton import RoundAutomaton, at_endpoint
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan, Round, Switch
from simcore.timeline.events import QueueTable
from simcore.timeline.link_use import LinkRows
from simcore.units import transfer_ns


class PhaseTimes(Struct, frozen=True, eq=False):
    """A phase of some groups, alone on their links: when each rank of each group left, counted from the beginning.

    What every link of the place carried and for how long; and when, where that is kept; what queues did, if any. These
    two are counted from `zero_ns` before the beginning.
    """

    exits_ns: Sequence[Sequence[int]]
    size_bytes: IntArray
    busy_ns: IntArray
    occupied: LinkRows | None = None
    queues: QueueTable | None = None
    zero_ns: int = 0

    @property
    def end_ns(self) -> int:
        """When the last one left."""
        return max(max(exits) for exits in self.exits_ns)


def solve_alone(plan: Plan, members: IntArray, links: LinkGraph, costs: Costs, players: int) -> PhaseTimes | None:
    """What `CutThrough` would do with the messages of a plan among some NPUs; None where that must be stepped.

    The first `players` play for all, on links that stand for those of all.
    """
    if costs.rendezvous or costs.bus or plan.window > 1 or 1 < players < plan.size:
        return None
    if players < plan.size:
        return _one_by_one(plan, members, links, costs)
    crossings = _Crossings(plan, members, links)
    exits = rounds(plan, np.zeros(plan.size, np.int64), costs, crossings.of)
    return None if exits is None else PhaseTimes([exits.tolist()], crossings.size_bytes, crossings.busy_ns)


def in_step(plan: Plan, message_ns: Mapping[Round, int], costs: Costs) -> int:
    """All ranks alike: the endpoint once, then every round's message, endpoint and reduction."""
    spent = (count * (message_ns[entry] + costs.received_ns(entry.reduce_bytes)) for entry, count in plan.rounds)
    total: int = costs.endpoint_ns + sum(spent)
    return total


def _one_by_one(plan: Plan, members: IntArray, links: LinkGraph, costs: Costs) -> PhaseTimes | None:
    """One message in flight waits for nobody, unless it takes a link twice that stands for several."""
    entries, counts = [entry for entry, _ in plan.rounds], np.array([count for _, count in plan.rounds])
    sizes = np.array([entry.size_bytes for entry in entries])
    peers = np.array([plan.peer(0, entry.hop) for entry in entries])
    routes = links.routes(np.full(len(peers), members[0]), members[peers])
    owner = np.repeat(np.arange(len(entries)), routes.counts)
    if _twice(owner * len(links) + routes.links):
        return None
    size_bytes, busy_ns = np.zeros((2, len(links)), np.int64)
    np.add.at(size_bytes, routes.links, (counts * sizes)[owner])
    spent_ns = occupied_ns(sizes[owner], links.bandwidth_bytes_per_s[routes.links])
    np.add.at(busy_ns, routes.links, counts[owner] * spent_ns)
    times = dict(zip(entries, idle_ns(links, routes, sizes).tolist(), strict=True))
    return PhaseTimes([[in_step(plan, times, costs)] * plan.size], size_bytes, busy_ns)


def _twice(numbers: IntArray) -> bool:
    """Whether some number is there twice; `np.unique` would load a tenth of a second of masked arrays."""
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())


class Idle:
    """What the messages of a round take that meet nobody, not even those of the rounds before."""

    def __init__(self, delay_ns: NDArray[np.int64]):
        self._delay_ns = delay_ns

    def send(self, ready_ns: IntArray) -> IntArray:
        """When the last bytes arrive of what is sent at `ready_ns`."""
        return ready_ns + self._delay_ns

    def skip(self, by_ns: int, count: int) -> bool:
        """Pass over so many rounds, if the last left everything as it found it but for so much time; whether it did."""
        return True


class _Hop(Struct, frozen=True, eq=False):
    """The links that some senders' messages take next, with their latency; a round uses a link once."""

    sender: IntArray
    link: IntArray
    step_ns: IntArray
    occupied_ns: IntArray


class _Crossings:
    """Links between rounds: when they are free, who came last and when, what they carried."""

    def __init__(self, plan: Plan, members: IntArray, links: LinkGraph):
        self._plan, self._members, self._links = plan, members, links
        self.free_ns, self.size_bytes, self.busy_ns = np.zeros((3, len(links)), np.int64)
        self.came_ns, self.user = np.full((2, len(links)), -1, np.int64)

    def of(self, entry: Round, count: int) -> _Crossing | None:
        """The messages of a round that is sent so often; None when two of them take one link."""
        routes = self._links.routes(self._members, self._members[self._plan.peers(entry.hop)])
        if _twice(routes.links):
            return None
        spent_ns = occupied_ns(entry.size_bytes, self._links.bandwidth_bytes_per_s[routes.links])
        self.size_bytes[routes.links] += count * entry.size_bytes
        self.busy_ns[routes.links] += count * spent_ns
        step_ns = steps(self._links.latency_ns, routes)
        return _Crossing(self, list(_hops(routes, step_ns, spent_ns)), routes.links)


class _Crossing:
    """The messages of a round on the links that they take, as `Idle`."""

    def __init__(self, links: _Crossings, hops: Sequence[_Hop], used: IntArray):
        self._links, self._hops, self._used = links, hops, used
        self._before_ns = links.free_ns[used]

    def send(self, ready_ns: IntArray) -> IntArray | None:
        """As `Idle.send`; None when a message would overtake one of an earlier round.

        Of different senders' messages that come at one time the later round's might be served first.
        """
        links, head_ns, tail_ns = self._links, ready_ns.copy(), ready_ns.copy()
        self._before_ns = links.free_ns[self._used]
        for hop in self._hops:
            link, sender, came_ns = hop.link, hop.sender, head_ns[hop.sender]
            before_ns = links.came_ns[link]
            if ((came_ns < before_ns) | ((came_ns == before_ns) & (links.user[link] != sender))).any():
                return None
            links.came_ns[link], links.user[link] = came_ns, sender
            head_ns[sender], tail_ns[sender], links.free_ns[link] = cross(
                came_ns, tail_ns[sender], links.free_ns[link], hop.occupied_ns, hop.step_ns
            )
        return tail_ns

    def skip(self, by_ns: int, count: int) -> bool:
        """As `Idle.skip`."""
        links, used = self._links, self._used
        moved_on = bool((links.free_ns[used] == self._before_ns + by_ns).all())
        if moved_on:
            links.free_ns[used] += count * by_ns
            links.came_ns[used] += count * by_ns
        return moved_on


def rounds(
    plan: Plan, arrivals_ns: IntArray, costs: Costs, crossing: Callable[[Round, int], Idle | _Crossing | None]
) -> IntArray | None:
    """One message of every rank in flight (max-plus): a rank sends on when it has sent and received the round before.

    When a round has moved everything on by the same time, so will all like it. Exact while messages come to every link
    in the order of their rounds, which is checked on the way.
    """
    ready_ns = arrivals_ns + costs.endpoint_ns
    for entry, count in plan.rounds:
        way, source = crossing(entry, count), np.argsort(plan.peers(entry.hop))
        cost_ns, left = costs.received_ns(entry.reduce_bytes), count
        while left:
            tail_ns = None if way is None else way.send(ready_ns)
            if way is None or tail_ns is None:
                return None
            before_ns, ready_ns = ready_ns, np.maximum(tail_ns[source], ready_ns) + cost_ns
            left -= 1
            by_ns = ready_ns[0] - before_ns[0]
            if left and ready_ns.dtype == np.int64 and (ready_ns - before_ns == by_ns).all() and way.skip(by_ns, left):
                ready_ns, left = ready_ns + left * by_ns, 0
    return ready_ns


def _hops(routes: Routes, step_ns: IntArray, spent_ns: IntArray) -> Iterator[_Hop]:
    """First links, second links, .. of the messages of a round."""
    for hop in range(int(routes.counts.max(initial=0))):
        sender = np.flatnonzero(routes.counts > hop)
        at = routes.offsets[sender] + hop
        yield _Hop(sender, routes.links[at], step_ns[at], spent_ns[at])


def solve(
    plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs, turn: int = NORMAL
) -> NDArray[np.int64]:
    """Exit times of a group's members without contention, given when each arrives.

    Where that counts, messages are received at their `turn` of an instant, in which ranks act by themselves at NORMAL.
    """
    if not plan.rounds:
        return transfers(plan, group, arrivals_ns, costs)
    if plan.switch:
        return _through_switch(plan.bytes_of(0), plan.switch, group, arrivals_ns, costs.endpoint_ns)
    exits = np.array([_of_rounds(part, group, arrivals_ns, costs, turn) for _, part in plan.parts])
    latest: NDArray[np.int64] = exits.max(axis=0)
    return latest


def _through_switch(
    size_bytes: int, switch: Switch, group: RankGroup, arrivals: NDArray[np.int64], endpoint_ns: int
) -> NDArray[np.int64]:
    """From the last arrival up and down again, at the slowest of the links and the switch."""
    on_links, empty = (np.roll(group.delays(1, Turns(len(group)), sent_bytes), 1) for sent_bytes in (size_bytes, 0))
    reduction_ns = transfer_ns(size_bytes, switch.bytes_per_s) if switch.bytes_per_s else 0
    spent = np.maximum(on_links, empty + reduction_ns) + switch.latency_ns + 2 * endpoint_ns
    exits: NDArray[np.int64] = arrivals.max() + spent
    return exits


def _of_rounds(
    plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs, turn: int
) -> NDArray[np.int64]:
    """Of rounds that every rank does alike.

    Fractions of a nanosecond (ASTRA-sim 1.0's memory) are added one message after the other, as that does: a sum of
    floats depends on the order.
    """
    delays = {entry: group.delays(entry.hop, plan.moves, entry.size_bytes) for entry, _ in plan.rounds}
    columns = (arrivals_ns, *delays.values())
    alike = all((column == column[0]).all() for column in columns)
    if plan.window == 1 and alike and all(column.dtype == np.int64 for column in columns[1:]):
        return arrivals_ns + in_step(plan, {entry: delay[0] for entry, delay in delays.items()}, costs)
    if plan.window == 1:
        found = rounds(plan, arrivals_ns, costs, lambda entry, _: Idle(delays[entry]))
        return arrivals_ns if found is None else found
    count = 1 if alike else len(group)
    times_ns, starts_ns = np.stack([delays[entry][:count] for entry in plan.expanded]), arrivals_ns[:count]
    exits = _at_once(plan, starts_ns, times_ns, costs) if sends_at_once(plan, costs) else None
    if exits is None:
        listed: list[list[int]] = times_ns.tolist()
        exits = stepped(plan, starts_ns, lambda rank, number: listed[number][rank], costs, turn)
    return np.repeat(exits, len(group) // count)


def _at_once(plan: Plan, arrivals_ns: IntArray, times_ns: IntArray, costs: Costs) -> IntArray | None:
    """As `stepped`, of a plan that `sends_at_once`; None where the order of events counts, or fractions are added."""
    hops = np.array([[entry.hop] for entry in plan.expanded])
    peers = plan.peers(hops) if len(arrivals_ns) > 1 else np.zeros_like(hops)
    half = plan.half or len(hops)

    def came_ns(sent_ns: IntArray, own: slice) -> IntArray:
        """When ranks receive what each sends; what comes before a rank sends its own of that round waits for it."""
        found = np.empty_like(sent_ns)
        np.put_along_axis(found, peers[own], sent_ns + times_ns[own], axis=1)
        return np.maximum(found, sent_ns)

    first, other = (costs.received_ns(plan.expanded[at].reduce_bytes) for at in (0, -1))
    sent_ns = np.tile(arrivals_ns + costs.endpoint_ns, (half, 1))
    if (sent_ns + times_ns[:half]).dtype != np.int64:
        return None
    there_ns = came_ns(sent_ns, slice(half))
    done_ns, last_ns = np.sort(there_ns + first, axis=0), there_ns.max(axis=0)
    if not plan.half:
        exits: IntArray = done_ns[-1]
        return exits
    # The other half begins with the first packet that is done when all are there, and goes on with each that follows.
    begin_ns = np.where(done_ns > last_ns, done_ns, done_ns[-1]).min(axis=0)
    paid_ns: IntArray = came_ns(np.maximum(done_ns, begin_ns), slice(half, None)) + other
    ordered = not first or ((done_ns != last_ns).all() and (paid_ns.min(axis=0) >= done_ns[-1]).all())
    return paid_ns.max(axis=0) if ordered else None


def sends_at_once(plan: Plan, costs: Costs) -> bool:
    """Whether ranks wait for nothing but the end of the first half, and are done with all of a half in equal time."""
    first = plan.half or plan.num_rounds
    if plan.window < first or (plan.half and not plan.window == first == plan.num_rounds - first):
        return False
    pays_ns = [costs.received_ns(each.reduce_bytes) for each in plan.expanded]
    return len(set(pays_ns[:first])) == 1 and len(set(pays_ns[first:])) <= 1


def stepped(
    plan: Plan, arrivals_ns: IntArray, message_ns: Callable[[int, int], int], costs: Costs, turn: int = NORMAL
) -> IntArray:
    """When each rank leaves the phase, message by message on a network without contention.

    `message_ns(rank, number)` is the time of a message that a rank sends. With a single arrival time all ranks are
    alike: one of them is played, receiving what it sends.
    """
    env, exits = Environment(), arrivals_ns.tolist()

    def automaton(rank: int) -> RoundAutomaton:
        def send(number: int, peer: int, size_bytes: int) -> None:
            receiver = automata[peer if len(exits) > 1 else 0]
            after(env, message_ns(rank, number), partial(receiver.arrive, number), turn)

        def done() -> None:
            exits[rank] = env.now

        pay = at_endpoint(Timers(env).after, costs.endpoint_ns, costs.reduction_ns)
        return RoundAutomaton(plan, rank, pay, partial(after, env), send, done)

    automata = [automaton(rank) for rank in range(len(exits))]
    for arrival_ns, own in zip(arrivals_ns.tolist(), automata, strict=True):
        after(env, arrival_ns, own.start)
    env.run()
    return np.array(exits)


def transfers(plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """When each rank leaves, without contention.

    As `TransferAutomaton`, but of messages between the same two ranks the next begins when the bytes of the one before
    are gone, as on a link of their own: first come, first served.
    """
    delays_ns, occupied_ns = _times(plan, group)
    arrived_ns: list[int] = arrivals_ns.tolist()
    leave, waits = list(arrived_ns), list(plan.waits)
    ready_ns = [arrived_ns[entry.src] + costs.endpoint_ns for entry in plan.transfers]
    free_ns: dict[tuple[int, int], int] = {}
    turns = [(ready_ns[index], index) for index, count in enumerate(waits) if not count]
    heapify(turns)
    while turns:
        sent_ns, index = heappop(turns)
        entry = plan.transfers[index]
        pair = (entry.src, entry.dst)
        start_ns = max(sent_ns, free_ns.get(pair, sent_ns))
        free_ns[pair] = start_ns + occupied_ns[index]
        here_ns = max(start_ns + delays_ns[index], arrived_ns[entry.dst])
        received_ns = here_ns + costs.received_ns(entry.charge_bytes)
        leave[entry.src] = max(leave[entry.src], sent_ns)
        leave[entry.dst] = max(leave[entry.dst], received_ns)
        followers = [(then, received_ns) for then in plan.before[index]]
        followers += [(plan.behind[index], sent_ns)] if index in plan.behind else []
        for then, time_ns in followers:
            ready_ns[then] = max(ready_ns[then], time_ns)
            waits[then] -= 1
            if not waits[then]:
                heappush(turns, (ready_ns[then], then))
    return np.array(leave)


def _times(plan: Plan, group: RankGroup) -> list[list[int]]:
    """Of every transfer: its time, and the part of it that its bytes take."""
    entries = [(entry.src, entry.dst, entry.size_bytes) for entry in plan.transfers]
    src, dst, size_bytes = np.array(entries, np.int64).reshape(-1, 3).T
    delays_ns = empty_ns = group.between(src, dst, 0) if entries else src
    for size in set(size_bytes.tolist()):
        same = size_bytes == size
        delays_ns = np.where(same, group.between(src, dst, size), delays_ns)
    return [delays_ns.tolist(), (delays_ns - empty_ns).tolist()]
