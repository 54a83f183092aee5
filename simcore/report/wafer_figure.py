"""Pictures of wafers: who sent to whom, nodes or, layer by layer, cores; the cost of faults. `links` draws the map."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.files import write_text
from simcore.report.palette import DIMENSIONS, INK
from simcore.report.plots import canvas, heat, save
from simcore.report.table import Table, columns
from simcore.units import format_bytes
from simcore.workload.wafer import CoreStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
UNFIT = re.compile(r"[^\w.-]")  # in the name of a file
MOST_MATRICES = 6  # pictures of single layers in a folder; traffic.csv has them all


def matrix_figure(sent_bytes: IntArray, title: str = "") -> Figure:
    """Bytes from every node (rows) to every node (columns), with what each sends and receives in total."""
    with canvas(9, 8) as (figure, axes):
        heat(figure, axes, sent_bytes, "bytes sent")
        sent, received = sent_bytes.sum(axis=1), sent_bytes.sum(axis=0)
        most = f"most sent {format_bytes(int(sent.max(initial=0)))}"
        most += f", most received {format_bytes(int(received.max(initial=0)))}"
        axes.set(xlabel="to node", ylabel="from node")
        axes.set_title("\n".join(filter(None, (title, most))), color=INK, fontsize=10)
    return figure


def write_wafer(traffic: Mapping[str, IntArray], folder: Path) -> None:
    """traffic.csv: bytes from node to node per layer; matrix.png of all layers, and of the first few of each own."""
    rows: list[tuple[object, ...]] = []
    for layer, sent in traffic.items():
        at = np.nonzero(sent)
        rows += [(layer, *row) for row in zip(*(column.tolist() for column in (*at, sent[at])), strict=True)]
    write_text(folder / "traffic.csv", Table("", columns("layer", "source", "target", "bytes"), rows).csv())
    save(matrix_figure(np.sum(list(traffic.values()), axis=0), "all layers"), folder / "matrix.png")
    for layer in list(traffic)[:MOST_MATRICES] if len(traffic) > 1 else ():
        save(matrix_figure(traffic[layer], layer), folder / f"matrix_{UNFIT.sub('_', layer)}.png")


def slowdown_figure(faults: Sequence[int], slowdown: Sequence[FloatArray], what: str) -> Figure:
    """Slowdown against the number of faults, an array of draws for each number; the line is the median."""
    with canvas(7, 4.5) as (figure, axes):
        spread = np.repeat(np.asarray(faults), [len(draws) for draws in slowdown])
        axes.scatter(spread, np.concatenate(slowdown), s=12, color=DIMENSIONS[0], alpha=0.6, label="one draw")
        axes.plot(faults, [np.median(draws) for draws in slowdown], color=INK, label="median")
        axes.set(xlabel=what, ylabel="time / time without more faults")
        axes.legend(frameon=False)
    return figure


Moves = Mapping[tuple[int, int], int]
"""(Core or bank that sends, the one that receives), by the wafer's numbers -> bytes."""
LAYER = re.compile(r"[a-z]+\d+|lm_head")
MOST_LINES = 20_000


def layers_of(step: CoreStep) -> dict[str, Moves]:
    """Bytes between places, by the layer that an instruction's comment begins with, without what stays at home."""
    found: dict[str, dict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
    for core, trace in enumerate(step.traces):
        for each in trace:
            layer = LAYER.match(each.comment)
            ends = each.ends(core) if layer else ()
            for target in ends[1:]:
                if target != ends[0] and layer:
                    found[layer[0]][ends[0], target] += int(each.arguments[-1])
    return dict(found)


def node_bytes(moves: Moves, nodes: int, cores: int) -> NDArray[np.int64]:
    """Bytes from node (row) to node (column)."""
    found = np.zeros((nodes, nodes), np.int64)
    for (source, target), size_bytes in moves.items():
        found[source // cores, target // cores] += size_bytes
    return found


def moves_figure(moves: Moves, title: str, node_grid: tuple[int, int], core_grid: tuple[int, int]) -> Figure:
    """The wafer with a line for every two places that exchange bytes, and the matrix of its nodes.

    Node row 0 is on top; a line is as dark as its share of the most.
    """
    nodes, cores = (rows * columns for rows, columns in (node_grid, core_grid))
    between = node_bytes(moves, nodes, cores)
    with canvas(13, 6, 1, 2) as (figure, (wafer, matrix)):
        _draw_wafer(wafer, moves, node_grid, core_grid)
        heat(figure, matrix, between, "bytes")
        matrix.set(xlabel="to node", ylabel="from node", title="nodes; the diagonal stays inside")
        crossing = int(between.sum() - np.trace(between))
        head = f"{title}: {format_bytes(int(between.sum()))} between cores, {format_bytes(crossing)} between nodes"
        figure.suptitle(head, color=INK)
    return figure


def _draw_wafer(axes: Axes, moves: Moves, node_grid: tuple[int, int], core_grid: tuple[int, int]) -> None:
    """Frames of nodes, dots of cores, lines of moves."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    (rows, columns), (core_rows, core_columns) = node_grid, core_grid
    for node in range(rows * columns):
        corner = node % columns * core_columns - 0.5, node // columns * core_rows - 0.5
        axes.add_patch(Rectangle(corner, core_columns, core_rows, fill=False, edgecolor=INK, linewidth=1.2))
    order = sorted(moves, key=lambda pair: moves[pair])[-MOST_LINES:]
    places = _places(node_grid, core_grid)
    axes.plot(places[:, 0], places[:, 1], ".", markersize=4, color=INK)
    if order:
        shares = np.array([moves[pair] for pair in order]) / moves[order[-1]]
        lines = LineCollection(list(places[np.array(order)]), colors="tab:red", linewidths=1.0, alpha=list(shares))
        axes.add_collection(lines)
    left_out = f"; the {MOST_LINES:,} largest of {len(moves):,}" if len(order) < len(moves) else ""
    axes.set(aspect="equal", xticks=[], yticks=[], title=f"cores and banks{left_out}")
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-1, columns * core_columns), ylim=(rows * core_rows, -1))


def _places(node_grid: tuple[int, int], core_grid: tuple[int, int]) -> NDArray[np.float64]:
    """Column and row of every core, by the wafer's numbers."""
    cores = core_grid[0] * core_grid[1]
    number = np.arange(node_grid[0] * node_grid[1] * cores)
    node, core = np.divmod(number, cores)
    x = node % node_grid[1] * core_grid[1] + core % core_grid[1]
    y = node // node_grid[1] * core_grid[0] + core // core_grid[1]
    return np.stack([x, y], axis=1).astype(float)
