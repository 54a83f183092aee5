"""Laws of the algorithms that fit a network: data flow, textbook times on uncontended networks, no dead NPUs."""

from dataclasses import replace
from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.clock import idle_ns
from simcore.network.congested import CutThrough
from simcore.network.fair import FairShare
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.network.topology.tours import hamiltonian, snake
from simcore.network.trees import branches
from simcore.system.collectives import PlanOptions, algorithms, traits_of
from simcore.system.config import WHOLE_MACHINE, Algorithm, SystemConfig
from simcore.system.plans.flow import Claim, faults
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind, Phase
from tests.runs import KINDS, Run, micro

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
REDUCE_SCATTER, ALL_TO_ALL = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
RATE = 25e9
EVERY = [2, 3, 4, 5, 6, 7, 8, 9, 13, 16]


def dimension(kind, npus, latency_ns=500.0):
    return Dimension(kind, npus, RATE, latency_ns)


def time_ns(kind, name, topology, size_bytes, network="", **changes):
    changes = {"preferred_dataset_splits": 1, **changes}
    chosen = tuple(Algorithm(name) for _ in topology.dims)
    run = Run(micro(kind, size_bytes), topology, SystemConfig(implementations={kind: chosen}, **changes))
    return run.timeline(network=network).time_ns


# --- PAT


@pytest.mark.parametrize("ranks", EVERY)
def test_pat_gathers_every_part_once_the_farthest_first(ranks):
    plan = algorithms.get("pat")(ALL_GATHER, ranks, 1, PlanOptions())
    held = [{0} for _ in range(ranks)]  # how far behind the ranks are whose parts a rank has
    for entry in plan.expanded:
        moving = {behind for behind in held[0] if behind + entry.hop < ranks}
        assert len(moving) == entry.size_bytes
        assert not {behind + entry.hop for behind in moving} & held[0]
        held = [mine | {behind + entry.hop for behind in moving} for mine in held]
    assert held[0] == set(range(ranks))
    assert plan.num_rounds == (ranks - 1).bit_length()
    hops = [entry.hop for entry in plan.expanded]
    assert hops == sorted(hops, reverse=True)


@pytest.mark.parametrize("ranks", EVERY)
def test_pat_s_reduce_scatter_is_its_all_gather_backwards(ranks):
    gather = algorithms.get("pat")(ALL_GATHER, ranks, 64, PlanOptions())
    scatter = algorithms.get("pat")(REDUCE_SCATTER, ranks, 64 * ranks, PlanOptions())
    there = [(entry.hop, entry.size_bytes) for entry in gather.expanded]
    back = [(ranks - entry.hop, entry.size_bytes) for entry in scatter.expanded]
    assert back == there[::-1]
    assert sum(entry.reduce_bytes for entry in scatter.expanded) == 64 * (ranks - 1)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(EVERY), st.sampled_from([1, 1000, 65536]))
def test_pat_pays_log_n_latencies_and_sends_what_a_ring_does(ranks, share):
    topology = Topology((dimension("FullyConnected", ranks),))
    spent_ns = time_ns(ALL_GATHER, "pat", topology, share) - 500 * (ranks - 1).bit_length()
    assert spent_ns == pytest.approx(share * (ranks - 1) / RATE * 1e9, abs=(ranks - 1).bit_length())


# --- bidirectional rings


