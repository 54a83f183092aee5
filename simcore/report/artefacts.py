"""Files a run leaves: the folder of `-o DIR`, and single timelines by the suffix of their name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from simcore.files import folder as written_folder
from simcore.files import suffix_of, write_bytes, write_text
from simcore.report.model import Report
from simcore.report.timelines.selection import Limits, Selection, View, choose

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["png", "svg"]
Write = Callable[[Report, View], bytes | str]


def _picture(report: Report, view: View, kind: Kind, *, staged: bool = False) -> bytes:
    from simcore.report.gantt import stages_figure, timeline_figure

    return _image(report, (stages_figure if staged else timeline_figure)(report.timeline, view), kind)


def _image(report: Report, figure: Figure, kind: Kind) -> bytes:
    """A picture says what it shows."""
    from simcore.report.plots import image, titled

    return image(titled(figure, report.title()), kind, report.provenance())


def _by(module: str, name: str, report: Report, view: View) -> bytes | str:
    """What a function of a module of `timelines` makes of a view; the module is imported here."""
    made: bytes | str = getattr(import_module(f"simcore.report.timelines.{module}"), name)(report, view)
    return made


# Suffixes of pictures: maps of links, and timelines that show a pipelined run stage by stage unless ranks are asked for
MAPS: dict[str, Kind] = {".png": "png", ".svg": "svg"}

# Suffix of a timeline's name -> (who draws it, what its viewer can hold)
TIMELINES: dict[str, tuple[Write, Limits]] = {
    ".png": (partial(_picture, kind="png"), Limits(num_classes=4, num_events=40_000)),
    ".svg": (partial(_picture, kind="svg"), Limits(num_classes=4, num_events=10_000)),
    ".html": (partial(_by, "html", "page"), Limits(num_classes=1024, num_events=1_000_000)),
    ".json": (partial(_by, "chrome", "chrome_json"), Limits(num_classes=16, num_events=1_000_000)),
    ".pftrace": (partial(_by, "perfetto", "perfetto_trace"), Limits(num_classes=16, num_events=1_000_000)),
    ".tar": (partial(_by, "kineto", "kineto_archive"), Limits(num_classes=1024, num_events=10_000_000)),
}
TIMELINES |= {f"{suffix}.gz": TIMELINES[suffix] for suffix in (".json", ".pftrace", ".tar")}


def write_links(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a picture of what the links carried; InputError when the run has no links."""
    from simcore.report.links import links_figure

    kind = MAPS[suffix_of(path, MAPS, "picture of links", "--links")]
    write_bytes(path, _image(report, links_figure(report.timeline), kind))


def write_timeline(report: Report, path: str | os.PathLike[str], selection: Selection | None = None) -> tuple[str, ...]:
    """Write a timeline; the suffix says which: .png .svg .html .json(.gz) = Chrome trace, .pftrace(.gz) = Perfetto.

    .tar(.gz) = a Kineto trace of every rank, for `simcore replay`. The answer is what it leaves out, in words.
    InputError if the suffix is unknown, the file cannot be written or the run has no such part.
    """
    selection, suffix = selection or Selection(), suffix_of(path, TIMELINES, "timeline", "--timeline")
    draw, limits = TIMELINES[suffix]
    view = choose(report.timeline, selection, limits)
    if suffix in MAPS and report.timeline.pipeline and selection.ranks is None:
        write_bytes(path, _picture(report, view, MAPS[suffix], staged=True))
        return ()
    made = draw(report, view)
    write_bytes(path, made if isinstance(made, bytes) else made.encode())
    return tuple(f"left out: {missing}" for missing in view.left_out)


def write_directory(
    report: Report,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    selection: Selection | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write report.json, layers.csv, events.npz, breakdown.png, timeline.html and timeline.pftrace.gz into a folder.

    The files, and `more` texts by name, come together or not at all. The answer is what the timelines leave out, each
    line beginning with the file's name. InputError if the folder cannot be written, or is not empty without `force`.
    """
    from simcore.report.archive import events_npz
    from simcore.report.plots import save
    from simcore.report.table import Table, columns
    from simcore.report.tables import LAYER_COLUMNS, layer_rows

    with written_folder(folder, force=force) as target:
        write_text(target / "layers.csv", Table("", columns(*LAYER_COLUMNS), layer_rows(report.to_dict())).csv())
        write_bytes(target / "events.npz", events_npz(report))
        save(report.plot(), target / "breakdown.png", report.provenance())
        if report.timeline.wafer:
            from simcore.report.wafer_figure import write_wafer

            write_wafer(report.timeline.wafer.traffic, target)
            if report.timeline.links is not None and report.timeline.links.coordinates is not None:
                write_links(report, target / "links.png")
        left_out = [
            f"{name}: {missing}"
            for name in ("timeline.html", "timeline.pftrace.gz")
            for missing in write_timeline(report, target / name, selection)
        ]
        write_text(target / "report.json", report.to_json())
        for name, text in more.items():
            write_text(target / name, text)
    return tuple(left_out)
