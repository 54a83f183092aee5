"""The contents of a workload: tables for a terminal, a data document, a picture, an HTML page that opens from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.errors import printable
from simcore.files import suffix_of, write_bytes
from simcore.report.document import encode
from simcore.report.palette import DIMENSIONS, FAMILIES, INK, PHASES
from simcore.report.plots import canvas, image, plain
from simcore.report.table import Table, columns, shorten
from simcore.report.tables import share
from simcore.report.text import PHASE_WORDS
from simcore.units import SIZES, format_bytes, format_ns, largest_unit
from simcore.workload.contents import Contents, Roof, Traffic, Work
from simcore.workload.model import SEND, CollectiveKind, PhaseName

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMA = "simcore.workload/1"
SUMMARIES = (".html", ".png", ".svg", ".pdf", ".json")
NUM_ROWS = 16
DECADES = 1e3  # of an axis with numbers between the powers of ten
PAGE = Path(__file__).parent / "page" / "workload.html"


def document(contents: Contents) -> dict[str, object]:
    """The contents as a JSON document; sums over `num_ranks` ranks."""
    return {"schema": SCHEMA, **asdict(contents)}


def write_summary(contents: Contents, path: str | Path) -> None:
    """Write a page, a picture or the data, by the name's suffix."""
    suffix = suffix_of(path, SUMMARIES, "summary", "--summary")
    if suffix == ".json":
        write_bytes(path, encode(document(contents)).encode())
        return
    figure = contents_figure(contents)
    if suffix == ".html":
        write_bytes(path, _page(contents, image(figure, "svg").decode()).encode())
    else:
        write_bytes(path, image(figure, suffix[1:]))  # type: ignore[arg-type]


def render(contents: Contents, *, width: int = 80) -> str:
    """The contents for a terminal."""
    tables = (replace(table, title="").first(NUM_ROWS).text(width) for table in _tables(contents))
    return "\n\n".join(filter(None, (printable(_headline(contents)), *tables))) + "\n"


def _headline(contents: Contents) -> str:
    ranks = contents.num_ranks
    who = f"{contents.name or 'workload'}: " + (f"of {ranks} ranks a mean one" if ranks > 1 else "one rank")
    sent, computed = format_bytes(contents.total_bytes / ranks), format_ns(contents.compute_ns / ranks)
    return f"{who} communicates {sent} and computes {computed} a step."


def _tables(contents: Contents) -> Iterator[Table]:
    """Traffic, sizes, computation, work; figures of a mean rank."""
    ranks, size = contents.num_ranks, contents.total_bytes
    groups = [
        (kind, group, count / ranks, sent / ranks, share(sent, size) if size else None)
        for (kind, group), (count, sent) in contents.by_group().items()
    ]
    shown = columns("collective", "group", "count", "bytes", "share")
    yield Table("Communication", shown, groups)
    messages = [(row.collective, row.group, row.size_bytes, row.count / ranks) for row in contents.traffic]
    yield Table("Messages", columns("messages", "group", "size_bytes", "count"), messages)
    kinds = []
    for kind, times in contents.by_kind().items():
        total, each = sum(times.values()), [times[name] / ranks if name in times else None for name in PhaseName]
        kinds.append((kind, *each, total / ranks, share(total, contents.compute_ns)))
    phases = [(str(name), word, "ns") for name, word in PHASE_WORDS.items()]
    yield Table("Computation", columns("layers", *phases, "all_ns", "share"), kinds)
    if contents.roof:
        yield _work_table(contents.work, contents.roof)


def _work_table(work: Sequence[Work], roof: Roof) -> Table:
    rows = [
        (
            each.name,
            each.phase,
            each.flops / 1e9,
            each.memory_bytes,
            each.flops / each.memory_bytes,
            each.flops / each.time_ns / 1e3 if each.time_ns else None,
        )
        for each in work
    ]
    figures = ("gflop", "GFLOP", ",.4g"), "bytes", ("intensity", "FLOP/byte", ",.4g"), ("rate", "TFLOP/s", ",.4g")
    return Table("Work of one layer", columns(("part", f"part, on {roof.device}"), "phase", *figures), rows)


