"""Optical circuit switches: what runs on each configuration takes its time there, and every change its delay."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.network.topology.load import load
from simcore.network.topology.model import Circuits, Dimension, Topology
from simcore.report.archive import read_archive

RING = Topology((Dimension("Ring", 8, 50e9, 500.0),), "ring")
FULL = Topology((Dimension("FullyConnected", 8, 14e9, 700.0),), "full")
TREE = Topology((Dimension("FatTree", 8, 40e9, 300.0, routers=4),), "tree")
OTHERS = {"all_to_all": (1, FULL), "all_gather": (2, TREE), "broadcast": (2, TREE)}
KINDS = ["all_reduce", "reduce_scatter", *OTHERS]
NETWORKS = ["congested", "congestion-free", "fair", "queued"]


def switched(delay_ns, own=RING):
    numbers = tuple((kind, number) for kind, (number, _) in OTHERS.items())
    return Topology(own.dims, own.name, circuits=Circuits(delay_ns, (FULL, TREE), numbers))


def chain(*collectives):
    graph, before = simcore.graph(8), []
    for kind, size_bytes in collectives:
        before = [graph.collective(kind, size_bytes, depends=before)]
    return graph


def time_ns(graph, topology, **options):
    return simcore.run(graph, topology, **options).time_ns


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(8, 10**6)), min_size=1, max_size=4),
    st.integers(0, 10**5),
    st.sampled_from(NETWORKS),
)
@settings(max_examples=25, deadline=None)
def test_a_chain_takes_the_time_of_each_collective_on_its_own_circuits_and_of_every_change(steps, delay_ns, network):
    report = simcore.run(chain(*steps), switched(delay_ns), network=network)
    numbers = [0, *(OTHERS.get(kind, (0, RING))[0] for kind, _ in steps)]
    changes = sum(before != after for before, after in pairwise(numbers))
    alone = [time_ns(chain(step), OTHERS.get(step[0], (0, RING))[1], network=network) for step in steps]
    assert report.time_ns == sum(alone) + changes * delay_ns
    told = report.to_dict()["circuits"]
    assert (told["changes"], told["changing_ns"]) == (changes, changes * delay_ns)


@pytest.mark.parametrize("options", [{"no_fold": True}, {"exact": "messages"}, {"network": "queued"}])
def test_a_folded_run_over_circuits_is_the_run_of_every_npu(options):
    topology = switched(10_000)
    assert time_ns("dlrm", topology) == time_ns("dlrm", topology, **options)


def test_what_crosses_no_switched_dimension_does_not_wait_for_circuits():
    server = Dimension("Switch", 8, 400e9, 100.0)
    pair, full = (Topology((server, Dimension(kind, 4, 10e9, 500.0)), kind) for kind in ("Ring", "FullyConnected"))
    own = Topology(pair.dims, "own", circuits=Circuits(10**9, (full,), (("all_to_all", 1),)))
    graph = simcore.graph(32)
    for first in range(0, 32, 8):
        graph.collective("all_to_all", 10**6, on=range(first, first + 8))
    assert time_ns(graph, own) == time_ns(graph, pair)
    graph.collective("all_to_all", 10**6)
    assert time_ns(graph, own) > 10**9


@pytest.mark.parametrize("options", [{"no_fold": True}, {"exact": "messages"}])
def test_who_needs_no_other_circuits_is_served_as_if_there_were_none(options):
    """Chunks begin while others' messages reach the same links: those of a chunk that begins are there in time."""
    dims = Dimension("Mesh", 5, 53.3e9, 500.0), Dimension("FullyConnected", 2, 37.5e9, 0.0)
    ring = Topology((Dimension("Ring", 5, 12.5e9, 500.0), dims[1]), "ring")
    circuits = Circuits(100, (ring,), (("reduce_scatter", 1),))
    graph = simcore.graph(10)
    graph.collective("all_reduce", 1_763_093)
    plain, switch = (
        simcore.run(graph, Topology(dims, circuits=each), queues_per_dim=2, **options).timeline.events
        for each in (None, circuits)
    )
    assert (plain.start_ns.tolist(), plain.end_ns.tolist()) == (switch.start_ns.tolist(), switch.end_ns.tolist())


