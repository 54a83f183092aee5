"""Who says when an NPU leaves a phase, and those that work it out, look it up, or send every message.

Nothing leaves a collective before everybody is in it: without contention times are worked out at the last arrival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from itertools import chain, combinations
from typing import Any, cast

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.network.congested import Network, TreeNetwork
from simcore.network.core import NEVER
from simcore.network.instant import ARRIVAL, URGENT, Environment, Timers, TimersOfNpus, after
from simcore.network.topology.moves import Symmetry
from simcore.network.trees import Reduction
from simcore.system.alone.solver import solve
from simcore.system.collectives.nccl import Choice, Fabric, choose, point_to_point_s
from simcore.system.groups import Delay, GroupDim, Groups, LogicalDim, RankGroup
from simcore.system.memory import Packets
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES, Pairs
from simcore.system.plans.automaton import Pay, Player, at_endpoint, automata
from simcore.system.plans.maker import Costs, Plans, uneven
from simcore.system.plans.plan import Plan, Switch
from simcore.system.streams import LonePhase, Stream, StreamPhase
from simcore.timeline.events import CircuitRun, LinkTable
from simcore.units import format_bytes, whole_ns
from simcore.workload.model import CollectiveKind

Done = Callable[[Stream], None]
LAST = NEVER, 0  # sorts behind the keys of chunks

Meeting = dict[int, tuple[float, Stream, Done]]
"""Who has entered a phase: class -> (arrival time, chunk, callback).

Times are whole but for ASTRA-sim 1.0's memory floor, which is a fraction that carries on.
"""
Exits = dict[int, float]
"""When each class leaves."""


class Transport(ABC):
    """What says when NPUs leave phases; `ranks[c]` are the NPUs of class c, `timers` those of the NPUs.

    Where messages are sent, a `network` takes them. `parts` are the transports that do the work.
    """

    _network: Network | None = None
    parts: Sequence[Transport]

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], costs: Costs):
        self._env, self._ranks, self._costs = env, ranks, costs
        self.plans, self.timers, self.parts = Plans(costs), TimersOfNpus(partial(Timers, env)), [self]

    @abstractmethod
    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase on some classes, which leave it when `done` is called."""

    @abstractmethod
    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; of those of one time, that of the least `key` goes first."""

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends in a phase."""
        npu = int(self._ranks[npu_class][0])
        return self.plans.of(phase, npu).bytes_of(phase.lane.dim.position(npu))

    def links(self) -> LinkTable | None:
        """What every link carried, where links are modelled."""
        return self._network.table() if self._network else None

    def notes(self) -> list[str]:
        """What is to be said of how times were found."""
        return self._network.notes() if self._network else []

    def stuck(self) -> list[str]:
        """What of the network waits for each other, when nothing moves any more."""
        return self._network.stuck() if self._network else []

    def told(self) -> CircuitRun | None:
        """Which circuits were in place when, where some are switched."""
        return None


class MeetingError(Exception):
    """NPUs do things of one nanosecond in different orders: only playing all of them in order tells what follows."""


