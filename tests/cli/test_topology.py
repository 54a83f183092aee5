"""`simcore topology show` and `simcore list` say what is there."""

import json

import pytest

from simcore.cli import main
from simcore.cli.list import SHELVES


def output(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_figures_of_a_torus_are_the_textbooks(capsys):
    document = json.loads(output(capsys, "topology", "show", "torus_4x4x4", "--json"))
    assert document["npus"] == 64
    assert document["degree"] == {"max": 6, "min": 6}
    assert document["diameter_hops"] == 6
    assert document["links"] == 64 * 6
    assert document["bisection_bytes_per_s"] == 16 * 2 * 16e9


def test_the_text_says_from_what_to_what_links_are_fast(tmp_path, capsys):
    (tmp_path / "net.txt").write_text("3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 100Gbps 0.001ms 0\n")
    assert main(["topology", "show", str(tmp_path / "net.txt")]) == 0
    assert "Graph of 2, 12.5 GB/s to 50 GB/s, 500 ns to 1 us a hop" in capsys.readouterr().out


def test_the_text_names_every_figure(capsys):
    text = output(capsys, "topology", "show", "wafer_8x7")
    for word in ("NPUs", "links", "degree", "diameter", "bisection", "dead NPUs", "spare rows"):
        assert word in text


@pytest.mark.parametrize(
    ("name", "suffix"), [("ring8", "png"), ("wafer_8x7", "svg"), ("dragonfly_72", "svg"), ("h100_fat_tree", "svg")]
)
def test_a_picture_has_the_same_bytes_every_time(tmp_path, capsys, name, suffix):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    for path in (first, second):
        output(capsys, "topology", "show", name, "-o", str(path))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size > 2000


def test_a_picture_is_not_overwritten_unasked(tmp_path, capsys):
    path = tmp_path / "ring.png"
    path.write_text("mine")
    assert main(["topology", "show", "ring8", "-o", str(path)]) == 2
    assert path.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_an_unknown_picture_or_topology_is_refused(tmp_path, capsys):
    assert main(["topology", "show", "ring8", "-o", str(tmp_path / "ring.doc")]) == 2
    assert main(["topology", "show", "rng8"]) == 2
    assert "did you mean 'ring8'" in capsys.readouterr().err


@pytest.mark.parametrize("what", SHELVES)
def test_a_list_has_a_name_and_a_line_for_each(capsys, what):
    entries = json.loads(output(capsys, "list", what, "--json"))[what]
    assert entries
    assert all(entry["name"] and entry["description"] for entry in entries)
    text = output(capsys, "list", what)
    assert [line.split()[0] for line in text.splitlines()] == [entry["name"].split()[0] for entry in entries]


def test_a_list_of_something_unknown_names_what_can_be_listed(capsys):
    assert main(["list", "topology"]) == 2
    assert "topologies" in capsys.readouterr().err
