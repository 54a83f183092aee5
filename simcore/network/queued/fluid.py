"""Messages as flows through links with queues: congestion control, and several ways at once, without segments."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, cast

import numpy as np
from msgspec import Struct

from simcore.network.clock import whole_latency
from simcore.network.congested import Deliver, Path
from simcore.network.core import NEVER
from simcore.network.instant import TRANSMISSION, Environment, after
from simcore.network.queued.channels import channel_rows, told_circle
from simcore.network.queued.flow_tables import (
    FINE,
    PARTS,
    SIGNALS,
    Counts,
    Flow,
    Hop,
    Queue,
    Signal,
    State,
    Way,
)
from simcore.network.queued.flows import PACKET_BYTES
from simcore.network.queued.islands import COUNTED, Island, Islands
from simcore.network.queued.network import Arrival, QueuedNetwork
from simcore.network.queued.routing import in_common
from simcore.network.queued.tables import CREDITS, FREE, NOBODY
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import FLOW_CONTROLS, PLAIN, UNLIMITED, Ports
from simcore.timeline.events import QueueTable
from simcore.units import transfer_ns

LONGEST_STEP_NS = 1000
SIGNALS_OF_A_ROUND_TRIP = 4
OF_A_FLOW = ("injected", "loaded", "ended", "unsaid", "counted")
"""Columns of ways that begin anew with their flow."""
NOTE = (
    "queues: messages are flows, in steps of a link's latency, many at once where they change slowly; laws of "
    "congestion control hear of queues four times in a round trip (DCQCN less often where hardly anything is marked), "
    "begin anew in each phase, and were compared with no network card; `segment` plays segments"
)


class _Route(Struct, frozen=True, eq=False, dict=True):
    """From one NPU to another: the ways, whose law is obeyed, and the latency of the longest way back.

    `rows` are those of the channels of each way. `adaptive`: the less waits on a way the more it takes; else all take
    the same.
    """

    paths: Sequence[Path]
    rows: Sequence[Sequence[int]]
    rules: Ports
    back_ns: int
    adaptive: bool

    @cached_property
    def links(self) -> list[int]:
        """Of all ways."""
        return [*dict.fromkeys(link for path in self.paths for link in path.links)]

    @cached_property
    def latencies_ns(self) -> list[int]:
        """Of each way."""
        return [sum(path.steps_ns) for path in self.paths]

    @cached_property
    def step_ns(self) -> int:
        """As long as the shortest link is."""
        return min(LONGEST_STEP_NS, *(step for path in self.paths for step in path.steps_ns))

    @cached_property
    def line_bytes_per_s(self) -> float:
        """Of all links by which ways leave the sender; the same in every version of Python."""
        return math.fsum({path.links[0]: path.rates[0] for path in self.paths}.values())

    @cached_property
    def ways(self) -> list[dict[str, int]]:
        """What each way is, wherever its tanks are."""
        before, behind = in_common([path.links for path in self.paths])
        beside, soonest_ns = Counter(path.links[0] for path in self.paths), min(self.latencies_ns)
        return [
            {
                "hops": len(path.links),
                "part": FINE // beside[path.links[0]],
                "latency_ns": latency_ns,
                "fork": before,
                "join": len(path.links) - behind,
                "longer": int((latency_ns - soonest_ns) * (self.line_bytes_per_s * PARTS * 1e-9)),
            }
            for path, latency_ns in zip(self.paths, self.latencies_ns, strict=True)
        ]


@lru_cache(maxsize=16)
def _routes_of(_links: LinkGraph) -> dict[tuple[int, int], _Route]:
    """Those that are known on some links, whatever plays them."""
    return {}


class FluidLinks(QueuedNetwork):
    """Links with queues, on which rates are what laws of congestion control say, in steps of a link's latency.

    What shares links, directly or not, is an island that is played in steps from its own beginning on, so that nothing
    else changes its answer. It sleeps until one of its messages may end.
    """

    in_parts = True
    note = NOTE

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        dims = links.dims.tolist()
        columns = [*zip(range(len(dims)), self._rates, self._latencies, dims, strict=True)]
        rows = columns * max(each.channels for each in self._rules)
        queues = [_queue(link, rate, latency_ns, self._rules[dim]) for link, rate, latency_ns, dim in rows]
        self._tables = Islands(State(queues=queues, counts=[Counts(0, 1)]))
        self._flow_of: dict[tuple[int, int], dict[Any, int]] = {}
        self._routes = _routes_of(links)
        self._arrivals: list[deque[Arrival]] = []  # of each flow
        self._islands: dict[int, Island] = {}  # of links
        self._island_of: list[Island | None] = []  # of flows
        self._ended_ns: list[int] = []  # of flows
        self._paths_of: list[Sequence[Path]] = []  # of flows over several ways

    # Messages come and go.

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`."""
        now_ns = int(self.env.now)
        arrival, route = Arrival(key, (src, dst), deliver, now_ns), self._route(src, dst)
        if not size_bytes or not route.links:
            arrival.tail_ns += max(route.latencies_ns)
            self._finish(arrival, now_ns)
            return
        if len(route.paths) == 1:
            self._carry(route.paths[0], size_bytes)
        of_phase = len(key) == len(("chunk", "phase", "number"))
        number = arrival.sender = self._flow((src, dst), route, key[:2] if of_phase else key, now_ns)
        island = self._joined(number, route, now_ns)
        island.begun.append((key, number, size_bytes, arrival))
        island.open += 1
        self._wake(island, now_ns)

    def _carry(self, path: Path, size_bytes: int) -> None:
        """Links carry so much."""
        for link, rate in zip(path.links, path.rates, strict=True):
            self._size_bytes[link] += size_bytes
            self._busy_ns[link] += transfer_ns(size_bytes, rate)

    def _route(self, src: int, dst: int) -> _Route:
        """The ways from one NPU to another, whose law is the outermost one's that has any."""
        found = self._routes.get((src, dst))
        if found is None:
            ways, adaptive = self._routing.at_once(src, dst)
            paths = [self._along(self.links.instead_of(way)) for way in ways]
            crossed = [self._rules[self.links.dims[link]] for link in paths[0].links]
            lawful = [rules for rules in crossed if rules.law] or crossed or [PLAIN]
            backs_ns = [whole_latency(sum(self._latencies[link] for link in path.links)) for path in paths]
            rows = [[NOBODY, *channel_rows(self.links, path.links)] for path in paths]
            found = self._routes[src, dst] = _Route(paths, rows, lawful[-1], max(backs_ns), adaptive)
        return found

    def _flow(self, ends: tuple[int, int], route: _Route, phase: Any, now_ns: int) -> int:
        """What two NPUs send each other in a phase is one flow, which begins anew when it is over.

        Its row may be that of one that is over.
        """
        own = self._flow_of.setdefault(ends, {})
        number = own.get(phase)
        if number is None:
            over = next((each for each, flow in own.items() if self._over(flow, now_ns)), None)
            number = own[phase] = self._new_flow(NOBODY if over is None else own.pop(over), route)
        elif self._over(number, now_ns):
            self._new_flow(number, route)
        return number

    def _over(self, number: int, now_ns: int) -> bool:
        """Whether nothing has been on its way for a round trip."""
        idle_ns = int(self._tables.state.flows[number].idle_ns)
        return self._island_of[number] is None and now_ns - self._ended_ns[number] >= idle_ns

    def _leave(self, flows: Iterable[int]) -> None:
        """They are in no island any more."""
        for number in flows:
            self._island_of[number], self._ended_ns[number] = None, int(self.env.now)

    def _new_flow(self, number: int, route: _Route) -> int:
        """At line rate, its tanks empty."""
        tables, line = self._tables, route.line_bytes_per_s
        slowest = min(rate for path in route.paths for rate in path.rates)
        packet_bytes = route.rules.marking.packet_bytes if route.rules.marking else PACKET_BYTES
        idle_ns = max(route.latencies_ns) + route.back_ns + transfer_ns(packet_bytes, slowest)
        period_ns = max(idle_ns // SIGNALS_OF_A_ROUND_TRIP, route.step_ns)
        rules, ways = self._rules.index(route.rules), len(route.paths)
        flow = Flow(NOBODY, 0, ways, line * PARTS * 1e-9, idle_ns, route.back_ns, period_ns, packet_bytes, rules)
        flow.round_ns, flow.adaptive, law = idle_ns, int(route.adaptive), None
        if route.rules.law:
            law = route.rules.new_law()
            law.begin(line, idle_ns, packet_bytes)
        if number < 0:
            flow.law = tables.add("laws", law) if law else NOBODY
            flow.at = tables.add("ways", *self._new_ways(route))
            number = tables.add("flows", flow)
            tables.add("signals", *(Signal() for _ in range(SIGNALS)))
            self._arrivals.append(deque())
            self._island_of.append(None)
            self._ended_ns.append(0)
            self._paths_of.append(route.paths if ways > 1 else [])
        else:
            self._carried(number)
            before = tables.state.flows[number]
            flow.at, flow.law = int(before.at), int(before.law)
            tables.put("flows", number, flow)
            ways_of_it = tables.ways_of(np.array([number]))
            for column in OF_A_FLOW:
                tables.write("ways", column, ways_of_it, np.zeros(ways, np.int64))
            if law:
                tables.put("laws", flow.law, law)
        return number

    def _new_ways(self, route: _Route) -> Iterator[Way]:
        """Of a flow; each has tanks of its own."""
        for rows, way in zip(route.rows, route.ways, strict=True):
            first = self._tables.add("hops", *(Hop(row, row, last) for last, row in pairwise(rows)))
            yield Way(first, **way)

    def _carried(self, number: int) -> None:
        """What the several ways of a flow have carried since somebody asked: of all together whole bytes."""
        paths, tables = self._paths_of[number], self._tables
        ways = int(tables.state.flows[number].at) + np.arange(len(paths))
        injected, counted = (tables.column("ways", name, ways) for name in ("injected", "counted"))
        tables.write("ways", "counted", ways, injected)
        sizes_bytes = np.diff(np.cumsum(injected - counted) // PARTS, prepend=0)
        for path, size_bytes in zip(paths, sizes_bytes.tolist(), strict=True):
            if size_bytes:
                self._carry(path, size_bytes)

    # Islands.

    def _joined(self, number: int, route: _Route, now_ns: int) -> Island:
        """The island of a flow, which has come up to now: all that share links with it are one."""
        own, links = self._island_of[number], route.links
        others = [self._islands[link] for link in links if link in self._islands] if own is None else [own]
        met = [*dict.fromkeys(others)]
        island = met[0] if met else Island([Counts(now_ns, route.step_ns, timed=int(self._times.room > 0))])
        for each in (island for island in met if island.clock.now_ns < now_ns):
            self._play(each, now_ns)
            self._cut(each, now_ns)
        for each in met[1:]:
            self._merge(island, each)
        if own is None:
            island.clock.step_ns = min(int(island.clock.step_ns), route.step_ns)
            island.flows[number] = None
            island.links.update(dict.fromkeys(links))
            self._island_of[number] = island
            self._islands.update(dict.fromkeys(links, island))
        return island

    def _merge(self, island: Island, other: Island) -> None:
        for each in (island, other):
            self._tables.unfold(each)
        island.flows.update(other.flows)
        island.links.update(other.links)
        island.begun += other.begun
        island.open += other.open
        island.ends = sorted(island.ends + other.ends)
        for name, better in (("now_ns", max), ("step_ns", min), ("first_ns", min), ("moves", max)):
            setattr(island.clock, name, better(int(getattr(island.clock, name)), int(getattr(other.clock, name))))
        other.open, other.wakes_ns = 0, -1
        self._islands.update(dict.fromkeys(other.links, island))
        for number in other.flows:
            self._island_of[number] = island

    def _dissolve(self, island: Island) -> None:
        """All messages are there, and nothing is left of them."""
        tables = self._tables
        self._play(island, int(self.env.now))  # as far as if nothing had happened elsewhere
        tables.rest(island)
        self._told(island)
        tables.unfold(island)
        tables.clear(island)
        island.wakes_ns = -1
        self._leave(island.flows)
        for link in island.links:
            del self._islands[link]

    # Instants.

    def _wake(self, island: Island, at_ns: int) -> None:
        """Go on then, unless it does so before and asks anew."""
        if at_ns < island.wakes_ns:
            island.wakes_ns = at_ns
            after(self.env, at_ns - int(self.env.now), partial(self._happen, island), TRANSMISSION)

    def _happen(self, island: Island) -> None:
        """Play up to what comes next elsewhere, and sleep until just before a message may end.

        So an end is known before its instant, in which all that arrives is there before anybody decides.
        """
        now_ns = int(self.env.now)
        if island.wakes_ns != now_ns:
            return
        island.wakes_ns = NEVER
        self._begin(island)
        self._play(island, max(now_ns + 1, int(self.env.peek())))
        if island.clock.moves and island.clock.soonest_ns < island.clock.first_ns:  # then `_deliver` wakes it
            self._wake(island, max(int(island.clock.soonest_ns) - 1, now_ns + 1))

    def _begin(self, island: Island) -> None:
        """What has come in this instant is injected, in the order of keys."""
        if not island.begun:
            return
        self._tables.unfold(island)
        island.begun.sort(key=itemgetter(0))
        for _, number, size_bytes, arrival in island.begun:
            self._tables.pledge(number, size_bytes * PARTS, int(island.clock.now_ns))
            self._arrivals[number].append(arrival)
        island.begun.clear()
        idle = self._tables.idle(island)
        for number in idle:
            del island.flows[number]
        self._leave(idle)
        self._tables.enter(island)

    def _play(self, island: Island, until_ns: int) -> None:
        """Whole steps that end by then, as long as no message is through."""
        while self._tables.play(island, until_ns):
            self._told(island)
        self._told(island)

    def _cut(self, island: Island, now_ns: int) -> None:
        """A part of a step, as something begins in it."""
        if island.clock.now_ns < now_ns:
            self._tables.cut(island, now_ns)
            self._told(island)

    def _told(self, island: Island) -> None:
        """Messages that are through, and what links and queues have done."""
        now_ns = int(self.env.now)
        for number, ends_ns in self._tables.take("left", island.of_flows).tolist():
            arrival = self._arrivals[number].popleft()
            arrival.tail_ns = max(ends_ns, now_ns)
            insort(island.ends, (arrival.tail_ns, number))
            self._finish(arrival, now_ns)
        if island.ends:
            island.clock.first_ns = island.ends[0][0]
        for name, noted in (("curves", self._curves), ("times", self._times)):
            noted.extend(self._tables.take(name, island.of_links))
        island.clock.curved, island.clock.timed = int(self._curves.room > 0), int(self._times.room > 0)

    def _deliver(self) -> None:
        """As `LinkNetwork`; first it is known which islands are empty from now on."""
        now_ns = int(self.env.now)
        met = []
        for arrival in cast("list[Arrival]", self._deliveries[now_ns]):
            island = self._island_of[arrival.sender] if arrival.sender >= 0 else None
            if island:
                met.append(island)
                island.open -= 1
                island.ends.remove((now_ns, arrival.sender))
                island.clock.first_ns = island.ends[0][0] if island.ends else NEVER
        islands = [*dict.fromkeys(met)]
        for island in islands:
            if not island.open:
                self._dissolve(island)
        super()._deliver()
        for island in islands:
            if island.open > len(island.ends):
                self._wake(island, now_ns)

    # What is reported.

    def counts(self) -> tuple[IntArray, IntArray]:
        """As `LinkNetwork.counts`."""
        for number, island in enumerate(self._island_of):
            if island is None:
                self._carried(number)
        return super().counts()

    def queues(self) -> QueueTable:
        """As `LinkNetwork.queues`."""
        column = self._tables.column
        links = np.arange(len(self._rates))
        counted = {name: column("queues", name, links) for name in COUNTED}
        nothing = np.zeros(len(self._rates), np.int64)
        return QueueTable.of(self._curves.table(), **counted, drops=nothing, dropped_bytes=nothing)

    def remembers(self, since_ns: int) -> bool:
        """As `LinkNetwork.remembers`: an island is empty when its last message has come."""
        return False

    def stuck(self) -> list[str]:
        """As `Queued.stuck`."""
        for island in self._islands.values():
            self._tables.unfold(island)
        state, waits = self._tables.state, set[tuple[int, int]]()
        for way in state.ways:
            hops = (state.hops[at] for at in range(way.at + 1, way.at + way.hops))
            waits.update((int(hop.before), int(hop.link)) for hop in hops if hop.tank)
        ways = (path.links for route in self._routes.values() for path in route.paths)
        return told_circle(self.links, waits, ways)


def _queue(link: int, bytes_per_s: float, latency_ns: float, rules: Ports) -> Queue:
    limited = rules.buffer_bytes < UNLIMITED
    control = FLOW_CONTROLS.index(rules.flow_control) + CREDITS if limited else FREE
    sizes = [min(size, UNLIMITED // PARTS) * PARTS for size in (rules.buffer_bytes, rules.xoff_bytes, rules.xon_bytes)]
    queue = Queue(link, bytes_per_s * PARTS * 1e-9, whole_latency(latency_ns), control, *sizes)
    marking = rules.marking
    if marking:
        queue.kmin, queue.kmax = marking.kmin_bytes * PARTS, marking.kmax_bytes * PARTS
        queue.pmax, queue.packet_bytes = marking.pmax, marking.packet_bytes
    return queue
