"""What queues in front of links did: the deepest of them, and how much waited when."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from simcore.report.document import QueueRow, Queues, ReportDocument
from simcore.report.table import Table, columns
from simcore.report.tables import joined
from simcore.timeline.events import LinkTable, QueueTable
from simcore.units import format_bytes, format_ns

Ints = NDArray[np.int64]
MOST_QUEUES, SHOWN_ROWS, PARTS, SHOWN = 8, 8, 32, 16
SPARKS = " .:-=+*#%@"  # from nothing to the most


def deepest(queues: QueueTable) -> list[int]:
    """Links whose queues matter most: what holds most, stood still longest, drops most, then the second ones."""
    columns = (queues.peak_bytes, queues.still_ns, queues.dropped_bytes)
    most = [[link for link in np.argsort(-one, kind="stable")[:MOST_QUEUES].tolist() if one[link]] for one in columns]
    return list(dict.fromkeys(link for turn in zip_longest(*most) for link in turn if link is not None))


def curve(queues: QueueTable, link: int) -> tuple[Ints, Ints]:
    """Times, and the bytes that wait for a link from then on."""
    rows = queues.curves[queues.curves[:, 0] == queues.stands_for[link]]
    return rows[:, 1], rows[:, 2]


def most_waiting(queues: QueueTable, link: int, edges: NDArray[np.int64] | NDArray[np.float64]) -> list[int]:
    """The most that waited for a link between each two of the times `edges`."""
    times_ns, waiting = curve(queues, link)
    inside = (times_ns >= edges[0]) & (times_ns <= edges[-1])
    found = np.zeros(len(edges) - 1, np.int64)
    if len(times_ns):
        first = np.clip(np.searchsorted(edges, times_ns[inside], side="right") - 1, 0, len(found) - 1)
        np.maximum.at(found, first, waiting[inside])
        # What waits when a part begins is the last row before it.
        before = np.searchsorted(times_ns, edges[:-1], side="right") - 1
        found = np.maximum(found, np.where(before >= 0, waiting[before], 0))
    return found.tolist()


def happened(queues: QueueTable, link: int) -> list[str]:
    """In words, what did happen to a queue: marks, drops, how long its link stood still."""
    marks, drops, still_ns = (int(column[link]) for column in (queues.marks, queues.drops, queues.still_ns))
    words = (marks, f"{marks:,} marked"), (drops, f"{drops:,} dropped"), (still_ns, f"still {format_ns(still_ns)}")
    return [text for value, text in words if value]


def queues_document(links: LinkTable, queues: QueueTable, time_ns: int) -> Queues:
    """Sums, and a row for each of the queues that matter most."""
    rows: list[QueueRow] = []
    for link in deepest(queues):
        figures = {name: int(getattr(queues, name)[link]) for name in QueueTable.COLUMNS}
        shape = most_waiting(queues, link, np.linspace(0, max(time_ns, 1), PARTS + 1))
        rows.append({"src": links.src[link], "dst": links.dst[link], **figures, "curve_bytes": shape})  # type: ignore[typeddict-item]
    sums = {name: int(getattr(queues, name).sum()) for name in QueueTable.COLUMNS if name != "peak_bytes"}
    return {**sums, "deepest": rows}  # type: ignore[typeddict-item]


def sparks(curve_bytes: Sequence[int], most: int) -> str:
    """A curve in a line of text: some parts a character."""
    parts = np.array(curve_bytes).reshape(SHOWN, -1).max(axis=1)
    return "".join(SPARKS[-(-int(size) * (len(SPARKS) - 1) // max(most, 1))] for size in parts)


def queues_text(document: ReportDocument, width: int) -> str:
    """What the queues did, and a row for each of the deepest."""
    queues = document.get("queues")
    if not queues:
        return ""
    deepest_first = sorted(joined(queues["deepest"])[:SHOWN_ROWS], key=lambda row: -row["peak_bytes"])
    most = deepest_first[0]["peak_bytes"] if deepest_first else 0
    marks, drops = f"{queues['marks']:,} segments marked", f"{queues['drops']:,} dropped and sent again"
    stops = f"links stood still {queues['stops']:,} times, {format_ns(queues['still_ns'])} in all"
    title = textwrap.fill(f"Queues: {stops}; {marks}; {drops} ({format_bytes(queues['dropped_bytes'])}).", width)
    rows = [
        (row["link"], row["peak_bytes"], f"{format_ns(row['still_ns'])} ({row['stops']:,})", row["marks"], row["drops"],
         sparks(row["curve_bytes"], most))
        for row in deepest_first
    ]  # fmt: skip
    shown = columns("link", ("peak_bytes", "most waiting"), "stood still", "marks", "drops", "over time")
    return title + "\n" + Table("", shown, rows).text(width) if rows else title