def _page(contents: Contents, picture: str) -> str:
    """The picture and every table in full; nothing is fetched and nothing runs."""
    tables = "".join(f"<h2>{table.title}</h2>{table.html()}" for table in _tables(contents) if table.rows)
    svg = picture[picture.index("<svg") :]
    title = escape(printable(contents.name or "workload"))
    page = PAGE.read_text(encoding="utf-8")
    return page.format(title=title, headline=escape(printable(_headline(contents))), picture=svg, tables=tables)


MOST_BARS = 10
LEAST_BARS = 5  # a single bar is no thicker than one of so many
COLOURS = dict(zip((*map(str, CollectiveKind), SEND), (*DIMENSIONS, *DIMENSIONS), strict=False)) | {
    SEND: FAMILIES["message"]
}
PHASE_COLOURS = dict(zip((*map(str, PhaseName), ""), (*PHASES, FAMILIES["host"]), strict=True))
MARKERS = "osD^vPX*<>hd"


def contents_figure(contents: Contents) -> Figure:
    """Bytes by collective and group, message sizes, computation by kind of layer and, where known, the roofline."""
    panels: dict[str, tuple[Callable[..., None], Sequence[Any]]] = {
        "communication": (_traffic, [*contents.by_group().items()][:MOST_BARS]),
        "sizes of messages": (_sizes, [row for row in contents.traffic if row.size_bytes > 0]),
        "computation": (_kinds, [*contents.by_kind().items()][:MOST_BARS]),
    }
    with canvas(11, 7.5, 2, 2) as (figure, axes):
        for (title, (draw, rows)), place in zip(panels.items(), axes.flat, strict=False):
            place.set_title(title, loc="left")
            if rows:
                draw(place, contents, rows)
            else:
                place.text(0.5, 0.5, "none", transform=place.transAxes, ha="center")
                place.set(xticks=[], yticks=[])
        _roofline(axes.flat[-1], contents.roof, [one for one in contents.work if one.flops and one.time_ns])
        each = f", mean of {contents.num_ranks} ranks" if contents.num_ranks > 1 else ", one rank"
        figure.suptitle(plain(contents.name or "workload", 60) + each + ", one step")
    return figure


Group = tuple[tuple[str, str], tuple[int, int]]  # collective and group, how many and their bytes


def _traffic(axes: Axes, contents: Contents, rows: Sequence[Group]) -> None:
    """A bar per collective and group."""
    sizes = [size / contents.num_ranks for _, (_, size) in rows]
    scale, unit = largest_unit(max(sizes), SIZES)
    places = range(len(rows))
    axes.barh(places, [size / scale for size in sizes], color=[COLOURS[kind] for (kind, _), _ in rows])
    for place, size in zip(places, sizes, strict=True):
        axes.text(size / scale, place, f" {format_bytes(size)}", va="center", fontsize=8)
    axes.set_yticks(places, [plain(f"{kind.replace('_', '-')}, {shorten(group, 18)}", 60) for (kind, group), _ in rows])
    axes.set(xlabel=f"bytes of whole buffers ({unit})", xlim=(0, 1.22 * max(sizes) / scale or 1))
    axes.set_ylim(max(len(rows), LEAST_BARS) - 0.5, -0.5)


