"""Communicators of traces that are rows of a dimension: one NPU plays for all that do the same in rows alike."""

from dataclasses import replace
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.engine.families import families_of, row_of
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.groups import LogicalDim
from simcore.workload.model import ROOTED, CollectiveKind, GraphSet
from tests.runs import KINDS

NATIVE, ASTRA_SIM_2 = map(profiles.get, ("native", "astra-sim-2"))
FABRICS = st.sampled_from(["Ring", "Switch", "Mesh", "FullyConnected"])


def machine(*dims):
    return Topology(tuple(Dimension(kind, npus, 1e9, latency_ns) for kind, npus, latency_ns in dims))


def rows(npus, stride, size):
    """Every row of so many NPUs, so far apart, in a machine."""
    return [range(npu, npu + stride * size, stride) for npu in range(npus) if npu // stride % size == 0]


@cache
def trained(tp, dp, layers=2, kind="all_reduce", slow=None):
    """Layers that sum activations in one family and, beside what follows, gradients in another one."""
    npus = tp * dp
    made, latest = simcore.graph(npus), [()] * npus
    for number in range(layers):
        for group in rows(npus, 1, tp):
            work = made.compute(1000 if slow not in group else 1700, on=group, depends=latest[group[0]], name="work")
            activations = made.collective(kind, 5000, on=group, depends=[work], name=f"activations {number}")
            for npu in group:
                latest[npu] = [activations]
        for group in rows(npus, tp, dp):
            made.collective(kind, 90_000, on=group, name=f"gradients {number}")
    return made.graphs()


@st.composite
def cases(draw):
    """Rows of one to three dimensions, inside each other and overlapping, some of which send more or later.

    And messages from each place of a stage to the same one of another stage.
    """
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=3).filter(lambda each: prod(each) <= 24))
    topology = machine(*((draw(FABRICS), size, draw(st.sampled_from([0.0, 1.0, 100.0]))) for size in sizes))
    npus, possible = prod(sizes), []
    for size, stride in zip(sizes, topology.strides, strict=True):
        parts = product(range(1, size), range(2, size + 1))
        possible += [(stride * apart, count) for apart, count in parts if size % (apart * count) == 0 and count < npus]
    families = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=3)) if possible else []
    made = simcore.graph(npus)
    latest, width = [None] * npus, draw(st.sampled_from([size for size in range(1, npus) if npus % size == 0]))
    for tag in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            begin, end = draw(st.lists(st.integers(0, npus // width - 1), min_size=2, max_size=2, unique=True))
            hand_over(made, latest, range(begin * width, (begin + 1) * width), (end - begin) * width, tag)
            continue
        groups = rows(npus, *draw(st.sampled_from(families))) if families else [range(npus)]
        groups = draw(st.sampled_from([groups, [range(npus)]]))
        computes, kind = draw(st.booleans()), draw(st.sampled_from(KINDS))
        size, odd = draw(st.sampled_from([1, 4096, 10_001, 1 << 18])), draw(st.none() | st.integers(0, npus - 1))
        waits = draw(st.booleans())
        for group in groups:
            own = {latest[npu] for npu in group}
            depends = own if len(own) == 1 and None not in own else ()
            much = size * (1 + (odd is not None and odd in group))
            make = made.compute if computes else lambda *what, kind=kind, **rest: made.collective(kind, *what, **rest)
            node = make(much, on=group, depends=depends, name="node")
            for npu in group if waits else ():
                latest[npu] = node
    chosen = tuple(Algorithm(draw(st.sampled_from(["ring", "direct"]))) for _ in sizes)
    system = SystemConfig(
        implementations=dict.fromkeys(KINDS, chosen),
        preferred_dataset_splits=draw(st.sampled_from([1, 3])),
        active_chunks_per_dimension=draw(st.sampled_from([1, 2])),
    )
    network = draw(st.sampled_from(["congestion-free", "congested", "fair"]))
    return made.graphs(), topology, system, Settings(network=network, rendezvous=draw(st.booleans()))


def hand_over(made, latest, senders, apart, tag):
    """Each sends to who is so far apart, when both are through with what they have done."""
    for src in senders:
        ends, (sent, received) = (src, src + apart, 5000), [latest[npu] or () for npu in (src, src + apart)]
        made.send(*ends, tag=tag, depends=sent)
        latest[src + apart] = made.recv(*ends, tag=tag, depends=received)


def told(graphs, topology, system, settings):
    """When every NPU is through, and what links did."""
    timeline = simulate(graphs, topology, system, NATIVE, settings)
    finish_ns = np.zeros(topology.npus, np.int64)
    for ranks, end_ns in zip(timeline.ranks, timeline.finish_ns, strict=True):
        finish_ns[list(ranks)] = end_ns
    links = timeline.links
    carried = (links.size_bytes.tolist(), links.busy_ns.tolist()) if links and links.size_bytes.any() else ()
    return timeline.time_ns, finish_ns.tolist(), carried


@given(cases())
def test_rows_are_folded_without_a_trace(case):
    graphs, topology, system, settings = case
    usual = told(graphs, topology, system, settings)
    for others in {"fold": False}, {"exact": "messages"}:
        assert told(graphs, topology, system, replace(settings, **others)) == usual


@pytest.mark.parametrize("network", ["congestion-free", "congested", "fair"])
@pytest.mark.parametrize(("slow", "classes"), [(None, 1), (0, 4)])
def test_one_npu_plays_for_all_that_do_the_same_in_rows_that_are_alike(network, slow, classes):
    """A slow row of 4 delays all of its columns alike: who is in it, and who is not, are two classes."""
    topology = machine(("Switch", 4, 500.0), ("Switch", 8, 700.0))
    timeline = simulate(trained(4, 8, slow=slow), topology, None, NATIVE, Settings(network))
    assert len(timeline.ranks) == (classes if slow is None else 2)


@pytest.mark.parametrize("network", ["congestion-free", "congested", "queued"])
def test_one_npu_of_a_stage_plays_for_all_that_hand_over_to_the_same_place(network):
    """Two stages of 16 that sum in rows, the first of which hands over to the second."""
    made, latest = simcore.graph(32), [None] * 32
    for group in rows(32, 1, 4):
        work = made.compute(1000 + group[0] // 16, on=group, depends=latest[group[0]] or ())
        for npu in group:
            latest[npu] = work
        made.collective("all_reduce", 4096, on=group, depends=[work])
    hand_over(made, latest, range(16), 16, 0)
    topology = machine(("Switch", 4, 500.0), ("Switch", 8, 700.0))
    once, alone = (
        simulate(made.graphs(), topology, None, NATIVE, Settings(network, fold=fold)) for fold in (True, False)
    )
    assert ([*map(len, once.ranks)], once.time_ns) == ([16, 16], alone.time_ns)


@pytest.mark.parametrize("network", ["congestion-free", "congested", "fair", "queued"])
def test_a_collective_that_crosses_stages_is_counted_on_all_links(network):
    made = simcore.graph(8)
    hand_over(made, [None] * 8, range(2), 2, 0)
    made.collective("all_gather", 1000)
    inputs = made.graphs(), machine(("Switch", 8, 1.0)), None
    assert told(*inputs, Settings(network)) == told(*inputs, Settings(network, fold=False))


@pytest.mark.parametrize(
    ("network", "slow", "classes"), [("congestion-free", None, 1), ("congested", None, 1), ("congestion-free", 0, 32)]
)
def test_under_2_x_one_npu_plays_for_all_where_all_do_the_same(network, slow, classes):
    """By rings, with the endpoint delay of communicators, whatever the dimensions have."""
    topology = machine(("FullyConnected", 4, 500.0), ("Switch", 8, 700.0))
    system = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm("direct"), Algorithm("doubleBinaryTree"))))
    once, alone = (
        simulate(trained(4, 8, slow=slow), topology, system, ASTRA_SIM_2, Settings(network, fold=fold))
        for fold in (True, False)
    )
    assert (len(once.ranks), once.time_ns) == (classes, alone.time_ns)


@pytest.mark.parametrize("kind", [kind for kind in CollectiveKind if kind not in ROOTED])
@pytest.mark.parametrize("fabric", ["Ring", "Switch", "Mesh", "FullyConnected"])
def test_communicators_that_are_a_dimension_do_what_it_does(kind, fabric):
    """By its algorithm, also beside a communicator that is no row."""
    topology, times = machine((fabric, 4, 100.0), ("Switch", 3, 100.0)), []
    for others in [], [(0, 5)]:
        made = simcore.graph(12)
        for group in rows(12, 1, 4):
            made.collective(str(kind), 90_000, on=group)
        for group in others:
            made.compute(1, on=group, depends=[made.collective("all_reduce", 1, on=group)])
        times.append(simulate(made.graphs(), topology, None, NATIVE, Settings()))
    named, mixed = ({npu: sent_bytes(each, npu) for npu in (1, 2)} for each in times)
    made = simcore.graph(12)
    made.collective(str(kind), 90_000)
    (whole,) = made.graphs().graphs
    along = GraphSet((replace(whole, dims=np.array([1])),), np.zeros(12, np.int32))
    expected = simulate(along, topology, None, NATIVE, Settings())
    assert named == mixed == {npu: sent_bytes(expected, npu) for npu in (1, 2)}
    assert times[0].time_ns == expected.time_ns


def sent_bytes(timeline, npu):
    """What an NPU sends, by link."""
    links = timeline.links
    return sorted(size for src, size in zip(links.src, links.size_bytes.tolist(), strict=True) if src == str(npu))


def test_rows_that_have_links_in_part_in_common_are_played_one_by_one():
    """Of two pairs one link is the ring's of all four, in a full mesh: NPUs of a pair are not alike."""
    made = simcore.graph(8)
    for size in (2, 4):
        for group in rows(8, 1, size):
            made.collective("all_reduce", 1 << 16, on=group)
    both = SystemConfig(implementations=dict.fromkeys(KINDS, (Algorithm("ring"),)), active_chunks_per_dimension=2)
    inputs = made.graphs(), machine(("FullyConnected", 8, 100.0)), both
    timeline = simulate(*inputs, NATIVE, Settings("fair"))
    assert timeline.time_ns == simulate(*inputs, NATIVE, Settings("fair", exact="messages")).time_ns


def test_who_begins_later_is_not_who_begins_at_once():
    """Jobs of one content that start at different times."""
    graphs = trained(2, 2)
    moved = type(graphs)(graphs.graphs, graphs.graph_of_rank, graphs.groups, start_ns={2: 500, 3: 500})
    topology = machine(("Switch", 2, 1.0), ("Switch", 2, 1.0))
    times = [simulate(moved, topology, None, NATIVE, Settings(fold=fold)).time_ns for fold in (True, False)]
    assert times[0] == times[1] > simulate(graphs, topology, None, NATIVE, Settings()).time_ns


def test_traces_that_differ_in_what_astra_sim_takes_are_not_alike():
    """Its times stand in a column of their own."""
    made = simcore.graph(2)
    made.compute(5000)
    (work,) = made.graphs().graphs
    slow = replace(work, chakra_ns=np.array([9000]))
    both = GraphSet((replace(work, chakra_ns=np.array([5000])), slow), np.arange(2, dtype=np.int32))
    topology = machine(("Ring", 2, 1.0))
    assert simulate(both, topology, None, profiles.get("astra-sim-2"), Settings()).time_ns == 9000
    assert simulate(both, topology, None, NATIVE, Settings()).time_ns == 5000


@pytest.mark.parametrize(
    ("ranks", "row"),
    [
        ((0, 1, 2, 3), LogicalDim(0, 4, 1)),
        ((9, 11), LogicalDim(0, 2, 2)),
        ((3, 11, 19, 27), LogicalDim(1, 4, 8)),
        ((0, 8), LogicalDim(1, 2, 8)),
        ((8, 0), None),  # the other way round
        ((1, 2), None),  # no row of pairs fills the dimension
        ((0, 1, 2), None),
        ((0, 2, 3), None),
        ((0, 9), None),  # apart in two dimensions
        ((6, 8), None),
    ],
)
def test_rows_of_a_dimension_are_as_far_apart_as_each_other_and_fill_it(ranks, row):
    assert row_of(machine(("Ring", 8, 1.0), ("Switch", 4, 1.0)), ranks) == row


def test_families_are_told_by_what_their_ranks_do_with_them():
    """Two communicators of the same NPUs are two families; a name that ranks use in another order is of none."""
    made = simcore.graph(4)
    for group in rows(4, 1, 2):
        made.collective("all_reduce", 64, on=group)
    found = families_of(made.graphs(), machine(("Ring", 4, 1.0)))
    assert {name: family.name for name, family in found.items()} == {"1": "1 and 1 alike", "2": "1 and 1 alike"}
    made.collective("all_reduce", 64, on=(0, 2))
    assert len({family.name for family in families_of(made.graphs(), machine(("Ring", 4, 1.0))).values()}) == 2
    made.collective("all_reduce", 64, on=(0, 3))
    assert families_of(made.graphs(), machine(("Ring", 4, 1.0))) == {}
