"""Perfetto's native trace: TrackEvent packets in protobuf.

Message and field numbers are those of perfetto's `protos/perfetto/trace` (0.59). One packet sequence ordered by time,
strings interned in its first packet, one track per lane so that no two slices of a track overlap, the utilisation of
each dimension and of the hottest links and the bytes in the deepest queues as counters, an arrow from the send to the
receive of every message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from simcore.report.model import Report
from simcore.report.timelines.selection import View
from simcore.report.timelines.tracks import Track, counters, lay_out, passed
from simcore.timeline.events import NO_LAYER, SAID, Curve, EventKind, EventTable, Timeline
from simcore.workload.chakra.writer import varint
from simcore.workload.model import PhaseName


@lru_cache(maxsize=4096)  # a trace says the same few things over and over
def number(field: int, value: int) -> bytes:
    """A field that holds a non-negative integer."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field that holds a 64-bit float."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """A field that holds a 64-bit number of fixed length."""
    return varint(field << 3 | 1) + struct.pack("<Q", value)


def nested(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that holds a string."""
    return nested(field, value.encode("utf-8", "replace"))


STATE_CLEARED, NEEDS_STATE = 1, 2
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
FLOW, FLOW_ENDS = 47, 48  # fields of a slice's event
EXPLICIT_ORDER, NEVER_MERGE = 3, 2
ROOT, ITERATIONS, LINKS = 1, 2, 3  # track uuids; a class has 4 + its index in the view, further tracks follow
FIRST_CLASS = 4
LINKS_RANK = 1 << 20  # below all classes

ON_SEQUENCE = number(10, 1)  # trusted_packet_sequence_id
AFTER_FIRST = ON_SEQUENCE + number(13, NEEDS_STATE)
ARGUMENTS = ("bytes", "iteration", "layer", "phase")
BYTES, ITERATION, LAYER, PHASE = range(1, 5)  # their iids

Stamped = tuple[int, bytes]  # a time in ns, and a packet without its timestamp


def _interned(layers: Sequence[str], events: EventTable) -> bytes:
    """The first packet: everything a slice may say, by iid from 1 on; among values layers' names, then phases'."""
    kinds, phases = [kind.name.lower() for kind in EventKind], [phase.value for phase in PhaseName]
    table = b"".join(
        nested(field, number(1, iid) + text(2, each))
        for field, texts in ((1, kinds), (2, events.names), (3, ARGUMENTS), (29, (*layers, *phases)))
        for iid, each in enumerate(texts, 1)
    )
    return nested(1, ON_SEQUENCE + number(13, STATE_CLEARED) + nested(12, table))


def perfetto_trace(report: Report, view: View) -> bytes:
    """The view as the bytes of a `.pftrace` file; its root track says where it comes from and what is left out."""
    timeline = report.timeline
    tracks = lay_out(timeline, view)
    first = FIRST_CLASS + len(view.classes)
    uuids = range(first, first + len(tracks))
    figures = [*counters(timeline, view, tracks)] if tracks else []
    packets = [_interned(timeline.layers, view.events), *_structure(view, report.provenance())]
    packets += [_describe(uuid, _parent(view, each), each.label, uuid) for uuid, each in enumerate(tracks, first)]
    packets += [_describe(LINKS, ROOT, "links", LINKS_RANK)] if any(each.npu_class < 0 for each in figures) else []
    packets += [
        _describe(uuid, _parent(view, each), each.title, uuid, unit=each.unit)
        for uuid, each in enumerate(figures, uuids.stop)
    ]
    stamped = list(_marks(timeline, view))
    messages = passed(view.events)  # a flow begins with a send and ends with a receive
    arrows = {send: fixed(FLOW, flow) for flow, (send, _) in enumerate(messages, 1)}
    arrows |= {receive: fixed(FLOW_ENDS, flow) for flow, (_, receive) in enumerate(messages, 1)}
    for uuid, track in zip(uuids, tracks, strict=True):
        stamped += _slices(view, track, uuid, len(timeline.layers), arrows)
    for uuid, counter in enumerate(figures, uuids.stop):
        place = number(9, COUNTER) + number(11, uuid)
        stamped += [(time_ns, _event(place + double(44, value))) for time_ns, value in counter.values]
    return b"".join([*packets, *_in_order(stamped)])


def _describe(uuid: int, parent: int, name: str, rank: int, *, unit: str = "", description: str = "") -> bytes:
    """A packet that introduces a track; siblings are ordered by `rank` and never merged."""
    content = number(1, uuid) + text(2, name) + number(11, EXPLICIT_ORDER) + number(12, rank) + number(15, NEVER_MERGE)
    content += number(5, parent) if parent else b""
    content += nested(8, text(6, unit)) if unit else b""
    content += text(14, description) if description else b""
    return nested(1, ON_SEQUENCE + nested(60, content))


def _structure(view: View, about: str) -> Iterator[bytes]:
    """The tracks that hold others: the run, its iterations, the classes of NPUs."""
    left_out = (f"left out: {missing}" for missing in view.left_out)
    yield _describe(ROOT, 0, "simcore", 0, description="; ".join(filter(None, (about, *left_out))))
    yield _describe(ITERATIONS, ROOT, "iterations", 0)
    for index, label in enumerate(view.labels):
        yield _describe(FIRST_CLASS + index, ROOT, label, 1 + index)


def _parent(view: View, shown: Track | Curve) -> int:
    return LINKS if shown.npu_class < 0 else FIRST_CLASS + view.classes.index(shown.npu_class)


def _marks(timeline: Timeline, view: View) -> Iterator[Stamped]:
    """Iterations as slices of their own track, and an instant that says what is left out."""
    place = number(11, ITERATIONS)
    begins = [*(start_ns for start_ns, _ in timeline.iterations[1:]), timeline.time_ns]
    for index, ((start_ns, end_ns), following_ns) in enumerate(zip(timeline.iterations, begins, strict=True)):
        if start_ns < view.end_ns and end_ns > view.start_ns:
            yield start_ns, _event(number(9, SLICE_BEGIN) + place + text(23, f"iteration {index}"))
            yield min(end_ns, following_ns), _event(number(9, SLICE_END) + place)
    for missing in view.left_out:
        yield view.start_ns, _event(number(9, INSTANT) + place + text(23, f"left out: {missing}"))


def _event(content: bytes) -> bytes:
    """A packet with a track event, without its timestamp and length."""
    return AFTER_FIRST + nested(11, content)


def _slices(view: View, track: Track, uuid: int, num_layers: int, arrows: Mapping[int, bytes]) -> Iterator[Stamped]:
    """Begin and end of every slice of a track, slices alike share their bytes; `arrows` of rows that pass a message."""
    events, place = view.events, number(11, uuid)
    closing = _event(number(9, SLICE_END) + place)
    opening: dict[tuple[int, ...], bytes] = {}
    alike, times = events.rows(*SAID, of=track.rows), events.rows("start_ns", "end_ns", of=track.rows)
    for row, (start_ns, end_ns), key in zip(track.rows.tolist(), times, alike, strict=True):
        packet = opening.get(key)
        if packet is None:
            packet = opening[key] = _event(number(9, SLICE_BEGIN) + place + _said(key, num_layers))
        if row not in arrows:
            yield start_ns, packet
            yield end_ns, closing
        elif key[0] == EventKind.SEND:
            yield start_ns, _event(number(9, SLICE_BEGIN) + place + _said(key, num_layers) + arrows[row])
            yield end_ns, closing
        else:  # a receive may begin before its send: the arrow comes with its end
            yield start_ns, packet
            yield end_ns, _event(number(9, SLICE_END) + place + arrows[row])


def _said(key: tuple[int, ...], num_layers: int) -> bytes:
    """Category, name and arguments of a slice."""
    kind, name, layer, phase, size_bytes, iteration = key
    said = number(3, 1 + kind) + number(10, 1 + name)
    said += _argument(BYTES, 3, max(size_bytes, 0)) + _argument(ITERATION, 3, max(iteration, 0))
    if layer != NO_LAYER and layer < num_layers:
        said += _argument(LAYER, 17, 1 + layer)
    if phase >= 0:
        said += _argument(PHASE, 17, 1 + num_layers + phase)
    return said


@lru_cache(maxsize=4096)
def _argument(name_iid: int, field: int, value: int) -> bytes:
    """A debug annotation: its name, and an integer (field 3) or an interned string (field 17)."""
    return nested(4, number(1, name_iid) + number(field, value))


def _in_order(stamped: list[Stamped]) -> Iterator[bytes]:
    """Packets by time; at equal times in the order given, which ends a slice before its successor begins."""
    times = np.array([time_ns for time_ns, _ in stamped], dtype=np.int64)
    for index in np.argsort(times, kind="stable").tolist():
        time_ns, packet = stamped[index]
        stamp = b"\x40" + varint(time_ns)
        yield b"\x0a" + varint(len(stamp) + len(packet)) + stamp + packet
