"""Whole runs with queues: as without them where nothing is limited, folded as unfolded, and what they say."""

import re
from dataclasses import replace
from functools import partial
from itertools import cycle
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine.settings import Settings
from simcore.errors import DeadlockError, InputError
from simcore.network.queued import network as of_queues
from simcore.network.queued.routing import Ways
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN, UNLIMITED, Marking
from simcore.report.archive import events_npz, read_archive
from simcore.report.model import Report
from simcore.report.queues import deepest
from simcore.report.text import render
from simcore.report.timelines.selection import Limits, Selection, choose
from simcore.report.timelines.tracks import counters
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.meeting.live import Live
from simcore.timeline.events import WAITING, QueueTable
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, Workload
from tests.queues import KIB, MIB, curves
from tests.runs import Run, micro, runs

NATIVE = [("native", "queued")]
LAWS = st.sampled_from(["", "dcqcn", "hpcc", "swift", "timely", "window"])
ROUTINGS = st.sampled_from(["", "", "ecmp", "spray", "adaptive", "valiant", "ugal"])
CHANNELS = st.sampled_from([1, 1, 2, 5])
MARKING = Marking(4 * KIB, 32 * KIB, 0.5, 1000)
COUNTED = ("still_ns", "marks", "drops")


@st.composite
def port_rules(draw):
    segment = draw(st.sampled_from([4 * KIB, 16 * KIB]))
    ports = replace(PLAIN, segment_bytes=segment, marking=draw(st.sampled_from([None, MARKING])), law=draw(LAWS))
    ports = replace(ports, routing=draw(ROUTINGS), seed=draw(st.integers(0, 2)), channels=draw(CHANNELS))
    control = draw(st.sampled_from(["credits", "pfc", "drop"]))
    if control == "pfc":
        xoff = 8 * segment
        return replace(ports, flow_control=control, buffer_bytes=64 * MIB, xoff_bytes=xoff, xon_bytes=xoff // 2)
    return replace(ports, flow_control=control, buffer_bytes=32 * segment)


def with_ports(run, *ports):
    """A run whose dimensions take these ports in turn."""
    dims = tuple(replace(dim, ports=own) for dim, own in zip(run.topology.dims, cycle(ports), strict=False))
    return replace(run, topology=replace(run.topology, dims=dims))


def told_of_links(run, **changes):
    """All that a run says, and of every link what it carried and how its queue grew."""
    try:
        timeline = run.timeline(**changes)
    except DeadlockError:
        return "deadlock"
    table = timeline.links
    columns = [table.size_bytes, table.busy_ns, *(getattr(table.queues, name) for name in QueueTable.COLUMNS)]
    grown = (curves(table.queues), timeline.notes) if of_queues.MOST_ROWS else ()
    return timeline.time_ns, [column.tolist() for column in columns], *grown


@given(runs(kinds=("Ring", "Mesh", "FatTree", "Switch", "FullyConnected"), modes=NATIVE), port_rules(), port_rules())
@settings(max_examples=15)
def test_phases_timed_alone_and_one_npu_for_all_meet_the_queues_that_all_messages_do(run, inner, outer):
    limited = with_ports(run, inner, outer)
    assert told_of_links(limited) == told_of_links(limited, exact="messages")


@given(runs(kinds=("Ring", "Mesh", "FatTree", "Switch"), modes=NATIVE), port_rules(), port_rules())
@settings(max_examples=25)
def test_nothing_is_otherwise_where_nobody_notes_how_queues_grow(run, inner, outer):
    limited = with_ports(run, *(replace(each, law="", marking=None) for each in (inner, outer)))
    with patch.object(of_queues, "MOST_ROWS", 0):
        played = told_of_links(limited)
    expected = told_of_links(limited, exact="messages")
    assert played == (expected if expected == "deadlock" else expected[:2])


@pytest.mark.parametrize("kind", ["Switch", "Mesh"])
def test_a_pipeline_whose_transfers_meet_on_queues_is_the_one_of_all_messages(kind):
    """Stages of four, whose collectives and handovers wait for each other in small buffers."""
    exchange = Phase(3000, CollectiveKind.ALL_REDUCE, 100_000)
    model = Workload(
        "HYBRID_TRANSFORMER", (Layer("row", exchange, exchange, exchange),) * 4,
        Parallelism(tp=2, pp=2, gradient_accumulation=2), pipeline_bytes=150_000,
    )  # fmt: skip
    ports = replace(PLAIN, segment_bytes=4 * KIB, buffer_bytes=32 * KIB)
    run = Run(model, Topology((Dimension(kind, 8, 50e9, 500.0),)), settings=Settings(network="queued"))
    run = with_ports(run, ports)
    assert told_of_links(run) == told_of_links(run, exact="messages")


KINDS = st.sampled_from(["Ring", "Mesh", "FatTree", "Switch", "FullyConnected"])
GROUPS = st.lists(st.integers(0, 7), min_size=2, max_size=5, unique=True)
COLLECTIVES = st.sampled_from(["all_gather", "all_reduce", "reduce_scatter", "all_to_all"])
NODES = st.lists(st.tuples(COLLECTIVES, st.sampled_from([500, 65_536, 300_000]), GROUPS), min_size=2, max_size=8)


def finishes(kind, ports, nodes, computed, exact):
    """When each of eight NPUs is through with collectives of some of them, and with what it computes before."""
    graph = simcore.graph(8)
    for npu, compute_ns in computed.items():
        graph.compute(compute_ns, on=npu)
    for name, size_bytes, members in nodes:
        graph.collective(name, size_bytes, on=tuple(members))
    topology = Topology((Dimension(kind, 8, 12.5e9, 100.0, ports=ports),))
    try:
        return simcore.run(graph, topology, network="queued", exact=exact).timeline.finish_ns
    except DeadlockError:
        return "deadlock"


PIECES = [("reduce_scatter", 1000, [1, 2, 4]), ("all_gather", 300_000, [5, 3]), ("all_gather", 500, [3, 4])]


@given(KINDS, port_rules(), st.booleans(), NODES, st.dictionaries(st.integers(0, 7), st.sampled_from([100, 3000])))
@example("FullyConnected", replace(PLAIN, law="dcqcn", marking=MARKING, buffer_bytes=MIB), True, PIECES, {1: 100})
@settings(max_examples=40)
def test_groups_that_meet_in_any_order_take_as_long_as_all_messages_say(kind, ports, flows, nodes, computed):
    """In segments and as flows, whose ends are known before the instant in which an NPU decides what comes next."""
    rules = replace(ports, flows=flows and bool(ports.law) and ports.flow_control != "drop")
    usual, messages = (finishes(kind, rules, nodes, computed, exact) for exact in ("", "messages"))
    assert usual == messages


@pytest.mark.parametrize(("kind", "routing"), [("Switch", "valiant"), ("FatTree", "ecmp"), ("FatTree", "spray")])
def test_others_are_met_on_ways_that_are_not_the_usual_ones(kind, routing):
    """Collectives of NPUs apart: who shares no link on usual routes may do so on others."""
    ports = replace(PLAIN, segment_bytes=16 * KIB, routing=routing)
    topology = Topology((Dimension(kind, 8, 12.5e9, 100.0, ports=ports),))
    graph = simcore.graph(8)
    for members in ((0, 1, 3), (2, 6), (4, 7, 5)):
        graph.collective("all_gather", 65_536, on=members)
    usual, messages = (simcore.run(graph, topology, network="queued", exact=exact) for exact in ("", "messages"))
    assert usual.timeline.finish_ns == messages.timeline.finish_ns


@pytest.mark.parametrize(
    ("kind", "routing", "law"),
    [("Ring", "valiant", ""), ("Ring", "adaptive", ""), ("Ring", "valiant", "hpcc"), ("Switch", "valiant", "hpcc")],
)
def test_groups_that_only_other_ways_bring_together_meet(kind, routing, law):
    """Pairs of neighbours on a ring share no link on their usual ways, and over a third NPU they do.

    HPCC does not compare what links of different ways have sent since the run began. On a switch one NPU plays for all.
    """
    exchange = Phase(3000, CollectiveKind.ALL_REDUCE, 200_000)
    model = Workload("HYBRID_TRANSFORMER", (Layer("row", exchange, exchange, exchange),) * 2, Parallelism(tp=2))
    run = Run(model, Topology((Dimension(kind, 4, 50e9, 500.0),)), settings=Settings(network="queued"))
    run = with_ports(run, replace(PLAIN, segment_bytes=4 * KIB, buffer_bytes=256 * KIB, routing=routing, law=law))
    assert told_of_links(run) == told_of_links(run, exact="messages")


@pytest.mark.parametrize(
    ("kind", "tp", "law", "players"),
    [("Ring", 1, "hpcc", 1), ("Switch", 1, "", 1), ("FullyConnected", 2, "hpcc", 1), ("Ring", 2, "", 2)],
)
def test_one_npu_plays_for_all_over_third_npus(monkeypatch, kind, tp, law, players):
    """Where groups cut the network, too; of a ring that they cut those of one group play."""
    senders, found = set(), Ways.found
    monkeypatch.setattr(Ways, "found", lambda self, src, dst: (senders.add(src), found(self, src, dst))[1])
    small, large = (Phase(3000, CollectiveKind.ALL_REDUCE, size) for size in (40_000, 200_000))
    model = Workload("HYBRID_TRANSFORMER", (Layer("row", small, small, large),), Parallelism(tp=tp))
    run = Run(model, Topology((Dimension(kind, 8, 50e9, 500.0),)), settings=Settings(network="queued"))
    run = with_ports(run, replace(PLAIN, segment_bytes=4 * KIB, routing="valiant", law=law))
    told = told_of_links(run)
    assert senders == {*range(players)}
    assert told == told_of_links(run, exact="messages")


DRAGONFLY = Dimension("Dragonfly", 16, 50e9, 500.0, groups=4, routers=2)


@pytest.mark.parametrize(
    ("dim", "routing", "flows"),
    [
        (DRAGONFLY, "", False),
        (replace(DRAGONFLY, routing="valiant"), "", False),
        (DRAGONFLY, "ugal", True),
        (replace(DRAGONFLY, kind="DragonflyPlus", global_links=4), "", False),  # links side by side
        (replace(DRAGONFLY, kind="DragonflyPlus", global_links=3), "valiant", False),
        (replace(DRAGONFLY, kind="DragonflyPlus", global_links=2), "ugal", True),
    ],
)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_npus_of_one_group_of_a_dragonfly_play_for_all(monkeypatch, dim, routing, flows, tp):
    """Whatever groups cut it: of one that reaches around it the first NPUs play."""
    senders, found = set(), Ways.found
    monkeypatch.setattr(Ways, "found", lambda self, src, dst: (senders.add(src), found(self, src, dst))[1])
    small, large = (Phase(3000, CollectiveKind.ALL_REDUCE, size) for size in (40_000, 200_000))
    model = Workload("HYBRID_TRANSFORMER", (Layer("row", small, small, large),), Parallelism(tp=tp))
    run = Run(model, Topology((dim,)), settings=Settings(network="queued"))
    run = with_ports(run, replace(PLAIN, segment_bytes=4 * KIB, routing=routing, flows=flows))
    told = told_of_links(run)
    assert senders == {*range(4)}
    assert told == told_of_links(run, exact="messages")


def training(routing, stragglers, outer):
    """Pairs on a ring, whose all-reduces meet those of gradients across it; another ring outside."""
    small, large = (Phase(3000, CollectiveKind.ALL_REDUCE, size) for size in (40_000, 200_000))
    model = Workload("HYBRID_TRANSFORMER", (Layer("row", small, small, large),) * 3, Parallelism(tp=2))
    dims = (Dimension("Ring", 4, 50e9, 500.0), Dimension("Ring", outer, 50e9, 500.0))
    run = Run(model, Topology(dims), settings=Settings(network="queued", stragglers=dict(stragglers)))
    return with_ports(run, replace(PLAIN, segment_bytes=4 * KIB, buffer_bytes=MIB, routing=routing))


@pytest.mark.parametrize(
    ("routing", "stragglers", "outer", "parts", "most"),
    [("adaptive", {}, 4, False, 9), ("adaptive", {5: 1.5}, 4, False, 16), ("", {5: 1.001}, 3, True, 6)],
)
def test_places_in_which_the_same_meets_are_played_once_until_they_part(
    monkeypatch, routing, stragglers, outer, parts, most
):
    """Of three or more places; those that go on in another way play again what they had in common."""
    made, parted = [], []
    play, part = Live.__init__, Live.parted
    monkeypatch.setattr(Live, "__init__", lambda self, *given: (made.append(self), play(self, *given))[1])
    monkeypatch.setattr(Live, "parted", lambda self, *given: (parted.append(self), part(self, *given))[1])
    run = training(routing, stragglers, outer)
    assert told_of_links(run) == told_of_links(run, exact="messages")
    assert bool(parted) == parts
    assert 1 <= len(made) <= most
    assert stragglers or len(made) == len({live.begin_ns for live in made})


@pytest.mark.parametrize(("stragglers", "adopted"), [({1: 1.001}, 3), ({5: 1.001, 9: 1.001}, 1)])
def test_places_that_part_in_the_same_way_go_on_together(monkeypatch, stragglers, adopted):
    """Of five rings one or two are late: what the others had in common is played again once, not for each of them.

    Where NPUs are folded these are one.
    """
    parted, together = [], []
    part, adopt = Live.parted, Live.adopt
    monkeypatch.setattr(Live, "parted", lambda self, *given: (parted.append(self), part(self, *given))[1])
    monkeypatch.setattr(Live, "adopt", lambda self, *given: (together.append(adopt(self, *given)), together[-1])[1])
    run = training("", stragglers, 5)
    assert told_of_links(run, fold=False) == told_of_links(run, exact="messages") == told_of_links(run)
    assert (len(parted), sum(together)) == (2, adopted)


@given(
    st.sampled_from(["", "adaptive", "valiant", "spray"]),
    st.integers(3, 5),
    st.dictionaries(st.integers(0, 11), st.sampled_from([1.001, 1.002, 1.5]), max_size=4),
)
@example("", 3, {2: 1.5, 5: 1.5})
@example("spray", 3, {4: 1.5, 11: 1.5})
@settings(max_examples=15)
def test_whoever_is_late_wherever_nothing_is_lost(routing, outer, stragglers):
    """What had begun in one place before it parted from others was lost, and the run a deadlock."""
    run = training(routing, stragglers, outer)
    assert told_of_links(run) == told_of_links(run, exact="messages")


def test_groups_of_a_phase_one_behind_the_other_are_marked_alike():
    """An even sequence is in the place of chance: it does not go on where another group of the phase has ended."""
    gather, large = (partial(Phase, collective=each) for each in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE))
    scattered = Phase(3000, CollectiveKind.REDUCE_SCATTER, 200_000)
    layers = (
        Layer("first", gather(0, size_bytes=40_000), Phase(3000), gather(0, size_bytes=200_000)),
        Layer("middle", gather(1000, size_bytes=40_000), large(0, size_bytes=200_000), scattered),
        Layer("last", gather(7001, size_bytes=1000), Phase(7001), large(7001, size_bytes=200_000)),
    )
    model = Workload("HYBRID_DATA_MODEL", layers, Parallelism(tp=2))
    dims = (Dimension("Ring", 6, 50e9, 1.0), Dimension("Mesh", 4, 25e9, 500.0))
    ports = replace(PLAIN, segment_bytes=4 * KIB, buffer_bytes=256 * KIB, law="dcqcn", marking=MARKING)
    run = with_ports(Run(model, Topology(dims), settings=Settings(network="queued")), replace(ports, routing="valiant"))
    assert told_of_links(run) == told_of_links(run, exact="messages")


