"""Kineto traces read: one rank's JSON document into columns, the ranks of files, folders and archives in order.

Both generations are read: categories `Kernel`/`kernel`, `Operator`/`cpu_op`, `Runtime`/`cuda_runtime`, CUDA and HIP
names, thread ids as numbers or texts, whole or fractional microseconds, with or without `distributedInfo`; as `.json`,
`.json.gz`, folders and archives of ranks (tar, also compressed). Events are decoded one at a time into columns, never
kept as objects.
"""

from __future__ import annotations

import codecs
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from simcore.documents import location_of
from simcore.errors import InputError, Location
from simcore.memory import collection_paused
from simcore.peers import HEAD, foreign
from simcore.places import Steps, location, named
from simcore.workload.archives import documents
from simcore.workload.kineto import (
    CALL,
    CATEGORIES,
    COMMUNICATION,
    EXTERNAL_ID,
    MEMCPY,
    MODULE,
    NO_CORRELATION,
    OPERATOR,
    PRODUCTS,
    PYTHON,
    RECORD_ID,
    SYNC,
    Collective,
    Intervals,
    KinetoTrace,
    StepMark,
    StreamSync,
    launched_by,
    product_of,
)
from simcore.workload.model import kind_of

T = TypeVar("T")
UNREADABLE = msgspec.DecodeError, ValueError, OverflowError, RecursionError
MOST_RANKS = 1 << 24  # a larger group is none
MOST_US = 4e15  # a hundred years; in ns still a number of 64 bits
STEP_NAME = re.compile(r"ProfilerStep\s*#\s*(\d+)")
RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_ ]?(\d+)", re.IGNORECASE)
SOURCE_LINE = re.compile(r"\.py\(\d+\): ")  # in the names of Python functions of a trace with stacks
NOTHING = msgspec.Raw(b"null")
# What some versions write that is no JSON: nan and inf, commas in numbers (locales), paths of Windows as they are.
NO_NUMBER = re.compile(rb"([:,\[]\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
COMMA = re.compile(rb'("\s*:\s*-?\d+),(?=\d)')
ESCAPE = re.compile(rb'\\(["\\/bfnrtu]?)')

Number = int | float | str | None  # what the versions of the profiler write where a number is meant


class Arguments(msgspec.Struct, gc=False):
    """What the profiler says of a task or call."""

    correlation: Number = NO_CORRELATION
    device: Number = 0
    stream: Number = None
    queue: Number = msgspec.field(default=None, name="sycl queue")
    sync_kind: str | None = msgspec.field(default="", name="cuda_sync_kind")
    wait_stream: Number = msgspec.field(default=-1, name="wait_on_stream")
    record: Number = msgspec.field(default=NO_CORRELATION, name="wait_on_cuda_event_record_corr_id")
    operation: str | None = msgspec.field(default="", name="Collective name")
    elements: Number = msgspec.field(default=0, name="In msg nelems")
    group: str | None = msgspec.field(default="", name="Process Group Name")
    group_ranks: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Process Group Ranks")
    size: Number = msgspec.field(default=0, name="Group size")
    first: Number = msgspec.field(default=0, name="Global rank start")
    stride: Number = msgspec.field(default=0, name="Global rank stride")
    description: str | None = msgspec.field(default="", name="Process Group Description")
    dtype: str | None = ""
    copied: Number = msgspec.field(default=0, name="bytes")
    source: Number = msgspec.field(default=None, name="Src Rank")
    destination: Number = msgspec.field(default=None, name="Dst Rank")
    blocks: Number = msgspec.field(default=None, name="blocks per SM")
    occupancy: Number = msgspec.field(default=None, name="est. achieved occupancy %")


class Ids(msgspec.Struct, gc=False):
    """Which operator an event is."""

    external: Number = msgspec.field(default=NO_CORRELATION, name=EXTERNAL_ID)
    record: Number = msgspec.field(default=None, name=RECORD_ID)
    sequence: Number = msgspec.field(default=None, name="Sequence number")


class _Inputs(msgspec.Struct, gc=False):
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Input type")


class Event(msgspec.Struct, gc=False):
    """An event as the profiler writes it: times in microseconds, its arguments not decoded."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = ""
    pid: int | str | None = 0
    tid: int | str | None = 0
    ts: int | float = math.nan
    dur: int | float | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Group(msgspec.Struct, gc=False):
    name: Number = msgspec.field(default="", name="pg_name")
    description: str | None = msgspec.field(default="", name="pg_desc")
    ranks: list[int] | None = None


class _Distributed(msgspec.Struct, gc=False):
    rank: Number = None
    groups: msgspec.Raw = msgspec.field(default=NOTHING, name="pg_config")


class _Device(msgspec.Struct, gc=False):
    name: str | None = ""


class _Document(msgspec.Struct, gc=False):
    events: list[msgspec.Raw] | None = msgspec.field(default=None, name="traceEvents")
    nodes: list[msgspec.Raw] | None = None
    distributed: msgspec.Raw = msgspec.field(default=NOTHING, name="distributedInfo")
    devices: msgspec.Raw = msgspec.field(default=NOTHING, name="deviceProperties")
    older_devices: msgspec.Raw = msgspec.field(default=NOTHING, name="computeProperties")
    base: msgspec.Raw = msgspec.field(default=NOTHING, name="baseTimeNanoseconds")


class _Rows:
    """Growing columns of one kind of event; times stay floats in microseconds until the base is known.

    `told` is what only some rows say: key -> row -> value; `endless` counts those without a duration of at least 0,
    `again` those that stood before just so, which are left out.
    """

    def __init__(self) -> None:
        self.endless = self.again = 0
        self.start_us, self.length_us = array("d"), array("d")
        self.numbers = array("q")  # lane, name, correlation, kind of each row
        self.told: dict[str, dict[int, Any]] = defaultdict(dict)

    def add(self, event: Event, lane: int, name: int, correlation: int, kind: int, **told: object) -> None:
        for key, value in told.items():
            self.told[key][len(self.start_us)] = value
        self.start_us.append(event.ts)
        self.length_us.append(event.dur or 0)
        self.endless += _endless(event)
        self.numbers.extend((lane, name, correlation, kind))

    def intervals(self, base_us: float) -> tuple[Intervals, dict[str, Any]]:
        """The columns ordered by start (longest first), and what is told of their rows."""
        start = np.rint((np.array(self.start_us) - base_us) * 1e3).astype(np.int64)
        end = start + np.rint(np.maximum(np.array(self.length_us), 0) * 1e3).astype(np.int64)
        rows = np.column_stack((start, end, np.array(self.numbers, dtype=np.int64).reshape(-1, 4)))
        first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        order = first[np.lexsort((-end[first], start[first]))]
        self.again = len(rows) - len(order)
        place = np.full(len(rows), -1)
        place[order] = np.arange(len(order))
        told = {
            key: {int(place[row]): value for row, value in some.items() if place[row] >= 0}
            for key, some in self.told.items()
        }
        return Intervals(*rows[order].T.copy()), told


def _endless(event: Event) -> bool:
    """Whether nothing says when it ended, or a time before it began."""
    return event.dur is None or event.dur < 0


def whole(value: Number) -> int:
    """A number that some versions write as a text; -1 when it is none or beyond 64 bits."""
    try:
        number = int(value or 0)
    except (ValueError, OverflowError):
        return NO_CORRELATION
    return number if abs(number) < 1 << 63 else NO_CORRELATION


def _share(value: Number, whole: int) -> float:
    """A share from 0 to 1; what is none counts as 0."""
    with suppress(ValueError):
        return min(max(float(value or 0) / whole, 0.0), 1.0)
    return 0.0


def _told(raw: msgspec.Raw, form: type[T], usual: T) -> T:
    """A part of the head, where it has the usual form."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw, type=form)
    return usual


class _Collector:
    """Sorts decoded events into columns; process groups are those of the head."""

    def __init__(self, groups: list[_Group]) -> None:
        self.groups = {str(group.name): group for group in groups}
        self.names: dict[str, int] = {}
        self.threads: dict[str, int] = {}
        self.streams: dict[tuple[int, int], int] = {}
        self.calls, self.operators, self.tasks, self.annotations, self.frames = (_Rows() for _ in range(5))
        self.marks: dict[int, tuple[Event, int]] = {}
        self.syncs: dict[int, StreamSync] = {}
        self.arguments = msgspec.json.Decoder(Arguments)
        self.ids, self.operator_ids = msgspec.json.Decoder(Ids), EXTERNAL_ID

    def add(self, event: Event) -> None:
        """Put one complete event where it belongs."""
        kind = CATEGORIES.get((event.cat or "").lower())
        if kind is None:
            return
        name = str(event.name)
        if kind >= OPERATOR and kind != SYNC:
            if kind != PYTHON or name.startswith(MODULE):
                self._add_operator(event, name, kind)
            elif SOURCE_LINE.search(name):
                self.frames.add(event, self._thread(event), self._name(name), NO_CORRELATION, kind)
            return
        arguments = self.arguments.decode(event.args)
        if kind == SYNC:
            numbers = map(whole, (arguments.stream, arguments.wait_stream, arguments.record))
            stream, waited, record = (-1 if number == 0xFFFFFFFF else number for number in numbers)
            said = StreamSync(arguments.sync_kind or "", stream, waited, record, whole(arguments.device))
            self.syncs[whole(arguments.correlation)] = said
        elif kind == CALL:
            self.calls.add(event, self._thread(event), self._name(name), whole(arguments.correlation), CALL)
        else:
            self._add_task(event, name, kind, arguments)

    def _name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def _thread(self, event: Event) -> int:
        return self.threads.setdefault(f"{event.pid}/{event.tid}", len(self.threads))

    def _add_operator(self, event: Event, name: str, kind: int) -> None:
        """An operator's id is its record-function one, before PyTorch 2.1 its external one, which counts the same."""
        if mark := STEP_NAME.match(name):
            self.marks.setdefault(int(mark[1]), (event, self._thread(event)))
            return
        rows, number, told = self.annotations, NO_CORRELATION, dict[str, object]()
        if kind == OPERATOR:
            ids = self.ids.decode(event.args)
            rows, number = self.operators, whole(ids.external if ids.record is None else ids.record)
            self.operator_ids = self.operator_ids if ids.record is None else RECORD_ID
            if name in PRODUCTS:
                inputs = msgspec.json.decode(event.args, type=_Inputs)
                product = product_of(*(msgspec.json.decode(each) for each in (inputs.shapes, inputs.types)))
                told |= {} if product is None else {"products": product}
            told |= {} if ids.sequence is None else {"sequences": whole(ids.sequence)}
            if name == COMMUNICATION and kind_of((asked := self.arguments.decode(event.args)).operation or ""):
                told["said"] = self._collective(asked)
        rows.add(event, self._thread(event), self._name(name), number, kind, **told)

    def _add_task(self, event: Event, name: str, kind: int, arguments: Arguments) -> None:
        stream = self.streams.setdefault(stream_of(event, arguments), len(self.streams))
        said = dict[str, object]()
        if arguments.operation or arguments.group:
            said["collectives"] = self._collective(arguments)
        elif kind == MEMCPY and arguments.copied:
            said["copied"] = whole(arguments.copied)
        if arguments.blocks is not None:
            said["multiprocessors"] = _share(arguments.blocks, 1), _share(arguments.occupancy, 100)
        self.tasks.add(event, stream, self._name(name), whole(arguments.correlation), kind, **said)

    def _collective(self, arguments: Arguments) -> Collective:
        """What NCCL's arguments say, and the file's head of their group."""
        known = self.groups.get(arguments.group or "", _Group())
        told = bytes(arguments.group_ranks).decode()
        group = str(known.ranks) if known.ranks and (not told or "..." in told) else told or arguments.group or ""
        ends = ["" if end is None else str(end) for end in (arguments.source, arguments.destination)]
        group += f" {ends[0]}>{ends[1]}" if any(ends) else ""
        numbers = (arguments.elements, arguments.size, arguments.first, arguments.stride)
        elements, size, first, stride = map(whole, numbers)
        size = size if size <= MOST_RANKS else 0
        size = size or len(known.ranks or ())
        texts = arguments.description or known.description or "", arguments.dtype or ""
        called = arguments.group or ""
        return Collective(arguments.operation or "", group, elements, size, *texts, first, stride, called)

    def trace(self, file: str, rank: int | None, device: str, base_ns: int) -> KinetoTrace:
        """Everything as columns on one clock; the file's own begins at `base_ns`."""
        rows = (self.calls, self.operators, self.tasks)
        starts = [min(part.start_us) for part in rows if part.start_us] + [mark.ts for mark, _ in self.marks.values()]
        base_us = float(np.floor(min(starts)))
        (calls, _), (operators, asked), (tasks, ran) = (part.intervals(base_us) for part in rows)
        steps = []
        for index, (event, thread) in sorted(self.marks.items(), key=lambda mark: mark[1][0].ts):
            start = round((event.ts - base_us) * 1e3)
            steps.append(StepMark(index, start, start + round(max(event.dur or 0, 0) * 1e3), thread))
        said = asked.pop("said", {})
        made = KinetoTrace(
            file=file,
            rank=rank or 0,
            rank_known=rank is not None,
            base_ns=base_ns + round(base_us * 1e3),
            device=device,
            names=tuple(self.names),
            threads=tuple(self.threads),
            streams=tuple(self.streams),
            calls=calls,
            operators=operators,
            tasks=tasks,
            steps=tuple(steps),
            syncs=self.syncs,
            annotations=self.annotations.intervals(base_us)[0],
            frames=self.frames.intervals(base_us)[0],
            operator_ids=self.operator_ids,
            again=sum(part.again for part in rows),
            endless=sum(part.endless for part in rows) + sum(_endless(mark) for mark, _ in self.marks.values()),
            **asked,
            **ran,
        )
        around = launched_by(made, said).items()
        described = made.collectives | {kernel: said[row] for kernel, row in around if row >= 0}
        for row, one in described.items():
            group, _, ends = one.group.rpartition(" ")
            source, separator, destination = ends.partition(">")
            if separator and not (source and destination):  # the end that is not named is this rank, if that is known
                own = "" if rank is None else f" {source or rank}>{destination or rank}"
                described[row] = replace(one, group=group + own)
        return replace(made, collectives=described)


def stream_of(event: Event, arguments: Arguments) -> tuple[int, int]:
    """A task's device and the number of its stream there; where neither that nor a queue (XPU) is said, its row."""
    lane = arguments.queue if arguments.stream is None else arguments.stream
    row = re.findall(r"\d+", str(event.tid))[-1:] if lane is None else []
    return whole(arguments.device), whole(row[0] if row else lane)


def read_kineto(content: bytes, file: str) -> KinetoTrace:
    """One rank's trace from the bytes of its JSON document; InputError when this is no JSON, no trace, or a trace
    without anything that ran on a GPU; the message names `file`.
    """
    try:
        with collection_paused():
            document = _document(content)
            distributed = _told(document.distributed, _Distributed, _Distributed())
            collector = _Collector(_told(distributed.groups, list[_Group], []))
            _each(document.events or [], collector.add)
    except UNREADABLE as error:
        found = str(error) if content.strip() else "an empty file"
        ours = b'"traceEvents"' in content or b'"ph"' in content[:HEAD]  # broken, but no file of another kind
        if ours and isinstance(error, EventError):
            raise error.refused(content, file) from error
        ended = ours and "truncated" in found
        what = "the trace ends in the midst of its events" if ended else "this is not a profiler trace"
        place = _broken(content, file, found)
        raise _unfit(b"" if ours else content, place, what, "Kineto's JSON with traceEvents", found) from error
    if document.events is None:
        what, hint = "there is no list of events", ""
        if document.nodes is not None:
            what = "a host execution trace says what ran, but not when on the GPU"
            hint = "record a profiler trace beside it: torch.profiler's export_chrome_trace"
        raise _unfit(content, file, what, 'the key "traceEvents"', hint=hint)
    if not collector.tasks.start_us:
        hint = "record with ProfilerActivity.CUDA on a machine with a GPU"
        operators, calls = (len(rows.start_us) for rows in (collector.operators, collector.calls))
        found = f"{operators} operators and {calls} calls of the runtime"
        raise _unfit(content, file, "nothing in this trace ran on a GPU", "kernel events", found, hint)
    in_name = RANK_IN_NAME.search(Path(file).name)
    rank = whole(distributed.rank) if distributed.rank is not None else -1
    if rank < 0:  # none, or no number of a rank
        rank = whole(in_name[1]) if in_name else -1
    told = (_told(said, list[_Device], []) for said in (document.devices, document.older_devices))
    device = next((some[0].name or "" for some in told if some), "")
    base_ns = _told(document.base, int, 0)
    base_ns = base_ns if abs(base_ns) < MOST_US * 1e3 else 0
    return collector.trace(file, rank if rank >= 0 else None, device, base_ns)


def _broken(content: bytes, file: str, found: str) -> Location:
    """Where the document is no JSON, or has a value of another kind, if the decoder says it."""
    if key := re.search(r" - at `\$\.(\w+)`", found):
        return location((content, file), (key[1],))[0]
    at = re.search(r"\(byte (\d+)\)", found)
    if at is None and "truncated" not in found:
        return Location(file)
    before = content[: int(at[1]) if at else len(content)].decode(errors="replace")
    return location_of(before, len(before), file)


def _unfit(
    content: bytes, file: str | Location, message: str, expected: str, found: str = "", hint: str = ""
) -> InputError:
    """The error for a file that cannot be replayed, which says what it is where that is known."""
    what, instead, _ = foreign(content[:HEAD].decode("latin-1"), ("traceEvents",))
    return InputError.at(file, message, expected=expected, found=what or found, hint=hint or instead)


def _document(content: bytes) -> _Document:
    """The outer layer only; every event stays undecoded."""
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return _outer(content)
    except msgspec.DecodeError:
        mended = COMMA.sub(rb"\1.", NO_NUMBER.sub(rb"\1null", content))
        mended = ESCAPE.sub(lambda found: found[0] if found[1] else rb"\\", mended)
        if mended == content:
            raise
        return _outer(mended)


def _outer(content: bytes) -> _Document:
    if content.lstrip()[:1] == b"[":
        return _Document(events=msgspec.json.decode(content, type=list[msgspec.Raw]))
    return msgspec.json.decode(content, type=_Document)


def complete_events(content: bytes, take: Callable[[Event], None]) -> None:
    """Give `take` the complete events of a JSON document; one of `UNREADABLE` where it is none, or has none."""
    events = _document(content).events
    if events is None:
        raise ValueError("there is no list of events")
    _each(events, take)


class EventError(ValueError):
    """A value of an event that is none, and the steps to it from the list of events."""

    def __init__(self, message: str, steps: Steps):
        super().__init__(f"traceEvents{named(steps)}: {message}")
        self.steps = steps

    def refused(self, content: bytes, file: str) -> InputError:
        """The error with the value's place in the document, and what stands there for what was read as null."""
        listed = content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        place, line = location((content, file), self.steps if listed else ("traceEvents", *self.steps))
        word = re.match(r"[-+]?\w+", line[place.column - 1 :])
        said = str(self).replace("got `null`", f"got `{word[0]}`") if word else str(self)
        return InputError.at(place, said, expected="an event of PyTorch's profiler", source=line)


def _each(events: Iterable[msgspec.Raw], take: Callable[[Event], None]) -> None:
    """Decode events one by one for `take`: the complete ones (phase X), then those of which beginning and end stand
    apart (B, E). Flows, metadata and instants carry nothing for a replay.
    """
    for number, event in _timed(events):
        try:
            take(event)
        except ValueError as error:
            raise _refused(error, number, "args") from error


def _timed(events: Iterable[msgspec.Raw]) -> Iterator[tuple[int, Event]]:
    """The events that take time, and which of all they are."""
    decode = msgspec.json.Decoder(Event, strict=False).decode  # times may be texts
    halves = list[tuple[int, Event]]()
    for number, raw in enumerate(events):
        try:
            try:
                event = decode(raw)
            except (UnicodeDecodeError, msgspec.DecodeError):  # names that were freed before they were written
                event = decode(bytes(raw).decode(errors="replace"))
        except ValueError as error:
            raise _refused(error, number) from error
        if event.ph not in ("X", "B", "E"):
            continue
        if not (-MOST_US < event.ts < MOST_US and (event.dur or 0) < MOST_US):
            raise _beyond(number, event)
        if event.ph == "X":
            yield number, event
        else:
            halves.append((number, event))
    yield from _joined(halves)


def _joined(halves: list[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    """Whole events of beginnings and ends, which nest on each thread; EventError for a task or call without an end.

    An end without a beginning is of something that began before the trace.
    """
    under_way = defaultdict[tuple[object, object], list[tuple[int, Event]]](list)
    for number, event in sorted(halves, key=lambda half: half[1].ts):
        begun = under_way[event.pid, event.tid]
        if event.ph == "B":
            begun.append((number, event))
        elif begun:
            place, first = begun.pop()
            first.dur = event.ts - first.ts
            yield place, first
    for number, event in (half for begun in under_way.values() for half in begun):
        if (event.cat or "").lower() in CATEGORIES:
            raise EventError(f"'{event.name}' begins and never ends", (number,))


def _refused(error: ValueError, number: int, *within: str) -> EventError:
    """What a decoder says of an event, or of a part of it, with its place."""
    told, _, key = str(error).partition(" - at `$.")
    return EventError(told, (number, *within, *[key.removesuffix("`")] * bool(key)))


def _beyond(number: int, event: Event) -> EventError:
    text = f"the time of '{event.name}' is beyond all clocks: {event.ts} + {event.dur} us"
    return EventError(text, (number, "dur" if abs(event.ts) < MOST_US else "ts"))


def read_ranks(paths: Iterable[str | Path]) -> list[KinetoTrace]:
    """The traces of all ranks in the given files and archives, ordered by rank (see `ranked`)."""
    return ranked([read_kineto(content, file) for path in paths for file, content in documents(path)])


def ranked(traces: Iterable[KinetoTrace]) -> list[KinetoTrace]:
    """Traces in the order of their ranks.

    A rank is what the trace says of itself, else the number behind `rank` or `worker` in its file name, else its place.
    InputError when two traces claim the same rank.
    """
    numbered = [trace if trace.rank_known else replace(trace, rank=place) for place, trace in enumerate(traces)]
    seen: dict[int, str] = {}
    for trace in numbered:
        if trace.rank in seen:
            raise InputError.at(
                trace.file, f"rank {trace.rank} occurs twice", found=seen[trace.rank], hint="give one trace per rank"
            )
        seen[trace.rank] = trace.file
    return sorted(numbered, key=lambda trace: trace.rank)
