"""The timeline as a picture: rows for computing and dimensions of the network, or a row of cells for every stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.report.palette import BREAKDOWN, DIMENSIONS, INK, PHASES, text_on
from simcore.report.plots import canvas
from simcore.report.timelines.selection import View
from simcore.report.timelines.tracks import Track, colours, lay_out, meanings
from simcore.timeline.breakdown import merge
from simcore.timeline.events import NO_LAYER, Curve, PipelineRun, Timeline
from simcore.units import largest_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ints = NDArray[np.int64]

WIDTH_INCHES = 12.0
AXIS_INCHES = 10.0  # about what the rows' labels leave of the width
ROW_INCHES, PANEL_INCHES = 0.28, 1.4
PIXELS = 4000  # slices of one colour closer than this fraction of the width are drawn as one
MOST_LANES = 4  # concurrent slices shown beside each other; more are drawn as one bar
LABEL_POINTS = 6.5
CHARACTER_INCHES = 0.62 * LABEL_POINTS / 72
NAMED = ("compute", "host", "wait")  # families whose slices carry names; their rows are higher


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the picture: its label, where it begins and how high it is (in rows), the tracks that share it."""

    label: str
    npu_class: int
    top: float
    height: float
    tracks: tuple[Track, ...]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Where to draw what; `scale` is nanoseconds per unit of the axis."""

    axes: Axes
    timeline: Timeline
    view: View
    rows: tuple[_Row, ...]
    scale: float

    @property
    def span_ns(self) -> int:
        """Length of the time axis."""
        return self.view.end_ns - self.view.start_ns


def timeline_figure(timeline: Timeline, view: View) -> Figure:
    """A Gantt chart of the `view` of a `timeline` that `simcore.report.timelines.selection.choose` gives.

    Slices are coloured by what they are, and named where the name fits.
    """
    rows = tuple(_rows(lay_out(timeline, view)))
    scale, unit = largest_unit(view.end_ns - view.start_ns)
    curves = [curve for curve in timeline.curves if curve.npu_class in view.classes]
    titles = list(dict.fromkeys(curve.title for curve in curves))
    heights = (ROW_INCHES * _bottom(rows), *([PANEL_INCHES] * len(titles)))
    with canvas(WIDTH_INCHES, 1.2 + sum(heights), sharex=True, height_ratios=heights) as (figure, axes):
        drawing = _Drawing(axes[0], timeline, view, rows, scale)
        _frame(drawing)
        axes[-1].set_xlabel(f"{'time' if timeline.streams else 'simulated time'} ({unit})")
        for panel, title in zip(axes[1:], titles, strict=True):
            _draw_curves(drawing, panel, [curve for curve in curves if curve.title == title])
        _mark_iterations(drawing)
        for row in rows:
            _draw_row(drawing, row)
        _legend(figure, drawing)
    return figure


def _bottom(rows: tuple[_Row, ...]) -> float:
    return rows[-1].top + rows[-1].height if rows else 1.0


def _rows(tracks: Iterable[Track]) -> Iterator[_Row]:
    """Rows from top to bottom: waiting shares the row of computing, collectives show where chunks do not."""
    by_class: dict[int, dict[str, list[Track]]] = {}
    for track in tracks:
        title = "compute" if track.family == "wait" else track.title
        by_class.setdefault(track.npu_class, {}).setdefault(title, []).append(track)
    top = 0.0
    for npu_class, groups in by_class.items():
        top += 0.9  # room for the name of the ranks
        chunks = any(track.family == "dimension" for group in groups.values() for track in group)
        for title, group in groups.items():
            if chunks and group[0].family == "collective":
                continue
            height = 2.7 if group[0].family in NAMED else 1.0
            yield _Row(title, npu_class, top, height, tuple(group))
            top += height


def _draw_row(drawing: _Drawing, row: _Row) -> None:
    """The slices of a row, concurrent ones beside each other, and their names."""
    num_lanes = 1 + max(track.lane for track in row.tracks)
    shown = num_lanes if num_lanes <= MOST_LANES else 1
    height = (row.height - 0.2) / shown
    for track in row.tracks:
        top = row.top + 0.1 + height * (track.lane if shown == num_lanes else 0)
        for colour, start_ns, end_ns in _by_colour(drawing, track):
            _draw(drawing, colour, (top, top + height), start_ns, end_ns)
        if track.family in NAMED and shown == 1 and not track.lane:
            _name_slices(drawing, row, track)


def _by_colour(drawing: _Drawing, track: Track) -> Iterator[tuple[str, Ints, Ints]]:
    """A track's slices, colour by colour; where there are very many, those a pixel apart become one."""
    events = drawing.view.events
    start, end = events.start_ns[track.rows], events.end_ns[track.rows]
    colour = np.array(colours(drawing.view, track))
    pixel = max(drawing.span_ns // PIXELS, 1)
    for each in sorted(set(colour.tolist())):
        chosen = colour == each
        if int(chosen.sum()) > PIXELS // 4:
            yield each, *merge(start[chosen] // pixel * pixel, -(-end[chosen] // pixel) * pixel)
        else:
            yield each, start[chosen], end[chosen]


def _draw(drawing: _Drawing, colour: str, edges: tuple[float, float], start_ns: Ints, end_ns: Ints) -> None:
    """Rectangles of one colour between two heights; a white edge, which would hide what is narrow, for wide ones."""
    from matplotlib.collections import PolyCollection

    left, right = start_ns / drawing.scale, end_ns / drawing.scale
    top, bottom = (np.full(len(left), edge) for edge in edges)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    shapes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    lines = np.where(end_ns - start_ns > 16 * drawing.span_ns / PIXELS, 0.3, 0.0)
    drawing.axes.add_collection(PolyCollection(list(shapes), facecolors=colour, edgecolors="white", linewidths=lines))


def _name_slices(drawing: _Drawing, row: _Row, track: Track) -> None:
    """Names in the slices of a track, along or upright, where they fit."""
    events, colour = drawing.view.events, colours(drawing.view, track)
    ns_per_inch = drawing.span_ns / AXIS_INCHES
    for index, fill in zip(track.rows.tolist(), colour, strict=True):
        start, end = int(events.start_ns[index]), int(events.end_ns[index])
        layer, layers = int(events.layer[index]), drawing.timeline.layers
        name = layers[layer] if NO_LAYER < layer < len(layers) else events.names[int(events.name[index])]
        length, room = (len(name) + 1) * CHARACTER_INCHES, (end - start) / ns_per_inch
        upright = room > 1.6 * LABEL_POINTS / 72 and length < row.height * ROW_INCHES
        if length < room or upright:
            drawing.axes.text(
                (start + end) / 2 / drawing.scale, row.top + row.height / 2, name, ha="center", va="center",
                rotation=0 if length < room else 90, fontsize=LABEL_POINTS, color=text_on(fill), parse_math=False,
                clip_on=True,
            )  # fmt: skip


def _draw_curves(drawing: _Drawing, axes: Axes, curves: Sequence[Curve]) -> None:
    """Figures over time of one title, of the first class as an area and of others as lines."""
    for curve in curves:
        times_ns, percent = np.array(curve.values).T
        edges, place = times_ns / drawing.scale, drawing.view.classes.index(curve.npu_class)
        colour = INK if place else BREAKDOWN["idle_ns"][1]
        axes.stairs(percent[:-1], edges, label=drawing.view.labels[place], color=colour, fill=not place)
    axes.set(ylabel=f"% {curves[0].title}".replace(" in ", "\nin "), ylim=(0, 105))
    axes.legend(loc="lower right", ncols=2, bbox_to_anchor=(1, 0.95), frameon=False, fontsize=7)


def _frame(drawing: _Drawing) -> None:
    """Axes, and the labels of rows and ranks."""
    axes, view, rows, scale = drawing.axes, drawing.view, drawing.rows, drawing.scale
    axes.set(xlim=(view.start_ns / scale, view.end_ns / scale), ylim=(_bottom(rows), 0))
    axes.set_yticks([row.top + row.height / 2 for row in rows], [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    labels = dict(zip(view.classes, view.labels, strict=True))
    for npu_class, row in {row.npu_class: row for row in reversed(rows)}.items():
        corner = (view.start_ns / scale, row.top - 0.05)
        text = labels[npu_class]
        axes.annotate(text, corner, (3, 0), textcoords="offset points", fontsize=8, fontweight="bold", va="bottom")


def _mark_iterations(drawing: _Drawing) -> None:
    """A line where an iteration begins, numbered where the numbers do not collide."""
    axes, view = drawing.axes, drawing.view
    room = drawing.span_ns / AXIS_INCHES * 0.75
    named_until = -np.inf
    for index, (start_ns, _) in enumerate(drawing.timeline.iterations):
        if not view.start_ns <= start_ns < view.end_ns:
            continue
        axes.axvline(start_ns / drawing.scale, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        if start_ns >= named_until:
            top = (start_ns / drawing.scale, 1.01)
            axes.annotate(f"iteration {index}", top, xycoords=axes.get_xaxis_transform(), fontsize=7.5, va="bottom")
            named_until = start_ns + room


def _legend(figure: Figure, drawing: _Drawing) -> None:
    """What the colours mean, only those that occur; above them what the view leaves out."""
    from matplotlib.patches import Patch

    tracks = [track for row in drawing.rows for track in row.tracks]
    used = {colour for track in tracks for colour in colours(drawing.view, track)}
    entries = [entry for entry in meanings(drawing.timeline, drawing.view) if entry[0] in used]
    handles = [Patch(color=colour, label=label) for colour, label in entries]
    note = "left out: " + "; ".join(drawing.view.left_out) if drawing.view.left_out else None
    if handles or note:
        columns = max(min(len(handles), 7), 1)
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, title=note)
        legend.get_title().set_fontsize(7)


STAGE_INCHES, STAGE_AXIS_INCHES = 0.42, 11.0
CELL_POINTS = 7.0
DIGIT_INCHES = 0.65 * CELL_POINTS / 72
KINDS = {"F": ("forward", PHASES[0]), "B": ("backward", PHASES[1]), "W": ("weight gradient", PHASES[2])}
KINDS["E"] = ("end of the step", DIMENSIONS[1])
BUBBLE = ("bubble", BREAKDOWN["idle_ns"][1])

Bar = tuple[int, int, int, str, str, bool]  # stage, start and end in ns, colour, name, whether of a later chunk


def stages_figure(timeline: Timeline, view: View) -> Figure:
    """Stage by time: cells, what reduces and gathers behind them, and the bubbles between."""
    told = timeline.pipeline
    if told is None:
        raise InputError.at("timeline", "the run has no pipeline", expected="a workload with pp above 1")
    bars = [
        (stage, start_ns, end_ns, KINDS[kind][1], str(micro_batch) if kind in "FBW" else "", chunk > 0)
        for stage, kind, micro_batch, chunk, start_ns, end_ns in told.cells
        if start_ns < view.end_ns and end_ns > view.start_ns
    ]
    scale, unit = largest_unit(view.end_ns - view.start_ns)
    with canvas(WIDTH_INCHES, 1.3 + STAGE_INCHES * told.stages) as (figure, axes):
        axes.set(xlim=(view.start_ns / scale, view.end_ns / scale), ylim=(told.stages, 0))
        axes.set(xlabel=f"simulated time ({unit})", ylabel="stage")
        axes.set_yticks([stage + 0.5 for stage in range(told.stages)], [str(s) for s in range(told.stages)])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        for stage in range(told.stages):
            width = timeline.time_ns / scale
            axes.broken_barh([(0, width)], (stage + 0.08, 0.84), facecolor=BUBBLE[1], alpha=0.35, linewidth=0)
        _draw_cells(axes, bars, scale, (view.end_ns - view.start_ns) / STAGE_AXIS_INCHES)
        _cell_legend(figure, bars, told)
    return figure


def _draw_cells(axes: Axes, bars: Sequence[Bar], scale: float, ns_per_inch: float) -> None:
    alike: dict[tuple[int, str, bool, float], list[tuple[float, float]]] = {}
    for stage, start_ns, end_ns, colour, name, later in bars:
        line = 0.4 if end_ns - start_ns > 0.03 * ns_per_inch else 0.0
        places = alike.setdefault((stage, colour, later, line), [])
        places.append((start_ns / scale, (end_ns - start_ns) / scale))
        if len(name) * DIGIT_INCHES < (end_ns - start_ns) / ns_per_inch:
            axes.text(
                (start_ns + end_ns) / 2 / scale, stage + 0.52, name, ha="center", va="center", fontsize=CELL_POINTS,
                color=text_on(colour), clip_on=True,
            )  # fmt: skip
    for (stage, colour, later, line), places in alike.items():
        height = (stage + 0.08, 0.84) if not later else (stage + 0.2, 0.72)
        axes.broken_barh(places, height, facecolor=colour, edgecolor="white", linewidth=line)


def _cell_legend(figure: Figure, bars: Sequence[Bar], told: PipelineRun) -> None:
    from matplotlib.patches import Patch

    used = {bar[3] for bar in bars}
    handles = [Patch(color=colour, label=label) for label, colour in KINDS.values() if colour in used]
    handles.append(Patch(color=BUBBLE[1], alpha=0.35, label=BUBBLE[0]))
    title = f"{told.schedule}, {told.micro_batches} micro-batches"
    title += "; cells of later chunks are lower" * (told.chunks > 1)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, title=title)
