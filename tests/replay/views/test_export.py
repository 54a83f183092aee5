"""A replay's files."""

import json
from pathlib import Path

import pytest

from simcore.api import run
from simcore.cli import main
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.workloads import to_chakra
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import recorded


def exported_and_replayed_ns(programs, said, folder):
    """A job whose ranks run programs and say `said(rank, name)` of their kernels: exported and run, and replayed."""
    traces = []
    for rank, program in enumerate(programs):
        document = recorded([*program, ("synchronise",)], 1, rank).document()
        for event in document["traceEvents"]:
            event["args"] |= said(rank, event["name"]) if event["cat"] == "kernel" else {}
        traces.append(read_kineto(json.dumps(document).encode(), f"rank{rank}.json"))
    replay = replay_traces(traces, Changes())
    for rank, content in to_chakra(replay).files.items():
        (folder / f"step.{rank}.et").write_bytes(content)
    machine = f"topology: [Switch]\nnpus_count: [{len(traces)}]\nbandwidth: [100.0]\nlatency: [0.0]\n"
    (folder / "machine.yml").write_text(machine)
    time_ns = run(str(folder / "step"), str(folder / "machine.yml")).timeline.time_ns
    return time_ns, max(steps[-1].predicted_ns for steps in replay.steps)


@pytest.mark.parametrize(("elements", "all_us", "longer_ns"), [(0, 0, 0), (2_500_000, 0, 0), (2_500_000, 50, 25_000)])
def test_groups_that_cross_each_other_stay_apart_where_a_step_is_exported(elements, all_us, longer_ns, tmp_path):
    """All-reduces of 5 MB in groups of two that cross: as recorded, or 50 us each at 100 GB/s; of all four, 75 us."""

    def said(rank, name):
        group = {"ncclTensor": [rank & 2, rank | 1], "ncclData": [rank & 1, rank | 2], "ncclAll": [0, 1, 2, 3]}
        ranks = group.get(name, ())
        told = {"Process Group Ranks": str(ranks), "Group size": len(ranks), "dtype": "BFloat16"}
        return told | {"Collective name": "allreduce", "In msg nelems": elements} if ranks else {}

    program = [("launch", "ncclAll", all_us, 21)] if all_us else []
    program += [("launch", "ncclTensor", 50, 21), ("launch", "ncclData", 50, 23, 21)]
    run_ns, replayed_ns = exported_and_replayed_ns([program] * 4, said, tmp_path)
    assert run_ns == pytest.approx(replayed_ns + longer_ns, abs=10)


def test_communicators_of_the_same_ranks_stay_apart_where_a_step_is_exported(tmp_path):
    """Two ranks launch all-reduces of two communicators the other way round, with computation between."""

    def said(rank, name):
        told = {"Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": "BFloat16", "Collective name": "allreduce"}
        return told | {"In msg nelems": 2_500_000, "Process Group Name": name} if "nccl" in name else {}

    one, other = ("launch", "ncclOne", 862, 21), ("launch", "ncclOther", 1062, 23)
    first = [one, ("launch", "gemm", 1000), ("launch", "ncclOther", 50, 23, 7)]
    second = [other, ("launch", "gemm", 800), ("launch", "ncclOne", 50, 21, 7)]
    run_ns, replayed_ns = exported_and_replayed_ns([first, second], said, tmp_path)
    assert run_ns == pytest.approx(replayed_ns, abs=10)


def test_a_transfer_waits_for_its_two_ranks_alone_where_a_step_is_exported(tmp_path):
    """Rank 0 hands on what it computed, rank 1 computes with it, rank 2 keeps to itself."""

    def said(rank, name):
        ends = {"Process Group Ranks": "[0, 1]", "Src Rank": 0, "Dst Rank": 1}
        return ends | {"Collective name": ["send", "recv"][rank]} if "nccl" in name else {}

    first = [("launch", "gemm", 100), ("launch", "ncclSendRecv", 50, 21, 7)]
    second = [("launch", "ncclSendRecv", 152, 21), ("launch", "gemm", 100, 7, 21)]
    run_ns, replayed_ns = exported_and_replayed_ns([first, second, [("launch", "gemm", 30)]], said, tmp_path)
    assert run_ns == pytest.approx(replayed_ns, abs=10)


