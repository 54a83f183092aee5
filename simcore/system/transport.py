"""Who says when an NPU leaves a phase, and the one that solves phases at their last arrival.

Nothing leaves a collective before everybody is in it: without contention nothing has to be stepped.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import count

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.network.instant import Timers, TimersOfNpus, after
from simcore.system.groups import Delay, GroupDim, RankGroup
from simcore.system.plans.automaton import RoundAutomaton, at_endpoint
from simcore.system.plans.maker import Costs, Plans, uneven
from simcore.system.plans.plan import Plan, Round, Switch
from simcore.system.solver import Idle, in_step, rounds
from simcore.system.streams import Stream, StreamPhase
from simcore.timeline.events import CircuitRun, LinkTable
from simcore.units import transfer_ns

Done = Callable[[Stream], None]


_Meeting = dict[int, tuple[float, Stream, Done]]
"""Who has entered a phase: class -> (arrival time, chunk, callback).

Times are whole but for ASTRA-sim 1.0's memory floor, which is a fraction that carries on.
"""


class Transport(ABC):
    """What says when NPUs leave phases; `ranks[c]` are the NPUs of class c, `timers` those of the NPUs."""

    def __init__(self, env: simpy.Environment, ranks: Sequence[Sequence[int]], costs: Costs):
        self._env, self._ranks, self._costs = env, ranks, costs
        self.plans, self.timers = Plans(costs), TimersOfNpus(partial(Timers, env))

    @abstractmethod
    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase on some classes, which leave it when `done` is called."""

    @abstractmethod
    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; of those of one time, that of the least `key` goes first."""

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends in a phase."""
        return self.plans.bytes_of(phase, int(self._ranks[npu_class][0]))

    def links(self) -> LinkTable | None:
        """What every link carried, where links are modelled."""
        return None

    def notes(self) -> list[str]:
        """What is to be said of how times were found."""
        return []

    def stuck(self) -> list[str]:
        """What of the network waits for each other, when nothing moves any more."""
        return []

    @property
    def parts(self) -> Sequence[Transport]:
        """The transports that do the work."""
        return [self]

    def told(self) -> CircuitRun | None:
        """Which circuits were in place when, where some are switched."""
        return None


