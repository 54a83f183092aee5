"""Two reports aligned: the differences, and the sentence that says what changed and why."""

import json

import pytest
from click.testing import CliRunner

import simcore
import simcore.library
from simcore.cli import main
from simcore.cli.table import command
from simcore.errors import InputError
from simcore.report.archive import read_report
from simcore.report.compare import compare
from simcore.report.document import encode
from tests.timelines import report


def documents(first, second):
    return report(**first).to_dict(), report(**second).to_dict()


def test_a_report_compared_with_itself_has_no_difference():
    comparison = compare(*documents({}, {}))
    assert not comparison.settings
    assert not any(layer.comm_ns.difference for layer in comparison.layers)
    assert comparison.headline().endswith("nothing that is measured changed.")


def test_shares_of_the_difference_add_up_to_the_difference():
    comparison = compare(*documents({"scale": 10}, {"scale": 30, "chunks": 9}))
    parts = (comparison.compute_ns, comparison.exposed_comm_ns, comparison.idle_ns)
    assert sum(part.difference for part in parts) == comparison.time_ns.difference


def test_longer_communication_is_blamed_with_its_layer_and_reason():
    """12 chunks in place of 4: the all-reduce takes longer for the same size, compute stays."""
    comparison = compare(*documents({"scale": 1000}, {"scale": 1000, "chunks": 12}))
    sentence = comparison.headline()
    assert comparison.compute_ns.difference == 0
    assert "times as slow as A: exposed communication grew by" in sentence
    assert "above all the all_reduce after the weight gradient of attention" in sentence
    assert "of the same size, it takes" in sentence


def test_a_factor_of_thousands_is_written_out():
    fast, slow = report().to_dict(), report().to_dict()
    slow |= {"time_ns": 3687 * fast["time_ns"]}
    assert "3,687 times as slow as A" in compare(fast, slow).headline()


@pytest.mark.parametrize("names", [("nothing", "some"), ("some", "nothing")])
def test_no_factor_is_told_where_one_of_two_takes_no_time(names):
    runs = {"some": report().to_dict(), "nothing": report(scale=0).to_dict()}
    assert not runs["nothing"]["time_ns"]
    sentence = compare(*(runs[name] for name in names)).headline()
    assert "times as" not in sentence and "%" not in sentence.partition(":")[0]


def test_more_compute_is_blamed_with_its_layer():
    more = report(scale=1000).to_dict()
    for row in (more["layers"][2]["forward"], more, more["breakdown"]):
        row["compute_ns"] += 10_000_000  # in two iterations
    more["time_ns"] += 10_000_000
    sentence = compare(report(scale=1000).to_dict(), more).headline()
    assert sentence.endswith("compute grew by 5 ms, above all in the forward of mlp <b>& (+5 ms).")


def test_reports_are_compared_per_iteration():
    comparison = compare(*documents({"iterations": 1}, {"iterations": 3}))
    assert comparison.time_ns.difference == 0
    assert comparison.settings == (("iterations", "1", "3"),)


def test_layers_are_aligned_by_name_and_the_rest_is_said_to_be_of_one_report():
    comparison = compare(*documents({"layers": ("a", "b", "a")}, {"layers": ("a", "c", "a")}))
    only = {(layer.name, layer.only) for layer in comparison.layers}
    assert only == {("a", ""), ("b", "a"), ("c", "b")}
    assert len(comparison.layers) == 4 * 3


def test_rows_and_their_traces_have_no_layers_to_compare(tmp_path):
    """Traces name no layers: all collectives were told as those of one side, those of the other as 0 bytes."""
    rows = ["convert", "--native", "--npus", "8", str(simcore.library.resolve("micro_all_reduce", "workloads"))]
    assert main([*rows, str(tmp_path / "traces")]) == 0
    runs = [simcore.run(each, "ring8").to_dict() for each in ("micro_all_reduce", str(tmp_path / "traces"))]
    for a, b in (runs, runs[::-1]):
        comparison = compare(a, b)
        assert (comparison.layers, comparison.collectives) == ((), ())
        assert [dim.size_bytes.difference for dim in comparison.dims] == [0]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_text_is_no_wider_than_asked(width):
    text = compare(*documents({"scale": 1000}, {"scale": 3000, "dims": (("Ring", 8),)})).render(width=width)
    assert max(map(len, text.splitlines())) <= max(width, 80)


def test_the_command_reads_files_and_folders(tmp_path):
    (tmp_path / "report.json").write_text(encode(report().to_dict()))
    result = CliRunner().invoke(command("compare"), [str(tmp_path), str(tmp_path / "report.json"), "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == "simcore.compare/1"
    assert document["time_ns"]["a"] == document["time_ns"]["b"] == report().to_dict()["time_ns"] // 2  # of an iteration


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"schema": "x"}'])
def test_what_is_no_report_is_refused_by_name(content, tmp_path):
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"report\.json"):
        read_report(path)


def test_options_that_differ_are_told_and_small_changes_are_told_in_percent():
    plain, slow = (simcore.run("dlrm", "ring64", straggler=some).to_dict() for some in ((), ("3=2",)))
    comparison = compare(plain, slow)
    assert comparison.settings == (("straggler", "none", "3=2"),)
    assert "% more: " in comparison.headline()
    assert "% less: " in compare(slow, plain).headline()


def test_a_graph_that_changed_is_told_though_the_file_that_names_it_did_not(tmp_path):
    edge = {"source": 0, "target": 1, "bandwidth": 8, "latency": 500}
    (tmp_path / "net.yaml").write_text("graph: net.json\n")
    runs = []
    for rate in (8, 4):
        graph = {"directed": False, "multigraph": False, "graph": {}, "nodes": [{"id": 0}, {"id": 1}]}
        (tmp_path / "net.json").write_text(json.dumps(graph | {"links": [edge | {"bandwidth": rate}]}))
        runs.append(simcore.run("micro_all_reduce", str(tmp_path / "net.yaml")).to_dict())
    assert [name for name, *_ in compare(*runs).settings] == ["topology"]
