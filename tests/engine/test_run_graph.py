"""Runs of dependency graphs: order, messages, memory, and who is named when nothing goes on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import DeadlockError, InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.config import SystemConfig
from simcore.system.memory import RemoteMemory, read_remote
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind
from tests.graphs import graph, node
from tests.runs import check_sums

RING = Topology((Dimension("Ring", 4, 1e9, 100.0),))
KINDS = list(CollectiveKind)
NETWORKS = ["congested", "congestion-free", "fair"]
COMPUTE, SEND, RECV, COLLECTIVE = NodeKind.COMPUTE, NodeKind.SEND, NodeKind.RECV, NodeKind.COLLECTIVE


def run(graphs, topology=RING, profile="native", memory=None, **options):
    """A timeline: one graph a rank, or one for all."""
    numbers = np.arange(len(graphs)) if len(graphs) > 1 else np.zeros(topology.npus, np.int64)
    found = GraphSet(tuple(graphs), numbers.astype(np.int32))
    return simulate(found, topology, None, profiles.get(profile), Settings(**options), memory)


def idle():
    """A rank with nothing to do but a moment."""
    return graph(node(COMPUTE, duration_ns=1))


def pair(*, size_bytes=1000, late_ns=0):
    """NPU 0 sends to NPU 1, which begins to listen later."""
    sends = graph(node(SEND, size_bytes=size_bytes, peer=1, name="give"))
    hears = graph(node(COMPUTE, duration_ns=late_ns), node(RECV, 0, size_bytes=size_bytes, peer=0, name="take"))
    return [sends, hears, idle(), idle()]


def test_nodes_start_when_what_they_wait_for_has_finished_and_one_computation_runs_at_a_time():
    rows = [node(COMPUTE, duration_ns=10), node(COMPUTE, duration_ns=20), node(COMPUTE, 0, 1, duration_ns=5)]
    assert run([graph(*rows)]).time_ns == 35
    streams = [row | {"stream": number} for number, row in enumerate(rows)]
    assert run([graph(*streams)]).time_ns == 25


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.data())
def test_no_graph_beats_its_longest_chain_or_its_busiest_resource(durations, data):
    rows = [
        node(COMPUTE, *data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else (), duration_ns=ns)
        for number, ns in enumerate(durations)
    ]
    ends = []
    for row in rows:
        ends.append(row["duration_ns"] + max((ends[dep] for dep in row["deps"]), default=0))
    time_ns = run([graph(*rows)]).time_ns
    assert max(ends) <= time_ns
    assert time_ns == sum(durations), "one at a time, and never idle"


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("late_ns", [0, 5000])
def test_a_message_arrives_after_its_latency_and_its_bytes_and_waits_for_its_receiver(network, late_ns):
    timeline = run(pair(late_ns=late_ns), network=network)
    assert timeline.finish_ns[0] == 1100
    assert timeline.finish_ns[1] == max(1100, late_ns)


def test_with_rendezvous_the_receiver_asks_first():
    asked = run(pair(late_ns=5000), network="congestion-free", rendezvous=True)
    assert asked.time_ns == 5000 + (100 + 8192) + (100 + 1000)


def test_a_deadlock_names_the_nodes_that_wait_and_the_message_that_is_missing():
    graphs = pair()
    graphs[0] = idle()
    with pytest.raises(DeadlockError, match="take") as caught:
        run(graphs)
    assert "NPU 1" in str(caught.value)
    assert "from NPU 0 to 1, 1000 B: NPU 0 does not send it" in str(caught.value)


@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
@pytest.mark.parametrize("network", ["congestion-free", "congested"])
def test_ranks_that_disagree_about_a_collective_are_named(profile, network):
    reduce = node(COLLECTIVE, size_bytes=4096, collective=KINDS.index(CollectiveKind.ALL_REDUCE), name="together")
    with pytest.raises(DeadlockError, match=r"all_reduce 'together'.*NPU 3 has not asked for it") as caught:
        run([graph(reduce), graph(reduce), graph(reduce), idle()], profile=profile, network=network)
    assert "hint" not in str(caught.value)


def test_a_send_that_nobody_asks_for_under_rendezvous_is_named():
    graphs = pair()
    graphs[1] = idle()
    with pytest.raises(DeadlockError, match="from NPU 0 to 1, 1000 B: NPU 1 does not receive it"):
        run(graphs, rendezvous=True)


def test_a_collective_of_a_graph_takes_as_long_as_it_does_alone_on_the_ring():
    reduce = node(COLLECTIVE, size_bytes=4000, collective=KINDS.index(CollectiveKind.ALL_REDUCE))
    assert run([graph(reduce)]).time_ns == 4 * 6 * (100 + 250)  # four chunks, one at a time


# --- folding


@st.composite
def graphs_of_ranks(draw):
    """Every rank the same collectives, computations of one or two kinds between them."""
    count, dims = draw(st.integers(1, 4)), draw(st.sampled_from([(4,), (2, 2), (4, 2)]))
    kinds = draw(st.lists(st.sampled_from(KINDS[:4]), min_size=count, max_size=count))
    sizes = draw(st.lists(st.sampled_from([8, 4096, 65536]), min_size=count, max_size=count))
    variants = []
    for slow in (1, draw(st.sampled_from([1, 3]))):
        rows = []
        for kind, size_bytes in zip(kinds, sizes, strict=True):
            before = (len(rows) - 1,) if rows else ()
            rows.append(node(COMPUTE, *before, duration_ns=1000 * slow))
            rows.append(node(COLLECTIVE, len(rows) - 1, size_bytes=size_bytes, collective=KINDS.index(kind)))
        variants.append(graph(*rows))
    topology = Topology(tuple(Dimension(draw(st.sampled_from(["Ring", "Switch"])), n, 1e9, 100.0) for n in dims))
    numbers = draw(st.lists(st.integers(0, 1), min_size=topology.npus, max_size=topology.npus))
    return GraphSet(tuple(variants), np.array(numbers, np.int32)), topology


@settings(deadline=None, max_examples=40)
@given(graphs_of_ranks(), st.sampled_from(["native", "astra-sim-1.0", "astra-sim-2"]), st.sampled_from([1.0, 2.0]))
def test_folding_graphs_changes_nothing(case, profile, factor):
    found, topology = case
    slow = Settings(stragglers={1: factor} if factor > 1 else {})

    def report(options):
        timeline = simulate(found, topology, None, profiles.get(profile), options)
        told = Report(timeline, profile, "").to_dict()
        check_sums(told)
        return told | {"classes": 0}

    unfolded = {"exact": "messages"} if profile == "native" else {"fold": False}
    assert report(slow) == report(replace(slow, **unfolded))


# --- remote memory


LOADS = graph(node(NodeKind.MEM_LOAD, size_bytes=1000), node(NodeKind.MEM_STORE, size_bytes=1000))


@pytest.mark.parametrize(
    ("npus_per_node", "at_a_time"), [(0, 1), (2, 4), (-1, 8)], ids=["each its own", "two share", "all share"]
)
def test_transfers_of_a_memory_port_go_one_after_the_other(npus_per_node, at_a_time):
    memory = RemoteMemory(100, 1.0, npus_per_node)
    assert run([LOADS], memory=memory).time_ns == at_a_time * 1100


@pytest.mark.parametrize("npus_per_node", [0, -1])
def test_times_that_nobody_can_count_are_no_deadlock(npus_per_node):
    memory = RemoteMemory(100, 1e-20, npus_per_node)
    with pytest.raises(OverflowError, match="or more"):
        run([LOADS], memory=memory)


def test_loads_without_a_memory_are_refused():
    with pytest.raises(InputError, match="--remote-memory"):
        run([LOADS])


@pytest.mark.parametrize(
    ("kind", "npus_per_node"),
    [("PER_NPU_MEMORY_EXPANSION", 0), ("PER_NODE_MEMORY_EXPANSION", 2), ("MEMORY_POOL", -1)],
)
def test_the_three_kinds_of_remote_memory_are_read(tmp_path, kind, npus_per_node):
    path = tmp_path / "memory.json"
    figures = '"remote-mem-latency": 100, "remote-mem-bw": 50, "num-nodes": 2, "num-npus-per-node": 2'
    path.write_text(f'{{"memory-type": "{kind}", {figures}}}')
    assert read_remote(str(path)) == RemoteMemory(100, 50.0, npus_per_node, 4 if npus_per_node == 2 else 0)


def test_an_npu_beyond_the_nodes_that_have_memory_is_refused():
    with pytest.raises(InputError, match="NPU 2 loads or stores remote memory, but its node has none"):
        run([LOADS], memory=RemoteMemory(100, 1.0, 2, 2))


def test_no_memory_is_none_and_missing_figures_are_named(tmp_path):
    path = tmp_path / "memory.json"
    path.write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    assert read_remote(str(path)) is None
    path.write_text('{"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 1, "remote-mem-speed": 2}')
    with pytest.raises(InputError) as caught:
        read_remote(str(path))
    missing = (f"the key '{key}' is missing" for key in ("remote-mem-bw", "num-nodes", "num-npus-per-node"))
    told = [problem.message for problem in caught.value.problems]
    assert told == ["unknown key 'remote-mem-speed'", *missing]  # each once


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(4)), st.sampled_from(["", "messages"]), st.sampled_from(["congested", "congestion-free"]))
def test_who_asks_for_shared_memory_at_one_time_is_served_in_the_order_of_npus(order, exact, network):
    """In whatever order they come out of a collective."""
    reduce = node(COLLECTIVE, size_bytes=4096, collective=KINDS.index(CollectiveKind.ALL_REDUCE), group=1)
    work = graph(reduce, node(NodeKind.MEM_LOAD, 0, size_bytes=50), group_names=("", "all"))
    graphs = GraphSet((work,), np.zeros(4, np.int32), {"all": tuple(order)})
    switch, memory = Topology((Dimension("Switch", 4, 1e9, 100.0),)), RemoteMemory(100, 1.0, -1)
    chosen = Settings(exact=exact, network=network)
    finish_ns = simulate(graphs, switch, None, profiles.get("native"), chosen, memory).finish_ns
    assert np.diff(finish_ns).tolist() == [150, 150, 150]


# --- what a profile cannot run


def test_communication_on_the_host_is_refused_by_the_peer_and_runs_natively():
    reduce = node(COLLECTIVE, size_bytes=4096, collective=KINDS.index(CollectiveKind.ALL_REDUCE), on_cpu=True)
    assert run([graph(reduce)]).time_ns > 0
    with pytest.raises(InputError, match="communication on the host"):
        run([graph(reduce)], profile="astra-sim-2")


@pytest.mark.parametrize("figures", [{"size_bytes": 64}, {"duration_ns": 100}])
def test_a_roofline_without_operations_names_the_node_in_the_peer_and_takes_its_duration_natively(figures):
    system = SystemConfig(roofline=True, peak_flops=1e12, local_memory_bytes_per_s=1e9)
    work = graph(node(COMPUTE, name="matmul", **figures))
    graphs = GraphSet((work,), np.zeros(4, np.int32))
    with pytest.raises(InputError, match="'matmul': no operations for the roofline"):
        simulate(graphs, RING, system, profiles.get("astra-sim-2"), Settings())
    native = simulate(graphs, RING, system, profiles.get("native"), Settings())
    assert native.time_ns == figures.get("duration_ns", 0)
    replayed = simulate(graphs, RING, replace(system, replay_only=True), profiles.get("native"), Settings())
    assert replayed.time_ns == figures.get("duration_ns", 0)


def test_a_roofline_is_memory_bound_below_its_knee_and_compute_bound_above():
    system = SystemConfig(roofline=True, peak_flops=1e12, local_memory_bytes_per_s=1e9)
    work = graph(node(COMPUTE, num_ops=10, size_bytes=10), node(COMPUTE, 0, num_ops=10**6, size_bytes=100))
    graphs = GraphSet((work,), np.zeros(4, np.int32))
    timeline = simulate(graphs, RING, system, profiles.get("astra-sim-2"), Settings())
    assert timeline.time_ns == 10 + 1000  # 10 operations at 1e9 a second, a million at 1e12


@given(st.integers(1, 10**9))
def test_operations_without_data_take_what_the_peak_takes_and_are_left_out_in_the_peer(num_ops):
    """ASTRA-sim 2.x skips a computation whose tensor_size is 0."""
    system = SystemConfig(roofline=True, peak_flops=1e12, local_memory_bytes_per_s=1e9)
    found = GraphSet((graph(node(COMPUTE, num_ops=num_ops, duration_ns=5)),), np.zeros(4, np.int32))
    times = [
        simulate(found, RING, system, profiles.get(name), Settings()).time_ns for name in ("native", "astra-sim-2")
    ]
    assert times == [int(num_ops / 1e12 * 1e9), 0]


WORK = st.tuples(st.sampled_from([1000, 12_345, 10**6]), st.sampled_from([1, 64, 5000]))
FACTORS = st.sampled_from([0.5, 1.0, 1.7, 3.0])


@settings(deadline=None, max_examples=30)
@given(st.lists(WORK, min_size=1, max_size=4), FACTORS, FACTORS, st.sampled_from(["native", "astra-sim-2"]))
def test_stragglers_and_scales_are_factors_on_what_a_roofline_gives(work, straggler, scale, profile):
    """As on the same durations written into the trace."""
    system = SystemConfig(roofline=True, peak_flops=1e12, local_memory_bytes_per_s=1e9)
    reduce = node(COLLECTIVE, len(work) - 1, size_bytes=4096, collective=KINDS.index(CollectiveKind.ALL_REDUCE))
    ops = [{"num_ops": num_ops, "size_bytes": size} for num_ops, size in work]
    took = [{"duration_ns": int(num_ops / min(1e9 * (num_ops / size), 1e12) * 1e9)} for num_ops, size in work]
    chosen = Settings(stragglers={1: straggler}, compute_scale=scale)

    def finish_ns(rows, config):
        nodes = [node(COMPUTE, *[number - 1] * (number > 0), **row) for number, row in enumerate(rows)]
        graphs = GraphSet((graph(*nodes, reduce),), np.zeros(4, np.int32))
        return simulate(graphs, RING, config, profiles.get(profile), replace(chosen, fold=False)).finish_ns

    assert finish_ns(ops, system) == finish_ns(took, replace(system, roofline=False))


@pytest.mark.parametrize("rate", [{"peak_flops": 1e12}, {"local_memory_bytes_per_s": 1e9}])
@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
def test_a_roofline_of_one_rate_is_refused_where_something_needs_it(rate, profile):
    graphs = GraphSet((graph(node(COMPUTE, num_ops=10, size_bytes=10)),), np.zeros(4, np.int32))
    with pytest.raises(InputError, match="a roofline needs two rates"):
        simulate(graphs, RING, SystemConfig(roofline=True, **rate), profiles.get(profile), Settings())
    host = GraphSet((graph(node(COMPUTE, num_ops=10, duration_ns=5, on_cpu=True)),), np.zeros(4, np.int32))
    assert simulate(host, RING, SystemConfig(roofline=True, **rate), profiles.get(profile), Settings()).time_ns == 5


@pytest.mark.parametrize("slower", [{"compute_scale": 2.0}, {"stragglers": {1: 2.0}}])
def test_with_replay_only_computations_alone_are_scaled(slower):
    """As with jitter."""
    reduce = node(COLLECTIVE, 0, duration_ns=100, size_bytes=64, collective=KINDS.index(CollectiveKind.ALL_REDUCE))
    graphs = GraphSet((graph(node(COMPUTE, duration_ns=10), reduce),), np.zeros(4, np.int32))
    timeline = simulate(graphs, RING, SystemConfig(replay_only=True), profiles.get("native"), Settings(**slower))
    assert timeline.time_ns == 2 * 10 + 100


def test_with_replay_only_every_node_takes_its_duration_in_the_peer_even_metadata():
    work = graph(node(NodeKind.METADATA), node(COMPUTE, 0, duration_ns=5), node(NodeKind.INVALID, 1))
    graphs = GraphSet((work,), np.zeros(4, np.int32))
    peer = profiles.get("astra-sim-2")
    assert simulate(graphs, RING, SystemConfig(replay_only=True), peer, Settings()).time_ns == 7
    assert simulate(graphs, RING, SystemConfig(), peer, Settings()).time_ns == 5


def test_a_long_chain_of_nodes_that_take_no_time_ends():
    chain = [node(NodeKind.METADATA), *(node(NodeKind.METADATA, row) for row in range(3000))]
    assert run([graph(*chain)]).time_ns == 0


def test_the_timeline_knows_which_receive_gets_what_was_sent():
    sends = graph(*(node(SEND, size_bytes=1000, peer=1, name=f"give {number}") for number in range(3)))
    hears = graph(*(node(RECV, size_bytes=1000, peer=0, name=f"take {number}") for number in range(3)))
    events = run([sends, hears, idle(), idle()]).events
    pairs = {tuple(events.names[events.name[row]] for row in message) for message in events.messages}
    assert pairs == {(f"give {number}", f"take {number}") for number in range(3)}
    only_sender = events.where(events.npu_class == 0)
    assert len(only_sender.messages) == 0
    backwards = events.where(np.arange(len(events))[::-1])
    assert {tuple(backwards.name[list(m)]) for m in backwards.messages} == {
        tuple(events.name[list(m)]) for m in events.messages
    }


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 10**6)), max_size=6), st.sampled_from(NETWORKS))
def test_what_an_npu_sends_is_told_in_the_first_dimension_in_which_the_ends_lie_apart(messages, network):
    """One after the other, each for its latency and its bytes: so long is its dimension busy."""
    machine = Topology((Dimension("FullyConnected", 4, 1e9, 100.0), Dimension("FullyConnected", 2, 1e9, 100.0)))
    sends = [node(SEND, *range(row)[-1:], size_bytes=size, peer=peer) for row, (peer, size) in enumerate(messages)]
    hears = [[node(RECV, size_bytes=size, peer=0) for peer, size in messages if peer == npu] for npu in range(1, 8)]
    report = Report(run([graph(*rows) for rows in (sends, *hears)], machine, network=network), "native", network)
    for dim, row in enumerate(report.to_dict()["dims"]):
        own = [(peer, size) for peer, size in messages if (peer % 4 == 0) == dim]
        assert row["bytes_per_npu"] == sum(size for _, size in own)
        hops = sum((peer % 4 > 0) + peer // 4 for peer, _ in own)
        assert row["busy_ns"] == row["bytes_per_npu"] + 100 * hops


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 100), st.floats(1e-6, 1), st.sampled_from(NETWORKS))
def test_no_factor_makes_a_collective_nothing(size_bytes, factor, network):
    reduces = node(COLLECTIVE, size_bytes=size_bytes, collective=KINDS.index(CollectiveKind.ALL_REDUCE))
    one = run([graph(reduces)] * 4, network=network, comm_scale=factor)
    least = run([graph(reduces)] * 4, network=network, comm_scale=1e-9)
    assert one.time_ns >= least.time_ns > 0


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from([0.5, 2.0, 3.0]), st.sampled_from(NETWORKS))
def test_a_factor_on_sizes_is_one_on_collectives_and_messages_alike(sent, reduced, factor, network):
    def ranks(scale):
        def size(size_bytes):
            return profiles.get("native").scale(size_bytes, scale)

        reduces = node(COLLECTIVE, size_bytes=size(reduced), collective=KINDS.index(CollectiveKind.ALL_REDUCE))
        ends = (SEND, 1), (RECV, 0)
        pairs = [graph(reduces, node(kind, 0, size_bytes=size(sent), peer=peer)) for kind, peer in ends]
        return [*pairs, graph(reduces), graph(reduces)]

    scaled, other = run(ranks(1.0), network=network, comm_scale=factor), run(ranks(factor), network=network)
    assert (scaled.time_ns, scaled.finish_ns) == (other.time_ns, other.finish_ns)
    assert Report(scaled, "native", network).to_dict()["dims"] == Report(other, "native", network).to_dict()["dims"]
