"""A replay's files."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.api import run
from simcore.cli import main
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.workloads import to_chakra, to_workload_text
from simcore.replay.whatif.changes import scale
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import recorded


def traces_of(programs, said):
    """A job whose ranks run programs and say `said(rank, name)` of their kernels."""
    traces = []
    for rank, program in enumerate(programs):
        document = recorded([*program, ("synchronise",)], 1, rank).document()
        for event in document["traceEvents"]:
            event["args"] |= said(rank, event["name"]) if event["cat"] == "kernel" else {}
        traces.append(read_kineto(json.dumps(document).encode(), f"rank{rank}.json"))
    return traces


def exported_and_replayed_ns(programs, said, folder, whats=()):
    """Such a job, changed: exported and run, and replayed."""
    traces = traces_of(programs, said)
    replay = replay_traces(traces, Changes(), whats)
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


def of_two(rank, name):
    """An all-reduce of 5 MB of two ranks."""
    told = {"Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": "BFloat16", "Collective name": "allreduce"}
    return told | {"In msg nelems": 2_500_000} if "nccl" in name else {}


lengths = st.lists(st.integers(20, 400), min_size=1, max_size=4)


@settings(deadline=None)
@given(lengths, st.integers(0, 300))
def test_collectives_that_a_change_removes_are_not_exported_and_ranks_still_wait(tmp_path_factory, lengths, late_us):
    """The second rank comes later to each of them; so does the run, by what was removed less than the recorded one."""

    def program(late_us, waiting_us):
        return [
            call
            for length in lengths
            for call in (("launch", "gemm", length + late_us), ("launch", "ncclAll", 50 + waiting_us, 21, 7))
        ] + [("launch", "adam", 30, 7, 21)]

    programs = [program(0, late_us), program(late_us, 0)]
    folder, removed = tmp_path_factory.mktemp("removed"), [scale(re.compile("nccl"), 0)]
    run_ns, replayed_ns = exported_and_replayed_ns(programs, of_two, folder, removed)
    assert run_ns == pytest.approx(replayed_ns, abs=10)


@settings(deadline=None)
@given(lengths, st.floats(0.1, 4))
def test_a_text_has_the_changed_computation_and_no_collective_that_was_removed(lengths, factor):
    program = [call for us in lengths for call in (("launch", "gemm", us), ("launch", "ncclAll", 50, 21, 7))]
    traces = traces_of([[*program, ("launch", "adam", 30, 7, 21)]] * 2, of_two)

    def rows(*whats):
        text = to_workload_text(replay_traces(traces, Changes(), whats))
        return [(int(cells[8]), cells[9]) for cells in map(str.split, text.splitlines()[2:])]

    assert rows() == [(30_000, "NONE"), *((us * 1000, "ALLREDUCE") for us in reversed(lengths))]
    changed = rows(scale(re.compile("gemm"), factor))
    assert changed == [(30_000, "NONE"), *((round(us * 1000 * factor), "ALLREDUCE") for us in reversed(lengths))]
    assert rows(scale(re.compile("nccl"), 0)) == [(sum(lengths) * 1000 + 30_000, "NONE")]


def test_a_change_of_what_collectives_take_that_a_file_cannot_say_is_told(tmp_path, capsys):
    traces = str(Path(__file__).parents[3] / "docs" / "traces")
    for option in ("--export-chakra", "--export-text"):
        assert main(["replay", traces, "--scale", "nccl=2", option, str(tmp_path / option)]) == 0
        assert "written with their recorded bytes and ranks, not with their changed times" in capsys.readouterr().err
        assert main(["replay", traces, "--scale", "gemm=2", option, str(tmp_path / f"{option}2")]) == 0
        assert "changed times" not in capsys.readouterr().err


def of_node(size, nodes):
    """All-reduces of the ranks of a node, and of those at one place of their nodes."""

    def said(rank, name):
        inner, outer = rank % size, rank // size
        node = list(range(outer * size, (outer + 1) * size))
        ranks = {"ncclTensor": node, "ncclData": list(range(inner, size * nodes, size))}.get(name, ())
        told = {"Process Group Ranks": str(ranks), "Group size": len(ranks), "dtype": "BFloat16"}
        return told | {"Collective name": "allreduce", "In msg nelems": 2_500_000} if ranks else {}

    return said


def run_of_export_ns(traces, sizes, folder):
    exported = to_chakra(replay_traces(traces, Changes()))
    for rank, content in exported.files.items():
        (folder / f"step.{rank}.et").write_bytes(content)
    machine = (
        f"topology: [Ring, Switch]\nnpus_count: {list(sizes)}\nbandwidth: [100.0, 20.0]\nlatency: [500.0, 900.0]\n"
    )
    (folder / "machine.yml").write_text(machine)
    return run(str(folder / "step"), str(folder / "machine.yml")).timeline.time_ns, exported


NODES = [("launch", "gemm", 300), ("launch", "ncclTensor", 50, 21, 7), ("launch", "ncclData", 90, 23, 7)]


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 4), st.integers(2, 4), st.data())
def test_a_rank_of_several_groups_stands_for_all_ranks_of_its_job(tmp_path_factory, size, nodes, data):
    rank = data.draw(st.integers(0, size * nodes - 1))
    traces = traces_of([NODES] * (size * nodes), of_node(size, nodes))
    runs = [run_of_export_ns(some, (size, nodes), tmp_path_factory.mktemp("job")) for some in (traces, [traces[rank]])]
    (whole_ns, whole), (alone_ns, alone) = runs
    assert (alone_ns, alone.files.keys(), alone.kept) == (whole_ns, whole.files.keys(), 0)


def test_a_collective_with_ranks_that_were_not_recorded_keeps_its_time():
    """The four ranks of one node of four: their data parallel groups have as many ranks, of which one is here."""
    traces = traces_of([NODES] * 16, of_node(4, 4))[:4]
    exported = to_chakra(replay_traces(traces, Changes()))
    assert (len(exported.files), exported.collectives, exported.kept) == (4, 4, 4)


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
