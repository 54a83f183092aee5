"""Joins PyTorch's host trace with Kineto's device trace: durations, kernels below what launched them, waits.

Host operations are matched as in `host_trace`; of the stretches that one of them describes the first is taken. A kernel
belongs to the innermost host operation around the runtime call with its correlation id. Where a call blocked until the
device caught up, the time is taken out of its operation and the next operation of the thread waits for the kernel
instead. A thread that was idle for a millisecond and more went on because of the operation that ended last on another
thread (the rule of `chakra_trace_link`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.errors import InputError
from simcore.units import format_ns
from simcore.workload.chakra import reader
from simcore.workload.chakra.pytorch_form import Op
from simcore.workload.host_trace import BY_NAME, Operators, by_name, by_number, matched, started
from simcore.workload.kineto import ANNOTATION, CALL, CATEGORIES, EXTERNAL_ID, NO_CORRELATION, OPERATOR, RECORD_ID
from simcore.workload.kineto_reader import (
    UNREADABLE,
    Arguments,
    Event,
    EventError,
    Ids,
    complete_events,
    stream_of,
    whole,
)

SIDES = {OPERATOR: "host", ANNOTATION: "host", CALL: "calls"} | dict.fromkeys(range(CALL), "device")
BLOCKING = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize")
IDLE_NS = 1_000_000


class Timed(Struct, frozen=True):
    """An event: times in ns since the trace's first, what the host's say of themselves and the others' `arguments`;
    `stream` is the device's and its own number, where it runs on one.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: str
    category: str
    ids: Ids
    arguments: Arguments
    stream: tuple[int, int]


def link(ops: Sequence[Op], file: str, path: str, tell: Callable[[str], None]) -> list[Op]:
    """Operations of the host trace `file` with measured times and the device operations of Kineto's, under new dense
    numbers; what could not be joined is told.
    """
    host, device, calls = _read(path)
    span_of, stretches = _spans(ops, file, host, path)
    if stretches > 1:
        tell(f"{path}: the host trace describes each of {stretches} stretches of it: the first one is taken")
    timed = _timed(ops, span_of)
    enclosing, around = _Enclosing(span_of), defaultdict[int, set[int | None]](set)
    for call in calls:
        around[whole(call.arguments.correlation)].add(enclosing(call.thread, call.start_ns))
    # A number that calls of several operations have, as 0 in some versions, names none; no number at all neither.
    around[NO_CORRELATION] = set()
    launchers = {number: next(iter(own)) for number, own in around.items() if len(own) == 1}
    # Host operation -> device operations it launched; those nobody can be found for are left out.
    launched, lost = defaultdict[int, list[Timed]](list), list[Timed]()
    for span in device:
        launcher = launchers.get(whole(span.arguments.correlation))
        (lost if launcher is None else launched[launcher]).append(span)
    if lost:
        tell(f"{path}: {_tasks(lost)} of {_tasks(device)} on the device are left out: no operation here launched them")
    ran = {op.number for some in started(ops) for op in some}
    if absent := len(ran - span_of.keys()):
        tell(f"{path}: {absent} of the host trace's {len(ran)} operations are not in it, and take no time")
    waits = _blocked(timed, enclosing, device, calls)
    linked, number_of_kernel, new_number = _renumbered(timed, launched)
    for number, span in waits:
        if id(span) in number_of_kernel:
            linked[new_number[number]].waits_for.append(number_of_kernel[id(span)])
    _wait_for_threads(linked, {new_number[number]: span for number, span in span_of.items()})
    return linked


def _tasks(spans: Sequence[Timed]) -> str:
    return f"{len(spans)} tasks ({format_ns(sum(span.end_ns - span.start_ns for span in spans))})"


