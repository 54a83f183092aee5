"""Laws of synthesised collectives: on any network the data get where they belong, and no bound is beaten."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.topology.graph import graph_dimension
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Graph, Topology
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.collectives.synthesised import _gathered, _State, wires
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.plans.flow import Claim, faults
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind
from tests.runs import Run, micro

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
REDUCE_SCATTER = CollectiveKind.REDUCE_SCATTER
KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
RATES = st.sampled_from([1e9, 12.5e9, 50e9])


@st.composite
def graphs(draw):
    """A strongly connected network: a directed circle through all nodes, switches among them, and more links."""
    npus, switches = draw(st.integers(2, 7)), draw(st.integers(0, 2))
    order = draw(st.permutations(range(npus + switches)))
    ends = dict.fromkeys(zip(order, order[1:] + order[:1], strict=True))
    node = st.integers(0, npus + switches - 1)
    more = st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=10)
    ends = tuple((ends | dict.fromkeys(draw(more))).keys())
    src, dst = zip(*ends, strict=True)
    rates = tuple(draw(RATES) for _ in ends)
    latencies = tuple(draw(st.sampled_from([0.0, 3.5, 700.0])) for _ in ends)
    graph = Graph(npus, tuple(map(str, range(npus + switches))), src, dst, rates, latencies)
    return Topology((graph_dimension(graph),), graph=graph)


def plan_on(topology, kind, data_bytes, window=0):
    options = PlanOptions(window, wires=partial(wires, LinkGraph(topology), np.arange(topology.npus)))
    return algorithms.get("synthesised")(kind, topology.npus, data_bytes, options)


def play(topology, kind, size_bytes, name="synthesised", window=0, **options):
    system = SystemConfig(
        implementations={kind: (Algorithm(name, window, whole_machine=True),)}, preferred_dataset_splits=1
    )
    return Run(micro(kind, size_bytes), topology, system).timeline(**options)


def port_bound_ns(topology, share_bytes):
    """An all-gather's: every NPU must receive the shares of all others over the links into it."""
    links = LinkGraph(topology)
    into = [links.bandwidth_bytes_per_s[links.dst == npu].sum() for npu in range(topology.npus)]
    return (topology.npus - 1) * share_bytes / min(into) * 1e9


@settings(deadline=None, max_examples=40)
@given(graphs(), st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 5000))
def test_on_any_connected_network_every_rank_gets_what_it_shall(topology, kind, window, data_bytes):
    plan = plan_on(topology, kind, data_bytes, window)
    assert not list(faults(plan, Claim(kind, topology.npus, topology.npus * max(1, window))))


@settings(deadline=None, max_examples=40)
@given(graphs(), st.integers(1, 2), st.integers(1, 5000))
def test_of_both_rules_the_one_that_ends_sooner_is_taken_and_it_sends_what_is_rarest(topology, pieces, chunk_bytes):
    """Counted anew for every message; among equals it is the next chunk behind the receiver's own."""
    ways, size = wires(LinkGraph(topology), np.arange(topology.npus)), topology.npus
    tried = [_State(ways, size, pieces, chunk_bytes, nearby=nearby) for nearby in (False, True)]
    assert all(state.run() for state in tried)
    sooner = min(tried, key=lambda state: state.end_ns)
    found = [(entry.src, entry.dst, *entry.chunks) for entry in _gathered(ways, size, [chunk_bytes] * size * pieces)]
    assert found == [(way.src, way.dst, chunk) for _, way, chunk in sooner.sent]
    there = {(rank, rank * pieces + piece): 0 for rank in range(size) for piece in range(pieces)}
    for now_ns, way, chunk in tried[0].sent:
        copies = Counter(chunk for _, chunk in there)
        possible = [each for rank, each in there if rank == way.src and there[rank, each] <= now_ns]
        wanted = [each for each in possible if (way.dst, each) not in there]
        assert chunk == min(wanted, key=lambda each: (copies[each], (each - way.dst * pieces) % (size * pieces)))
        there[way.dst, chunk] = now_ns + max(transfer_ns(chunk_bytes, rate) for rate in way.rates) + way.latency_ns


