"""A replay's files."""

import json
from pathlib import Path

import pytest

from simcore.cli import main


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
