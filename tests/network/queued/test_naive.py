"""A second opinion: the rules of docs/queues.md, written down naively with an object for each segment."""

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, pairwise
from unittest.mock import patch

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.network.queued import network
from simcore.network.topology.ports import UNLIMITED, Marking
from tests.queues import KIB, machine, pfc, play, segments


@dataclass(eq=False)
class Packet:
    """Of message `key`, which was cut; it goes on from where it is `at` on its way."""

    flow: "Flow"
    index: int
    size: int
    at: int = 0
    last_byte: int = 0


@dataclass(eq=False)
class Flow:
    key: int
    ends: int
    way: tuple
    to_send: deque
    missing: int
    arrived: int = 0
    waits: bool = False  # a packet of it stands before the first link


@dataclass
class Channel:
    promised: int = 0  # room taken behind the link, as far as its sender knows
    lying: int = 0
    asked: bool = False
    paused: bool = False


@dataclass
class Link:
    channels: list
    line: list = field(default_factory=list)  # of all channels, who came first in front
    busy_until: int = 0
    sent: int = 0
    drops: list = field(default_factory=list)  # when
    marks: list = field(default_factory=list)
    stood: list = field(default_factory=list)  # since when, and for how long
    still_since: int | None = None
    most: int = 0  # bytes that come from elsewhere


class Naive:
    """Links of a byte a nanosecond."""

    def __init__(self, graph, rules):
        self.rules, self.latency, self.heights = rules, int(graph.latency_ns[0]), graph.heights
        self.credits = rules.flow_control == "credits"
        self.links = [Link([Channel() for _ in range(rules.channels)]) for _ in range(len(graph))]
        self.calendar, self.numbers = [], count()

    def later(self, time, call, *what):
        """Who decides what to send knows all credits that are back by then."""
        heappush(self.calendar, (time, call != self.credit, (next(self.numbers),), call, what))

    def head(self, time, packet):
        flow = packet.flow
        order = flow.key, packet.at, packet.index, flow.ends, next(self.numbers)
        heappush(self.calendar, (time, 2, order, self.come, (packet,)))

    def channel(self, packet, behind=False):
        """On the link that it comes to, or on the one behind it."""
        way = packet.flow.way[: packet.at - behind + 1]
        falls = sum(self.heights[two] <= self.heights[one] for one, two in pairwise(way))
        return self.links[way[-1]].channels[min(falls, self.rules.channels - 1)]

    def run(self):
        while self.calendar:
            time, _, _, call, what = heappop(self.calendar)
            call(time, *what)

    def pump(self, now, flow):
        if flow.to_send and not flow.waits:
            flow.waits = True
            packet = flow.to_send.popleft()
            packet.at, packet.last_byte = 0, now
            self.head(now, packet)

    def come(self, now, packet):
        """A head comes to a link, through the buffer behind the one before."""
        way, at, rules = packet.flow.way, packet.at, self.rules
        link = self.links[way[at]]
        if at and not self.credits:
            behind = self.channel(packet, behind=True)
            if rules.flow_control == "drop" and behind.lying + packet.size > rules.buffer_bytes:
                self.links[way[at - 1]].drops.append(now)
                self.later(now + len(way) * self.latency, self.lost, packet)
                return
            behind.lying += packet.size
            if rules.flow_control == "pfc" and behind.lying > rules.xoff_bytes and not behind.asked:
                behind.asked = True
                self.later(now + self.latency, self.pause, way[at - 1], behind, True)
        if at and rules.marking:
            waiting = sum(each.size for each in link.line) + max(link.busy_until - now, 0)
            link.marks += [now] * (waiting > rules.marking.kmin_bytes)
        link.line.append(packet)
        self.serve(now, way[at])

    def lost(self, now, packet):
        flow, resent = packet.flow, 0
        while resent < len(flow.to_send) and flow.to_send[resent].last_byte:
            resent += 1  # behind those that were lost before
        packet.last_byte = now
        flow.to_send.insert(resent, packet)
        self.pump(now, flow)

    def pause(self, now, number, channel, paused):
        channel.paused = paused
        self.serve(now, number)

    def credit(self, now, number, channel, size):
        channel.promised -= size
        self.serve(now, number)

    def left(self, now, number, channel, size):
        channel.lying -= size
        if channel.asked and channel.lying <= self.rules.xon_bytes:
            channel.asked = False
            self.later(now + self.latency, self.pause, number, channel, False)

    def may_go(self, packet):
        """Nobody passes another one of the same channel."""
        way, channel = packet.flow.way, self.channel(packet)
        line = self.links[way[packet.at]].line
        if channel.paused or packet is not next(each for each in line if self.channel(each) is channel):
            return False
        free = not self.credits or packet.at + 1 == len(way)
        return free or channel.promised + packet.size <= self.rules.buffer_bytes

    def serve(self, now, number):
        link = self.links[number]
        while link.busy_until <= now and (going := next(filter(self.may_go, link.line), None)):
            self.send(now, number, going)
        link.most = max(link.most, sum(each.size for each in link.line if each.at))
        stands = link.busy_until <= now and (link.line or all(each.paused for each in link.channels))
        if stands and link.still_since is None:
            link.still_since = now
        if not stands and link.still_since is not None:
            link.stood += [(link.still_since, now - link.still_since)] * (now > link.still_since)
            link.still_since = None

    def send(self, now, number, packet):
        link, flow, size = self.links[number], packet.flow, packet.size
        last = packet.at + 1 == len(flow.way)
        if self.credits and not last:
            self.channel(packet).promised += size
        link.line.remove(packet)
        link.busy_until = now + size
        link.sent += size
        self.later(now + size, self.serve, number)
        if packet.at == 0:
            flow.waits = False
            self.pump(now, flow)
        else:
            told = (now + size + self.latency, self.credit) if self.credits else (now + size, self.left)
            self.later(*told, flow.way[packet.at - 1], self.channel(packet, behind=True), size)
        packet.last_byte = max(packet.last_byte, now + size) + self.latency
        packet.at += 1
        if last:
            flow.missing -= 1
            flow.arrived = max(flow.arrived, packet.last_byte)
        else:
            self.head(now + self.latency, packet)


