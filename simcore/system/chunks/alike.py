"""ASTRA-sim 1.0 with a memory bus, one NPU playing for all: as long as nothing depends on where they differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NoReturn

from simcore.network.instant import Callback, Environment
from simcore.system.chunks.apart import Apart, Place, Steps, Then
from simcore.system.chunks.cut import Cutting, PhaseMaker
from simcore.system.groups import Delay
from simcore.system.memory import End
from simcore.system.plans.automaton import Pay
from simcore.system.plans.maker import Costs
from simcore.system.streams import LonePhase, Stream, StreamPhase, Turns
from simcore.system.transport import CongestionFree, MeetingError, Seat

Call = Callable[[], None]
Origins = frozenset[Hashable]
_ITSELF: Origins = frozenset([None])
_FOLLOWS = -1  # who does what follows when all NPUs have done something


class Alike(Apart):
    """As `Apart`, with one NPU for all, which gets what it sends; `MeetingError` where that may not be exact."""

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], delay: Delay, costs: Costs):
        super().__init__(env, ranks, delay, costs)
        self._free, self._doubts = CongestionFree(env, delay), Doubts(env)
        self.timers.default_factory = partial(_OwnSteps, env, self._doubts)
        if self._packets:
            self._packets.touched = self._doubts.touch

    def issued(self, stream: Stream) -> None:
        """As of `Apart`."""
        self._doubts.issue(partial(super().issued, stream))

    def places(self, rules: Cutting) -> Sequence[Place]:
        """The only one."""
        return [_Place(self.timers[0], Turns(stop), PhaseMaker(0, rules))]

    def _start(self, npu_class: int, stream: Stream | LonePhase, done: Callable[[Any], None]) -> None:
        self._doubts.follow(partial(super()._start, npu_class, stream, done))

    def _leave(self, stream: Stream | LonePhase, leave: Call) -> None:
        self._doubts.leave(partial(super()._leave, stream, leave))

    def _send_to(self, seat: Seat, peer: int, size_bytes: int, index: int) -> None:
        delay_ns = self._free.time_ns(seat.name[2], seat.members[peer], size_bytes)
        if not delay_ns:
            stop()
        # Messages that the same phase gets from several NPUs stand for each other.
        self._doubts.come(delay_ns, frozenset(((peer, seat.plan.moves, seat.members[1]), seat.name)))
        super()._send_to(seat, peer, size_bytes, index)

    def _pay(self, seat: Seat, phase: StreamPhase) -> Pay:
        pay = super()._pay(seat, phase)

        def paid(number: int, reduce_bytes: int, credit: Call) -> None:
            pay(number, reduce_bytes, partial(self._doubts.tell, credit))

        return paid


class _Place(Place, frozen=True):
    """As `Place`; what takes no time is done at once."""

    def after(self, delay_ns: int, then: Then) -> None:
        """Do something later."""
        if delay_ns:
            super().after(delay_ns, then)
        else:
            then(self.turns)


def stop() -> NoReturn:
    """NPUs may differ."""
    raise MeetingError


class Doubts:
    """Where NPUs may do things in different orders; it stops the run where that may make a difference.

    They differ in two ways. Of what comes to an NPU from several others, on its way since one time, they do not get the
    same first. And what follows when all have done something does so in the place of the last one, amid the list of
    what that one does then, behind the lists of the others. From there on the instant is in doubt, and so is the whole
    list of a later time that it asks for twice. In doubt, any order has to come to the same: of a list, one call tells
    others something; two calls neither queue packets on one bus, nor does one while the other end decides there, nor
    does one issue what others issue before all leave a phase by another.
    """

    def __init__(self, env: Environment):
        self._env, self._instant_ns, self._open_ns = env, -1.0, -1.0
        self._origins = dict[float, Origins]()  # of what comes, by how long that takes from the instant
        self._actor, self._told_by, self._listed = 0, 0, False
        self._asked, self._lists = set[float](), set[float]()
        self._touched = list[tuple[End, bool, int]]()
        self._left_ns, self._left_by = -1.0, 0

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

    def leave(self, call: Call) -> None:
        """All leave a phase, in the place of the last one."""
        self._left_ns, self._left_by = self._env.now, self._actor
        self.follow(call)

    def issue(self, call: Call) -> None:
        """Issue a chunk: some have done so before all leave a phase, others behind that."""
        if self._left_ns == self._env.now and self._left_by != self._actor:
            stop()
        self.tell(call)

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


class _OwnSteps(Steps):
    """As `Steps`, of one NPU that plays for all."""

    def __init__(self, env: Environment, doubts: Doubts):
        super().__init__(env)
        self._doubts = doubts

    def after(self, delay_ns: int, callback: Callback) -> None:
        if self._env.now + delay_ns not in self._due:
            self._doubts.come(delay_ns, _ITSELF)
        self._doubts.ask(delay_ns)
        super().after(delay_ns, callback)

    def _ring(self) -> None:
        self._doubts.ring()
        super()._ring()
