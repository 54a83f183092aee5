"""Pictures of a wafer: links coloured by what they carried, nodes by their load, who sent to whom, the cost of
faults.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.report.palette import DIMENSIONS, FAMILIES, HEAT, INK

__all__ = ["draw_links", "draw_matrix", "draw_slowdown"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
MEGA = 1e6


def draw_links(
    path: str | os.PathLike[str],
    places: IntArray,
    ends: tuple[IntArray, IntArray],
    link_bytes: IntArray,
    load: FloatArray,
    title: str = "",
) -> None:
    """Every directed link as an arrow beside its twin, coloured by its bytes; nodes by `load`.

    Parameters
    ----------
    places : int array, shape [nodes, 2]
        Column and row of every node; row 0 is drawn on top. Nodes after those in `load` are dead or spare.
    ends : two int arrays, shape [links]
        Source and target node of every link.
    link_bytes : int array, shape [links]
    load : float array, shape [working nodes]
        What to colour the nodes by, relative to their mean.
    """
    figure, axes = _figure(*(places.max(axis=0) + 2))
    source, target = places[ends[0]].astype(float), places[ends[1]].astype(float)
    way = target - source
    beside = np.stack([-way[:, 1], way[:, 0]], axis=1) * 0.09
    start, stop = source + way * 0.26 + beside, source + way * 0.74 + beside
    arrows = axes.quiver(
        *start.T, *(stop - start).T, link_bytes / MEGA, cmap=HEAT, angles="xy", scale_units="xy", scale=1,
        width=0.045, units="xy", headwidth=2.6, headlength=2.4, headaxislength=2.4,
    )  # fmt: skip
    arrows.set_clim(0, max(link_bytes.max(initial=0) / MEGA, 1e-9))
    figure.colorbar(arrows, ax=axes, label="bytes over the link (MB)", shrink=0.7, pad=0.02)
    _nodes(figure, axes, places, load)
    axes.set_title(title, color=INK)
    _save(figure, path)


def _nodes(figure: Any, axes: Any, places: IntArray, load: FloatArray) -> None:
    """Squares: working nodes by their load, the others grey and crossed."""
    working, rest = places[: len(load)], places[len(load) :]
    squares = axes.scatter(*working.T, c=load, cmap="Greys", vmin=0, marker="s", s=330, edgecolors=INK, linewidths=0.8)
    figure.colorbar(squares, ax=axes, label="load of the node / mean", shrink=0.7, pad=0.04)
    dark = 0.6 * max(load.max(initial=0.0), 1e-9)
    for number, (column, row) in enumerate(working.tolist()):
        colour = "white" if load[number] > dark else INK
        axes.text(column, row, str(number), ha="center", va="center", fontsize=7, color=colour)
    if len(rest):
        axes.scatter(*rest.T, c=FAMILIES["wait"], marker="x", s=90, label="dead or spare")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.02), frameon=False)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.margins(0.06)
    axes.invert_yaxis()
    for side in axes.spines.values():
        side.set_visible(False)


def draw_matrix(path: str | os.PathLike[str], sent_bytes: IntArray, title: str = "") -> None:
    """Bytes from every node (rows) to every node (columns), with what each sends and receives in total."""
    figure, axes = _figure(9, 8)
    shown = np.ma.masked_equal(sent_bytes / MEGA, 0)
    image = axes.imshow(shown, cmap=HEAT, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="bytes sent (MB)", shrink=0.8)
    sent, received = sent_bytes.sum(axis=1), sent_bytes.sum(axis=0)
    most = f"most sent {sent.max(initial=0) / MEGA:.3g} MB, most received {received.max(initial=0) / MEGA:.3g} MB"
    axes.set(xlabel="to node", ylabel="from node")
    axes.set_title("\n".join(filter(None, (title, most))), color=INK, fontsize=10)
    _save(figure, path)


def draw_slowdown(path: str | os.PathLike[str], faults: Sequence[int], slowdown: FloatArray, title: str = "") -> None:
    """Slowdown against the number of faults: shape [faults, samples]; the line is the median."""
    figure, axes = _figure(7, 4.5)
    spread = np.repeat(np.asarray(faults)[:, None], slowdown.shape[1], axis=1)
    axes.scatter(spread, slowdown, s=12, color=DIMENSIONS[0], alpha=0.6, label="one draw")
    axes.plot(faults, np.median(slowdown, axis=1), color=INK, label="median")
    axes.set(xlabel="dead links", ylabel="step time / step time without faults")
    axes.set_title(title, color=INK)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure without a window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(float(width) + 2, float(height)), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write the picture under its final name when it is complete."""
    from io import BytesIO

    from simcore.files import write_bytes

    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lstrip(".") or "png", dpi=130)
    write_bytes(path, buffer.getvalue())
