"""Messages in segments through links with queues: `congested.CutThrough` with buffers that end somewhere.

A segment crosses a link as a message does there: its head goes on as soon as the next link is its own. What waits for a
link lies in the buffer of the link that it came over, as a whole and from its first byte on. Acknowledgements, credits
and pauses take the latency of the way back and none of its bandwidth.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import simpy

from simcore.network.clock import whole_latency
from simcore.network.congested import CountedLinks, CutThrough, Deliver, LinkNetwork
from simcore.network.folded import FoldedLinks
from simcore.network.instant import Environment, at_end_of_instant
from simcore.network.queued.flow import Message, Segment, Sender, Way
from simcore.network.queued.laws import Ack, Path, Reading
from simcore.network.queued.ports import Port, waits_in_a_circle
from simcore.network.queued.routing import Ways
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.ports import PLAIN, Ports
from simcore.timeline.events import MOST_ROWS, LinkTable, QueueTable
from simcore.units import transfer_ns

NOTE = (
    "queues: messages go in segments that are buffered and marked as one; acknowledgements, credits and pauses take "
    "the latency of the way back and none of its bandwidth; laws of congestion control begin "
    "anew in each phase, settle as their papers' equations do, and were compared with no network card"
)


class Instant(NamedTuple):
    """What happens at one time: changes of links and senders, then heads of segments that come to links."""

    changes: list[tuple[Callable[..., None], Any]]
    heads: list[tuple[Any, ...]]


class Queued(CountedLinks):
    """First come, first served on every link, where the buffer behind it has room; `Ports` says what happens elsewhere.

    Where no port says anything, messages are one segment each and the times are those of `CutThrough`. Who comes at
    one time is served in the order of (key, links behind, sender, segment).
    """

    has_queues = True

    @classmethod
    def on(cls, topology: Topology) -> type[LinkNetwork]:
        """Where no port says anything, links without queues."""
        return CutThrough.on(topology) if all(dim.ports == PLAIN for dim in topology.dims) else cls

    def __init__(self, env: simpy.Environment, links: LinkGraph):
        super().__init__(env, links)
        rules = [dim.ports for dim in links.topology.dims]
        counts = [axis.groups * axis.links for axis in links.axes]
        numbers = np.repeat(np.arange(len(counts)), counts)
        numbers = numbers[links.kept] if isinstance(links, FoldedLinks) else numbers
        columns = zip(self._rates, self._latencies, numbers.tolist(), strict=True)
        self.ports = [
            Port(link, rate, whole_latency(latency_ns), rules[dim])
            for link, (rate, latency_ns, dim) in enumerate(columns)
        ]
        self._occupied_ns = lru_cache(maxsize=1 << 16)(transfer_ns)
        self._routing = Ways(links)
        self._ways: dict[tuple[int, ...], Way] = {}
        self._segments: dict[tuple[int, int], tuple[int, Ports]] = {}
        self._senders: dict[tuple[int, int], dict[Any, Sender]] = {}
        self._due: dict[int, Instant] = {}
        self._times_due: list[int] = []
        self._wakes: set[int] = set()
        self._runs = False
        self._number = self._settled_ns = 0
        self._curves = array("q")

    # Messages come and go.

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`."""
        now_ns = int(self.env.now)
        segment_bytes, rules = self._cut(src, dst)
        message = Message(key, (src, dst), size_bytes, segment_bytes, deliver)
        if src == dst:
            message.tail_ns = now_ns
            self._finish(message, now_ns)
            return
        sender = self._sender(message, rules)
        sender.add(message, now_ns)
        self._at(now_ns, now_ns, self._pump, sender)

    def _sender(self, message: Message, rules: Ports) -> Sender:
        """What two NPUs send each other in a phase obeys one law, a message of no phase a law of its own."""
        if not rules.law:
            return Sender(None)
        own = self._senders.get(message.ends, {})
        sender = own.get(message.phase)
        if sender is None:
            sender = Sender(law := rules.new_law())
            way = self._way(message, 0)
            rtt_ns = sum(way.steps_ns) + way.back_ns + transfer_ns(message.segment_bytes, min(way.rates))
            law.begin(Path(self.ports[way.links[0]].bytes_per_s, rtt_ns, message.segment_bytes))
            if message.phase:
                busy = {phase: each for phase, each in own.items() if each.busy}
                self._senders[message.ends] = busy | {message.phase: sender}
        return sender

    def _way(self, message: Message, index: int) -> Way:
        """The way of a segment."""
        if self._routing.several:
            route = self._routing.choose(*message.ends, message.turn + index, self._backlog)
        else:
            route = self.links.route(*message.ends)
        way = self._ways.get(route)
        if way is None:
            path = self._along(route)
            back_ns = whole_latency(sum(self._latencies[link] for link in route))
            way = self._ways[route] = Way(path.links, path.steps_ns, path.rates, back_ns)
        return way

    def _backlog(self, link: int) -> float:
        return self.ports[link].backlog_bytes(int(self.env.now))

    def _cut(self, src: int, dst: int) -> tuple[int, Ports]:
        """How large segments between two NPUs are, and whose law they obey: the outermost dimension's that has one."""
        found = self._segments.get((src, dst))
        if found is None:
            crossed = [self.ports[link].rules for link in self.links.route(src, dst)] or [PLAIN]
            lawful = [rules for rules in crossed if rules.law] or crossed
            found = self._segments[src, dst] = min(rules.segment_bytes for rules in crossed), lawful[-1]
        return found

    # Instants.

    def _instant(self, at_ns: int, now_ns: int) -> Instant:
        found = self._due.get(at_ns)
        if found is None:
            found = self._due[at_ns] = Instant([], [])
            heappush(self._times_due, at_ns)
            if not self._runs and at_ns == self._times_due[0]:
                self._wake(at_ns, now_ns)
        return found

    def _wake(self, at_ns: int, now_ns: int) -> None:
        """Go on then, unless that is known already."""
        if at_ns not in self._wakes:
            self._wakes.add(at_ns)
            at_end_of_instant(self.env, at_ns - now_ns, self._happen, transmits=True)

    def _at(self, at_ns: int, now_ns: int, change: Callable[..., None], what: Any) -> None:
        self._instant(at_ns, now_ns).changes.append((change, what))

    def _head(self, segment: Segment, at_ns: int, now_ns: int) -> None:
        """The head of a segment comes to its next link."""
        message = segment.message
        self._number += 1
        entry = (message.key, segment.hop, message.ends, segment.index, self._number, segment)
        heappush(self._instant(at_ns, now_ns).heads, entry)

    def _happen(self, _: simpy.Event) -> None:
        """One instant, and those that follow before anything else happens: the clock moves on without an event."""
        env, self._runs = self.env, True
        self._wakes.remove(int(env.now))
        self._play(heappop(self._times_due))
        while self._times_due and isinstance(env, Environment) and env.peek() > self._times_due[0]:
            env.move_on(self._times_due[0])
            self._play(heappop(self._times_due))
        self._runs = False
        if self._times_due:
            self._wake(self._times_due[0], int(env.now))

    def _play(self, now_ns: int) -> None:
        """All changes of an instant, then heads one by one, as long as they bring new ones about."""
        instant = self._due[now_ns]
        while instant.changes or instant.heads:
            for change, what in instant.changes:  # grows while it runs
                change(what, now_ns)
            instant.changes.clear()
            if instant.heads:
                self._arrive(heappop(instant.heads)[-1], now_ns)
        del self._due[now_ns]

    # Senders.

    def _pump(self, sender: Sender, now_ns: int) -> None:
        """Send what may be sent."""
        segment = self._next(sender, now_ns)
        if segment:
            self._head(segment, now_ns, now_ns)

    def _next(self, sender: Sender, now_ns: int) -> Segment | None:
        """The segment that may be sent now; where it is too early, look again in time."""
        wanted = sender.peek()
        if wanted is None or not sender.ready:
            return None
        message, index = wanted
        first, end = message.span(index)
        if sender.law:
            sender.law.sends(now_ns, 0)
        if not sender.may_send(end - first):
            return None
        if sender.free_ns > now_ns:
            if sender.alarm_ns != sender.free_ns:
                sender.alarm_ns = sender.free_ns
                self._at(sender.free_ns, now_ns, self._pump, sender)
            return None
        sender.take()
        sender.ready = False
        if sender.law:
            sender.under_way_bytes += end - first
            sender.law.sends(now_ns, end - first)
        return Segment(sender, message, index, self._way(message, index), now_ns)

    def _acknowledged(self, segment: Segment, now_ns: int) -> None:
        sender = segment.sender
        if sender.law:
            sender.under_way_bytes -= segment.size_bytes
            ack = Ack(now_ns, segment.sent_ns, segment.size_bytes, segment.marked, segment.readings)
            sender.law.acknowledged(ack)
        self._pump(sender, now_ns)

    def _lost(self, segment: Segment, now_ns: int) -> None:
        """The sender learns that a segment was dropped."""
        sender = segment.sender
        if sender.law:
            sender.under_way_bytes -= segment.size_bytes
            sender.law.lost(now_ns)
        sender.again(segment)
        self._pump(sender, now_ns)

    # Links.

    def _arrive(self, segment: Segment, now_ns: int) -> None:
        """The head comes to its next link, through the buffer of the link behind it."""
        port = self.ports[segment.way.links[segment.hop]]
        if segment.held >= 0:
            behind = self.ports[segment.held]
            if behind.by_room and not self._lie_down(segment, behind, now_ns):
                return
        size_bytes = segment.size_bytes
        segment.marked |= port.mark(segment, now_ns)
        port.queue.append(segment)
        port.waiting_bytes += size_bytes
        port.queued_bytes += size_bytes if segment.hop else 0
        self._serve(port, now_ns)
        if port.queued_bytes != port.noted_bytes:
            self._curve(port, now_ns)

    def _lie_down(self, segment: Segment, port: Port, now_ns: int) -> bool:
        """Take room in the buffer behind a link; False where it is dropped."""
        rules, size_bytes = port.rules, segment.size_bytes
        if rules.flow_control == "drop" and port.lying_bytes + size_bytes > rules.buffer_bytes:
            port.drops += 1
            port.dropped_bytes += size_bytes
            self._at(now_ns + segment.way.back_ns, now_ns, self._lost, segment)
            return False
        port.lying_bytes += size_bytes
        if port.lying_bytes > rules.xoff_bytes and not port.asked_to_pause:
            port.asked_to_pause = True
            self._at(now_ns + port.latency_ns, now_ns, self._pause, port)
        return True

    def _get_up(self, what: tuple[Port, int], now_ns: int) -> None:
        """A segment has left the buffer behind a link."""
        port, size_bytes = what
        port.lying_bytes -= size_bytes
        if port.asked_to_pause and port.lying_bytes <= port.rules.xon_bytes:
            port.asked_to_pause = False
            self._at(now_ns + port.latency_ns, now_ns, self._resume, port)

    def _credit(self, what: tuple[Port, int], now_ns: int) -> None:
        port, size_bytes = what
        self._settled_ns = now_ns
        port.taken_bytes -= size_bytes
        self._serve(port, now_ns)

    def _pause(self, port: Port, now_ns: int) -> None:
        self._settled_ns = now_ns
        port.paused = True
        port.stop(now_ns)

    def _resume(self, port: Port, now_ns: int) -> None:
        self._settled_ns = now_ns
        port.paused = False
        self._serve(port, now_ns)
        port.go(now_ns)

    def _serve(self, port: Port, now_ns: int) -> None:
        """Send what waits, one after the other."""
        while port.queue and port.free_ns <= now_ns:
            segment = port.queue[0]
            if not port.admits(segment):
                port.stop(now_ns)
                return
            if port.still_since_ns >= 0:
                port.go(now_ns)
            port.queue.popleft()
            self._start(port, segment, now_ns)
        if port.queue and port.alarm_ns != port.free_ns:
            port.alarm_ns = port.free_ns
            self._at(port.free_ns, now_ns, self._serve, port)

    def _start(self, port: Port, segment: Segment, now_ns: int) -> None:
        """A link takes a segment."""
        hop, way = segment.hop, segment.way
        # Ends of a message's segments are rounded as parts of a whole, so that cutting it costs nothing.
        rate, size_bytes = way.rates[hop], segment.size_bytes
        if rate != segment.rate:
            segment.rate = rate
            segment.takes_ns = self._occupied_ns(segment.end_byte, rate) - self._occupied_ns(segment.first_byte, rate)
        end_ns = now_ns + segment.takes_ns
        port.free_ns = end_ns
        port.waiting_bytes -= size_bytes
        port.queued_bytes -= size_bytes if hop else 0
        port.sent_bytes += size_bytes
        self._count(port.link, size_bytes, now_ns + self.skipped_ns, end_ns + self.skipped_ns)
        if port.queued_bytes != port.noted_bytes:
            self._curve(port, now_ns)
        if segment.held >= 0:
            behind = self.ports[segment.held]
            if behind.by_credits:
                self._at(end_ns + behind.latency_ns, now_ns, self._credit, (behind, size_bytes))
            elif behind.by_room:
                self._at(end_ns, now_ns, self._get_up, (behind, size_bytes))
        else:
            segment.sent_ns = now_ns
            segment.sender.begun(size_bytes, now_ns)
            self._pump(segment.sender, now_ns)
        if segment.sender.law and segment.sender.law.needs_readings:
            segment.readings.append(Reading(port.waiting_bytes, port.sent_bytes, now_ns, port))
        segment.tail_ns = max(segment.tail_ns, end_ns) + way.steps_ns[hop]
        segment.hop += 1
        if segment.hop == len(way.links):
            self._arrived(segment, now_ns)
            return
        segment.held = port.link
        if port.by_credits:
            port.taken_bytes += size_bytes
        self._head(segment, now_ns + way.steps_ns[hop], now_ns)

    def _arrived(self, segment: Segment, now_ns: int) -> None:
        """The last link has taken a segment."""
        message = segment.message
        message.missing -= 1
        message.tail_ns = max(message.tail_ns, segment.tail_ns)
        if segment.sender.law:
            self._at(segment.tail_ns + segment.way.back_ns, now_ns, self._acknowledged, segment)
        if not message.missing:
            self._finish(message, now_ns)

    # What is reported.

    def queues(self) -> QueueTable:
        """As `LinkNetwork.queues`, of the links of a folded machine that stand for all."""
        for port in self.ports:
            port.go(int(self.env.now))
        columns = {
            name: np.array([getattr(port, name) for port in self.ports], np.int64) for name in QueueTable.COLUMNS
        }
        curves = np.array(self._curves, np.int64).reshape(-1, 3)
        return QueueTable(**columns, curves=curves, stands_for=np.arange(len(self.ports)))

    def table(self) -> LinkTable:
        """What every link carried so far, and what its queue did."""
        queues = self.queues()
        if isinstance(self.links, FoldedLinks):
            queues = queues.on(self.links.stands_for)
        return replace(super().table(), queues=queues)

    def _curve(self, port: Port, now_ns: int) -> None:
        """Note how much waits for a link, as that has changed."""
        port.noted_bytes = port.queued_bytes
        port.peak_bytes = max(port.peak_bytes, port.queued_bytes)
        if len(self._curves) < 3 * MOST_ROWS:
            self._curves.extend((port.link, now_ns + self.skipped_ns, port.queued_bytes))

    @classmethod
    def notes_on(cls, curve_rows: int) -> list[str]:
        """As `LinkNetwork.notes_on`."""
        cut = curve_rows >= MOST_ROWS
        return [NOTE] + ["queues: their curves end before the run does: too many changes"] * cut

    def notes(self) -> list[str]:
        """As `Network.notes`."""
        return self.notes_on(len(self._curves) // 3)

    def remembers(self, since_ns: int) -> bool:
        """As `LinkNetwork.remembers`: credits, pauses still under way, chances of marks of messages of no phase."""
        return self._settled_ns > since_ns or any(port.chances and port.phase is None for port in self.ports)

    def stuck(self) -> list[str]:
        """Why nothing moves any more: the links that wait for each other."""
        circle, links = waits_in_a_circle(self.ports), self.links
        if circle and isinstance(links, FoldedLinks):
            circle, links = links.unfolded(circle), links.whole
        names, src, dst = links.names, links.src, links.dst
        ends = [f"{names[src[link]]} -> {names[dst[link]]}" for link in circle]
        lines = [
            f"link {here} waits for room at its end, which is taken by what waits for link {ahead}"
            for here, ahead in zip(ends, ends[1:] + ends[:1], strict=True)
        ]
        hint = "hint: more buffer, or routes that take links in one order (a Mesh in place of a Ring) break the circle"
        return [f"the buffers of {len(ends)} links wait for each other in a circle", *lines, hint] if ends else []
