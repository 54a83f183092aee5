"""Twisted tori, Dragonfly+ and Slingshot: published figures, and files that say them."""

import numpy as np
import pytest

import simcore
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph, figures, rates_bytes_per_s
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Topology

FILE = {
    "topology": "[Torus, Torus, Torus]",
    "npus_count": "[4, 4, 8]",
    "bandwidth": "[45, 45, 45]",
    "latency": "[1, 1, 1]",
}


PLANE = {"topology": "[Torus, Torus]", "npus_count": "[4, 8]", "bandwidth": "[45, 45]", "latency": "[1, 1]"}


def write(path, **keys):
    path.write_text("".join(f"{key}: {value}\n" for key, value in (FILE | keys).items()), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("sizes", "measured"), [("[4, 4, 8]", 1.63), ("[4, 8, 8]", 1.31)])
def test_an_all_to_all_gains_by_the_twist_what_tpu_v4_measured(tmp_path, sizes, measured):
    """Jouppi et al., ISCA 2023, figure 6. Here: the fullest link's messages, against balanced ways on a plain torus."""
    links = LinkGraph(load(write(tmp_path / "t.yaml", npus_count=sizes, twisted="true")))
    ids = np.arange(links.npus)
    load_of_links = np.bincount(links.routes(np.repeat(ids, links.npus), np.tile(ids, links.npus)).links)
    plain = links.npus * 8 / 4 / 2  # a quarter of the longest side each way on average, over two links
    assert plain / load_of_links.max() == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize("profile", ["astra-sim-1.0", "astra-sim-2"])
def test_times_of_astra_sim_without_contention_need_dimensions_with_links_of_their_own(tmp_path, profile):
    with pytest.raises(InputError, match="no graphs, wafers and twisted tori"):
        simcore.run("micro_all_reduce", write(tmp_path / "t.yaml", **PLANE, twisted="true"), profile=profile)


def test_a_run_on_a_twisted_torus_sends_everything_in_one_dimension_and_one_npu_stands_for_all(tmp_path):
    plain, twisted = (
        simcore.run("micro_all_to_all", write(tmp_path / f"{twist}.yaml", **PLANE, twisted=twist))
        for twist in ("false", "true")
    )
    assert twisted.time_ns < plain.time_ns
    assert (len(twisted.to_dict()["dims"]), twisted.to_dict()["classes"]) == (1, 1)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"npus_count": "[4, 4, 4]"}, "sides of k and 2k"),
        ({"npus_count": "[2, 4, 16]"}, "sides of k and 2k"),
        ({"topology": "[Torus, Torus, Mesh]"}, "only a torus can be twisted"),
        ({"buffer": "[1 MiB, 1 MiB, 2 MiB]"}, "are alike"),
    ],
)
def test_what_cannot_be_twisted_is_told(tmp_path, keys, what):
    with pytest.raises(InputError, match=what):
        load(write(tmp_path / "t.yaml", twisted="true", **keys))


def test_a_slingshot_network_has_the_global_bandwidth_that_frontier_has():
    """Atchley et al., SC 2023: 74 groups of 512 endpoints of 25 GB/s, 270 + 270 TB/s between groups, 57 % of theirs."""
    dim = Dimension("Dragonfly", 37_888, 25e9, 300.0, groups=74, routers=32, global_links=4)
    links = LinkGraph(Topology((dim,)))
    between = 74 * 73 * 4
    assert len(links) == 2 * 37_888 + 74 * 32 * 31 + between
    assert between / 2 * 25e9 == pytest.approx(270e12, rel=0.001)
    assert between * 25e9 / (37_888 * 25e9) == pytest.approx(0.57, abs=0.005)


def test_several_links_between_groups_end_at_different_routers_and_share_what_crosses():
    dim = Dimension("Dragonfly", 64, 25e9, 300.0, groups=4, routers=8, global_links=4)
    links = LinkGraph(Topology((dim,)))
    first = 2 * 64 + 4 * 8 * 7
    assert len({*links.src[first : first + 4].tolist()}) > 1
    src, dst = np.repeat(np.arange(16), 16), np.tile(np.arange(16, 32), 16)
    crossing = np.bincount(links.routes(src, dst).links, minlength=len(links))[first : first + 4]
    assert crossing.sum() == 256
    assert crossing.min() > 40


def test_spines_of_a_dragonfly_plus_share_what_stays_in_a_group():
    dim = Dimension("DragonflyPlus", 48, 25e9, 300.0, groups=3, routers=4, global_links=4)
    links = LinkGraph(Topology((dim,)))
    src, dst = np.repeat(np.arange(4), 4), np.tile(np.arange(4, 8), 4)
    up = np.bincount(links.routes(src, dst).links, minlength=len(links))[96 : 96 + 4]
    assert up.tolist() == [4, 4, 4, 4]
    assert figures(links).diameter_hops == 5


def test_kinds_say_which_keys_are_theirs(tmp_path):
    file = write(tmp_path / "t.yaml", global_links="[1, 1, 4]")
    with pytest.raises(InputError, match="global_links does not apply to a Ring"):
        load(file)


@pytest.mark.parametrize(
    ("kind", "links"), [("Ring", 2), ("Torus", 2), ("Mesh", 1), ("FullyConnected", 5), ("Switch", 1), ("FatTree", 1)]
)
def test_what_an_npu_can_send_at_in_a_dimension_is_what_all_its_links_there_carry(kind, links):
    dims = Dimension("Switch", 2, 9.0, 1.0), Dimension(kind, 6, 5.0, 1.0, links=3)
    assert rates_bytes_per_s(Topology(dims)) == (9.0, 15.0 * links)


def test_a_wafers_first_node_has_a_link_in_each_dimension_and_a_graphs_node_those_out_of_it():
    assert rates_bytes_per_s(load("wafer_8x7")) == (100e9, 100e9)
    graph = load("optical_16")
    out = LinkGraph(graph)
    assert rates_bytes_per_s(graph) == (sum(out.bandwidth_bytes_per_s[out.src == 0]),)
