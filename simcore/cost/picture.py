"""Pictures of predictions: their errors, what a step consists of, and time against memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simcore.report.palette import FAMILIES, INK, PHASES
from simcore.report.plots import canvas, name_front, titled
from simcore.units import format_ns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simcore.cost.answer import Answer
    from simcore.cost.published.validate import Scored
    from simcore.cost.search import Candidate, Found


def predictions_figure(scored: Sequence[Scored]) -> Figure:
    """The error of every row, a line for each suite, the most exact on top; the bar is the suite's mean |error|."""
    scored = sorted((one for one in scored if one.rows), key=lambda one: one.mean)
    with canvas(9, 1.3 + 0.24 * max(len(scored), 2)) as (figure, axes):
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, one in enumerate(scored):
            colour = FAMILIES["wait"] if one.missed else PHASES[0]
            axes.barh(place, 200 * one.mean, left=-100 * one.mean, height=0.8, color=colour, alpha=0.2, linewidth=0)
            axes.plot([100 * error for error in one.errors], [place] * len(one.rows), ".", color=colour, alpha=0.5)
        names = [f"{one.suite.name}, {len(one.rows)} rows, {one.mean:.1%}" for one in scored]
        axes.set_yticks(range(len(scored)), names, fontsize=8)
        axes.set(xlabel="predicted over measured: too long by (%)", ylim=(len(scored) - 0.4, -0.6))
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.5)
    rows = sum(len(one.rows) for one in scored)
    missed = "; vermillion: outside its tolerance" * any(one.missed for one in scored)
    return titled(
        figure,
        f"Error of {rows:,} predictions in {len(scored)} suite{'s' * (len(scored) != 1)}; bar: mean |error|{missed}",
    )


def step_figure(answer: Answer) -> Figure:
    """What a step consists of, its parts from the largest down."""
    parts = sorted(((one, name) for name, one in answer.prediction.parts.items() if one), reverse=True)
    with canvas(8, 1.0 + 0.32 * len(parts)) as (figure, axes):
        colours = [PHASES[0] if name == "compute" else FAMILIES["wait"] for _, name in parts]
        bars = axes.barh([name.replace("_", " ") for _, name in parts], [one for one, _ in parts], color=colours)
        shares = [f"{format_ns(1e9 * one)}, {one / answer.step_s:.1%}" for one, _ in parts]
        axes.bar_label(bars, shares, padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.set(xlabel="time (s)")
    title = f"{answer.model.name} on {answer.plan.world_size} x {answer.cluster.accelerator}"
    step, low, high = (format_ns(1e9 * one) for one in (answer.step_s, *answer.interval_s))
    return titled(figure, f"{title}: {step} ({low} to {high})")


def front_figure(found: Found, asked: str = "") -> Figure:
    """The best and the front of a search: step time against memory; `asked` is what was searched for."""
    from matplotlib.ticker import LogLocator

    with canvas(7, 6) as (figure, axes):
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
        name_front(axes, list(map(tuple, front)), list(map(_settings, found.front)))
        axes.set(xlabel="memory per accelerator (GB)", ylabel="step (s)")
        axes.legend(fontsize=8, frameon=False, loc="upper right")
    best_s = f"{format_ns(1e9 * found.best[0].step_s)} at best, with {_settings(found.best[0])}"
    return titled(figure, ": ".join(filter(None, (asked, best_s))))


def _settings(one: Candidate) -> str:
    return f"{one.plan.degrees.replace(',', '')} {one.plan.schedule_name}"