def test_the_page_names_both_sides_and_says_what_the_text_says(tmp_path, capsys):
    traces = Path(__file__).parents[3] / "docs" / "traces"
    assert main(["replay", str(traces), "-o", str(tmp_path / "out")]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Rank 0")).split()
    text = (tmp_path / "out" / "timeline-0.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["headline"].split()[: len(said)] == said
    assert {track["group"] for track in data["tracks"]} == {"measured", "predicted"}
    assert data["overview"]["labels"] == ["measured", "predicted"]
    assert data["report"]["ranks"] == []
    assert {row["name"] for row in data["operations"]} >= {"adam", "gemm_forward"}


def test_multiprocessors_in_use_are_told_in_text_page_and_counters(tmp_path, capsys):
    """Of a step of 100 us: 40 us on half of them, 20 us on all by two kernels at once, and an eighth of the warps."""
    step = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 100, "name": "ProfilerStep#1", "cat": "user_annotation"}
    events = [step, step | {"name": "ProfilerStep#2", "ts": 100}]
    for number, (start, length, stream) in enumerate([(10, 40, 7), (60, 20, 7), (60, 20, 8)] * 2):
        later = 100 * (number // 3)
        launch = {"ph": "X", "pid": 1, "tid": 1, "name": "cudaLaunchKernel", "cat": "cuda_runtime", "dur": 1}
        events.append(launch | {"ts": later + number % 3, "args": {"correlation": number}})
        said = {"correlation": number, "stream": stream, "blocks per SM": [0.5, 3, 0.25][number % 3]}
        said |= {"est. achieved occupancy %": [12.5, 12.5, 0][number % 3]}
        kernel = {"ph": "X", "pid": 0, "tid": stream, "name": f"k{number % 3}", "cat": "kernel", "args": said}
        events.append(kernel | {"ts": later + start, "dur": length})
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    assert main(["replay", str(tmp_path / "t.json"), "-o", str(tmp_path / "out")]) == 0
    assert "multiprocessors, mean of the step: in use 40% (predicted 40%), warps occupied 8%" in capsys.readouterr().out
    document = json.loads((tmp_path / "out" / "replay.json").read_text())["ranks"][0]["utilisation"]
    per_us = document["bin_ns"] / 1e3
    assert sum(document["sm_measured"]) * per_us == pytest.approx(0.5 * 40 + 20)
    assert sum(document["occupancy_measured"]) * per_us == pytest.approx(0.125 * 60)
    trace = json.loads((tmp_path / "out" / "timeline-0.json").read_text())
    in_use = [event for event in trace["traceEvents"] if event["name"] == "multiprocessors in use"]
    assert max(event["args"]["% in use"] for event in in_use) == 100
    text = (tmp_path / "out" / "timeline-0.html").read_text()
    curves = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["curves"]
    told = "device busy", "multiprocessors in use", "warps occupied"
    assert [(curve["name"], curve["of"]) for curve in curves] == [
        (name, side) for name in told for side in ("measured", "predicted")
    ]


def test_a_step_that_takes_no_time_any_more_is_drawn(tmp_path):
    args = {"correlation": 0, "stream": 7, "blocks per SM": 1, "est. achieved occupancy %": 50}
    kernel = {"ph": "X", "pid": 0, "tid": 7, "name": "k", "cat": "kernel", "ts": 0, "dur": 5, "args": args}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [kernel]}))
    assert main(["replay", str(tmp_path / "t.json"), "--scale", ".*=0", "-o", str(tmp_path / "out")]) == 0
    used = json.loads((tmp_path / "out" / "replay.json").read_text())["ranks"][0]["utilisation"]
    assert (used["predicted"], used["sm_predicted"]) == ([0.0], [0.0])
