"""Collectives told as a whole end as those played message by message, whoever disturbs them."""

from collections import Counter

import pytest

import simcore
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.system.config import SystemConfig
from simcore.system.meeting.shared import Shared
from simcore.system.meeting.whole import Wholes
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, Workload
from tests.runs import Run

ALL_REDUCE = CollectiveKind.ALL_REDUCE


@pytest.fixture
def told(monkeypatch):
    """How often chunks were told to the end, and how often they went on by themselves."""
    counts = Counter()
    names = ((Wholes, "_through"), (Wholes, "_go_on"), (Wholes, "_past"), (Wholes, "_leave"), (Shared, "resume"))
    for owner, name in names:
        original = getattr(owner, name)

        def counted(self, *given, original=original, name=name, **more):
            counts[name] += 1
            return original(self, *given, **more)

        monkeypatch.setattr(owner, name, counted)
    return counts


def run(topology, *, weight_bytes=0, pipeline_bytes=0, **settings):
    blocking = Phase(2_000, ALL_REDUCE, 30_000)
    layer = Layer("block", forward=blocking, input_grad=blocking, weight_grad=Phase(900, ALL_REDUCE, weight_bytes))
    parallelism = Parallelism(tp=4, pp=2, gradient_accumulation=4) if pipeline_bytes else Parallelism()
    loop = "HYBRID_TRANSFORMER" if pipeline_bytes else "HYBRID_MODEL_DATA"
    workload = Workload(loop, (layer,) * 4, parallelism, pipeline_bytes=pipeline_bytes)
    return Run(workload, topology, SystemConfig(preferred_dataset_splits=3), "native", Settings(**settings))


def mesh(*sizes):
    return Topology(tuple(Dimension("Mesh", size, 50e9, 100.0) for size in sizes))


def test_collectives_that_nobody_disturbs_are_told_to_the_end(told):
    case = run(mesh(4, 2), iterations=3)
    assert case.report() == case.report(exact="messages")
    assert told["_through"] > 20


def test_a_collective_goes_on_from_where_it_is_when_an_npu_sends_another(told):
    case = run(mesh(4, 2), weight_bytes=40_000, iterations=3)
    assert case.report() == case.report(exact="messages")
    assert told["_go_on"] > 3
    assert told["resume"]


def test_collectives_whose_classes_come_apart_are_told_where_these_wait_for_the_last(told):
    case = run(mesh(4, 3), stragglers={5: 1.25}, iterations=4)
    assert case.report() == case.report(exact="messages")
    assert told["_through"]


def test_where_classes_come_apart_they_say_when_they_come(told):
    case = run(mesh(2, 4), pipeline_bytes=60_000, stragglers={1: 1.25}, iterations=2)
    assert case.report() == case.report(exact="messages")
    assert told["_past"]


def test_messages_between_stages_disturb_the_collectives_whose_links_they_cross(told):
    case = run(Topology((Dimension("Ring", 8, 5e9, 100.0),)), pipeline_bytes=60_000, iterations=2)
    assert case.report() == case.report(exact="messages")
    assert told["resume"]


def test_cells_are_told_ahead_where_no_message_crosses_their_links(told):
    case = run(mesh(4, 2), pipeline_bytes=60_000, iterations=2)
    assert case.report() == case.report(exact="messages")
    assert told["_past"] > 20
    assert not told["_leave"]


def test_a_cell_told_ahead_goes_on_from_where_it_is_when_a_message_crosses_its_links(told):
    case = run(Topology((Dimension("Ring", 8, 5e9, 100.0),)), pipeline_bytes=6_000, iterations=2)
    assert case.report() == case.report(exact="messages")
    assert told["_past"] > 20
    assert told["_leave"] > 3


def test_loops_of_groups_are_told_ahead_also_behind_gradients_that_are_awaited_later(tmp_path, told):
    """Every message on its own gives the same, with a straggler and over two iterations."""
    rows = "a -1 100 ALLGATHER 65536 5000 REDUCESCATTER 65536 9 ALLREDUCE 65536 5\n" * 3
    header = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n4\n"
    (tmp_path / "w.txt").write_text(header + rows + "b -1 0 ALLREDUCE 4096 0 NONE 0 0 NONE 0 0\n")
    (tmp_path / "net.yml").write_text(
        "topology: [Ring, Ring]\nnpus_count: [2, 4]\nbandwidth: [50, 20]\nlatency: [100, 50]\n"
    )
    paths = str(tmp_path / "w.txt"), str(tmp_path / "net.yml")
    options = {"straggler": "1=1.5", "iterations": 2}
    played = simcore.run(*paths, **options, no_fold=True).to_dict()
    exact = simcore.run(*paths, **options, exact="messages").to_dict()
    assert told["_past"]
    assert {**played, "options": {}} == {**exact, "options": {}}
