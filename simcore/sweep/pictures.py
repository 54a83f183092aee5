"""Pictures of a study: what varies against time, how it scales, what it trades, and the runs that no other beats."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.errors import InputError
from simcore.front import front
from simcore.report.palette import DIMENSIONS, FAMILIES, HEAT, INK, PHASES
from simcore.report.plots import canvas, name_front, plain
from simcore.report.table import shorten
from simcore.sweep.run import Row
from simcore.units import largest_unit, unit_of_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = (PHASES[0], *DIMENSIONS[:3], FAMILIES["wait"], PHASES[1])
MARKERS = "os^Dv*"
LEAST_FILLED = 0.5  # of a heat map's cells; with fewer, points are plainer
MOST_CELLS = 24  # with figures written into them, along one side
MOST_TICKS = 40  # names along one side


def study_figure(rows: Sequence[Row], varied: Sequence[str]) -> Figure:
    """Time against what varies, of runs that did not fail; `varied` names at least one option or part."""
    axes_values = {name: _values(rows, name) for name in varied}
    changing = [name for name in varied if len(axes_values[name]) > 1] or [varied[0]]
    scale, unit = largest_unit(max(row["figures"]["time_ns"] for row in rows))
    with canvas(7, 4.8) as (figure, axes):
        cells = prod(len(axes_values[name]) for name in changing)
        if len(changing) == 2 and len(rows) >= LEAST_FILLED * cells:
            _heat_map(axes, rows, changing, [axes_values[name] for name in changing], scale, unit)
        else:
            _curves(axes, rows, changing, scale, unit)
    return figure


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The different values of one thing: numbers in order, then others as they come."""
    seen = {json.dumps(value): value for value in (row["options"].get(name) for row in rows)}
    return sorted(seen.values(), key=lambda value: (not _is_number(value), value if _is_number(value) else 0))


def _is_number(value: object) -> bool:
    """Whether a value that varies is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as people write it: what is no number or text as JSON, what is not there as a dash."""
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _axis_name(name: str, values: Sequence[object]) -> str:
    """A thing that varies with the unit of its values, where these are numbers or lists of numbers.

    >>> _axis_name("topology.bandwidth", [[25], [50, 50]]), _axis_name("topology.bandwidth[0]", ["200 Gb/s"])
    ('topology.bandwidth (GB/s)', 'topology.bandwidth[0]')
    """
    unit = unit_of_key(name.rpartition(".")[2].partition("[")[0])
    numbers = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return f"{name} ({unit})" if unit and all(map(_is_number, numbers)) else name


def _label(value: object) -> str:
    return plain(shown(value), 24)


def _heat_map(
    axes: Axes, rows: Sequence[Row], names: Sequence[str], values: Sequence[list[Any]], scale: float, unit: str
) -> None:
    """A cell per pair of values, blank where there is no run; the shortest is framed."""
    from matplotlib.patches import Rectangle

    down, across = ({json.dumps(value): place for place, value in enumerate(some)} for some in values)
    times = np.full((len(down), len(across)), np.nan)
    for row in rows:
        place = tuple(json.dumps(row["options"].get(name)) for name in names)
        times[down[place[0]], across[place[1]]] = row["figures"]["time_ns"] / scale
    picture = axes.imshow(
        np.ma.masked_invalid(times), cmap=HEAT, aspect="auto", interpolation="nearest", origin="lower"
    )
    for set_ticks, some in ((axes.set_yticks, values[0]), (axes.set_xticks, values[1])):
        step = -(-len(some) // MOST_TICKS)
        set_ticks(range(0, len(some), step), [_label(value) for value in some[::step]])
    axes.tick_params(axis="x", rotation=90 if len(across) > 6 else 0)
    ylabel, xlabel = (_axis_name(name, some) for name, some in zip(names, values, strict=True))
    axes.set(ylabel=ylabel, xlabel=xlabel)
    y, x = np.unravel_index(np.nanargmin(times), times.shape)
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=FAMILIES["wait"], linewidth=2))
    axes.figure.colorbar(picture, ax=axes, label=f"time ({unit})")
    middle = (np.nanmin(times) + np.nanmax(times)) / 2
    for (row_at, column_at), time in np.ndenumerate(times) if max(times.shape) <= MOST_CELLS // 2 else ():
        if np.isfinite(time):
            colour = "white" if time > middle else "black"
            axes.text(column_at, row_at, f"{time:.3g}", ha="center", va="center", color=colour, in_layout=False)


def _by_setting(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by what they have of `names`; all together, without a name, where there are more settings than colours."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        values = (f"{name} = {shown(row['options'].get(name))}" for name in names)
        found.setdefault(plain(", ".join(values), 60), []).append(row)
    return found if len(found) <= len(CURVES) else {"": list(rows)}


def _curves(axes: Axes, rows: Sequence[Row], changing: Sequence[str], scale: float, unit: str) -> None:
    """Time against the thing with most values; a curve per setting of the others, or points where they are many."""
    across = max(changing, key=lambda name: len(_values(rows, name)))
    others = [name for name in changing if name != across]
    curves = _by_setting(rows, others)
    values = _values(rows, across)
    numeric = all(map(_is_number, values))
    places = {json.dumps(value): value if numeric else place for place, value in enumerate(values)}
    lines = "-" if len(curves) < len(rows) and ("" not in curves or not others) else ""
    for (label, some), colour, marker in zip(curves.items(), CURVES, MARKERS, strict=False):
        points = sorted((places[json.dumps(row["options"].get(across))], row["figures"]["time_ns"]) for row in some)
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, [y / scale for y in ys], f"{marker}{lines}", color=colour, label=label, markersize=4)
    if not numeric:
        axes.set_xticks(range(len(values)), [_label(value) for value in values], rotation=90 if len(values) > 4 else 0)
    axes.set(xlabel=_axis_name(across, values), ylabel=f"time ({unit})", ylim=(0, None))
    if any(curves):
        axes.figure.legend(frameon=False, loc="outside lower center")


