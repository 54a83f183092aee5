"""Several ways: who takes which, and what that is worth."""

from dataclasses import replace
from itertools import pairwise, permutations, product

import networkx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore.network.congested import CutThrough
from simcore.network.parts import FoldedLinks
from simcore.network.queued.network import Queued
from simcore.network.queued.routing import Ways
from simcore.network.topology.grid import moves_of
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.paths import ShortestPaths
from simcore.network.topology.ports import PLAIN
from simcore.network.topology.twisted import whole_dimension
from tests.queues import KIB, MIB, machine, play, segments

TREE = {"kind": "FatTree", "npus": 16, "routers": 4}
DRAGONFLY = {"kind": "Dragonfly", "npus": 24, "routers": 3, "groups": 4}
ROUTINGS = ["ecmp", "spray", "adaptive", "valiant", "ugal"]
kinds = st.sampled_from(
    [TREE, {"kind": "Ring", "npus": 7}, {"kind": "Mesh", "npus": 5}, {"kind": "FullyConnected", "npus": 6}]
)


def routed(routing, seed=0):
    return replace(PLAIN, segment_bytes=4 * KIB, routing=routing, seed=seed)


def permutation(npus, shift, size):
    return [(npu, (npu + shift) % npus, size, 0) for npu in range(npus)]


@given(kinds, st.sampled_from(ROUTINGS), st.integers(0, 6), st.integers(0, 6), st.integers(0, 9))
def test_every_way_leads_from_link_to_link_to_the_end(kind, routing, src, dst, seed):
    links = machine(**kind, ports=routed(routing, seed))
    src, dst = src % links.npus, dst % links.npus
    ways = Ways(links)
    for turn in range(5):
        at = src
        for link in ways.choose(src, dst, turn, lambda _: 0.0):
            assert links.src[link] == at
            at = links.dst[link]
        assert at == dst


@given(st.sampled_from(["ecmp", "spray", "adaptive"]), st.integers(1, 15))
def test_ways_other_than_valiants_are_as_short_as_the_usual_one(routing, dst):
    links = machine(**TREE, ports=routed(routing))
    assert len(Ways(links).choose(0, dst, 0, lambda _: 0.0)) == len(links.route(0, dst))


TWISTED = tuple(Dimension("Ring", side, 1e9, 100.0) for side in (2, 4))
ALIKE = {
    "ring": (Topology((Dimension("Ring", 7, 1e9, 100.0),)), [7]),
    "twisted torus": (Topology((whole_dimension(TWISTED),), twisted=TWISTED), [8]),
    "switch": (Topology((Dimension("Switch", 6, 1e9, 100.0),)), [6]),
    "full mesh with groups": (Topology((Dimension("FullyConnected", 12, 1e9, 100.0),)), [2, 3, 2]),
}


@pytest.mark.parametrize(("topology", "cut"), ALIKE.values(), ids=ALIKE)
def test_valiants_ways_look_the_same_from_every_npu(topology, cut):
    topology = replace(topology, dims=(replace(topology.dims[0], ports=routed("valiant", 3)),))
    links = FoldedLinks(LinkGraph(topology, cuts=[cut]))
    ways, moves = Ways(links.whole), moves_of(links.axes[0].fabric, cut)
    for by, turn in product(range(1, topology.npus), range(5)):
        ends = ((npu, int(moves.on(np.array(by), np.array(npu)))) for npu in range(topology.npus))
        assert len({links.instead_of(ways.choose(*pair, turn, float)) for pair in ends}) == 1


@pytest.mark.parametrize("routing", ["spray", "ugal"])
def test_links_side_by_side_are_ways_of_their_own(routing):
    """Of a dragonfly whose groups have one router and two links to each other one."""
    split = {"groups": 3, "routers": 1, "global_links": 2}
    links = LinkGraph(Topology((Dimension("Dragonfly", 6, 1e9, 500.0, ports=routed(routing), **split),)))
    ways = Ways(links)
    found = [ways.found(*pair) for pair in permutations(range(6), 2)]
    assert {link for parts in found for _, _, each in parts for way in each for link in way} == {*range(len(links))}


@given(st.sampled_from([TREE, {"kind": "Ring", "npus": 6}, DRAGONFLY]), st.data())
def test_ways_that_are_as_short_are_all_there_in_their_order_and_a_hash_takes_one(kind, data):
    links = machine(**kind, ports=routed("ecmp", data.draw(st.integers(0, 9))))
    src, dst = (data.draw(st.integers(0, links.npus - 1)) for _ in range(2))
    graph = networkx.DiGraph()
    graph.add_edges_from(
        (int(a), int(b), {"link": link}) for link, (a, b) in enumerate(zip(links.src, links.dst, strict=True))
    )
    nodes = [] if src == dst else networkx.all_shortest_paths(graph, src, dst)
    expected = sorted(tuple(graph[a][b]["link"] for a, b in pairwise(way)) for way in nodes) or [()]
    paths = links.axes[0].fabric.paths
    assert paths.several(src, dst, 64) == expected[:64]
    assert links.route(src, dst) in expected
    rank = data.draw(st.integers(0, 2**64 - 1))
    (row,) = paths.ranked(np.array([src]), np.array([dst]), np.array([rank], np.uint64)).tolist()
    assert tuple(row) == expected[rank % len(expected)]


