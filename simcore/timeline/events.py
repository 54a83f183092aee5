"""The event table: one row per interval, in columns; and the `Timeline` that holds it with its context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.timeline.link_use import LinkHistory, LinkRows

FOREVER = 1 << 60  # an end in nanoseconds that no run sees
NO_LAYER = -1
MOST_ROWS = 1_000_000  # of curves of queues, of what is played at once; more keep their beginning
WAITING, STILL, MARKS, DROPS = WHAT = range(4)  # that a row of such a curve tells
COMPUTE_STREAM = 0  # stream of a class; 1 + d is the communication of dimension d


class EventKind(IntEnum):
    """What an interval is.

    COLLECTIVE is issue to completion (with its update delay), CHUNK one phase of one chunk in one dimension,
    WAIT the time an NPU stands still for a collective. SEND and RECV are point to point, MEMORY a load or store,
    CPU host work.
    """

    COMPUTE = 0
    COLLECTIVE = 1
    CHUNK = 2
    WAIT = 3
    SEND = 4
    RECV = 5
    MEMORY = 6
    CPU = 7


SAID = ("kind", "name", "layer", "phase", "size_bytes", "iteration")  # what an event is, whose and whenever it is
COLUMNS = ("npu_class", "stream", "start_ns", "end_ns", *SAID)


class EventBuffer:
    """Where the layers write rows while the simulation runs: no objects, no strings."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._names: dict[str, int] = {}
        self._ends: dict[Hashable, int] = {}  # of messages that have one end so far: its row
        self._messages = array("q")
        self.append = self._rows.extend  # append((npu_class, stream, start_ns, ...)) in the order of COLUMNS

    def name(self, text: str) -> int:
        """The number of a name, a new one when it was not seen before."""
        return self._names.setdefault(text, len(self._names))

    def message(self, key: Hashable, *, sends: bool) -> None:
        """The next row is one end of the message `key`; once both ends are known the message is."""
        row = len(self._rows) // len(COLUMNS)
        other = self._ends.pop(key, None)
        if other is None:
            self._ends[key] = row
        else:
            self._messages.extend((row, other) if sends else (other, row))

    def extend(self, rows: NDArray[np.int64]) -> None:
        """Write many rows at once."""
        self._rows.frombytes(rows.tobytes())

    def table(self) -> EventTable:
        """Everything written so far, as columns, ordered by start, class and stream."""
        rows = np.asarray(self._rows, np.int64).reshape(-1, len(COLUMNS))
        columns = np.ascontiguousarray(rows.T)
        order = _in_order(*columns[:4])
        messages = np.array(self._messages, dtype=np.int64).reshape(-1, 2)
        table = EventTable(tuple(self._names), *columns.take(order, axis=1))
        return replace(table, messages=_renumbered(messages, order, len(order)))


def _in_order(*columns: NDArray[np.int64]) -> NDArray[np.intp]:
    """Rows of (class, stream, start, end) by start, class, stream and end; two keys are sorted faster than four."""
    npu_class, stream, start_ns, end_ns = columns
    classes, streams, starts = (int(column.max(initial=0)) + 1 for column in columns[:3])
    if starts * classes * streams >= 1 << 63:
        return np.lexsort((end_ns, stream, npu_class, start_ns))
    return np.lexsort((end_ns, (start_ns * classes + npu_class) * streams + stream))


def _renumbered(messages: NDArray[np.int64], kept: NDArray[np.intp], num_rows: int) -> NDArray[np.int64]:
    """Messages between rows of which only those `kept` remain, in that order; those that lose an end are left out."""
    if not len(messages):
        return messages
    places = np.full(num_rows, -1, dtype=np.int64)
    places[kept] = np.arange(len(kept))
    moved: NDArray[np.int64] = places[messages]
    moved = moved[(moved >= 0).all(axis=1)]
    return moved[np.lexsort(moved.T[::-1])]


@dataclass(frozen=True, slots=True, eq=False)
class EventTable:
    """Columns of equal length; all int64.

    `npu_class` indexes `Timeline.ranks`, `stream` is COMPUTE_STREAM or 1 + dimension, `kind` an `EventKind`, `name`
    indexes `names`, `layer` a row of the workload or NO_LAYER, `phase` the position in `list(PhaseName)` or -1,
    `size_bytes` what one NPU sends (CHUNK, SEND) or the size of the collective. `messages`, (messages, 2), are the
    rows of a SEND and of the RECV that gets it.
    """

    names: tuple[str, ...]
    npu_class: NDArray[np.int64]
    stream: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int64]
    name: NDArray[np.int64]
    layer: NDArray[np.int64]
    phase: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    iteration: NDArray[np.int64]
    messages: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, mask: NDArray[np.bool_] | NDArray[np.intp]) -> EventTable:
        """The rows that `mask` selects: a boolean per row, or row numbers."""
        rows = np.flatnonzero(mask) if mask.dtype == np.bool_ else mask.astype(np.intp)
        columns = (getattr(self, column)[rows] for column in COLUMNS)
        return replace(EventTable(self.names, *columns), messages=_renumbered(self.messages, rows, len(self)))

    def kinds(self, finish_ns: Sequence[int]) -> NDArray[np.int64]:
        """A number for what every class does, equal where it is the same, until the same time."""
        columns = np.stack([getattr(self, column) for column in COLUMNS])
        ordered = columns[:, np.lexsort(columns[::-1])]
        own = np.split(ordered[1:], np.searchsorted(ordered[0], np.arange(1, len(finish_ns))), axis=1)
        known = dict[tuple[bytes, int], int]()
        does = ((rows.tobytes(), end_ns) for rows, end_ns in zip(own, finish_ns, strict=True))
        return np.array([known.setdefault(each, len(known)) for each in does])

    def rows(self, *columns: str, of: NDArray[np.int64] | slice = slice(None)) -> Iterator[tuple[int, ...]]:
        """What these columns hold, event by event, of those events."""
        return zip(*(getattr(self, column)[of].tolist() for column in columns), strict=True)


