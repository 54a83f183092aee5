"""A replay as files: the report, and measured above predicted as a picture, a Chrome and a Perfetto trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from simcore.files import folder as written_folder
from simcore.files import write_all
from simcore.replay.session import Replay, StepReplay
from simcore.replay.steps.graph import EdgeKind
from simcore.replay.views.breakdown import played
from simcore.replay.views.report import Utilisation, answer, utilisation, warnings
from simcore.report.gantt import timeline_figure
from simcore.report.model import Input, Report
from simcore.report.plots import image, titled
from simcore.report.timelines.chrome import chrome_json
from simcore.report.timelines.html import page
from simcore.report.timelines.perfetto import perfetto_trace
from simcore.report.timelines.selection import View
from simcore.timeline.events import NO_LAYER, Curve, EventBuffer, EventKind, Timeline
from simcore.units import format_ns

MEASURED, PREDICTED = 0, 1  # classes of the timeline
SIDES = ("measured", "predicted")
NO_PHASE = -1


def timeline(replay: Replay, rank: int) -> Timeline:
    """The typical step of one rank: class 0 as measured, class 1 as predicted, each from its own start.

    Streams are numbered as in the trace, threads behind them; `streams` names both.
    """
    prepared, step = replay.ranks[rank], replay.typical(rank)
    buffer, streams = EventBuffer(), prepared.view.trace.streams
    spans = (step.measured_span_ns, (step.from_ns, step.to_ns))
    tasks, (begin_ns, end_ns) = prepared.view.trace.tasks, spans[MEASURED]
    rows = np.flatnonzero((tasks.end_ns > begin_ns) & (tasks.start_ns < end_ns))
    ran = (tasks.start_ns[rows], tasks.end_ns[rows], rows), played(step)[:3]
    for side, (from_ns, to_ns) in enumerate(spans):
        events = _host_events(step, side, len(streams))
        for start, end, row in zip(*(column.tolist() for column in ran[side]), strict=True):
            kind = EventKind.COLLECTIVE if prepared.view.communication[row] else EventKind.COMPUTE
            events.append((int(tasks.lane[row]), start, end, kind, prepared.view.trace.names[tasks.name[row]]))
        for lane, started, ended, kind, name in events:
            begin, finish = max(started, from_ns) - from_ns, min(ended, to_ns) - from_ns
            if begin < finish:
                place = NO_LAYER, NO_PHASE, 0, step.window.index
                buffer.append((side, lane, begin, finish, kind, buffer.name(name), *place))
    lengths = tuple(to_ns - from_ns for from_ns, to_ns in spans)
    threads = tuple(f"thread {thread.rpartition('/')[2]}" for thread in prepared.view.trace.threads)
    return Timeline(
        events=buffer.table(),
        time_ns=max(*lengths, 1),  # a step that takes no time has an axis, too
        iterations=((0, max(lengths)),),
        ranks=((MEASURED,), (PREDICTED,)),
        finish_ns=lengths,
        streams=(*(f"stream {stream}" for _, stream in streams), *threads),
        curves=tuple(_curves(utilisation(replay, rank))),
    )


def _curves(found: Utilisation) -> Iterator[Curve]:
    """How busy the device was and, where kernels said it, its multiprocessors, in percent."""
    both = {
        ("device busy", "% busy"): (found.measured, found.predicted),
        ("multiprocessors in use", "% in use"): (found.sm_measured, found.sm_predicted),
        ("warps occupied", "% occupied"): (found.occupancy_measured, found.occupancy_predicted),
    }
    for (title, unit), sides in both.items():
        for side, shares in enumerate(sides if sides[MEASURED] else ()):
            values = [(at * found.bin_ns, round(100 * share, 2)) for at, share in enumerate(shares)]
            yield Curve(side, title, (*values, (len(shares) * found.bin_ns, 0.0)), unit)


Event = tuple[int, int, int, EventKind, str]  # lane, start, end, kind, name


def _host_events(step: StepReplay, side: int, first_lane: int) -> list[Event]:
    """What the threads did that launch and wait: calls, and recorded host time before each."""
    graph, names = step.graph, step.prepared.view.trace.names
    if side == MEASURED:
        graph, starts = step.source.graph, step.source.graph.measured_ns[None, :]
    else:
        starts = step.timing.start_ns
    chain = np.flatnonzero((graph.edge_kind == EdgeKind.PROGRAM_ORDER) & (graph.back == 0))
    chain, made = chain[graph.rank[graph.target[chain]] == step.number], list[Event]()
    for edge, node in zip(chain.tolist(), graph.target[chain].tolist(), strict=True):
        busy_ns = max(int(graph.lag_ns[edge] - graph.idle_ns[edge]), 0)
        lane, call, length = first_lane + int(graph.lane[node]), int(graph.name[node]), int(graph.duration_ns[node])
        for start in starts[:, node].tolist():
            made.append((lane, start - busy_ns, start, EventKind.CPU, "between calls"))
            made.append((lane, start, start + length, EventKind.CPU, names[call] if call >= 0 else "mark"))
    return made


def _view(shown: Timeline) -> View:
    """Everything, measured above predicted, for the general exporters."""
    return View(shown.events, 0, shown.time_ns, (MEASURED, PREDICTED), SIDES, ())


def write(replay: Replay, document: str, folder: Path, *, force: bool = False) -> None:
    """Write replay.json and per rank timeline-RANK as .png, .html, .json (Chrome) and .pftrace.gz (Perfetto);
    InputError when the folder is not empty and `force` is not set, or it cannot be written: nothing is left then.
    """
    files = {"replay.json": document.encode()}
    for number, prepared in enumerate(replay.ranks):
        shown, stem = timeline(replay, number), f"timeline-{prepared.view.trace.rank}"
        inputs, notes = (Input("trace", prepared.view.trace.file, ""),), tuple(warnings(replay, number))
        whole = Report(shown, "replay", "recorded", inputs, notes)
        files[f"{stem}.json"] = chrome_json(whole, _view(shown))
        files[f"{stem}.pftrace.gz"] = perfetto_trace(whole, _view(shown))
        lengths = (f"{side}: {format_ns(length)}" for side, length in zip(SIDES, shown.finish_ns, strict=True))
        drawn = timeline_figure(shown, replace(_view(shown), labels=tuple(lengths)))
        name, said = Path(prepared.view.trace.file).name, answer(replay, number)
        # The shares that the page tells are the device's.
        device = replace(shown, events=shown.events.where(shown.events.kind != EventKind.CPU))
        report = replace(whole, timeline=device)
        told = {"report": {**report.to_dict(), "ranks": [], "npus": 1}, "headline": said, "name": name}
        told["dominating"] = "The typical step, measured above predicted; the shares are those of the measured one."
        files[f"{stem}.html"] = page(report, _view(shown), told).encode()
        files[f"{stem}.png"] = image(titled(drawn, f"{name}: {said}"), "png")
    with written_folder(folder, force=force) as stage:
        write_all({stage / name: content for name, content in files.items()})
