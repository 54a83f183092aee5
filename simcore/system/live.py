"""What meets on links that columns cannot play: a part of the network, message by message, from some past time on."""

from __future__ import annotations

from functools import partial
from typing import Any

import simpy
from msgspec import structs

from simcore.network.congested import LinkNetwork
from simcore.network.core import NEVER
from simcore.network.instant import Environment
from simcore.system.flights import MessageFlight, PhaseFlight, Place, Seat
from simcore.system.groups import Communicator
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan
from simcore.system.played import Played
from simcore.system.solver import PhaseTimes
from simcore.system.streams import Stream, StreamPhase
from simcore.timeline.link_use import OccupiedLinks
from simcore.units import format_ranks


class Past(Environment):
    """An environment that begins in the past, and becomes one with another when it has come up to it."""

    _joined: Environment | None = None

    @property
    def now(self) -> simpy.core.SimTime:
        """As of the other one, once they are one."""
        return self._joined.now if self._joined else self._now

    def schedule(
        self, event: simpy.Event, priority: simpy.events.EventPriority = simpy.events.NORMAL, delay: float = 0
    ) -> None:
        """As of the other one, once they are one."""
        if self._joined:
            self._joined.schedule(event, priority, delay)
        else:
            super().schedule(event, priority, delay)

    def peek(self) -> simpy.core.SimTime:
        """As of the other one, once they are one."""
        return self._joined.peek() if self._joined else super().peek()

    def move_on(self, now_ns: int) -> None:
        """As of the other one, once they are one."""
        if self._joined:
            self._joined.move_on(now_ns)
        else:
            super().move_on(now_ns)

    def catch_up(self, until_ns: int) -> None:
        """All that happens before a time."""
        if until_ns > self.now:
            self.run(until=until_ns)

    def join(self, env: Environment) -> None:
        """Go on as a part of an environment."""
        self.catch_up(int(env.now))
        for at_ns, priority, _, event in sorted(self._queue):
            env.schedule(event, priority, at_ns - env.now)
        self._queue.clear()
        self._joined = env


class Live:
    """Plays the messages of a place from `begin_ns` on: first what was alone so far, up to now, then what comes."""

    def __init__(self, network: type[LinkNetwork], place: Place, costs: Costs, begin_ns: int):
        npus = place.site.part.npus
        self._place, self._width = place, npus // (place.site.lone or npus)
        ranks = [range(first, first + self._width) for first in range(0, npus, self._width)]
        self.env = Past(begin_ns)
        self.network = network(self.env, place.shape.graph)
        self._transport = Played(self.env, ranks, self.network, costs)
        self._known: dict[tuple[StreamPhase, int], StreamPhase] = {}

    def enter(self, flight: PhaseFlight, group: int, plan: Plan) -> None:
        """Play the phase of one of a flight's groups from its beginning, which is not before what was played last."""
        self.env.catch_up(flight.begin_ns)
        phase, number = flight.together.phase, flight.together.groups[group]
        members: list[int] = self._place.groups(phase.lane.dim)[number].tolist()
        here = self._known.get((phase, number))
        if here is None:
            lane = structs.replace(phase.lane, dim=Communicator(tuple(members)))
            here = self._known[phase, number] = structs.replace(phase, lane=lane)
            self._transport.plans.know(here, members[0], plan)
        some = next(iter(flight.there.values()))
        key: Any = flight.order  # of the chunk and its phase; a number, which columns hold
        seats = members[:1] if self._place.site.lone else members
        flight.open += len(seats)
        for position, npu in enumerate(seats):
            stream = Stream(key, some.dataset, some.phases)
            stream.phase = here
            self._transport.start({npu // self._width: stream}, partial(self._left, flight, (group, position)))

    def send(self, flight: MessageFlight) -> None:
        """Play a message of no phase, in the same way."""
        self.env.catch_up(flight.begin_ns)
        flight.open = 1
        deliver = partial(self._left, flight, (0, 0), None)
        self.network.send(*flight.kind, (NEVER, flight.tag), deliver)

    def _left(self, flight: PhaseFlight | MessageFlight, seat: Seat, _: Stream | None) -> None:
        flight.open -= 1
        if not flight.open:
            flight.end_ns = int(self.env.now)
        flight.leave(seat)

    @property
    def matters(self) -> bool:
        """Whether what was sent before now may still meet what comes."""
        return self.network.remembers(int(self.env.now))

    @property
    def times(self) -> PhaseTimes:
        """What links did, from the beginning of the run on."""
        rows = self.network.times()
        occupied = None if rows is None else OccupiedLinks.of(rows)
        return PhaseTimes([[0]], *self.network.counts(), occupied, self.network.queues())

    def stuck(self) -> list[str]:
        """As `Network.stuck`; in a part of the machine its NPUs are numbered by themselves."""
        part, found = self._place.site.part, self.network.stuck()
        if not found or part.whole:
            return found
        npus = format_ranks(part.members(self._place.base).tolist())
        return [f"among NPUs {npus}, here 0 to {part.npus - 1}:", *found]
