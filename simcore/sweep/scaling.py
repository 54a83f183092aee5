"""How a study scales: time against NPUs, and the runs that no other beats in both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcore.report.grid import shorten
from simcore.report.palette import INK
from simcore.report.plots import new_figure, styled, time_unit
from simcore.sweep.picture import CURVES, MARKERS
from simcore.sweep.run import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["front", "scaling_figure"]


def front(rows: Sequence[Row]) -> list[Row]:
    """The runs that none beats: every other takes longer or more NPUs; by NPUs ascending, one of equal runs.

    >>> front([{"figures": {"npus": n, "time_ns": t}} for n, t in ((4, 9), (8, 9), (8, 5), (16, 6))])
    [{'figures': {'npus': 4, 'time_ns': 9}}, {'figures': {'npus': 8, 'time_ns': 5}}]
    """
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["figures"]["npus"], row["figures"]["time_ns"])):
        if not best or row["figures"]["time_ns"] < best[-1]["figures"]["time_ns"]:
            best.append(row)
    return best


def scaling_figure(rows: Sequence[Row], varied: Sequence[str]) -> Figure:
    """Time against NPUs on logarithmic axes, a curve for each setting of what does not decide the number of NPUs."""
    scale, unit = time_unit(max(row["figures"]["time_ns"] for row in rows))
    curves = _curves(rows, [name for name in varied if _is_apart(rows, name)])
    with styled():
        figure = new_figure(7, 4.8)
        axes = figure.subplots()
        for (label, some), colour, marker in zip(curves.items(), CURVES, MARKERS, strict=False):
            points = [(row["figures"]["npus"], row["figures"]["time_ns"] / scale) for row in some]
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=label or "runs", markersize=5)
            shortest = dict(sorted(points, reverse=True))
            axes.plot(*zip(*sorted(shortest.items()), strict=True), "-", color=colour, linewidth=1)
        unbeaten = [(row["figures"]["npus"], row["figures"]["time_ns"] / scale) for row in front(rows)]
        label = "no run is faster on as few NPUs"
        axes.plot(*zip(*unbeaten, strict=True), "o", markersize=11, markerfacecolor="none", color=INK, label=label)
        ticks = sorted({row["figures"]["npus"] for row in rows})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        shown = ticks[:: -(-len(ticks) // 10)]
        axes.set_xticks(shown, [f"{npus:,}" for npus in shown])
        axes.minorticks_off()
        axes.set(xlabel="NPUs", ylabel=f"time ({unit})")
        figure.legend(frameon=False, loc="outside upper center", ncols=2 if len(curves) > 2 else 1)
    return figure


def _is_apart(rows: Sequence[Row], name: str) -> bool:
    """Whether runs of one value have several numbers of NPUs, so that the value makes a curve."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(json.dumps(row["options"].get(name)), set()).add(row["figures"]["npus"])
    return len(sizes) > 1 and any(len(some) > 1 for some in sizes.values())


def _curves(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by setting; all together where there are more settings than colours."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        values = (f"{name} = {json.dumps(row['options'].get(name))}" for name in names)
        curves.setdefault(shorten(", ".join(values), 60).replace("$", r"\$"), []).append(row)
    return curves if len(curves) <= len(CURVES) else {"": list(rows)}
