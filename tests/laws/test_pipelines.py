"""Laws of pipelined runs: schedules as data, closed forms, folding, transports, stragglers."""

from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine import run as engine
from simcore.engine import wiring
from simcore.engine.settings import Settings
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.system.played import Played
from simcore.workload.loops import schedules
from simcore.workload.model import Layer, Parallelism, Phase, Workload
from tests.runs import KINDS, Run

LOOP = "HYBRID_TRANSFORMER"
FORWARD, INPUT_GRAD, WEIGHT_GRAD = 130, 110, 90  # ns of a row
ROWS = 2


def equal_stages(stages: int, micro_batches: int, *, vpp: int = 1, handed_bytes: int = 0) -> Workload:
    """Stages of two equal rows that only compute."""
    row = Layer("row", Phase(FORWARD), Phase(INPUT_GRAD), Phase(WEIGHT_GRAD))
    sizes = Parallelism(1, 1, stages, vpp, 0, micro_batches)
    return Workload(LOOP, (row,) * ROWS * micro_batches, sizes, "simai", pipeline_bytes=handed_bytes)


def machine(stages: int, *, bytes_per_s: float = 1e15, latency_ns: float = 0.0) -> Topology:
    """Two NPUs a stage."""
    return Topology((Dimension("Switch", 2, 1e15, 0.0), Dimension("Switch", stages, bytes_per_s, latency_ns)))


def played(schedule: schedules.Schedule, transfer_ns: int = 0) -> float:
    """What the schedule takes as data."""
    rows = ROWS if schedule.placement == "twoway" else ROWS / schedule.chunks
    forward, weight = [FORWARD * rows] * schedule.parts, [WEIGHT_GRAD * rows] * schedule.parts
    backward = [(INPUT_GRAD + (0 if schedule.splits_backward else WEIGHT_GRAD)) * rows] * schedule.parts
    return schedules.play(schedule, schedules.Durations(forward, backward, weight, transfer_ns)).makespan


SHAPES = [
    *(("gpipe", 4, 8), ("1f1b", 4, 8), ("1f1b", 4, 2), ("interleaved", 4, 8), ("zb-h1", 4, 8)),
    *(("zb-v", 4, 8), ("dualpipe", 4, 8), ("1f1b", 2, 1), ("interleaved", 2, 4), ("zb-v", 2, 3)),
]


@pytest.mark.parametrize("name,stages,micro_batches", SHAPES)
def test_equal_stages_without_a_network_take_what_the_schedule_says(name, stages, micro_batches):
    run = Run(equal_stages(stages, micro_batches), machine(stages), settings=Settings(schedule=name))
    assert run.timeline().time_ns == played(schedules.make(name, stages, micro_batches))


@pytest.mark.parametrize("name,chunks", [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_the_bubble_is_that_of_the_textbook(name, chunks):
    """(p - 1) / m of the ideal time, interleaved (p - 1) / (v m) (reference/collectives.md, section 9)."""
    stages, micro_batches = 4, 8
    run = Run(equal_stages(stages, micro_batches), machine(stages), settings=Settings(schedule=name))
    ideal = micro_batches * ROWS * (FORWARD + INPUT_GRAD + WEIGHT_GRAD)
    assert run.timeline().time_ns == ideal + ideal * (stages - 1) // (chunks * micro_batches)
    for stage in run.report()["pipeline"]["stages"]:
        assert stage["idle_ns"] == ideal * (stages - 1) // (chunks * micro_batches)


def test_the_zero_bubble_schedule_has_a_third_of_the_bubble():
    """Where F = B = W (Qi et al. 2024)."""
    row = Layer("row", Phase(100), Phase(100), Phase(100))
    workload = Workload(LOOP, (row,) * 8, Parallelism(1, 1, 4, 1, 0, 8), "simai")
    idle = {
        name: Run(workload, machine(4), settings=Settings(schedule=name)).timeline().time_ns - 8 * 300
        for name in ("1f1b", "zb-h1")
    }
    assert idle == {"1f1b": 900, "zb-h1": 300}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_a_transfer_takes_its_latencies_and_its_serialisation(name):
    """Transfers that never meet cost what the schedule pays for them as data: 1000 ns at 1 GB/s, two hops of 20 ns."""
    run = Run(
        equal_stages(4, 1, handed_bytes=1000),
        machine(4, bytes_per_s=1e9, latency_ns=20.0),
        settings=Settings(schedule=name),
    )
    assert run.timeline().time_ns == played(schedules.make(name, 4, 1), 1040)


PHASES = st.builds(
    Phase,
    st.sampled_from([0, 10, 1000, 50_000]),
    st.none() | st.sampled_from(KINDS),
    st.sampled_from([64, 4096, 65536]),
)


@st.composite
def pipelines(draw, kinds=("Ring", "Switch", "FullyConnected"), *, stragglers=True):
    """A pipelined run on dimensions of its groups, or on one that they share."""
    stages, tp, dp = draw(st.sampled_from([2, 4])), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3]))
    rate, latency_ns = draw(st.sampled_from([1e9, 50e9])), draw(st.sampled_from([0.0, 500.0]))
    sizes = draw(st.sampled_from([(tp, dp, stages), (tp, dp * stages), (tp * dp * stages,)]))
    dims = tuple(Dimension(draw(st.sampled_from(kinds)), size, rate, latency_ns) for size in sizes if size > 1)
    count = draw(st.sampled_from([1, 2, 4]))
    end = tuple(Layer(name, draw(PHASES), Phase(), draw(PHASES)) for name in ("gradient_reduce", "optimizer"))
    block = tuple(
        Layer(f"row{i}", draw(PHASES), draw(PHASES), draw(PHASES), draw(st.sampled_from([0, 3]))) for i in range(2)
    )
    handed = draw(st.sampled_from([0, 1000, 65536]))
    sized = Parallelism(tp, 1, stages, 1, 0, count)
    workload = Workload(LOOP, (*end[: draw(st.integers(0, 2))], *block * count), sized, "simai", pipeline_bytes=handed)
    slow = draw(st.dictionaries(st.integers(0, tp * dp * stages - 1), st.just(1.5), max_size=1)) if stragglers else {}
    name = draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-v"]))
    network = draw(st.sampled_from(["congested", "congested", "congestion-free", "fair"]))
    chosen = Settings(
        draw(st.sampled_from([1, 2])),
        network,
        stragglers=slow,
        schedule=name,
        rendezvous=draw(st.sampled_from([False, False, True])),
    )
    return Run(workload, Topology(dims), settings=chosen)


@settings(deadline=None, max_examples=100)
@given(pipelines(kinds=("Ring", "Switch", "FullyConnected", "Mesh")))
def test_folding_a_pipeline_changes_nothing(run):
    assert run.report() == run.report(fold=False)


@settings(deadline=None, max_examples=60)
@given(pipelines())
def test_cells_played_once_are_as_those_played_every_time(run):
    with mock.patch.object(engine, "stateless", lambda *_: False):
        every_time = run.report()
    assert run.report() == every_time


@settings(deadline=None, max_examples=60)
@given(pipelines())
def test_stages_on_links_of_their_own_are_as_those_on_shared_links(run):
    run = replace(run, settings=replace(run.settings, network="congested"))

    def shared(env, ranks, links, network, costs, **_):
        return Played(env, ranks, network(env, LinkGraph(run.topology)), costs)

    with mock.patch.object(wiring, "Isolated", shared), mock.patch.object(wiring, "Alone", shared):
        everything = run.report(fold=False)
    assert run.report() == everything
