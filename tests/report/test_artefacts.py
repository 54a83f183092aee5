"""Files a run leaves: which, how they are written, what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.report.archive import events_npz, read_archive, read_report
from simcore.report.artefacts import TIMELINES, write_directory, write_timeline
from simcore.report.compare import compare
from simcore.report.model import Report
from simcore.report.timelines.selection import Selection
from simcore.timeline.events import COLUMNS
from tests.timelines import data_parallel, messages, pipelined, report, timelines

FILES = {
    "report.json", "layers.csv", "events.npz", "breakdown.png", "timeline.html", "timeline.pftrace.gz",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("out")
    write_directory(report(), target)
    return target


def test_a_folder_holds_every_artefact_and_nothing_else(folder):
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "report.json").read_text()) == report().to_dict()


def test_the_same_report_gives_the_same_bytes(folder, tmp_path):
    write_directory(report(), tmp_path)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_a_folder_with_files_is_refused_unless_forced(folder):
    with pytest.raises(InputError, match="not empty"):
        write_directory(report(), folder)
    write_directory(report(), folder, force=True)


def test_layers_csv_has_a_row_per_layer_and_phase(folder):
    lines = (folder / "layers.csv").read_text().splitlines()
    assert lines[0] == "layer,name,phase,compute_ns,comm_ns,exposed_ns,collective,bytes"
    assert len(lines) == 1 + 4 * 3


@pytest.mark.parametrize("suffix", [suffix for suffix in TIMELINES if not suffix.startswith(".tar")])
def test_every_kind_of_timeline_is_written_whole(suffix, tmp_path):
    path = tmp_path / f"t{suffix}"
    assert write_timeline(report(), path) == ()
    assert path.stat().st_size > 500
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "shown"), [("t.gif", "'.gif'"), ("t", "'t'"), (".png", "'.png'")])
def test_an_unknown_suffix_is_refused_with_the_path_and_the_known_ones(name, shown, tmp_path):
    with pytest.raises(InputError, match=r"\.pftrace\.gz") as error:
        write_timeline(report(), tmp_path / name)
    assert str(tmp_path / name) in str(error.value)
    assert shown in str(error.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        write_timeline(report(), tmp_path / "nowhere" / "t.png")


def test_a_selection_of_ranks_that_do_not_exist_is_refused(tmp_path):
    with pytest.raises(InputError, match="ranks below 8"):
        write_timeline(report(), tmp_path / "t.json", Selection(ranks=(9,)))


@settings(max_examples=25)
@given(timelines())
def test_an_event_archive_reads_back_as_it_was(tmp_path_factory, timeline):
    path = tmp_path_factory.getbasetemp() / "events.npz"
    original = Report(timeline, "p", "n")
    path.write_bytes(events_npz(original))
    back = read_archive(path)
    assert all(np.array_equal(getattr(back.timeline.events, c), getattr(timeline.events, c)) for c in COLUMNS)
    assert back.to_dict() == original.to_dict()
    assert events_npz(back) == events_npz(original)


def test_long_names_are_no_burden_to_others_and_texts_are_read_too(tmp_path):
    """An array of texts, as earlier versions wrote, gives all names the length of the longest, without nulls behind."""
    names = ["x" * 100_000, "null\0", *(f"kernel {number}" for number in range(1000))]
    made = simcore.graph(npus=8)
    for name in names:
        made.compute(5, name=name)
    original = simcore.run(made, "ring8")
    path = tmp_path / "events.npz"
    path.write_bytes(events_npz(original))
    back = read_archive(path)
    assert back.timeline.events.names == original.timeline.events.names and {*names} <= {*back.timeline.events.names}
    arrays = dict(np.load(path))
    assert arrays["names"].nbytes < 200_000
    arrays["names"] = np.array([name[:9].rstrip("\0") for name in back.timeline.events.names])
    np.savez(path, **arrays)
    assert read_archive(path).timeline.events.names == tuple(arrays["names"].tolist())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip file"])
def test_what_is_no_archive_is_refused_by_name(content, tmp_path):
    path = tmp_path / "events.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not an event table"):
        read_archive(path)


def test_an_archive_without_a_column_is_refused(tmp_path):
    np.savez(tmp_path / "events.npz", start_ns=np.zeros(1, dtype=np.int64))
    with pytest.raises(InputError, match="about"):
        read_archive(tmp_path / "events.npz")


@pytest.mark.parametrize("name", ["t.png", "t.svg", "t.html", "t.json", "t.pftrace"])
def test_every_timeline_says_which_inputs_it_was_made_from(name, tmp_path):
    write_timeline(report(), tmp_path / name)
    assert report().inputs[0].sha256.encode() in (tmp_path / name).read_bytes()


def test_what_a_timeline_leaves_out_is_returned(tmp_path):
    left_out = write_timeline(report(classes=8, mix=1), tmp_path / "t.png")
    assert left_out == ("left out: 5 of 8 ranks (--ranks chooses)",)


@pytest.mark.parametrize(
    "made", [data_parallel(), pipelined(), messages()], ids=["collectives", "pipeline", "messages"]
)
def test_an_event_archive_keeps_what_was_asked_and_what_was_sent(made, tmp_path):
    original = replace(report(), timeline=made)
    (tmp_path / "events.npz").write_bytes(events_npz(original))
    back = read_archive(tmp_path / "events.npz")
    assert back.to_dict() == original.to_dict()
    assert np.array_equal(back.timeline.events.messages, made.events.messages)
    assert events_npz(back) == events_npz(original)


def test_an_archive_names_each_node_once_and_names_for_every_link_are_read_too(tmp_path):
    """Names for every link are what earlier versions wrote."""
    original = simcore.run("dlrm", "torus_4x4x4")
    (tmp_path / "new.npz").write_bytes(events_npz(original))
    arrays = dict(np.load(tmp_path / "new.npz"))
    nodes = arrays.pop("nodes")
    assert len({*nodes.tolist()}) == len(nodes) == 64
    ends = {name: nodes[arrays[name]] for name in ("link_src", "link_dst")}
    np.savez(tmp_path / "old.npz", **arrays | ends)
    for back in (read_archive(tmp_path / name) for name in ("new.npz", "old.npz")):
        assert back.to_dict() == original.to_dict()
        assert [*back.timeline.links.src] == ends["link_src"].tolist() == [*original.timeline.links.src]
        assert [*back.timeline.links.dst] == ends["link_dst"].tolist() == [*original.timeline.links.dst]
    np.savez(tmp_path / "bad.npz", **arrays, nodes=nodes[:63])
    with pytest.raises(InputError, match="nodes that are not there"):
        read_archive(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "asked", ["--power h100", "--what-would-help", "--profile astra-sim-1.0 --explain-profile", "--straggler 1=2"]
)
def test_a_run_yaml_repeats_the_run_and_all_that_its_report_tells(asked, tmp_path, capsys):
    words = ["run", "--workload", "dlrm", "--topology", "ring8", *asked.split(), "--json", "-q"]
    assert main([*words, "-o", f"{tmp_path}/a"]) == 0
    told = capsys.readouterr().out
    assert main(["run", "--config", f"{tmp_path}/a/run.yaml", "--json", "-q", "-o", f"{tmp_path}/b"]) == 0
    assert capsys.readouterr().out == told
    assert (tmp_path / "a" / "report.json").read_bytes() == (tmp_path / "b" / "report.json").read_bytes()


def test_comparing_takes_timelines(tmp_path):
    (tmp_path / "a.npz").write_bytes(events_npz(report()))
    (tmp_path / "b.json").write_text(report(chunks=8).to_json())
    from_timeline = compare(read_report(tmp_path / "a.npz"), read_report(tmp_path / "b.json"))
    assert from_timeline == compare(report().to_dict(), read_report(tmp_path / "b.json"))
