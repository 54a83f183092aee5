"""The verb: options, output and refusals."""

import gzip
import json

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
    assert main(["replay", str(trace)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Rank 0: its dependencies predict 862 us a step where 862 us was measured")


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
    names = ["replay.json", "timeline-0.json", "timeline-0.pftrace.gz", "timeline-0.png"]
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
