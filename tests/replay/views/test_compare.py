"""Two profiler traces aligned kernel by kernel."""

import json
from pathlib import Path

import pytest

from simcore.cli import main
from simcore.replay.views.compare import compare_traces
from simcore.workload.kineto_reader import read_kineto
from tests.shared import shared

TRACES = Path(__file__).parents[3] / "docs" / "traces"


def trace(scale=1, steps=2, extra=()):
    """Steps of 100 us with a kernel of 40 us times the scale."""
    marks = [event(f"ProfilerStep#{n}", "user_annotation", 100 * n, 100) for n in range(steps)]
    kernels = [event("gemm", "kernel", 100 * n + 10, 40 * scale) for n in range(steps)]
    return read_kineto(json.dumps({"traceEvents": [*marks, *kernels, *extra]}).encode(), f"x{scale}.json")


def event(name, category, start_us, length_us):
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": length_us, "pid": 1, "tid": 7,
            "args": {"stream": 7, "device": 0}}  # fmt: skip


def test_a_trace_is_like_itself():
    comparison = compare_traces(trace(), trace())
    assert comparison.headline().endswith("as long: the GPU is busy as long and idle as long; no kernel changed.")
    assert comparison.kernels[0].time_ns.a == comparison.kernels[0].time_ns.b == 40_000


def test_times_are_those_of_a_mean_step_whatever_the_number_of_steps():
    comparison = compare_traces(trace(steps=2), trace(steps=5))
    assert comparison.kernels[0].time_ns.difference == 0
    assert comparison.busy_ns.difference == 0
    assert comparison.num_steps.b == 5


def test_what_changed_most_comes_first_and_is_named_in_the_sentence():
    slower = trace(scale=1.5, extra=[event("new kernel", "kernel", 80, 5)])
    comparison = compare_traces(trace(), slower)
    assert [row.name for row in comparison.kernels] == ["gemm", "new kernel"]
    assert (
        "the GPU is busy 22.5 us more and idle 22.5 us less; of what runs on it gemm (20 us more"
        in comparison.headline()
    )
    assert "0.5" in comparison.render()


def test_the_command_takes_two_files(capsys):
    assert main(["compare", str(TRACES / "rank0.json.gz"), str(TRACES / "rank1.json.gz"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "simcore.compare_traces/1"
    assert {pair["name"] for pair in document["kernels"]} >= {"adam", "gemm_forward"}


def test_real_traces_of_two_workers_of_a_job_have_the_same_kernels(capsys):
    files = [str(shared("data", "traces", "kineto", f"r50_w{rank}.pt.trace.json.gz")) for rank in (0, 4)]
    assert main(["compare", *files]) == 0
    assert capsys.readouterr().out.startswith("A step of B takes ")


@pytest.mark.parametrize("content", [b"[", b"{}", b'{"traceEvents": []}'])
def test_what_is_no_trace_is_refused(content, tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(content)
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 2
    assert "error" in capsys.readouterr().err
