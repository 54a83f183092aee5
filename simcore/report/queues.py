"""What queues in front of links did: the deepest of them, and how much waited when."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.report.document import QueueRow, Queues, ReportDocument
from simcore.report.table import Column, Table, columns, shown
from simcore.report.tables import joined
from simcore.timeline.events import LinkTable, QueueTable
from simcore.units import format_bytes, format_ns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MOST_QUEUES, SHOWN_ROWS, PARTS, SHOWN = 8, 8, 32, 16
TOLD = (  # of a queue: the figure, and its curve
    ("most waiting", "peak_bytes", "curve_bytes"),
    ("stood still", "still_ns", "curve_still_ns"),
    ("marked", "marks", "curve_marks"),
    ("dropped", "drops", "curve_drops"),
)
SPARKS = " .:-=+*#%@"  # from nothing to the most


def deepest(queues: QueueTable) -> list[int]:
    """Links whose queues matter most: what holds most, stood still longest, drops most, then the second ones."""
    columns = (queues.peak_bytes, queues.still_ns, queues.dropped_bytes)
    most = [[link for link in np.argsort(-one, kind="stable")[:MOST_QUEUES].tolist() if one[link]] for one in columns]
    return list(dict.fromkeys(link for turn in zip_longest(*most) for link in turn if link is not None))


def curves(queues: QueueTable, link: int, edges: Ints | Floats) -> dict[str, list[int]]:
    """What a queue did in each part of the time between `edges`, by the names of its curves."""
    waiting, still, *counted = queues.curves_of(link)
    added = (np.histogram(times_ns, edges, weights=segments)[0] for times_ns, segments in counted)
    parts = (_most(*waiting, edges), _inside(*still, edges), *added)
    return {curve: part.astype(np.int64).tolist() for (_, _, curve), part in zip(TOLD, parts, strict=True)}


def _most(times_ns: Ints, levels: Ints, edges: Ints | Floats) -> Ints:
    """The highest of levels, each of which lasts until the next one."""
    first, last = np.searchsorted(times_ns, edges[:-1], side="right"), np.searchsorted(times_ns, edges[1:])
    highest: Ints = np.maximum.reduceat(np.r_[0, levels, 0], np.column_stack([first, last + 1]).ravel())
    return highest[::2]


def _inside(begins_ns: Ints, lasting_ns: Ints, edges: Ints | Floats) -> Floats:
    """How much of intervals that do not overlap, in whole ns that add up to those of all parts together."""
    times_ns = np.column_stack([begins_ns, begins_ns + lasting_ns])
    so_far_ns = np.cumsum(np.column_stack([0 * lasting_ns, lasting_ns]))
    return np.diff(np.rint(np.interp(edges, np.append(0, times_ns), np.append(0, so_far_ns))))


def queues_document(links: LinkTable, queues: QueueTable, time_ns: int) -> Queues:
    """Sums, and a row for each of the queues that matter most."""
    rows: list[QueueRow] = []
    edges = np.linspace(0, max(time_ns, 1), PARTS + 1)
    for link in deepest(queues):
        figures = {name: int(getattr(queues, name)[link]) for name in QueueTable.COLUMNS}
        rows.append({"src": links.src[link], "dst": links.dst[link], **figures, **curves(queues, link, edges)})  # type: ignore[typeddict-item]
    sums = {name: int(getattr(queues, name).sum()) for name in QueueTable.COLUMNS if name != "peak_bytes"}
    return {**sums, "deepest": rows}  # type: ignore[typeddict-item]


def sparks(curve: Sequence[int], most: float) -> str:
    """A curve in a line of text: some parts a character."""
    parts = np.array(curve).reshape(SHOWN, -1).max(axis=1) / max(most, 1)
    return "".join(SPARKS[ceil(min(share, 1.0) * (len(SPARKS) - 1))] for share in parts.tolist())


def queues_text(document: ReportDocument, width: int) -> str:
    """What the queues did, and for each of the deepest a row for all that happened there."""
    queues = document.get("queues")
    if not queues:
        return ""
    marks, drops = f"{queues['marks']:,} marked", f"{queues['drops']:,} dropped and sent again"
    stops = f"links stood still {queues['stops']:,} times, {format_ns(queues['still_ns'])} in all"
    title = textwrap.fill(f"Queues: {stops}; {marks}; {drops} ({format_bytes(queues['dropped_bytes'])}).", width)
    deepest_first = sorted(joined(queues["deepest"])[:SHOWN_ROWS], key=lambda row: -row["peak_bytes"])
    most = {curve: max((max(row[curve]) for row in deepest_first), default=0) for _, _, curve in TOLD}
    most["curve_still_ns"] = document["time_ns"] / PARTS
    rows = [line for row in deepest_first for line in _lines(row, most)]
    table = Table("", columns("link", ("what", ""), ("figure", ""), "over time"), rows).text(width)
    return f"{title}\n{table}".rstrip()


def _lines(row: Mapping[str, Any], most: Mapping[str, float]) -> list[tuple[str, ...]]:
    """What did happen to a queue, each with its curve; the link is named once."""
    more = {"still_ns": f" ({row['stops']:,})", "drops": f" ({format_bytes(row['dropped_bytes'])})"}
    happened = [
        (what, shown(row[key], Column.of(key).unit) + more.get(key, ""), sparks(row[curve], most[curve]))
        for what, key, curve in TOLD
        if row[key]
    ]
    return [(row["link"] * (not at), *line) for at, line in enumerate(happened)]
