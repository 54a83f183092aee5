"""Phases played message by message over links that are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import simpy

from simcore.network.congested import Network
from simcore.network.instant import after
from simcore.system.machine import Machine
from simcore.system.plan import Plan, Round
from simcore.system.point_to_point import RENDEZVOUS_BYTES
from simcore.system.streams import Stream, StreamPhase
from simcore.system.transport import AsymmetryError, Costs, Done, make_plan, make_tree
from simcore.system.tree_machine import TreeMachine
from simcore.timeline.events import LinkTable

__all__ = ["Played"]

LAST = ("~", 0)  # sorts behind the keys of chunks
_Player = Machine | TreeMachine


class Played:
    """Transport on a network whose links are shared: every message is sent.

    On a folded machine, whose classes meet themselves only in their groups, the NPU that is played receives what it
    sends; `network` must then run on `FoldedLinks`.
    """

    def __init__(self, env: simpy.Environment, ranks: Sequence[Sequence[int]], network: Network, costs: Costs):
        self._env, self._ranks, self._network, self._costs = env, ranks, network, costs
        self._folded = len(ranks) < sum(map(len, ranks))
        self._players: dict[tuple[object, int, int], _Player] = {}
        self._early: dict[tuple[object, int, int], list[int]] = {}
        self._plans: dict[StreamPhase, Plan] = {}
        self._sent: dict[StreamPhase, int] = {}

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message; at one time it goes behind the collectives'."""
        self._network.send(src, dst, size_bytes, (LAST, *key), deliver)

    def links(self) -> LinkTable:
        """What every link carried."""
        return self._network.table()

    def waiting(self) -> list[tuple[Stream, list[int]]]:
        """Chunks whose phase has not ended; their players know no partners that are missing."""
        return []

    def bytes_sent(self, stream: Stream) -> int:
        """What one NPU sends in the phase."""
        if stream.phase.lane.algorithm.name == "doubleBinaryTree":
            return 2 * stream.phase.data_bytes
        return self.plan(stream.phase).bytes_per_rank

    def start(self, npu_class: int, stream: Stream, done: Done) -> None:
        """Begin a phase on one NPU; messages that came before it are waiting."""
        npu = self._ranks[npu_class][0]
        key = (stream.key, stream.at, npu)

        def finished() -> None:
            del self._players[key]
            done(stream)

        player = self._player(npu, stream, finished)
        self._players[key] = player
        for index in self._early.pop(key, []):
            player.arrive(index)
        player.start()

    def _player(self, npu: int, stream: Stream, finished: Callable[[], None]) -> _Player:
        phase, costs = stream.phase, self._costs.of(stream.phase.lane.dim)
        members = phase.lane.dim.members(npu).tolist()
        position = members.index(npu)
        later = partial(_later, self._env)
        if phase.lane.algorithm.name == "doubleBinaryTree":
            if self._folded:
                raise AsymmetryError
            shape = make_tree(phase, len(members))
            cost_ns = costs.reduction_ns(phase.data_bytes)
            send = partial(self._send_to, stream, npu, members, phase.data_bytes)
            return TreeMachine(shape, position, costs.endpoint_ns, cost_ns, later, send, finished)
        plan = self.plan(phase)

        def forward(index: int, entry: Round) -> None:
            self._send_to(stream, npu, members, entry.size_bytes, plan.peer(position, entry.hop), index)

        return Machine(plan, costs.endpoint_ns, costs.reduction_ns, later, forward, finished)

    def _send_to(
        self, stream: Stream, npu: int, members: Sequence[int], size_bytes: int, peer: int, index: int
    ) -> None:
        """Send message `index` of a chunk's phase to a position of its group."""
        target = members[peer]
        key = (stream.key, stream.at, npu if self._folded else target)
        deliver = partial(self._deliver, key, index)
        order = (stream.key, stream.at, index, npu)
        transmit = partial(self._network.send, npu, target, size_bytes, order, deliver)
        if self._costs.rendezvous:
            self._network.send(target, npu, RENDEZVOUS_BYTES, order, transmit)
        else:
            transmit()

    def _deliver(self, key: tuple[object, int, int], index: int) -> None:
        player = self._players.get(key)
        if player:
            player.arrive(index)
        else:
            self._early.setdefault(key, []).append(index)

    def plan(self, phase: StreamPhase) -> Plan:
        """The rounds of a phase (trees have none)."""
        if phase not in self._plans:
            self._plans[phase] = make_plan(phase, self._costs.of(phase.lane.dim).options)
        return self._plans[phase]


def _later(env: simpy.Environment, delay_ns: int, callback: Callable[[], None]) -> None:
    after(env, delay_ns, lambda _: callback())