def test_messages_between_npus_wait_until_the_topologys_own_circuits_are_back():
    graph = simcore.graph(8)
    first = graph.collective("all_to_all", 8000)
    graph.send(0, 1, 5000, depends=[first])
    graph.recv(0, 1, 5000, depends=[first])
    assert time_ns(graph, switched(3000)) == 3000 + time_ns(chain(("all_to_all", 8000)), FULL) + 3000 + 600


def files(folder, **others):
    text = "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50.0]\nlatency: [500.0]\n"
    for name, circuits in {"plain": "", **others}.items():
        (folder / f"{name}.yaml").write_text(text + circuits)
    return str(folder / "net.yaml")


def test_circuits_that_are_those_in_place_are_never_changed(tmp_path):
    name = files(tmp_path, net="circuits: {delay: 1 ms, all_to_all: plain.yaml, all_gather: ring8.yaml}\n")
    (tmp_path / "ring8.yaml").write_text((tmp_path / "plain.yaml").read_text())
    assert time_ns("dlrm", name) == time_ns("dlrm", str(tmp_path / "plain.yaml"))


def test_a_report_of_circuits_can_be_read_back_and_shows_them_over_time(tmp_path, capsys):
    name = files(tmp_path, net="circuits: {delay: 1 us, all_to_all: full.yaml}\n")
    (tmp_path / "full.yaml").write_text(
        "topology: [FullyConnected]\nnpus_count: [8]\nbandwidth: [10.0]\nlatency: [500.0]\n"
    )
    out = tmp_path / "out"
    assert main(["run", "--workload", "dlrm", "--topology", name, "-o", str(out)]) == 0
    assert "Circuits (net, full) were changed 4 times, 4 us in all." in capsys.readouterr().out
    report = read_archive(out / "events.npz")
    assert report.to_dict()["circuits"] == {"configurations": ["net", "full"], "changes": 4, "changing_ns": 4000}
    assert {row["src"] for row in report.to_dict()["links"]["hottest"]} >= {"0"}
    assert main(["topology", "show", name]) == 0
    assert "full for all_to_all, changed in 1 us" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("circuits", "message"),
    [
        ("{all_to_all: plain.yaml}", "the key 'delay' is missing"),
        ("{delay: 1 us, all_to_one: plain.yaml}", "unknown key 'all_to_one'"),
        ("{delay: 1 us, all_to_all: none.yaml}", "there is no such topology"),
        ("{delay: 1 us, all_to_all: ring64}", "circuits join the same NPUs"),
        ("{delay: 1 us, all_to_all: net.yaml}", "not to be switched"),
        ("{delay: -1 us, all_to_all: plain.yaml}", "delay"),
    ],
)
def test_wrong_circuits_are_errors_that_say_where(tmp_path, circuits, message):
    name = files(tmp_path, net=f"circuits: {circuits}\n")
    with pytest.raises(InputError) as caught:
        load(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"profile": "astra-sim-2"}, {"fault": "link 0-1 x0.5"}])
def test_circuits_are_refused_where_phases_do_not_begin_together(tmp_path, options):
    name = files(tmp_path, net="circuits: {delay: 1 us, all_to_all: full.yaml}\n")
    (tmp_path / "full.yaml").write_text(
        "topology: [FullyConnected]\nnpus_count: [8]\nbandwidth: [10.0]\nlatency: [500.0]\n"
    )
    with pytest.raises(InputError):
        time_ns("micro_all_to_all", name, **options)


def test_the_shipped_optical_switch_takes_the_time_of_its_closed_form():
    """Four chunks, each of 1 MiB to every other NPU at 5 GB/s over one hop; a change of circuits; an update."""
    chunk_ns = -(-(1 << 20) // 5) + 500
    report = simcore.run("micro_all_to_all", "optical_16")
    assert report.time_ns == 4 * chunk_ns + 10_000 + 1
    assert any("changed all at once" in text for text in report.warnings)
