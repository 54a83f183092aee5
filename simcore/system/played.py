"""Phases played message by message: over links that are shared, or with packets that share a memory bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import simpy

from simcore.network.congested import Network, TreeNetwork
from simcore.network.congestion_free import CongestionFree
from simcore.network.trees import Reduction
from simcore.system.groups import GroupDim
from simcore.system.memory_bus import Packets
from simcore.system.plans.automaton import RoundAutomaton, TransferAutomaton, at_endpoint, automata
from simcore.system.plans.maker import Costs, uneven
from simcore.system.plans.plan import Plan, Switch, Symmetry
from simcore.system.point_to_point import RENDEZVOUS_BYTES, Pairs, later
from simcore.system.streams import Stream
from simcore.system.transport import Done, Transport
from simcore.timeline.events import LinkTable

LAST = ("~", 0)  # sorts behind the keys of chunks
_Player = list[tuple[int, RoundAutomaton | TransferAutomaton]]
"""The automata that play the parts of a plan, each with the number of its first message, the last part first."""


class _Seat(NamedTuple):
    """An NPU in a phase: the chunk and which of its phases it is, the group, the plan, and the place of the NPU."""

    key: tuple[str, int]
    at: int
    npu: int
    members: Sequence[int]
    plan: Plan
    position: int


class Played(Transport):
    """Transport that sends every message: on links that are shared, or for packets that share a memory bus.

    With `barrier`, a chunk leaves a phase only when the whole machine has finished it (ASTRA-sim 1.0). On a folded
    machine, whose classes meet themselves only in their groups, the NPU that is played receives what it sends;
    `network` must then run on `FoldedLinks`.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ranks: Sequence[Sequence[int]],
        network: Network,
        costs: Costs,
        *,
        barrier: bool = False,
    ):
        super().__init__(env, ranks, costs)
        self._network, self._barrier = network, barrier
        self._folded = len(ranks) < sum(map(len, ranks))
        self._players: dict[tuple[object, int, int], _Player] = {}
        self._early: dict[tuple[object, int, int], list[int]] = {}
        self._groups: dict[tuple[GroupDim, int], list[int]] = {}
        self._packets = Packets(env, self.timers, costs.bus) if costs.bus else None
        self._handshakes = Pairs(partial(later, env))
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
                del self._players[key]
                self._leave(stream, partial(done, stream))

        player = self._players[key] = self._player(npu, stream, finished)
        running = len(player)
        for index in self._early.pop(key, []):
            self._deliver(key, index)
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
        if self._folded and plan.symmetry == Symmetry.NONE:
            raise uneven(phase)
        members, position = self._members(phase.lane.dim, npu), phase.lane.dim.position(npu)
        seat = _Seat(stream.key, stream.at, npu, members, plan, position)
        self._ask(seat, -1)
        return automata(plan, position, pay, partial(later, self._env), partial(self._post, seat), finished)

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
            self._ask(seat, number)

    def _multicast(self, seat: _Seat, index: int) -> None:
        """Send all copies with the first; the others are on their way with it."""
        key, at, npu, members, plan, _ = seat
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
        deliver = partial(self._deliver, (key, at, npu if self._folded else target), index)
        transmit = partial(send, npu, target, size_bytes, (key, at, index), deliver)
        if self._costs.rendezvous:
            self._handshakes.ready((key, at, npu, index), transmit)
        else:
            transmit()

    def _ask(self, seat: _Seat, number: int) -> None:
        """Under rendezvous, ask for what an NPU listens for once it has sent message `number` (-1: from the start)."""
        if self._costs.rendezvous:
            key, at, npu, members, plan, position = seat
            for peer, index in plan.asks(position, number):
                source = members[peer]
                asked = partial(self._handshakes.call, (key, at, npu if self._folded else source, index))
                self._network.send(npu, source, RENDEZVOUS_BYTES, (key, at, index), asked)

    def _deliver(self, key: tuple[object, int, int], index: int) -> None:
        for first, automaton in self._players.get(key, ()):
            if index >= first:
                automaton.arrive(index - first)
                return
        self._early.setdefault(key, []).append(index)