@given(runs(modes=NATIVE))
@settings(max_examples=40)
def test_a_run_without_limits_is_a_run_on_shared_links(run):
    assert run.report() == {**run.report(network="congested"), "network": "queued"}


@given(runs(kinds=("Ring", "FatTree", "Switch", "FullyConnected"), modes=NATIVE), st.integers(0, 2))
@settings(max_examples=25)
def test_shared_links_take_the_hashed_ways_of_queues_that_never_fill(run, seed):
    """Buffers of a petabyte are played as queues, shared links are not."""
    hashed = replace(PLAIN, routing="ecmp", seed=seed)
    deep, plain = (with_ports(run, replace(hashed, buffer_bytes=size)) for size in (1 << 50, UNLIMITED))
    tables = [each.timeline(network=name) for each, name in ((deep, "queued"), (plain, "congested"))]
    for left, right in zip(
        *([each.time_ns, *each.links.size_bytes, *each.links.busy_ns] for each in tables), strict=True
    ):
        assert left == right


def write(path, **keys):
    base = {"topology": "[Ring]", "npus_count": "[8]", "bandwidth": '["400 Gb/s"]', "latency": '["500 ns"]'}
    path.write_text("".join(f"{key}: {value}\n" for key, value in (base | keys).items()), encoding="utf-8")
    return str(path)