@pytest.mark.parametrize("ranks", [3, 4, 8, 16])
@pytest.mark.parametrize("network", ["congested", "congestion-free"])
def test_both_ways_round_take_half_the_bytes_of_one(ranks, network):
    """The reference's flat algorithms: 2(n-1) alpha + (n-1)/n S beta; an all-to-all S n/8 beta."""
    topology, share = Topology((dimension("Ring", ranks),)), 20_000
    steps = 2 * (ranks - 1)
    expected_ns = steps * (500 + transfer_ns(share // 2, RATE))
    assert time_ns(ALL_REDUCE, "bidirectionalRing", topology, ranks * share, network) == expected_ns
    assert time_ns(ALL_GATHER, "bidirectionalRing", topology, share, network) == expected_ns // 2
    assert time_ns(REDUCE_SCATTER, "bidirectionalRing", topology, ranks * share, network) == expected_ns // 2
    if ranks % 2 == 0:
        messages = (ranks // 2 - 1) * ranks // 4 + ranks // 2
        bytes_ns = transfer_ns(ranks * share * ranks // 8, RATE)
        assert time_ns(ALL_TO_ALL, "bidirectionalRing", topology, ranks * share, network) == messages * 500 + bytes_ns


@given(st.sampled_from(EVERY), st.integers(0, 10**6), st.sampled_from([ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER]))
def test_the_two_rings_share_the_data_of_one_and_go_opposite_ways(ranks, size_bytes, kind):
    both = algorithms.get("bidirectionalRing")(kind, ranks, size_bytes, PlanOptions())
    one = algorithms.get("ring")(kind, ranks, size_bytes, PlanOptions())
    assert both.bytes_of(0) == one.bytes_of(0)
    assert {entry.hop for entry, _ in both.parts[0][1].rounds} == {1}
    assert {entry.hop for entry, _ in both.parts[1][1].rounds} == {ranks - 1}


@pytest.mark.parametrize("ranks", EVERY)
def test_a_bidirectional_all_to_all_sends_every_share_the_shorter_way(ranks):
    plan = algorithms.get("bidirectionalRing")(ALL_TO_ALL, ranks, ranks * 100, PlanOptions())
    assert plan.bytes_of(0) == 100 * sum(min(way, ranks - way) for way in range(1, ranks))


# --- snake and Hamiltonian rings


def plane(columns, rows, dead=(), spare=0):
    """A mesh of 500 ns a link; with dead NPUs a wafer."""
    dims = (dimension("Mesh", columns), dimension("Mesh", rows))
    if not dead:
        return Topology(dims)
    whole = (dims[0], dimension("Mesh", rows + spare))
    seen = dims if spare else (dimension("Wafer", columns * rows - len(dead)),)
    return Topology(seen, wafer=Wafer(whole, tuple(dead), (), spare))


TOURING = sorted(name for name, (_, tour) in WHOLE_MACHINE.items() if tour)


def touring(name, topology, size_bytes, **changes):
    algorithm, tour = WHOLE_MACHINE[name]
    chosen = (Algorithm(algorithm, 0, True, tour=tour),)
    system = SystemConfig(implementations={ALL_REDUCE: chosen}, preferred_dataset_splits=1)
    return Run(micro(ALL_REDUCE, size_bytes), topology, system)


@st.composite
def planes(draw):
    """Small planes with up to three dead NPUs whose rest hangs together."""
    columns, rows = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    dead = sorted(draw(st.sets(st.integers(0, columns * rows - 1), max_size=3)))
    topology = plane(columns, rows, dead)
    live = neighbours(LinkGraph(topology)) if topology.npus else networkx.Graph()
    return topology if len(live) > 1 and networkx.is_connected(live) else plane(columns, rows)


def neighbours(links):
    graph = networkx.Graph()
    graph.add_nodes_from(range(links.npus))
    ends = zip(links.src.tolist(), links.dst.tolist(), strict=True)
    graph.add_edges_from((a, b) for a, b in ends if max(a, b) < links.npus)
    return graph


def has_cycle(graph):
    """Whether there is a Hamiltonian cycle, by trying everything."""
    path, tried = [0], [sorted(graph[0])]
    while path:
        if not tried[-1]:
            path.pop(), tried.pop()
            continue
        npu = tried[-1].pop()
        if npu == 0 and len(path) == len(graph) and len(path) > 2:
            return True
        if npu not in path:
            path.append(npu)
            tried.append(sorted(graph[npu]))
    return False


@settings(deadline=None, max_examples=60)
@given(planes())
def test_a_tour_visits_every_live_npu_once_and_a_hamiltonian_one_over_one_link_each(topology):
    links = LinkGraph(topology)
    assert sorted(snake(links)) == list(range(topology.npus))
    try:
        tour = hamiltonian(links)
    except ValueError:
        if topology.npus <= 16:
            assert not has_cycle(neighbours(links)), "one was there"
        return
    assert sorted(tour) == list(range(topology.npus))
    assert all(len(links.route(a, b)) == 1 for a, b in pairwise((*tour, tour[0])))


@pytest.mark.parametrize("topology", [plane(4, 4), plane(8, 7), plane(3, 4), plane(6, 5, (7, 15)), plane(5, 5, (12,))])
@pytest.mark.parametrize(("name", "part"), [("hamiltonianRing", 1), ("bidirectionalHamiltonianRing", 2)])
def test_a_hamiltonian_ring_takes_a_ring_s_textbook_time(topology, name, part):
    n, share = topology.npus, 2000
    run = touring(name, topology, n * share)
    for network in ("congested", "congestion-free", "fair"):
        assert run.timeline(network=network).time_ns == 2 * (n - 1) * (500 + transfer_ns(share // part, RATE))


@settings(deadline=None, max_examples=30)
@given(planes(), st.sampled_from(TOURING), st.sampled_from(["congested", "fair"]))
def test_rings_of_planes_with_holes_leave_the_dead_alone_and_their_bytes_are_on_the_links(topology, name, network):
    run = touring(name, topology, topology.npus * 64)
    try:
        timeline = run.timeline(network=network)
    except InputError as error:
        assert "snakeRing" in str(error)
        return
    links, n = LinkGraph(topology), topology.npus
    tour = (snake if "nake" in name else hamiltonian)(links)
    hops = sum(len(links.route(a, b)) for a, b in pairwise((*tour, tour[0])))
    if name.startswith("bidirectional"):
        hops = (hops + sum(len(links.route(b, a)) for a, b in pairwise((*tour, tour[0])))) / 2
    assert timeline.links.size_bytes.sum() == 2 * (n - 1) * 64 * hops
    used = timeline.links.size_bytes > 0
    assert not dead_nodes(topology, links) & {*links.src[used].tolist(), *links.dst[used].tolist()}


@settings(deadline=None, max_examples=30)
@given(planes(), st.sampled_from(TOURING))
def test_rings_that_are_played_once_are_those_of_the_whole_simulation(topology, name):
    run = touring(name, topology, topology.npus * 64)

    try:
        once = run.report()
    except InputError:
        return  # no such tour
    assert run.report(exact="messages") == once


def dead_nodes(topology, links):
    if not topology.wafer:
        return set()
    cells = links.axes[0].fabric.cells.tolist()
    return {node for node, cell in enumerate(cells) if cell in topology.wafer.dead_npus}


def test_spare_rows_keep_a_snake_whole():
    topology = plane(4, 3, (5,), 1)
    assert sorted(snake(LinkGraph(topology))) == list(range(12))
    assert touring("snakeRing", topology, 12 * 64).timeline().time_ns > 0


def test_a_tour_needs_a_plane_and_says_so_where_it_was_chosen():
    with pytest.raises(InputError, match="2-D mesh"):
        touring("snakeRing", Topology((dimension("Ring", 8),)), 64).timeline()
    with pytest.raises(InputError, match="chessboard"):
        touring("hamiltonianRing", plane(3, 3), 64).timeline()


@pytest.mark.parametrize("name", TOURING)
def test_the_peers_profiles_have_no_tours(name):
    with pytest.raises(InputError, match="has no algorithm"):
        replace(touring(name, plane(4, 4), 64), profile="astra-sim-2").timeline()


# --- colours: every dimension at work at once


@pytest.mark.parametrize("sides", [(4, 4), (3, 3), (4, 4, 4), (8,)])
@pytest.mark.parametrize("network", ["congested", "congestion-free"])
def test_colours_on_a_torus_use_all_links_at_once(sides, network):
    """The reference's hierarchical formulas: 2d(q-1) alpha + (n-1)/n S beta / d on bidirectional links."""
    topology = Topology(tuple(dimension("Ring", side) for side in sides))
    d, q, n = len(sides), sides[0], topology.npus
    size_bytes = 50 * d * n * 1000
    found_ns = time_ns(
        ALL_REDUCE, "bidirectionalRing", topology, size_bytes, network, inter_dimension_scheduling="colours"
    )
    assert found_ns == pytest.approx(2 * d * (q - 1) * 500 + (n - 1) * size_bytes / n / RATE * 1e9 / d)


@pytest.mark.parametrize("kind", [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
def test_half_the_rows_first_half_the_columns_first_takes_half_the_bytes_time(kind):
    topology = Topology((dimension("Ring", 4, 0.0), dimension("Ring", 4, 0.0)))
    size_bytes = 64_000
    plain = time_ns(kind, "bidirectionalRing", topology, size_bytes)
    assert time_ns(kind, "bidirectionalRing", topology, size_bytes, inter_dimension_scheduling="colours") == plain / 2


@pytest.mark.parametrize("shape", ["Ring", "Mesh", "Switch"])
def test_folding_with_colours_changes_nothing(shape):
    topology = Topology((dimension(shape, 4), dimension("Ring", 2), dimension(shape, 3)))
    chosen = tuple(Algorithm("ring") for _ in topology.dims)
    system = SystemConfig(implementations={ALL_REDUCE: chosen}, inter_dimension_scheduling="colours")
    run = Run(micro(ALL_REDUCE, 96_000), topology, system)
    assert run.report() == run.report(exact="messages")
    with pytest.raises(InputError, match="colours"):
        replace(run, profile="astra-sim-2").timeline()


# --- reductions in a switch


@pytest.mark.parametrize("network", ["congested", "congestion-free", "fair"])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(("latency_ns", "bytes_per_s"), [(0, 0.0), (300, 0.0), (70, RATE / 4)])
def test_a_switch_reduces_in_the_time_of_one_message(network, fold, latency_ns, bytes_per_s):
    """Reference, section 4: every link carries S up and S down, whatever the number of ranks."""
    topology, size_bytes = Topology((dimension("Switch", 16),)), 1_000_000
    system = SystemConfig(
        implementations={ALL_REDUCE: (Algorithm("inNetwork"),)},
        preferred_dataset_splits=1,
        switch_latency_ns=latency_ns,
        switch_bytes_per_s=bytes_per_s,
    )
    timeline = Run(micro(ALL_REDUCE, size_bytes), topology, system).timeline(network=network, fold=fold)
    slowest = min(RATE, bytes_per_s or RATE)
    assert timeline.time_ns == 2 * 500 + latency_ns + transfer_ns(size_bytes, slowest)
    if timeline.links:
        assert set(timeline.links.size_bytes.tolist()) == {size_bytes}


@pytest.mark.parametrize("network", ["congested", "congestion-free", "fair"])
def test_the_switch_waits_for_the_last_and_chunks_go_one_after_the_other(network):
    topology = Topology((dimension("Switch", 4), dimension("Switch", 3)))
    system = SystemConfig(implementations={ALL_REDUCE: (Algorithm("direct"), Algorithm("inNetwork"))})
    run = Run(micro(ALL_REDUCE, 48_000), topology, system, settings=Settings(network=network, stragglers={5: 3.0}))
    late = replace(run.workload.layers[0], weight_grad=Phase(10_000, ALL_REDUCE, 48_000))
    run = replace(run, workload=replace(run.workload, loop="DATA", layers=(late,)))
    played = {"fold": False} if network == "congestion-free" else {"exact": "messages"}
    assert run.report() == run.report(**played)
    assert run.timeline().time_ns > 30_000


def test_only_a_switch_reduces():
    with pytest.raises(InputError, match="kind Switch"):
        time_ns(ALL_REDUCE, "inNetwork", Topology((dimension("Ring", 4),)), 64)


# --- multicast


@st.composite
def multicasts(draw):
    """A network, a root, and whom it sends to."""
    topology = draw(st.one_of(planes(), st.sampled_from([dimension(kind, 6) for kind in SHAPES]).map(one)))
    npus = st.integers(0, topology.npus - 1)
    root = draw(npus)
    return topology, root, draw(st.sets(npus.filter(lambda npu: npu != root), min_size=1, max_size=8))


SHAPES = ("Ring", "Mesh", "Switch", "FullyConnected")


def one(dim):
    return Topology((dim,))


@settings(deadline=None, max_examples=80)
@given(multicasts(), st.sampled_from([CutThrough, FairShare]), st.sampled_from([0, 1, 100_000]))
def test_a_multicast_arrives_as_its_own_route_would_take_and_crosses_every_link_once(case, network, size_bytes):
    topology, root, targets = case
    links, env, arrived = LinkGraph(topology), Environment(), {}
    plain = network(env, links)
    plain.multicast(root, sorted(targets), size_bytes, (0,), lambda npu: arrived.setdefault(npu, int(env.now)))
    env.run()
    sources, ends = np.full(len(targets), root), np.array(sorted(targets))
    ways = links.routes(sources, ends)
    alone = idle_ns(links, ways, np.full(len(targets), size_bytes))
    assert sorted(arrived) == sorted(targets)
    tree, _ = branches(links, root, sorted(targets))
    assert len({branch.link for branch in tree}) == len({branch.node for branch in tree}) == len(tree)
    assert {branch.link for branch in tree} <= set(ways.links.tolist())
    assert plain.counts()[0].sum() == size_bytes * len(tree)
    if topology.wafer is None:
        assert [arrived[npu] for npu in sorted(targets)] == alone.tolist()
    assert all(arrived[npu] >= time for npu, time in zip(sorted(targets), alone.tolist(), strict=True))


@pytest.mark.parametrize(
    "topology", [plane(4, 4), plane(5, 4, (6,)), one(dimension("Switch", 6)), one(dimension("Ring", 6))]
)
@pytest.mark.parametrize("network", ["congested", "fair"])
def test_an_all_gather_by_multicast_loads_every_link_with_the_trees_that_cross_it(topology, network):
    chosen = (Algorithm("multicast", 0, True),)
    run = Run(micro(ALL_GATHER, 1000), topology, SystemConfig(implementations={ALL_GATHER: chosen}))
    run = replace(run, system=replace(run.system, preferred_dataset_splits=1))
    links, n = LinkGraph(topology), topology.npus
    expected = np.zeros(len(links), np.int64)
    for root in range(n):
        tree, _ = branches(links, root, [npu for npu in range(n) if npu != root])
        expected[[branch.link for branch in tree]] += 1000
    timeline = run.timeline(network=network)
    assert timeline.links.size_bytes.tolist() == expected.tolist()
    assert timeline.time_ns >= transfer_ns(int(expected.max()), RATE)
    assert run.report(network=network) == run.report(network=network, exact="messages")


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("kind", [ALL_GATHER, CollectiveKind.BROADCAST])
def test_multicasts_bring_everybody_what_a_collective_is_to_bring(ranks, kind):
    plan = algorithms.get("multicast")(kind, ranks, 64, PlanOptions())
    assert not list(faults(plan, Claim(kind, ranks, ranks if kind == ALL_GATHER else 1)))
    assert len(plan.copies) == (ranks if kind == ALL_GATHER else 1)


@pytest.mark.parametrize(("name", "kind"), [("inNetwork", ALL_REDUCE), ("multicast", ALL_GATHER)])
def test_what_nobody_can_ask_for_is_refused_with_a_rendezvous(name, kind):
    run = Run(micro(kind, 64), one(dimension("Switch", 4)), SystemConfig(implementations={kind: (Algorithm(name),)}))
    with pytest.raises(InputError, match="--rendezvous"):
        run.timeline(rendezvous=True)


# --- all algorithms of the registry


def sent(plan, links):
    """Bytes on all links: every message over every link of its way."""
    n = links.npus
    if plan.beside:
        return sum(sent(part, links) for _, part in plan.parts)
    if plan.switch:
        return 2 * n * plan.bytes_of(0)
    if plan.multicast:
        roots = range(n)
        return sum(plan.bytes_of(0) // (n - 1) * len(branches(links, root, [*range(root), *range(root + 1, n)])[0])
                   for root in roots)  # fmt: skip
    if plan.transfers:
        return sum(entry.size_bytes * len(links.route(entry.src, entry.dst)) for entry in plan.transfers)
    hops = {entry.hop: sum(len(links.route(r, plan.peer(r, entry.hop))) for r in range(n)) for entry, _ in plan.rounds}
    return sum(entry.size_bytes * count * hops[entry.hop] for entry, count in plan.rounds)


TREES = {"doubleBinaryTree": (ALL_REDUCE,), "halvingDoubling": (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)}
ABLE = [
    (name, kind)
    for name in algorithms
    if not traits_of(name).network_aware
    for kind in TREES.get(name, traits_of(name).kinds)
    if kind in KINDS
]
# Bytes that every NPU must send and receive at least, for S bytes of its own.
LEAST = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}


@pytest.mark.parametrize(("name", "kind"), ABLE)
@settings(deadline=None, max_examples=8)
@given(
    shape=st.sampled_from(["Ring", "Mesh", "Switch", "FullyConnected", "FatTree", "Wafer"]),
    ranks=st.sampled_from([2, 4, 8]),
    share=st.sampled_from([8, 1000]),
    network=st.sampled_from(["congested", "fair"]),
)
def test_bytes_on_links_are_those_of_the_plan_and_no_time_beats_the_bounds(name, kind, shape, ranks, share, network):
    shape = "Switch" if name == "inNetwork" else shape
    topology = plane(3, 3, (4,)) if shape == "Wafer" else one(replace(dimension(shape, ranks), routers=2))
    n, links = topology.npus, LinkGraph(topology)
    size_bytes = share if kind == ALL_GATHER else n * share
    chosen = SystemConfig(implementations={kind: (Algorithm(name),)}, preferred_dataset_splits=1)
    run = Run(micro(kind, size_bytes), topology, chosen)
    timeline = run.timeline(network=network)
    plan = algorithms.get(name)(kind, n, size_bytes, PlanOptions())
    carried = timeline.links.size_bytes
    assert carried.sum() == sent(plan, links)
    rates = links.bandwidth_bytes_per_s
    assert timeline.time_ns >= int((carried / rates).max() * 1e9)
    into = np.bincount(links.dst, rates, minlength=links.nodes)[:n]
    reducing = LEAST[kind] / (2 if name == "inNetwork" else 1)
    assert timeline.time_ns >= int(reducing * (n - 1) * share / into.max() * 1e9)
    assert timeline.time_ns >= min(row.sum() for row in [links.latency_ns[[*links.route(0, n - 1)]]])
    assert timeline.time_ns >= run.timeline(network="congestion-free").time_ns


def test_copies_arrive_after_their_sender_has_left():
    """Without latency the middle of a line is done, and in its next phase, before its copies have arrived."""
    mesh = Topology((Dimension("Mesh", 3, 1e9, 0.0), Dimension("Ring", 2, 1e9, 0.0)))
    system = SystemConfig(
        active_chunks_per_dimension=2,
        preferred_dataset_splits=4,
        implementations={ALL_GATHER: (Algorithm("multicast"),) * 2},
    )
    Run(micro(ALL_GATHER, 5), mesh, system).timeline(fold=False)
