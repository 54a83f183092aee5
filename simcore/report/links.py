"""The links of a network coloured by what they carried: on a map where it lies flat, otherwise from node to node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.report.palette import HEAT, INK
from simcore.report.plots import canvas, heat, styled
from simcore.timeline.events import LinkTable, Timeline, in_order_of_coming
from simcore.units import SIZES, format_bytes, largest_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Places = NDArray[np.float64]
CARRIED = "bytes over the link"
ASIDE = 0.1  # how far a link lies beside the middle: its twin lies on the other side
NEAR, FAR = 0.28, 0.72  # where arrows begin and end between two nodes
SIDE = 0.4  # of a node's square
MOST_NAMES = 400
MOST_NODES = 128  # of a matrix
LARGEST_INCHES = 14.0


def links_figure(timeline: Timeline) -> Figure:
    """Links coloured by the bytes they carried in a `timeline` (`Report.timeline`); the title names the one with most.

    Where the network lies flat (meshes, tori, wafers) links are arrows, row 0 on top; a torus's links around leave the
    map at its edge. Of other networks a matrix shows them, of many nodes those whose links carried most.
    InputError when the run has no links.
    """
    links = timeline.links
    if links is None or not len(links.size_bytes):
        expected = "a run with --network congested or fair" if links is None else "a topology of several NPUs"
        raise InputError.at("--links", "this run has no links", expected=expected)
    figure = _matrix(links) if links.coordinates is None else _map(timeline, links, links.coordinates.astype(float))
    most = int(links.size_bytes.argmax())  # the longest busy may be another one
    busy, carried = links.busy_ns[most] / max(timeline.time_ns, 1), format_bytes(int(links.size_bytes[most]))
    over = f" in {len(timeline.iterations)} iterations" * (len(timeline.iterations) > 1)
    told = f"most over {links.src[most]} to {links.dst[most]}: {carried}{over}, busy {busy:.0%}"
    with styled():
        figure.axes[0].set_title(told, fontsize=9, color=INK)
    return figure


def _map(timeline: Timeline, links: LinkTable, places: Places) -> Figure:
    columns, rows = places.reshape(-1, 2).max(axis=0) + 1
    scale = min(0.75, LARGEST_INCHES / max(columns, rows))
    with canvas(max(columns * scale, 3) + 2.2, max(rows * scale, 2.5) + 1) as (figure, axes):
        _draw_nodes(figure, axes, timeline, links, places)
        _draw_links(figure, axes, links, places)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set(xlim=(-0.8, columns - 0.2), ylim=(rows - 0.2, -0.8))
        axes.spines[:].set_visible(False)
    return figure


def _matrix(links: LinkTable) -> Figure:
    """A cell for every two nodes that a link joins: numbered nodes in order, then the others."""
    fullest = np.argsort(-links.size_bytes, kind="stable")
    src, dst, names = links.ends()
    pairs = np.stack([src, dst], axis=1)[fullest]
    shown = sorted(in_order_of_coming(pairs.ravel())[:MOST_NODES].tolist(), key=lambda node: _numbers(names[node]))
    nodes, place = [names[node] for node in shown], np.full(len(names), -1)
    place[shown] = np.arange(len(shown))
    inside = (place[pairs] >= 0).all(axis=1)
    carried = np.zeros((len(nodes), len(nodes)), np.int64)
    row, column = place[pairs[inside]][::-1].T  # of several between two nodes the fullest is written last
    carried[row, column] = links.size_bytes[fullest[inside]][::-1]
    side = min(max(3.5, 0.22 * len(nodes) + 2), 9)
    ticks = range(0, len(nodes), max(1, len(nodes) // 24))
    with canvas(side + 1, side) as (figure, axes):
        heat(figure, axes, carried, CARRIED)
        axes.set_xticks(ticks, [nodes[tick] for tick in ticks], rotation=90)
        axes.set_yticks(ticks, [nodes[tick] for tick in ticks])
        left_out = f" ({len(nodes)} of {len(names):,} nodes)" if len(names) > len(nodes) else ""
        axes.set(xlabel=f"to{left_out}", ylabel="from")
    return figure


def _numbers(name: str) -> list[str | int]:
    """To sort names by the numbers in them: 2, 10, switch@0.2, switch@0.10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _draw_links(figure: Figure, axes: Axes, links: LinkTable, places: Places) -> None:
    start, stop = _arrows(places)
    scale, unit = largest_unit(float(links.size_bytes.max()), SIZES)
    carried = links.size_bytes / scale
    order = np.argsort(carried, kind="stable")  # the fullest on top
    arrows = axes.quiver(
        *start[order].T, *(stop - start)[order].T, carried[order], cmap=HEAT, angles="xy", scale_units="xy", scale=1,
        width=0.06, units="xy", headwidth=2.4, headlength=2.4, headaxislength=2.4,
    )  # fmt: skip
    arrows.set_clim(0, max(float(carried.max()), 1e-9))
    figure.colorbar(arrows, ax=axes, label=f"{CARRIED} ({unit})", shrink=0.8)


def _arrows(places: Places) -> tuple[Places, Places]:
    """Where the arrow of each link begins and ends; a link around begins at its node and leaves the other way."""
    source, way = places[:, :2], places[:, 2:] - places[:, :2]
    around = np.abs(way).max(axis=1) > 1
    way = np.where(around[:, None], -np.sign(way), way)
    beside = np.stack([-way[:, 1], way[:, 0]], axis=1) * ASIDE
    return source + way * NEAR + beside, source + way * FAR + beside


def _draw_nodes(figure: Figure, axes: Axes, timeline: Timeline, links: LinkTable, places: Places) -> None:
    """Squares with the nodes' names, where there is room for them; coloured by how long each computes, where known."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    cells = {tuple(cell): name for cell, name in zip(places[:, :2].tolist(), links.src, strict=True)}
    squares = PatchCollection(
        [Rectangle((x - SIDE / 2, y - SIDE / 2), SIDE, SIDE) for x, y in cells], edgecolor=INK, linewidth=0.5
    )
    shades = _loads(timeline, list(cells.values()))
    if shades is None:
        squares.set_facecolor("white")
    else:
        squares.set(array=shades, cmap="Greys", clim=(0, 2 * max(1.0, float(shades.max()) / 2)))
        figure.colorbar(squares, ax=axes, label="computing of the NPU / mean", shrink=0.8)
    axes.add_collection(squares)
    columns, rows = places.reshape(-1, 2).max(axis=0).astype(int) + 1
    for x, y in {(x, y) for x in range(columns) for y in range(rows)} - cells.keys():
        axes.text(x, y, "×", ha="center", va="center", fontsize=14, color=INK, in_layout=False)  # dead
    if len(cells) <= MOST_NAMES:
        for number, ((column, row), name) in enumerate(cells.items()):
            colour = "white" if shades is not None and shades[number] > max(1.2, shades.max() / 2) else INK
            axes.text(
                column, row, name.partition("(")[0], ha="center", va="center", fontsize=6, color=colour, in_layout=False
            )


def _loads(timeline: Timeline, names: list[str]) -> NDArray[np.float64] | None:
    """How long every named NPU computes over their mean, 0 for what is no NPU; None where the run did not say."""
    load = timeline.wafer.load_ns if timeline.wafer else None
    if load is None or not load.any():
        return None
    numbers = [int(name) if name.isdecimal() else len(load) for name in names]
    shades: NDArray[np.float64] = np.append(load / load.mean(), 0.0)[np.minimum(numbers, len(load))]
    return shades
