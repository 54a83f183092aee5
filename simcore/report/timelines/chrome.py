"""Chrome's trace event JSON, for chrome://tracing, TensorBoard, HolisticTraceAnalysis and others.

Complete events with times in microseconds written as exact decimals. Format: "Trace Event Format", Duvall and others,
2016. A class of NPUs is a process, a track a thread; an arrow (flow) leads from every send to its receive, and the
hottest links have counters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from simcore.report.model import Report
from simcore.report.timelines.selection import View
from simcore.report.timelines.tracks import Track, counters, lay_out, passed
from simcore.timeline.events import NO_LAYER, SAID, EventKind, EventTable, Timeline
from simcore.workload.model import PhaseName


def chrome_json(report: Report, view: View) -> bytes:
    """The view as a JSON document; `otherData` says where it comes from and what it does not hold."""
    timeline = report.timeline
    tracks = lay_out(timeline, view)
    lines = [*_names(view, tracks), *_iterations(timeline, view)]
    arrows = _arrows(view.events)
    for index, track in enumerate(tracks):
        lines.extend(_slices(timeline, view, track, index))
        lines.extend(_flows(track, index, arrows))
    lines.extend(_counters(timeline, view, tracks))
    other = json.dumps({"about": report.provenance(), "left_out": list(view.left_out)})
    head = '{"displayTimeUnit":"ns","otherData":' + other + ',"traceEvents":[\n'
    return (head + ",\n".join(lines) + "\n]}\n").encode()


def _names(view: View, tracks: list[Track]) -> Iterator[str]:
    """Metadata: what processes and threads are called, and their order."""
    for npu_class, label in zip(view.classes, view.labels, strict=True):
        yield _metadata("process_name", npu_class, 0, {"name": label})
        yield _metadata("process_sort_index", npu_class, 0, {"sort_index": npu_class})
    for index, track in enumerate(tracks):
        yield _metadata("thread_name", track.npu_class, index, {"name": track.label})
        yield _metadata("thread_sort_index", track.npu_class, index, {"sort_index": index})


def _metadata(name: str, process: int, thread: int, args: dict[str, object]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": process, "tid": thread, "args": args})


def _iterations(timeline: Timeline, view: View) -> Iterator[str]:
    """A global instant where an iteration begins."""
    for index, (start_ns, _) in enumerate(timeline.iterations):
        if view.start_ns <= start_ns <= view.end_ns:
            name = json.dumps(f"iteration {index}")
            yield f'{{"ph":"i","s":"g","name":{name},"pid":{view.classes[0]},"tid":0,"ts":{microseconds(start_ns)}}}'


def _arrows(events: EventTable) -> dict[int, tuple[str, int]]:
    """Row of a send or receive -> how its end of the arrow begins, and when; a receive may begin before its send."""
    arrows = {}
    for index, (send, receive) in enumerate(passed(events)):
        sent_ns = int(events.start_ns[send])
        arrows[send] = f'{{"ph":"s","id":{index}', sent_ns
        arrows[receive] = f'{{"ph":"f","bp":"e","id":{index}', max(sent_ns, int(events.start_ns[receive]))
    return arrows


def _flows(track: Track, thread: int, arrows: Mapping[int, tuple[str, int]]) -> Iterator[str]:
    """The ends of arrows on a track."""
    place = f'"cat":"message","name":"message","pid":{track.npu_class},"tid":{thread}'
    for row in track.rows.tolist():
        if row in arrows:
            beginning, time_ns = arrows[row]
            yield f'{beginning},{place},"ts":{microseconds(time_ns)}}}'


def _counters(timeline: Timeline, view: View, tracks: list[Track]) -> Iterator[str]:
    """Figures of classes, and those of links in a process of their own."""
    found, links = [*counters(timeline, view, tracks)], len(timeline.ranks)
    if any(each.npu_class < 0 for each in found):
        yield _metadata("process_name", links, 0, {"name": "links"})
        yield _metadata("process_sort_index", links, 0, {"sort_index": links})
    for each in found:
        process = links if each.npu_class < 0 else each.npu_class
        head = f'{{"ph":"C","name":{json.dumps(each.title)},"pid":{process},"tid":0,"ts":'
        for time_ns, value in each.values:
            yield f'{head}{microseconds(time_ns)},"args":{{"{each.unit}":{value!r}}}}}'


def microseconds(time_ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _slices(timeline: Timeline, view: View, track: Track, thread: int) -> Iterator[str]:
    events = view.events.where(track.rows)
    names = [json.dumps(name) for name in events.names]
    layers = [json.dumps(name) for name in timeline.layers]
    categories = [kind.name.lower() for kind in EventKind]
    phases = [phase.value for phase in PhaseName]
    place = f'"pid":{track.npu_class},"tid":{thread}'
    for start, end, kind, name, layer, phase, size, iteration in events.rows("start_ns", "end_ns", *SAID):
        args = f'"iteration":{iteration},"bytes":{size}'
        if layer != NO_LAYER and layer < len(layers):
            args += f',"layer":{layers[layer]}'
        if phase >= 0:
            args += f',"phase":"{phases[phase]}"'
        times = f'"ts":{microseconds(start)},"dur":{microseconds(end - start)}'
        yield f'{{"ph":"X","name":{names[name]},"cat":"{categories[kind]}",{place},{times},"args":{{{args}}}}}'
