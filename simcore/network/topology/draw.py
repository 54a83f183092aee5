"""Pictures of topologies: grids as they are, everything else one group of each dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.network.topology.fabric import Fabric, FloatArray, IntArray
from simcore.network.topology.grid import coordinates
from simcore.network.topology.kinds import Ring
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension
from simcore.network.topology.twisted import TwistedTorus
from simcore.network.topology.wafer import WaferMesh
from simcore.units import format_ns, format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NPU, DEVICE, DEAD, SPARE, LINK = "#2f6fb0", "#e08a2e", "#c8c8c8", "#9fc5e8", "#8a8a8a"
BROKEN = "#c0392b"
MOST_CELLS = 1600  # a grid of more NPUs is drawn one row and column at a time
LABELLED = 60.0  # marker size, in square points, that has room for a number
LETTER = 4.5  # points of a letter; longer names stand below their nodes


@dataclass(slots=True)
class _Sketch:
    """Nodes at places and the lines between them; `note` goes below."""

    title: str
    places: FloatArray
    npus: int
    lines: list[tuple[tuple[float, float], tuple[float, float]]]
    note: str = ""
    labels: Sequence[str] = ()
    marker: str = "o"  # of NPUs
    others: str = DEVICE  # colour of what is no NPU
    dead: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    broken: list[tuple[tuple[float, float], tuple[float, float]]] = field(default_factory=list)


def draw(links: LinkGraph) -> Figure:
    """A picture of `links` (`LinkGraph(topology)`); numbers are NPU ids, as a workload counts them."""
    from matplotlib.figure import Figure

    sketches = _sketches(links)
    width = min(6.4 * len(sketches), 19.0)
    figure = Figure(figsize=(width, 6.4), layout="constrained")
    topology = links.topology
    figure.suptitle(topology.description or topology.name, fontsize=12)
    for axes, sketch in zip(np.atleast_1d(figure.subplots(1, len(sketches))), sketches, strict=True):
        _paint(axes, sketch)
    return figure


def _sketches(links: LinkGraph) -> list[_Sketch]:
    """A grid whole, other networks by dimension."""
    parts = [axis.fabric for axis in links.axes]
    if isinstance(parts[0], WaferMesh):
        return [_wafer(parts[0])]
    sides = links.topology.twisted or links.topology.dims
    grid = isinstance(parts[0], TwistedTorus) or all(isinstance(part, Ring) for part in parts)
    if grid and 2 <= len(sides) <= 3 and links.npus <= MOST_CELLS:
        return [_grid(links, sides)]
    return [_dimension(links, index) for index in range(len(parts))]


def speed(fabric: Fabric, parallel: int = 1) -> str:
    """Rate and latency of links, from the least to the most; so many parallel ones are told one by one."""
    rates, latencies = fabric.bandwidths() / parallel, fabric.latencies()
    if not len(rates):
        return "no links"
    rate, latency = (sorted({least, most}) for least, most in ((min(x), max(x)) for x in (rates, latencies)))
    times = f"{parallel} x " if parallel > 1 else ""
    return f"{times}{' to '.join(map(format_rate, rate))}, {' to '.join(map(format_ns, latency))} a hop"


def _grid(links: LinkGraph, sides: Sequence[Dimension]) -> _Sketch:
    """Two dimensions flat, a third drawn slantwise; a wrap-around link is a stub at both ends."""
    sizes = np.array([dim.npus for dim in sides])
    address = coordinates(np.arange(links.npus), sizes.tolist())
    # The slant keeps layers apart: a layer's step is a fraction of a cell that never lands on the next one.
    slant = 0.8 / max(sizes[-1], 2)
    steps = np.array([[1, 0], [0, -1], [slant, 0.7 * slant]])[: len(sides)]
    places, apart = address @ steps, address[links.src] - address[links.dst]
    lines = []
    for a, b, away in zip(links.src.tolist(), links.dst.tolist(), apart, strict=True):
        if np.abs(away).sum() > 1:
            index = int((np.abs(away) == sizes - 1).argmax())  # the side at whose ends both are
            outward = np.sign(away[index]) * steps[index] / np.linalg.norm(steps[index])
            lines.append((tuple(places[a]), tuple(places[a] + 0.4 * outward)))
        elif a < b:
            lines.append((tuple(places[a]), tuple(places[b])))
    title = "  x  ".join(f"{dim.kind} {dim.npus}" for dim in sides)
    note = "; ".join(dict.fromkeys(speed(axis.fabric) for axis in links.axes))
    twist = f", {sizes.min()} further along the long sides from short ones" if links.topology.twisted else ""
    if (np.abs(apart).sum(axis=1) > 1).any():
        note += f"\nopen ends at the border: links around to the other side{twist}"
    return _Sketch(title, places, links.npus, lines, note, list(map(str, range(links.npus))))


def _wafer(fabric: WaferMesh) -> _Sketch:
    """Cells where they are; logical numbers on those in use."""
    wafer = fabric.wafer
    places = np.stack([fabric.cells % wafer.columns, wafer.rows - 1 - fabric.cells // wafer.columns], axis=1) * 1.0
    src, dst = fabric.ends()
    lines = [(tuple(places[a]), tuple(places[b])) for a, b in zip(src, dst, strict=True) if a < b]
    broken = [(tuple(places[fabric.node[a]]), tuple(places[fabric.node[b]])) for a, b in wafer.dead_links]
    dead = fabric.node[list(wafer.dead_npus)]
    title = f"wafer of {wafer.columns} x {wafer.rows}, {fabric.npus} NPUs in use"
    note = f"{speed(fabric)}\ncrossed out: dead NPUs; dashed red: dead links; pale: spare"
    labels = [str(npu) for npu in range(fabric.npus)]
    return _Sketch(title, places, fabric.npus, lines, note, labels, "s", SPARE, dead, broken)


def _dimension(links: LinkGraph, index: int) -> _Sketch:
    """One group of a dimension."""
    axis = links.axes[index]
    fabric = axis.fabric
    layout = LAYOUTS.get(fabric.dim.kind, _springs)
    places = layout(fabric)
    src, dst = fabric.ends()
    lines = [(tuple(places[a]), tuple(places[b])) for a, b in zip(src, dst, strict=True)]
    title = f"{fabric.dim.kind} of {fabric.npus}"
    if len(links.axes) > 1:
        title = f"dimension {index}: {axis.groups} groups, each a\n{title}"
    names = [str(npu * axis.stride) for npu in range(fabric.npus)]
    note = speed(fabric)
    if links.topology.graph:
        names = list(links.topology.graph.names)
    elif fabric.devices():
        kinds = dict.fromkeys(device.rstrip(".0123456789") for device in fabric.devices())
        note += f"\nsquares: {' and '.join(kinds)}, {len(fabric.devices())} in all"
    return _Sketch(title, places, fabric.npus, lines, note, names)


def _circle(count: int, radius: float = 1.0, start: float = 0.5) -> FloatArray:
    angle = np.pi * (start - 2 * np.arange(count) / max(count, 1))
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _around(fabric: Fabric) -> FloatArray:
    """NPUs on a circle, a switch in the middle."""
    return np.concatenate([_circle(fabric.npus), np.zeros((len(fabric.devices()), 2))])


def _line(fabric: Fabric) -> FloatArray:
    """NPUs in a line, folded like a meander when it is long."""
    width = fabric.npus if fabric.npus <= 16 else int(np.ceil(np.sqrt(fabric.npus)))
    row, column = np.arange(fabric.npus) // width, np.arange(fabric.npus) % width
    column = np.where(row % 2 == 0, column, width - 1 - column)
    return np.stack([column, -row], axis=1).astype(float)


def _layers(fabric: Fabric) -> FloatArray:
    """NPUs at the bottom, leaves above them, spines on top."""
    names = fabric.devices()
    leaves = sum(name.startswith("leaf") for name in names)
    rows = [(fabric.npus, 0.0), (leaves, 1.0), (len(names) - leaves, 2.0)]
    width = 3.0  # of the rows, in distances between them
    return np.concatenate(
        [np.stack([(np.arange(n) + 0.5) * width / max(n, 1), np.full(n, y)], axis=1) for n, y in rows]
    )


def _groups(fabric: Fabric) -> FloatArray:
    """A dragonfly's groups on a circle, the routers of a group on a small one, NPUs outside them."""
    groups, routers = fabric.dim.groups, fabric.dim.routers
    each = fabric.npus // (groups * routers)
    centres = _circle(groups, 1.0)
    small = 0.75 * np.pi / max(groups, 4)
    turn = 0.5 - 2 * np.arange(groups) / groups
    router = np.concatenate([c + _circle(routers, 0.55 * small, t) for c, t in zip(centres, turn, strict=True)])
    centre = np.repeat(np.arange(groups), routers)
    outward = router - centres[centre]
    if routers == 1:
        outward = centres[centre] * 0.55 * small
    side = np.stack([-outward[:, 1], outward[:, 0]], axis=1)
    spread = (np.arange(each) - (each - 1) / 2) / max(each, 2)
    npus = router[:, None] + 0.8 * outward[:, None] + spread[None, :, None] * side[:, None]
    return np.concatenate([npus.reshape(-1, 2), router])


