"""Pictures of predictions: predicted against measured, and time against memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.report.palette import DIMENSIONS, FAMILIES, INK, PHASES
from simcore.report.plots import new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simcore.cost.answer import Answer
    from simcore.cost.published.validate import Scored
    from simcore.cost.search import Candidate, Found

__all__ = ["front_figure", "predictions_figure", "step_figure"]

COLOURS = (PHASES[0], *DIMENSIONS[:3], FAMILIES["wait"], PHASES[1])
ABOVE: dict[str, Any] = {"xytext": (5, 4)}
BELOW: dict[str, Any] = {"xytext": (-5, -5), "ha": "right", "va": "top"}
MARKERS = "os^Dv*X"  # one more than there are colours: six times seven pairs before one comes again


def predictions_figure(scored: Sequence[Scored]) -> Figure:
    """Every row of every suite, predicted over measured seconds, both logarithmic; the diagonal is exact."""
    scored = [one for one in scored if one.suite.unit == "s" and one.rows] or scored
    with styled():
        figure = new_figure(9, 6)
        axes = figure.subplots()
        for one, colour, marker in zip(scored, cycle(COLOURS), cycle(MARKERS), strict=False):
            measured = [row.measured for row in one.rows]
            predicted = [prediction.step_s for prediction in one.predictions]
            label = f"{one.suite.name} ({one.mean:.1%})"
            axes.scatter(measured, predicted, s=12, alpha=0.6, color=colour, marker=marker, label=label, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="predicted (s)")
        ends = [end([row.measured for one in scored for row in one.rows]) for end in (min, max)]
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        figure.legend(title="suite (mean |error|)", fontsize=8, frameon=False, loc="outside right center")
    return figure


def step_figure(answer: Answer) -> Figure:
    """What a step consists of, its parts from the largest down."""
    parts = sorted(((one, name) for name, one in answer.prediction.parts.items() if one), reverse=True)
    with styled():
        figure = new_figure(8, 1.0 + 0.32 * len(parts))
        axes = figure.subplots()
        colours = [PHASES[0] if name == "compute" else FAMILIES["wait"] for _, name in parts]
        bars = axes.barh([name.replace("_", " ") for _, name in parts], [one for one, _ in parts], color=colours)
        axes.bar_label(bars, [f"{one:.4g} s, {one / answer.step_s:.1%}" for one, _ in parts], padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.2)
        low, high = answer.interval_s
        axes.set(xlabel="s")
        title = f"{answer.model.name} on {answer.plan.world_size} x {answer.cluster.accelerator}"
        axes.set_title(f"{title}: {answer.step_s:.4g} s ({low:.4g} to {high:.4g})", fontsize=9, loc="left")
    return figure


def front_figure(found: Found) -> Figure:
    """The best and the front of a search: step time against memory."""
    from matplotlib.ticker import LogLocator

    with styled():
        figure = new_figure(7, 6)
        axes = figure.subplots()
        best, front = (
            np.array([(one.memory_bytes / 1e9, one.step_s) for one in some]) for some in (found.best, found.front)
        )
        axes.plot(*best.T, "o", label="fastest", color=PHASES[1], markersize=5)
        label = "fastest at each memory"
        axes.plot(*front.T, "s-", label=label, color=FAMILIES["wait"], markersize=5, drawstyle="steps-post")
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(LogLocator(subs=(1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
        for shown in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            shown("{x:g}")
        axes.margins(x=0.15)
        middle_bytes = max((one.memory_bytes for one in found.front), default=0) / 2
        for one in _apart(found.front):
            # The front falls to the right: free is what lies above and right of it, or near the frame below and left.
            where = BELOW if one.memory_bytes > middle_bytes else ABOVE
            place = (one.memory_bytes / 1e9, one.step_s)
            axes.annotate(_settings(one), place, textcoords="offset points", fontsize=7, **where)
        axes.set(xlabel="memory per accelerator (GB)", ylabel="step (s)")
        figure.legend(fontsize=8, frameon=False, loc="outside upper center", ncols=2)
    return figure


def _settings(one: Candidate) -> str:
    degrees = ((name, getattr(one.plan, name)) for name in ("tp", "pp", "cp", "ep", "dp"))
    return " ".join(f"{name}{value}" for name, value in degrees if value > 1) + f" {one.plan.schedule_name}"


def _apart(front: Sequence[Candidate]) -> Iterator[Candidate]:
    """The points that can be labelled: those a thirtieth of the (logarithmic) height above the last labelled one."""
    if not front:
        return
    least = (front[-1].step_s / front[0].step_s) ** (1 / 30)
    last_s = 0.0
    for one in front:
        if one.step_s >= last_s * least:
            last_s = one.step_s
            yield one
