"""Timelines of what was recorded: traces on their own, and ASTRA-sim's log."""

import json

import numpy as np
import pytest

from simcore.cli import main
from simcore.errors import InputError
from simcore.replay.recorded import of_log, of_trace
from simcore.timeline.events import EventKind
from simcore.workload.chakra import summary, writer
from simcore.workload.model import NodeKind
from tests.shared import shared

LOG = """issue,npu_id=3,tick=100,node_id=3,node_name=COMM_a
issue,npu_id=1,tick=50,node_id=0,node_name=COMP_b
callback,npu_id=3,tick=600,node_id=3,node_name=COMM_a
callback,npu_id=1,tick=250,node_id=0,node_name=COMP_b
"""


def write(path, *nodes):
    """A trace of nodes with (id, duration in us, dependencies, attributes)."""
    made = [
        writer.node(
            number, f"n{number}", NodeKind.COMPUTE, duration_micros=micros, data_deps=deps, attributes=attributes
        )
        for number, micros, deps, attributes in nodes
    ]
    path.write_bytes(writer.encode(writer.metadata(), made))


def intervals(report):
    """(name, start, end) of everything in the order of time."""
    events = report.timeline.events
    return [
        (events.names[name], start, end)
        for name, start, end in zip(events.name.tolist(), events.start_ns.tolist(), events.end_ns.tolist(), strict=True)
    ]


def test_nodes_start_when_what_they_wait_for_is_over_and_streams_run_side_by_side(tmp_path):
    kernel = {"is_cpu_op": False}
    write(
        tmp_path / "t.et",
        (0, 2, [], kernel | {"stream": 7}),
        (1, 3, [], kernel | {"stream": 8}),
        (2, 1, [0], kernel | {"stream": 8}),
    )
    assert intervals(of_trace(str(tmp_path / "t.et"))) == [("n0", 0, 2000), ("n1", 0, 3000), ("n2", 3000, 4000)]


def test_ranks_keep_their_numbers_and_equal_ones_are_one_class(tmp_path):
    for rank, micros in ((2, 1), (5, 4), (7, 1)):
        write(tmp_path / f"t.{rank}.et", (0, micros, [], {}))
    timeline = of_trace(str(tmp_path / "t")).timeline
    assert sorted(map(list, timeline.ranks)) == [[2, 7], [5]]


@pytest.mark.parametrize("name", ["pytorch/t102/t102.0.et", "pytorch/dlrm/dlrm.0.et.gz"])
def test_no_schedule_beats_the_critical_path(name):
    from simcore.workload.chakra.reader import distinct_ranks

    path = shared("data", "traces", "chakra", *name.split("/"))
    graph = distinct_ranks(path)[0][0].graph
    longest_ns = int(graph.duration_ns[summary.critical_path(graph)].sum())
    assert longest_ns <= of_trace(str(path)).timeline.time_ns <= int(graph.duration_ns.sum())


def test_a_log_has_a_class_for_each_npu_and_ticks_of_the_frequency(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(LOG)
    timeline = of_log(str(path), mhz=500.0).timeline
    assert [list(ranks) for ranks in timeline.ranks] == [[1], [3]]
    assert timeline.finish_ns == (500, 1200)
    assert np.array_equal(timeline.events.kind, [EventKind.COMPUTE, EventKind.COLLECTIVE])
    path.write_text("")
    with pytest.raises(InputError, match="no node is issued"):
        of_log(str(path))


@pytest.mark.parametrize("suffix", [".html", ".json", ".json.gz", ".pftrace", ".svg"])
def test_the_command_writes_every_kind_of_timeline_of_a_trace_and_of_a_log(tmp_path, suffix):
    write(tmp_path / "t.et", (0, 2, [], {}))
    (tmp_path / "x.log").write_text(LOG)
    for source in ("t.et", "x.log"):
        out = tmp_path / f"{source}{suffix}"
        arguments = ["trace", "timeline", str(tmp_path / source), "-o", str(out)]
        assert main(arguments) == 0
        assert out.stat().st_size
        assert main(arguments) == 2  # it is there already
        assert main([*arguments, "--force"]) == 0
    if suffix == ".json":
        events = json.loads((tmp_path / "x.log.json").read_text())["traceEvents"]
        lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert lanes == {"computation", "communication"}  # Chakra's


def test_a_clock_is_a_logs_alone(tmp_path, capsys):
    write(tmp_path / "t.et", (0, 2, [], {}))
    (tmp_path / "x.log").write_text(LOG)
    out, clock = tmp_path / "t.json", ["--npu-frequency", "500"]
    assert main(["trace", "timeline", str(tmp_path / "t.et"), "-o", str(out), *clock]) == 2
    assert "--npu-frequency: error: the source counts no cycles" in capsys.readouterr().err
    assert main(["trace", "timeline", str(tmp_path / "x.log"), "-o", str(out), *clock]) == 0
    slices = [event for event in json.loads(out.read_text())["traceEvents"] if event.get("ph") == "X"]
    assert max(event["ts"] + event["dur"] for event in slices) == 1.2  # tick 600 at 500 MHz
