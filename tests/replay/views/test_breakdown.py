"""Where the time goes, by the names of the rank whose kernels they are."""

import json

import pytest

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.breakdown import critical_path, critical_tasks, host_share, sides
from simcore.replay.views.work import work
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import recorded

REDUCE = ("launch", "ncclAllReduce", 50, 21, 7)


def trace_of(rank, program, steps=3):
    return read_kineto(recorded(program, steps, rank).content(), f"rank{rank}.json")


def test_a_critical_path_through_another_rank_names_that_ranks_kernels():
    """Rank 1 runs kernels of which rank 0 has none, and more of them, as any other stage of a pipeline does."""
    stages = ["embedding"], ["layer_norm", "gate", "gemm_up", "gemm_down", "loss"]
    traces = [
        trace_of(rank, [*(("launch", name, 200) for name in names), REDUCE, ("synchronise",)])
        for rank, names in enumerate(stages)
    ]
    for steps in replay_traces(traces, Changes()).steps:
        found = {task.name: task.rank for task in critical_tasks(steps[1])}
        assert {name for name, rank in found.items() if rank == 1} >= set(stages[1])
        assert "embedding" not in found


def test_what_another_rank_does_on_the_path_is_that_ranks_whatever_it_is():
    """Rank 1 works on its host for 900 us before it comes; none of that is rank 0's host time."""
    traces = [trace_of(0, [REDUCE, ("synchronise",)]), trace_of(1, [("work", 900), REDUCE, ("synchronise",)])]
    waiting, working = (steps[1] for steps in replay_traces(traces, Changes()).steps)
    assert sides(critical_path(waiting))["other ranks"] > 0.8
    assert host_share(critical_path(waiting)) < 0.1
    assert host_share(critical_path(working)) > 0.8


@pytest.mark.parametrize(("said", "bytes_per_ns"), [("allreduce", 2.0), ("_allgather_base", 2.0), ("barrier", 0.0)])
def test_what_moves_data_has_a_bus_bandwidth_and_a_barrier_has_none(said, bytes_per_ns):
    """100,000 bytes of each of two ranks in 50 us."""
    document = recorded([REDUCE, ("synchronise",)], 2).document()
    told = {"Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": "BFloat16", "In msg nelems": 50_000}
    for event in document["traceEvents"]:
        event["args"] |= told | {"Collective name": said} if event["cat"] == "kernel" else {}
    replay = replay_traces([read_kineto(json.dumps(document).encode(), "rank0.json")], Changes())
    (found,) = (each for each in work(replay.steps[0][0]) if each.category.startswith("communication"))
    assert found.rate == pytest.approx(bytes_per_ns * 1e9)
