"""Laws of `collectives: nccl` in whole runs: what the prediction says, for every collective, folded or not."""

import json
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents
from simcore.cost.words import cluster_of
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system import config
from simcore.system.collectives.nccl import FABRICS, collective_s
from simcore.system.config import Algorithm, SystemConfig
from simcore.workload.model import CollectiveKind, Parallelism, Phase
from tests.engine.test_graph_collectives import graphs
from tests.runs import KINDS, Run, micro, runs

KEYS = {"collectives": "nccl", "nccl-fabric": "hgx-h100"}


def nccl(name):
    chosen = dict.fromkeys(CollectiveKind, (Algorithm("nccl"),))
    return SystemConfig(implementations=chosen, fabric=FABRICS[name], preferred_dataset_splits=1)


def switches(*sizes):
    return Topology(tuple(Dimension("Switch", npus, 1e9, 1.0) for npus in sizes))


def time_ns(kind, size_bytes, dims, fabric, **changes):
    topology = switches(*dims)
    run = Run(micro(kind, size_bytes), topology, nccl(fabric))
    return run.timeline(**changes).time_ns


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(FABRICS)),
    st.sampled_from(KINDS),
    st.integers(1, 1 << 33),
    st.sampled_from([(2,), (8,), (4, 2), (8, 4), (2, 4, 16), (16,), (6,)]),
)
def test_one_collective_takes_what_the_prediction_says(fabric, kind, size_bytes, dims):
    ranks = switches(*dims).npus
    total_bytes = size_bytes * (ranks if kind == CollectiveKind.ALL_GATHER else 1)
    predicted_s = collective_s(kind, total_bytes, ranks, min(ranks, FABRICS[fabric].node_ranks), FABRICS[fabric])
    assert time_ns(kind, size_bytes, dims, fabric) == ceil(round(predicted_s * 1e9, 3))
    assert time_ns(kind, size_bytes, dims, fabric, fold=False) == ceil(round(predicted_s * 1e9, 3))


@pytest.mark.parametrize("suite", ["collectives_in_node", "collectives_across_nodes"])
def test_the_published_curves_are_met_by_runs_as_by_predictions(suite):
    """The suites of `simcore validate`, a few rows of each document."""
    for document in default_documents():
        for row in list(SUITES[suite].rows(document))[::9]:
            asked = row.question
            if asked.fabric not in FABRICS.values() or asked.kind not in KINDS:
                continue
            size_bytes = asked.size_bytes // (asked.ranks if asked.kind == CollectiveKind.ALL_GATHER else 1)
            dims = (asked.ranks // asked.nodes, asked.nodes) if asked.nodes > 1 else (asked.ranks,)
            if dims[0] in (8, asked.ranks):
                predicted_ns = row.question.seconds() * 1e9
                assert time_ns(asked.kind, size_bytes, dims, asked.fabric.name) == pytest.approx(predicted_ns, abs=1)


@settings(deadline=None, max_examples=30)
@given(runs(("Ring", "Mesh", "Switch"), [("native", "congested")]))
def test_folding_changes_nothing(run):
    run = replace(run, system=nccl("dgx-a100"))
    assert run.report() == run.report(fold=False)


def test_groups_that_lie_differently_in_nodes_are_told_apart():
    workload = replace(micro(CollectiveKind.ALL_REDUCE, 1 << 20), parallelism=Parallelism(tp=6))
    layers = (replace(workload.layers[0], forward=Phase(0, CollectiveKind.ALL_REDUCE, 1 << 20)),)
    workload = replace(workload, loop="HYBRID_TRANSFORMER", layers=layers)
    run = Run(
        workload, Topology((Dimension("Switch", 6, 1e9, 1.0), Dimension("Switch", 4, 1e9, 1.0))), nccl("hgx-h100")
    )
    assert run.report() == run.report(fold=False)


def test_the_report_says_what_was_chosen_at_which_sizes():
    topology = switches(8)
    for size_bytes, name in [(1 << 12, "ring LL"), (1 << 30, "NVLS Simple")]:
        (note,) = Run(micro(CollectiveKind.ALL_REDUCE, size_bytes), topology, nccl("hgx-h100")).timeline().notes
        assert name in note
        assert "on 8 ranks" in note


def test_a_system_file_names_the_fabric_and_leaves_the_rest_to_nccl(tmp_path):
    file = tmp_path / "system.json"
    file.write_text(json.dumps(KEYS))
    assert config.read(file).fabric == FABRICS["hgx-h100"]
    for wrong, said in [
        ({"collectives": "nccl"}, "nccl-fabric"),
        ({"nccl-fabric": "hgx-h100"}, "collectives"),
        ({**KEYS, "nccl-fabric": "hgx-h10"}, "hgx-h100"),
        ({**KEYS, "all-reduce-implementation": ["ring"]}, "no meaning"),
        ({**KEYS, "preferred-dataset-splits": 4}, "no meaning"),
    ]:
        file.write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=said):
            config.read(file)