TWO_COLUMNS = 38  # characters of a legend's entry that leave room for another beside it

Measure = Callable[[Row], float]
"""A number of a run."""


def measure(rows: Sequence[Row], varied: Sequence[str], name: str) -> Measure:
    """What reads a figure, or an option that varies and is a number in every run, off a row; InputError if there is no
    such figure or option, or it is not always a number.
    """
    figures = [each for each in rows[0]["figures"] if all(each in row["figures"] for row in rows)]
    if name in figures:
        return lambda row: row["figures"][name]
    numbers = [each for each in varied if all(_is_number(row["options"].get(each)) for row in rows)]
    if name not in numbers:
        message = "no figure and no number that every run has"
        raise InputError.at("--pareto", message, expected=", ".join((*figures, *numbers)), found=repr(name))
    return lambda row: float(str(row["options"][name]))


def scaling_figure(rows: Sequence[Row], varied: Sequence[str]) -> Figure:
    """Time against NPUs on logarithmic axes, a curve for each setting of what does not decide the number of NPUs."""
    from matplotlib.ticker import LogLocator

    scale, unit = largest_unit(max(row["figures"]["time_ns"] for row in rows))
    npus, time = measure(rows, varied, "npus"), measure(rows, varied, "time_ns")
    curves = _by_setting(rows, [name for name in varied if _is_apart(rows, name)])
    with canvas(7, 4.8) as (figure, axes):
        for (label, some), colour, marker in zip(curves.items(), CURVES, MARKERS, strict=False):
            points = [(npus(row), time(row) / scale) for row in some]
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=label or "runs", markersize=5)
            shortest = dict(sorted(points, reverse=True))
            if len({row["options"].get("topology") for row in some}) == 1:  # other networks make no curve
                axes.plot(*zip(*sorted(shortest.items()), strict=True), "-", color=colour, linewidth=1)
        unbeaten = [(npus(row), time(row) / scale) for row in front(rows, npus, time)]
        ticks = sorted({int(row["figures"]["npus"]) for row in rows})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter("{x:g}")  # as people write numbers
        ticks = ticks[:: -(-len(ticks) // 10)]
        axes.set_xticks(ticks, [f"{count:,}" for count in ticks])
        axes.minorticks_off()
        axes.set(xlabel="NPUs", ylabel=f"time ({unit})")
        _mark(axes, unbeaten, "no run is faster on as few NPUs", front(rows, npus, time), varied)
        beside = 2 if len(curves) > 2 and max(map(len, curves)) < TWO_COLUMNS else 1
        figure.legend(frameon=False, loc="outside lower center", ncols=beside)
    return figure


def trade_figure(rows: Sequence[Row], varied: Sequence[str], names: tuple[str, str]) -> Figure:
    """Every run as a point in two figures, and the line of those that no other beats in both."""
    across, up = (measure(rows, varied, name) for name in names)
    (wide, xlabel), (high, ylabel) = _scale(rows, across, names[0]), _scale(rows, up, names[1])
    points, best = ([(across(row) / wide, up(row) / high) for row in some] for some in (rows, front(rows, across, up)))
    with canvas(7, 4.8) as (figure, axes):
        axes.plot(*zip(*points, strict=True), "o", color=CURVES[0], alpha=0.6, markersize=5, label="runs")
        axes.plot(*zip(*best, strict=True), "-", color=INK, linewidth=1, drawstyle="steps-post")
        _mark(axes, best, "no run is better in both", front(rows, across, up), set(varied) - {*names})
        axes.set(xlabel=xlabel, ylabel=ylabel)
        figure.legend(frameon=False, loc="outside lower center", ncols=2)
    return figure


def _scale(rows: Sequence[Row], figure: Measure, name: str) -> tuple[float, str]:
    """What a figure is divided by on its axis, and the axis's name."""
    if not name.endswith("_ns"):
        return 1.0, _axis_name(name, list(map(figure, rows)))
    scale, unit = largest_unit(max(map(figure, rows)))
    return scale, f"{name.removesuffix('_ns').replace('_', ' ')} ({unit})"


def _mark(
    axes: Axes, points: Sequence[tuple[float, float]], label: str, rows: Sequence[Row], names: Collection[str]
) -> None:
    """Rings around the points of a front, and what its runs have of `names`."""
    axes.plot(*zip(*points, strict=True), "o", markersize=11, markerfacecolor="none", color=INK, label=label)
    told = (", ".join(shown(value) for name, value in row["options"].items() if name in names) for row in rows)
    name_front(axes, points, [shorten(text, 40) for text in told])


def _is_apart(rows: Sequence[Row], name: str) -> bool:
    """Whether runs of one value have several numbers of NPUs, so that the value makes a curve."""
    sizes: dict[str, set[float]] = {}
    for row in rows:
        sizes.setdefault(json.dumps(row["options"].get(name)), set()).add(row["figures"]["npus"])
    return len(sizes) > 1 and any(len(some) > 1 for some in sizes.values())
