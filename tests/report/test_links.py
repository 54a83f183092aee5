from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given

from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import logical
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.report import artefacts
from simcore.report.archive import events_npz
from simcore.report.links import _arrows, links_figure
from simcore.report.model import Report
from simcore.workload.model import CollectiveKind
from tests.runs import Run, machines, micro


def grid(kind, rows=4, columns=4, **changes):
    dims = tuple(Dimension(kind, npus, 1e9, 1.0) for npus in (columns, rows))
    return Run(micro(CollectiveKind.ALL_REDUCE, 1 << 20), Topology(dims)).timeline(**changes)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("kind", ["Mesh", "Ring"])
def test_the_suffix_decides_the_format_and_equal_runs_give_equal_bytes(tmp_path, suffix, kind):
    written = []
    for name in ("a", "b"):
        artefacts.write_links(Report(grid(kind), "native", "congested"), tmp_path / f"{name}{suffix}")
        written.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in written[0]


@pytest.mark.parametrize("kind", ["Mesh", "Ring"])
def test_every_link_has_its_own_arrow_and_none_crosses_the_map(kind):
    links = grid(kind, 3, 5).links
    start, stop = _arrows(links.coordinates.astype(float))
    assert (np.abs(stop - start).max(axis=1) < 1).all()
    assert len(np.unique(np.round(start, 6), axis=0)) == len(links.size_bytes)


def test_a_dead_npu_is_crossed_where_it_was():
    dims = tuple(Dimension("Mesh", 4, 1e9, 1.0) for _ in range(2))
    wafer = Wafer(dims, spare_rows=1, dead_npus=(6,))
    topology = Topology(logical(wafer, dims), wafer=wafer)
    figure = links_figure(Run(micro(CollectiveKind.ALL_REDUCE, 1 << 20), topology).timeline())
    assert [text.get_position() for text in figure.axes[0].texts if text.get_text() == "×"] == [(2, 1)]
    assert not [text for text in links_figure(grid("Mesh")).axes[0].texts if text.get_text() == "×"]


def test_the_title_names_the_link_that_carried_most():
    timeline = grid("Mesh")
    most = int(timeline.links.size_bytes.argmax())
    title = links_figure(timeline).axes[0].get_title()
    assert f"{timeline.links.src[most]} to {timeline.links.dst[most]}" in title


def test_the_title_says_in_how_many_iterations_a_link_carried_what_it_says():
    titles = [links_figure(grid("Ring", iterations=count)).axes[0].get_title() for count in (1, 3)]
    assert "iterations" not in titles[0] and " in 3 iterations, busy" in titles[1]


def test_networks_without_links_are_refused():
    alone = {"rows": 1, "columns": 1}
    for changes, expected in (({"network": "congestion-free"}, "--network congested"), (alone, "several NPUs")):
        with pytest.raises(InputError, match="no links") as refused:
            links_figure(grid("Ring", **changes))
        assert expected in refused.value.problems[0].expected


def test_a_network_that_does_not_lie_flat_is_a_matrix_from_node_to_node():
    timeline = grid("Switch", 2, 2)
    axes = links_figure(timeline).axes[0]
    nodes = [label.get_text() for label in axes.get_yticklabels()]
    megabytes = axes.images[0].get_array()
    links = timeline.links
    told = {(links.src[at], links.dst[at]): size / 1e6 for at, size in enumerate(links.size_bytes.tolist())}
    shown = {(nodes[a], nodes[b]): megabytes[a, b] for a, b in zip(*(~megabytes.mask).nonzero(), strict=True)}
    assert nodes[:4] == ["0", "1", "2", "3"]
    assert shown == told


def test_the_nodes_of_a_matrix_stand_in_the_order_of_their_numbers():
    axes = links_figure(grid("Switch", 2, 11)).axes[0]
    nodes = [label.get_text() for label in axes.get_yticklabels()]
    assert nodes[:22] == [str(npu) for npu in range(22)]
    switches = [tuple(map(int, name.removeprefix("switch@").split("."))) for name in nodes[22:]]
    assert switches == sorted(switches)
    assert max(switches) == (1, 10)


@pytest.mark.parametrize(("name", "said"), [("x.gif", ".png"), (".png", "picture"), ("no/x.png", "folder")])
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name, said):
    with pytest.raises(InputError, match=said):
        artefacts.write_links(Report(grid("Mesh"), "native", "congested"), tmp_path / name)


def test_the_option_writes_the_map(tmp_path):
    from simcore.cli.table import command

    path = tmp_path / "links.png"
    given = ["--workload", "micro_all_reduce", "--topology", "mesh_8x8", "--links", str(path), "-q"]
    result = CliRunner().invoke(command("run"), given)
    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(b"\x89PNG")


@given(machines(kinds=("Ring", "Mesh", "Switch", "FullyConnected")))
def test_ends_of_links_have_the_numbers_that_their_names_give(topology):
    links = LinkGraph(topology)
    table = links.table(np.arange(len(links)), np.arange(len(links)))
    told = replace(table, src=[*table.src], dst=[*table.dst])
    for ours, of_names in zip(table.ends(), told.ends(), strict=True):
        assert np.array_equal(ours, of_names)
    names = table.ends()[-1]
    assert names == list(dict.fromkeys([*table.src, *table.dst]))
    assert [names[at] for at in table.ends()[1].tolist()] == [*table.dst]


def test_pictures_and_archives_name_a_node_once_not_once_a_link(monkeypatch):
    timeline, named, name_of = grid("Switch", 8, 16), [], LinkGraph.name_of
    monkeypatch.setattr(LinkGraph, "name_of", lambda links, node: named.append(node) or name_of(links, node))
    for write in (lambda: links_figure(timeline), lambda: events_npz(Report(timeline, "native", "congested"))):
        named.clear()
        write()
        assert len(named) <= len({*named}) + 2  # and both ends of the fullest link