class FaultCount(Struct, frozen=True):
    """A fault of some links and what it did: transfers (and their bytes) slowed down, transfers led around."""

    fault: str
    begin_ns: int
    end_ns: int
    transfers: int
    size_bytes: int
    rerouted: int


@dataclass(frozen=True, slots=True, eq=False)
class QueueTable:
    """What the queue in front of each link did, in columns of int64 as long as `LinkTable`'s.

    `peak_bytes` is the most that waited. `still_ns` and `stops` say how long and how often the link stood still for
    want of room behind it (paused, or without credits). `marks` are segments, packets of flows, that were marked on
    their way into the queue, `drops` those dropped behind the link, of `dropped_bytes`, which were sent again.

    `curves` say when: rows of (link, time in ns, what, value). WAITING: so many bytes wait from then on. STILL: the
    link stands still from then on, for so many ns. MARKS, DROPS: so many more are marked or dropped then. But for
    WAITING the values add up to the column.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("peak_bytes", "still_ns", "stops", "marks", "drops", "dropped_bytes")
    peak_bytes: NDArray[np.int64]
    still_ns: NDArray[np.int64]
    stops: NDArray[np.int64]
    marks: NDArray[np.int64]
    drops: NDArray[np.int64]
    dropped_bytes: NDArray[np.int64]
    curves: LinkHistory

    @classmethod
    def of(cls, rows: NDArray[np.int64], **columns: NDArray[np.int64]) -> QueueTable:
        """Of links in the order of the columns, and the rows of their curves, of one time in their order."""
        return cls(**columns, curves=LinkHistory([LinkRows.of(rows)], np.arange(len(columns["peak_bytes"]))))

    def on(self, stands_for: NDArray[np.int64]) -> QueueTable:
        """Of more links, each of which did what one of these did."""
        columns = {name: getattr(self, name)[stands_for] for name in self.COLUMNS}
        return QueueTable(**columns, curves=LinkHistory(self.curves.parts, stands_for))

    def curves_of(self, link: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Times and values of a link: what waits, how it stands still, what is marked and dropped."""
        times_ns, whats, values = self.curves.of(link)
        return [(times_ns[whats == what], values[whats == what]) for what in WHAT]

    @classmethod
    def repeated(cls, parts: Sequence[tuple[QueueTable, int, Sequence[int]]], links: int) -> QueueTable:
        """Of what was played again and again: tables, the first of the `links` of each, and when each began."""
        columns = {name: np.zeros(links, np.int64) for name in cls.COLUMNS}
        for table, first, begins_ns in parts:
            own = slice(first, first + len(table.peak_bytes))
            for name, column in columns.items():
                once, so_far = getattr(table, name), column[own]
                column[own] = np.maximum(so_far, once) if name == "peak_bytes" else so_far + len(begins_ns) * once
        each = ((part, first, begins_ns) for table, first, begins_ns in parts for part in table.curves.parts)
        curves = [part.again(first, begins_ns) for part, first, begins_ns in each if len(part)]
        nothing = LinkRows.of(np.zeros((0, 4), np.int64))
        return cls(**columns, curves=LinkHistory([nothing, *curves], np.arange(links)))

    @classmethod
    def joined(cls, tables: Sequence[QueueTable], before: Sequence[int]) -> QueueTable:
        """The queues of several networks; `before` is how many links stand before each."""
        columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in cls.COLUMNS}
        return cls(**columns, curves=LinkHistory.joined([table.curves for table in tables], before))


class NodeNames(Sequence[str], ABC):
    """Names of numbered nodes, made when they are asked for: a large machine has millions."""

    @property
    @abstractmethod
    def nodes(self) -> NDArray[np.int64]:
        """The number of every node."""

    @abstractmethod
    def name_of(self, node: int) -> str:
        """The name of the node of a number; no two have the same."""