def naive(graph, rules, messages):
    """When each message arrives, what links sent, what waited, and when they stood still, marked and dropped."""
    world, flows, most = Naive(graph, rules), [], rules.segment_bytes
    for key, (src, dst, size, start) in enumerate(messages):
        flow = Flow(key, src * graph.npus + dst, graph.route(src, dst), deque(), -(-size // most))
        flow.to_send.extend(Packet(flow, at // most, min(most, size - at)) for at in range(0, size, most))
        flows.append(flow)
        world.later(start, world.pump, flow)
    world.run()
    arrived = [None if flow.missing else flow.arrived for flow in flows]
    return arrived, [(link.sent, link.most, link.stood, link.marks, link.drops) for link in world.links]


RULES = [
    segments(4 * KIB, 4 * KIB, "credits"),
    segments(4 * KIB, 8 * KIB, "credits"),
    segments(4 * KIB, 64 * KIB, "credits"),
    segments(4 * KIB, UNLIMITED, "credits"),
    segments(4 * KIB, 12 * KIB, "drop"),
    segments(4 * KIB, 64 * KIB, "drop"),
    pfc(xoff=16 * KIB),
    pfc(latency_ns=700),
]
KINDS = [("Switch", 5, {}), ("Ring", 6, {}), ("FatTree", 8, {"routers": 2}), ("Mesh", 4, {})]


@st.composite
def cases(draw):
    """A network of one rule, and messages that meet on it, some of which begin later."""
    kind, npus, more = draw(st.sampled_from(KINDS))
    rules = draw(st.sampled_from(RULES))
    if draw(st.booleans()):
        rules = replace(rules, marking=Marking(12 * KIB, 12 * KIB + 1, 1.0, 1000))  # all above, none below
    rules = replace(rules, channels=draw(st.sampled_from([1, 1, 2, 3])))
    to = st.one_of(st.sampled_from([0, npus - 1]), st.integers(0, npus - 1))  # mostly many to one
    ends = st.tuples(to, st.integers(1, npus - 1))
    sizes = st.sampled_from([KIB + 5, 40 * KIB, 99 * KIB])
    drawn = draw(st.lists(st.tuples(ends, sizes, st.sampled_from([0, 0, 700, 30_000])), min_size=2, max_size=8))
    messages = [((dst + shift) % npus, dst, size, start) for (dst, shift), size, start in drawn]
    return machine(kind, npus, float(draw(st.sampled_from([100, 700]))), rules, **more), rules, messages


@given(cases())
@settings(max_examples=400)
def test_the_queues_are_those_of_a_naive_model(case):
    graph, rules, messages = case
    expected = naive(graph, rules, messages)
    assume(None not in expected[0])  # a circle of buffers, where links stand still for ever
    times, played = play(graph, messages)
    queues = played.queues()
    links = [
        (port.sent_bytes, port.peak_bytes, [*zip(*still, strict=True)], marked.tolist(), dropped.tolist())
        for port in played.ports[: len(graph)]
        for _, still, (marked, _), (dropped, _) in [queues.curves_of(port.link)]
    ]
    assert (times, links) == expected


@given(cases())
@settings(max_examples=400)
def test_so_they_are_where_nobody_notes_how_they_grow(case):
    """Segments then line up as soon as it is known that they will."""
    graph, rules, messages = case
    arrived, links = naive(graph, rules, messages)
    assume(None not in arrived)
    expected = [
        (sent, most, sum(lasted for _, lasted in stood), len(stood), len(marks), len(drops))
        for sent, most, stood, marks, drops in links
    ]
    with patch.object(network, "MOST_ROWS", 0):
        times, played = play(graph, messages)
    columns = (getattr(played.queues(), name) for name in ("peak_bytes", "still_ns", "stops", "marks", "drops"))
    told = [*zip(played.counts()[0].tolist(), *(column.tolist() for column in columns), strict=True)]
    assert (times, told) == (arrived, expected)
