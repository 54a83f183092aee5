"""Figures that README and pages state in words: each is worked out again, and the page must say what was found."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import simcore
from simcore.api import load_topology
from simcore.cli import main
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.workload.text import parse
from tests.documents import blocks
from tests.published.test_astra_sim import usable
from tests.shared import shared

ROOT = Path(__file__).parent.parent.parent


def text(name):
    return " ".join((ROOT / name).read_text().split())


def text_lines(name):
    return (ROOT / name).read_text().splitlines()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The words of a page whose files lie in the working folder."""
    monkeypatch.chdir(tmp_path)

    def saved(name):
        for block in blocks((ROOT / "docs" / name).read_text()):
            if block.kind == "file":
                Path(block.name).write_text(block.text)
        return text(f"docs/{name}")

    return saved


def ms(*inputs, **options):
    return f"{simcore.run(*inputs, **options).time_ns / 1e6:.2f} ms"


def system(line):
    Path("mine.yaml").write_text(line + "\n")
    return "mine.yaml"


def test_collectives_in_colours_and_rings_over_meshes_take_what_the_page_says(page):
    said = page("collectives.md")
    both = system("all-reduce-implementation: [bidirectionalRing, bidirectionalRing]")
    times = [ms("micro_all_reduce", "torus.yaml", way) for way in ("colours.yaml", both, None)]
    assert "64 MiB take {}; without the second line {}, with plain rings {}".format(*times) in said
    times = [ms("micro_all_reduce", "mesh_8x8", way) for way in ("tour.yaml", None, "colours.yaml")]
    assert "takes {} on the mesh. Rings along rows and columns take {}, in colours {}".format(*times) in said


# The formula as the page has it, in nanoseconds of a message's latency (a) and of so many bytes (S, at the rate B).
FORMULAS = {
    ("all_reduce", "ring", "Ring"): "2(n-1) (a + S/n/B)",
    ("all_reduce", "direct", "Switch"): "2 a + 2(n-1)/n S/B",
    ("all_reduce", "halvingDoubling", "Switch"): "2 log2(n) a + 2(n-1)/n S/B",
    ("all_reduce", "doubleBinaryTree", "FullyConnected"): "2 log2(n) (a + S/B)",
    ("all_reduce", "doubleBinaryTree", "Switch"): "2 log2(n) a + (4 log2(n) - 2) S/B",
    ("all_reduce", "bidirectionalRing", "Ring"): "2(n-1) a + (n-1)/n S/B",
    ("all_gather", "pat", "Switch"): "ceil(log2 n) a + (n-1)/n S/B",
    ("all_reduce", "recursiveDoubling", "Switch"): "log2(n) (a + S/B)",
    ("all_gather", "bruck", "Switch"): "ceil(log2 n) a + (n-1)/n S/B",
    ("all_to_all", "bruck", "Switch"): "log2(n) (a + S/2/B)",
    ("all_to_all", "pairwise", "Switch"): "(n-1) (a + S/n/B)",
    ("broadcast", "binomial", "Switch"): "ceil(log2 n) (a + S/B)",
    ("scatter", "binomial", "Switch"): "log2(n) a + (n-1)/n S/B",
    ("reduce", "chain16", "Mesh"): "(n-1) a + (n+c-2) S/c/B",
    ("gather", "chain16", "Mesh"): "(n-1) (a + S/n/B)",
    ("broadcast", "flat", "Switch"): "a + (n-1) S/B",
    ("gather", "flat", "Switch"): "a + (n-1)/n S/B",
}


