"""The report as HTML: a file that opens from disk, with an interactive timeline and no network.

The page's parts are the files in `page/`. Everything from inputs travels as JSON and becomes text nodes only; a content
security policy forbids every request. Slices travel as columns, compressed, in base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.report.model import Report
from simcore.report.palette import BREAKDOWN, FAMILIES, text_on
from simcore.report.tables import joined, layer_rows, per_iteration
from simcore.report.text import EXPOSED_DEFINITIONS, dominating, headline
from simcore.report.timelines.selection import View, rank_label
from simcore.report.timelines.tracks import BusyLink, Track, busiest_links, colours, lay_out, meanings
from simcore.timeline.breakdown import COMMUNICATION, COMPUTING, operation_totals, shares_of_time
from simcore.timeline.events import NO_LAYER, Curve, EventKind, Timeline
from simcore.units import SIZES, TIMES
from simcore.workload.model import PhaseName

Ints = NDArray[np.int64]
Shares = NDArray[np.float64]

PARTS = Path(__file__).parents[1] / "page"
SCRIPTS = ("queues.js", "summary.js", "timeline.js", "overview.js", "controls.js")
NAMING = ("workload", "topology")  # inputs that name the run
MOST_ROWS, NUM_BINS = 256, 400  # of the overview
LINKS, NOBODY = -1, -2  # beside classes of NPUs
MOST_OCCUPATIONS, MOST_OPERATIONS, MOST_BLOCKS = 500_000, 1000, 60
_KIND_COLUMNS = ("kind", "name", "phase", "size_bytes", "iteration")


def page(report: Report, view: View, told: Mapping[str, object] | None = None) -> str:
    """The whole page; `told` replaces parts of what it says, by the keys of `_summary`."""
    tracks, links = lay_out(report.timeline, view), [*_links(report.timeline, view)]
    kinds, kind_of_slice = _kinds(report.timeline, view, tracks)
    data = _summary(report) | dict(told or {}) | _timeline(report.timeline, view, tracks, links)
    kind = {"kind": "link", "layer": "", "phase": "", "bytes": 0, "colour": FAMILIES["link"]}
    data["kinds"] = kinds + [kind | {"name": link.title} for link in links]
    known = dict(zip(view.classes, view.labels, strict=True))
    curves = (curve for curve in report.timeline.curves if curve.npu_class in known)
    data["curves"] = [
        {"name": curve.title, "of": known[curve.npu_class], "percent": _coarse(curve)} for curve in curves
    ]
    if len(report.timeline.ranks) > 1:
        data["overview"] = _overview(report.timeline, known)
    parts = {
        "STYLE": _read("style.css"),
        # cannot end the script element that it stands in
        "DATA": json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "COLUMNS": _columns(view, tracks, kind_of_slice, links, len(kinds)),
        "SCRIPT": "".join(map(_read, SCRIPTS)),
    }  # in the template's order
    made, rest = [], _read("template.html")
    for name, part in parts.items():
        before, _, rest = rest.partition(f"<!--{name}-->")
        made += [before, part]
    return "".join([*made, rest])


def _coarse(curve: Curve) -> list[float]:
    """The means of at most MOST_BLOCKS stretches of a curve."""
    values = [value for _, value in curve.values[:-1]]
    return [round(float(part.mean()), 1) for part in np.array_split(values, min(MOST_BLOCKS, len(values)))]


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _summary(report: Report) -> dict[str, object]:
    """What the page says besides the timeline."""
    whole = report.to_dict()
    document = per_iteration(whole)
    return {
        "report": {key: value for key, value in document.items() if key != "layers"},
        "name": " on ".join(Path(entry.path).stem for entry in report.inputs if entry.role in NAMING),
        "layers": layer_rows(document),
        "links": joined(document["links"]["hottest"]),
        "queues": joined(document["queues"]["deepest"] if "queues" in document else ()),
        "operations": [
            {"name": each.name, "kind": each.kind.name.lower(), "count": each.count, "total_ns": each.total_ns}
            for each in (() if document["layers"] else operation_totals(report.timeline)[:MOST_OPERATIONS])
        ],
        "headline": headline(whole),
        "dominating": dominating(document),
        "exposed": EXPOSED_DEFINITIONS,
        "units": {"times": TIMES, "sizes": SIZES},
        "shares": [
            {"key": key, "label": label, "colour": colour, "ink": text_on(colour)}
            for key, (label, colour) in BREAKDOWN.items()
        ],
    }


def _links(timeline: Timeline, view: View) -> Iterator[BusyLink]:
    """The hottest links as long as their occupations are not too many, those inside the view."""
    most = MOST_OCCUPATIONS
    for link in busiest_links(timeline):
        inside = slice(*np.searchsorted(link.start_ns, [view.start_ns, view.end_ns]))
        start_ns, end_ns = link.start_ns[inside], link.end_ns[inside]
        most -= len(start_ns)
        if most >= 0:
            yield replace(link, start_ns=start_ns, end_ns=end_ns)


def _timeline(timeline: Timeline, view: View, tracks: list[Track], links: list[BusyLink]) -> dict[str, object]:
    used = {colour for track in tracks for colour in set(colours(view, track))}
    used |= {FAMILIES["link"]} if links else set()
    return {
        "start_ns": view.start_ns,
        "end_ns": view.end_ns,
        "num_slices": sum(len(track.rows) for track in tracks) + sum(len(link.start_ns) for link in links),
        "num_messages": len(view.events.messages),
        "left_out": view.left_out,
        "tracks": [*_rows(view, tracks, links)],
        "legend": [(colour, text) for colour, text in meanings(timeline, view) if colour in used],
        "inks": {colour: text_on(colour) for colour in sorted(used)},
    }


def _rows(view: View, tracks: list[Track], links: list[BusyLink]) -> Iterator[dict[str, object]]:
    """Titles of tracks and of links; the first of a class carries its ranks as a heading, the first link one, too."""
    labels = dict(zip(view.classes, view.labels, strict=True))
    rows = [
        (each.npu_class, labels[each.npu_class], labels[each.npu_class], each.title * (not each.lane), len(each.rows))
        for each in tracks
    ]
    for link in links:
        busy = f"{link.share:.1%}"
        group, title = f"busy {busy} of the run", f"{busy}  {link.src} > {link.dst}"
        rows.append((LINKS, "hottest links", group, title, len(link.start_ns)))
    classes = [NOBODY, *(row[0] for row in rows), NOBODY]
    for before, (here, heading, group, title, count), after in zip(classes, rows, classes[2:], strict=False):
        first = heading if before != here else ""
        yield {"title": title, "group": group, "heading": first, "last": after != here, "count": count}


def _kinds(timeline: Timeline, view: View, tracks: list[Track]) -> tuple[list[dict[str, object]], Ints]:
    """Slices that differ only in time share a description: the descriptions, and the number of each slice's."""
    numbers: dict[tuple[Any, ...], int] = {}
    chosen: list[int] = []
    first_of_name = {name: layer for layer, name in reversed([*enumerate(timeline.layers)])}
    namesakes = [first_of_name[name] for name in timeline.layers]
    for track in tracks:
        layers = (
            namesakes[at] if 0 <= at < len(namesakes) else NO_LAYER for at in view.events.layer[track.rows].tolist()
        )
        columns = (getattr(view.events, column)[track.rows].tolist() for column in _KIND_COLUMNS)
        keys = zip(layers, *columns, colours(view, track), strict=True)
        chosen += [numbers.setdefault(key, len(numbers)) for key in keys]
    return [_description(timeline, view, key) for key in numbers], np.array(chosen, dtype=np.int64)


