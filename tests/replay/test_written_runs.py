"""Laws of written runs: a run, written as profiler traces and replayed, takes what it took, and changes alike."""

import re
import tarfile

import pytest

from simcore import api
from simcore.cli import main
from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif.changes import scale
from simcore.report.artefacts import write_timeline
from simcore.report.model import Report
from simcore.report.timelines.selection import Selection
from tests.replay.written import machine, step, traces
from tests.timelines import report

SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"]
ROWS_ONLY = Changes(residual=False)
SEQUENCE = {"enable_sequence_parallel": True, "use_distributed_optimizer": True, "overlap_grad_reduce": True}


def length_ns(predicted):
    """The longest last step of any rank."""
    return max(steps[-1].predicted_ns for steps in predicted.steps)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("more", "straggler"), [(SEQUENCE, ()), ({}, ("1=1.5", "5=1.2"))], ids=["sequence parallel", "stragglers"]
)
def test_replaying_a_written_run_takes_what_the_run_took_to_the_nanosecond(schedule, more, straggler, tmp_path):
    given = step(tmp_path, dp=2, **more), machine(tmp_path, dp=2)
    run = api.run(*given, schedule=schedule, straggler=straggler, iterations=3)
    start_ns, end_ns = run.timeline.iterations[-1]
    predicted = replay_traces(traces(run), ROWS_ONLY)
    assert all(steps[-1].error == 0 for steps in predicted.steps)
    assert length_ns(predicted) == end_ns - start_ns


def test_replaying_the_only_step_takes_as_long_on_the_last_rank(tmp_path):
    run = api.run(step(tmp_path), machine(tmp_path))
    assert length_ns(replay_traces(traces(run), ROWS_ONLY)) == run.timeline.time_ns


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_computing_twice_as_fast_in_the_replay_is_what_it_is_in_the_run(schedule, tmp_path):
    given = step(tmp_path, **SEQUENCE), machine(tmp_path)
    recorded = api.run(*given, schedule=schedule, iterations=2)
    faster = api.run(*given, schedule=schedule, iterations=2, compute_scale=0.5)
    computes = scale(re.compile(r"^(?!nccl)"), 0.5)
    predicted = length_ns(replay_traces(traces(recorded), ROWS_ONLY, [computes]))
    assert predicted == pytest.approx(faster.timeline.time_ns / 2, rel=1e-4)  # halves are rounded row by row


def test_the_archive_holds_a_trace_for_every_set_of_equal_ranks(tmp_path, capsys):
    file = tmp_path / "ranks.tar.gz"
    assert main(["run", "--workload", step(tmp_path), "--topology", machine(tmp_path), "--timeline", str(file)]) == 0
    with tarfile.open(file) as archive:
        assert archive.getnames() == ["rank0.json", "rank8.json"]
    assert main(["replay", str(file), "--json"]) == 0


def test_a_run_without_stages_or_a_part_of_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="pp: 2 or more"):
        write_timeline(report(), tmp_path / "a.tar")
    run = api.run(step(tmp_path), machine(tmp_path), iterations=2)
    assert isinstance(run, Report)
    with pytest.raises(InputError, match="neither --window nor --iteration"):
        write_timeline(run, tmp_path / "a.tar", Selection(iteration=1))