class Solved(Transport):
    """Transport on a network without contention (or whose links a phase has for itself).

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0). With `turns`,
    `MeetingError` where it counts whether messages arrive before or after what NPUs do in that nanosecond.
    """

    def __init__(
        self,
        env: Environment,
        ranks: Sequence[Sequence[int]],
        delay: Delay,
        costs: Costs,
        *,
        barrier: bool = False,
        turns: bool = False,
    ):
        super().__init__(env, ranks, costs)
        self._delay, self._barrier, self._turns = delay, barrier, turns
        self._groups, self._meetings = Groups(ranks, delay), dict[tuple[object, ...], Meeting]()
        self._lockstep: dict[tuple[RankGroup, StreamPhase], NDArray[np.int64]] = {}

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Note arrivals; the last one settles the phase for all."""
        for npu_class, stream in streams.items():
            group = self._groups.of(npu_class, stream.phase.lane.dim)
            key = (stream.key, stream.at, 0 if self._barrier else group.name)
            meeting = self._meetings.setdefault(key, {})
            meeting[npu_class] = (self._env.now, stream, done)
            if len(meeting) == (len(self._ranks) if self._barrier else len(group.met)):
                del self._meetings[key]
                self._settle(meeting, stream.phase)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message, which meets nobody."""
        time_ns = int(self._delay(np.array([src]), np.array([dst]), size_bytes)[0])
        after(self._env, time_ns, deliver)

    def _settle(self, meeting: Meeting, phase: StreamPhase) -> None:
        """Work out when each class leaves, and call it back then."""
        leave: Exits = {}
        for npu_class in meeting:
            if npu_class not in leave:
                leave |= self._exits(self._groups.of(npu_class, phase.lane.dim), meeting, phase)
        if self._barrier:
            leave = dict.fromkeys(leave, max(leave.values()))
        for npu_class, (_, stream, done) in meeting.items():
            if npu_class in leave:
                delay_ns = max(leave[npu_class] - self._env.now, 0)
                stream.end_ns = self._env.now + delay_ns
                after(self._env, delay_ns, partial(done, stream))

    def _exits(self, group: RankGroup, meeting: Meeting, phase: StreamPhase) -> Exits:
        """When each class of a group leaves."""
        exits = self._times(group, np.array([meeting[npu_class][0] for npu_class in group.classes]), phase)
        leave: Exits = {}
        for npu_class, exit_ns in zip(group.classes, exits.tolist(), strict=True):
            if leave.setdefault(npu_class, exit_ns) != exit_ns:
                if not self._barrier:
                    raise uneven(phase)
                leave[npu_class] = max(leave[npu_class], exit_ns)
        return leave

    def _times(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        """When each member leaves; those who come together do so as ever."""
        if (arrivals == arrivals[0]).all():
            if (group, phase) not in self._lockstep:
                self._lockstep[group, phase] = self._solve(group, np.zeros(len(group), np.int64), phase)
            lockstep = self._lockstep[group, phase]
            if lockstep.dtype == np.int64:  # fractions are added up from the beginning: a sum depends on the order
                return arrivals + lockstep
        return self._solve(group, arrivals, phase)

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        plan, costs = self.plans.of(phase, group.ids[0]), self._costs.of(phase.lane)
        if not (self._turns and plan.half):
            return solve(plan, group, arrivals, costs)
        early, late = (solve(plan, group, arrivals, costs, turn) for turn in (URGENT, ARRIVAL))
        if (early != late).any():
            raise MeetingError
        return early


# Sizes are what one rank has; the measured curves' are those of all ranks together.
_OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}