def _spans(ops: Sequence[Op], file: str, host: Sequence[Timed], path: str) -> tuple[dict[int, Timed], int]:
    """Operation -> its first span, and how many one has; operators decide if the files are of one run, ranges are found
    in the rest.
    """
    operators, ranges = started(ops)
    rows = [row for row, span in enumerate(host) if CATEGORIES[span.category] == OPERATOR]
    by, pairs = matched(_operators(path, host, rows), operators, file)
    found = {rows[at]: op.number for at, op in pairs.items()}
    rest = [row for row in range(len(host)) if row not in found]
    others = _operators(path, host, rest)
    named = (by != BY_NAME and by_number(others, ranges)) or by_name(others, ranges)
    found |= {rest[at]: op.number for at, op in named.items()}
    spans = defaultdict[int, list[Timed]](list)
    for row in sorted(found):
        spans[found[row]].append(host[row])
    return {number: some[0] for number, some in spans.items()}, max(map(len, spans.values()))


def _operators(path: str, host: Sequence[Timed], rows: Sequence[int]) -> Operators:
    """Some of the host's events as columns."""
    spans = [host[row] for row in rows]
    lanes = {thread: lane for lane, thread in enumerate(dict.fromkeys(span.thread for span in spans))}
    ids = EXTERNAL_ID if all(span.ids.record is None for span in spans) else RECORD_ID
    numbers = (whole(span.ids.external if span.ids.record is None else span.ids.record) for span in spans)
    told = [(span.start_ns, lanes[span.thread], number) for span, number in zip(spans, numbers, strict=True)]
    start_ns, lane, number = np.array(told, dtype=np.int64).reshape(-1, 3).T
    return Operators(path, ids, [span.name for span in spans], start_ns, lane, number)


def _read(path: str) -> tuple[list[Timed], list[Timed], list[Timed]]:
    """Host, device and runtime events, each by start."""
    found: dict[str, list[Timed]] = {"host": [], "device": [], "calls": []}
    decode, numbered = msgspec.json.Decoder(Arguments).decode, msgspec.json.Decoder(Ids).decode
    events = list[tuple[Event, str, Ids, Arguments]]()

    def take(event: Event) -> None:
        side = SIDES.get(CATEGORIES.get((event.cat or "").lower(), -1), "")
        if side == "host":
            events.append((event, side, numbered(event.args), Arguments()))
        elif side:
            events.append((event, side, Ids(), decode(event.args)))

    content = reader.content(Path(path))
    try:
        complete_events(content, take)
    except EventError as error:
        raise error.refused(content, path) from error
    except UNREADABLE as error:
        raise InputError.at(path, f"no Kineto trace: {error}", expected="a JSON object with traceEvents") from error
    events.sort(key=lambda each: (each[0].ts, -(each[0].dur or 0)))
    for event, side, ids, arguments in events:
        start = round((event.ts - events[0][0].ts) * 1000)
        span = start, start + round((event.dur or 0) * 1000)
        place = str(event.tid), (event.cat or "").lower()
        found[side].append(Timed(str(event.name), *span, *place, ids, arguments, stream_of(event, arguments)))
    return found["host"], found["device"], found["calls"]


def _timed(ops: Sequence[Op], span_of: Mapping[int, Timed]) -> dict[int, Op]:
    """Operations with their start and the time they spend outside of those they call."""
    inside: dict[int, int] = defaultdict(int)
    for op in ops:
        if op.number in span_of:
            inside[op.parent] += span_of[op.number].end_ns - span_of[op.number].start_ns
    timed = {}
    for op in ops:
        span = span_of.get(op.number)
        own = max(0, span.end_ns - span.start_ns - inside[op.number]) if span else 0
        timed[op.number] = replace(op, duration_ns=own, start_ns=span.start_ns if span else -1, waits_for=[])
    return timed


