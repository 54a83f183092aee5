"""The timeline as a picture: a row for computing, one per dimension of the network, iterations marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.report.palette import INK, text_on
from simcore.report.plots import new_figure, styled, time_unit
from simcore.report.selection import View
from simcore.report.tracks import Track, colours, lay_out, meanings
from simcore.timeline.breakdown import merge
from simcore.timeline.events import NO_LAYER, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["timeline_figure"]

Ints = NDArray[np.int64]

WIDTH_INCHES = 12.0
PIXELS = 4000  # slices of one colour closer than this fraction of the width are drawn as one
MOST_LANES = 4  # concurrent slices shown beside each other; more are drawn as one bar
LABEL_SIZE = 6.5
INCHES_PER_CHARACTER = 0.62 * LABEL_SIZE / 72
AXIS_INCHES = 10.0  # about what the rows' labels leave of the width


@dataclass(frozen=True, slots=True)
class _Bar:
    """Slices of one colour in a part of a row: `bottom` and `height` in rows, from the row's top edge downwards."""

    row: int
    bottom: float
    height: float
    colour: str
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the picture: its label, and the tracks that share it."""

    label: str
    npu_class: int
    tracks: tuple[Track, ...]


def timeline_figure(timeline: Timeline, view: View) -> Figure:
    """A Gantt chart of a view: slices coloured by what they are, named where the name fits."""
    rows = list(_rows(lay_out(timeline, view)))
    with styled():
        figure = new_figure(WIDTH_INCHES, 1.5 + 0.3 * len(rows) + 0.25 * len(view.classes))
        axes = figure.subplots()
        places = _places(rows)
        scale, unit = time_unit(view.end_ns - view.start_ns)
        _frame(axes, timeline, view, rows, places, scale, unit)
        for bar in _bars(rows, view):
            _draw(axes, bar, places[bar.row], scale)
        _name_slices(axes, timeline, view, rows, places, scale)
        _legend(figure, timeline, view, rows)
        if view.left_out:
            figure.supxlabel("left out: " + "; ".join(view.left_out), fontsize=7, x=0.01, ha="left")
    return figure


def _rows(tracks: Iterable[Track]) -> Iterator[_Row]:
    """Rows from top to bottom: waiting shares the row of computing, collectives show where chunks do not."""
    by_class: dict[int, dict[str, list[Track]]] = {}
    for track in tracks:
        title = "compute" if track.family == "wait" else track.title
        by_class.setdefault(track.npu_class, {}).setdefault(title, []).append(track)
    for npu_class, groups in by_class.items():
        chunks = any(track.family == "dimension" for group in groups.values() for track in group)
        for title, group in groups.items():
            if not (chunks and group[0].family == "collective"):
                yield _Row(title, npu_class, tuple(group))


def _places(rows: list[_Row]) -> list[float]:
    """The top edge of each row: a gap with the ranks' label above every class."""
    places, at, previous = [], 0.0, None
    for row in rows:
        at += 0.9 if row.npu_class != previous else 0.0
        places.append(at)
        at, previous = at + 1, row.npu_class
    return places


def _bars(rows: list[_Row], view: View) -> Iterator[_Bar]:
    for index, row in enumerate(rows):
        num_lanes = 1 + max(track.lane for track in row.tracks)
        shown = num_lanes if num_lanes <= MOST_LANES else 1
        for track in row.tracks:
            lane = track.lane if shown == num_lanes else 0
            for colour, start, end in _by_colour(view, track):
                yield _Bar(index, 0.1 + 0.8 * lane / shown, 0.8 / shown, colour, start, end)