def _description(timeline: Timeline, view: View, key: tuple[Any, ...]) -> dict[str, object]:
    layer, kind, name, phase, size_bytes, iteration, colour = key
    return {
        "kind": EventKind(kind).name.lower(),
        "name": view.events.names[name],
        "layer": timeline.layers[layer] if layer != NO_LAYER else "",
        "phase": list(PhaseName)[phase].value if phase >= 0 else "",
        "bytes": size_bytes,
        "iteration": iteration,
        "colour": colour,
    }


def _columns(view: View, tracks: list[Track], kind_of_slice: Ints, links: list[BusyLink], first_link_kind: int) -> str:
    """Starts and ends as 64-bit floats (exact nanoseconds up to 104 days), then descriptions, then for every
    message the slices of its send and its receive; in base64.
    """
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(track.rows for track in tracks)])
    kinds = np.repeat(np.arange(first_link_kind, first_link_kind + len(links)), [len(link.start_ns) for link in links])
    slice_of_row = np.argsort(rows)  # every row of the view is a slice
    parts = (
        np.concatenate([view.events.start_ns[rows], *(link.start_ns for link in links)]).astype("<f8"),
        np.concatenate([view.events.end_ns[rows], *(link.end_ns for link in links)]).astype("<f8"),
        np.concatenate([kind_of_slice, kinds]).astype("<u4"),
        slice_of_row[view.events.messages].astype("<u4"),
    )
    return base64.b64encode(zlib.compress(b"".join(part.tobytes() for part in parts), 6)).decode()


class Overview(NamedTuple):
    """Shares of time of `classes` of ranks in bins between `edges_ns`: of shape (classes, bins), from 0 to 1."""

    classes: list[int]
    edges_ns: Ints
    compute: Shares
    exposed: Shares


def overview(timeline: Timeline) -> Overview:
    """Computing and exposed communication in equal bins of the run, of ranks spread evenly where there are many."""
    num_rows = min(len(timeline.ranks), MOST_ROWS)
    classes = np.unique(np.linspace(0, len(timeline.ranks) - 1, num_rows).round().astype(np.int64))
    whole_ns = max(timeline.time_ns, 1)
    edges_ns = np.linspace(0, whole_ns, min(NUM_BINS, whole_ns) + 1).round().astype(np.int64)
    busy = shares_of_time(timeline.events, (*COMPUTING, *COMMUNICATION), classes, edges_ns)
    compute = shares_of_time(timeline.events, COMPUTING, classes, edges_ns)
    return Overview(classes.tolist(), edges_ns, compute, busy - compute)


def _overview(timeline: Timeline, known: Mapping[int, str]) -> dict[str, object]:
    """The overview as JSON: shares as bytes (255 = the whole bin) in base64, row by row; `known` names of classes."""
    found = overview(timeline)
    levels = (np.clip(np.rint(255 * shares), 0, 255).astype(np.uint8) for shares in (found.compute, found.exposed))
    compute, exposed = (base64.b64encode(each.tobytes()).decode() for each in levels)
    labels = [known.get(each) or rank_label(timeline.ranks[each]) for each in found.classes]
    return {"labels": labels, "edges_ns": found.edges_ns.tolist(), "compute": compute, "exposed": exposed}
