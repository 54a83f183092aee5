"""Graphs by hand: what they take, that their files say the same, and what is refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError


def time_ns(graph, topology="ring8", **options):
    return simcore.run(graph, topology, **options).to_dict()["time_ns"]


@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
def test_the_two_dependent_nodes_of_the_astra_sim_slides_take_ten_cycles_on_64_npus(profile):
    graph = simcore.graph(npus=64)
    first = graph.compute(5, name="COMP_NODE")
    graph.compute(5, depends=[first], name="COMP_NODE")
    report = simcore.run(graph, "ring64", profile=profile).to_dict()
    assert report["time_ns"] == 10
    assert [(row["ranks"], row["finish_ns"]) for row in report["ranks"]] == [("0-63", 10)]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
@settings(max_examples=20)
def test_a_chain_of_computations_takes_their_sum(durations):
    graph, last = simcore.graph(8), []
    for duration in durations:
        last = [graph.compute(duration, depends=last)]
    assert time_ns(graph) == sum(durations)


@given(st.data())
@settings(max_examples=15)
def test_a_graph_takes_as_long_as_its_files(data):
    graph, nodes = simcore.graph(8), []
    for _ in range(data.draw(st.integers(1, 6))):
        on = sorted(data.draw(st.sets(st.integers(0, 7), min_size=1)))
        reachable = [node for node in nodes if set(on) <= node.npus]
        depends = data.draw(st.lists(st.sampled_from(reachable), unique=True)) if reachable else []
        if data.draw(st.booleans()):
            nodes.append(graph.compute(data.draw(st.integers(0, 9999)), depends=depends, on=on))
        else:
            nodes.append(graph.collective("all_reduce", data.draw(st.integers(1, 10**6)), depends=depends, on=on))
    expected = time_ns(graph)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "et")
        graph.save(Path(folder) / "feeder.json")
        assert time_ns(Path(folder) / "et") == time_ns(Path(folder) / "feeder") == expected


def test_a_message_takes_its_way_and_a_receiver_waits_for_it():
    graph = simcore.graph(8)
    first = graph.compute("20 us", on=0)
    graph.send(0, 1, "1 MB", depends=[first])
    graph.recv(0, 1, "1 MB")
    machine = simcore.load_topology("ring8").dims[0]
    assert time_ns(graph) == 20_000 + round(machine.latency_ns + 1e15 / machine.bandwidth_bytes_per_s)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda graph: graph.compute("5 parsec"), ["duration", "parsec"]),
        (lambda graph: graph.compute(-1), ["duration", "0 to", "-1"]),
        (lambda graph: graph.compute(1e300), ["duration", "1e+300"]),
        (lambda graph: graph.compute(5, on=8), ["0 to 7", "8"]),
        (lambda graph: graph.compute(5, on="01"), ["0 to 7", "'0'"]),
        (lambda graph: graph.compute(5, depends=simcore.graph(8).compute(5)), ["no node of this graph"]),
        (lambda graph: graph.compute(5, depends=[1]), ["no node of this graph"]),
        (lambda graph: graph.compute(5, name=None), ["name", "None"]),
        (lambda graph: graph.compute(operations="many"), ["operations", "many"]),
        (lambda graph: graph.collective(["all_reduce"]), ["no such collective"]),
        (lambda graph: graph.collective("broadcast", 8, on=[0, 1], root=2), ["root", "[0, 1]", "2"]),
        (lambda graph: graph.collective("all_reduce", 8, root=1), ["root", "has no effect here", "broadcast, reduce"]),
        (lambda graph: graph.send("a", 1, 5), ["src", "0 to 7", "'a'"]),
        (lambda graph: graph.send(0, 1, 5, tag="a"), ["tag", "'a'"]),
        (lambda _: simcore.graph("x"), ["npus", "'x'"]),
        (lambda graph: graph.save(None), ["target", "None"]),
        (lambda graph: graph.collective("allreduce", 8), ["no such collective", "all_reduce"]),
        (lambda graph: graph.collective("all_reduce", 8, depends=[graph.compute(1, on=3)]), ["NPU 0 does not have"]),
        (lambda graph: graph.send(0, 99, 8), ["dst", "0 to 7", "99"]),
    ],
)
def test_what_cannot_be_is_refused(build, words):
    with pytest.raises(InputError) as caught:
        build(simcore.graph(8))
    assert all(word in str(caught.value) for word in words)


def test_nodes_that_wait_for_each_other_are_refused():
    graph = simcore.graph(2)
    first = graph.compute(1)
    graph.depends(first, graph.compute(2, depends=[first]))
    with pytest.raises(InputError, match="0 -> 1 -> 0"):
        simcore.run(graph, "ring8")


def test_a_graph_of_another_number_of_npus_than_the_machine_is_refused():
    with pytest.raises(InputError, match="not the NPUs of the graphs"):
        simcore.run(simcore.graph(4), "ring8")
