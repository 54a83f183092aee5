"""Virtual channels: what they must not change, what they keep apart, and that buffers never wait in a circle."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.network.queued.channels import channel_rows
from simcore.network.queued.routing import Ways
from simcore.network.topology.kinds import FABRICS
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


def enough(links):
    """Of all ways that ports may choose, the most channels inside each dimension: one, and one for each link behind
    which none is higher."""
    most, dims, heights = [1] * len(links.axes), links.dims, links.heights
    for src in range(links.npus):
        for dst in range(links.npus):
            for _, _, ways in Ways.of(links).found(src, dst):
                for way in ways:
                    falls = Counter(dims[one] for one, two in pairwise(way) if falls_short(dims, one, two, heights))
                    most = [max(known, 1 + falls[dim]) for dim, known in enumerate(most)]
    return most


def falls_short(dims, one, two, heights):
    """Whether a link of the same dimension is no higher."""
    return dims[one] == dims[two] and heights[two] <= heights[one]


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
def test_with_a_channel_more_wherever_a_way_does_not_rise_nothing_waits_in_a_circle(case, rules):
    """With room for a segment, or for what still comes once a pause is sent: every byte arrives."""
    dims, links, messages = case
    own = [rule.ports for rule in links.topology.dims]
    most = enough(links)
    ports = [
        replace(rules, routing=each.routing, seed=each.seed, channels=count, xon_bytes=0)
        for each, count in zip(own, most, strict=True)
    ]
    times, _ = play(network(dims, *ports), messages)
    assert None not in times


DRAGONFLY = Dimension("Dragonfly", 72, RATE, 100.0, groups=9, routers=4)
LINE = Dimension("Mesh", 8, RATE, 100.0)
PLUS = Dimension("DragonflyPlus", 40, RATE, 100.0, groups=5, routers=4)


@pytest.mark.parametrize(
    ("dim", "routing", "least"),
    [
        (DRAGONFLY, "", 2),
        (replace(DRAGONFLY, routing="valiant"), "", 3),
        (DRAGONFLY, "ecmp", 3),
        (replace(DRAGONFLY, npus=40, groups=5), "ugal", 3),
        (PLUS, "", 1),
        (PLUS, "valiant", 2),
        (LINE, "", 1),
        (LINE, "valiant", 2),
        (Dimension("Ring", 8, RATE, 100.0), "", 4),
        (Dimension("FatTree", 16, RATE, 100.0, routers=4), "spray", 1),
        (Dimension("FullyConnected", 6, RATE, 100.0), "valiant", 2),
    ],
)
def test_so_many_channels_have_no_circles(dim, routing, least):
    """Dally & Seitz: what waits never does in a circle if no channel leads to itself over those that are taken next.

    Kim et al. (ISCA 2008): of a dragonfly two for minimal ways and three for those over a third group.
    """
    rules = replace(PLAIN, routing=routing, buffer_bytes=64 * SEGMENT)
    links = network([dim], rules)
    npus = range(links.npus)
    found = (Ways.of(links).found(src, dst) for src in npus for dst in npus if src != dst)
    taken = {way for parts in found for _, _, ways in parts for way in ways}
    for channels in {max(least - 1, 1), least}:
        links = network([dim], replace(rules, channels=channels))
        follow = networkx.DiGraph(pair for way in taken for pair in pairwise(channel_rows(links, way)))
        assert networkx.is_directed_acyclic_graph(follow) == (channels == least)


@pytest.mark.parametrize("kind", FABRICS.names())
def test_heights_are_the_same_after_all_moves(kind):
    """So that one NPU may play for others."""
    more = {"routers": 2} | ({"groups": 3} if kind.startswith("Dragonfly") else {})
    links = network([Dimension(kind, 12, RATE, 100.0, **more)], PLAIN)
    axis = links.axes[0]
    assert len(links.heights) == len(links)
    for by in range(0, 12 if axis.fabric.symmetries else 1, axis.fabric.turn):
        moved = axis.moved(np.arange(len(links)), links.cuts[0], np.array(by))
        assert (links.heights[moved] == links.heights).all()


@pytest.mark.parametrize(("dims", "routing"), [(NETWORKS[1], ""), (NETWORKS[4], "valiant"), (NETWORKS[5], "")])
def test_fewer_may_wait_in_a_circle(dims, routing):
    ports = [replace(segments(SEGMENT, SEGMENT, "credits"), routing=routing)] * len(dims)
    links = network(dims, *ports)
    npus = range(links.npus)
    messages = [(src, dst, 9 * SEGMENT, 0) for src in npus for dst in npus if src != dst]
    times, played = play(links, messages)
    assert None in times
    assert "wait for each other in a circle" in played.stuck()[0]
    more = [replace(own, channels=count) for own, count in zip(ports, enough(links), strict=True)]
    assert None not in play(network(dims, *more), messages)[0]


def test_what_cannot_go_on_holds_up_its_own_channel_only():
    """On a ring 0 > 1 > 2 > 3 .. NPUs 1 and 2 fill the last link; what 0 sends to 2 shares the link before with them.

    A segment that arrives there waits for one segment at most that is on the link, as if it could go first.
    """
    full, victim = [(1, 3, 100 * SEGMENT, 0), (2, 3, 100 * SEGMENT, 0)], (0, 2, 10 * SEGMENT, 60 * SEGMENT)
    one, two = (
        play(machine("Ring", 8, ports=segments(SEGMENT, 2 * SEGMENT, "credits", channels=channels)), [*full, victim])[0]
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
    assert lines[6] == "hint: 4 virtual_channels in its dimension break the circle"
    assert len(lines) == 8
