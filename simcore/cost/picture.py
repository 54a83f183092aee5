"""Predictions in pictures: their errors, what a step consists of, time against memory, and memory over a step.

That also as a page, a table, and counters for Perfetto and Chrome.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simcore.cost.answer import Answer
from simcore.cost.occupancy import Occupancy, occupancy
from simcore.files import write_bytes
from simcore.model.plan import unlike
from simcore.report.palette import DIMENSIONS, FAMILIES, INK, PHASES
from simcore.report.plots import KINDS, canvas, image, name_front, titled
from simcore.report.table import Table, columns
from simcore.units import format_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    rows, suites = sum(len(one.rows) for one in scored), f"{len(scored)} suite{'s' * (len(scored) != 1)}"
    missed = "; vermillion: outside its tolerance" * any(one.missed for one in scored)
    return titled(figure, f"Error of {rows:,} predictions in {suites}; bar: mean |error|{missed}")


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
    step, low, high = (format_ns(1e9 * one) for one in (answer.step_s, *answer.interval_s))
    return titled(figure, f"{_job(answer)}: {step} ({low} to {high})")


def front_figure(found: Found, asked: str = "") -> Figure:
    """The best and the front of a search: step time against memory; `asked` is what was searched for."""
    from matplotlib.ticker import LogLocator

    with canvas(7, 6) as (figure, axes):
        sizes = ([(one.memory_bytes / 1e9, one.step_s) for one in some] for some in (found.best, found.front))
        best, front = map(np.array, sizes)
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


# --- memory over a step


_COLOURS = {"parameters": PHASES[2], "gradients": DIMENSIONS[2], "optimizer": DIMENSIONS[0]}
_IN_FLIGHT = (PHASES[1], "#A6D8F5")  # micro-batches by turns
_MOST_PANELS = 6


def occupancies(answer: Answer) -> list[Occupancy]:
    """Every stage's memory over the step that differs from those before it, in kind or in what is in flight."""
    plan = answer.plan
    some = range(plan.pp) if plan.pp <= _MOST_PANELS else unlike(answer.model, plan.outline, plan.cuts)
    return [occupancy(answer.model, plan, answer.cluster, stage) for stage in some]


def told(one: Occupancy) -> str:
    """The peak with its cause, and what the allocator adds."""
    peak = one.peak
    held = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in one.lasting.items() if size)
    flying = f"{len(peak.flying)} micro-batch{'es' * (len(peak.flying) > 1)}"
    more = f", activations of {flying} {peak.activations / 1e9:.1f}" if peak.flying else ""
    more += f", workspace {peak.workspace / 1e9:.1f}" if peak.workspace else ""
    return (
        f"stage {one.stage}: {one.peak_bytes / 1e9:.2f} GB at {peak.time_s:.4g} s, {peak.cause} ({held}{more});"
        f" the allocator reserves {one.reserved_bytes / 1e9:.2f} GB"
    )


def write_memory(answer: Answer, some: Sequence[Occupancy], path: Path) -> None:
    """Write the curves as the suffix says: a picture, .html, .csv, or .json for Chrome."""
    suffix = path.suffix.lower()
    if suffix in KINDS:
        write_bytes(path, image(memory_figure(some, answer), KINDS[suffix]))
    else:
        write_bytes(path, _WRITERS[suffix](some, answer).encode())


def memory_figure(some: Sequence[Occupancy], answer: Answer) -> Figure:
    """A panel a stage: what lasts, the activations of the micro-batches in flight, and what segments hold."""
    from matplotlib.patches import Patch

    capacity = answer.cluster.memory_bytes / 1e9
    with canvas(9, 1.2 + 1.7 * len(some), height_ratios=[1.0] * len(some), sharex=True) as (figure, panels):
        for axes, one in zip(panels, some, strict=True):
            _panel(axes, one, capacity)
        panels[-1].set_xlabel("time (s)")
        patches = [Patch(color=colour, label=name) for name, colour in _COLOURS.items()]
        patches += [Patch(color=_IN_FLIGHT[0], label="activations, micro-batch by micro-batch")]
        patches += [Patch(color=FAMILIES["wait"], label="workspace")]
        figure.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return titled(figure, f"{_job(answer)}: memory")