def test_more_ways_than_can_be_counted_are_ways():
    """Of a torus of 20 x 20 x 20 NPUs there are 30! / 10!^3 from a corner to the middle, over 2^42."""
    side = range(20)
    torus = networkx.grid_graph([side, side, side], periodic=True)
    numbers = {node: number for number, node in enumerate(sorted(torus))}
    pairs = np.array([(numbers[a], numbers[b]) for a, b in torus.to_directed().edges])
    paths = ShortestPaths(len(numbers), *pairs.T)
    middle = numbers[10, 10, 10]
    ranks = np.array([0, 1, 2**40 - 1, 2**63 + 5], np.uint64)
    table = paths.ranked(np.zeros(4, np.int64), np.full(4, middle), ranks)
    assert table.shape == (4, 30)
    for way in table:
        nodes = [0, *pairs[way, 1]]
        assert pairs[way, 0].tolist() == nodes[:-1]
        assert nodes[-1] == middle
    assert len({*map(tuple, table.tolist())}) == 4


def test_spraying_gives_every_spine_the_same():
    links = machine(**TREE, ports=routed("spray"))
    times, played = play(links, permutation(16, 4, MIB))
    up = played.counts()[0][32 : 32 + 16]
    assert up.min() == up.max() == MIB
    assert max(times) <= 1.03 * MIB


def test_hashed_ways_meet_and_which_do_depends_on_the_seed():
    """ECMP's known weakness: with four flows on four spines some spine has two, whatever the seed, nearly always."""
    worst = [
        max(play(machine(**TREE, ports=routed("ecmp", seed)), permutation(16, 4, MIB))[0]) / MIB for seed in range(6)
    ]
    assert len({round(time, 2) for time in worst}) > 1
    assert max(worst) > 1.9


def test_the_least_queue_is_as_good_as_spraying_and_avoids_who_is_slow():
    messages = permutation(16, 4, MIB)
    adaptive, _ = play(machine(**TREE, ports=routed("adaptive")), messages)
    hashed, _ = play(machine(**TREE, ports=routed("ecmp")), messages)
    assert max(adaptive) <= 1.1 * MIB < max(hashed)


def test_valiant_spreads_what_minimal_ways_put_on_one_link():
    """On a full mesh two halves swap: minimal routing has one link a pair, Valiant all of them."""
    minimal, _ = play(machine("FullyConnected", 8, ports=segments(4 * KIB, 64 * MIB, "credits")), [(0, 1, MIB, 0)])
    spread, played = play(machine("FullyConnected", 8, ports=routed("valiant")), [(0, 1, MIB, 0)])
    assert minimal[0] == MIB + 100
    assert spread[0] < 0.2 * MIB + 200 + 8 * KIB
    assert played.counts()[0].sum() == 2 * MIB  # every byte crosses two links


@given(st.integers(2, 5), st.integers(2, 5), st.data(), st.integers(1, 64))
def test_on_a_rail_only_network_a_message_crosses_its_server_first(gpus, servers, data, kib):
    """To the NPU of the other's rail, then along it: a latency for each hop, and the bytes on the slowest link."""
    links = LinkGraph(Topology((Dimension("Switch", gpus, 4e9, 50.0), Dimension("Switch", servers, 1e9, 100.0))))
    src, dst = (data.draw(st.integers(0, gpus * servers - 1)) for _ in range(2))
    inside, along = src % gpus != dst % gpus, src // gpus != dst // gpus
    ends = [links.dst[link] for link in links.route(src, dst)]
    assert len(ends) == 2 * inside + 2 * along
    if inside:
        assert ends[1] == src // gpus * gpus + dst % gpus
    expected = 100 * inside + 200 * along + (kib * KIB if along else kib * KIB // 4 if inside else 0)
    for network in (Queued, CutThrough):
        assert play(links, [(src, dst, kib * KIB, 0)], network)[0] == [expected]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_single_way_is_what_it_always_was(routing):
    """Over a switch, where no NPU passes on what is meant for others."""
    links, plain = (machine("Switch", 6, ports=routed(each)) for each in (routing, ""))
    messages = [(src, 0, 64 * KIB, 0) for src in range(1, 6)]
    assert play(links, messages)[0] == play(plain, messages)[0]


SWITCHED = [
    TREE,
    {"kind": "Switch", "npus": 5},
    DRAGONFLY,
    {"kind": "DragonflyPlus", "npus": 24, "routers": 2, "groups": 3},
]


@given(st.sampled_from(SWITCHED), st.sampled_from(ROUTINGS), st.data())
def test_behind_switches_no_npu_passes_on_what_is_meant_for_others(kind, routing, data):
    links = machine(**kind, ports=routed(routing))
    src, dst = (data.draw(st.integers(0, links.npus - 1)) for _ in range(2))
    assume(src != dst)
    for *_, ways in Ways(links).found(src, dst):
        assert len({*ways}) == len(ways)
        for way in ways:
            between = [int(links.dst[link]) for link in way[:-1]]
            assert all(node >= links.npus for node in between)
            assert len({*between}) == len(between)


@pytest.mark.parametrize("routing", ["valiant", "ugal"])
def test_in_a_fat_tree_nothing_goes_up_again(routing):
    links = machine(**TREE, ports=routed(routing))
    ((*_, ways),) = Ways(links).found(0, 15)
    assert ways == links.axes[0].fabric.paths.several(0, 15, 64)


def test_on_a_dragonfly_plus_longer_ways_lead_over_third_groups():
    links = machine("DragonflyPlus", 24, routers=2, groups=3, ports=routed("valiant"))
    ((*_, ways),) = Ways(links).found(0, 23)
    groups = [{(int(links.dst[link]) - 24) % 6 // 2 for link in way[:-1]} for way in ways]
    assert {0, 1, 2} in groups
