"""ASTRA-sim 1.0 with a memory bus, one NPU playing for all: as long as nothing depends on where they differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NoReturn

from simcore.network.instant import Environment
from simcore.system.chunks.apart import Apart, EveryPacket, Gathering, Steps, Then
from simcore.system.groups import Delay
from simcore.system.memory import End
from simcore.system.plans.automaton import Pay
from simcore.system.plans.maker import Costs
from simcore.system.streams import LonePhase, StreamPhase, Turns
from simcore.system.transport import CongestionFree, MeetingError, Seat

Call = Callable[[], None]
Origins = frozenset[Hashable]
_ITSELF: Origins = frozenset([None])
_FOLLOWS = -1  # who does what follows when all NPUs have done something


class Alike(Apart):
    """As `Apart`, with one NPU for all, which gets what it sends; `MeetingError` where that may not be exact."""

    def __init__(self, env: Environment, npus: int, delay: Delay, costs: Costs):
        super().__init__(env, 1, delay, costs)
        self._ranks, self._doubts = [range(npus)], Doubts(env)
        self._played = _OneForAll(env, npus, delay, costs, self._doubts)
        self.timers = self._played.timers

    def ahead(self, env: Environment, delay_ns: int, order: Turns) -> None:
        """As of `Apart`: from now on the last NPU may ask in another order than the others."""
        self._doubts.open()
        super().ahead(env, delay_ns, order)

    def _gathering(self, then: Then = tuple) -> Gathering:  # type: ignore[assignment]
        return Gathering(1, then, stop)

    def _begin(self, npu: int, lone: LonePhase, through: Gathering) -> None:
        self._doubts.follow(partial(super()._begin, npu, lone, through))

    def _later(self, npu: int, delay_ns: int, there: Gathering) -> None:
        come = partial(self._doubts.tell, partial(there.come, npu))
        self._doubts.follow(partial(self.timers[npu].after, delay_ns, come))


def stop() -> NoReturn:
    """NPUs may differ."""
    raise MeetingError


class Doubts:
    """Where NPUs may do things in different orders; it stops the run where that may make a difference.

    They differ in two ways. Of what comes to an NPU from several others, on its way since one time, they do not get the
    same first. And what follows when all have done something does so in the place of the last one, amid the list of
    what that one does then, behind the lists of the others. From there on the instant is in doubt, and so is the whole
    list of a later time that it asks for twice. In doubt, any order has to come to the same: of a list, one call tells
    others something; two calls neither queue packets on one bus, nor does one while the other end decides there.
    """

    def __init__(self, env: Environment):
        self._env, self._instant_ns, self._open_ns = env, -1.0, -1.0
        self._origins = dict[float, Origins]()  # of what comes, by how long that takes from the instant
        self._actor, self._told_by, self._listed = 0, 0, False
        self._asked, self._lists = set[float](), set[float]()
        self._touched = list[tuple[End, bool, int]]()

    def come(self, delay_ns: float, origins: Origins) -> None:
        """Something comes later: all that does then, on its way since now, has to have an origin in common."""
        if self._instant_ns != self._env.now:
            self._instant_ns = self._env.now
            self._origins.clear()
        self._origins[delay_ns] = both = self._origins.get(delay_ns, origins) & origins
        if not both:
            stop()

    def open(self, *, listed: bool = False) -> None:
        """The instant is in doubt from now on, or all of its list is."""
        if self._open_ns != self._env.now:
            self._open_ns, self._listed, self._told_by = self._env.now, listed, 0
            self._asked.clear()
            self._touched.clear()
        self._listed |= listed

    def ring(self) -> None:
        """The next call of the list is made."""
        self._actor += 1
        if self._env.now in self._lists:
            self._lists.discard(self._env.now)
            self.open(listed=True)

    def follow(self, call: Call) -> None:
        """Do what follows."""
        self.open()
        actor, self._actor = self._actor, _FOLLOWS
        call()
        self._actor = actor

    def ask(self, delay_ns: float) -> None:
        """The list of a later time gets a call, or that of this one another one."""
        if self._open_ns == self._env.now and delay_ns:
            time_ns = self._env.now + delay_ns
            (self._lists if time_ns in self._asked else self._asked).add(time_ns)
        elif self._actor == _FOLLOWS and not delay_ns:  # the list of the others is over
            stop()

    def tell(self, call: Call) -> None:
        """Do what others may see."""
        if self._open_ns == self._env.now and self._listed:
            if self._told_by not in {0, self._actor}:
                stop()
            self._told_by = self._actor
        call()

    def touch(self, end: End, decides: bool) -> None:
        """A packet is queued at an end of a bus, or the end decides who is next."""
        if self._open_ns != self._env.now:
            return
        for other, decided, actor in self._touched:
            clash = not (decides or decided) or (other is not end and decides != decided)
            if clash and actor != self._actor and other in {end, end.partner}:
                stop()
        self._touched.append((end, decides, self._actor))


class _OneForAll(EveryPacket):
    """As `EveryPacket`, of one NPU that plays for all."""

    def __init__(self, env: Environment, npus: int, delay: Delay, costs: Costs, doubts: Doubts):
        self._free, self._doubts = CongestionFree(env, delay), doubts
        super().__init__(env, [range(npus)], self._free, costs)
        self.timers.default_factory = partial(_OwnSteps, env, doubts)
        if self._packets:
            self._packets.touched = doubts.touch

    def _send_to(self, seat: Seat, target: int, size_bytes: int, index: int) -> None:
        delay_ns = self._free.time_ns(seat.name[2], target, size_bytes)
        if not delay_ns:
            stop()
        # Messages that the same phase gets from several NPUs stand for each other.
        self._doubts.come(delay_ns, frozenset(((target, seat.plan.moves, seat.members[1]), seat.name)))
        super()._send_to(seat, target, size_bytes, index)

    def _pay(self, seat: Seat, phase: StreamPhase) -> Pay:
        pay = super()._pay(seat, phase)

        def paid(number: int, reduce_bytes: int, credit: Call) -> None:
            pay(number, reduce_bytes, partial(self._doubts.tell, credit))

        return paid


class _OwnSteps(Steps):
    """As `Steps`, of one NPU that plays for all."""

    def __init__(self, env: Environment, doubts: Doubts):
        super().__init__(env)
        self._doubts = doubts

    def after(self, delay_ns: int, callback: Call) -> None:
        if self._env.now + delay_ns not in self._due:
            self._doubts.come(delay_ns, _ITSELF)
        self._doubts.ask(delay_ns)
        super().after(delay_ns, callback)

    def _ring(self) -> None:
        self._doubts.ring()
        super()._ring()