def test_a_file_says_all_of_a_port(tmp_path):
    file = write(
        tmp_path / "net.yaml",
        buffer="[1 MiB]",
        flow_control="[pfc]",
        ecn="[{kmin: 100 KiB, kmax: 400 KiB, pmax: 0.2, packet: 1000}]",
        congestion_control="[{law: dcqcn, timer: 30 us, additive: 40 Mb/s}]",
        routing="[valiant]",
        routing_seed="3",
    )
    ports = load(file).dims[0].ports
    assert (ports.buffer_bytes, ports.channels) == (MIB, 1)
    assert ports.segment_bytes == 64 * KIB
    assert ports.xoff_bytes == MIB - 2 * 64 * KIB - 50_000  # what still comes: two latencies at line rate, two segments
    assert ports.marking == Marking(100 * KIB, 400 * KIB, 0.2, 1000)
    assert ports.parameters == (("timer_ns", 30_000.0), ("additive_bytes_per_s", 5e6))
    assert (ports.routing, ports.seed) == ("valiant", 3)


@pytest.mark.parametrize(
    ("keys", "told"), [({}, 0), ({"routing": "[ecmp]"}, 0), ({"routing": "[spray]"}, 1), ({"buffer": "[1 MiB]"}, 1)]
)
def test_shared_links_say_what_of_the_ports_they_pass_over(tmp_path, keys, told):
    tree = write(tmp_path / "tree.yaml", topology="[FatTree]", npus_count="[16]", **keys)
    notes = simcore.run("micro_all_reduce", tree).timeline.notes
    assert sum("--network queued has them" in note for note in notes) == told


