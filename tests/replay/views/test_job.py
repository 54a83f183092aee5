"""Many ranks: who waits for whom, and the groups they communicate in."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import api
from simcore.cli import main
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.changed import helps
from simcore.replay.views.job import job
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder, recorded
from tests.replay.written import machine, step, traces


def trace_of(rank, late_us, last_us, steps=3):
    """Ranks reach a collective some time apart; each kernel lasts until 50 us after the last came."""
    recorder = Recorder(rank)
    for _ in range(steps):
        recorder.work(100 + late_us)
        recorder.launch("ncclAllReduce", last_us - late_us + 50, 21)
        said = {"Collective name": "allreduce", "Group size": 3, "In msg nelems": 64, "dtype": "Half"}
        names = {"Process Group Ranks": "[0, 1, 2]", "Process Group Description": "DATA_PARALLEL_GROUP"}
        recorder.events[-1]["args"] |= said | names
        recorder.synchronise()
        recorder.mark()
    return read_kineto(json.dumps(recorder.document()).encode(), f"rank{rank}.json")


@pytest.mark.parametrize("late_us", [(0, 600, 200), (300, 0, 250)])
def test_the_last_rank_is_waited_for_by_what_the_others_are_early(late_us):
    found = job(replay_traces([trace_of(rank, late, max(late_us)) for rank, late in enumerate(late_us)], Changes()))
    last = late_us.index(max(late_us))
    early_ns = [1000 * (max(late_us) - late) for late in late_us]
    assert found.slowest.rank == last
    assert [one.waiting_ns for one in found.ranks] == early_ns
    assert found.slowest.awaited_ns == sum(early_ns)
    assert found.slowest.last_in == found.matched == 2
    assert {one.waits_for for one in found.ranks if one.rank != last} == {last}
    assert found.skew_ns == (max(early_ns), max(early_ns))


@pytest.mark.parametrize("steps", [(1, 4, 4), (2, 4, 3), (4, 4, 1)])
def test_ranks_wait_as_long_in_a_step_however_many_steps_others_recorded(steps):
    late_us = 0, 600, 200
    traces = [trace_of(rank, late, 600, steps[rank]) for rank, late in enumerate(late_us)]
    found = job(replay_traces(traces, Changes()))
    assert [one.waiting_ns for one in found.ranks] == [1000 * (600 - late) for late in late_us]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(2, 4), st.integers(50, 900)), min_size=2, max_size=4))
def test_what_helps_ranks_that_do_not_meet_is_what_helps_each_alone(ranks):
    """However many steps each recorded: a rank's advice was that of the next one where it lacked a step."""
    programs = [(steps, [("work", 50), ("launch", "gemm", length_us), ("synchronise",)]) for steps, length_us in ranks]
    traces = [
        read_kineto(recorded(program, steps, rank).content(), f"rank{rank}.json")
        for rank, (steps, program) in enumerate(programs)
    ]
    together = [[row.option for row in rows] for rows in helps(replay_traces(traces, Changes()))]
    assert together == [[row.option for row in helps(replay_traces([one], Changes()))[0]] for one in traces]


def test_ranks_whose_collectives_do_not_match_are_said_to_be_apart(tmp_path, capsys):
    for rank in range(2):
        recorder = recorded([("launch", "ncclAllReduce", 50, 21)] * (1 + rank), 3, rank)
        (tmp_path / f"rank{rank}.json").write_bytes(recorder.content())
    assert main(["replay", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No collective of one matches one of another: they are replayed apart." in said
    assert "3 of 3 collectives have no counterpart" in said and "6 of 6 collectives have no counterpart" in said


def test_groups_are_told_by_their_description():
    (group,) = job(replay_traces([trace_of(rank, 0, 0) for rank in range(3)], Changes())).groups
    assert (group.role, group.size, group.groups, group.collectives) == ("dp", 3, 1, 6)
    assert group.transfer_ns == 6 * 50_000


def test_ranks_of_a_pipeline_are_told_by_their_transfers(tmp_path):
    found = job(replay_traces(traces(api.run(step(tmp_path, pp=4), machine(tmp_path, pp=4))), Changes()))
    assert [one.stage for one in sorted(found.ranks, key=lambda one: one.rank)] == [0, 1, 2, 3]


def test_groups_that_kernels_only_name_are_told_by_the_head_of_the_trace():
    """The profiler writes ranks and roles of process groups once, and names them at each kernel."""
    recorder = Recorder()
    recorder.launch("ncclAllReduce", 50, 21)
    recorder.events[-1]["args"] |= {"Collective name": "allreduce", "In msg nelems": 64, "Process Group Name": "7"}
    config = [{"pg_name": "7", "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": [0, 4]}]
    for head, expected in ((config, ("tp", 2, (0, 4))), ("7: 0, 4", ("", 0, ()))):
        document = recorder.document() | {"distributedInfo": {"rank": 0, "pg_config": head}}
        trace = read_kineto(json.dumps(document).encode(), "named.json")
        (group,) = job(replay_traces([trace], Changes())).groups
        (said,) = trace.collectives.values()
        assert (group.role, group.size, said.ranks) == expected
