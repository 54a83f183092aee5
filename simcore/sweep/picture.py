"""The picture of a study: a heat map of two things that vary, otherwise curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.report.grid import shorten
from simcore.report.palette import DIMENSIONS, FAMILIES, HEAT, PHASES
from simcore.report.plots import new_figure, styled, time_unit
from simcore.sweep.run import Row
from simcore.units import unit_of_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["axis_name", "is_number", "settings", "shown", "study_figure"]

CURVES = (PHASES[0], *DIMENSIONS[:3], FAMILIES["wait"], PHASES[1])
MARKERS = "os^Dv*"
LEAST_FILLED = 0.5  # of a heat map's cells; with fewer, points are plainer
MOST_CELLS = 24  # with figures written into them, along one side
MOST_TICKS = 40  # names along one side


def study_figure(rows: Sequence[Row], varied: Sequence[str]) -> Figure:
    """Time against what varies, of runs that did not fail; `varied` names at least one option or part."""
    axes_values = {name: _values(rows, name) for name in varied}
    changing = [name for name in varied if len(axes_values[name]) > 1] or [varied[0]]
    scale, unit = time_unit(max(row["figures"]["time_ns"] for row in rows))
    with styled():
        figure = new_figure(7, 4.8)
        axes = figure.subplots()
        cells = prod(len(axes_values[name]) for name in changing)
        if len(changing) == 2 and len(rows) >= LEAST_FILLED * cells:
            _heat_map(axes, rows, changing, [axes_values[name] for name in changing], scale, unit)
        else:
            _curves(axes, rows, changing, scale, unit)
    return figure


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The different values of one thing: numbers in order, then others as they come."""
    seen = {json.dumps(value): value for value in (row["options"].get(name) for row in rows)}
    return sorted(seen.values(), key=lambda value: (not is_number(value), value if is_number(value) else 0))


def is_number(value: object) -> bool:
    """Whether a value that varies is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as people write it: what is no number or text as JSON, what is not there as a dash."""
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def axis_name(name: str, values: Sequence[object]) -> str:
    """A thing that varies with the unit of its values, where these are numbers.

    >>> axis_name("topology.bandwidth[0]", [25, 50]), axis_name("topology.bandwidth[0]", ["200 Gb/s"])
    ('topology.bandwidth[0] (GB/s)', 'topology.bandwidth[0]')
    """
    unit = unit_of_key(name.rpartition(".")[2].partition("[")[0])
    return f"{name} ({unit})" if unit and all(map(is_number, values)) else name


def _label(value: object) -> str:
    return shorten(shown(value), 24).replace("$", r"\$")


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
    ylabel, xlabel = (axis_name(name, some) for name, some in zip(names, values, strict=True))
    axes.set(ylabel=ylabel, xlabel=xlabel)
    y, x = np.unravel_index(np.nanargmin(times), times.shape)
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=FAMILIES["wait"], linewidth=2))
    axes.figure.colorbar(picture, ax=axes, label=f"time ({unit})")
    if max(times.shape) <= MOST_CELLS // 2:
        _write_cells(axes, times)


def _write_cells(axes: Axes, times: Any) -> None:
    low, high = np.nanmin(times), np.nanmax(times)
    for (down, across), time in np.ndenumerate(times):
        if np.isfinite(time):
            colour = "white" if high > low and (time - low) / (high - low) > 0.5 else "black"
            axes.text(across, down, f"{time:.3g}", ha="center", va="center", color=colour)


def settings(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by what they have of `names`; all together, without a name, where there are more settings than colours."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        values = (f"{name} = {shown(row['options'].get(name))}" for name in names)
        found.setdefault(shorten(", ".join(values), 60).replace("$", r"\$"), []).append(row)
    return found if len(found) <= len(CURVES) else {"": list(rows)}


def _curves(axes: Axes, rows: Sequence[Row], changing: Sequence[str], scale: float, unit: str) -> None:
    """Time against the thing with most values; a curve per setting of the others, or points where they are many."""
    across = max(changing, key=lambda name: len(_values(rows, name)))
    others = [name for name in changing if name != across]
    curves = settings(rows, others)
    values = _values(rows, across)
    numeric = all(map(is_number, values))
    places = {json.dumps(value): value if numeric else place for place, value in enumerate(values)}
    lines = "-" if len(curves) < len(rows) and ("" not in curves or not others) else ""
    for (label, some), colour, marker in zip(curves.items(), CURVES, MARKERS, strict=False):
        points = sorted((places[json.dumps(row["options"].get(across))], row["figures"]["time_ns"]) for row in some)
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, [y / scale for y in ys], f"{marker}{lines}", color=colour, label=label, markersize=4)
    if not numeric:
        axes.set_xticks(range(len(values)), [_label(value) for value in values], rotation=90 if len(values) > 4 else 0)
    axes.set(xlabel=axis_name(across, values), ylabel=f"time ({unit})", ylim=(0, None))
    if any(curves):
        axes.figure.legend(frameon=False, loc="outside lower center")
