"""The verb: options, output and refusals."""

import gzip
import json
import tarfile

import pytest

from simcore.cli import main
from tests.profiles_of_steps import recorded

# 150 us of host, 8 us launch latency, 400 us, 2 us between streams, 300 us, 2 us to return: 862 us.
PROGRAM = [("work", 100, 50), ("launch", "gemm", 400), ("launch", "ncclAllReduce", 300, 21, 7), ("synchronise",)]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(recorded(PROGRAM).content()))
    return path


def test_the_first_sentence_answers(trace, capsys):
    """150 us of host, 5 to launch, 8 of latency and 2 to return; the rest runs on the device."""
    assert main(["replay", str(trace)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "Rank 0 is bound by the device: of the 862 us that a step takes, the critical path is 81% device, 19% host."
    )


@pytest.mark.parametrize(
    ("options", "time"),
    [
        (["--scale", "host=0.5"], "783.5 us"),  # of 150 us between calls, 5 us to launch and 2 us to return
        (["--scale", "products=0"], "460 us"),  # the kernel and its launch are gone: 150 + 8 + 300 + 2
        (["--scale", "synchronisation=0"], "401.5 us"),  # the kernel after itself; communication runs beside the next
        (["--scale", "host@0=0.5"], "783.5 us"),
    ],
)
def test_host_time_kinds_of_work_and_waits_are_what_ifs(trace, options, time, capsys):
    assert main(["replay", str(trace), *options]) == 0
    assert f"a step takes {time} instead of 862 us" in capsys.readouterr().out


def test_the_list_of_what_would_help_names_the_options_that_replay_it(trace, capsys):
    assert main(["replay", str(trace), "--json"]) == 0
    helps = json.loads(capsys.readouterr().out)["ranks"][0]["helps"]
    assert [row["saved_ns"] for row in helps] == sorted((row["saved_ns"] for row in helps), reverse=True)
    for row in helps:
        assert main(["replay", str(trace), *row["option"].split(), "--json"]) == 0
        steps = json.loads(capsys.readouterr().out)["ranks"][0]["steps"]
        assert 862_000 - steps[1]["predicted_ns"] == row["saved_ns"]
        assert row["interval_ns"][0] <= row["saved_ns"] <= row["interval_ns"][1]


@pytest.mark.parametrize("options", [["--scale", "gemm=1"], ["--scale", "loader=0.5"], ["--fuse", "gemm"]])
def test_a_change_of_nothing_is_refused(trace, options, capsys):
    assert main(["replay", str(trace), *options]) == 2
    assert "changes nothing" in capsys.readouterr().err


def test_what_if_says_what_a_step_would_take(trace, capsys):
    assert main(["replay", str(trace), "--scale", "gemm=0.5"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "Rank 0: with gemm x 0.5 a step takes 662 us instead of 862 us (-23.2%)."


def test_the_same_input_gives_the_same_bytes(trace, capsys):
    documents = []
    for _ in range(2):
        assert main(["replay", str(trace), "--json"]) == 0
        documents.append(capsys.readouterr().out)
    assert documents[0] == documents[1]
    assert json.loads(documents[0])["schema"] == "simcore.replay/1"


def test_files_are_written_once_unless_forced(trace, tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["replay", str(trace), "-o", str(folder)]) == 0
    names = ["replay.json", "timeline-0.html", "timeline-0.json", "timeline-0.pftrace.gz", "timeline-0.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    shown = json.loads((folder / "timeline-0.json").read_text())
    titles = {event["args"]["name"] for event in shown["traceEvents"] if event["name"] == "process_name"}
    assert titles == {"measured", "predicted"}
    assert main(["replay", str(trace), "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["replay", str(trace), "-o", str(folder), "--force"]) == 0


@pytest.mark.parametrize("value", ["gemm", "gemm=fast", "gemm=-1", "=2", "(=2", "gemm=inf", "gemm=nan"])
def test_a_scale_that_is_none_is_refused_with_the_option_named(trace, capsys, value):
    assert main(["replay", str(trace), "--scale", value]) == 2
    assert "--scale" in capsys.readouterr().err


def test_a_step_that_takes_no_time_has_an_answer_and_pictures(tmp_path, capsys):
    document = recorded(PROGRAM).document()
    document["traceEvents"] = [event | {"ts": 1, "dur": 0} for event in document["traceEvents"] if event["ph"] == "X"]
    (tmp_path / "still.json").write_text(json.dumps(document))
    assert main(["replay", str(tmp_path / "still.json"), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("Rank 0 does nothing that is recorded in the 0 ns that a step takes.")


@pytest.fixture
def reducing(tmp_path):
    """Two data parallel ranks reduce 32 MiB in 300 us."""
    document = recorded(PROGRAM).document()
    said = {"Collective name": "allreduce", "In msg nelems": 1 << 24, "dtype": "Half", "Group size": 2}
    for event in document["traceEvents"]:
        if event["name"] == "ncclAllReduce":
            event["args"] |= said | {"Process Group Ranks": "[0, 1]", "Process Group Description": "default_pg"}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document))
    return path


def test_another_interconnect_is_answered_in_the_first_sentence_and_the_document(reducing, capsys):
    command = ["replay", str(reducing), "--topology", "ring8"]
    assert main(command) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "Rank 0: with the interconnect of ring8.yaml a step takes 1.237 ms instead of 862 us (+43.5%): "
        "1 all_reduce 675.1 us instead of 300 us; 1.237 ms to 1.537 ms by how much of communication is waiting."
    )
    assert main([*command, "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert rank["retimed"]["all_reduce"]["count"] == 1
    assert main([*command, "--recorded-topology", "ring8", "--json"]) == 2
    assert "changes nothing" in capsys.readouterr().err


def test_nccls_measured_times_stand_in_for_the_links(reducing, tmp_path, capsys):
    (tmp_path / "nccl.yaml").write_text("collectives: nccl\nnccl-fabric: hgx-h100\n")
    times = []
    for options in ([], ["--system", str(tmp_path / "nccl.yaml")]):
        assert main(["replay", str(reducing), "--topology", "dgx_a100_8", *options, "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["ranks"][0]["retimed"]["all_reduce"]["new_ns"])
    assert times[0] != times[1] > 0


def test_one_option_sets_several_numbers_and_leaves_files_alone(reducing, capsys, monkeypatch):
    monkeypatch.chdir(reducing.parent)
    reducing.rename("layers=3")
    assert main(["replay", "--set", "dp=4", "tp=4", "layers=3", "--group", "tp=default"]) == 2
    assert "one process group cannot have two degrees" in capsys.readouterr().err
    assert main(["replay", "--set", "dp=4", "layers=3"]) == 0
    assert "with dp = 4 a step takes" in capsys.readouterr().out


def test_the_largest_group_is_answered(reducing, capsys):
    """Ranks of a group are numbered once, not for each of its collectives."""
    assert main(["replay", str(reducing), "--set", "dp=1000000"]) == 0
    assert "with dp = 1000000 a step takes" in capsys.readouterr().out


def test_another_batch_is_said_and_so_are_tokens_a_second(reducing, capsys):
    """300 us become 3/4 over 1/2 of that: 1012 us instead of 862 for twice the samples."""
    assert main(["replay", str(reducing), "--set", "dp=4", "--tokens", "1000"]) == 0
    said = capsys.readouterr().out
    assert "the global batch is 2 times as large, 1.7 times the samples a second" in said
    assert "1,976,285 tokens/s instead of 1,160,093" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "dp=16", "--topology", "ring8"], "at least 16 NPUs"),
        (["--set", "dp=1000001"], "dp=N with a whole number from 1 to 1,000,000"),
        (["--system", "nccl.yaml"], "expected: --topology T, too"),
        (["--recorded-topology", "ring8"], "--recorded-topology: error: a ratio has two sides"),
        (["--topology", "ring8", "--recorded-system", "s.yaml"], "expected: --recorded-topology T, too"),
        (["--group", "dp=x"], "expected: --set dp=N, too"),
        (["--group", "ep=x"], "dp=REGEX or tp=REGEX"),
        (["--set", "dp=4", "--group", "dp=("], "dp=REGEX"),
        (["--set", "tp=4"], "which collectives are tensor parallel"),
        (["--topology", "rign8"], "rign8"),
    ],
)
def test_what_cannot_be_retimed_is_refused_with_the_reason(reducing, capsys, options, why):
    assert main(["replay", str(reducing), *options]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scale", "attend=2"], "--scale: error: no task's name matches"),
        (["--scale", "attention=2"], "'attention x 2' changes nothing"),
        (["--scale", "host@4=2"], "--scale: error: no trace is of this rank"),
        (["--straggler", "4-7=2"], "--straggler: error: no trace is of this rank"),
    ],
)
def test_changes_of_what_is_not_there_are_refused(trace, options, message, capsys):
    assert main(["replay", str(trace), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x80\x04\x95abc", "memory snapshot"),
        (b'{"segments": [], "device_traces": []}', "memory snapshot"),
        (b"[[1, 2, 3], [[0, 1], [2, 3]]]", "memory timeline"),
        (b"<!DOCTYPE html><html></html>", "export_memory_timeline"),
        (b"SQLite format 3\0", "Nsight Systems"),
        (b'"Kind","Agent_Id","Kernel_Name"\n', "rocprof"),
        (b'{"rocprofiler-sdk-tool": []}', "rocprof"),
        (
            b'{"traceEvents": [{"ph": "X", "name": "hipMalloc", "ts": 1, "dur": 2, "args": {"BeginNs": "1"}}]}',
            "rocprof",
        ),
        (b'{"traceEvents": [{"ph": "M", "args": {"name": "/device:GPU:0"}}]}', "JAX"),
    ],
)
def test_other_tools_files_are_named_when_refused(content, what, tmp_path, capsys):
    (tmp_path / "file.json").write_bytes(content)
    assert main(["replay", str(tmp_path / "file.json")]) == 2
    assert what in capsys.readouterr().err


def test_a_step_without_communication_is_one_row_of_text(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_bytes(recorded([("work", 20), ("launch", "gemm", 50), ("synchronise",)]).content())
    assert main(["replay", str(path), "--export-text", str(tmp_path / "step.txt")]) == 0
    assert (tmp_path / "step.txt").read_text().split()[:3] == ["DATA", "1", "segment0"]


def test_notes_of_macos_in_an_archive_are_no_traces(trace, tmp_path, capsys):
    archive = tmp_path / "ranks.tar"
    (tmp_path / "._trace.json").write_bytes(b"\0\5\26\7")
    with tarfile.open(archive, "w") as made:
        made.add(tmp_path / "._trace.json", "._trace.json")
        made.add(trace, "trace.json.gz")
    assert main(["replay", str(archive)]) == 0
    assert main(["replay", str(tmp_path)]) == 0


def test_a_trace_that_is_packed_otherwise_is_told_and_not_passed_over(trace, tmp_path, capsys):
    folder, archive = tmp_path / "ranks", tmp_path / "ranks.tar"
    folder.mkdir()
    (folder / "rank1.json.xz").write_bytes(b"\xfd7zXZ")
    assert main(["replay", str(folder)]) == 2
    assert "unpack rank1.json.xz, or pack with gzip" in capsys.readouterr().err
    trace.rename(folder / "rank0.json.gz")
    with tarfile.open(archive, "w") as made:
        made.add(folder, "ranks")
    for given, named in ((folder, "rank1.json.xz"), (archive, "ranks/rank1.json.xz")):
        assert main(["replay", str(given)]) == 0
        assert f"{given}: not all is read: unpack {named}, or pack with gzip" in capsys.readouterr().err
