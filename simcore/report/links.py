"""A map of a flat network (2-D mesh, torus, wafer): every link where it lies, coloured by what it carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.report.palette import HEAT, INK
from simcore.report.plots import new_figure, styled
from simcore.timeline.events import LinkTable, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["map_figure"]

Places = NDArray[np.float64]
MEGA = 1e6
ASIDE = 0.1  # how far a link lies beside the middle: its twin lies on the other side
NEAR, FAR = 0.28, 0.72  # where arrows begin and end between two nodes
SIDE = 0.4  # of a node's square
MOST_NAMES = 400
LARGEST_INCHES = 14.0


def map_figure(timeline: Timeline) -> Figure:
    """Links as arrows coloured by their bytes, row 0 on top; a torus's links around leave the map at its edge.

    Raises
    ------
    InputError
        If the run did not model links, or its network does not lie flat.
    """
    links = timeline.links
    if links is None or not len(links.size_bytes):
        raise InputError.at("--links", "this run has no links", expected="a run with --network congested or fair")
    if links.coordinates is None:
        kinds = " x ".join(f"{kind}({npus})" for kind, npus in timeline.dims)
        raise InputError.at(
            "--links", "this network has no map", expected="two dimensions of Mesh or Ring, or a wafer", found=kinds
        )
    places = links.coordinates.astype(float)
    with styled():
        columns, rows = places.reshape(-1, 2).max(axis=0) + 1
        scale = min(0.75, LARGEST_INCHES / max(columns, rows))
        figure = new_figure(max(columns * scale, 3) + 2.2, max(rows * scale, 2.5) + 1)
        axes = figure.subplots()
        _draw_nodes(figure, axes, timeline, links, places)
        _draw_links(figure, axes, links, places)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set(xlim=(-0.8, columns - 0.2), ylim=(rows - 0.2, -0.8))
        axes.set_title(_hottest(links, timeline.time_ns), fontsize=9, color=INK)
        axes.spines[:].set_visible(False)
    return figure


def _draw_links(figure: Figure, axes: Axes, links: LinkTable, places: Places) -> None:
    start, stop = _arrows(places)
    megabytes = links.size_bytes / MEGA
    order = np.argsort(megabytes, kind="stable")  # the hottest on top
    arrows = axes.quiver(
        *start[order].T, *(stop - start)[order].T, megabytes[order], cmap=HEAT, angles="xy", scale_units="xy", scale=1,
        width=0.06, units="xy", headwidth=2.4, headlength=2.4, headaxislength=2.4,
    )  # fmt: skip
    arrows.set_clim(0, max(float(megabytes.max()), 1e-9))
    figure.colorbar(arrows, ax=axes, label="bytes over the link (MB)", shrink=0.8)


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
        axes.text(x, y, "×", ha="center", va="center", fontsize=14, color=INK)  # dead
    if len(cells) <= MOST_NAMES:
        for number, ((column, row), name) in enumerate(cells.items()):
            colour = "white" if shades is not None and shades[number] > max(1.2, shades.max() / 2) else INK
            axes.text(column, row, name.partition("(")[0], ha="center", va="center", fontsize=6, color=colour)


def _loads(timeline: Timeline, names: list[str]) -> NDArray[np.float64] | None:
    """How long every named NPU computes over their mean, 0 for what is no NPU; None where the run did not say."""
    load = timeline.wafer.load_ns if timeline.wafer else None
    if load is None or not load.any():
        return None
    numbers = [int(name) if name.isdecimal() else len(load) for name in names]
    shades: NDArray[np.float64] = np.append(load / load.mean(), 0.0)[np.minimum(numbers, len(load))]
    return shades


def _hottest(links: LinkTable, time_ns: int) -> str:
    """The link with the most bytes and how long it was busy."""
    link = int(links.size_bytes.argmax())
    busy = links.busy_ns[link] / max(time_ns, 1)
    return f"hottest: {links.src[link]} to {links.dst[link]}, {links.size_bytes[link] / MEGA:.4g} MB, busy {busy:.0%}"