class Solved(Transport):
    """Transport on a network without contention (or whose links a phase has for itself).

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0).
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        delay: Delay,
        costs: Costs,
        *,
        barrier: bool = False,
    ):
        super().__init__(env, ranks, costs)
        self._delay, self._barrier = delay, barrier
        self._class_of = class_of(ranks)
        self._meetings: dict[tuple[object, ...], _Meeting] = {}
        self._groups: dict[tuple[GroupDim, int], _Group] = {}

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Note arrivals; the last one settles the phase for all."""
        for npu_class, stream in streams.items():
            group = self._group(stream.phase.lane.dim, self._ranks[npu_class][0])
            key = (stream.key, stream.at, 0 if self._barrier else group.name)
            meeting = self._meetings.setdefault(key, {})
            meeting[npu_class] = (self._env.now, stream, done)
            if len(meeting) == (len(self._ranks) if self._barrier else group.parties):
                del self._meetings[key]
                self._settle(meeting, stream.phase)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message, which meets nobody."""
        time_ns = int(self._delay(np.array([src]), np.array([dst]), size_bytes)[0])
        after(self._env, time_ns, lambda _: deliver())

    def _settle(self, meeting: _Meeting, phase: StreamPhase) -> None:
        """Work out when each class leaves, and call it back then."""
        leave: dict[int, float] = {}
        for npu_class in meeting:
            if npu_class not in leave:
                leave |= self._exits(self._group(phase.lane.dim, self._ranks[npu_class][0]), meeting, phase)
        if self._barrier:
            leave = dict.fromkeys(leave, max(leave.values()))
        for npu_class, (_, stream, done) in meeting.items():
            timer = self._env.timeout(leave[npu_class] - self._env.now)
            timer.callbacks.append(partial(_leave, done, stream))

    def _exits(self, group: _Group, meeting: _Meeting, phase: StreamPhase) -> dict[int, float]:
        """When each class of a group leaves."""
        arrivals = np.array([meeting[npu_class][0] for npu_class in group.classes])
        if (arrivals == arrivals[0]).all():
            if phase not in group.lockstep:
                group.lockstep[phase] = self._solve(group, np.zeros(len(group), np.int64), phase)
            lockstep = group.lockstep[phase]
            # Fractions are added up from the beginning: a sum of floats depends on the order.
            exits = arrivals + lockstep if lockstep.dtype == np.int64 else self._solve(group, arrivals, phase)
        else:
            exits = self._solve(group, arrivals, phase)
        leave: dict[int, float] = {}
        for npu_class, exit_ns in zip(group.classes, exits.tolist(), strict=True):
            if leave.setdefault(npu_class, exit_ns) != exit_ns:
                if not self._barrier:
                    raise uneven(phase)
                leave[npu_class] = max(leave[npu_class], exit_ns)
        return leave

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        plan = self.plans.of(phase, group.ids[0])
        return solve(plan, group, arrivals, self._costs.of(phase.lane.dim))

    def _group(self, dim: GroupDim, npu: int) -> _Group:
        members = dim.members(npu)
        key = (dim, int(members[0]))
        if key not in self._groups:
            classes = self._class_of[members]
            # Whichever way members go round, which two need not agree on, a group has one name. In a folded run groups
            # of equal classes are one: a class stands for members of all of them.
            unfolded = len(self._ranks) == len(self._class_of)
            name = int(members.min()) if unfolded else tuple(np.sort(classes).tolist())
            self._groups[key] = _Group(members, self._delay, classes.tolist(), name)
        return self._groups[key]


class _Group(RankGroup):
    """A group with the classes of its members, and the times of phases that they enter together."""

    def __init__(self, members: NDArray[np.int64], delay: Delay, classes: Sequence[int], name: Hashable):
        super().__init__(members, delay)
        self.classes, self.name, self.parties = classes, name, len(set(classes))
        self.lockstep: dict[StreamPhase, NDArray[np.int64]] = {}


def _leave(done: Done, stream: Stream, _: simpy.Event) -> None:
    done(stream)


def class_of(ranks: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The class of every NPU."""
    found = np.empty(sum(map(len, ranks)), dtype=np.int64)
    for npu_class, members in enumerate(ranks):
        own = slice(members.start, members.stop, members.step) if isinstance(members, range) else np.asarray(members)
        found[own] = npu_class
    return found


