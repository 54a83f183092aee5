"""Pictures: readable, in colours that differ, the same bytes each time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simcore.errors import InputError
from simcore.report.gantt import timeline_figure
from simcore.report.links import links_figure
from simcore.report.model import Report
from simcore.report.palette import BREAKDOWN, DIMENSIONS, FAMILIES, PHASES, text_on
from simcore.report.plots import breakdown_figure, image, styled
from simcore.report.timelines.selection import Limits, Selection, choose
from tests.timelines import data_parallel, report, timelines

# Linear RGB as a deuteranope or protanope sees it (Vienot, Brettel, Mollon 1999)
DEUTERAN = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
PROTAN = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])


def gantt(timeline, **limits):
    return timeline_figure(
        timeline, choose(timeline, Selection(), Limits(**{"num_classes": 4, "num_events": 40_000} | limits))
    )


def linear(colour):
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lightness_and_hue(colour, seen):
    """Coordinates in a perceptual space (Oklab, Ottosson 2020), after a simulation of colour blindness."""
    cone = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    lab = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return lab @ np.cbrt(np.clip(cone @ np.clip(seen @ linear(colour), 0, 1), 0, None))


@pytest.mark.parametrize("seen", [np.eye(3), DEUTERAN, PROTAN], ids=["all", "deuteranope", "protanope"])
def test_colours_that_stand_beside_each_other_are_told_apart(seen):
    """A difference of 0.07 in Oklab is plainly visible side by side."""
    together = [
        [*PHASES, FAMILIES["wait"], *DIMENSIONS[:4]],
        [colour for _, colour in BREAKDOWN.values()],
    ]
    for colours in together:
        for first, second in itertools.combinations(colours, 2):
            apart = np.linalg.norm(lightness_and_hue(first, seen) - lightness_and_hue(second, seen))
            assert apart > 0.07, (first, second, apart)


@pytest.mark.parametrize("colour", [*PHASES, *DIMENSIONS, *FAMILIES.values()])
def test_names_in_slices_are_readable_on_their_colour(colour):
    """A contrast of 3:1, WCAG 2.2's least for graphics."""
    bright, dark = sorted(
        (float(np.array([0.2126, 0.7152, 0.0722]) @ linear(each)) for each in (colour, text_on(colour))), reverse=True
    )
    assert (bright + 0.05) / (dark + 0.05) >= 3


def test_names_lie_within_their_row_and_do_not_overlap():
    figure = gantt(data_parallel(scale=1000, layers=["short", "a_rather_long_name", "x", "mid_name"] * 4))
    with styled():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        axes = figure.axes[0]
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts if text.get_fontsize() == 6.5]
    assert len(boxes) > 10
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)


@settings(max_examples=8, deadline=None)
@given(timelines())
def test_any_timeline_becomes_pictures(timeline):
    assert image(gantt(timeline), "png").startswith(b"\x89PNG")
    assert image(breakdown_figure(Report(timeline, "native", "fair").to_dict()), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_figure_gives_the_same_bytes(kind):
    timeline = data_parallel()
    assert image(gantt(timeline), kind) == image(gantt(timeline), kind)


def test_what_colours_mean_is_told_within_the_picture_however_wide_names_are():
    figure = breakdown_figure(report(layers=("W" * 40,)).to_dict())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        box = axes.get_legend().get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_names_are_text_and_never_formulas():
    figure = gantt(data_parallel(scale=1000, layers=("$x$", "$\\bad{", "c", "d")))
    assert b"<svg" in image(figure, "svg")
    assert image(breakdown_figure(report(layers=("$x$", "$\\bad{", "c", "d")).to_dict()), "svg")


def test_a_picture_says_what_it_leaves_out():
    figure = gantt(data_parallel(classes=8, mix=3), num_events=100)
    assert "5 of 8 ranks" in figure.legends[0].get_title().get_text()


def test_links_are_shown_where_there_are_any():
    assert image(links_figure(data_parallel()), "png").startswith(b"\x89PNG")
    bare = data_parallel(dims=(("Ring", 8),))
    object.__setattr__(bare, "links", None)
    with pytest.raises(InputError, match="no links"):
        links_figure(bare)
