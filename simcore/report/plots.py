"""Pictures for papers: breakdown bars and link heat map; and how every figure becomes bytes.

Functions return matplotlib figures and keep no global state; the same report gives the same bytes. matplotlib is
imported where it is needed: it takes most of a second.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from simcore.files import suffix_of, write_bytes
from simcore.report.document import LayerRow, ReportDocument
from simcore.report.palette import BREAKDOWN, FAMILIES, HEAT, INK, PHASES, text_on
from simcore.report.table import shorten
from simcore.report.tables import layer_cost, layer_total, layers_by_name, per_iteration, phases
from simcore.report.text import PHASE_WORDS
from simcore.units import SIZES, largest_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

STYLE = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "simcore",
    "path.simplify": False,
    "text.usetex": False,
}
NO_DATES = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
KINDS: dict[str, Literal["png", "svg", "pdf"]] = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
ABOUT = {"png": "Description", "svg": "Description", "pdf": "Subject"}  # where each format keeps a note
UNFIT_FOR_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xef\xbf[\xbe\xbf]")
DOTS_PER_INCH = 150
NUM_LAYERS = 15
LEAST_APART, MOST_WIDE = 1 / 28, 0.4  # of a picture's height and width: names of points
LEAST_SHARE = 0.045  # of a bar; narrower parts have no room for their figure


def image(figure: Figure, kind: Literal["png", "svg", "pdf"], about: str = "") -> bytes:
    """The `figure` as a file's bytes, of a `kind`: "png", "svg" or "pdf". Equal figures give equal bytes (no dates).

    `about` goes into the file's metadata, for instance `Report.provenance`.
    """
    from matplotlib.backend_bases import get_registered_canvas_class

    out = io.BytesIO()
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names come from files: a box stands for a letter without a shape
        usual = figure.dpi
        figure.set_dpi(DOTS_PER_INCH)
        # Not by savefig: it draws a figure that lays itself out twice.
        write = getattr(get_registered_canvas_class(kind)(figure), f"print_{kind}")
        write(out, metadata=NO_DATES[kind] | ({ABOUT[kind]: about} if about else {}))
        figure.set_dpi(usual)
    return UNFIT_FOR_XML.sub(b"?", out.getvalue()) if kind == "svg" else out.getvalue()


def plain(text: str, width: int) -> str:
    """Text in at most so many characters, in which matplotlib sees no formula."""
    return shorten(text, width).replace("$", r"\$")


def titled(figure: Figure, title: str) -> Figure:
    """The figure under a line, or two, that say what it shows."""
    with styled():
        figure.suptitle(textwrap.fill(plain(title, 190), 100), fontsize=10, color=INK, x=0.01, ha="left")
    return figure


def save(figure: Figure, path: Path, about: str = "") -> None:
    """Write the figure to a file whose suffix (.png, .svg or .pdf) says what it is; InputError for another."""
    write_bytes(path, image(figure, KINDS[suffix_of(path, KINDS, "picture")], about))


def styled() -> AbstractContextManager[None]:
    """Our style for as long as the block lasts, whatever the user's matplotlibrc says."""
    from matplotlib import rc_context, rcParamsDefault

    usual = {key: value for key, value in rcParamsDefault.items() if not key.startswith("backend")}
    return rc_context(cast("dict[RcKeyType, object]", usual | STYLE))