class _Enclosing:
    """Finds the innermost matched host operation around a moment of a thread."""

    def __init__(self, span_of: Mapping[int, Timed]):
        self.spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.latest_end: dict[str, list[int]] = {}  # of all spans up to each
        for number, span in span_of.items():
            self.spans[span.thread].append((span.start_ns, span.end_ns, number))
        for thread, spans in self.spans.items():
            spans.sort(key=lambda entry: (entry[0], -entry[1]))
            self.latest_end[thread] = list(accumulate((end_ns for _, end_ns, _ in spans), max))

    def __call__(self, thread: str, moment_ns: int) -> int | None:
        spans = self.spans.get(thread, [])
        index = bisect_right(spans, (moment_ns, 1 << 62, 1 << 62)) - 1
        while index >= 0 and self.latest_end[thread][index] >= moment_ns:
            if spans[index][1] >= moment_ns:
                return spans[index][2]
            index -= 1
        return None

    def following(self, thread: str, moment_ns: int) -> int | None:
        """The first operation of a thread that starts at or after a moment."""
        spans = self.spans.get(thread, [])
        index = bisect_right(spans, (moment_ns, -1, -1))
        return spans[index][2] if index < len(spans) else None


def _blocked(
    timed: dict[int, Op], enclosing: _Enclosing, device: Sequence[Timed], calls: Iterable[Timed]
) -> list[tuple[int, Timed]]:
    """Who waits for which device operation; the time they were blocked is taken out of operations."""
    by_end = sorted(device, key=lambda span: span.end_ns)
    ends = [span.end_ns for span in by_end]
    waits = []
    for call in calls:
        if not call.name.endswith(BLOCKING):
            continue
        index = bisect_right(ends, call.end_ns) - 1
        last = by_end[index] if index >= 0 else None
        around, after = enclosing(call.thread, call.start_ns), enclosing.following(call.thread, call.end_ns)
        if last is None or last.end_ns <= call.start_ns or last.start_ns > call.end_ns or after is None:
            continue
        waits.append((after, last))
        if around is not None:
            left = max(0, timed[around].duration_ns - (last.end_ns - call.start_ns))
            timed[around] = replace(timed[around], duration_ns=left)
    return waits


def _renumbered(
    timed: Mapping[int, Op], launched: Mapping[int, list[Timed]]
) -> tuple[list[Op], dict[int, int], dict[int, int]]:
    """All operations, kernels right behind their launchers; numbers of kernels (by identity) and of host operations."""
    linked: list[Op] = []
    streams = _numbers_of_streams(span.stream for some in launched.values() for span in some)
    number_of_kernel: dict[int, int] = {}
    new_number: dict[int, int] = {}
    for number in sorted(timed):
        new_number[number] = len(linked)
        linked.append(timed[number])
        for span in launched.get(number, ()):
            number_of_kernel[id(span)] = len(linked)
            kernel = replace(  # with the tensors and the group of what launched it
                timed[number], name=span.name, parent=number, duration_ns=span.end_ns - span.start_ns,
                start_ns=span.start_ns, category=span.category, stream=streams[span.stream],
                group=span.arguments.group or timed[number].group,
            )  # fmt: skip
            linked.append(kernel)
    for index, op in enumerate(linked):
        parent = new_number.get(op.parent, op.parent)
        linked[index] = replace(op, number=index, parent=parent, waits_for=[])
    return linked, number_of_kernel, new_number


def _numbers_of_streams(found: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """One number for each device's stream: its own on the first device, larger ones on the others."""
    streams = sorted(set(found))
    devices, beyond = sorted({device for device, _ in streams}), max((number for _, number in streams), default=0) + 1
    return {(device, number): number + beyond * devices.index(device) for device, number in streams}


def _wait_for_threads(linked: list[Op], spans: Mapping[int, Timed]) -> None:
    """Who continues after a long pause waits for the operation that ended last on another thread."""
    by_end = sorted(spans, key=lambda number: (spans[number].end_ns, number))
    ends = [spans[number].end_ns for number in by_end]
    busy_until: dict[str, int] = {}
    for number in sorted(spans, key=lambda number: (spans[number].start_ns, number)):
        span, thread = spans[number], spans[number].thread
        if thread not in busy_until or span.start_ns - busy_until[thread] > IDLE_NS:
            others = (by_end[index] for index in range(bisect_right(ends, span.start_ns) - 1, -1, -1))
            other = next((found for found in others if spans[found].thread != thread), None)
            if other is not None:
                linked[number].waits_for.append(other)
        busy_until[thread] = max(busy_until.get(thread, 0), span.end_ns)