def _by_colour(view: View, track: Track) -> Iterator[tuple[str, Ints, Ints]]:
    """A track's slices, colour by colour; those a pixel apart become one."""
    start, end = view.events.start_ns[track.rows], view.events.end_ns[track.rows]
    colour = np.array(colours(view, track))
    pixel = max((view.end_ns - view.start_ns) // PIXELS, 1)
    for each in sorted(set(colour.tolist())):
        chosen = colour == each
        if int(chosen.sum()) > PIXELS // 4:
            yield each, *merge(start[chosen] // pixel * pixel, -(-end[chosen] // pixel) * pixel)
        else:
            yield each, start[chosen], end[chosen]


def _draw(axes: Axes, bar: _Bar, place: float, scale: float) -> None:
    from matplotlib.collections import PolyCollection

    left, right = bar.start_ns / scale, bar.end_ns / scale
    top = np.full(len(left), place + bar.bottom)
    corners = [(left, top), (right, top), (right, top + bar.height), (left, top + bar.height)]
    shape = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    widest = axes.get_xlim()[1] - axes.get_xlim()[0]
    edges = np.where(right - left > 16 * widest / PIXELS, 0.3, 0.0)  # a white edge would hide what is narrow
    axes.add_collection(PolyCollection(list(shape), facecolors=bar.colour, edgecolors="white", linewidths=edges))


def _name_slices(
    axes: Axes, timeline: Timeline, view: View, rows: list[_Row], places: list[float], scale: float
) -> None:
    """Names of computations, where they fit."""
    ns_per_inch = (view.end_ns - view.start_ns) / AXIS_INCHES
    events = view.events
    for row, place in zip(rows, places, strict=True):
        for track in row.tracks:
            if track.family not in ("compute", "host") or track.lane:
                continue
            fill = colours(view, track)
            for index, colour in zip(track.rows.tolist(), fill, strict=True):
                start, end = int(events.start_ns[index]), int(events.end_ns[index])
                layer = int(events.layer[index])
                name = timeline.layers[layer] if layer != NO_LAYER else events.names[int(events.name[index])]
                if end - start > (len(name) + 1) * INCHES_PER_CHARACTER * ns_per_inch:
                    axes.text(
                        (start + end) / 2 / scale, place + 0.52, name, ha="center", va="center", clip_on=True,
                        fontsize=LABEL_SIZE, color=text_on(colour), parse_math=False,
                    )  # fmt: skip


def _frame(
    axes: Axes, timeline: Timeline, view: View, rows: list[_Row], places: list[float], scale: float, unit: str
) -> None:
    """Axes, labels of rows and ranks, marks of iterations."""
    bottom = places[-1] + 1 if places else 1.0
    axes.set(xlim=(view.start_ns / scale, view.end_ns / scale), ylim=(bottom, 0), xlabel=f"simulated time ({unit})")
    axes.set_yticks([place + 0.5 for place in places], [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    for npu_class, label in zip(view.classes, view.labels, strict=True):
        first = next((place for row, place in zip(rows, places, strict=True) if row.npu_class == npu_class), None)
        if first is not None:
            corner = (view.start_ns / scale, first - 0.05)
            axes.annotate(label, corner, (3, 0), textcoords="offset points", fontsize=8, fontweight="bold", va="bottom")
    _mark_iterations(axes, timeline, view, scale)


def _mark_iterations(axes: Axes, timeline: Timeline, view: View, scale: float) -> None:
    """A line where an iteration begins, numbered where the numbers do not collide."""
    from matplotlib.transforms import blended_transform_factory

    across = blended_transform_factory(axes.transData, axes.transAxes)
    room = (view.end_ns - view.start_ns) / AXIS_INCHES * 0.75
    named_until = -np.inf
    for index, (start_ns, _) in enumerate(timeline.iterations):
        if not view.start_ns <= start_ns < view.end_ns:
            continue
        axes.axvline(start_ns / scale, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        if start_ns >= named_until:
            axes.text(start_ns / scale, 1.01, f"iteration {index}", transform=across, fontsize=7.5, va="bottom")
            named_until = start_ns + room


def _legend(figure: Figure, timeline: Timeline, view: View, rows: list[_Row]) -> None:
    """What the colours mean; only those that occur."""
    from matplotlib.patches import Patch

    used = {colour for row in rows for track in row.tracks for colour in set(colours(view, track))}
    handles = [Patch(color=colour, label=label) for colour, label in meanings(timeline, view) if colour in used]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 7), frameon=False)
