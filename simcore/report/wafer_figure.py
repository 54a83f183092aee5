"""Pictures of wafers: who sent to whom, the cost of faults. `links` draws the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.files import write_text
from simcore.report.palette import DIMENSIONS, HEAT, INK
from simcore.report.plots import new_figure, save, styled
from simcore.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["matrix_figure", "slowdown_figure", "write_wafer"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
MEGA = 1e6
MOST_MATRICES = 6  # pictures of single layers in a folder; traffic.csv has them all


def matrix_figure(sent_bytes: IntArray, title: str = "") -> Figure:
    """Bytes from every node (rows) to every node (columns), with what each sends and receives in total."""
    with styled():
        figure = new_figure(9, 8)
        axes = figure.subplots()
        shown = np.ma.masked_equal(sent_bytes / MEGA, 0)
        picture = axes.imshow(shown, cmap=HEAT, interpolation="nearest")
        figure.colorbar(picture, ax=axes, label="bytes sent (MB)", shrink=0.8)
        sent, received = sent_bytes.sum(axis=1), sent_bytes.sum(axis=0)
        most = f"most sent {format_bytes(sent.max(initial=0))}, most received {format_bytes(received.max(initial=0))}"
        axes.set(xlabel="to node", ylabel="from node")
        axes.set_title("\n".join(filter(None, (title, most))), color=INK, fontsize=10)
    return figure


def write_wafer(traffic: Mapping[str, IntArray], folder: Path) -> None:
    """traffic.csv: bytes from node to node per layer; matrix.png of all layers, and of the first few of each own."""
    lines = ["layer,source,target,bytes"]
    for layer, sent in traffic.items():
        at = np.nonzero(sent)
        lines += [
            f"{layer},{a},{b},{c}" for a, b, c in zip(*(column.tolist() for column in (*at, sent[at])), strict=True)
        ]
    write_text(folder / "traffic.csv", "\n".join(lines) + "\n")
    save(matrix_figure(np.sum(list(traffic.values()), axis=0), "all layers"), folder / "matrix.png")
    for layer in list(traffic)[:MOST_MATRICES] if len(traffic) > 1 else ():
        save(matrix_figure(traffic[layer], layer), folder / f"matrix_{layer}.png")


def slowdown_figure(faults: Sequence[int], slowdown: Sequence[FloatArray], what: str) -> Figure:
    """Slowdown against the number of faults, an array of draws for each number; the line is the median."""
    with styled():
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        spread = np.repeat(np.asarray(faults), [len(draws) for draws in slowdown])
        axes.scatter(spread, np.concatenate(slowdown), s=12, color=DIMENSIONS[0], alpha=0.6, label="one draw")
        axes.plot(faults, [np.median(draws) for draws in slowdown], color=INK, label="median")
        axes.set(xlabel=what, ylabel="time / time without more faults")
        axes.legend(frameon=False)
    return figure
