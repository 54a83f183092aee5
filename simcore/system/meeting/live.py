"""What meets on links that columns cannot play: a part of the network, message by message, from some past time on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from heapq import heappush
from operator import attrgetter
from typing import Any

from msgspec import Struct, field, structs

from simcore.network.congested import LinkNetwork
from simcore.network.core import NEVER
from simcore.network.instant import TRANSMISSION, Environment, after
from simcore.network.topology.fabric import IntArray
from simcore.system.alone.chain import Learn, of_all
from simcore.system.alone.solver import PhaseTimes
from simcore.system.groups import Communicator, class_of
from simcore.system.meeting.flights import Flight, MessageFlight, PhaseFlight, Place, Seat, Site, WholeFlight
from simcore.system.messages.layouts import Shape
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan
from simcore.system.streams import LonePhase, StreamPhase
from simcore.system.transport import Played
from simcore.units import format_ranks


class Past(Environment):
    """An environment that begins in the past, and becomes one with another when it has come up to it."""

    _joined: Environment | None = None
    _now = 0

    @property
    def now(self) -> int:
        """As of the other one, once they are one."""
        return self._joined.now if self._joined else self._now

    @now.setter
    def now(self, now_ns: int) -> None:
        if self._joined:
            self._joined.now = now_ns
        else:
            self._now = now_ns

    def catch_up(self, until_ns: int) -> None:
        """All that happens before a time."""
        if until_ns > self.now:
            self.run(until=until_ns)

    def join(self, env: Environment, *, moved: bool) -> None:
        """Go on as a part of an environment, up to what happens there now; heads of this instant may have `moved`."""
        if self._joined:
            return
        self.catch_up(env.now)
        until = env.now, NEVER if moved else env.entry[1]
        while self.calls and self.calls[0][:2] < until:
            self.step()
        for at_ns, priority, _, call in sorted(self.calls):
            heappush(env.calls, (at_ns, priority, next(env.numbers), call))
        self.calls, self.numbers, self._joined = env.calls, env.numbers, env


class _Entry(Struct, eq=False):
    """A phase or a message that is played: `kind` says which and when; of each place that has it, the flight.

    `plays` are members and plan of each group. `left` are the seats that have left, and when, `told` those of them that
    were told so before.
    """

    kind: tuple[Any, ...]
    plays: Sequence[tuple[IntArray, Plan]]
    flights: dict[Place, Flight]
    told: Collection[Seat] = ()
    left: dict[Seat, int] = field(default_factory=dict)

    def share(self, place: Place, flight: Flight) -> None:
        """It is that of another place, too."""
        flight.open = next(iter(self.flights.values())).open
        self.flights[place] = flight


def _kind(flight: PhaseFlight | MessageFlight) -> tuple[Any, ...]:
    """When it began, and what it is."""
    return flight.begin_ns, *flight.name


class Live:
    """Plays the messages of a place from `begin_ns` on: first what was alone so far, up to now, then what comes.

    One plays for all places in which the same has begun at the same times. One that parts from the others gets its own.
    Of one that plays no more `learn` takes the times of a phase that was alone to its end.
    """

    learn: Learn | None = None

    def __init__(self, network: type[LinkNetwork], shape: Shape, site: Site, costs: Costs, begin_ns: int):
        self.shape, self.begin_ns = shape, begin_ns
        self._site, self._costs = site, costs
        ranks = shape.graph.fold.classes(site.part.npus)
        self._class_of: list[int] = class_of(ranks).tolist()
        self.env = Past(begin_ns)
        self.network = network(self.env, shape.graph)
        self._transport = Played(self.env, ranks, self.network, costs)
        self._known: dict[tuple[StreamPhase, int], StreamPhase] = {}
        self._log: list[_Entry] = []
        self._seen: dict[Place, int] = {}  # how much of it has begun in a place

    def serve(self, place: Place) -> None:
        """Play for a place, too, in which nothing has begun yet."""
        self._seen[place] = 0

    def leave(self, place: Place) -> None:
        """Play for a place no more."""
        del self._seen[place]

    def end(self, place: Place) -> None:
        """All that was to be played for a place is over."""
        self.leave(place)
        if self.learn and len(self._log) == 1:
            self.learn(self._alone(self._log[0]))
            self.learn = None

    def _alone(self, entry: _Entry) -> PhaseTimes | None:
        """Of the phase that nothing met; None where it leaves something that would be met."""
        exits_ns: list[list[int]] = [[] for _ in entry.plays]
        for (group, _), left_ns in sorted(entry.left.items()):
            exits_ns[group].append(left_ns - self.begin_ns)
        times = structs.replace(
            self.times, exits_ns=of_all(exits_ns, [ids for ids, _ in entry.plays]), zero_ns=self.begin_ns
        )
        return None if self.network.remembers(self.begin_ns + times.end_ns) else times

    def apart(self) -> list[Place]:
        """Places in which not all of this has begun, where others have it all."""
        return [place for place, seen in self._seen.items() if seen < len(self._log)]

    def parted(self, place: Place, before: Callable[[Live, Flight], None]) -> Live:
        """One of its own for a place, that has played the same; `before` is told what is about to begin there."""
        own = Live(type(self.network), self.shape, self._site, self._costs, self.begin_ns)
        own.serve(place)
        for entry in self._log[: self._seen[place]]:
            flight = entry.flights.pop(place)
            before(own, flight)
            own._begin(place, flight, entry.kind, entry.plays, {*entry.left})
        self.leave(place)
        return own

    def adopt(self, place: Place, other: Live, kind: tuple[Any, ...] | None) -> bool:
        """Play for a place of another one where that has played the same, and what comes next is of a kind, if any."""
        seen = other._seen[place]
        own, theirs = self._log[:seen], other._log[:seen]
        following = self._log[seen].kind if seen < len(self._log) else None
        comes_now = following is None and kind is not None and kind[0] >= self.env.now
        if len(own) < seen or not (comes_now or following == kind):
            return False
        for one, another in zip(own, theirs, strict=True):
            if one.kind != another.kind or {*one.told, *one.left} != another.left.keys():
                return False
        for one, another in zip(own, theirs, strict=True):
            one.share(place, another.flights.pop(place))
        other.leave(place)
        self._seen[place] = seen
        return True

    def enter(self, place: Place, flight: PhaseFlight | MessageFlight, plays: Sequence[tuple[IntArray, Plan]]) -> bool:
        """Play a flight from its beginning; False where that is not what is played for others."""
        kind, seen = _kind(flight), self._seen[place]
        if seen < len(self._log):
            entry = self._log[seen]
            if entry.kind != kind:
                return False
            entry.share(place, flight)
            self._seen[place] += 1
        elif flight.begin_ns < self.env.now:
            return False
        else:
            self._begin(place, flight, kind, plays)
        return True

    def _begin(
        self,
        place: Place,
        flight: Flight,
        kind: tuple[Any, ...],
        plays: Sequence[tuple[IntArray, Plan]],
        told: Collection[Seat] = (),
    ) -> None:
        self.env.catch_up(flight.begin_ns)
        entry = _Entry(kind, plays, {place: flight}, told)
        self._log.append(entry)
        self._seen[place] += 1
        if isinstance(flight, PhaseFlight):
            flight.open = 0
            for group in range(len(plays)):
                self._play(entry, flight, group)
        elif isinstance(flight, MessageFlight):
            flight.open = 1
            deliver = partial(self._left, entry, (0, 0), None)
            self.network.send(*flight.kind, (NEVER, flight.tag), deliver)

    def _play(self, entry: _Entry, flight: PhaseFlight, group: int) -> None:
        """The phase of one of a flight's groups."""
        phase, number, (ids, plan) = flight.together.phase, flight.together.groups[group], entry.plays[group]
        members: list[int] = ids.tolist()
        here = self._known.get((phase, number))
        if here is None:
            lane = structs.replace(phase.lane, dim=Communicator(tuple(members)))
            here = self._known[phase, number] = structs.replace(phase, lane=lane)
            self._transport.plans.know(here, members[0], plan)
        seats = members[: self.shape.players(ids)]
        flight.open += len(seats)
        for position, npu in enumerate(seats):
            lone = LonePhase(flight.order, here)  # a number, which columns hold
            self._transport.start({self._class_of[npu]: lone}, partial(self._left, entry, (group, position)))

    def _left(self, entry: _Entry, seat: Seat, _: LonePhase | None) -> None:
        entry.left[seat] = int(self.env.now)
        for flight in [*entry.flights.values()]:
            flight.open -= 1
            if not flight.open:
                flight.end_ns = int(self.env.now)
            if seat not in entry.told:
                flight.leave(seat)

    @property
    def matters(self) -> bool:
        """Whether what was sent before now may still meet what comes."""
        return self.network.remembers(int(self.env.now))

    @cached_property
    def times(self) -> PhaseTimes:
        """What links did, from the beginning of the run on, once it is over."""
        return PhaseTimes([[0]], *self.network.counts(), self.network.times(), self.network.queues())

    def stuck(self) -> list[str]:
        """As `Network.stuck`; in a part of the machine its NPUs are numbered by themselves."""
        part, found, place = self._site.part, self.network.stuck(), next(iter(self._seen), None)
        if not found or part.whole or not place:
            return found
        npus = format_ranks(part.members(place.base).tolist())
        return [f"among NPUs {npus}, here 0 to {part.npus - 1}:", *found]


