"""No picture writes one text over another, or beyond its edge."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import simcore
from simcore import library
from simcore.api import load_topology
from simcore.cli import main
from simcore.network.topology.draw import draw
from simcore.network.topology.links import LinkGraph
from simcore.report.gantt import stages_figure, timeline_figure
from simcore.report.links import links_figure
from simcore.report.plots import breakdown_figure, styled
from simcore.report.timelines.selection import Limits, Selection, choose
from simcore.report.wafer_figure import matrix_figure, slowdown_figure
from simcore.sweep.pictures import scaling_figure, study_figure, trade_figure

TOLERANCE = 1.0  # pixels that boxes may share: they hold room for accents and tails


def texts(figure):
    """Every text that is drawn; labels of axes and ticks only where they are shown."""
    axes = figure.findobj(Axis)
    own = {id(text) for axis in axes for text in axis.findobj(Text)}
    shown = {id(text) for axis in axes if axis.get_visible() and axis.axes.axison
             for text in (axis.label, axis.offsetText, *_labels(axis))}  # fmt: skip
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if id(text) not in own - shown]


def _labels(axis):
    return [text for tick in axis._update_ticks() for text in (tick.label1, tick.label2)]


def collisions(figure):
    """Pairs of texts that overlap, and texts that leave the picture."""
    with styled():
        canvas = FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        drawn = texts(figure)
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in drawn]
    whole = figure.bbox
    bad = [
        (one.get_text(), "beyond the edge")
        for one, box in zip(drawn, boxes, strict=True)
        if box.x0 < whole.x0 - TOLERANCE or box.x1 > whole.x1 + TOLERANCE
        or box.y0 < whole.y0 - TOLERANCE or box.y1 > whole.y1 + TOLERANCE
    ]  # fmt: skip
    ends = np.array([box.extents for box in boxes]).reshape(-1, 4).T
    wide, high = (np.minimum.outer(ends[at + 2], ends[at + 2]) - np.maximum.outer(ends[at], ends[at]) for at in (0, 1))
    meet = np.argwhere(np.triu((wide > TOLERANCE) & (high > TOLERANCE), 1)).tolist()
    return bad + [(drawn[one].get_text(), drawn[other].get_text()) for one, other in meet]


def timeline_of(run, **selection):
    return timeline_figure(run.timeline, choose(run.timeline, Selection(**selection), Limits(4, 40_000)))


RUNS = [("dlrm", "ring64"), ("dlrm", "torus_4x4x4"), ("gpt_7b", "cluster_64_nodes"), ("micro_all_to_all", "mesh_8x8"),
        ("resnet50_data_parallel", "dgx_a100_8")]  # fmt: skip


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def run(request):
    return simcore.run(*request.param, iterations=3)


def test_the_pictures_of_a_run_are_legible(run):
    assert collisions(breakdown_figure(run.to_dict())) == []
    assert collisions(timeline_of(run)) == []
    assert collisions(timeline_of(run, iteration=1)) == []
    assert collisions(links_figure(run.timeline)) == []


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-v"])
def test_pipelines_are_legible(schedule):
    run = simcore.run("gpt_175b_pipeline", "pods_1024", schedule=schedule)
    view = choose(run.timeline, Selection(), Limits(4, 40_000))
    assert collisions(stages_figure(run.timeline, view)) == []
    assert collisions(timeline_figure(run.timeline, view)) == []
    assert collisions(breakdown_figure(run.to_dict())) == []


@pytest.mark.parametrize("name", ["mesh_8x8", "wafer_8x7"])
def test_maps_of_links_are_legible(name):
    assert collisions(links_figure(simcore.run("micro_all_to_all", name).timeline)) == []


def test_pictures_of_wafers_are_legible():
    sent = np.arange(56 * 56).reshape(56, 56)
    assert collisions(matrix_figure(sent, "a layer with a rather long name")) == []
    assert collisions(slowdown_figure([0, 1, 2, 5], [np.array([1.0]), *[np.array([1.1, 1.3])] * 3], "dead npus")) == []


@pytest.mark.parametrize("name", [Path(name).stem for name in library.names("topologies")])
def test_topologies_are_legible(name):
    assert collisions(draw(LinkGraph(load_topology(name)))) == []


def row(npus, time_ns, **options):
    return {"key": str(options), "options": options, "inputs": {}, "version": "1", "error": "",
            "figures": {"npus": npus, "time_ns": time_ns}}  # fmt: skip


def studies():
    names = [f"topologies/a_rather_long_name_of_a_machine_{size}.yaml" for size in range(12)]
    rates = [12.5, 25, 50, 100, 200, 400, 800]
    yield [row(64, 10**6 * (1 + place), topology=name) for place, name in enumerate(names)], ["topology"]
    some = [row(8 * 2**a, 10**9 // (1 + a) + b, topology=name, rate=rate)
            for a, name in enumerate(names[:9]) for b, rate in enumerate(rates)]  # fmt: skip
    yield some, ["topology", "rate"]
    yield some, ["rate", "topology"]
    few = [row(8 * size, 10**9 // size, **{"topology.npus_count[0]": size, "topology.bandwidth[0]": rate, "net": net})
           for size in (1, 2, 3, 4) for rate in rates[:3] for net in ("fair", "congested")]  # fmt: skip
    yield few, ["topology.npus_count[0]", "topology.bandwidth[0]", "net"]


@pytest.mark.parametrize("number", range(4))
def test_pictures_of_studies_are_legible(number):
    rows, varied = [*studies()][number]
    assert collisions(study_figure(rows, varied)) == []
    assert collisions(scaling_figure(rows, varied)) == []
    assert collisions(trade_figure(rows, varied, ("npus", "time_ns"))) == []


STUDY = """
model: {layers: 8, hidden: 1024, heads: 16, ffn: 4096, vocab: 51200}
seq: 1024
accelerators: 16
global_batch: 64
cluster: selene
micro_batch: [1]
zero: [0, 1]
"""
TRACES = Path(__file__).parents[2] / "docs" / "traces"
COMMANDS = {
    "replay": f"replay {TRACES} -o out",
    "search": "search study.yaml --plot front.png",
    "validate": "validate collectives_in_node --plot errors.png",
    "summary": "trace summary gpt_7b -o contents.svg",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_pictures_of_other_commands_are_legible(name, tmp_path, monkeypatch, capsys):
    """Caught on their way to a file."""
    figures, drawn = {}, Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, *rest: (figures.update({id(self): self}), drawn(self, *rest)))
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY)
    assert main(COMMANDS[name].split()) == 0, capsys.readouterr().err
    assert figures
    for figure in [*figures.values()]:
        assert collisions(figure) == []