@contextmanager
def canvas(
    width: float, height: float, rows: int = 1, columns: int = 1, *, height_ratios: Sequence[float] = (), **more: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in our style, sizes in inches, and its axes: several, or as many below each other as have heights.

    It is not known to pyplot, so nothing has to be closed.
    """
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        if height_ratios:
            yield figure, figure.subplots(len(height_ratios), height_ratios=height_ratios, squeeze=False, **more)[:, 0]
        else:
            yield figure, figure.subplots(rows, columns)


def heat(figure: Figure, axes: Axes, size_bytes: NDArray[Any], label: str) -> None:
    """A matrix of bytes from one (row) to another (column), white where there are none."""
    scale, unit = largest_unit(float(size_bytes.max(initial=0)), SIZES)
    shown = np.ma.masked_equal(size_bytes / scale, 0)
    picture = axes.imshow(shown, cmap=HEAT, vmin=0, interpolation="nearest")
    figure.colorbar(picture, ax=axes, label=f"{label} ({unit})", shrink=0.8)


def name_front(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """Names of points that fall to the right, the lowest first, where they do not meet the one named before."""
    axes.margins(x=0.15, y=0.1)
    axes.get_xlim(), axes.get_ylim()  # limits are worked out when asked for
    to_axes = axes.transData + axes.transAxes.inverted()
    last_x, last_y = 2.0, 0.0
    for point, name in sorted(zip(points, names, strict=True), key=lambda pair: pair[0][1]):
        x, y = to_axes.transform(point)
        if y - last_y >= LEAST_APART or last_x - x > MOST_WIDE:
            last_x, last_y = x, y
            # Free is what lies above and right of the front, or near the right frame what lies below and left.
            left, below = ("right", "top") if x > 0.5 else ("left", "bottom")
            place = (-5, -5) if x > 0.5 else (5, 4)
            axes.annotate(
                name, point, place, textcoords="offset points", ha=left, va=below, fontsize=7, parse_math=False
            )


def breakdown_figure(document: ReportDocument) -> Figure:
    """Where rank 0's time goes, and the layers that cost most, of a `document` that `Report.to_dict` gives."""
    document = per_iteration(document)
    layers = layers_by_name(document)
    chosen = [layer for layer in sorted(layers, key=lambda layer: -layer_cost(layer))[:NUM_LAYERS] if layer_cost(layer)]
    heights = [1.0, 0.28 * len(chosen) + 0.6] if chosen else [1.0]
    heights += [1.3] * ("power" in document)
    with canvas(9, sum(heights) + 1.1, height_ratios=heights) as (figure, axes):
        _shares(axes[0], document)
        if chosen:
            _layer_bars(axes[1], chosen, len(layers) - len(chosen), staged="pipeline" in document)
        if "power" in document:
            power = document["power"]
            scale, unit = largest_unit(power["edges_ns"][-1])
            edges = np.array(power["edges_ns"]) / scale
            axes[-1].stairs(np.array(power["watts"]) / 1e3, edges, fill=True, color=PHASES[0])
            axes[-1].set(xlim=(0, edges[-1]), ylim=(0, None), ylabel="kW")
            axes[-1].set(xlabel=f"simulated time ({unit}); boards of {power['accelerator']}")
    return figure


def _shares(axes: Axes, document: ReportDocument) -> None:
    """One bar: the four shares of the run's time."""
    whole = max(document["time_ns"], 1)
    scale, unit = largest_unit(whole)
    left = 0.0
    shares = dict(document["breakdown"])
    for key, (label, colour) in BREAKDOWN.items():
        length = int(str(shares[key]))
        axes.barh(0, length / scale, left=left / scale, color=colour, edgecolor="white", linewidth=0.5, label=label)
        if length / whole >= LEAST_SHARE:
            middle = (left + length / 2) / scale
            axes.text(
                middle, 0, f"{length / whole:.1%}", ha="center", va="center", color=text_on(colour), in_layout=False
            )
        left += length
    axes.set(
        yticks=[],
        xlim=(0, whole / scale),
        xlabel=f"{'the run' if document.get('jobs') else 'an iteration'} of rank 0 ({unit})",
    )
    axes.spines["left"].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False, handlelength=1)


def _layer_bars(axes: Axes, layers: Sequence[LayerRow], left_out: int, *, staged: bool) -> None:
    """A bar per layer: its computation by phase, and the waiting for its collectives; all stages together."""
    scale, unit = largest_unit(max(map(layer_cost, layers)))
    places = np.arange(len(layers))
    left = np.zeros(len(layers))
    rows = [list(phases(layer)) for layer in layers]
    parts = [
        (word, colour, [row[index][1]["compute_ns"] for row in rows])
        for index, (word, colour) in enumerate(zip(PHASE_WORDS.values(), PHASES, strict=True))
    ]
    parts.append(
        ("waiting for communication", FAMILIES["wait"], [layer_total(layer, "exposed_ns") for layer in layers])
    )
    for label, colour, figures in parts:
        lengths = np.array(figures) / scale
        axes.barh(places, lengths, left=left, color=colour, edgecolor="white", linewidth=0.4, label=label)
        left += lengths
    note = f"; {left_out} layers that cost less are left out" if left_out else ""
    axes.set_yticks(places, [plain(layer["name"], 28) for layer in layers])
    whose = "first ranks of all stages added up" if staged else "rank 0"
    axes.set(xlabel=f"time in an iteration, {whose} ({unit}){note}")
    axes.invert_yaxis()
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False, handlelength=1)