class Measured(Solved):
    """Transport with `collectives: nccl`: a phase ends everywhere as long after its last arrival as `choose` says.

    A node holds `fabric.node_ranks` consecutive NPUs. Collectives of different groups do not meet.
    """

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], fabric: Fabric, costs: Costs):
        super().__init__(env, ranks, _measured_delay(fabric), costs)
        self._fabric = fabric
        self._chosen: dict[tuple[Hashable, StreamPhase], tuple[int, int, Choice]] = {}
        self._used: dict[tuple[str, int, int, str], list[int]] = defaultdict(list)

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends."""
        _, _, chosen = self._choice(self._groups.of(npu_class, phase.lane.dim), phase)
        return round(chosen.wire_bytes)

    def notes(self) -> list[str]:
        """What was chosen, for which collectives and sizes."""
        lines = []
        for (kind, ranks, per_node, name), sizes in sorted(self._used.items()):
            span = " to ".join(dict.fromkeys(map(format_bytes, sizes)))
            lines.append(f"nccl on {self._fabric.name}: {kind} of {span} on {ranks} ranks, {per_node} a node: {name}")
        return lines

    def _settle(self, meeting: Meeting, phase: StreamPhase) -> None:
        """Where sizes differ, all take as long as whoever gives most."""
        phases = (stream.phase for _, stream, _ in meeting.values())
        super()._settle(meeting, max(phases, key=lambda own: own.data_bytes))

    def _choice(self, group: RankGroup, phase: StreamPhase) -> tuple[int, int, Choice]:
        """The bytes of all ranks together, how many of them are in a node, and what NCCL does."""
        key = group.name, phase
        if key not in self._chosen:
            per_node = int(np.unique(group.members // self._fabric.node_ranks, return_counts=True)[1].max())
            total_bytes = phase.data_bytes * (len(group) if phase.kind in _OF_ONE_RANK else 1)
            chosen = choose(phase.kind, total_bytes, len(group), per_node, self._fabric)
            self._chosen[key] = total_bytes, per_node, chosen
        return self._chosen[key]

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        total_bytes, per_node, chosen = self._choice(group, phase)
        sizes = self._used[str(phase.kind), len(group), per_node, str(chosen)]
        sizes[:] = [min([total_bytes, *sizes]), max([total_bytes, *sizes])]
        return np.full_like(arrivals, arrivals.max() + whole_ns(chosen.seconds * 1e9))


def in_equal_nodes(dims: Sequence[LogicalDim], npus: int, node_ranks: int) -> bool:
    """Whether groups of the same dimensions always have as many ranks in a node: one may stand for all then."""
    ids, wide = np.arange(npus), [dim for dim in dims if dim.size > 1]
    for together in chain.from_iterable(combinations(wide, count) for count in range(1, len(wide) + 1)):
        first = ids - sum(ids // dim.stride % dim.size * dim.stride for dim in together)
        shares = np.unique(first * npus + ids // node_ranks, return_counts=True)[1]  # of groups in nodes
        if np.ptp(shares):
            return False
    return True


def _measured_delay(fabric: Fabric) -> Delay:
    """Of messages between two ranks."""

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        same = src // fabric.node_ranks == dst // fabric.node_ranks
        near, far = (whole_ns(point_to_point_s(size_bytes, fabric, same_node=near) * 1e9) for near in (True, False))
        return np.where(same, near, far)

    return times


class CongestionFree(Network):
    """A network on which every message takes the time that `delay(src, dst, size_bytes)` says, for columns of ends."""

    def __init__(self, env: Environment, delay: Delay):
        self._env, self._delay, self.time_ns = env, delay, cache(self._time_ns)
        self._free_ns: dict[tuple[Any, int, int], int] = {}

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Callable[[], None]) -> None:
        """Send a message now."""
        after(self._env, self.time_ns(src, dst, size_bytes), deliver)

    def send_in_turn(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Callable[[], None]) -> None:
        """Send when the bytes of the last message between these two are gone that `key` gives the same phase."""
        pair, now_ns, time_ns = (key[:2], src, dst), int(self._env.now), self.time_ns(src, dst, size_bytes)
        start_ns = max(self._free_ns.get(pair, 0), now_ns)
        self._free_ns[pair] = start_ns + time_ns - self.time_ns(src, dst, 0)
        after(self._env, start_ns - now_ns + time_ns, deliver)

    def _time_ns(self, src: int, dst: int, size_bytes: int) -> int:
        """How long a message takes."""
        time_ns: int = self._delay(np.array([src]), np.array([dst]), size_bytes)[0].item()
        return time_ns

    def table(self) -> None:
        """Links are not modelled."""


SeatName = tuple[tuple[int, int], int, int]
"""A chunk, the number of its phase, and an NPU."""


class Seat(Struct, eq=False):
    """An NPU in a phase: its group, who `plays` for each member, the plan, its place there.

    `player` plays the parts of the plan that are `open`.
    """

    name: SeatName
    members: Sequence[int]
    plays: Sequence[int]
    plan: Plan
    position: int
    player: Sequence[Player] = ()
    open: int = 0
    _numbers: dict[tuple[int, int], deque[int]] = field(default_factory=dict)

    def arrive(self, number: int) -> None:
        """A message of the plan is here."""
        next(player for player in self.player if number >= player.first).arrive(number)

    def take(self, npu: int, size_bytes: int) -> None:
        """A message of an NPU that plays something else is here: it is the next one expected from there in its size."""
        if not self._numbers:
            for peer, each_bytes, number in self.plan.comes(self.position):
                self._numbers.setdefault((self.members[peer], each_bytes), deque()).append(number)
        expected = self._numbers.get((npu, size_bytes))
        if expected:
            self.arrive(expected.popleft())


class Played(Transport):
    """Transport that sends every message: on links that are shared, or for packets that share a memory bus.

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0). With `by_size`
    a message is the next of its size that its receiver expects from there, whatever the sender plays, or lost. On a
    folded machine, whose classes meet themselves only in their groups, the NPU that is played receives what it sends;
    `network` must then run on `FoldedLinks`.
    """

    _network: Network

    def __init__(
        self,
        env: Environment,
        ranks: Sequence[Sequence[int]],
        network: Network,
        costs: Costs,
        *,
        barrier: bool = False,
        by_size: bool = False,
    ):
        super().__init__(env, ranks, costs)
        self._network, self._barrier, self._by_size = network, barrier, by_size
        self._trees = cast("TreeNetwork", network)  # what others cannot do has been refused
        self._folded = len(ranks) < sum(map(len, ranks))
        self._seats: dict[SeatName, Seat] = {}
        self._early: dict[SeatName, list[Callable[[], None]]] = {}
        self._groups: dict[tuple[GroupDim, int], tuple[list[int], list[int]]] = {}
        self._players = {members[0] for members in ranks} if self._folded else set()
        self._packets = Packets(env, self.timers, costs.bus) if costs.bus else None
        self._handshakes = Pairs(partial(after, env))
        self._through: dict[tuple[object, int], list[Callable[[], None]]] = {}
        # Pieces of one plan go one behind the other, also where nothing else meets.
        self._in_turn = network.send_in_turn if isinstance(network, CongestionFree) else network.send

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; at one time it goes behind the collectives'."""
        self._network.send(src, dst, size_bytes, (LAST, key[0]), deliver)

    def start(self, streams: Mapping[int, Stream | LonePhase], done: Callable[[Any], None]) -> None:
        """Begin a phase on some NPUs; messages that came before it are waiting."""
        for npu_class, stream in streams.items():
            self._start(npu_class, stream, done)

    def _start(self, npu_class: int, stream: Stream | LonePhase, done: Callable[[Any], None]) -> None:
        npu, phase, dim = self._ranks[npu_class][0], stream.phase, stream.phase.lane.dim
        plan = self.plans.of(phase, npu)
        members, plays = self._members(dim, npu)
        if plays is not members and Symmetry.NONE in plan.symmetries:
            raise uneven(phase)
        seat = Seat((stream.key, stream.at, npu), members, plays, plan, dim.position(npu))
        self._seats[seat.name] = seat
        if self._costs.rendezvous:
            self._ask(seat, -1)

        def finished() -> None:
            seat.open -= 1
            if not seat.open:
                del self._seats[seat.name]
                self._leave(stream, partial(done, stream))

        seat.player = self._automata(seat, phase, finished)
        seat.open = len(seat.player)
        for deliver in self._early.pop(seat.name, []):
            deliver()
        for automaton in reversed(seat.player):
            automaton.start()

    def _automata(self, seat: Seat, phase: StreamPhase, finished: Callable[[], None]) -> Sequence[Player]:
        """What plays the parts of a plan at a seat, the last part first; `finished` is told by each."""
        post = partial(self._post, seat)
        return automata(seat.plan, seat.position, self._pay(seat, phase), partial(after, self._env), post, finished)

    def _pay(self, seat: Seat, phase: StreamPhase) -> Pay:
        """What packets cost at a seat."""
        costs, (_, _, npu) = self._costs.of(phase.lane), seat.name
        if self._packets and costs.bus:
            return self._packets.pay(npu, phase, seat.plan, costs.reduction_ns)
        return at_endpoint(self.timers[npu].after, costs.endpoint_ns, costs.reduction_ns)

    def _leave(self, stream: Stream | LonePhase, leave: Callable[[], None]) -> None:
        """Go on, alone or when everybody is through."""
        if not self._barrier:
            leave()
            return
        through = self._through.setdefault((stream.key, stream.at), [])
        through.append(leave)
        if len(through) == len(self._ranks):
            for go in self._through.pop((stream.key, stream.at)):
                go()

    def _members(self, dim: GroupDim, npu: int) -> tuple[list[int], list[int]]:
        """The NPUs of a group, in one list for all of them, and who plays for each: the same list where all do."""
        found = dim.members(npu)
        key = (dim, int(found[0]))
        if key not in self._groups:
            ids: list[int] = found.tolist()
            own = [member for member in ids if member in self._players] if self._folded else ids
            first = ids.index(own[0]) % len(own)
            plays = ids if len(own) == len(ids) else [own[(at - first) % len(own)] for at in range(len(ids))]
            self._groups[key] = ids, plays
        return self._groups[key]

    def _post(self, seat: Seat, number: int, peer: int, size_bytes: int) -> None:
        """Send a message of a plan to a position of the group, as it is sent there, and ask for what comes next."""
        if seat.plan.switch:
            self._combine(seat, size_bytes, seat.plan.switch)
        elif seat.plan.multicast:
            self._multicast(seat, number)
        else:
            self._send_to(seat, peer, size_bytes, number)
            if self._costs.rendezvous:
                self._ask(seat, number)

    def _multicast(self, seat: Seat, index: int) -> None:
        """Send all copies with the first; the others are on their way with it."""
        (key, at, npu), plan = seat.name, seat.plan
        together = {seat.members[plan.transfers[copy].dst]: copy for copy in plan.copies.get(index, ())}
        if together:

            def deliver(target: int) -> None:
                self._deliver(seat, target, together[target])

            self._trees.multicast(npu, list(together), plan.transfers[index].size_bytes, (key, at, index, npu), deliver)

    def _combine(self, seat: Seat, size_bytes: int, switch: Switch) -> None:
        """Send this NPU's part up to the switch of its group."""
        (key, at, npu), members = seat.name, seat.members
        peer = next(member for member in members if member != npu)
        reduction = Reduction((key, at, members[0]), len({*seat.plays}), *switch)
        deliver = partial(self._deliver, seat, npu, 0)
        self._trees.combine(npu, peer, size_bytes, (key, at, 0, npu), reduction, deliver)

    def _send_to(self, seat: Seat, peer: int, size_bytes: int, index: int) -> None:
        """Send message `index` of a chunk's phase to a position of its group."""
        (key, at, npu), target = seat.name, seat.members[peer]
        send = self._network.send if seat.plan.rounds else self._in_turn
        deliver = partial(self._deliver, seat, seat.plays[peer], index, size_bytes)
        if self._costs.rendezvous:
            transmit = partial(send, npu, target, size_bytes, (key, at, index), deliver)
            self._handshakes.ready((seat.name, target if seat.plays is seat.members else index), transmit)
        else:
            send(npu, target, size_bytes, (key, at, index), deliver)

    def _ask(self, seat: Seat, number: int) -> None:
        """Under rendezvous, ask for what an NPU listens for once it has sent message `number` (-1: from the start)."""
        # Messages between two NPUs go in turn; where one NPU plays for all, their numbers tell apart to whom they go.
        key, at, npu = seat.name
        for peer, index in seat.plan.asks(seat.position, number):
            source = seat.members[peer]
            what = npu if seat.plays is seat.members else index
            asked = partial(self._handshakes.call, ((key, at, seat.plays[peer]), what))
            self._network.send(npu, source, RENDEZVOUS_BYTES, (key, at, index), asked)

    def _deliver(self, sender: Seat, target: int, index: int, size_bytes: int = 0) -> None:
        """Deliver message `index` of a sender, which waits where the receiver is not there yet."""
        name = (*sender.name[:2], target)
        seat = self._seats.get(name)
        if seat is None:
            self._early.setdefault(name, []).append(partial(self._deliver, sender, target, index, size_bytes))
        elif self._by_size and (seat.plan is not sender.plan or seat.members is not sender.members):
            seat.take(sender.name[2], size_bytes)
        else:
            seat.arrive(index)


class SolvedOrPlayed(Solved):
    """As `Solved`; what the members of a group take for different phases is played message by message.

    Each of them may go round its own way, and those whose messages do not come stay in the phase for ever (ASTRA-sim).
    """

    def _exits(self, group: RankGroup, meeting: Meeting, phase: StreamPhase) -> Exits:
        phases = {meeting[npu_class][1].phase for npu_class in group.classes}
        if len({(each.kind, each.lane, each.data_bytes, each.mirrored, each.root) for each in phases}) == 1:
            return super()._exits(group, meeting, phase)
        env, left = Environment(), dict[int, float]()
        npus = [range(npu, npu + 1) for npu in range(sum(map(len, self._ranks)))]
        played = Played(env, npus, CongestionFree(env, self._delay), self._costs, by_size=True)
        for npu, npu_class in zip(group.ids, group.classes, strict=True):
            arrival, stream, _ = meeting[npu_class]

            def leave(_: Stream, npu_class: int = npu_class) -> None:
                left[npu_class] = env.now

            after(env, int(arrival), partial(played.start, {npu: stream}, leave))
        env.run()
        return left
