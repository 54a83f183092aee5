"""Collectives of traces: barriers are played natively, so are rooted collectives, which the peers replay."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.collectives import NCCL, ROOTED
from simcore.system.collectives.nccl import FABRICS
from simcore.system.config import Algorithm, SystemConfig
from simcore.workload.model import ALL_DIMENSIONS, CollectiveKind, Graph, GraphSet, NodeKind
from tests.runs import KINDS

NATIVE = profiles.get("native")
BARRIER = CollectiveKind.BARRIER


def graphs(kind, npus, *, compute_ns=1000, duration_ns=0, group=()):
    """A computation, then a collective, of all NPUs or of a communicator (the others only compute)."""
    whole = Graph(
        node_id=np.arange(2),
        kind=np.array([NodeKind.COMPUTE, NodeKind.COLLECTIVE], np.uint8),
        duration_ns=np.array([compute_ns, duration_ns]),
        size_bytes=np.array([0, 0 if kind == BARRIER else 4096]),
        collective=np.array([-1, list(CollectiveKind).index(kind)], np.int8),
        group=np.array([0, 1 if group else 0], np.int32),
        dims=np.array([0, ALL_DIMENSIONS]),
        peer=np.zeros(2, np.int32),
        tag=np.zeros(2, np.int64),
        priority=np.zeros(2, np.int64),
        num_ops=np.zeros(2, np.int64),
        on_cpu=np.zeros(2, np.bool_),
        delays=np.zeros(2, np.bool_),
        stream=np.full(2, -1, np.int32),
        dep_offsets=np.array([0, 0, 1]),
        deps=np.array([0], np.int32),
        names=("work", "meet"),
        group_names=("", "pair") if group else ("",),
        path="trace.et",
    )
    if not group:
        return GraphSet((whole,), np.zeros(npus, np.int64))
    idle = replace(whole, kind=np.array([NodeKind.COMPUTE] * 2, np.uint8), group_names=("",), group=whole.group * 0)
    return GraphSet((whole, idle), np.array([npu not in group for npu in range(npus)], np.int64), {"pair": group})


def switch(*sizes):
    return Topology(tuple(Dimension("Switch", npus, 1e9, 500.0) for npus in sizes))


@pytest.mark.parametrize("npus", [2, 3, 8, 13])
def test_a_barrier_takes_the_latency_of_its_rounds_after_the_last_has_come(npus):
    """ceil(log2 n) messages of one byte over two hops: 1 us and 1 ns each."""
    last = Settings(stragglers={1: 3.0})
    time_ns = simulate(graphs(BARRIER, npus), switch(npus), None, NATIVE, last).time_ns
    assert time_ns == 3000 + (npus - 1).bit_length() * 1001


def test_a_barrier_of_several_dimensions_visits_each_once():
    time_ns = simulate(graphs(BARRIER, 32), switch(8, 4), None, NATIVE, Settings()).time_ns
    assert time_ns == 1000 + (3 + 2) * 1001


def test_a_barrier_of_a_communicator_is_its_members_only():
    timeline = simulate(graphs(BARRIER, 8, group=(1, 5, 6)), switch(8), None, NATIVE, Settings())
    assert timeline.time_ns == 1000 + 2 * 1001
    assert sorted(set(timeline.finish_ns)) == [1000, 1000 + 2 * 1001]


@pytest.mark.parametrize("inter", ["ascending", "roundRobin", "themis"])
@pytest.mark.parametrize("kind", ["Ring", "FullyConnected", "Switch", "Mesh"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_barrier_is_folded_exactly(inter, kind, whole):
    topology = Topology((Dimension(kind, 4, 1e9, 3.0), Dimension("Ring", 3, 2e9, 5.0)))
    chosen = (Algorithm("ring", whole_machine=True),) if whole else (Algorithm("direct"),) * 2
    system = SystemConfig(implementations=dict.fromkeys(KINDS, chosen), inter_dimension_scheduling=inter)
    documents = []
    for fold in (True, False):
        timeline = simulate(graphs(BARRIER, 12), topology, system, NATIVE, Settings(fold=fold))
        documents.append(dict(Report(timeline, "native", "congested").to_dict()) | {"classes": 0})
    assert documents[0] == documents[1]
    assert documents[0]["time_ns"] > 1000


@pytest.mark.parametrize("kind", ROOTED)
def test_a_rooted_collective_is_played_natively_and_the_peer_replays_a_broadcast_only(kind):
    assert simulate(graphs(kind, 4, duration_ns=77), switch(4), None, NATIVE, Settings()).time_ns > 1077
    peer = profiles.get("astra-sim-2")
    if kind == CollectiveKind.BROADCAST:
        assert simulate(graphs(kind, 4, duration_ns=77), switch(4), None, peer, Settings()).time_ns == 1077
    else:
        with pytest.raises(InputError, match=f"node 1 'meet': profile astra-sim-2 has no {kind}"):
            simulate(graphs(kind, 4, duration_ns=77), switch(4), None, peer, Settings())
    replayed = simulate(graphs(kind, 4), switch(4), SystemConfig(replay_only=True), NATIVE, Settings())
    assert replayed.time_ns == 1000


def sent(*others, npus=4):
    """Collectives of the last NPU, and of the others; (kind, bytes) each."""
    rows = [
        Graph.of(
            *(
                {"kind": NodeKind.COLLECTIVE, "collective": list(CollectiveKind).index(kind), "size_bytes": size_bytes}
                for kind, size_bytes in own
            )
        )
        for own in others
    ]
    return GraphSet(tuple(rows), np.array([0] * (npus - 1) + [len(rows) - 1], np.int32))


A_TO_A, REDUCE = CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE


@pytest.mark.parametrize("network", ["congested", "congestion-free", "fair"])
def test_every_npu_sends_as_much_of_a_collective_as_its_trace_says(network):
    uneven, system = sent([(A_TO_A, 1 << 16)], [(A_TO_A, 1 << 20)]), SystemConfig(preferred_dataset_splits=1)
    usual, exact = (
        simulate(uneven, switch(4), system, NATIVE, Settings(network=network, exact=exact))
        for exact in ("", "messages")
    )
    assert usual.time_ns == exact.time_ns
    assert usual.time_ns > 1 << 18, "the last NPU sends messages of a quarter MiB at 1 B/ns"


@st.composite
def uneven_runs(draw):
    """Collectives that NPUs give sizes of their own to, on one dimension or two, and how they are cut."""
    sizes = draw(st.sampled_from([(2,), (4,), (5,), (3, 2), (2, 4)]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    amounts = st.sampled_from([0, 1, 3, 64, 1000, 4096, 65536])
    graphs = tuple(
        Graph.of(
            *(
                {"kind": NodeKind.COLLECTIVE, "collective": list(CollectiveKind).index(kind), "size_bytes": size_bytes}
                for kind, size_bytes in zip(kinds, draw(st.tuples(*[amounts] * len(kinds))), strict=True)
            )
        )
        for _ in range(prod(sizes))
    )
    system = SystemConfig(
        preferred_dataset_splits=draw(st.integers(1, 5)),
        inter_dimension_scheduling=draw(
            st.sampled_from(["ascending", "roundRobin", "colours", "themis", "themisFlex"])
        ),
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
    )
    return GraphSet(graphs, np.arange(len(graphs), dtype=np.int32)), switch(*sizes), system


@settings(deadline=None, max_examples=60)
@given(uneven_runs(), st.sampled_from(["congested", "congestion-free", "fair"]))
def test_whatever_each_npu_gives_to_a_collective_it_ends(run, network):
    """Nobody has chunks of which another one knows nothing: not who gives less than chunks, nor who gives nothing."""
    usual, exact = (simulate(*run, NATIVE, Settings(network=network, exact=exact)) for exact in ("", "messages"))
    assert {*usual.finish_ns} == {*exact.finish_ns}
    assert usual.time_ns > 0 or all(not graph.size_bytes.any() for graph in run[0].graphs)


@given(st.permutations([0, 64, 4096, 65536]), st.permutations([0, 64, 4096, 65536]))
def test_npus_may_give_the_same_sizes_in_orders_of_their_own(first, second):
    """As experts that exchange what they got: messages of both collectives are of the sizes that their senders say."""
    rows = [[(A_TO_A, one), (A_TO_A, other)] for one, other in zip(first, second, strict=True)]
    graphs = tuple(sent(own, npus=1).graphs[0] for own in rows)
    run = simulate(GraphSet(graphs, np.arange(4, dtype=np.int32)), switch(4), None, NATIVE, Settings())
    assert run.links.size_bytes.sum() == 2 * 2 * 3 * (64 + 4096 + 65536) // 4  # up and down


@pytest.mark.parametrize("kind", [A_TO_A, REDUCE])
def test_nccl_takes_as_long_as_for_whoever_gives_most(kind):
    system = SystemConfig(implementations={kind: (Algorithm(NCCL),)}, fabric=FABRICS["hgx-h100"])
    most = simulate(sent([(kind, 1 << 20)]), switch(4), system, NATIVE, Settings())
    for other_bytes in (0, 1, 4096):
        uneven = sent([(kind, 1 << 20)], [(kind, other_bytes)])
        assert simulate(uneven, switch(4), system, NATIVE, Settings()).time_ns == most.time_ns


def test_npus_that_send_different_collectives_are_told_of():
    other = sent([(REDUCE, 4096), (A_TO_A, 4096)], [(A_TO_A, 4096), (REDUCE, 4096)])
    with pytest.raises(InputError, match=r"all_reduce of 4,096 bytes on NPU 0-2; all_to_all of 4,096 bytes on NPU 3"):
        simulate(other, switch(4), None, NATIVE, Settings())


def test_npus_that_name_different_roots_are_told_of():
    rows = [
        Graph.of({"kind": NodeKind.COLLECTIVE, "collective": list(CollectiveKind).index(CollectiveKind.BROADCAST),
                  "size_bytes": 4096, "peer": root})
        for root in (0, 2)
    ]  # fmt: skip
    other = GraphSet(tuple(rows), np.array([0, 0, 0, 1], np.int32))
    with pytest.raises(InputError, match=r"with root 0 of 4,096 bytes on NPU 0-2; broadcast with root 2 .* on NPU 3"):
        simulate(other, switch(4), None, NATIVE, Settings())
