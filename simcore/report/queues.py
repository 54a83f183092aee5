"""What queues in front of links did: the deepest of them, and how much waited when."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.report.document import QueueCurves, QueueRow, Queues, ReportDocument
from simcore.report.table import Table, columns
from simcore.report.tables import joined
from simcore.timeline.events import LinkTable, QueueTable
from simcore.units import format_bytes, format_ns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MOST_QUEUES, SHOWN_ROWS, PARTS, SHOWN = 8, 8, 32, 16
SPARKS = " .:-=+*#%@"  # from nothing to the most


def deepest(queues: QueueTable) -> list[int]:
    """Links whose queues matter most: what holds most, stood still longest, drops most, then the second ones."""
    columns = (queues.peak_bytes, queues.still_ns, queues.dropped_bytes)
    most = [[link for link in np.argsort(-one, kind="stable")[:MOST_QUEUES].tolist() if one[link]] for one in columns]
    return list(dict.fromkeys(link for turn in zip_longest(*most) for link in turn if link is not None))


def curves(queues: QueueTable, link: int, edges: Ints | Floats) -> QueueCurves:
    """What a queue did in each part of the time between `edges`."""
    waiting, still, marks, drops = queues.curves_of(link)
    counted = [np.histogram(times_ns, edges, weights=segments)[0] for times_ns, segments in (marks, drops)]
    found = [_most(*waiting, edges), _inside(*still, edges), *counted]
    bytes_, still_ns, marked, dropped = (each.astype(np.int64).tolist() for each in found)
    return {"curve_bytes": bytes_, "curve_still_ns": still_ns, "curve_marks": marked, "curve_drops": dropped}


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
    marks, drops = f"{queues['marks']:,} segments marked", f"{queues['drops']:,} dropped and sent again"
    stops = f"links stood still {queues['stops']:,} times, {format_ns(queues['still_ns'])} in all"
    title = textwrap.fill(f"Queues: {stops}; {marks}; {drops} ({format_bytes(queues['dropped_bytes'])}).", width)
    deepest_first = sorted(joined(queues["deepest"])[:SHOWN_ROWS], key=lambda row: -row["peak_bytes"])
    part_ns = document["time_ns"] / PARTS
    most = {key: max((max(row[key]) for row in deepest_first), default=0) for key in QueueCurves.__annotations__}
    rows = [line for row in deepest_first for line in _lines(row, most | {"curve_still_ns": part_ns})]
    shown = columns("link", ("what", ""), ("figure", ""), "over time")
    return title + "\n" + Table("", shown, rows).text(width) if rows else title


def _lines(row: Mapping[str, Any], most: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """What did happen to a queue, each with its curve; the link is named once."""
    stood = f"{format_ns(row['still_ns'])} ({row['stops']:,})"
    dropped = f"{row['drops']:,} ({format_bytes(row['dropped_bytes'])})"
    told = (
        ("most waiting", row["peak_bytes"], format_bytes(row["peak_bytes"]), "curve_bytes"),
        ("stood still", row["still_ns"], stood, "curve_still_ns"),
        ("marked", row["marks"], f"{row['marks']:,}", "curve_marks"),
        ("dropped", row["drops"], dropped, "curve_drops"),
    )
    happened = [(what, figure, sparks(row[key], most[key])) for what, value, figure, key in told if value]
    yield from ((row["link"] * (not at), *line) for at, line in enumerate(happened))
