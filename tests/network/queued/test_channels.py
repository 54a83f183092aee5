"""Virtual channels: what they must not change, what they keep apart, and that buffers never wait in a circle."""

from dataclasses import replace
from itertools import pairwise

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.network.queued.routing import Ways
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN
from tests.queues import KIB, RATE, curves, machine, pfc, play, segments

SEGMENT = 4 * KIB
NETWORKS = [
    [Dimension("Ring", 6, RATE, 100.0)],
    [Dimension("Ring", 4, RATE, 100.0), Dimension("Ring", 3, RATE, 700.0)],
    [Dimension("Mesh", 3, RATE, 100.0), Dimension("Ring", 4, RATE, 100.0)],
    [Dimension("FatTree", 8, RATE, 100.0, routers=2)],
    [Dimension("Dragonfly", 12, RATE, 100.0, groups=3, routers=2)],
    [Dimension("Dragonfly", 12, RATE, 100.0, groups=4, routers=3, routing="valiant")],
    [Dimension("Switch", 2, RATE, 0.0), Dimension("Ring", 5, RATE, 100.0)],
]
ROUTINGS = ["", "ecmp", "spray", "adaptive", "valiant", "ugal"]


def network(dims, *ports):
    return LinkGraph(Topology(tuple(replace(dim, ports=own) for dim, own in zip(dims, ports, strict=True))))


def longest(links):
    """Of all ways that ports may choose, the most links inside each dimension."""
    most, begins = [0] * len(links.axes), [axis.links_before for axis in links.axes]
    for src in range(links.npus):
        for dst in range(links.npus):
            for _, _, ways in Ways.of(links).found(src, dst):
                for way in ways:
                    dims = [sum(link >= begin for begin in begins) - 1 for link in way]
                    most = [max(known, dims.count(dim)) for dim, known in enumerate(most)]
    return most


def said(links, messages):
    times, played = play(links, messages)
    return times, [column.tolist() for column in played.counts()], curves(played.queues())


@st.composite
def traffic(draw, rules):
    """A network whose ports choose ways, and messages from everybody to everybody, or to a few."""
    dims = draw(st.sampled_from(NETWORKS))
    ports = [replace(rules, routing=draw(st.sampled_from(ROUTINGS)), seed=draw(st.integers(0, 3))) for _ in dims]
    links = network(dims, *ports)
    few, sizes = draw(st.integers(1, links.npus)), draw(st.sampled_from([SEGMENT, 9 * SEGMENT + 1]))
    apart_ns = draw(st.sampled_from([0, 1, 900]))
    npus = range(links.npus)
    return dims, links, [(src, dst, sizes, src * apart_ns) for src in npus for dst in npus[:few] if src != dst]


@given(traffic(replace(PLAIN, segment_bytes=SEGMENT)), st.integers(2, 9))
def test_without_limits_channels_change_nothing(case, channels):
    dims, links, messages = case
    ports = [replace(dim.ports, channels=channels) for dim in links.topology.dims]
    assert said(network(dims, *ports), messages) == said(links, messages)


@given(traffic(PLAIN), st.sampled_from([segments(SEGMENT, SEGMENT, "credits"), pfc(xoff=1, latency_ns=700)]))
def test_as_many_channels_as_a_way_has_links_inside_its_dimension_never_wait_in_a_circle(case, rules):
    """With room for a segment, or for what still comes once a pause is sent: every byte arrives."""
    dims, links, messages = case
    own = [rule.ports for rule in links.topology.dims]
    most = longest(links)
    ports = [
        replace(rules, routing=each.routing, seed=each.seed, channels=count, xon_bytes=0)
        for each, count in zip(own, most, strict=True)
    ]
    times, _ = play(network(dims, *ports), messages)
    assert None not in times


@pytest.mark.parametrize(("own", "routing", "least"), [("minimal", "", 3), ("valiant", "", 5), ("minimal", "ecmp", 4)])
def test_a_dragonfly_has_no_circles_with_so_many_channels(own, routing, least):
    """Dally & Seitz: what waits never does in a circle if no channel leads to itself over those that are taken next."""
    dim = Dimension("Dragonfly", 72, RATE, 100.0, groups=9, routers=4, routing=own)
    ways = Ways.of(network([dim], replace(PLAIN, routing=routing)))
    pairs = [(src, dst) for src in range(72) for dst in range(72) if src != dst]
    taken = {way for pair in pairs for _, _, found in ways.found(*pair) for way in found}
    for channels in (least - 1, least):
        channelled = ([(link, min(hop, channels - 1)) for hop, link in enumerate(way)] for way in taken)
        follow = networkx.DiGraph(pair for way in channelled for pair in pairwise(way))
        assert networkx.is_directed_acyclic_graph(follow) == (channels == least)


@pytest.mark.parametrize(("dims", "routing"), [(NETWORKS[1], ""), (NETWORKS[4], "valiant"), (NETWORKS[5], "")])
def test_fewer_may_wait_in_a_circle(dims, routing):
    ports = [replace(segments(SEGMENT, SEGMENT, "credits"), routing=routing)] * len(dims)
    links = network(dims, *ports)
    npus = range(links.npus)
    messages = [(src, dst, 9 * SEGMENT, 0) for src in npus for dst in npus if src != dst]
    times, played = play(links, messages)
    assert None in times
    assert "wait for each other in a circle" in played.stuck()[0]
    enough = [replace(own, channels=count) for own, count in zip(ports, longest(links), strict=True)]
    assert None not in play(network(dims, *enough), messages)[0]


def test_what_cannot_go_on_holds_up_its_own_channel_only():
    """On a line 0 > 1 > 2 > 3 NPUs 1 and 2 fill the last link; what NPU 0 sends to 2 shares the link before with them.

    A segment that arrives there waits for one segment at most that is on the link, as if it could go first.
    """
    full, victim = [(1, 3, 100 * SEGMENT, 0), (2, 3, 100 * SEGMENT, 0)], (0, 2, 10 * SEGMENT, 60 * SEGMENT)
    one, two = (
        play(machine("Mesh", 4, ports=segments(SEGMENT, 2 * SEGMENT, "credits", channels=channels)), [*full, victim])[0]
        for channels in (1, 2)
    )
    alone_ns = 60 * SEGMENT + 10 * SEGMENT + 200
    assert two[2] <= alone_ns + 10 * SEGMENT
    assert one[2] > alone_ns + 10 * SEGMENT
    assert max(one) == max(two)  # the full link is never idle


def test_what_ends_a_long_circle_is_told_with_it():
    """Of 16 links some are told; an error shows ten lines of what waits."""
    links = machine("Ring", 16, ports=segments(4 * KIB, 4 * KIB, "credits"))
    messages = [(npu, (npu + 4) % 16, 64 * KIB, 0) for npu in range(16)]
    circle, *lines = play(links, messages)[1].stuck()
    assert circle == "the buffers of 16 links wait for each other in a circle"
    assert "11 more" in lines[5]
    assert all(line.startswith("hint: ") for line in lines[6:])
    assert "virtual_channels" in lines[6]
    assert len(lines) == 8