def _springs(fabric: Fabric) -> FloatArray:
    """By the forces of the links, the same every time."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(fabric.npus + len(fabric.devices())))
    graph.add_edges_from(zip(*(end.tolist() for end in fabric.ends()), strict=True))
    places = networkx.spring_layout(graph, pos=dict(enumerate(_circle(len(graph)))), iterations=200, seed=0)
    return np.array([places[node] for node in graph])


LAYOUTS: dict[str, Callable[[Fabric], FloatArray]] = {
    "Ring": _around,
    "Torus": _around,
    "FullyConnected": _around,
    "Switch": _around,
    "Mesh": _line,
    "FatTree": _layers,
    "Dragonfly": _groups,
}


def _paint(axes: Axes, sketch: _Sketch) -> None:
    """Lines, then nodes, then labels."""
    from matplotlib.collections import LineCollection

    count = len(sketch.places)
    axes.add_collection(LineCollection(sketch.lines, colors=LINK, linewidths=1.2 if count < 200 else 0.5, zorder=1))
    axes.add_collection(LineCollection(sketch.broken, colors=BROKEN, linewidths=2, linestyles="dashed", zorder=2))
    # Such that the nearest two nodes do not touch; the picture is about 350 points wide.
    gaps = np.linalg.norm(sketch.places[:, None] - sketch.places[None, :MOST_CELLS], axis=2)
    points = 350 * gaps[gaps > 0].min(initial=np.inf) / max(np.ptp(sketch.places, axis=0).max(), 1e-9)
    size = float(np.clip((0.6 * points) ** 2, 4, 420))
    shapes = (slice(sketch.npus), NPU, sketch.marker), (slice(sketch.npus, None), sketch.others, "s")
    for shown, colour, marker in (*shapes, (sketch.dead, DEAD, "s")):
        column, row = sketch.places[shown].T
        axes.scatter(column, row, s=size, c=colour, marker=marker, edgecolors="white", zorder=3)
    column, row = sketch.places[sketch.dead].T
    axes.scatter(column, row, s=size, c=BROKEN, marker="x", zorder=4)
    if size >= LABELLED:
        for place, label in zip(sketch.places, sketch.labels, strict=False):
            inside = len(label) <= size**0.5 / LETTER
            style: dict[str, Any] = {"va": "center", "color": "white", "fontsize": 7}
            style = style if inside else {"va": "top", "fontsize": 6}
            below = 0 if inside else -(size**0.5) / 2 - 1
            axes.annotate(
                label, place, (0, below), textcoords="offset points", ha="center", zorder=5, in_layout=False, **style
            )
    axes.set_title(sketch.title, fontsize=10)
    axes.text(0.5, -0.02, sketch.note, ha="center", va="top", fontsize=8, transform=axes.transAxes)
    axes.set_aspect("equal" if np.ptp(sketch.places[:, 1]) > 0 else "auto", adjustable="datalim")
    axes.margins(0.12)
    axes.axis("off")