def solve(plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """Exit times of a group's members without contention, given when each arrives."""
    if not plan.rounds:
        return exits_of(plan, group, arrivals_ns, costs)
    if plan.switch:
        return _through_switch(plan.bytes_of(0), plan.switch, group, arrivals_ns, costs.endpoint_ns)
    exits: NDArray[np.int64] = np.max([_alone(part, group, arrivals_ns, costs) for _, part in plan.parts], axis=0)
    return exits


def _through_switch(
    size_bytes: int, switch: Switch, group: RankGroup, arrivals: NDArray[np.int64], endpoint_ns: int
) -> NDArray[np.int64]:
    """From the last arrival up and down again, at the slowest of the links and the switch."""
    on_links, empty = (np.roll(group.delays(1, False, sent_bytes), 1) for sent_bytes in (size_bytes, 0))
    reduction_ns = transfer_ns(size_bytes, switch.bytes_per_s) if switch.bytes_per_s else 0
    spent = np.maximum(on_links, empty + reduction_ns) + switch.latency_ns + 2 * endpoint_ns
    exits: NDArray[np.int64] = arrivals.max() + spent
    return exits


def _alone(plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """Of rounds that every rank does alike.

    Fractions of a nanosecond (ASTRA-sim 1.0's memory) are added one message after the other, as that does: a sum of
    floats depends on the order.
    """
    delays = {entry: group.delays(entry.hop, plan.exchange, entry.size_bytes) for entry, _ in plan.rounds}
    columns = (arrivals_ns, *delays.values())
    alike = all((column == column[0]).all() for column in columns)
    if plan.window == 1 and alike and all(column.dtype == np.int64 for column in columns[1:]):
        return arrivals_ns + in_step(plan, {entry: delay[0] for entry, delay in delays.items()}, costs)
    if plan.window == 1:
        found = rounds(plan, arrivals_ns, costs, lambda entry, _: Idle(delays[entry]))
        return arrivals_ns if found is None else found
    by_message = {(entry.hop, entry.size_bytes): column for entry, column in delays.items()}

    def delay_ns(rank: int, hop: int, size_bytes: int) -> int:
        return by_message[hop, size_bytes][rank].item()  # type: ignore[no-any-return]

    starts = arrivals_ns[:1] if alike else arrivals_ns
    exits = stepped(plan, starts.tolist(), delay_ns, costs.endpoint_ns, costs.reduction_ns)
    return np.full(len(group), exits[0]) if alike else np.array(exits)


def stepped(
    plan: Plan,
    arrivals_ns: Sequence[int],
    delay_ns: Callable[[int, int, int], int],
    endpoint_ns: int,
    reduction_ns: Callable[[int], int],
) -> list[int]:
    """When each rank leaves the phase, message by message on a network without contention.

    `delay_ns(rank, hop, size_bytes)` is the time of a message that `rank` sends `hop` positions on. With a single
    arrival time all ranks are alike: one of them is played, receiving what it sends.
    """
    queue: list[tuple[int, int, Callable[[], None]]] = []
    order = count()
    exits = [0] * len(arrivals_ns)
    now = 0
    alike = len(arrivals_ns) == 1

    def at(time_ns: int, callback: Callable[[], None]) -> None:
        heapq.heappush(queue, (time_ns, next(order), callback))

    def after(delay_ns: int, callback: Callable[[], None]) -> None:
        at(now + delay_ns, callback)

    def automaton(rank: int) -> RoundAutomaton:
        def send(index: int, entry: Round) -> None:
            peer = automata[0 if alike else plan.peer(rank, entry.hop)]
            at(now + delay_ns(rank, entry.hop, entry.size_bytes), lambda: peer.arrive(index))

        def done() -> None:
            exits[rank] = now

        return RoundAutomaton(plan, at_endpoint(after, endpoint_ns, reduction_ns), after, send, done)

    automata = [automaton(rank) for rank in range(len(arrivals_ns))]
    for rank, arrival_ns in enumerate(arrivals_ns):
        at(arrival_ns, automata[rank].start)
    while queue:
        now, _, callback = heapq.heappop(queue)
        callback()
    return exits


def exits_of(plan: Plan, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """When each rank leaves, without contention.

    As `TransferAutomaton`, but of messages between the same two ranks the next begins when the bytes of the one before
    are gone, as on a link of their own.
    """
    delays_ns, occupied_ns = _times(plan, group)
    arrived_ns: list[int] = arrivals_ns.tolist()
    leave = list(arrived_ns)
    ready_ns = [arrival_ns + costs.endpoint_ns for arrival_ns in leave]
    received_ns: list[int] = []
    free_ns: dict[tuple[int, int], int] = {}
    for index, entry in enumerate(plan.transfers):
        pair = (entry.src, entry.dst)
        sent_ns = max((received_ns[source] for source in plan.after[index]), default=ready_ns[entry.src])
        start_ns = max(sent_ns, free_ns.get(pair, sent_ns))
        free_ns[pair] = start_ns + occupied_ns[index]
        here_ns = max(start_ns + delays_ns[index], arrived_ns[entry.dst]) + costs.endpoint_ns
        received_ns.append(here_ns + (costs.reduction_ns(entry.charge_bytes) if entry.charge_bytes else 0))
        leave[entry.src] = max(leave[entry.src], sent_ns)
        leave[entry.dst] = max(leave[entry.dst], received_ns[-1])
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