def test_a_site_s_own_network_is_the_same_in_runs_and_in_predictions(tmp_path):
    """Four cards of 200 Gb/s a node, not eight of 400: a quarter of the rate across nodes, the same inside."""
    stated = {"like": "hgx-h100", "node_ranks": 8, "cards": 4, "card_gbit_per_s": 200, "latency_us": 30}
    system, site = tmp_path / "system.json", tmp_path / "site.json"
    system.write_text(json.dumps({"collectives": "nccl", "nccl-fabric": stated}))
    site.write_text(json.dumps({"accelerator": "H100", "fabric": stated}))
    found, known = config.read(system).fabric, FABRICS["hgx-h100"]
    assert found == cluster_of(str(site)).fabric
    assert found.across_bytes_per_s == pytest.approx(known.across_bytes_per_s / 4)
    assert (found.far_s, found.ring_bytes_per_s) == (pytest.approx(20e-6), known.ring_bytes_per_s)
    system.write_text(json.dumps({"collectives": "nccl", "nccl-fabric": {"like": "hgx-h100", "cards": 1e308}}))
    absurd = config.read(system).fabric
    assert 0 < collective_s(CollectiveKind.ALL_REDUCE, 1 << 20, 64, 8, absurd) < 1
    system.write_text(json.dumps({"collectives": "nccl", "nccl-fabric": {"like": "hgx-h100", "card": 4}}))
    with pytest.raises(InputError, match="unknown key 'card'"):
        config.read(system)


@pytest.mark.parametrize("like", FABRICS)
def test_a_site_with_the_cards_of_the_known_has_its_rates_however_large_its_nodes(like, tmp_path):
    """A card for each rank: nodes of half as many ranks have half as many, and every rank sends as fast as before."""
    known, system = FABRICS[like], tmp_path / "system.json"
    half = max(1, known.node_ranks // 2)
    gbit = known.nic_bytes_per_s * 8 / 0.85e9
    for stated, ranks in [
        ({"card_gbit_per_s": gbit}, known.node_ranks),
        ({"cards": known.node_ranks}, known.node_ranks),
        ({"node_ranks": half}, half),
        ({"node_ranks": half, "cards": half}, half),
        ({"node_ranks": half, "cards": half, "card_gbit_per_s": gbit}, half),
    ]:
        system.write_text(json.dumps({"collectives": "nccl", "nccl-fabric": {"like": like, **stated}}))
        found = config.read(system).fabric
        rate, each = found.across_bytes_per_s / found.sharing_ranks, known.across_bytes_per_s / known.sharing_ranks
        assert (found.node_ranks, found.ring_bytes_per_s) == (ranks, known.ring_bytes_per_s)
        assert (found.nic_bytes_per_s, rate) == (pytest.approx(known.nic_bytes_per_s), pytest.approx(each))


@pytest.mark.parametrize("kind", list(CollectiveKind))
@pytest.mark.parametrize("group", [(), (0, 1, 9, 10)])
def test_collectives_of_traces_take_what_the_prediction_says_rooted_ones_and_barriers_too(kind, group):
    traces, topology = graphs(kind, 16, group=group), switches(4, 4)
    found_ns = simulate(traces, topology, nccl("hgx-h100"), profiles.get("native"), Settings()).time_ns - 1000
    ranks = len(group) or 16
    size_bytes = 0 if kind == CollectiveKind.BARRIER else 4096
    size_bytes *= ranks if kind in {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER} else 1
    predicted_s = collective_s(kind, size_bytes, ranks, 2 if group else 8, FABRICS["hgx-h100"])
    assert found_ns == ceil(round(predicted_s * 1e9, 3))
