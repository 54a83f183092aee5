"""How a study scales, and what it trades: one figure against another, and the runs that no other beats in both."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from simcore.errors import InputError
from simcore.report.grid import shorten
from simcore.report.palette import INK
from simcore.report.plots import name_front, new_figure, styled, time_unit
from simcore.sweep.picture import CURVES, MARKERS, axis_name, is_number, settings, shown
from simcore.sweep.run import FIGURES, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Measure", "front", "measure", "scaling_figure", "trade_figure"]

TWO_COLUMNS = 38  # characters of a legend's entry that leave room for another beside it

Measure = Callable[[Row], float]
"""A number of a run."""


def measure(rows: Sequence[Row], varied: Sequence[str], name: str) -> Measure:
    """What reads a figure, or an option that varies and is a number in every run, off a row.

    Raises
    ------
    InputError
        If there is no such figure or option, or it is not always a number.
    """
    if name in FIGURES:
        return lambda row: row["figures"][name]
    numbers = [each for each in varied if all(is_number(row["options"].get(each)) for row in rows)]
    if name not in numbers:
        message = "no figure and no number that every run has"
        raise InputError.at("--pareto", message, expected=", ".join((*FIGURES, *numbers)), found=repr(name))
    return lambda row: float(str(row["options"][name]))


def front(rows: Sequence[Row], across: Measure, up: Measure) -> list[Row]:
    """The runs that none beats in both figures, less being better; ascending, one of equal runs.

    >>> rows = [{"figures": {"npus": n, "time_ns": t}} for n, t in ((4, 9), (8, 9), (8, 5), (16, 6))]
    >>> front(rows, lambda row: row["figures"]["npus"], lambda row: row["figures"]["time_ns"])
    [{'figures': {'npus': 4, 'time_ns': 9}}, {'figures': {'npus': 8, 'time_ns': 5}}]
    """
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (across(row), up(row))):
        if not best or up(row) < up(best[-1]):
            best.append(row)
    return best


def scaling_figure(rows: Sequence[Row], varied: Sequence[str]) -> Figure:
    """Time against NPUs on logarithmic axes, a curve for each setting of what does not decide the number of NPUs."""
    from matplotlib.ticker import LogLocator

    scale, unit = time_unit(max(row["figures"]["time_ns"] for row in rows))
    npus, time = measure(rows, varied, "npus"), measure(rows, varied, "time_ns")
    curves = settings(rows, [name for name in varied if _is_apart(rows, name)])
    with styled():
        figure = new_figure(7, 4.8)
        axes = figure.subplots()
        for (label, some), colour, marker in zip(curves.items(), CURVES, MARKERS, strict=False):
            points = [(npus(row), time(row) / scale) for row in some]
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=label or "runs", markersize=5)
            shortest = dict(sorted(points, reverse=True))
            if len({row["options"].get("topology") for row in some}) == 1:  # other networks make no curve
                axes.plot(*zip(*sorted(shortest.items()), strict=True), "-", color=colour, linewidth=1)
        unbeaten = [(npus(row), time(row) / scale) for row in front(rows, npus, time)]
        ticks = sorted({row["figures"]["npus"] for row in rows})
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
    with styled():
        figure = new_figure(7, 4.8)
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), "o", color=CURVES[0], alpha=0.6, markersize=5, label="runs")
        axes.plot(*zip(*best, strict=True), "-", color=INK, linewidth=1, drawstyle="steps-post")
        _mark(axes, best, "no run is better in both", front(rows, across, up), set(varied) - {*names})
        axes.set(xlabel=xlabel, ylabel=ylabel)
        figure.legend(frameon=False, loc="outside lower center", ncols=2)
    return figure


def _scale(rows: Sequence[Row], figure: Measure, name: str) -> tuple[float, str]:
    """What a figure is divided by on its axis, and the axis's name."""
    if not name.endswith("_ns"):
        return 1.0, axis_name(name, list(map(figure, rows)))
    scale, unit = time_unit(max(map(figure, rows)))
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
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(json.dumps(row["options"].get(name)), set()).add(row["figures"]["npus"])
    return len(sizes) > 1 and any(len(some) > 1 for some in sizes.values())
