"""A user's schedule plays as what it says, and a wrong one says where, which rank and which chunk."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cli import main
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.system import config
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.collectives.synthesised import wires
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.plans import schedule
from simcore.workload.model import CollectiveKind
from tests.runs import Run, micro

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
RATE = 25e9


def ring(n, *, reduce):
    """Steps of a ring that reduces (chunk r - s goes on) or gathers (chunk r + 1 - s, which it holds)."""
    on = 0 if reduce else 1
    return [
        [{"src": r, "dst": (r + 1) % n, "chunk": (r + on - s) % n, "reduce": reduce} for r in range(n)]
        for s in range(n - 1)
    ]


def document(n, **changes):
    """A ring all-reduce on n ranks."""
    steps = ring(n, reduce=True) + ring(n, reduce=False)
    return {"collective": "all_reduce", "ranks": n, "chunks": n, "steps": steps} | changes


def write(tmp_path, content, name="mine.json"):
    """The file of a schedule."""
    path = tmp_path / name
    path.write_text(json.dumps(content, indent=1))
    return path


def complaints(tmp_path, content):
    """What is wrong with a schedule."""
    with pytest.raises(InputError) as caught:
        schedule.read(write(tmp_path, content))
    return caught.value.problems


@settings(deadline=None, max_examples=10)
@given(st.integers(2, 8), st.integers(1, 99999), st.sampled_from(["congested", "congestion-free", "fair"]))
def test_a_ring_written_down_takes_as_long_as_the_ring(tmp_path_factory, n, share, mode):
    path = write(tmp_path_factory.mktemp("ring"), document(n))
    topology = Topology((Dimension("Ring", n, RATE, 500.0),))
    times = []
    for algorithm in (Algorithm("ring"), Algorithm("schedule", schedule=schedule.read(path))):
        system = SystemConfig(
            implementations={ALL_REDUCE: (algorithm,)}, preferred_dataset_splits=1, endpoint_delay_ns=7
        )
        times.append(Run(micro(ALL_REDUCE, n * share), topology, system).timeline(network=mode).time_ns)
    assert times[0] == times[1]


def test_a_missing_transfer_names_rank_chunk_and_contribution(tmp_path):
    content = document(4)
    del content["steps"][2][1]
    (first, *_) = complaints(tmp_path, content)
    assert "rank 2 misses chunk 3 of rank" in " ".join(problem.message for problem in complaints(tmp_path, content))
    assert first.location.line > 0


def test_a_chunk_that_is_not_there_yet_is_a_fault_of_its_transfer(tmp_path):
    steps = [[{"src": 1, "dst": 0, "chunk": 0}], [{"src": 0, "dst": 1, "chunk": 0}, {"src": 1, "dst": 0, "chunk": 1}]]
    problem = complaints(tmp_path, {"collective": "all_gather", "ranks": 2, "chunks": 2, "steps": steps})[0]
    assert "rank 1 sends chunk 0, which it does not hold in step 0" in problem.message
    assert problem.location.line == 7


def test_nothing_is_reduced_twice(tmp_path):
    content = document(3)
    content["steps"][1][0] = dict(content["steps"][0][0])
    assert "is reduced a second time" in complaints(tmp_path, content)[0].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 1}, "whole number of at least 2"),
        ({"chunks": 0}, "whole number of at least 1"),
        ({"collective": "barrier"}, "collective is not known"),
        ({"collective": "all_gather", "chunks": 5}, "multiple of 4 chunks"),
        ({"root": 4}, "no such rank"),
        ({"steps": [[{"src": 0, "dst": 4, "chunk": 0}]]}, "no such rank"),
        ({"steps": [[{"src": 0, "dst": 1, "chunk": [0, 9]}]]}, "no such chunk"),
        ({"steps": [[{"src": 0, "dst": 0, "chunk": 0}]]}, "sends to itself"),
        ({"steps": [[{"src": 0, "dst": 1}]]}, "'chunk' is missing"),
        ({"steps": 3}, "steps must be a list"),
        ({"steps": []}, "rank 0 misses chunk 0 of ranks 1, 2, 3"),
        ({"chunks": 1 << 21}, "ranks times chunks"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(tmp_path, changes, message):
    assert message in complaints(tmp_path, document(4, **changes))[0].message


def test_a_broadcast_may_be_turned_to_any_root_and_bytes_add_up(tmp_path):
    steps = [
        [{"src": 0, "dst": 1, "chunk": [0, 1]}],
        [{"src": 1, "dst": 2, "chunk": [0]}, {"src": 0, "dst": 2, "chunk": 1}],
    ]
    found = schedule.read(write(tmp_path, {"collective": "broadcast", "ranks": 3, "chunks": 2, "steps": steps}))
    plan = found.plan(CollectiveKind.BROADCAST, 3, 101, 2)
    assert [(entry.src, entry.dst, entry.size_bytes) for entry in plan.transfers] == [
        (2, 0, 101),
        (0, 1, 50),
        (2, 1, 51),
    ]


def test_a_system_file_names_a_schedule_beside_it(tmp_path):
    write(tmp_path, document(4))
    system = tmp_path / "system.yaml"
    system.write_text("all-reduce-implementation: [{schedule: mine.json}]\n")
    (algorithm,) = config.read(system).implementations[ALL_REDUCE]
    assert algorithm.schedule.claim.size == 4
    system.write_text("all-gather-implementation: [{schedule: mine.json}]\n")
    with pytest.raises(InputError, match=r"system.yaml:1:40: error: the schedule is for all_reduce"):
        config.read(system)


def test_over_two_dimensions_a_schedule_may_take_the_machine_as_one(tmp_path):
    write(tmp_path, document(4))
    system = tmp_path / "system.yaml"
    topology = Topology((Dimension("Ring", 2, RATE, 500.0), Dimension("Ring", 2, RATE, 500.0)))
    system.write_text("all-reduce-implementation: [{schedule: mine.json, whole-machine: true}]\n")
    assert Run(micro(ALL_REDUCE, 4096), topology, config.read(system)).timeline().time_ns > 0
    system.write_text("all-reduce-implementation: [{schedule: mine.json}, ring]\n")
    with pytest.raises(InputError, match=r"system.yaml:1:29: error: schedule mine.json cannot be used here"):
        Run(micro(ALL_REDUCE, 4096), topology, config.read(system)).timeline()


@pytest.mark.parametrize("name", ["binomial", "chain", "flat", "doubleBinaryTree", "synthesised"])
def test_an_algorithm_written_down_and_read_again_is_the_same(tmp_path, name):
    kind = CollectiveKind.SCATTER if name in {"binomial", "chain", "flat"} else ALL_REDUCE
    topology = Topology((Dimension("Ring", 8, RATE, 500.0),))
    options = PlanOptions(root=3 if kind != ALL_REDUCE else 0, wires=partial(wires, LinkGraph(topology), np.arange(8)))
    made = algorithms.get(name)(kind, 8, 8 * 6400, options)
    path = tmp_path / "mine.yaml"
    path.write_text(schedule.to_text(made, kind, options.root))
    again = schedule.read(path).plan(kind, 8, 8 * 6400, options.root)
    unlike = {"step": 0, "charge_bytes": 0}
    assert [replace(one, **unlike) for one in again.transfers] == [replace(one, **unlike) for one in made.transfers]
    assert again.after == made.after


def test_a_plan_that_is_no_such_collective_is_not_written_down():
    plan = algorithms.get("flat")(CollectiveKind.SCATTER, 4, 64, PlanOptions())
    with pytest.raises(ValueError, match="this is no gather"):
        schedule.to_text(plan, CollectiveKind.GATHER)


@pytest.mark.parametrize("algorithm", list(algorithms))
@pytest.mark.parametrize("kind", [kind for kind in CollectiveKind if kind is not CollectiveKind.BARRIER])
def test_every_algorithm_writes_what_it_is_asked_for_or_says_that_it_cannot(tmp_path, capsys, algorithm, kind):
    out = tmp_path / "mine.yaml"
    command = ["generate", "schedule", "--kind", kind.value, "--topology", "ring8", "-o", str(out)]
    if main([*command, "--algorithm", algorithm]) == 0:
        assert schedule.read(out).claim.kind == kind
        return
    told = capsys.readouterr().err
    assert told.startswith("--algorithm: error:")
    assert "baseline" not in told or kind in (CollectiveKind.REDUCE_SCATTER, ALL_GATHER)  # an all-reduce is cut into


def test_the_command_writes_a_schedule_that_runs(tmp_path, capsys):
    out, system = str(tmp_path / "mine.yaml"), tmp_path / "system.yaml"
    command = ["generate", "schedule", "--kind", "all_reduce", "--topology", "ring8", "-o", out]
    assert main(command) == 0
    assert main(command) == 2
    assert main([*command, "--force", "--algorithm", "ring"]) == 2
    for made in (command, ["generate", "collective", "--npus", "8", "-o", out]):
        assert main([*made, "--force", "--kind", "broadcast", "--root", "8"]) == 2
        assert "--root: error: there is no such rank" in capsys.readouterr().err
    system.write_text("all-reduce-implementation: [{schedule: mine.yaml}]\n")
    run = ["run", "--workload", "micro_all_reduce", "--topology", "ring8", "-q"]
    assert main([*run, "--system", str(system), "-o", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "schedule mine.yaml" in [entry["role"] for entry in report["inputs"]]


def test_the_peers_have_no_schedules(tmp_path):
    algorithm = Algorithm("schedule", schedule=schedule.read(write(tmp_path, document(4))))
    with pytest.raises(InputError, match="has no algorithm 'schedule'"):
        SystemConfig(implementations={ALL_REDUCE: (algorithm,)}).refuse_native("astra-sim-2")
