"""A pipelined run as a picture: a row for every stage, its cells with the numbers of their micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simcore.errors import InputError
from simcore.report.palette import BREAKDOWN, DIMENSIONS, PHASES, text_on
from simcore.report.plots import new_figure, styled, time_unit
from simcore.report.selection import View
from simcore.timeline.events import PipelineRun, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["stages_figure"]

WIDTH_INCHES, ROW_INCHES, AXIS_INCHES = 12.0, 0.42, 11.0
POINTS = 7.0
CHARACTER_INCHES = 0.65 * POINTS / 72
KINDS = {"F": ("forward", PHASES[0]), "B": ("backward", PHASES[1]), "W": ("weight gradient", PHASES[2])}
KINDS["E"] = ("end of the step", DIMENSIONS[1])
BUBBLE = ("bubble", BREAKDOWN["idle_ns"][1])

Bar = tuple[int, int, int, str, str, bool]  # stage, start and end in ns, colour, name, whether of a later chunk


def stages_figure(timeline: Timeline, view: View) -> Figure:
    """Stage by time: cells, what reduces and gathers behind them, and the bubbles between."""
    told = timeline.pipeline
    if told is None:
        raise InputError.at("timeline", "the run has no pipeline", expected="a workload with pp above 1")
    bars = [bar for bar in _bars(told) if bar[1] < view.end_ns and bar[2] > view.start_ns]
    scale, unit = time_unit(view.end_ns - view.start_ns)
    with styled():
        figure = new_figure(WIDTH_INCHES, 1.3 + ROW_INCHES * told.stages)
        axes = figure.subplots()
        axes.set(xlim=(view.start_ns / scale, view.end_ns / scale), ylim=(told.stages, 0))
        axes.set(xlabel=f"simulated time ({unit})", ylabel="stage")
        axes.set_yticks([stage + 0.5 for stage in range(told.stages)], [str(s) for s in range(told.stages)])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        for stage in range(told.stages):
            width = timeline.time_ns / scale
            axes.broken_barh([(0, width)], (stage + 0.08, 0.84), facecolor=BUBBLE[1], alpha=0.35, linewidth=0)
        _draw(axes, bars, scale, (view.end_ns - view.start_ns) / AXIS_INCHES)
        _legend(figure, bars, told)
    return figure


def _bars(told: PipelineRun) -> Iterator[Bar]:
    """Cells and ends of steps."""
    for stage, kind, micro_batch, chunk, start_ns, end_ns in told.cells:
        yield stage, start_ns, end_ns, KINDS[kind][1], str(micro_batch) if kind in "FBW" else "", chunk > 0


def _draw(axes: Axes, bars: Sequence[Bar], scale: float, ns_per_inch: float) -> None:
    alike: dict[tuple[int, str, bool, float], list[tuple[float, float]]] = {}
    for stage, start_ns, end_ns, colour, name, later in bars:
        line = 0.4 if end_ns - start_ns > 0.03 * ns_per_inch else 0.0
        places = alike.setdefault((stage, colour, later, line), [])
        places.append((start_ns / scale, (end_ns - start_ns) / scale))
        if len(name) * CHARACTER_INCHES < (end_ns - start_ns) / ns_per_inch:
            axes.text(
                (start_ns + end_ns) / 2 / scale, stage + 0.52, name, ha="center", va="center", fontsize=POINTS,
                color=text_on(colour), clip_on=True,
            )  # fmt: skip
    for (stage, colour, later, line), places in alike.items():
        height = (stage + 0.08, 0.84) if not later else (stage + 0.2, 0.72)
        axes.broken_barh(places, height, facecolor=colour, edgecolor="white", linewidth=line)


def _legend(figure: Figure, bars: Sequence[Bar], told: PipelineRun) -> None:
    from matplotlib.patches import Patch

    used = {bar[3] for bar in bars}
    handles = [Patch(color=colour, label=label) for label, colour in KINDS.values() if colour in used]
    handles.append(Patch(color=BUBBLE[1], alpha=0.35, label=BUBBLE[0]))
    title = f"{told.schedule}, {told.micro_batches} micro-batches"
    title += "; cells of later chunks are lower" * (told.chunks > 1)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, title=title)
