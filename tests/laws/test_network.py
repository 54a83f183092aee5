"""Laws of every network: routes, figures, shared links."""

from itertools import combinations
from math import prod

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.batch import solve_batch
from simcore.network.clock import idle_ns, whole_latency
from simcore.network.congested import CutThrough
from simcore.network.fair import FairShare, max_min_rates
from simcore.network.instant import Environment
from simcore.network.topology.fabric import Routes
from simcore.network.topology.graph import GraphFabric
from simcore.network.topology.kinds import FABRICS
from simcore.network.topology.links import LinkGraph, figures
from simcore.network.topology.model import Dimension, Edge, Graph, Topology, Wafer, assemble
from simcore.system.messages.in_order import StoreAndForward
from simcore.testing import check_topology
from simcore.units import transfer_ns, whole_ns
from tests.runs import twisted_tori

RATES = st.sampled_from([1e9, 12.5e9, 50e9, 53.6870912e9])
LATENCIES = st.sampled_from([0.0, 0.5, 1.0, 7.0, 936.25])


@st.composite
def dimensions(draw, largest=6):
    kind = draw(st.sampled_from(FABRICS.names()))
    npus, details = draw(st.integers(1, largest)), {}
    if kind in {"Dragonfly", "DragonflyPlus"}:
        groups, routers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        npus = groups * routers * draw(st.integers(1, 2))
        details = {"groups": groups, "routers": routers, "global_links": draw(st.integers(1, 3))}
        details |= {"routing": draw(st.sampled_from(FABRICS.get(kind).routings))}
    if kind == "FatTree":
        leaves = draw(st.integers(1, 4))
        npus = leaves * draw(st.integers(1, 3))
        details = {"routers": leaves, "oversubscription": draw(st.sampled_from([1.0, 1.5, 2.0]))}
    return Dimension(kind, npus, draw(RATES), draw(LATENCIES), draw(st.integers(1, 2)), **details)


@st.composite
def products(draw):
    """Up to three dimensions, at most some 200 NPUs."""
    dims = [draw(dimensions())]
    while prod(dim.npus for dim in dims) <= 12 and len(dims) < 3 and draw(st.booleans()):
        dims.append(draw(dimensions(4)))
    return Topology(tuple(dims))


@st.composite
def wafers(draw):
    """A mesh with holes or with spares, every NPU reachable."""
    columns, rows = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    dims = (Dimension("Mesh", columns, 50e9, 1.5), Dimension("Mesh", rows, 25e9, 2.0))
    mesh = networkx.grid_2d_graph(rows, columns)
    number = {(row, column): column + columns * row for row, column in mesh}
    dead = draw(st.sets(st.sampled_from(sorted(number.values())), max_size=3))
    broken = draw(st.sets(st.sampled_from(sorted(mesh.edges)), max_size=3))
    mesh.remove_edges_from(broken)
    mesh.remove_nodes_from([node for node in list(mesh) if number[node] in dead])
    most = max((sum(npu % columns == column for npu in dead) for column in range(columns)), default=0)
    spare = draw(st.sampled_from([0, most, most + 1]))
    if len(mesh) == 0 or spare >= rows or not networkx.is_connected(mesh):
        dead, broken, spare = set(), set(), 0
    links = sorted(tuple(sorted((number[a], number[b]))) for a, b in broken)
    wafer = Wafer(dims, tuple(sorted(dead)), tuple(links), spare)
    seen = (dims[0], Dimension("Mesh", rows - spare, 25e9, 2.0))
    if dead and not spare:
        seen = (Dimension("Wafer", rows * columns - len(dead), 25e9, 2.0),)
    return Topology(seen, wafer=wafer)


