"""The report as one HTML file that opens from disk: summary, tables and an interactive timeline, no network.

The page's parts are the files in `page/`. Everything from inputs travels as JSON and becomes text nodes only; a content
security policy forbids every request. Slices travel as columns, compressed, in base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.report.model import Report
from simcore.report.overview import overview
from simcore.report.palette import BREAKDOWN, text_on
from simcore.report.selection import View
from simcore.report.tables import layer_rows
from simcore.report.text import EXPOSED_DEFINITIONS, dominating, headline
from simcore.report.tracks import Track, colours, lay_out, meanings
from simcore.timeline.events import NO_LAYER, EventKind, Timeline
from simcore.workload.model import PhaseName

__all__ = ["page"]

Ints = NDArray[np.int64]

PARTS = Path(__file__).parent / "page"
SCRIPTS = ("summary.js", "timeline.js", "overview.js", "controls.js")
_KIND_COLUMNS = ("kind", "name", "layer", "phase", "size_bytes", "iteration")


def page(report: Report, view: View) -> str:
    """The whole page."""
    tracks = lay_out(report.timeline, view)
    kinds, kind_of_slice = _kinds(report.timeline, view, tracks)
    data = _summary(report) | _timeline(report.timeline, view, tracks) | {"kinds": kinds}
    if len(report.timeline.ranks) > 1:
        data["overview"] = overview(report.timeline).to_dict()
    parts = {
        "STYLE": _read("style.css"),
        "SCRIPT": "".join(map(_read, SCRIPTS)),
        "DATA": _script_json(data),
        "COLUMNS": _columns(view, tracks, kind_of_slice),
    }
    text = _read("template.html")
    before, _, rest = text.partition("<!--STYLE-->")
    made = [before, parts["STYLE"]]
    for name in ("DATA", "COLUMNS", "SCRIPT"):
        before, _, rest = rest.partition(f"<!--{name}-->")
        made += [before, parts[name]]
    return "".join([*made, rest])


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _script_json(data: dict[str, object]) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _summary(report: Report) -> dict[str, object]:
    """What the page says besides the timeline."""
    document = report.to_dict()
    return {
        "report": document,
        "layers": layer_rows(document),
        "headline": headline(document),
        "dominating": dominating(document),
        "exposed": EXPOSED_DEFINITIONS,
        "shares": [
            {"key": key, "label": label, "colour": colour, "ink": text_on(colour)}
            for key, (label, colour) in BREAKDOWN.items()
        ],
    }


def _timeline(timeline: Timeline, view: View, tracks: list[Track]) -> dict[str, object]:
    """Tracks, legend and bounds of the timeline."""
    used = {colour for track in tracks for colour in set(colours(view, track))}
    return {
        "start_ns": view.start_ns,
        "end_ns": view.end_ns,
        "num_slices": sum(len(track.rows) for track in tracks),
        "left_out": view.left_out,
        "tracks": list(_track_rows(view, tracks)),
        "legend": [(colour, text) for colour, text in meanings(timeline, view) if colour in used],
        "inks": {colour: text_on(colour) for colour in sorted(used)},
    }


def _track_rows(view: View, tracks: list[Track]) -> Iterator[dict[str, object]]:
    """Titles of the tracks; the first of a class carries its ranks as a heading."""
    labels = dict(zip(view.classes, view.labels, strict=True))
    for index, track in enumerate(tracks):
        following = tracks[index + 1] if index + 1 < len(tracks) else None
        first = index == 0 or tracks[index - 1].npu_class != track.npu_class
        yield {
            "title": track.title if not track.lane else "",
            "group": labels[track.npu_class],
            "heading": labels[track.npu_class] if first else "",
            "last": following is None or following.npu_class != track.npu_class,
            "count": len(track.rows),
        }


def _kinds(timeline: Timeline, view: View, tracks: list[Track]) -> tuple[list[dict[str, object]], Ints]:
    """Slices that differ only in time share a description: the descriptions, and the number of each slice's."""
    numbers: dict[tuple[object, ...], int] = {}
    chosen: list[int] = []
    for track in tracks:
        columns = (getattr(view.events, column)[track.rows].tolist() for column in _KIND_COLUMNS)
        keys = zip(*columns, colours(view, track), strict=True)
        chosen += [numbers.setdefault(key, len(numbers)) for key in keys]
    return [_description(timeline, view, *key) for key in numbers], np.array(chosen, dtype=np.int64)  # type: ignore[arg-type]


def _description(
    timeline: Timeline,
    view: View,
    kind: int,
    name: int,
    layer: int,
    phase: int,
    size_bytes: int,
    iteration: int,
    colour: str,
) -> dict[str, object]:
    known = NO_LAYER < layer < len(timeline.layers)
    return {
        "kind": EventKind(kind).name.lower(),
        "name": view.events.names[name],
        "layer": timeline.layers[layer] if known else "",
        "phase": list(PhaseName)[phase].value if phase >= 0 else "",
        "bytes": size_bytes,
        "iteration": iteration,
        "colour": colour,
    }


def _columns(view: View, tracks: list[Track], kind_of_slice: Ints) -> str:
    """Starts and ends as 64-bit floats, which hold nanoseconds exactly up to 104 days, then descriptions; in base64."""
    rows = np.concatenate([track.rows for track in tracks]) if tracks else np.zeros(0, dtype=np.int64)
    parts = (
        view.events.start_ns[rows].astype("<f8"),
        view.events.end_ns[rows].astype("<f8"),
        kind_of_slice.astype("<u4"),
    )
    return base64.b64encode(zlib.compress(b"".join(part.tobytes() for part in parts), 6)).decode()