def _sizes(axes: Axes, contents: Contents, rows: Sequence[Traffic]) -> None:
    """How many messages of which size, by collective."""
    for kind in dict.fromkeys(row.collective for row in rows):
        sizes = [row.size_bytes for row in rows if row.collective == kind]
        counts = [row.count / contents.num_ranks for row in rows if row.collective == kind]
        axes.vlines(sizes, 0, counts, color=COLOURS[kind], linewidth=1)
        axes.scatter(sizes, counts, color=COLOURS[kind], s=24, label=kind.replace("_", "-"), zorder=3)
    last = max(row.size_bytes for row in rows).bit_length()
    exponents = range(0, last + 1, max(1, -(-last // 40) * 5))
    axes.set_xscale("log", base=2)
    axes.set_xticks([1 << exponent for exponent in exponents], [_power(exponent) for exponent in exponents])
    most = max(row.count for row in rows) / contents.num_ranks
    axes.set(xlabel="bytes", ylabel="messages", yscale="symlog", ylim=(0, 5 * most))
    axes.legend(frameon=False, ncols=3, loc="upper left", handletextpad=0.2)


def _power(exponent: int) -> str:
    """A power of two with its binary prefix.

    >>> _power(24)
    '16 Mi'
    """
    return f"{1 << exponent % 10} {('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi')[exponent // 10]}".strip()


def _kinds(axes: Axes, contents: Contents, rows: Sequence[tuple[str, dict[str, int]]]) -> None:
    """A bar per kind of layer, its phases side by side."""
    scale, unit = largest_unit(max(sum(times.values()) for _, times in rows) / contents.num_ranks)
    left, places = np.zeros(len(rows)), range(len(rows))
    for phase in dict.fromkeys(
        row.phase for row in sorted(contents.compute, key=lambda row: [*PHASE_COLOURS].index(row.phase))
    ):
        label = PHASE_WORDS[PhaseName(phase)] if phase else "all phases"
        lengths = np.array([times.get(phase, 0) / contents.num_ranks / scale for _, times in rows])
        axes.barh(places, lengths, left=left, color=PHASE_COLOURS[phase], label=label)
        left += lengths
    axes.set_yticks(places, [plain(kind, 26) for kind, _ in rows])
    axes.set(xlabel=f"time ({unit})")
    axes.set_ylim(max(len(rows), LEAST_BARS) - 0.5, -0.5)
    axes.legend(frameon=False, loc="lower right", handlelength=1)


def _roofline(axes: Axes, roof: Roof | None, shown: Sequence[Work]) -> None:
    """Arithmetic intensity against the rate reached; the line is what the accelerator allows."""
    if roof is None or not shown:
        axes.set_axis_off()
        return
    from matplotlib.ticker import LogLocator

    names = list(dict.fromkeys(work.name for work in shown))
    for work in shown:
        point = (work.flops / work.memory_bytes, work.flops / work.time_ns / 1e3)
        marker = MARKERS[names.index(work.name) % len(MARKERS)]
        axes.scatter(*point, color=PHASE_COLOURS[work.phase], marker=marker, s=30, zorder=3, linewidth=0)
    _roof_line(axes, roof, shown)
    for index, name in enumerate(names):
        axes.scatter([], [], color=INK, marker=MARKERS[index % len(MARKERS)], s=24, label=name.replace("_", " "))
    axes.set_title(f"roofline, {roof.device}, {roof.dtype}", loc="left")
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of memory", ylabel="TFLOP/s")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < DECADES * low else (1,), numticks=8))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.grid(visible=True, which="major", color="#e5e5e5", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="lower right", handletextpad=0.2)


def _roof_line(axes: Axes, roof: Roof, shown: Sequence[Work]) -> None:
    """The accelerator's bound over the range of what is shown."""
    ridge = roof.flops_per_s / roof.memory_bytes_per_s
    intensities = [work.flops / work.memory_bytes for work in shown]
    low, high = min(*intensities, ridge) / 2, max(*intensities, ridge) * 4
    bound = [min(roof.flops_per_s, at * roof.memory_bytes_per_s) / 1e12 for at in (low, ridge, high)]
    axes.plot((low, ridge, high), bound, color=INK, linewidth=1)
    axes.text(high, bound[-1] * 1.15, f"{bound[-1]:,.4g} TFLOP/s", ha="right", fontsize=8)
    axes.text(low * 1.5, bound[0], f"{roof.memory_bytes_per_s / 1e12:,.3g} TB/s", fontsize=8, va="top")
    slowest = min(work.flops / work.time_ns / 1e3 for work in shown)
    axes.set_ylim(min(slowest, bound[0]) / 4, 3 * bound[-1])