@st.composite
def graphs(draw):
    """A connected graph of NPUs and switches, each link with its own speed."""
    nodes = draw(st.integers(2, 9))
    shape = networkx.gnp_random_graph(nodes, draw(st.sampled_from([0.3, 0.6])), seed=draw(st.integers(0, 99)))
    networkx.add_path(shape, range(nodes))
    ends = [pair for a, b in shape.edges for pair in ((a, b), (b, a))]
    rates, latencies = (tuple(draw(some) for _ in ends) for some in (RATES, LATENCIES))
    npus = draw(st.integers(2, nodes))
    src, dst = zip(*ends, strict=True)
    graph = Graph(npus, tuple(map(str, range(nodes))), src, dst, rates, latencies)
    return Topology((Dimension("Graph", npus, min(rates), max(latencies)),), graph=graph)


TWISTED = twisted_tori(RATES, LATENCIES)
TOPOLOGIES = products() | wafers() | graphs() | TWISTED


def all_pairs(links):
    ids = np.arange(links.npus)
    return np.repeat(ids, links.npus), np.tile(ids, links.npus)


def as_networkx(links):
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(links.nodes))
    graph.add_edges_from(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    return graph


@settings(deadline=None, max_examples=60)
@given(TOPOLOGIES)
def test_routes_lead_to_their_destinations_and_figures_are_those_of_the_graph(topology):
    check_topology(topology)


@settings(deadline=None, max_examples=40)
@given(products())
def test_hops_of_the_dimensions_add_up_to_the_route(topology):
    links = LinkGraph(topology)
    src, dst = all_pairs(links)
    total = 0
    for axis in links.axes:
        size = axis.fabric.npus
        total = total + axis.fabric.hops(src // axis.stride % size, dst // axis.stride % size)
    assert (total == links.routes(src, dst).counts).all()


@settings(deadline=None, max_examples=40)
@given(wafers())
def test_dead_npus_and_links_carry_nothing_and_routes_are_as_short_as_the_holes_allow(topology):
    links = LinkGraph(topology)
    cells = links.axes[0].fabric.cells
    ends = {(a, b) for a, b in zip(cells[links.src].tolist(), cells[links.dst].tolist(), strict=True)}
    assert not {npu for pair in ends for npu in pair} & set(topology.wafer.dead_npus)
    assert not {tuple(sorted(pair)) for pair in ends} & set(topology.wafer.dead_links)
    src, dst = all_pairs(links)
    shortest = dict(networkx.all_pairs_shortest_path_length(as_networkx(links)))
    expected = [shortest[a][b] for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    assert links.routes(src, dst).counts.tolist() == expected


@settings(deadline=None, max_examples=20)
@given(TWISTED)
def test_ways_of_twisted_tori_are_shortest_and_every_place_is_like_every_other(topology):
    links = LinkGraph(topology)
    src, dst = all_pairs(links)
    counts, shortest = links.routes(src, dst).counts, links.axes[0].fabric.paths.distances(np.arange(links.npus))
    assert (counts == shortest.ravel()).all()
    assert (np.sort(shortest, axis=1) == np.sort(shortest[0])).all()


@settings(deadline=None, max_examples=40)
@given(wafers())
def test_spare_rows_keep_a_logical_npu_in_its_column_and_rows_in_order(topology):
    if not topology.wafer.spare_rows:
        return
    columns, physical = topology.wafer.columns, LinkGraph(topology).axes[0].fabric.physical
    grid = physical.reshape(-1, columns)
    assert len(grid) == topology.dims[1].npus
    assert (grid % columns == np.arange(columns)).all()
    assert (np.diff(grid // columns, axis=0) >= 1).all()


def test_one_route_equals_the_same_route_among_many():
    links = LinkGraph(Topology((Dimension("Ring", 5, 1e9, 1.0), Dimension("Switch", 3, 1e9, 1.0))))
    src, dst = all_pairs(links)
    alone = [links.route(a, b) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    links.remember(src, dst)
    assert alone == [links.route(a, b) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]


def test_a_ring_takes_the_shorter_way_and_a_tie_upwards():
    links = LinkGraph(Topology((Dimension("Ring", 4, 1e9, 1.0),)))
    assert [links.route(0, npu) for npu in range(4)] == [(), (0,), (0, 1), (4,)]


def test_dimension_0_is_crossed_first():
    links = LinkGraph(Topology((Dimension("Mesh", 3, 1e9, 1.0), Dimension("Mesh", 3, 1e9, 1.0))))
    assert [int(links.dst[link]) for link in links.route(0, 8)] == [1, 2, 5, 8]


NETWORKS = [CutThrough, FairShare]
SIZES = st.integers(0, 10_000_000)


@st.composite
def traffic(draw, most=12):
    """A topology with messages (time, src, dst, bytes) on it; their place in the list is their key."""
    topology = draw(TOPOLOGIES)
    npu = st.integers(0, topology.npus - 1)
    times = st.sampled_from([0, 0, 0, 3, 500, 40_000])
    return LinkGraph(topology), draw(st.lists(st.tuples(times, npu, npu, SIZES), min_size=1, max_size=most))


def run(network, links, messages, order=None):
    """When each message arrives, and the network."""
    env, arrived = Environment(), {}
    made = network(env, links)

    def send(key, src, dst, size):
        made.send(src, dst, size, key, lambda: arrived.setdefault(key, env.now))

    for key in order or range(len(messages)):
        time, *rest = messages[key]
        env.timeout(time).callbacks.append(lambda _, key=key, rest=rest: send(key, *rest))
    env.run()
    assert len(arrived) == len(messages), "every message arrives once"
    return [arrived[key] for key in range(len(messages))], made


def alone_ns(links, messages):
    time, src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    return time + idle_ns(links, links.routes(src, dst), size)


def fair_by_all(links, messages):
    """When each message arrives where all rates are found anew whenever any transfer begins or ends, and busy times."""
    rates = links.bandwidth_bytes_per_s
    routes = [links.route(src, dst) for _, src, dst, _ in messages]
    arrived = [
        time + whole_latency(sum(links.latency_ns[[*way]])) for (time, *_), way in zip(messages, routes, strict=True)
    ]
    left = {key: float(size) for key, (*_, size) in enumerate(messages) if size and routes[key]}
    busy, now = np.zeros(len(links), int), 0
    while left:
        there = [key for key in left if messages[key][0] <= now]
        taken = [np.array(routes[key]) for key in there]
        flows = max_min_rates(
            Routes(np.array([*map(len, taken)], int), np.concatenate([np.zeros(0, int), *taken])), rates
        )
        ends = [now + whole_ns(left[key] / rate * 1e9) for key, rate in zip(there, flows, strict=True)]
        then = min([*ends, *(messages[key][0] for key in left if messages[key][0] > now)])
        busy[[*{link for way in taken for link in way}]] += then - now
        for key, rate in zip(there, flows, strict=True):
            left[key] -= rate * (then - now) * 1e-9
            if whole_ns(left[key] / rate * 1e9) <= 0:
                del left[key]
                arrived[key] += then - messages[key][0]
        now = then
    return arrived, busy.tolist()


@settings(deadline=None, max_examples=150)
@given(traffic(most=30))
def test_fair_rates_are_those_of_all_transfers_together(case):
    """Though they are found anew only for those that share links, directly or not, with what comes or goes."""
    links, messages = case
    arrived, made = run(FairShare, links, messages)
    assert (arrived, made.table().busy_ns.tolist()) == fair_by_all(links, messages)


@pytest.mark.parametrize("network", NETWORKS)
@settings(deadline=None, max_examples=60)
@given(traffic(most=1))
def test_an_idle_shared_network_equals_the_congestion_free_one(network, case):
    links, messages = case
    assert run(network, links, messages)[0] == alone_ns(links, messages).tolist()


@pytest.mark.parametrize("network", NETWORKS)
@settings(deadline=None, max_examples=60)
@given(traffic())
def test_nobody_beats_the_congestion_free_time_and_bytes_on_links_add_up(network, case):
    links, messages = case
    arrived, made = run(network, links, messages)
    assert (np.array(arrived) >= alone_ns(links, messages)).all()
    _, src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    routes = links.routes(src, dst)
    expected = np.bincount(routes.links, np.repeat(size, routes.counts), len(links)).astype(int)
    table = made.table()
    assert (table.size_bytes == expected).all()
    assert (table.busy_ns <= max(arrived)).all()
    needed = [transfer_ns(int(size), rate) for size, rate in zip(expected, links.bandwidth_bytes_per_s, strict=True)]
    assert (table.busy_ns >= np.array(needed) - 1 - (expected > 0)).all(), "no link beats its bandwidth"


@pytest.mark.parametrize("network", NETWORKS)
@settings(deadline=None, max_examples=40)
@given(traffic(), st.randoms(use_true_random=False))
def test_the_order_in_which_messages_of_one_instant_are_sent_does_not_matter(network, case, random):
    links, messages = case
    order = list(range(len(messages)))
    random.shuffle(order)
    assert run(network, links, messages)[0] == run(network, links, messages, order)[0]


@pytest.mark.parametrize("network", NETWORKS)
@given(st.integers(1, 1 << 40), RATES)
def test_two_transfers_on_one_link_take_twice_the_serialisation(network, size, rate):
    links = LinkGraph(Topology((Dimension("Ring", 4, rate, 7.0),)))
    arrived, _ = run(network, links, [(0, 0, 1, size), (0, 0, 1, size)])
    alone = transfer_ns(size, rate)
    assert 2 * alone - 1 <= max(arrived) - 7 <= 2 * alone
    if network is CutThrough:
        assert arrived == [alone + 7, 2 * alone + 7]


@settings(deadline=None, max_examples=60)
@given(traffic(most=1))
def test_store_and_forward_pays_latency_and_serialisation_at_every_hop(case):
    links, [(time, src, dst, size)] = case
    hops = [int(links.latency_ns[x] + size / (links.bandwidth_bytes_per_s[x] / 1e9)) for x in links.route(src, dst)]
    assert run(StoreAndForward, links, [(time, src, dst, size)])[0] == [time + sum(hops)]


def test_store_and_forward_serves_a_link_first_in_first_out():
    links = LinkGraph(Topology((Dimension("Ring", 4, 1e9, 7.5),)))
    messages = [(0, 0, 1, 100), (0, 0, 2, 50), (10, 0, 1, 10)]
    # Link 0 is free for the second at 100, for the third at 150; the second goes on over link 1 at 157.
    assert run(StoreAndForward, links, messages)[0] == [107, 157 + 57, 167]


@settings(deadline=None, max_examples=60)
@given(traffic(most=20))
def test_max_min_rates_fill_a_link_of_every_flow_and_overfill_none(case):
    links, messages = case
    _, src, dst, _ = (np.array(column) for column in zip(*messages, strict=True))
    routes = links.routes(src, dst)
    rates = max_min_rates(routes, links.bandwidth_bytes_per_s)
    flows = np.repeat(np.arange(len(src)), routes.counts)
    load = np.bincount(routes.links, rates[flows], len(links))
    assert (load <= links.bandwidth_bytes_per_s * (1 + 1e-9)).all()
    full = load >= links.bandwidth_bytes_per_s * (1 - 1e-9)
    for flow in np.flatnonzero(routes.counts):
        mine = routes.links[flows == flow]
        largest = [rates[flows[routes.links == link]].max() for link in mine[full[mine]]]
        assert any(rates[flow] >= other * (1 - 1e-9) for other in largest), "a full link where nobody has more"


def halves(npus):
    """Every way to split the NPUs in two, as evenly as possible."""
    return combinations(range(npus), npus // 2)


def weakest_cut(links, graph):
    """The least that two halves can send each other, over all halves, by brute force."""
    whole = set(range(links.npus))
    return min(flow_between(graph, half, whole - set(half)) for half in halves(links.npus))


def flow_between(graph, here, there):
    graph = graph.copy()
    graph.add_edges_from(("from", npu) for npu in here)
    graph.add_edges_from((npu, "to") for npu in there)
    return networkx.maximum_flow_value(graph, "from", "to")


EVEN = {
    "ring": [Dimension("Ring", 6, 1e9, 1.0)],
    "torus": [Dimension("Ring", 4, 1e9, 1.0), Dimension("Torus", 2, 1e9, 1.0)],
    "mesh": [Dimension("Mesh", 4, 1e9, 1.0), Dimension("Mesh", 2, 3e9, 1.0)],
    "line": [Dimension("Mesh", 5, 1e9, 1.0)],
    "all to all": [Dimension("FullyConnected", 5, 1e9, 1.0)],
    "switch": [Dimension("Switch", 7, 1e9, 1.0)],
    "nodes": [Dimension("Switch", 4, 12e9, 1.0), Dimension("Switch", 2, 1e9, 1.0)],
    "fat tree": [Dimension("FatTree", 8, 1e9, 1.0, routers=4, oversubscription=2.0)],
}


@pytest.mark.parametrize("name", EVEN)
def test_the_bisection_is_the_weakest_cut_into_halves(name):
    links = LinkGraph(Topology(tuple(EVEN[name])))
    graph = as_networkx(links)
    for a, b, rate in zip(links.src.tolist(), links.dst.tolist(), links.bandwidth_bytes_per_s.tolist(), strict=True):
        graph.edges[a, b]["capacity"] = rate
    assert figures(links).bisection_bytes_per_s == pytest.approx(weakest_cut(links, graph))


@pytest.mark.parametrize("name", EVEN)
def test_a_graph_has_the_bisection_of_the_dimensions_that_it_writes_out(name):
    links = LinkGraph(Topology(tuple(EVEN[name])))
    kinds = {device: index < links.npus for index, device in enumerate(links.names)}
    ends = zip(links.src.tolist(), links.dst.tolist(), links.bandwidth_bytes_per_s.tolist(), strict=True)
    edges = [Edge((links.names[src], links.names[dst]), rate, 1.0) for src, dst, rate in reversed([*ends])]
    written = GraphFabric(assemble(dict(reversed(kinds.items())), edges, directed=True))
    assert written.bisection_bytes_per_s() == pytest.approx(figures(links).bisection_bytes_per_s)


@settings(deadline=None, max_examples=40)
@given(TOPOLOGIES, st.data())
def test_a_multicast_reaches_all_and_on_plain_dimensions_it_is_a_tree(topology, data):
    links = LinkGraph(topology)
    src, *dst = data.draw(st.lists(st.integers(0, links.npus - 1), min_size=1, max_size=6))
    tree = np.unique(links.routes(np.full(len(dst), src), np.array(dst, np.int64)).links)
    reached = networkx.DiGraph()
    reached.add_node(src)
    reached.add_edges_from(zip(links.src[tree].tolist(), links.dst[tree].tolist(), strict=True))
    assert set(dst) <= {src} | networkx.descendants(reached, src)
    plain = {"Mesh", "Ring", "Torus", "Switch", "FullyConnected"}
    if not topology.wafer and all(dim.kind in plain for dim in topology.dims):
        assert networkx.is_arborescence(reached)


@settings(deadline=None, max_examples=120)
@given(traffic(most=40))
def test_a_batch_is_served_as_by_the_simulation_to_the_nanosecond(case):
    links, messages = case
    time, src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    batch = solve_batch(links, links.routes(src, dst), size, time)
    if batch is None:
        return
    arrived, made = run(CutThrough, links, messages)
    assert batch.arrival_ns.tolist() == arrived
    for column in ("size_bytes", "busy_ns"):
        assert (getattr(batch, column) == getattr(made.table(), column)).all()


@given(dimensions())
def test_only_rings_and_dragonflies_need_stepping(dim):
    links = LinkGraph(Topology((dim,)))
    ids, away = all_pairs(links)
    if dim.kind in {"Mesh", "FullyConnected", "Switch", "FatTree"}:
        assert solve_batch(links, links.routes(ids, away), 1000, 0) is not None


@pytest.mark.parametrize(("kind", "solved"), [("Mesh", True), ("Ring", False)])
def test_an_all_to_all_is_solved_on_a_mesh_and_refused_on_a_torus(kind, solved):
    links = LinkGraph(Topology((Dimension(kind, 5, 1e9, 1.0), Dimension(kind, 5, 1e9, 1.0))))
    assert (solve_batch(links, links.routes(*all_pairs(links)), 1000, 0) is not None) == solved
