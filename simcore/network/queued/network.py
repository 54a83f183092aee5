"""Messages in segments through links with queues: `congested.CutThrough` with buffers that end somewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from simcore.errors import InputError
from simcore.network.clock import whole_latency
from simcore.network.congested import CutThrough, Deliver, LinkNetwork
from simcore.network.core import NEVER
from simcore.network.instant import TRANSMISSION, Environment, after
from simcore.network.parts import FoldedLinks
from simcore.network.queued import core
from simcore.network.queued.channels import channel_rows, told_circle
from simcore.network.queued.ports import admits
from simcore.network.queued.routing import USUAL, Links, Ways, in_common
from simcore.network.queued.segments import SegmentTables
from simcore.network.queued.tables import CREDITS, FREE, NOBODY, PFC, Hop, Message, Pair, Port, Sender, State, Way
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import FLOW_CONTROLS, PLAIN, UNLIMITED, Ports
from simcore.timeline.events import MOST_ROWS, STILL, WAITING, LinkTable, QueueTable
from simcore.timeline.link_use import LinkRows, Rows
from simcore.units import format_bytes, transfer_ns

MOST_SEGMENTS = 1 << 20
"""So many under way take 2 to 4 GB."""
NOTE = (
    "queues: messages go in segments that are buffered and marked as one; acknowledgements, credits and pauses take "
    "the latency of the way back and none of its bandwidth; laws of congestion control begin "
    "anew in each phase, settle as their papers' equations do, and were compared with no network card"
)


@dataclass(slots=True)
class Arrival:
    """A message that is through, as `LinkNetwork` delivers it."""

    key: Any
    ends: tuple[int, int]
    deliver: Deliver
    tail_ns: int
    sender: int = NOBODY  # where it is the message's own


class QueuedNetwork(LinkNetwork):
    """Links with queues, whatever plays them; `note` says what is an approximation."""

    has_queues = ties_turn = True
    note: ClassVar[str]

    @classmethod
    def among(cls, links: LinkGraph, src: IntArray, dst: IntArray) -> IntArray:
        """As `LinkNetwork.among`: those of all ways."""
        ways = ways_of(links)
        if not ways.several:
            return links.remember(src, dst).links  # they are asked for one by one
        pairs = set(zip(src.tolist(), dst.tolist(), strict=True))
        found = set[int]().union(*(ways.turns(*pair)[1] for pair in pairs))
        return np.unique(np.array(links.instead_of(tuple(found)), np.int64))

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._rules, self._routing = [dim.ports for dim in links.topology.dims], ways_of(links)
        self._curves = Rows(4, MOST_ROWS)

    def table(self) -> LinkTable:
        """What every link carried so far, and what its queue did."""
        queues = self.queues()
        if queues and isinstance(self.links, FoldedLinks):
            queues = queues.on(self.links.stands_for)
        return replace(super().table(), queues=queues)

    @classmethod
    def notes_on(cls, curve_rows: int) -> list[str]:
        """As `LinkNetwork.notes_on`."""
        cut = curve_rows >= MOST_ROWS
        return [cls.note] + ["queues: their curves end before the run does: too many changes"] * cut

    def notes(self) -> list[str]:
        """As `Network.notes`."""
        return self.notes_on(len(self._curves))


class Queued(QueuedNetwork):
    """First come, first served on every link, where the buffer behind it has room; `Ports` says what happens elsewhere.

    Where no port says anything, messages are one segment each and the times are those of `CutThrough`. Who comes at
    one time is served in the order of (key, links behind, segment, sender), of senders as `LinkGraph.order` says.
    """

    in_parts = True
    note = NOTE

    @classmethod
    def on(cls, topology: Topology) -> type[LinkNetwork]:
        """Where no port says anything, links without queues."""
        return CutThrough.on(topology) if not any(dim.ports.need_queues for dim in topology.dims) else cls

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._turns = links.order.tolist()
        ports = [*map(copy, _ports(links))]
        self._tables = SegmentTables(State(ports, self._choose))
        self._state.counts[0].timed = int(self._times.room > 0)
        self._ways: dict[tuple[Links, int], int] = {}
        self._pairs: dict[tuple[int, int], tuple[int, int, Ports, Sequence[Links], int]] = {}
        self._ends: list[tuple[int, int]] = []  # of pairs
        self._routes = 0  # rows of ways, which have a number once they are taken
        self._senders: dict[tuple[int, int], dict[int, int]] = {}
        self._phases: dict[Any, int] = {None: 0}
        self._arrivals: dict[int, Arrival] = {}
        self._idle: list[tuple[int, int]] = []  # rows of messages, and of their senders, that may be used again
        self._wakes: set[int] = set()
        self._due_ns = self._until_ns = NEVER  # when something happens next; what is played ends before
        watched = any(each.law or each.how.by_queues for each in self._rules)
        self._unseen = not watched and all(port.control < PFC and not port.kmax_bytes for port in ports)
        self._note()

    @property
    def _state(self) -> Any:
        return self._tables.state

    @property
    def ports(self) -> Sequence[Port]:
        """Every link's."""
        return self._state.ports  # type: ignore[no-any-return]

    # Messages come and go.

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`."""
        now_ns = int(self.env.now)
        if src == dst:
            self._finish(Arrival(key, (src, dst), deliver, now_ns), now_ns)
            return
        pair, segment_bytes, rules, ways, way = self._pair(src, dst)
        of_phase = len(key) == len(("chunk", "phase", "number"))
        phase = self._phases.setdefault(key[:2], len(self._phases)) if of_phase else 0
        ends, turn = self._turns[src] * self.links.npus + dst, key[2] if of_phase else 0
        count = max(-(-size_bytes // segment_bytes), 1)
        if ways:
            self._lay(pair, ways, turn, count)
        if self._due_ns < now_ns:
            self._play(now_ns)
        *order, part = key
        message = Message(
            pair=pair, way=way, size_bytes=size_bytes, segment_bytes=segment_bytes, count=count, missing=count,
            order=(*order,), part=part, ends=ends, phase=phase, turn=turn, begin_ns=now_ns,
        )  # fmt: skip
        number, sender = self._enter(message, (src, dst), rules)
        self._arrivals[number] = Arrival(key, (src, dst), deliver, now_ns, NOBODY if rules.law else sender)
        self._tables.core.call(self._state, sender, now_ns)
        self._due_ns = now_ns
        self._wake(now_ns)

    def _enter(self, message: Message, ends: tuple[int, int], rules: Ports) -> tuple[int, int]:
        """Numbers of a new message and of its sender, which sends it behind those that came before."""
        tables = self._tables
        if rules.law:
            number, sender = tables.add("messages", message), self._lawful(message, ends, rules)
            self._stand_in_line(self._state.senders[sender], number)
        elif self._idle:
            number, sender = self._idle.pop()
            tables.put("messages", number, message)
            tables.put("senders", sender, Sender(waiting=number))
        else:
            number = tables.add("messages", message)
            sender = tables.add("senders", Sender(waiting=number))
        return number, sender

    def _stand_in_line(self, sender: Sender, number: int) -> None:
        """Behind those that came before, of one time in the order of the keys."""
        messages, before, after = self._state.messages, NOBODY, sender.waiting
        own = messages[number]
        while after >= 0 and _in_line(messages[after]) <= _in_line(own):
            before, after = after, messages[after].next
        own.next = after
        if before < 0:
            sender.waiting = number
        else:
            messages[before].next = number

    def _lawful(self, message: Message, ends: tuple[int, int], rules: Ports) -> int:
        """What two NPUs send each other in a phase obeys one law, a message of no phase a law of its own."""
        state, own = self._state, self._senders.setdefault(ends, {})
        sender = own.get(message.phase, NOBODY) if message.phase else NOBODY
        if sender < 0:
            law, way = rules.new_law(), state.ways[core.way_of(state, message, 0, message.begin_ns)]
            hops = state.hops[way.at : way.at + way.hops]
            idle_ns = sum(hop.step_ns for hop in hops) + way.back_ns
            rates = [self._rates[hop.link] for hop in hops]
            rtt_ns = idle_ns + transfer_ns(message.segment_bytes, min(rates))
            law.begin(rates[0], rtt_ns, message.segment_bytes)
            state.counts[0].reads |= law.reads
            sender = self._unused(own, message.begin_ns)
            if sender < 0:
                sender = self._tables.add("senders", Sender(self._tables.add("laws", law)))
            else:
                core.forget(state, state.senders[sender])
                number = int(state.senders[sender].law)
                self._tables.put("laws", number, law)
                self._tables.put("senders", sender, Sender(number))
            if message.phase:
                own[message.phase] = sender
        return sender

    def _unused(self, own: dict[int, int], now_ns: int) -> int:
        """A sender of a phase that is over, whose row may be used again."""
        senders = self._state.senders
        for phase, number in own.items():
            each = senders[number]
            waits = max(each.current, each.waiting, each.lost) >= 0 or each.alarm_ns > now_ns
            if not (each.under_way_bytes or waits):
                del own[phase]
                return number
        return NOBODY

    def _pair(self, src: int, dst: int) -> tuple[int, int, Ports, Sequence[Links], int]:
        """Number of two NPUs, size of segments, the outermost rules with a law (else of all); ways taken in turn.

        And the way, where there is only one.
        """
        found = self._pairs.get((src, dst))
        if found is None:
            crossed = [self._rules[self.links.dims[link]] for link in self.links.route(src, dst)] or [PLAIN]
            lawful = [rules for rules in crossed if rules.law] or crossed
            parts = self._routing.found(src, dst)
            how, hashed, ways = parts[0] if len(parts) == 1 else (USUAL, 0, [])
            pair = Pair(self._routes, len(ways), hashed % max(len(ways), 1), how.steps, int(how.by_queues))
            self._tables.add("routes", *[NOBODY] * len(ways))
            self._routes += len(ways)
            self._ends.append((src, dst))
            number, size_bytes = self._tables.add("pairs", pair), min(rules.segment_bytes for rules in crossed)
            self._lay(number, ways, 0, len(ways) if how.by_queues else 1)
            in_turn = ways if how.steps and not how.by_queues else []
            way = NOBODY if how.steps or not ways else int(self._state.routes[pair.at + pair.hashed])
            found = self._pairs[src, dst] = number, size_bytes, lawful[-1], in_turn, way
        return found

    def _lay(self, pair: int, ways: Sequence[Links], turn: int, count: int) -> None:
        """Give those of the ways of two NPUs their numbers that so many segments take, from a turn on."""
        own, routes = self._state.pairs[pair], self._state.routes
        among = ways if own.adaptive else ()  # others do not ask how full ways are
        first, at = int(own.hashed) + turn, int(own.at)
        for number in range(first, first + min(count, len(ways))):
            way = number % len(ways)
            if routes[at + way] < 0:
                routes[at + way] = self._way(ways[way], among)

    def _way(self, route: Links, among: Sequence[Links] = ()) -> int:
        """The number of a way, one among those of two NPUs."""
        found = self._ways.get((route, len(among)))
        if found is None:
            path, left = self._along(self.links.instead_of(route)), range(len(route) - 1, -1, -1)
            back_ns = whole_latency(sum(self._latencies[link] for link in path.links))
            rows = channel_rows(self.links, path.links)
            columns = zip(path.links, left, route, rows, path.steps_ns, strict=True)
            first = self._tables.add("hops", *(Hop(*hop) for hop in columns))
            before, behind = in_common(among)
            paths = (self._along(self.links.instead_of(way)) for way in among)
            soonest_ns = min((sum(each.steps_ns) for each in paths), default=0)
            longer_bytes = (sum(path.steps_ns) - soonest_ns) * path.rates[0] * 1e-9
            row = Way(first, len(route), back_ns, before, len(route) - behind, longer_bytes)
            found = self._ways[route, len(among)] = self._tables.add("ways", row)
        return found

    def _choose(self, pair: int, turn: int, now_ns: int) -> int:
        """The way of a segment through several dimensions."""
        ends = self._ends[pair]

        def fullest(way: tuple[int, ...]) -> float:
            return core.fullest(self._state, self._way(way), now_ns)

        return self._way(self._routing.choose(*ends, turn, fullest))

    # Instants.

    def _wake(self, at_ns: int) -> None:
        """Go on then, unless it does so before and asks anew."""
        if at_ns < min(self._wakes, default=NEVER):
            self._wakes.add(at_ns)
            after(self.env, at_ns - int(self.env.now), self._happen, TRANSMISSION)

    def _happen(self) -> None:
        """One instant, and those that follow before anything else happens: the clock moves on without an event."""
        env, now_ns = self.env, int(self.env.now)
        self._wakes.remove(now_ns)
        self._play(max(now_ns + 1, env.peek()))
        if self._due_ns < NEVER:
            self._wake(self._wanted_ns())

    def _play(self, until_ns: int) -> None:
        """What happens before a time, and before what it brings about."""
        self._until_ns, due_ns = until_ns, core.ROOM
        while due_ns < self._until_ns:
            due_ns = self._tables.core.play(self._state, self._until_ns)
            self._drain()
            if due_ns == core.ROOM and not self._note():
                self._grow()
        self._due_ns = due_ns

    def _grow(self) -> None:
        """Make room for more segments; InputError where that would be more than memory is likely to hold."""
        if self._state.counts[0].room_of_segments >= 2 * MOST_SEGMENTS:
            small = min(self._rules, key=attrgetter("segment_bytes"))
            most = int(self._tables.column("messages", "count").max())
            raise InputError.at(
                small.place,
                "too many segments are under way at once",
                expected=f"fewer than {MOST_SEGMENTS:,} in all",
                found=f"segments of {format_bytes(small.segment_bytes)}, and {most:,} of them in a message",
                hint="larger segments, or smaller buffers, behind which more of them wait at their senders",
            )
        self._tables.grow()

    def _wanted_ns(self) -> int:
        """When to go on: as soon as something happens."""
        return self._due_ns

    def _drain(self) -> None:
        """Tell who is through."""
        for now_ns, number, tail_ns in self._tables.take("left").tolist():
            self.env.now = now_ns
            self._arrived(number, now_ns, tail_ns)
            self._until_ns = min(self._until_ns, int(self.env.peek()))

    def _note(self) -> int:
        """Note what queues and links have done since; how much that was."""
        tables, counts = self._tables, self._state.counts[0]
        curves, times = tables.take("curves"), tables.take("times")
        self._curves.extend(curves)
        counts.curved = int(self._curves.room > 0)
        counts.early = int(self._unseen and not counts.curved)
        self._times.extend(times)
        return len(curves) + len(times)

    def _arrived(self, number: int, now_ns: int, tail_ns: int) -> None:
        """A message is through."""
        arrival = self._arrivals.pop(number)
        if arrival.sender >= 0:
            self._idle.append((number, arrival.sender))
        arrival.tail_ns = tail_ns
        self._finish(arrival, now_ns)

    # What is reported.

    def counts(self) -> tuple[IntArray, IntArray]:
        """As `LinkNetwork.counts`."""
        return self._of_links("sent_bytes"), self._of_links("busy_ns")

    def _of_links(self, name: str) -> Any:
        """What the first channels' rows have, which stand for their links."""
        return np.array(self._tables.column("ports", name)[: len(self._rates)])

    def times(self) -> LinkRows | None:
        """As `LinkNetwork.times`."""
        self._note()
        return super().times()

    def queues(self) -> QueueTable:
        """As `LinkNetwork.queues`, of the links of a folded machine that stand for all."""
        self._note()
        columns = {name: self._of_links(name) for name in QueueTable.COLUMNS}
        links, since_ns = np.arange(len(self._rates)), self._of_links("still_since_ns")
        lasted_ns = np.where(since_ns < 0, 0, np.maximum(int(self.env.now) - since_ns, 0))  # and goes on
        columns["still_ns"] += lasted_ns
        still = np.column_stack([links, since_ns, 0 * links + STILL, lasted_ns])[lasted_ns > 0]
        curves = [self._curves.table(), still]
        if not self._curves.room:  # nobody knows what waits from then on
            ends_ns = np.full(len(links), curves[0][:, 1].max(initial=0))
            curves.append(np.column_stack([links, ends_ns, 0 * links + WAITING, 0 * links]))
        return QueueTable.of(np.concatenate(curves), **columns)

    def notes(self) -> list[str]:
        """As `Network.notes`."""
        self._note()
        return super().notes()

    def remembers(self, since_ns: int) -> bool:
        """As `LinkNetwork.remembers`: credits and pauses still under way."""
        if self._due_ns < self.env.now:
            self._play(int(self.env.now))
        return bool(self._state.counts[0].settled_ns > since_ns)

    def stuck(self) -> list[str]:
        """Why nothing moves any more: the links that wait for each other."""
        state = self._state
        blocked = {port.number: port for port in self.ports if port.head >= 0 and not admits(port)}
        rows = (
            (channel, state.segments[number].held)
            for channel, port in blocked.items()
            for number in chain(state.segments, port.head)
        )
        ways = (self.links.instead_of(route) for route, _ in self._ways)
        return told_circle(self.links, {(held, channel) for channel, held in rows if held in blocked}, ways)


def ways_of(links: LinkGraph) -> Ways:
    """Those of the whole network, whose links have representatives (`instead_of`) where it is folded."""
    return Ways.of(links.whole if isinstance(links, FoldedLinks) else links)


def chain(rows: Any, number: int) -> Iterator[int]:
    """Numbers of rows, one behind the other."""
    while number >= 0:
        yield number
        number = rows[number].next


_in_line = attrgetter("begin_ns", "order", "part")


@lru_cache(maxsize=16)
def _ports(links: LinkGraph) -> list[Port]:
    """All channels, while nothing waits."""
    rules = [dim.ports for dim in links.topology.dims]
    rates, latencies_ns = links.bandwidth_bytes_per_s.tolist(), links.latency_ns.tolist()
    columns = [*zip(rates, latencies_ns, links.dims.tolist(), strict=True)]
    rows = enumerate(columns * max(each.channels for each in rules))
    return [_port(row, len(columns), rate, latency_ns, rules[dim]) for row, (rate, latency_ns, dim) in rows]


def _port(row: int, links: int, bytes_per_s: float, latency_ns: float, rules: Ports) -> Port:
    """Of a channel: the first ones of all links come before the second ones."""
    channel, link = divmod(row, links)
    limited = rules.buffer_bytes < UNLIMITED
    control = FLOW_CONTROLS.index(rules.flow_control) + CREDITS if limited else FREE
    marking = rules.marking
    port = Port(
        link=link, number=row, apart=links * (rules.channels > 1), channel_bit=1 << channel, open=rules.channels,
        bytes_per_s=bytes_per_s, latency_ns=whole_latency(latency_ns), control=control,
        buffer_bytes=rules.buffer_bytes, xoff_bytes=rules.xoff_bytes, xon_bytes=rules.xon_bytes,
    )  # fmt: skip
    if marking:
        port.kmin_bytes, port.kmax_bytes = marking.kmin_bytes, marking.kmax_bytes
        port.pmax, port.packet_bytes = marking.pmax, marking.packet_bytes
    return port
