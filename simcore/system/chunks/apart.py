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
from simcore.system.streams import BY_ID, LonePhase, Soon, Stream, StreamPhase, Turns
from simcore.system.transport import CongestionFree, Done, Played, Seat, Transport

Then = Callable[[Turns], object]
"""What follows when all NPUs have done something, in some order."""


class Apart(Transport):
    """Transport for NPUs that do the same, one after the other: what follows does so in the place of the last one.

    What an NPU then asks for by itself it asks for in its own place, the last one behind what follows. As all happens
    in the original's order, it knows who is first without asking, as `InTurn` does.
    """

    def __init__(self, env: Environment, npus: int, delay: Delay, costs: Costs):
        super().__init__(env, [range(npus)], costs)
        self._npus, self._order = np.arange(npus), BY_ID
        self._played = EveryPacket(env, [range(npu, npu + 1) for npu in range(npus)], CongestionFree(env, delay), costs)
        self.timers = self._played.timers
        self.timers.default_factory = partial(Steps, env)
        self._next: Gathering | None = None
        self._begun, self._leaving = list[tuple[LonePhase, Gathering]](), False

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a point-to-point message."""
        self._played.carry(src, dst, size_bytes, key, deliver)

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase, in the order of NPUs that `begin` was told, when all is known that they begin now."""
        for stream in streams.values():
            lone = LonePhase((stream.key, stream.at), stream.phase)
            self._begun.append((lone, self._gathering(partial(self._leave, done, stream))))
        if not self._leaving:
            self._start()

    def _start(self) -> None:
        """Every NPU begins what has begun, one after the other."""
        begun, self._begun = self._begun, []
        for npu in self._in(self._order) if begun else ():
            for lone, through in begun:
                self._begin(npu, lone, through)

    def _gathering(self, then: Then = tuple) -> Gathering:  # type: ignore[assignment]
        return Gathering(len(self._npus), then)

    def _begin(self, npu: int, lone: LonePhase, through: Gathering) -> None:
        self._played.start({npu: lone}, partial(through.come, npu))

    def _later(self, npu: int, delay_ns: int, there: Gathering) -> None:
        self.timers[npu].after(delay_ns, partial(self._come, npu, there))

    def _come(self, npu: int, there: Gathering) -> None:
        """An NPU has done something; what all do next the last one asks for when it has done what follows."""
        if len(there.there) + 1 == there.count:
            self._next = there.next
        else:
            if not there.there:
                there.soon_ns = there.soon()
                there.next = self._gathering() if there.soon_ns else None
            if there.next:
                self._later(npu, there.soon_ns, there.next)
        there.come(npu)

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
        if not self._next:  # they have not asked yet, each in its own place
            self._next = self._gathering()
            for npu in self._in(order)[:-1]:
                self._later(npu, delay_ns, self._next)

    def after(self, env: Environment, delay_ns: int, order: Turns, then: Then, soon: Soon = int) -> None:
        """NPUs do something later; what follows is told in which order."""
        npus = self._in(order)[-1 if self._next else 0 :]
        there, self._next = self._next or self._gathering(), None
        there.then, there.soon = then, soon
        for npu in npus:
            self._later(npu, delay_ns, there)

    def _leave(self, done: Done, stream: Stream, order: Turns) -> None:
        self._order, self._leaving = order, True
        done(stream)
        self._leaving = False
        self._start()

    def _in(self, order: Turns) -> list[int]:
        npus: list[int] = (self._npus if order.npus is None else order.npus).tolist()
        return npus


class Gathering(Struct, eq=False):
    """NPUs that have done something, of so many that are to; `first` is asked before anybody is told who was first.

    If `soon` says so when the first of them has, they are to do the `next` so much later.
    """

    count: int
    then: Then = tuple  # type: ignore[assignment]
    first: Callable[[], object] = tuple
    soon: Soon = int
    soon_ns: int = 0
    next: Gathering | None = None
    there: list[int] = field(default_factory=list)

    def come(self, npu: int, _: object = None) -> None:
        """An NPU has done it."""
        self.there.append(npu)
        if len(self.there) == self.count:
            self.then(Turns(self.first, np.array(self.there)))


class EveryPacket(Played):
    """As `Played`; what has no bytes is reduced, too."""

    def _automata(self, seat: Seat, phase: StreamPhase, finished: Callable[[], None]) -> Sequence[Player]:
        sizes = [each.size_bytes for each in seat.plan.expanded or seat.plan.transfers]
        plan, least_bytes = seat.plan, phase.lane.dim.size
        if phase.data_bytes < least_bytes:
            plan = self.plans.of(replace(phase, data_bytes=least_bytes), 0)

        def post(number: int, peer: int, _: int) -> None:
            self._post(seat, number, peer, sizes[number])

        return automata(plan, seat.position, self._pay(seat, phase), partial(after, self._env), post, finished)


class Steps(Timers):
    """What an NPU does at a time, one thing after the other: what follows from one comes before the next."""

    def _ring(self) -> None:
        env, due = self._env, self._due[self._env.now]
        if due:
            due.pop(0)()
        if due or (env.calls and env.calls[0] < env.entry):  # what follows from the last one may join it
            heappush(env.calls, env.entry)  # in the same place
        else:
            del self._due[env.now]
