"""ASTRA-sim 1.0's events one by one: every NPU plays its own messages, and acts in its turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from heapq import heappush

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from simcore.network.instant import Environment, Timers, after
from simcore.system.groups import Delay
from simcore.system.plans.automaton import Player, automata
from simcore.system.plans.maker import Costs
from simcore.system.streams import BY_ID, LonePhase, Stream, StreamPhase, Turns
from simcore.system.transport import CongestionFree, Done, Played, Seat, Transport

Then = Callable[[Turns], object]
"""What follows when all NPUs have done something, in some order."""


class Apart(Transport):
    """Transport for NPUs that do the same, one after the other: what follows does so in the place of the last one.

    As all happens in the original's order, it knows who is first without asking, as `InTurn` does.
    """

    def __init__(self, env: Environment, npus: int, delay: Delay, costs: Costs):
        super().__init__(env, [range(npus)], costs)
        self._npus, self._order = np.arange(npus), BY_ID
        self._played = _EveryPacket(
            env, [range(npu, npu + 1) for npu in range(npus)], CongestionFree(env, delay), costs
        )
        self.timers = self._played.timers
        self.timers.default_factory = partial(_Steps, env)
        self._next: _Gathering | None = None
        self._begun, self._leaving = list[tuple[LonePhase, _Gathering]](), False

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message."""
        self._played.carry(src, dst, size_bytes, key, deliver)

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase, in the order of NPUs that `begin` was told, when all is known that they begin now."""
        for stream in streams.values():
            lone = LonePhase((stream.key, stream.at), stream.phase)
            through = _Gathering(len(self._npus), partial(self._leave, done, stream))
            self._begun.append((lone, through))
        if not self._leaving:
            self._start()

    def _start(self) -> None:
        """Every NPU begins what has begun, one after the other."""
        begun, self._begun = self._begun, []
        for npu in self._in(self._order) if begun else ():
            for lone, through in begun:
                self._played.start({npu: lone}, partial(through.come, npu))  # type: ignore[dict-item]  # all that it asks for

    def begin(self, name: Hashable, phase: StreamPhase, time_ns: float, order: Turns) -> None:
        """NPUs begin a phase, in some order."""
        self._order = order

    def first(self, due: Mapping[Stream, Hashable]) -> Stream:
        """Which of the chunks whose phases end now leaves first: nobody tells of two at once."""
        return next(iter(due))

    def waits(self, stream: Stream, now_ns: float) -> bool:
        """Whether NPUs have something to do before they leave a phase: they have done it already."""
        return False

    def leave(self, name: Hashable) -> Turns:
        """The order in which NPUs leave the phase that is over."""
        return self._order

    def ahead(self, env: Environment, delay_ns: int, order: Turns) -> None:
        """All NPUs but the last ask for something to do later, that one when it has done all that it does now."""
        self._next = self._ask(delay_ns, self._in(order)[:-1])

    def after(self, env: Environment, delay_ns: int, order: Turns, then: Then) -> None:
        """NPUs do something later; what follows is told in which order."""
        if self._next:
            there, self._next = self._next, None
            self._ask(delay_ns, self._in(order)[-1:], there)
        else:
            there = self._ask(delay_ns, self._in(order))
        there.then = then

    def _ask(self, delay_ns: int, npus: Sequence[int], there: _Gathering | None = None) -> _Gathering:
        there = there or _Gathering(len(self._npus))
        for npu in npus:
            self.timers[npu].after(delay_ns, partial(there.come, npu))
        return there

    def _leave(self, done: Done, stream: Stream, order: Turns) -> None:
        self._order, self._leaving = order, True
        done(stream)
        self._leaving = False
        self._start()

    def _in(self, order: Turns) -> list[int]:
        npus: list[int] = (self._npus if order.npus is None else order.npus).tolist()
        return npus


class _Gathering(Struct, eq=False):
    """NPUs that have done something, of so many that are to."""

    count: int
    then: Then = tuple  # type: ignore[assignment]
    there: list[int] = field(default_factory=list)

    def come(self, npu: int, _: object = None) -> None:
        """An NPU has done it."""
        self.there.append(npu)
        if len(self.there) == self.count:
            self.then(Turns(npus=np.array(self.there)))


class _EveryPacket(Played):
    """As `Played`; what has no bytes is reduced, too."""

    def _automata(self, seat: Seat, phase: StreamPhase, finished: Callable[[], None]) -> Sequence[Player]:
        sizes = [each.size_bytes for each in seat.plan.expanded or seat.plan.transfers]
        plan = self.plans.of(replace(phase, data_bytes=max(phase.data_bytes, phase.lane.dim.size)), 0)

        def post(number: int, peer: int, _: int) -> None:
            self._post(seat, number, peer, sizes[number])

        return automata(plan, seat.position, self._pay(seat, phase), partial(after, self._env), post, finished)


class _Steps(Timers):
    """What an NPU does at a time, one thing after the other: what follows from one comes before the next."""

    def _ring(self) -> None:
        due = self._due[self._env.now]
        due.pop(0)()
        if due:
            heappush(self._env.calls, self._env.entry)  # in the same place
        else:
            del self._due[self._env.now]
