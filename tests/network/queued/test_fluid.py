"""Laws played as flows: as with all messages, as segments where that is known, as the papers' equations say."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simcore
from simcore.network.queued import flows, islands, repeats
from simcore.network.queued.flow_tables import SLOPES, State, Way
from simcore.network.queued.fluid import FluidLinks
from simcore.network.queued.islands import Islands
from simcore.network.queued.steady import QueuedLinks
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN, Marking
from simcore.timeline.events import WAITING
from tests.network.queued import test_published as papers
from tests.network.queued.test_runs import NATIVE, told_of_links, with_ports
from tests.queues import KIB, MIB, RATE, curves, machine, play
from tests.runs import runs

MARKING = Marking(4 * KIB, 32 * KIB, 0.5, 1000)


@st.composite
def lawful_ports(draw):
    law = draw(st.sampled_from(["dcqcn", "hpcc", "swift", "timely", "window"]))
    routing = draw(st.sampled_from(["", "", "ecmp", "spray", "adaptive", "ugal"]))
    law = draw(st.sampled_from(["", law])) if routing in ("spray", "adaptive", "ugal") else law
    ports = replace(PLAIN, marking=MARKING, law=law, flows=True, routing=routing)
    if draw(st.booleans()):
        return replace(ports, flow_control="pfc", buffer_bytes=MIB, xoff_bytes=128 * KIB, xon_bytes=64 * KIB)
    channels = draw(st.sampled_from([1, 1, 3]))
    return replace(ports, buffer_bytes=draw(st.sampled_from([64 * KIB, MIB])), channels=channels)


def longer(run):
    """A run whose links are long enough for flows."""
    dims = tuple(replace(dim, latency_ns=dim.latency_ns + 400) for dim in run.topology.dims)
    return replace(run, topology=replace(run.topology, dims=dims))


@given(
    runs(kinds=("Ring", "Mesh", "FatTree", "Switch", "FullyConnected"), modes=NATIVE), lawful_ports(), lawful_ports()
)
@settings(max_examples=16)
def test_phases_alone_and_one_npu_for_all_are_those_of_all_messages(run, inner, outer):
    limited = longer(with_ports(run, inner, outer))
    assert told_of_links(limited) == told_of_links(limited, exact="messages")


def test_few_bytes_behind_many_do_not_make_these_forgotten(tmp_path):
    """A message of 256 bytes seemed to be there before one of 8 KiB that asks for another: the run was a deadlock."""
    (tmp_path / "step.txt").write_text("MICRO\n1\na -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 4096 0\n")
    tree = Dimension("FatTree", 16, 50e9, 500.0, routers=4, ports=replace(PLAIN, law="swift", flows=True))
    runs = [
        simcore.run(str(tmp_path / "step.txt"), Topology((tree,)), network=network, rendezvous=True)
        for network in ("queued", "congested")
    ]
    queued_ns, congested_ns = (run.to_dict()["time_ns"] for run in runs)
    assert queued_ns == pytest.approx(congested_ns, rel=0.1)


LAWS = ["dcqcn", "hpcc", "swift", "timely", "window"]


def ports_of(law, segment=4 * KIB, **more):
    marking = papers.MARKING if law in ("dcqcn", "window") else None
    ports = replace(PLAIN, buffer_bytes=4 * MIB, law=law, segment_bytes=segment, marking=marking)
    return replace(ports, **more)


def settled(law, flows, until_ns):
    """As in `test_published`: mean bytes before the shared link, and its use; flows that end together, at 5 GB/s."""
    marking = papers.MARKING if law == "dcqcn" else None
    ports = ports_of(law, buffer_bytes=64 * MIB, marking=marking)
    links = LinkGraph(machine("Switch", flows + 1, papers.LATENCY_NS, ports, bytes_per_s=5e9).topology, timed=True)
    size, down = until_ns * 5 // flows, flows + 1
    _, network = play(links, [(src, 0, size, 0) for src in range(1, flows + 1)], FluidLinks)
    begin_ns, end_ns = until_ns // 2, until_ns * 9 // 10
    table = network.table()
    at_ns, waiting = table.queues.curves_of(down)[WAITING]
    begins_ns, ends_ns = np.clip(table.use.spans(down), begin_ns, end_ns)
    at_ns = np.clip(np.append(at_ns, end_ns), begin_ns, end_ns)
    span_ns = end_ns - begin_ns
    return (waiting * np.diff(at_ns)).sum() / span_ns, (ends_ns - begins_ns).sum() / span_ns


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_dcqcns_queue_settles_where_its_fluid_model_does(flows):
    """20.2, 41.8 and 93.8 kB; with segments of a packet 5, 5 and 16 % more."""
    queue_bytes, _ = settled("dcqcn", flows, 60_000_000)
    assert queue_bytes == pytest.approx(papers.dcqcn_queue_bytes(flows, 5e9), rel=0.12)


@pytest.mark.parametrize("flows", [2, 5, 10])
def test_hpcc_uses_its_share_and_what_the_additive_steps_add_and_keeps_no_queue(flows):
    """Equation 4 of its paper: 96, 97.5 and 100 %."""
    queue_bytes, use = settled("hpcc", flows, 4_000_000)
    assert use == pytest.approx(0.95 + 0.05 * flows / 10, rel=0.005)
    assert queue_bytes < 1000


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_swift_keeps_delay_at_its_target_and_above_it_the_more_flows_there_are(flows):
    queue_bytes, use = settled("swift", flows, 2_000_000)
    assert use > 0.99
    assert 50_000 * 0.95 < queue_bytes < 50_000 * (1.05 + 0.05 * flows)


@pytest.mark.parametrize("law", LAWS)
def test_a_lone_message_takes_its_bytes_and_two_latencies(law):
    """HPCC leaves a twentieth of the link, less its additive step: eta + (1 - eta) / 10."""
    (arrived,), _ = play(machine(latency_ns=500.0, ports=ports_of(law)), [(0, 1, 10 * MIB, 0)], FluidLinks)
    share = 0.955 if law == "hpcc" else 1.0
    assert arrived == pytest.approx(10 * MIB / share + 1000, rel=1e-3 if law == "hpcc" else 2e-5)


@pytest.mark.parametrize("law", LAWS)
def test_flows_are_what_segments_are_where_queues_make_laws_act(law):
    """Four into one port with segments of a packet; TIMELY takes 5.0 to 11.7 ms with segments of 500 to 4,096 bytes."""
    links = machine("Switch", 5, 1000.0, ports_of(law, 1000), bytes_per_s=5e9)
    messages = [(src, 0, 4 * MIB, 0) for src in range(1, 5)]
    flows, segments = (max(play(links, messages, network)[0]) for network in (FluidLinks, QueuedLinks))
    assert flows == pytest.approx(segments, rel=0.3 if law == "timely" else 0.03)


@pytest.mark.parametrize(
    ("law", "routing", "kind"),
    [("dcqcn", "", "Switch"), ("hpcc", "", "Switch"), ("dcqcn", "adaptive", "FatTree"), ("hpcc", "spray", "FatTree")],
)
def test_arrays_are_what_lists_are(law, routing, kind, monkeypatch):
    pytest.importorskip("numba")
    messages = [(src, 0, size, start) for src, size, start in ((1, 4 * MIB, 0), (2, 4 * MIB, 0), (7, MIB, 200_000))]
    told = []
    for name in ("TO_MOVE", "TO_LOAD", "TO_COMPILE"):
        monkeypatch.setattr(islands, name, 0)
    for compiled in (False, True):
        monkeypatch.setattr(islands, "installed", lambda compiled=compiled: compiled)
        links = machine(kind, 8, 500.0, ports_of(law, routing=routing))
        arrived, network = play(links, messages, FluidLinks)
        told.append((arrived, curves(network.queues()), [column.tolist() for column in network.counts()]))
        assert network._tables.compiled == compiled
    assert told[0] == told[1]


TREE = {"kind": "FatTree", "npus": 16, "routers": 4}
SPREAD = {
    "tree": (TREE, [(npu, (npu + 4) % 16, 4 * MIB, 0) for npu in range(16)]),
    "incast": (TREE, [(npu, 0, MIB, 0) for npu in range(1, 16)]),
    "full ways": (TREE, [(npu, (npu + 4) % 16, 4 * MIB, 0) for npu in (0, 1, 2, 5, 9)] + [(4, 8, 8 * MIB, 100_000)]),
    "ring": ({"kind": "Ring", "npus": 8}, [(npu, (npu + far) % 8, MIB, 0) for npu in range(8) for far in range(1, 8)]),
    "groups": (
        {"kind": "Dragonfly", "npus": 36, "routers": 3, "groups": 6},
        [(npu, (npu + 7) % 36, MIB, 0) for npu in range(36)],
    ),
}


@pytest.mark.parametrize("routing", ["spray", "adaptive"])
@pytest.mark.parametrize(("kind", "messages"), SPREAD.values(), ids=SPREAD)
def test_flows_over_several_ways_are_what_segments_of_a_packet_are(kind, messages, routing):
    links = machine(**kind, latency_ns=500.0, ports=ports_of("", routing=routing), bytes_per_s=25e9)
    flows, segments = (play(links, messages, network) for network in (FluidLinks, QueuedLinks))
    assert max(flows[0]) == pytest.approx(max(segments[0]), rel=0.02)
    assert flows[1].counts()[0].sum() == segments[1].counts()[0].sum()


@pytest.mark.parametrize("network", [FluidLinks, QueuedLinks])
def test_longer_ways_are_taken_where_they_are_worth_it(network):
    """What UGAL is for (Kim et al., ISCA 2008, section 4): groups send to the next one, to which one link leads."""
    groups = {"kind": "Dragonfly", "npus": 36, "routers": 3, "groups": 6, "latency_ns": 500.0, "bytes_per_s": 25e9}
    next_group = [(npu, (npu + 6) % 36, 2 * MIB, 0) for npu in range(36)]

    def time_ns(messages, routing):
        return max(play(machine(**groups, ports=ports_of("", routing=routing)), messages, network)[0])

    assert time_ns(next_group, "ugal") < 0.65 * time_ns(next_group, "adaptive") < 0.45 * time_ns(next_group, "")
    if network is FluidLinks:  # segments choose too early for that: docs/queues.md
        to_all = [(npu, other, 64 * KIB, 0) for npu in range(36) for other in range(36) if other != npu]
        assert time_ns(to_all, "ugal") == pytest.approx(time_ns(to_all, "adaptive"), rel=0.03)
    ring = {"kind": "Ring", "npus": 8, "latency_ns": 500.0, "bytes_per_s": 25e9}
    around = [(npu, (npu + 1) % 8, MIB, 0) for npu in range(8)]
    usual, ugal = (play(machine(**ring, ports=ports_of("", routing=each)), around, network) for each in ("", "ugal"))
    assert usual[0] == ugal[0]
    assert usual[1].counts()[0].tolist() == ugal[1].counts()[0].tolist()


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("Ring", [(npu, (npu + 3) % 8, MIB, 0) for npu in range(8)]),
        ("Ring", [(0, 1, 4 * MIB, 0), (1, 2, 4 * MIB, 0)]),
        ("FullyConnected", [(0, 1, 4 * MIB, 0), (2, 1, 4 * MIB, 0)]),
        ("FullyConnected", [(npu, other, 64 * KIB, 0) for npu in range(8) for other in range(8) if other != npu]),
    ],
)
def test_longer_ways_are_left_where_nothing_waits_as_in_segments(kind, messages):
    """What passes through in a step, and what an NPU has still to send itself, is in no queue."""
    links = machine(kind, 8, 500.0, ports_of("", routing="ugal"), bytes_per_s=25e9)
    flows, segments = (play(links, messages, network) for network in (FluidLinks, QueuedLinks))
    assert max(flows[0]) == pytest.approx(max(segments[0]), rel=0.01)
    assert flows[1].counts()[0].sum() == segments[1].counts()[0].sum()


WAYS = st.lists(
    st.tuples(st.integers(-(2**30), 2**46), st.integers(1, 5000), st.integers(1, 30)), min_size=1, max_size=9
)


@given(WAYS, st.integers(0, 2**36))
def test_what_is_added_fills_the_least_full_ways_to_one_level(drawn, parts):
    ways = [Way(0, 1, fullest=fullest, slope=SLOPES // all_, alike=alike) for fullest, all_, alike in drawn]
    level = flows._level(State(ways=ways, taken=[*range(len(ways))]), len(ways), parts)

    def added(level):
        return sum(Fraction(way.alike * way.slope * max(level - way.fullest, 0), SLOPES) for way in ways)

    unit = 1 << max((parts // SLOPES).bit_length(), 1)
    assert added(level) <= parts
    assert added(level + 2 * unit) >= parts - unit


def test_of_two_ways_a_full_one_takes_less():
    """Around a ring of four both ways are as long; one of them is full, so spraying waits for it and adaptive not."""
    others = [(0, 1, 10 * MIB, 0), (1, 2, 10 * MIB, 0)]
    links = {routing: machine("Ring", 4, 500.0, ports_of("", routing=routing)) for routing in ("spray", "adaptive")}
    spray, adaptive = (play(each, [*others, (0, 2, MIB, MIB)], FluidLinks)[0][-1] - MIB for each in links.values())
    assert spray == pytest.approx(MIB, rel=0.01)  # half of the bytes at half of the rate
    assert 2 / 3 * MIB < adaptive < 0.8 * MIB  # or, with nothing on the full one, all of it at the whole rate


def test_two_flows_of_which_one_comes_later_share_evenly():
    """HPCC uses 96 %, and comes to it step by step; DCQCN and TIMELY take longer than this, as they do in segments."""
    for law in ("hpcc", "swift", "window"):
        messages = [(1, 0, 40 * MIB, 0), (2, 0, 40 * MIB, 4_000_000)]
        (first, last), _ = play(machine("Switch", 3, 1000.0, ports_of(law), bytes_per_s=5e9), messages, FluidLinks)
        alone_ns = 40 * MIB / 5
        evenly_ns = 2 * alone_ns - 4_000_000
        assert first == pytest.approx(evenly_ns, rel=0.17 if law == "hpcc" else 0.03), law
        assert last == pytest.approx(2 * alone_ns, rel=0.11 if law == "hpcc" else 0.01), law


LAWFUL = replace(PLAIN, law="swift", flows=True)


def test_what_happens_elsewhere_changes_nothing():
    """Of messages that share links one is on a long link, while another one comes."""
    dims = Dimension("Mesh", 2, RATE, 100.0, ports=LAWFUL), Dimension("Mesh", 3, RATE, 10_000.0, ports=LAWFUL)
    links, meeting = LinkGraph(Topology(dims)), [(1, 3, 100, 0), (0, 3, 100, 0), (0, 1, 2000, 0)]
    elsewhere = [(4, 5, 1, time_ns) for time_ns in range(0, 5000, 70)]
    alone, _ = play(links, meeting, FluidLinks)
    together, _ = play(links, meeting + elsewhere, FluidLinks)
    assert alone == together[:3]
    assert alone[2] < alone[0]


def test_a_message_among_others_is_no_faster_than_one_alone():
    """Others go first on the fast links, and leave its last byte alone with the slow one."""
    dims = (Dimension("Mesh", 3, 100e9, 1000.0, ports=LAWFUL), Dimension("Mesh", 2, RATE, 1000.0, ports=LAWFUL))
    links, message = LinkGraph(Topology(dims)), (0, 5, 100_000, 0)
    others = [(0, 2, 400_000, 0), (1, 2, 400_000, 0)]
    (alone,), _ = play(links, [message], FluidLinks)
    (among, *_), _ = play(links, [message, *others], FluidLinks)
    assert alone == pytest.approx(3 * 1000 + 100_000, abs=1000)
    assert among >= alone


GROUPS = {"kind": "Dragonfly", "npus": 36, "routers": 3, "groups": 6, "routing": "valiant"}


@pytest.mark.parametrize("far", [6, 7])
def test_channels_break_the_circles_of_flows_as_those_of_segments(far):
    """A way through a third group has at most seven links."""
    messages = [(npu, (npu + far) % 36, MIB, 0) for npu in range(36)]
    for channels in (1, 7):
        ports = ports_of("", buffer_bytes=MIB // 4 // channels, channels=channels)
        links = machine(**GROUPS, latency_ns=500.0, ports=ports, bytes_per_s=25e9)
        flows, segments = (play(links, messages, network)[0] for network in (FluidLinks, QueuedLinks))
        assert (None in flows) == (None in segments) == (channels == 1)
    assert max(flows) == pytest.approx(max(segments), rel=0.1)


def test_what_waits_in_a_circle_ends_there_though_hardly_anything_still_moves():
    links = machine("Ring", 4, 500.0, replace(LAWFUL, buffer_bytes=4 * KIB), bytes_per_s=50 * RATE)
    messages = [(src, dst, 100_000, 0) for src in range(4) for dst in range(4) if src != dst]
    arrived, network = play(links, messages, FluidLinks)
    assert None in arrived
    assert network.stuck()[0] == "the buffers of 4 links wait for each other in a circle"


EVERYBODY = range(8)
TRAFFIC = st.lists(
    st.tuples(
        st.sampled_from([1, 4, 7]),
        st.sampled_from([1000, 100_000, MIB]),
        st.sampled_from([0, 700, 40_000]),
        st.sampled_from([EVERYBODY, EVERYBODY, EVERYBODY[::2]]),
    ),
    min_size=1,
    max_size=4,
)


@given(TRAFFIC, lawful_ports(), st.sampled_from(["Ring", "FatTree"]))
@example([(1, MIB, 0, EVERYBODY), (7, 1000, 0, EVERYBODY), (4, 1000, 40_000, EVERYBODY)], LAWFUL, "Ring")
@settings(max_examples=15)
def test_one_for_many_and_periods_left_out_are_all_and_every_step(traffic, ports, kind):
    """Shifts: who takes part sends so far on."""
    links = machine(kind, ports=ports)
    messages = [(npu, (npu + far) % 8, size, start) for far, size, start, npus in traffic for npu in npus]
    told = []
    for least, first in ((0, 4), (10**18, 10**9)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Islands, "least_hops", least)
            patch.setattr(Islands, "least_work", least)
            patch.setattr(repeats, "FIRST", first)
            arrived, network = play(links, messages, FluidLinks)
        told.append((arrived, network.stuck(), curves(network.queues())))
    assert told[0] == told[1]


@pytest.mark.parametrize("routing", ["spray", "adaptive", "ugal"])
def test_once_flows_have_settled_long_messages_take_no_longer_to_play(routing):
    """Without a law, too: what they do not tell one is no change."""
    links, played = machine("FatTree", 8, 500.0, ports_of("", routing=routing)), []
    for size in (64 * MIB, 4096 * MIB):
        network = play(links, [(npu, (npu + 4) % 8, size, 0) for npu in range(8)], FluidLinks)[1]
        played.append(network._tables._played)
    assert played[1] < 1.5 * played[0]