def test_channels_share_a_buffer(tmp_path):
    given = {"flow_control": "[pfc]", "congestion_control": "[swift]", "latency": '["50 ns"]'}
    one, four = (
        load(write(tmp_path / "net.yaml", buffer="[1 MiB]", virtual_channels=f"[{count}]", **given)).dims[0].ports
        for count in (1, 4)
    )
    assert (one.channels, one.buffer_bytes, one.segment_bytes, one.flows) == (1, MIB, 64 * KIB, True)
    assert (four.channels, four.buffer_bytes, four.segment_bytes, four.flows) == (4, 256 * KIB, 16 * KIB, True)
    assert four.xoff_bytes == 256 * KIB - 2 * 16 * KIB - 5_000
    assert load(write(tmp_path / "net.yaml", virtual_channels="[4]")).dims[0].ports.channels == 1  # without limits


@pytest.mark.parametrize(
    ("keys", "place", "what"),
    [
        ({"virtual_channels": "[0]"}, "5:20", "whole number of at least 1"),
        ({"virtual_channels": "[16]"}, "5:20", "whole number from 1 to 15"),
        ({"virtual_channels": "[two]"}, "5:20", "virtual_channels[0] must be a whole number"),
        ({"buffer": "[64 KiB]", "segment": "[32 KiB]", "virtual_channels": "[3]"}, "5:10", "at least 98,304 bytes"),
        ({"buffer": "[200 KiB]", "flow_control": "[pfc]", "virtual_channels": "[4]"}, "5:10", "come in each channel"),
        ({"buffer": "[none]"}, "5:10", "expected a size"),
        ({"buffer": "[1 KiB]", "segment": "[2 KiB]"}, "5:10", "a buffer must hold a segment"),
        ({"buffer": "[100 KiB]", "flow_control": "[pfc]", "segment": "[64 KiB]"}, "5:10", "PFC would lose bytes"),
        ({"buffer": "[1 MiB]", "xoff": "[1 kB]"}, "6:8", "xoff and xon are PFC's"),
        ({"buffer": "[1 MiB]", "flow_control": "[pfc]", "xon": "[1 MB]"}, "7:7", "a pause must end below"),
        ({"flow_control": "[drop]"}, "5:16", "drop needs a buffer that ends"),
        ({"buffer": "[1 MiB]", "flow_control": "[stop]"}, "6:16", "flow_control[0] is not known"),
        ({"ecn": "[{kmin: 2 kB, kmax: 1 kB, pmax: 1}]"}, "5:26", "kmax must be above kmin"),
        ({"ecn": "[{kmin: 1 kB, kmax: 2 kB, pmax: 2}]"}, "5:38", "a chance is at most 1"),
        ({"buffer": "[1 MiB]", "congestion_control": "[dcqcn]"}, "6:22", "dcqcn slows down on marks"),
        ({"congestion_control": "[{law: swift, g: 1}]"}, "5:35", "unknown key 'g'"),
        ({"congestion_control": "[{law: hpcc, eta: 2}]"}, "5:39", "eta is a share"),
        ({"congestion_control": "[{law: hpcc, eta: nan}]"}, "5:39", "a finite number"),
        ({"congestion_control": "[{law: hpcc, flows: .inf}]"}, "5:41", "a finite number"),
        ({"congestion_control": "[cubic]"}, "5:22", "congestion_control[0] is not known"),
        ({"routing": "[fastest]"}, "5:11", "routing[0] is not known"),
        ({"buffer": "[1 MiB, 1 MiB]"}, "5:9", "one entry per dimension"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, keys, place, what):
    file = write(tmp_path / "net.yaml", **keys)
    with pytest.raises(InputError, match="net") as refused:
        load(file)
    assert f"{file}:{place}: error: " in str(refused.value)
    assert what in str(refused.value)


def incast(tmp_path, **keys):
    """Everybody sends to everybody at once, over leaves that are half as fast as what is below them: the inputs."""
    step = tmp_path / "step.txt"
    step.write_text(f"MICRO\n1\nall -1 0 NONE 0 0 NONE 0 0 ALLTOALL {8 * MIB} 1\n", encoding="utf-8")
    tree = {"topology": "[FatTree]", "npus_count": "[16]", "routers": "[4]", "oversubscription": "[4]"}
    return str(step), write(tmp_path / "tree.yaml", **tree, buffer="[512 KiB]", segment="[16 KiB]", **keys)


def test_more_segments_under_way_than_memory_holds_are_refused(tmp_path, monkeypatch):
    """Without a buffer that ends they all leave their senders."""
    monkeypatch.setattr("simcore.network.queued.network.MOST_SEGMENTS", 1024)
    step, file = incast(tmp_path)
    assert simcore.run(step, file, network="queued").time_ns > 0
    (tmp_path / "tree.yaml").write_text((tmp_path / "tree.yaml").read_text().replace("512 KiB", "unlimited"))
    with pytest.raises(InputError) as refused:
        simcore.run(step, file, network="queued")
    assert f"{file}:8:11: error: too many segments are under way" in str(refused.value)
    assert "segments of 16.38 kB, and 8 of them in a message" in str(refused.value)


def test_a_report_says_what_queues_did(tmp_path):
    ecn = "[{kmin: 16 KiB, kmax: 128 KiB, pmax: 0.5}]"
    inputs = incast(tmp_path, flow_control="[pfc]", ecn=ecn, congestion_control="[dcqcn]")
    report = simcore.run(*inputs, network="queued")
    document = report.to_dict()
    queues = document["queues"]
    assert queues["marks"] > 0
    assert queues["drops"] == 0
    assert queues["deepest"][0]["peak_bytes"] == max(row["peak_bytes"] for row in queues["deepest"]) > 0
    paused = max(queues["deepest"], key=lambda row: row["still_ns"])
    assert paused["still_ns"] == report.timeline.links.queues.still_ns.max() > 0
    text = render(report.to_dict())
    # What was paused is shown beside what is full.
    assert re.search(rf"\n{paused['src']} -> {paused['dst']}( and .*)? +stood still +\d.* \({paused['stops']}\) ", text)
    assert "Queues: links stood still" in text
    assert max(map(len, text.splitlines())) <= 80
    assert any("acknowledgements, credits and pauses" in warning for warning in document["warnings"])


def test_the_parts_of_a_curve_and_the_counters_of_a_trace_add_up_to_what_happened(tmp_path):
    ecn = "[{kmin: 16 KiB, kmax: 128 KiB, pmax: 0.5}]"
    report = simcore.run(*incast(tmp_path, flow_control="[credits]", ecn=ecn), network="queued")
    view = choose(report.timeline, Selection(), Limits(16, 1_000_000))
    told = {curve.title: np.array(curve.values) for curve in counters(report.timeline, view, [])}
    for row in report.to_dict()["queues"]["deepest"]:
        assert max(row["curve_bytes"]) == row["peak_bytes"]
        assert [sum(row[f"curve_{name}"]) for name in COUNTED] == [row[name] for name in COUNTED]
        name = f"queue {row['src']} > {row['dst']}"
        nothing = np.zeros((1, 2))
        assert told.get(name, nothing)[:, 1].max() == row["peak_bytes"]
        assert told.get(f"{name}, marked", nothing)[-1, 1] == row["marks"]
        times_ns, percent = told.get(f"{name}, still", nothing).T
        assert np.diff(times_ns) @ percent[:-1] / 100 == pytest.approx(row["still_ns"])
    assert {title.partition(",")[2] for title in told} == {"", " still", " marked"}


def test_curves_that_are_too_long_keep_their_beginning_and_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr("simcore.network.queued.network.MOST_ROWS", 100)
    report = simcore.run(*incast(tmp_path), network="queued", exact="messages")
    assert any("end before the run does" in warning for warning in report.to_dict()["warnings"])
    queues = report.timeline.links.queues
    times_ns, waiting = queues.curves_of(deepest(queues)[0])[WAITING]
    assert times_ns[-1] < report.time_ns / 2
    assert waiting[-1] == 0 < waiting.max()


def test_queues_survive_the_archive(tmp_path):
    report = simcore.run(*incast(tmp_path, flow_control="[drop]"), network="queued")
    (tmp_path / "events.npz").write_bytes(events_npz(report))
    again = read_archive(tmp_path / "events.npz")
    assert again.to_dict() == report.to_dict()
    queues = report.timeline.links.queues
    assert queues.drops.sum() > 0
    for times, values in queues.curves_of(deepest(queues)[0]):
        assert (np.diff(times) >= 0).all()
        assert values.min(initial=0) >= 0


def test_an_archive_has_what_several_places_did_alike_once(tmp_path):
    step = incast(tmp_path, flow_control="[drop]")[0]
    plane = {"topology": "[Ring, Ring]", "npus_count": "[4, 4]", "bandwidth": "[50, 25]", "latency": "[500, 500]"}
    file = write(tmp_path / "plane.yaml", **plane, segment="[16 KiB, 16 KiB]")
    report = simcore.run(step, file, network="queued", straggler="5=2")
    (tmp_path / "events.npz").write_bytes(events_npz(report))
    queues, again = report.timeline.links.queues, read_archive(tmp_path / "events.npz").timeline.links.queues
    assert curves(again) == curves(queues)
    parts = queues.curves.parts
    assert 0 < np.load(tmp_path / "events.npz")["queue_curves"].shape[1] < sum(map(len, parts))


def test_other_networks_say_that_ports_play_no_part(tmp_path):
    inputs = incast(tmp_path, flow_control="[drop]")
    for network in ("congested", "fair", "congestion-free"):
        warnings = simcore.run(*inputs, network=network).to_dict()["warnings"]
        assert any("--network queued has them" in warning for warning in warnings)


def test_a_circle_of_buffers_is_an_error_that_names_it():
    """And what breaks it: ways are of two links."""
    ports = replace(PLAIN, segment_bytes=4 * KIB, buffer_bytes=4 * KIB)
    for fold in (True, False):
        with pytest.raises(DeadlockError, match="the buffers of 4 links wait for each other in a circle") as told:
            with_ports(_ring(), ports).timeline(fold=fold)
        assert "virtual_channels" in str(told.value)
        assert with_ports(_ring(), replace(ports, channels=2)).timeline(fold=fold).time_ns > 0


def _ring():
    topology = Topology((Dimension("Ring", 4, 50e9, 500.0),))
    return Run(micro(CollectiveKind.ALL_TO_ALL, 1 << 20), topology, settings=Settings(network="queued"))


def test_algorithms_that_copy_on_links_are_refused():
    copying = SystemConfig(implementations={CollectiveKind.ALL_GATHER: (Algorithm("multicast"),)})
    topology = Topology((Dimension("Switch", 4, 50e9, 500.0, ports=replace(PLAIN, segment_bytes=KIB)),))
    run = Run(micro(CollectiveKind.ALL_GATHER, MIB), topology, copying, settings=Settings(network="queued"))
    with pytest.raises(InputError, match="copies or reduces on links, which queues do not"):
        run.timeline()


def test_faults_and_other_profiles_are_refused(tmp_path):
    inputs = incast(tmp_path, flow_control="[pfc]")
    with pytest.raises(InputError, match="--fault"):
        simcore.run(*inputs, network="queued", fault="link 0-leaf0 x0.5")
    with pytest.raises(InputError, match="has no network 'queued'"):
        simcore.run(*inputs, network="queued", profile="astra-sim-2")


def test_the_name_of_the_network_is_in_the_report(tmp_path):
    report = simcore.run(*incast(tmp_path, flow_control="[drop]"), network="queued")
    assert isinstance(report, Report)
    assert report.network == "queued"
