"""A second opinion: the rules of docs/queues.md, written down naively with an object for each segment."""

from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.topology.ports import Marking
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
class Link:
    line: deque = field(default_factory=deque)
    busy_until: int = 0
    promised: int = 0  # room taken behind it, as far as its sender knows
    lying: int = 0
    asked: bool = False
    paused: bool = False
    sent: int = 0
    drops: list = field(default_factory=list)  # when
    marks: list = field(default_factory=list)
    stood: list = field(default_factory=list)  # since when, and for how long
    still_since: int | None = None


class Naive:
    """Links of a byte a nanosecond."""

    def __init__(self, graph, rules):
        self.rules, self.latency = rules, int(graph.latency_ns[0])
        self.links, self.calendar, self.numbers = [Link() for _ in range(len(graph))], [], count()

    def later(self, time, call, *what):
        heappush(self.calendar, (time, 0, (next(self.numbers),), call, what))

    def head(self, time, packet):
        flow = packet.flow
        order = flow.key, packet.at, packet.index, flow.ends, next(self.numbers)
        heappush(self.calendar, (time, 1, order, self.come, (packet,)))

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
        if at and rules.flow_control != "credits":
            behind = self.links[way[at - 1]]
            if rules.flow_control == "drop" and behind.lying + packet.size > rules.buffer_bytes:
                behind.drops.append(now)
                self.later(now + len(way) * self.latency, self.lost, packet)
                return
            behind.lying += packet.size
            if rules.flow_control == "pfc" and behind.lying > rules.xoff_bytes and not behind.asked:
                behind.asked = True
                self.later(now + self.latency, self.pause, way[at - 1], True)
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

    def pause(self, now, number, paused):
        link = self.links[number]
        link.paused = paused
        if paused:
            self.stop(now, link)
        else:
            self.go(now, link)
        self.serve(now, number)

    def stop(self, now, link):
        """It stands still, once what is on it is over."""
        if link.still_since is None:
            link.still_since = max(now, link.busy_until)

    def go(self, now, link):
        if link.still_since is not None and now > link.still_since:
            link.stood.append((link.still_since, now - link.still_since))
        link.still_since = None

    def credit(self, now, number, size):
        self.links[number].promised -= size
        self.serve(now, number)

    def left(self, now, number, size):
        link = self.links[number]
        link.lying -= size
        if link.asked and link.lying <= self.rules.xon_bytes:
            link.asked = False
            self.later(now + self.latency, self.pause, number, False)

    def serve(self, now, number):
        link, rules = self.links[number], self.rules
        while link.line and link.busy_until <= now and not link.paused:
            packet = link.line[0]
            flow, size = packet.flow, packet.size
            last = packet.at + 1 == len(flow.way)
            if rules.flow_control == "credits" and not last:
                if link.promised + size > rules.buffer_bytes:
                    self.stop(now, link)
                    return
                self.go(now, link)
                link.promised += size
            link.line.popleft()
            link.busy_until = now + size
            link.sent += size
            self.later(now + size, self.serve, number)
            if packet.at == 0:
                flow.waits = False
                self.pump(now, flow)
            elif rules.flow_control == "credits":
                self.later(now + size + self.latency, self.credit, flow.way[packet.at - 1], size)
            else:
                self.later(now + size, self.left, flow.way[packet.at - 1], size)
            packet.last_byte = max(packet.last_byte, now + size) + self.latency
            packet.at += 1
            if last:
                flow.missing -= 1
                flow.arrived = max(flow.arrived, packet.last_byte)
            else:
                self.head(now + self.latency, packet)


def naive(graph, rules, messages):
    """When each message arrives, what links sent, and when they stood still, marked and dropped."""
    world, flows, most = Naive(graph, rules), [], rules.segment_bytes
    for key, (src, dst, size, start) in enumerate(messages):
        flow = Flow(key, src * graph.npus + dst, graph.route(src, dst), deque(), -(-size // most))
        flow.to_send.extend(Packet(flow, at // most, min(most, size - at)) for at in range(0, size, most))
        flows.append(flow)
        world.later(start, world.pump, flow)
    world.run()
    arrived = [None if flow.missing else flow.arrived for flow in flows]
    return arrived, [(link.sent, link.stood, link.marks, link.drops) for link in world.links]


RULES = [
    segments(4 * KIB, 4 * KIB, "credits"),
    segments(4 * KIB, 8 * KIB, "credits"),
    segments(4 * KIB, 64 * KIB, "credits"),
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
    ends = st.tuples(st.sampled_from([0, 0, npus - 1]), st.integers(1, npus - 1))  # many to one
    sizes = st.sampled_from([KIB + 5, 40 * KIB, 99 * KIB])
    drawn = draw(st.lists(st.tuples(ends, sizes, st.sampled_from([0, 0, 700, 30_000])), min_size=2, max_size=6))
    messages = [((dst + shift) % npus, dst, size, start) for (dst, shift), size, start in drawn]
    return machine(kind, npus, float(draw(st.sampled_from([100, 700]))), rules, **more), rules, messages


@given(cases())
@settings(max_examples=400)
def test_the_queues_are_those_of_a_naive_model(case):
    graph, rules, messages = case
    times, played = play(graph, messages)
    queues = played.queues()
    links = [
        (port.sent_bytes, [*zip(*still, strict=True)], marked.tolist(), dropped.tolist())
        for port in played.ports
        for _, still, (marked, _), (dropped, _) in [queues.curves_of(port.link)]
    ]
    assert (times, links) == naive(graph, rules, messages)