@pytest.mark.parametrize(("kind", "algorithm", "network"), FORMULAS, ids=str)
@pytest.mark.parametrize("ranks", [4, 16])
def test_an_algorithm_takes_what_its_formula_says(page, kind, algorithm, network, ranks):
    formula = FORMULAS[kind, algorithm, network]
    (row,) = (line for line in text_lines("docs/collectives.md") if line.startswith(f"| `{algorithm.rstrip('16')}`"))
    assert formula in row
    Path("net.yaml").write_text(f"topology: [{network}]\nnpus_count: [{ranks}]\nbandwidth: [50]\nlatency: [500]\n")
    way = f"preferred-dataset-splits: 1\n{kind.replace('_', '-')}-implementation: [{algorithm}]"
    graph, all_bytes = simcore.graph(npus=ranks), 1 << 24
    graph.collective(kind, all_bytes // ranks if kind.endswith("gather") else all_bytes)
    words = re.sub(r"(?<=[\w)]) ?(?=\()|(?<=[\w)]) (?=[aSl(])", "*", formula.replace("log2 n", "log2(n)"))
    words = words.replace("log2*(", "log2(").replace("ceil*(", "ceil(")
    letters = {"a": 1000 if network == "Switch" else 500, "S": all_bytes, "B": 50, "n": ranks, "c": 16}
    expected_ns = eval(words, {"log2": math.log2, "ceil": math.ceil}, letters)  # noqa: S307 - our own page
    assert simcore.run(graph, "net.yaml", system(way)).time_ns == pytest.approx(expected_ns, rel=1e-4)


def test_a_synthesised_collective_is_as_near_to_the_bound_as_the_page_says(page):
    said = page("collectives.md")
    Path("mesh.yaml").write_text(
        "topology: [Mesh, Mesh]\nnpus_count: [8, 8]\nbandwidth: [25, 25]\nlatency: [500, 500]\n"
    )
    Path("gather.txt").write_text("MICRO\n1\ng -1 0 NONE 0 0 NONE 0 0 ALLGATHER 1000000 1\n")
    made, ring = (
        simcore.run("gather.txt", "mesh.yaml", system(f"all-gather-implementation: [{name}]")).time_ns
        for name in ("oneSynthesised2", "oneRing")
    )
    bound_ns = 63 * 1e6 / (2 * 25)  # what a corner lacks, over its two links
    told = f"takes {made / 1e6:.2f} ms. This is {made / bound_ns - 1:.2%} above what the two links of a corner allow"
    assert f"{told}; `oneRing` takes {ring / 1e6:.2f} ms" in said


def test_circuits_take_what_the_page_says(page):
    said = page("topologies.md")
    Path("ring.yaml").write_text(Path("circuits.yaml").read_text().partition("circuits:")[0])
    switched, ring = (simcore.run("micro_all_to_all", net).time_ns / 1e3 for net in ("circuits.yaml", "ring.yaml"))
    assert f"| with circuits | {1e3 * switched:,.0f} ns |" in said
    assert f"| on the ring | {ring:,.0f} us |" in said


@pytest.mark.parametrize("sides", [[4, 4, 8], [4, 8, 8]], ids=str)
def test_a_twisted_torus_relieves_its_fullest_link_as_much_as_the_page_says(sides, page):
    said, file = page("topologies.md"), Path("twisted.yaml")
    file.write_text(file.read_text().replace("[4, 4, 8]", str(sides)))
    links = LinkGraph(load_topology(str(file)))
    npus = np.arange(links.npus)
    ways = links.routes(np.repeat(npus, len(npus)), np.tile(npus, len(npus)))
    fullest = np.bincount(ways.links, minlength=len(links)).max()
    plain = len(npus) * max(sides) / 8  # a mean way of a quarter of the side, over two links a node
    assert f"| {' x '.join(map(str, sides))} | {plain / fullest:.2f} |" in said


def test_the_tutorial_says_what_faster_links_give(page):
    said = page("tutorial.md")
    slow, fast = (simcore.run("step.txt", net, iterations=2).time_ns / 2e3 for net in ("ring8", "fast.yaml"))
    assert f"An iteration takes {fast:.0f} us." in said
    assert f"make the step {slow / fast:.1f} times as fast" in said


def test_a_recorded_step_takes_on_a_network_what_the_page_says(tmp_path, monkeypatch, capsys):
    traces = ROOT / "docs" / "traces"
    monkeypatch.chdir(tmp_path)
    assert main(["replay", str(traces), "--export-chakra", "made"]) == 0
    capsys.readouterr()
    took_ns = simcore.run("made/step", str(traces / "two.yml")).time_ns
    assert main(["replay", str(traces), "--topology", str(traces / "two.yml"), "--json"]) == 0
    predicted = {
        step["predicted_ns"] for rank in json.loads(capsys.readouterr().out)["ranks"] for step in rank["steps"]
    }
    assert f"both take the same {took_ns / 1e6:.3f} ms" in text("docs/replay.md")
    assert took_ns in predicted


def test_the_picture_of_a_search_is_of_the_study_and_its_step_takes_as_long_when_it_is_run(page, capsys):
    said = page("search.md")
    assert main(["search", "study.yaml", "--top", "5", "--plot", "front.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    with Image.open("front.png") as drawn, Image.open(ROOT / "docs" / "images" / "search_front.png") as shown:
        assert drawn.text["Description"] == shown.text["Description"]
    assert main([*shlex.split(found["predict"])[1:], "-o", "step.txt"]) == 0
    topology, setting = re.findall(r"`simcore run --workload step.txt --topology (\w+)` with `(.*?)`", said)[0]
    took_ns = simcore.run("step.txt", topology, system(setting)).time_ns
    assert took_ns == pytest.approx(1e9 * found["best"][0]["step_s"], abs=20)  # rows are whole nanoseconds


def test_the_readme_shows_an_error_as_it_is():
    rows = "".join(f"conv{n} -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n" for n in range(11))
    bad = "conv2_3 -1 1203 NONE 0 1190 NONE 0 980 ALLREDUCE 2.4MB 100\n"
    with pytest.raises(InputError) as caught:
        parse("DATA\n12\n" + rows + bad, "workloads/resnet50.txt")
    readme = (ROOT / "README.md").read_text()
    lines = [line.strip() for line in str(caught.value).splitlines()]
    shown = readme.partition("    workloads/resnet50.txt:14:")[2].splitlines()
    assert lines[0].endswith(shown[0].partition(" ")[2])
    assert {line.strip() for line in shown[1:3]} <= set(lines)


def test_the_page_of_kernels_counts_its_tables():
    tables = json.loads(Path("simcore/compute/measured/tables/index.json").read_text())
    assert f"It ships {len(tables)} tables" in text("docs/kernels.md")


def test_the_readme_counts_the_cases_that_are_compared():
    compared = [case for case in json.loads(shared("oracle", "astra1.json").read_text())["cases"] if usable(case)]
    drawn = sum(case["note"].startswith("random") for case in compared)
    assert f"in all {len(compared)} cases compared, {drawn} of them drawn at random" in text("README.md")


def test_a_collective_of_ones_own_has_the_lines_that_the_readme_promises():
    assert "adds a collective in twenty lines" in text("README.md")
    pages = blocks((ROOT / "docs" / "extending.md").read_text())
    (code,) = (block.text for block in pages if block.name == "bruck4.py")
    assert len(code.splitlines()) <= 20


@pytest.mark.parametrize("kind", ["topologies", "workloads", "models", "npus", "systems", "collectives", "profiles"])
def test_what_the_readme_lists_can_be_listed(kind, capsys):
    assert f"`{kind}`" in text("README.md") or f"simcore list {kind}" in text("README.md")
    assert main(["list", kind]) == 0
    assert capsys.readouterr().out.splitlines()
