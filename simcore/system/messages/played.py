"""Phases played message by message: over links that are shared, or with packets that share a memory bus."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from simcore.network.congested import Network, TreeNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.instant import Environment, after
from simcore.network.topology.moves import Symmetry
from simcore.network.trees import Reduction
from simcore.system.groups import GroupDim, RankGroup
from simcore.system.memory.bus import Packets
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES, Pairs
from simcore.system.plans.automaton import RoundAutomaton, TransferAutomaton, at_endpoint, automata
from simcore.system.plans.maker import Costs, uneven
from simcore.system.plans.plan import Plan, Switch
from simcore.system.streams import Stream, StreamPhase
from simcore.system.transport import Done, Exits, Meeting, Solved, Transport
from simcore.timeline.events import LinkTable

LAST = ("~", 0)  # sorts behind the keys of chunks
_Player = list[tuple[int, RoundAutomaton | TransferAutomaton]]
"""The automata that play the parts of a plan, each with the number of its first message, the last part first."""


class _Seat(NamedTuple):
    """An NPU in a phase: the chunk and which of its phases it is, the group, the plan, and the place of the NPU.

    `turns` counts under rendezvous the messages to every NPU, and those that it was asked for (~ the NPU).
    """

    key: tuple[str, int]
    at: int
    npu: int
    members: Sequence[int]
    plan: Plan
    position: int
    turns: Counter[int]

    def expected(self) -> dict[tuple[int, int], deque[int]]:
        """The numbers of the messages that come from an NPU in a size, in order."""
        found: dict[tuple[int, int], deque[int]] = {}
        for peer, size_bytes, number in self.plan.comes(self.position):
            found.setdefault((self.members[peer], size_bytes), deque()).append(number)
        return found

    def turn(self, who: int) -> int:
        """How often this was asked about somebody."""
        self.turns[who] += 1
        return self.turns[who]


class Played(Transport):
    """Transport that sends every message: on links that are shared, or for packets that share a memory bus.

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0). With `by_size`
    a message is the next of its size that its receiver expects from there, whatever the sender plays, or lost. On a
    folded machine, whose classes meet themselves only in their groups, the NPU that is played receives what it sends;
    `network` must then run on `FoldedLinks`.
    """

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
        self._folded = len(ranks) < sum(map(len, ranks))
        self._players: dict[tuple[object, int, int], _Player] = {}
        self._seats: dict[tuple[object, int, int], tuple[_Seat, dict[tuple[int, int], deque[int]]]] = {}
        self._early: dict[tuple[object, int, int], list[Callable[[], None]]] = {}
        self._groups: dict[tuple[GroupDim, int], list[int]] = {}
        self._packets = Packets(env, self.timers, costs.bus) if costs.bus else None
        self._handshakes = Pairs(partial(after, env))
        self._through: dict[tuple[object, int], list[Callable[[], None]]] = {}
        # Pieces of one plan go one behind the other, also where nothing else meets.
        self._in_turn = network.send_in_turn if isinstance(network, CongestionFree) else network.send

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; at one time it goes behind the collectives'."""
        self._network.send(src, dst, size_bytes, (LAST, key[0]), deliver)

    def links(self) -> LinkTable | None:
        """What every link carried, where links are modelled."""
        return self._network.table()

    def stuck(self) -> list[str]:
        """What of the network waits for each other, when nothing moves any more."""
        return self._network.stuck()

    def notes(self) -> list[str]:
        """What the network leaves out."""
        return self._network.notes()

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase on some NPUs; messages that came before it are waiting."""
        for npu_class, stream in streams.items():
            self._start(npu_class, stream, done)

    def _start(self, npu_class: int, stream: Stream, done: Done) -> None:
        npu = self._ranks[npu_class][0]
        key = (stream.key, stream.at, npu)
        running = 0

        def finished() -> None:
            nonlocal running
            running -= 1
            if not running:
                del self._players[key], self._seats[key]
                self._leave(stream, partial(done, stream))

        player = self._players[key] = self._player(npu, stream, finished)
        running = len(player)
        for deliver in self._early.pop(key, []):
            deliver()
        for _, automaton in reversed(player):
            automaton.start()

    def _leave(self, stream: Stream, leave: Callable[[], None]) -> None:
        """Go on, alone or when everybody is through."""
        if not self._barrier:
            leave()
            return
        through = self._through.setdefault((stream.key, stream.at), [])
        through.append(leave)
        if len(through) == len(self._ranks):
            for go in self._through.pop((stream.key, stream.at)):
                go()

    def _player(self, npu: int, stream: Stream, finished: Callable[[], None]) -> _Player:
        phase, costs = stream.phase, self._costs.of(stream.phase.lane.dim)
        plan, timers = self.plans.of(phase, npu), self.timers[npu]
        pay = at_endpoint(timers.after, costs.endpoint_ns, costs.reduction_ns)
        if self._packets and costs.bus:
            pay = self._packets.pay(npu, phase, plan, costs.reduction_ns)
        if self._folded and Symmetry.NONE in plan.symmetries:
            raise uneven(phase)
        members, position = self._members(phase.lane.dim, npu), phase.lane.dim.position(npu)
        seat = _Seat(stream.key, stream.at, npu, members, plan, position, Counter())
        self._seats[stream.key, stream.at, npu] = seat, {}
        if self._costs.rendezvous:
            self._ask(seat, -1)
        return automata(plan, position, pay, partial(after, self._env), partial(self._post, seat), finished)

    def _members(self, dim: GroupDim, npu: int) -> list[int]:
        """The NPUs of a group, in one list for all of them."""
        found = dim.members(npu)
        key = (dim, int(found[0]))
        if key not in self._groups:
            self._groups[key] = found.tolist()
        return self._groups[key]

    def _post(self, seat: _Seat, number: int, peer: int, size_bytes: int) -> None:
        """Send a message of a plan to a position of the group, as it is sent there, and ask for what comes next."""
        if seat.plan.switch:
            self._combine(seat, size_bytes, seat.plan.switch)
        elif seat.plan.multicast:
            self._multicast(seat, number)
        else:
            self._send_to(seat, seat.members[peer], size_bytes, number)
            if self._costs.rendezvous:
                self._ask(seat, number)

    def _multicast(self, seat: _Seat, index: int) -> None:
        """Send all copies with the first; the others are on their way with it."""
        key, at, npu, members, plan, *_ = seat
        together = {members[plan.transfers[copy].dst]: copy for copy in plan.copies.get(index, ())}
        if together:

            def deliver(target: int) -> None:
                self._deliver((key, at, target), together[target])

            self._trees.multicast(npu, list(together), plan.transfers[index].size_bytes, (key, at, index, npu), deliver)

    def _combine(self, seat: _Seat, size_bytes: int, switch: Switch) -> None:
        """Send this NPU's part up to the switch of its group."""
        key, at, npu, members, *_ = seat
        peer = next(member for member in members if member != npu)
        reduction = Reduction((key, at, members[0]), 1 if self._folded else len(members), *switch)
        deliver = partial(self._deliver, (key, at, npu), 0)
        self._trees.combine(npu, peer, size_bytes, (key, at, 0, npu), reduction, deliver)

    @property
    def _trees(self) -> TreeNetwork:
        """The network, where there are such algorithms."""
        if isinstance(self._network, TreeNetwork):
            return self._network
        raise NotImplementedError("profiles whose networks copy and reduce nothing refuse the algorithms that need it")

    def _send_to(self, seat: _Seat, target: int, size_bytes: int, index: int) -> None:
        """Send message `index` of a chunk's phase to an NPU of its group."""
        key, at, npu, *_ = seat
        send = self._network.send if seat.plan.rounds else self._in_turn
        there = npu if self._folded else target
        if self._by_size:
            deliver = partial(self._match, seat, there, index, size_bytes)
        else:
            deliver = partial(self._deliver, (key, at, there), index)
        if self._costs.rendezvous:
            transmit = partial(send, npu, target, size_bytes, (key, at, index), deliver)
            self._handshakes.ready((key, at, npu, there, seat.turn(there)), transmit)
        else:
            send(npu, target, size_bytes, (key, at, index), deliver)

    def _ask(self, seat: _Seat, number: int) -> None:
        """Under rendezvous, ask for what an NPU listens for once it has sent message `number` (-1: from the start)."""
        key, at, npu, members, plan, position, _ = seat
        for peer, index in plan.asks(position, number):
            source = members[peer]
            there = npu if self._folded else source
            asked = partial(self._handshakes.call, (key, at, there, npu, seat.turn(~there)))
            self._network.send(npu, source, RENDEZVOUS_BYTES, (key, at, index), asked)

    def _match(self, sender: _Seat, target: int, index: int, size_bytes: int) -> None:
        """Deliver message `index` of a sender, or where the receiver plays something else, what it takes that for."""
        key = (sender.key, sender.at, target)
        if key not in self._seats:
            self._early.setdefault(key, []).append(partial(self._match, sender, target, index, size_bytes))
            return
        seat, expected = self._seats[key]
        if seat.plan is not sender.plan or seat.members is not sender.members:
            if not expected:
                expected.update(seat.expected())
            numbers = expected.get((sender.npu, size_bytes))
            if not numbers:
                return
            index = numbers.popleft()
        self._deliver(key, index)

    def _deliver(self, key: tuple[object, int, int], index: int) -> None:
        for first, automaton in self._players.get(key, ()):
            if index >= first:
                automaton.arrive(index - first)
                return
        self._early.setdefault(key, []).append(partial(self._deliver, key, index))


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
