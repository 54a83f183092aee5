"""Phases on shared links: one that is alone takes its own time, those that meet are played message by message.

A phase that begins on links that nobody uses is told at once when it will be over: that was worked out when its like
first came along. When another one wants one of its links before that, both are handed over to `network.core`, which
plays all their messages from their beginnings: nobody can have met them until then, so nothing is played twice in
vain and nothing is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial, reduce
from operator import or_
from typing import Any

import numpy as np

from simcore.network.core import NEVER
from simcore.network.instant import BEGINNING, TRANSMISSION, Environment, Timers, after
from simcore.network.parts import FoldedLinks
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.moves import EVERYBODY
from simcore.system.alone.chain import Learn, Phases
from simcore.system.alone.solver import PhaseTimes
from simcore.system.groups import GroupDim, class_of
from simcore.system.meeting.flights import (
    LAST,
    Flight,
    MessageFlight,
    PhaseFlight,
    Place,
    Seat,
    Site,
    Taken,
    Together,
    Way,
    WholeFlight,
    components,
    link_bits,
    tell,
)
from simcore.system.meeting.live import Lives
from simcore.system.messages.layouts import Layouts, Running, Shape
from simcore.system.plans.maker import Costs, uneven
from simcore.system.plans.plan import Plan
from simcore.system.streams import Stream, StreamPhase, through
from simcore.system.transport import Done, Transport
from simcore.timeline.events import LinkTable, QueueTable
from simcore.timeline.link_use import LinkHistory


class Shared(Transport):
    """Transport on links that are shared, for groups that begin their phases together.

    `ranks[c]` are the NPUs of class c, `sites` the parts of the network, `names` those of all communicators. `plays`:
    `network.core` can play those that meet; else a place is played message by message as long as that matters.
    """

    _env: Environment
    _rehearses = False  # for what is told as a whole, which nothing is that is played live

    def __init__(
        self,
        env: Environment,
        ranks: Sequence[Sequence[int]],
        links: LinkGraph,
        phases: Callable[[Layouts], Phases],
        costs: Costs,
        *,
        sites: Sequence[Site],
        plays: bool = True,
    ):
        super().__init__(env, ranks, costs)
        self._links, self._sites, self._class_of = links, sites, class_of(ranks)
        self._layouts = Layouts(timed=links.timed, share=lambda: env.share())  # noqa: PLW0108 - set later
        self._phases, self._plays = phases(self._layouts), plays
        self._shapes: dict[Hashable, Shape] = {}
        self._times: dict[tuple[Hashable, tuple[Any, ...]], PhaseTimes | None] = {}  # by shape and kind
        self._bits: dict[tuple[Hashable, StreamPhase, int], int] = {}
        self._laid: dict[tuple[Hashable, StreamPhase, int], list[tuple[int, int]]] = {}
        self._apart: dict[tuple[Hashable, StreamPhase, tuple[int, ...]], list[tuple[int, ...]]] = {}
        self._alike: dict[tuple[int, bytes], int] = {}  # places of the same classes, by number of the site
        self._enter_env(env)

    def _enter_env(self, env: Environment) -> None:
        """Nobody is there yet."""
        self._env, self._timers, self._running = env, Timers(env), Running(self._layouts)
        self._places: dict[tuple[int, int], Place] = {}
        self._place, self._way = cache(self._find_place), cache(self._find_way)
        self._seated = cache(self._find_seats)
        self._flight_of: dict[int, tuple[Flight, int]] = {}
        self._beginning: dict[Place, None] = {}
        self._messages: list[tuple[Way, MessageFlight]] = []
        self._settling = self._leaves_at_once = False
        self._moved_ns = -1
        self._lives = Lives(env, self._phases.network, self._costs)
        self._due: set[int] = set()

    def empty(self, env: Environment) -> Shared:
        """The same network with nobody on it, in an environment of its own; what is known of phases serves both."""
        other = copy(self)
        other._rehearses = True
        other._enter_env(env)
        return other

    # Who begins, and who sends.

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase; it is known at the end of this instant who else does."""
        npu_class, stream = next(iter(streams.items()))
        place = self._place(npu_class, stream.phase.lane.dim)
        there, _ = place.starting.setdefault((stream.key, stream.at, stream.phase), ({}, done))
        there.update(streams)
        self._beginning[place] = None
        self._settle_later()

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between two NPUs."""
        way = self._way(src, dst, size_bytes)
        begun, now_ns = way.place.begun.setdefault(way.kind, []), int(self._env.now)
        flight = MessageFlight(way.bits, now_ns, LAST, lambda _: deliver(), begun, kind=way.kind, tag=key[0])
        self._messages.append((way, flight))
        self._settle_later()

    # What is told as a whole.

    def taken(self) -> Taken | None:
        """What began when, on which links; None where messages met."""
        if self._running.used or any(place.lives for place in self._places.values()):
            return None
        return [
            (key, reduce(or_, (self._links_of(place, *kind) for kind in place.begun), 0), place.begun)
            for key, place in self._places.items()
        ]

    def take(self, taken: Taken, end_ns: int, disturbed: Callable[[], None]) -> Callable[[], None] | None:
        """Take links until a time, or until somebody else wants one; what gives them back, None where some are used."""
        now_ns = int(self._env.now)
        flights = []
        for key, bits, _ in taken:
            place = self._place_at(*key)
            if place.site.meets:
                flight = WholeFlight(bits, now_ns, LAST, lambda _: None, [], end_ns, disturbed=disturbed)
                if place.meeting(flight) or place.live(now_ns):
                    return None
                flights.append((place, flight))
        for place, flight in flights:
            place.flights.append(flight)

        def free() -> None:
            for _, flight in flights:
                flight.end_ns = now_ns

        return free

    def count(self, taken: Taken, firsts_ns: Sequence[int], until_ns: int = LAST) -> None:
        """Count what has begun from each of some beginnings on, before a time that is counted from there."""
        for key, _, begun in taken:
            place = self._place_at(*key)
            for kind, begins_ns in begun.items():
                past = [each for each in begins_ns if each < until_ns]
                place.begun.setdefault(kind, []).extend(first_ns + each for first_ns in firsts_ns for each in past)

    def resume(self, classes: Sequence[int], streams: Mapping[int, Stream], begin_ns: int, until_ns: int) -> None:
        """Go on with a phase that classes began, and is counted; those of `streams` are in it at `until_ns`."""
        stream = next(iter(streams.values()))
        places: dict[Place, list[int]] = {}
        for npu_class in classes:
            places.setdefault(self._place(npu_class, stream.phase.lane.dim), []).append(npu_class)
        order, now_ns = self._order(stream.key, stream.at), int(self._env.now)
        for place, own in places.items():
            for together in self._seated(place, stream.phase, tuple(sorted(own))):
                exits = [exit_ns for exit_ns, _ in self._exits(place, together) or ()]
                told = sum(begin_ns + exit_ns < until_ns for exit_ns in exits)
                if begin_ns + together.end_ns >= until_ns:  # a class has its seat in one of its groups, all use links
                    flight = PhaseFlight.of(together, begin_ns, order, streams, through)
                    flight.alone, flight.told, flight.end_ns = True, told, begin_ns + together.end_ns
                    if place.site.meets:
                        place.flights.append(flight)
                    for exit_ns, leaving in together.exits[told:]:
                        self._timers.after(begin_ns + exit_ns - now_ns, partial(self._through, flight, leaving))

    # The end of an instant: everybody who begins now is known.

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            after(self._env, 0, self._settle, TRANSMISSION if self._plays else BEGINNING)

    def _settle(self) -> None:
        """Begin what begins, give links to the heads that are there, and play on while nobody else does anything."""
        self._settling = False
        now_ns = int(self._env.now)
        flights = [*self._new_flights(now_ns)]
        messages, self._messages = self._messages, []
        if self._moved_ns == now_ns and self._plays:
            begin = (*flights, *((way.place, message) for way, message in messages))
            alone = [self._uncover(place, flight)[1] for place, flight in begin]
            while any(alone) and self._running.play(now_ns, now_ns) == now_ns and (left := self._running.left()):
                self._leaves_at_once = True
                self._leave(left)  # their heads have moved in this instant, too
        for place, flight in flights:
            self._begin(place, flight)
        for way, message in messages:
            self._send(way, message)
        if self._leaves_at_once:  # what begins behind it may send in this instant, too
            self._leaves_at_once = False
            self._tick()
        elif self._plays:
            self._play_on()
        else:
            self._lives.settle()

    def _play_on(self) -> None:
        """Play until something else happens; who leaves before that may be the cause of it."""
        env, running = self._env, self._running
        now_ns, limit_ns = int(env.now), env.peek()
        while (next_ns := running.play(limit_ns, now_ns)) < limit_ns and (left := running.left()):
            self._moved_ns = max(self._moved_ns, next_ns - 1)
            env.now = next_ns
            self._leave(left)
            now_ns, limit_ns = next_ns, env.peek()
            if limit_ns <= now_ns:
                self._settle_later()
                return
        if next_ns > now_ns or not running.leaving:
            self._moved_ns = next_ns if next_ns < limit_ns else now_ns
        if next_ns not in self._due and (next_ns < NEVER or self._flight_of):  # who is under way comes then, or later
            self._due.add(next_ns)
            after(self._env, next_ns - now_ns, self._tick)

    def _tick(self) -> None:
        """Somebody leaves a phase that is played, or messages arrive beside other things that happen now."""
        now_ns = int(self._env.now)
        self._due.discard(now_ns)
        self._running.happen(now_ns)
        self._leave(self._running.left())
        self._settle_later()

    def _leave(self, left: Sequence[Sequence[int]]) -> None:
        """Tell those who wait for ranks that have left."""
        for _, instance, position in left:
            flight, group = self._flight_of[instance]
            seat, parts = (group, position), flight.parts
            flight.open -= 1
            if not flight.open:
                flight.end_ns = int(self._env.now)
                for over in flight.instances:
                    del self._flight_of[over]
                    self._running.end(over)
            if parts and seat in parts:
                parts[seat] -= 1
                if parts[seat]:
                    continue
            flight.leave(seat)

    # A phase begins.

    def _new_flights(self, now_ns: int) -> Iterator[tuple[Place, PhaseFlight]]:
        places, self._beginning = self._beginning, {}
        for place in places:
            begins, place.starting = place.starting, {}
            for (key, at, phase), (there, done) in begins.items():
                for together in self._seated(place, phase, tuple(sorted(there))):
                    yield place, PhaseFlight.of(together, now_ns, self._order(key, at), there, done)

    def _begin(self, place: Place, flight: PhaseFlight) -> None:
        exits = None if self._meets(place, flight) else self._exits(place, flight.together)
        if exits is None:
            self._enter(place, flight)
            return
        flight.fly(flight.together.end_ns)
        for exit_ns, classes in exits:
            self._leaves_at_once |= not exit_ns
            self._timers.after(exit_ns, partial(self._through, flight, classes))

    def _find_seats(self, place: Place, phase: StreamPhase, classes: tuple[int, ...]) -> list[Together]:
        """Which groups begin when some classes do, and where in them each class is."""
        own = [place.seats(phase.lane.dim, npu_class) for npu_class in classes]
        begun = tuple(sorted({group for seats in own for group, _ in seats}))
        found = []
        for groups in self._together(place, phase, begun):
            where = {group: index for index, group in enumerate(groups)}
            seats: dict[Seat, list[int]] = {}
            for npu_class, ((group, position), *_) in zip(classes, own, strict=True):
                if group in where:
                    seats.setdefault((where[group], position), []).append(npu_class)
            begins = place.begun.setdefault((phase, groups), [])
            found.append(Together(phase, groups, self._links_of(place, phase, groups), seats, begins))
        return found

    def _exits(self, place: Place, together: Together) -> list[tuple[int, list[int]]] | None:
        """Who leaves after what time, where nobody else is there; None where that cannot be told."""
        if not together.exits:
            times = self._times_of(place, together.phase, together.groups)
            if times is None:
                return None
            together.learn(times)
        return together.exits

    def _through(self, flight: PhaseFlight, classes: Sequence[int]) -> None:
        """The time of a phase that was alone is over, if it still is alone."""
        if flight.alone:
            flight.told += 1
            for npu_class in classes:
                flight.done(flight.there[npu_class])

    def _meets(self, place: Place, flight: PhaseFlight | MessageFlight) -> bool:
        """Whether a flight meets others, which it is now one of, or still may, as its instant goes on behind heads."""
        if not self._plays:
            return self._goes_live(place, flight)
        if not place.site.meets:
            return False
        met, _ = self._uncover(place, flight)
        place.flights.append(flight)
        return bool(met) or self._moved_ns == flight.begin_ns

    def _uncover(self, place: Place, flight: Flight) -> tuple[list[Flight], bool]:
        """Whom a flight meets; those that were alone are played from their beginning on. Whether there were some."""
        met = place.meeting(flight) if place.site.meets else []
        for other in met:
            if isinstance(other, WholeFlight):
                other.disturbed()
                met = place.meeting(flight)
        alone = [other for other in met if isinstance(other, PhaseFlight) and other.alone]
        for other in alone:
            other.land()
            self._enter(place, other)
        return met, bool(alone)

    def _goes_live(self, place: Place, new: PhaseFlight | MessageFlight) -> bool:
        """As `_meets`, where columns do not play: all that is alone there is played then, as it may be met later."""
        self._lives.fresh.add(new)
        live, met = place.live(new.begin_ns), place.meeting(new)
        learn = self._learning(place, new.together) if isinstance(new, PhaseFlight) and not place.flights else None
        if not (learn or live or met) and self._told(place, new):
            if place.site.meets:
                place.flights.append(new)
            return False
        if live is None:
            self._lives.uncover(place, new, self._enter).learn = learn
        place.flights.append(new)
        return True

    def _told(self, place: Place, new: PhaseFlight | MessageFlight) -> bool:
        """Whether it is known how long a flight takes where nobody else is."""
        if isinstance(new, MessageFlight):
            return self._message_of(place, new.kind) is not None
        return self._exits(place, new.together) is not None

    def _learning(self, place: Place, together: Together) -> Learn | None:
        """Of a phase of all NPUs, none of whose like has come before: who leaves it may meet those still in it."""
        if self._rehearses or together.exits or not place.site.part.whole:
            return None
        plans, members = self._plans(place, together.phase, together.groups)
        everybody = sum(map(len, members)) == place.site.part.npus
        return self._phases.learning(place.shape, together.phase, plans, members) if everybody else None

    def _message_of(self, place: Place, kind: tuple[int, int, int]) -> PhaseTimes | None:
        key = (place.shape.name, kind)
        if key not in self._times:
            self._times[key] = self._phases.message(place.shape, *kind)
        return self._times[key]

    def _enter(self, place: Place, flight: PhaseFlight) -> None:
        """Play a phase from its beginning up to now; those who have left already do not do so again."""
        phase = flight.together.phase
        costs = self._costs.of(phase.lane)
        gone = {npu_class for _, classes in flight.together.exits[: flight.told] for npu_class in classes}
        if gone:
            there = {npu_class: stream for npu_class, stream in flight.there.items() if npu_class not in gone}
            flight.leave = partial(tell, flight.together, there, flight.done)
        if place.live(flight.begin_ns):
            plays = self._plans(place, phase, flight.together.groups)[::-1]
            self._lives.enter(place, flight, [*zip(*plays, strict=True)])
            return
        for own, group in enumerate(flight.together.groups):
            layouts = self._laid_out(place, phase, group, costs)
            for layout, base in layouts:
                instance = self._running.start(layout, flight.order, base, place.shift, flight.begin_ns)
                flight.instances.append(instance)
                self._flight_of[instance] = (flight, own)
                ranks = self._layouts.state.layouts[layout].ranks
                flight.open += ranks
                if len(layouts) > 1:
                    flight.parts |= {(own, position): len(layouts) for position in range(ranks)}
        now_ns = int(self._env.now)
        self._running.play(now_ns)
        while left := self._running.left():
            self._leaves_at_once |= flight.begin_ns == now_ns
            self._leave(left)
            self._running.play(now_ns)

    # What phases are.

    def _laid_out(self, place: Place, phase: StreamPhase, group: int, costs: Costs) -> list[tuple[int, int]]:
        key = (place.shape.name, phase, group)
        found = self._laid.get(key)
        if found is None:
            members = place.groups(phase.lane.dim)[group]
            plan = self._plan(place, phase, members)
            found = self._laid[key] = self._layouts.of(place.shape, plan, members, costs)
        return found

    def _find_place(self, npu_class: int, dim: GroupDim) -> Place:
        parts = enumerate(site.part for site in self._sites)
        number = next(number for number, part in parts if part.first <= dim.index <= part.last)
        return self._place_at(number, self._base(number, npu_class))

    def _base(self, number: int, npu_class: int) -> int:
        """The first NPU of the place of a class that is played: one for all of the same classes, whoever is where."""
        site = self._sites[number]
        base = site.part.base(int(self._ranks[npu_class][0]))
        if site.placeless and 1 < len(self._ranks) < len(self._class_of):
            classes = np.sort(self._class_of[site.part.members(base)])
            return self._alike.setdefault((number, classes.tobytes()), base)
        return base

    def _place_at(self, number: int, base: int) -> Place:
        found = self._places.get((number, base))
        if found is None:
            site = self._sites[number].where(self._class_of[self._sites[number].part.members(base)])
            noisy = bool(self._links.topology.noise.links)
            name = (number, base if noisy else 0, site.fold)
            if name not in self._shapes:
                graph = site.part.graph_of(base)
                if site.fold != EVERYBODY:
                    graph = FoldedLinks(graph, site.fold)
                self._shapes[name] = Shape(name, graph)
            shape = self._shapes[name]
            shift = self._running.add_links(len(shape.graph))
            found = self._places[number, base] = Place(site, base, shape, shift, self._class_of)
        return found

    def _plan(self, place: Place, phase: StreamPhase, members: IntArray) -> Plan:
        """What a group sends; InputError where that makes NPUs differ that were taken to be alike."""
        plan = self.plans.of(phase, place.base + int(members[0]) * place.site.part.stride)
        alike = place.site.alike or place.shape.players(members) < len(members)
        if alike and not plan.symmetries <= place.site.part.symmetries:
            raise uneven(phase)
        return plan

    def _plans(self, place: Place, phase: StreamPhase, groups: Sequence[int]) -> tuple[list[Plan], list[IntArray]]:
        """What some groups send, and their members."""
        members = [place.groups(phase.lane.dim)[group] for group in groups]
        return [self._plan(place, phase, each) for each in members], members

    def _times_of(self, place: Place, phase: StreamPhase, groups: tuple[int, ...]) -> PhaseTimes | None:
        key = (place.shape.name, (phase, groups))
        if key not in self._times:
            self._times[key] = self._phases.times(place.shape, phase, *self._plans(place, phase, groups))
        return self._times[key]

    def _together(self, place: Place, phase: StreamPhase, begun: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Groups that begin at once, those that share links together."""
        if len(begun) == 1 or not place.site.meets:
            return [(group,) for group in begun]
        key = (place.shape.name, phase, begun)
        found = self._apart.get(key)
        if found is None:
            found = self._apart[key] = components([(group, self._group_bits(place, phase, group)) for group in begun])
        return found

    def _links_of(self, place: Place, phase: StreamPhase, groups: tuple[int, ...]) -> int:
        """The links of some groups, a bit for each; nobody asks where phases never meet."""
        return reduce(or_, (self._group_bits(place, phase, group) for group in groups if place.site.meets), 0)

    def _group_bits(self, place: Place, phase: StreamPhase, group: int) -> int:
        key = (place.shape.name, phase, group)
        found = self._bits.get(key)
        if found is None:
            members = place.groups(phase.lane.dim)[group]
            ends = members[self._plan(place, phase, members).ends(place.shape.players(members))]
            if self._costs.rendezvous:  # receivers ask on the ways back
                ends = np.concatenate([ends, ends[::-1]], axis=1)
            found = self._bits[key] = link_bits(place.shape, self._phases.network, *ends)
        return found

    def _order(self, chunk: tuple[int, int], at: int) -> int:
        """A number that orders phases as (turn of the communicator, number of the chunk, phase) do."""
        turn, number = chunk
        return (turn << 46) + (number << 6) + at

    def _send(self, way: Way, flight: MessageFlight) -> None:
        """A message of no phase is always played, where messages are; others that use its links are, too."""
        place = way.place
        met = self._meets(place, flight)
        if not self._plays:
            times, live = None if met else self._message_of(place, flight.kind), place.live(flight.begin_ns)
            if times:
                flight.fly(times.end_ns)
                self._timers.after(times.end_ns, lambda: flight.leave((0, 0)) if flight.alone else None)
            elif live:
                self._lives.enter(place, flight, [])
            return
        instance = self._running.send(LAST, flight.tag, way.sender, way.hop, place.shift, flight.begin_ns)
        flight.instances, flight.open = [instance], 1
        self._flight_of[instance] = (flight, 0)

    def _find_way(self, src: int, dst: int, size_bytes: int) -> Way:
        """Where a message goes."""
        number = next(n for n, site in enumerate(self._sites) if site.part.base(src) == site.part.base(dst))
        part = self._sites[number].part
        place = self._place_at(number, self._base(number, int(self._class_of[part.base(src)])))
        ends = np.array([part.local(src)]), np.array([part.local(dst)])
        hop = self._layouts.hops(place.shape, *ends, [size_bytes])[0]
        here, there = part.local(src), part.local(dst)
        bits = link_bits(place.shape, self._phases.network, *ends)
        return Way(place, bits, hop, here * part.npus + there, (here, there, size_bytes))

    # What links carried.

    def links(self) -> LinkTable:
        """What every link carried: each place did what the place of its classes did."""
        size_bytes, busy_ns = np.zeros((2, len(self._links)), np.int64)
        for place, bases in self._copies():
            own_bytes, own_ns = self._running.counts(place.shift, len(place.shape.graph))
            for times, begins_ns in self._alone(place):
                own_bytes += len(begins_ns) * times.size_bytes
                own_ns += len(begins_ns) * times.busy_ns
            place.put(bases, size_bytes, own_bytes)
            place.put(bases, busy_ns, own_ns)
        table = self._links.table(size_bytes, busy_ns)
        if self._phases.network.has_queues:
            queues = QueueTable.repeated([*self._queued()], self._running.links + 1)
            table = replace(table, queues=queues.on(self._stands_for()))
        return replace(table, use=self._use()) if self._links.timed else table

    def notes(self) -> list[str]:
        """What the network leaves out."""
        return self._phases.network.notes_on(max((table.curves.most_rows for table, _, _ in self._queued()), default=0))

    def stuck(self) -> list[str]:
        """What of the network waits for each other, when nothing moves any more."""
        lives = dict.fromkeys(live for place in self._places.values() for live in place.lives)
        return [line for live in lives for line in live.stuck()]

    def _stands_for(self) -> IntArray:
        """Which of the links that were played each link stands for; the one behind them of those that were not."""
        found = np.full(len(self._links), self._running.links)
        for place, bases in self._copies():
            place.put(bases, found, np.arange(len(place.shape.graph)) + place.shift)
        return found

    def _queued(self) -> Iterator[tuple[QueueTable, int, Sequence[int]]]:
        """What queues did in each phase of each place, its first link there, and when it began."""
        for place in self._places.values():
            for times, begins_ns in self._alone(place):
                if times.queues:
                    yield times.queues, place.shift, begins_ns

    def _alone(self, place: Place) -> Iterator[tuple[PhaseTimes, Sequence[int]]]:
        """What was alone in a place, and when it began."""
        name = place.shape.name
        found = [(self._times[name, kind], begins) for kind, begins in place.begun.items() if begins]
        yield from [(times, [each - times.zero_ns for each in begins]) for times, begins in found if times]
        yield from [(live.times, [0]) for live in place.lives]

    def _copies(self) -> Iterator[tuple[Place, IntArray]]:
        """Every place that was played, with the first NPUs of those that it stands for."""
        for number, site in enumerate(self._sites):
            part = site.part
            ids = np.arange(self._links.npus)
            bases = ids[ids // part.stride % part.npus == 0] if not part.whole else np.zeros(1, np.int64)
            classes, which = np.unique(self._class_of[bases], return_inverse=True)
            stands = np.array([self._base(number, each) for each in classes.tolist()])[which]
            for base in sorted(set(stands.tolist())):
                if (number, base) in self._places:
                    yield self._places[number, base], bases[stands == base]

    def _use(self) -> LinkHistory | None:
        """When links were occupied."""
        parts = [self._running.rows()]
        for place, _ in self._copies():
            for times, begins_ns in self._alone(place):
                if times.occupied is None:
                    return None
                parts.append(times.occupied.again(place.shift, begins_ns))
        return LinkHistory(parts, self._stands_for())
