"""What would help: the same run with one change, simulated again."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.api import load_topology
from simcore.engine.changes import changes
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import DeadlockError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.workload.model import CollectiveKind, Layer, Phase, Workload
from tests.runs import runs

MACHINE = Topology((Dimension("Ring", 4, 1e9, 0.0), Dimension("Switch", 2, 1e9, 0.0)))


def times(workload):
    rules = profiles.get("native")
    return {
        text: simulate(workload, machine, None, rules, changed).time_ns
        for text, machine, changed in changes(MACHINE, Settings())
    }


def test_computing_twice_as_fast_halves_what_only_computes_and_nothing_else_helps():
    found = times(Workload("DATA", (Layer("one", Phase(1000), Phase(1000), Phase(1000)),)))
    halved, *others = sorted(found.values())
    assert halved == found["compute twice as fast"]
    assert set(others) == {2 * halved}


@given(st.integers(1, 10**6), st.sampled_from([0.5, 1.0, 2.0]))
def test_traces_compute_twice_as_fast_also_where_the_original_ignores_factors(duration_ns, scale):
    graph = simcore.graph(npus=8)
    graph.compute(2000 * duration_ns)
    report = simcore.run(graph, "ring8", profile="astra-sim-2", what_would_help=True, compute_scale=scale)
    best = report.to_dict()["what_would_help"][0]
    assert (report.time_ns, best["time_ns"]) == (2000 * duration_ns, 1000 * duration_ns)
    assert best["change"] == "compute twice as fast"


def test_twice_the_bandwidth_halves_what_only_communicates():
    workload = Workload("MICRO", (Layer("one", weight_grad=Phase(0, CollectiveKind.ALL_REDUCE, 8_000_000)),))
    found, plain = times(workload), simulate(workload, MACHINE, None, profiles.get("native"), Settings()).time_ns
    assert found["twice the bandwidth of all links"] * 2 == pytest.approx(plain, rel=1e-3)
    assert found["compute twice as fast"] == plain
    assert found["links without latency"] == plain
    both = [found[f"twice the bandwidth of dimension {name}"] for name in ("0 (Ring of 4)", "1 (Switch of 2)")]
    assert all(plain / 2 <= each <= plain for each in both)


@settings(deadline=None, max_examples=25)
@given(runs())
def test_every_run_has_changes_that_can_be_run(run):
    try:
        run.timeline()
        found = [
            simulate(run.workload, machine, run.system, profiles.get(run.profile), changed).time_ns
            for _, machine, changed in changes(run.topology, run.settings)
        ]
    except DeadlockError:  # of ASTRA-sim 2's queues
        return
    assert all(time_ns >= 0 for time_ns in found)


GRAPH = {
    "directed": False,
    "multigraph": False,
    "graph": {},
    "nodes": [{"id": 0}, {"id": 1}],
    "edges": [{"source": 0, "target": 1, "bandwidth": 10, "latency": 100}],
}
TOPOLOGIES = {
    "wafer_8x7": None,
    "graph.yaml": "graph: net.json\n",
    "dead.yaml": "topology: [Mesh, Mesh]\nnpus_count: [2, 2]\nbandwidth: [10, 20]\nlatency: [5, 5]\n"
    "wafer: {dead_npus: [3]}\n",
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_kind_of_machine_has_links_that_become_faster(name, tmp_path):
    (tmp_path / "net.json").write_text(json.dumps(GRAPH))
    if TOPOLOGIES[name]:
        (tmp_path / name).write_text(TOPOLOGIES[name])
    machine = load_topology(str(tmp_path / name) if TOPOLOGIES[name] else name)
    changed = {text: LinkGraph(topology) for text, topology, _ in changes(machine, Settings())}
    rates = LinkGraph(machine).bandwidth_bytes_per_s
    assert (changed["twice the bandwidth of all links"].bandwidth_bytes_per_s == 2 * rates).all()
    assert not changed["links without latency"].latency_ns.any()


def test_the_report_tells_what_saves_most_first_and_what_troubles_a_run():
    run = simcore.run("dlrm", "ring8", straggler=("0=3",), jitter=("compute=normal:0.1",), what_would_help=True)
    document = run.to_dict()
    rows = document["what_would_help"]
    assert [row["saved_ns"] for row in rows] == sorted((row["saved_ns"] for row in rows), reverse=True)
    assert {row["time_ns"] + row["saved_ns"] for row in rows} == {document["time_ns"]}
    assert {"no stragglers", "no jitter"} <= {row["change"] for row in rows}
    [alone] = [row["time_ns"] for row in rows if row["change"] == "no jitter"]
    assert alone == simcore.run("dlrm", "ring8", straggler=("0=3",)).to_dict()["time_ns"]