class Lives:
    """Who plays what meets, one for all places in which the same has begun at the same times."""

    def __init__(self, env: Environment, network: type[LinkNetwork], costs: Costs):
        self._env, self._network, self._costs = env, network, costs
        self._begun: list[Live] = []  # where something has begun in this instant
        self._parted: list[Live] = []  # from others in this instant
        self.fresh: set[Flight] = set()  # what has begun since heads moved
        self._moved_ns = -1

    def begin(self, place: Place, begin_ns: int) -> Live:
        """One that plays a place from some past time on, with the others of which that is so in this instant."""
        same = (live for live in self._begun if (live.shape, live.begin_ns) == (place.shape, begin_ns))
        live = next(same, None) or Live(self._network, place.shape, place.site, self._costs, begin_ns)
        live.serve(place)
        place.play_from_now(live)
        return live

    def uncover(self, place: Place, new: Flight, enter: Callable[[Place, PhaseFlight], None]) -> Live:
        """Who plays a place, as one begins that meets others: those that are alone so far, from their beginnings on."""
        for other in [*place.flights]:
            if isinstance(other, WholeFlight):
                other.disturbed()
        place.meeting(new)  # those that are over are gone
        others = sorted((other for other in place.flights if other.alone), key=attrgetter("begin_ns"))
        live = self.begin(place, min([new.begin_ns, *(other.begin_ns for other in others)]))
        for other in others:
            other.land()
            if isinstance(other, PhaseFlight):
                enter(place, other)
            elif isinstance(other, MessageFlight):
                self.enter(place, other, [])
        live = place.lives[-1]  # it may have parted from the others
        self.join(live)
        return live

    def enter(self, place: Place, flight: PhaseFlight | MessageFlight, plays: Sequence[tuple[IntArray, Plan]]) -> None:
        """Play a flight with those that have been played in its place up to now."""
        live = place.live(flight.begin_ns)
        if live:
            self._before(live, flight)
        while live and not live.enter(place, flight, plays):
            live = self._part(live, place, _kind(flight))
            self._before(live, flight)
        if live and live not in self._begun:
            self._begun.append(live)

    def settle(self) -> None:
        """At the end of an instant, what has not begun in all places parts them."""
        for live in self._begun:
            for place in live.apart():
                self.join(self._part(live, place))
        self._begun.clear()
        self._parted.clear()
        after(self._env, 0, self._move, TRANSMISSION)

    def join(self, live: Live) -> None:
        """What is played from some past time on goes on with the run."""
        now_ns = int(self._env.now)
        live.env.join(self._env, moved=self._moved_ns == now_ns)

    def _part(self, live: Live, place: Place, kind: tuple[Any, ...] | None = None) -> Live:
        """One that plays a place with those that part in the same way, as something of a kind begins, or nothing."""
        own = next((each for each in self._parted if each.adopt(place, live, kind)), None)
        if own is None:
            own = live.parted(place, self._before)
            self._parted.append(own)
        place.play_from_now(own)
        return own

    def _before(self, live: Live, flight: Flight) -> None:
        """Heads that have moved in this instant did so before what is fresh began."""
        if flight in self.fresh:
            self.join(live)

    def _move(self) -> None:
        """The heads of this instant have moved."""
        self._moved_ns = int(self._env.now)
        self.fresh.clear()