def _job(answer: Answer) -> str:
    return f"{answer.model.name} on {answer.plan.world_size} x {answer.cluster.accelerator}"


def _panel(axes: Axes, one: Occupancy, capacity: float) -> None:
    times, base = [moment.time_s for moment in one.moments], [0.0] * len(one.moments)

    def stack(sizes: Sequence[float], colour: str) -> None:
        nonlocal base
        top = [under + size / 1e9 for under, size in zip(base, sizes, strict=True)]
        axes.fill_between(times, base, top, step="post", color=colour, linewidth=0)
        base = top

    for name, size in one.lasting.items():
        stack([size] * len(times), _COLOURS[name])
    for place in range(max(len(moment.flying) for moment in one.moments)):
        for turn, colour in enumerate(_IN_FLIGHT):
            # The micro-batch at a place in the order of arrival, if its colour's turn it is.
            there = ((0, 0) if place >= len(moment.flying) else moment.flying[place] for moment in one.moments)
            stack([size if number % len(_IN_FLIGHT) == turn else 0 for number, size in there], colour)
    stack([moment.workspace for moment in one.moments], FAMILIES["wait"])
    axes.plot(times, [moment.reserved / 1e9 for moment in one.moments], color=INK, linewidth=0.8, linestyle=":")
    axes.axhline(capacity, color=INK, linewidth=0.8)
    axes.annotate("the device", (1, capacity), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)
    axes.plot([one.peak.time_s], [one.peak_bytes / 1e9], "o", color=INK, markersize=3)
    axes.set_title(f"stage {one.stage}: {one.peak_bytes / 1e9:.1f} GB, {one.peak.cause}", fontsize=8, loc="left")
    axes.set(ylabel="GB", ylim=(0, 1.1 * max(capacity, one.reserved_bytes / 1e9)), xlim=(times[0], times[-1]))


def _csv(some: Sequence[Occupancy], _: Answer) -> str:
    """A row for every moment; bytes."""
    lasting, held = ("parameters", "gradients", "optimizer"), ("activations", "workspace", "allocated", "reserved")
    rows = [
        {"stage": one.stage, "time_s": now.time_s, "cause": now.cause, "micro_batches": len(now.flying)}
        | one.lasting
        | {name: getattr(now, name) for name in held}
        for one in some
        for now in one.moments
    ]
    return Table("", columns("stage", "time_s", "cause", *lasting, held[0], "micro_batches", *held[1:]), rows).csv()


def _chrome(some: Sequence[Occupancy], _: Answer) -> str:
    """Counters of bytes, a process a stage; times in microseconds."""
    events = list[dict[str, object]]()
    for one in some:
        events.append({"ph": "M", "name": "process_name", "pid": one.stage, "args": {"name": f"stage {one.stage}"}})
        for now in one.moments:
            held = one.lasting | {"activations": now.activations, "workspace": now.workspace}
            for name, args in (("memory", held), ("reserved", {"bytes": now.reserved})):
                at_us = round(now.time_s * 1e6, 3)
                events.append({"ph": "C", "name": name, "pid": one.stage, "ts": at_us, "args": args})
    return json.dumps({"traceEvents": events}, sort_keys=True)


def _html(some: Sequence[Occupancy], answer: Answer) -> str:
    """One page without anything from elsewhere."""
    picture = base64.b64encode(image(memory_figure(some, answer), "png")).decode()
    peaks = "".join(f"<li>{html.escape(told(one))}</li>" for one in some)
    title = html.escape(f"{_job(answer)}: memory")
    page = Path(__file__).with_name("memory.html").read_text(encoding="utf-8")
    return page.format(title=title, peaks=peaks, picture=picture)


_WRITERS = {".csv": _csv, ".html": _html, ".json": _chrome}