@settings(deadline=None, max_examples=15)
@given(graphs(), st.integers(1, 2), st.integers(1, 50000))
def test_no_bound_is_beaten_and_links_carry_what_the_plan_sends(topology, window, share):
    timeline = play(topology, ALL_GATHER, share, window=window)
    assert timeline.time_ns >= port_bound_ns(topology, share) - 1
    plan, links = plan_on(topology, ALL_GATHER, share, window), LinkGraph(topology)
    carried = sum(entry.size_bytes * len(links.route(entry.src, entry.dst)) for entry in plan.transfers)
    assert int(timeline.links.size_bytes.sum()) == carried


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 8), st.sampled_from(KINDS), st.integers(1, 99999), st.sampled_from([0.0, 700.0]))
def test_on_a_one_way_ring_it_is_the_ring(n, kind, share, latency_ns):
    ends = tuple((rank, (rank + 1) % n) for rank in range(n))
    src, dst = zip(*ends, strict=True)
    graph = Graph(n, tuple(map(str, range(n))), src, dst, (25e9,) * n, (latency_ns,) * n)
    topology = Topology((graph_dimension(graph),), graph=graph)
    size = share if kind == ALL_GATHER else n * share
    step = int(latency_ns) + transfer_ns(share, 25e9)
    assert play(topology, kind, size).time_ns == (2 if kind == ALL_REDUCE else 1) * (n - 1) * step


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dims", [[("Ring", 7)], [("Mesh", 4), ("Mesh", 4)], [("Ring", 4), ("Ring", 5)], [("FullyConnected", 6)]]
)
def test_on_meshes_and_tori_it_comes_near_the_bound_of_the_ports(kind, dims):
    topology = Topology(tuple(Dimension(shape, n, 25e9, 0.0) for shape, n in dims))
    share = 1_000_000
    size = share if kind == ALL_GATHER else topology.npus * share
    bound_ns = port_bound_ns(topology, share) * (2 if kind == ALL_REDUCE else 1)
    assert bound_ns <= play(topology, kind, size, window=2).time_ns <= 1.1 * bound_ns


def test_a_wafer_with_dead_npus_all_reduces_faster_than_by_a_ring_through_it(tmp_path):
    file = tmp_path / "wafer.yaml"
    file.write_text(
        "topology: [Mesh, Mesh]\nnpus_count: [5, 4]\nbandwidth: [50.0, 50.0]\nlatency: [1.0, 1.0]\n"
        "wafer: {dead_npus: [7, 12]}\n"
    )
    topology = load(str(file))
    plan = plan_on(topology, ALL_REDUCE, 18 * 64)
    assert not list(faults(plan, Claim(ALL_REDUCE, 18, 18)))
    ring_ns, own_ns = (play(topology, ALL_REDUCE, 18 * 10**5, name).time_ns for name in ("ring", "synthesised"))
    assert own_ns < ring_ns / 1.5


def test_the_same_network_gives_the_same_plan():
    topology = Topology((Dimension("Mesh", 3, 25e9, 1.0), Dimension("Ring", 3, 50e9, 1.0)))
    assert str(plan_on(topology, ALL_REDUCE, 999)) == str(plan_on(topology, ALL_REDUCE, 999))


@pytest.mark.parametrize("mode", ["congested", "fair", "congestion-free"])
def test_over_dimensions_that_have_their_own_links_every_group_plays_its_own(mode):
    topology = Topology((Dimension("Mesh", 3, 25e9, 1.0), Dimension("Ring", 4, 50e9, 1.0)))
    chosen = (Algorithm("synthesised"), Algorithm("synthesised"))
    system = SystemConfig(implementations={ALL_REDUCE: chosen})
    run = Run(micro(ALL_REDUCE, 12000), topology, system)
    assert run.timeline(network=mode).finish_ns == run.timeline(network=mode, exact="messages").finish_ns
    if mode == "congested":
        assert int(run.timeline().links.size_bytes.sum()) > 0


def test_what_it_cannot_do_is_refused():
    make = algorithms.get("synthesised")
    with pytest.raises(ValueError, match="cannot do all_to_all"):
        make(CollectiveKind.ALL_TO_ALL, 4, 64, PlanOptions())
    with pytest.raises(ValueError, match="too many to synthesise"):
        make(ALL_REDUCE, 1000, 64, PlanOptions())