def in_order_of_coming(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every number of some once, in the order in which they first come."""
    first = np.full(int(nodes.max(initial=0)) + 1, len(nodes))
    first[nodes[::-1]] = np.arange(len(nodes))[::-1]
    found: NDArray[np.int64] = np.argsort(first)[: np.count_nonzero(first < len(nodes))]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """What each link carried, where links are modelled; columns of equal length, `src` and `dst` name the ends.

    `coordinates`, (links, 4), are column and row of either end where the network lies flat: meshes, tori, wafers.
    `faults` are those of the run, in the order given, `use` says when links were occupied, where a run kept that;
    `queues` what queues did, where they are modelled.
    """

    src: Sequence[str]
    dst: Sequence[str]
    size_bytes: NDArray[np.int64]
    busy_ns: NDArray[np.int64]
    coordinates: NDArray[np.int64] | None = None
    faults: tuple[FaultCount, ...] = ()
    use: LinkHistory | None = None
    queues: QueueTable | None = None

    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
        """Source and destination of every link as numbers of nodes, and the names of these.

        Nodes are numbered as they come: sources first, then what is a destination only.
        """
        if not (isinstance(self.src, NodeNames) and isinstance(self.dst, NodeNames)):
            known = dict[str, int]()
            src, dst = (
                np.array([known.setdefault(name, len(known)) for name in names], np.int64)
                for names in (self.src, self.dst)
            )
            return src, dst, list(known)
        nodes = np.concatenate([self.src.nodes, self.dst.nodes])
        first = in_order_of_coming(nodes)
        numbers = np.zeros(int(nodes.max(initial=0)) + 1, np.int64)
        numbers[first] = np.arange(len(first))
        src, dst = np.split(numbers[nodes], 2)
        return src, dst, list(map(self.src.name_of, first.tolist()))

    @classmethod
    def joined(cls, tables: Sequence[LinkTable]) -> LinkTable:
        """The links of several networks, one after the other; without what not all of them have."""
        before = np.cumsum([0, *(len(table.size_bytes) for table in tables)])[:-1].tolist()
        places, uses, queues = ([getattr(table, name) for table in tables] for name in ("coordinates", "use", "queues"))
        return cls(
            [end for table in tables for end in table.src],
            [end for table in tables for end in table.dst],
            np.concatenate([table.size_bytes for table in tables]),
            np.concatenate([table.busy_ns for table in tables]),
            None if any(place is None for place in places) else np.concatenate(places),
            use=None if None in uses else LinkHistory.joined(uses, before),
            queues=None if None in queues else QueueTable.joined(queues, before),
        )


class CircuitRun(Struct, frozen=True):
    """The configurations of an optical switch by name, how long a change takes, and since when which was in place."""

    names: tuple[str, ...]
    delay_ns: int
    changes: tuple[tuple[int, int], ...]


class PipelineRun(Struct, frozen=True):
    """The schedule of a pipelined run and when its cells were played.

    `classes` are those of the stages' first NPUs. `cells` are (stage, kind, micro-batch, chunk, start and end in ns),
    kind F, B or W, or E for what reduces and gathers at the end of an iteration (number as micro-batch).
    """

    schedule: str
    stages: int
    micro_batches: int
    chunks: int
    classes: tuple[int, ...]
    cells: Sequence[tuple[int, str, int, int, int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class WaferRun:
    """The steps of a run of a wafer as the report gives them; `load_ns` is how long each NPU computes.

    `traffic` are bytes from node to node, (nodes, nodes), per layer.
    """

    steps: Sequence[Mapping[str, object]]
    load_ns: NDArray[np.int64]
    traffic: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


class Curve(NamedTuple):
    """A figure over time of a class of NPUs, -1 = of the links; each value holds until the next one's time."""

    npu_class: int
    title: str
    values: tuple[tuple[int, float], ...]
    unit: str = "% busy"


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """All that a run left, in whole nanoseconds and bytes: what every report and picture is made of.

    `events` is a table of columns, one row for everything that took time; `time_ns` is when the last of it was over.
    `iterations` are (begin, end) of each, `links` what each link carried, `pipeline` and `wafer` what such runs add.
    `ranks[c]` are the NPUs of class c, ascending; class 0 holds NPU 0. `finish_ns[c]` is when the class was done.
    `layers` names the workload's rows, `asked` what each asks for: phase -> (collective, bytes); `dims` are the
    topology's dimensions as (kind, npus), `rated_bytes_per_s` what NPU 0 can send at in each, `streams` the names
    of streams where a trace gives them, `curves` what was recorded over time, `circuits` those of an optical switch,
    `notes` say what the user should know of how collectives were timed.
    """

    events: EventTable
    time_ns: int
    iterations: tuple[tuple[int, int], ...]
    ranks: tuple[Sequence[int], ...]
    finish_ns: tuple[int, ...]
    layers: tuple[str, ...] = ()
    dims: tuple[tuple[str, int], ...] = ()
    rated_bytes_per_s: tuple[float, ...] = ()
    links: LinkTable | None = None
    asked: Sequence[Mapping[str, tuple[str | None, int]]] = ()
    streams: tuple[str, ...] = ()
    pipeline: PipelineRun | None = None
    wafer: WaferRun | None = None
    curves: tuple[Curve, ...] = ()
    circuits: CircuitRun | None = None
    notes: tuple[str, ...] = ()

    @property
    def npus(self) -> int:
        """How many NPUs were simulated."""
        return sum(map(len, self.ranks))
