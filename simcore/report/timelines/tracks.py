"""What every timeline draws: events on tracks on which no two slices overlap, and counters of how busy things are."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simcore.report.palette import DIMENSIONS, FAMILIES, PHASES
from simcore.report.queues import curves, deepest
from simcore.report.text import PHASE_WORDS
from simcore.report.timelines.selection import View
from simcore.timeline.breakdown import coverage, merge
from simcore.timeline.events import COMPUTE_STREAM, Curve, EventKind, EventTable, LinkTable, Timeline

Ints = NDArray[np.int64]

# From top to bottom: family -> (title, the kinds of events on it); each dimension has a title of its own
_FAMILIES = {
    "compute": ("compute", (EventKind.COMPUTE,)),
    "host": ("host", (EventKind.CPU,)),
    "wait": ("waiting", (EventKind.WAIT,)),
    "dimension": ("", (EventKind.CHUNK,)),
    "message": ("messages", (EventKind.SEND, EventKind.RECV)),
    "memory": ("memory", (EventKind.MEMORY,)),
    "collective": ("collectives", (EventKind.COLLECTIVE,)),
}
_OF_STREAMS = {EventKind.COLLECTIVE: "collective", EventKind.CPU: "host"}  # by what most events on them are


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """Slices of one kind of activity of one class of NPUs.

    `rows` index the view's events, ascending in time and disjoint. `family` is a key of `palette.FAMILIES`, or
    `dimension` with the index in `dim`. Concurrent slices are on further lanes of the same title.
    """

    npu_class: int
    family: str
    title: str
    lane: int
    dim: int
    rows: Ints

    @property
    def label(self) -> str:
        """Its title, and which of several lanes it is."""
        return self.title + f" ({self.lane + 1})" * bool(self.lane)


def lay_out(timeline: Timeline, view: View) -> list[Track]:
    """The tracks of a view, class by class; tracks without events are left out."""
    by_class = np.argsort(view.events.npu_class, kind="stable")
    bounds = np.searchsorted(view.events.npu_class[by_class], [*view.classes, view.classes[-1] + 1])
    starts, ends, tracks = view.events.start_ns, view.events.end_ns, list[Track]()
    for npu_class, first, last in zip(view.classes, bounds[:-1], bounds[1:], strict=True):
        for family, title, dim, rows in _groups(timeline, view.events, by_class[first:last]):
            ordered = rows[np.lexsort((ends[rows], starts[rows]))]
            lane = lanes(starts[ordered], ends[ordered])
            numbers = range(int(lane.max(initial=-1)) + 1)
            tracks += [Track(npu_class, family, title, at, dim, ordered[lane == at]) for at in numbers]
    return tracks


def _groups(timeline: Timeline, events: EventTable, of_class: Ints) -> Iterator[tuple[str, str, int, Ints]]:
    """The rows of one class by what they show: (family, title, dimension, rows)."""
    for stream in np.unique(events.stream[of_class]).tolist() if timeline.streams else ():
        rows = of_class[events.stream[of_class] == stream]
        usual = EventKind(int(np.bincount(events.kind[rows]).argmax()))
        yield _OF_STREAMS.get(usual, "compute"), timeline.streams[stream], -1, rows
    if timeline.streams:
        return
    for family, (title, kinds) in _FAMILIES.items():
        rows = of_class[np.isin(events.kind[of_class], kinds)]
        if title:
            yield family, title, -1, rows
            continue
        for each in np.unique(events.stream[rows]).tolist():
            dim = each - COMPUTE_STREAM - 1
            known = 0 <= dim < len(timeline.dims)
            named = f"dim {dim}" + (": {} of {}".format(*timeline.dims[dim]) if known else "")
            yield family, named, dim, rows[events.stream[rows] == each]


def lanes(start_ns: Ints, end_ns: Ints) -> Ints:
    """The lane of each interval, ascending starts given: the lowest on which nothing else runs at its start.

    >>> lanes(np.array([0, 1, 3, 4]), np.array([3, 6, 5, 5])).tolist()
    [0, 1, 0, 2]
    """
    if not (start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]).any():
        return np.zeros(len(start_ns), dtype=np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    chosen = []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, lane))
        chosen.append(lane)
    return np.array(chosen, dtype=np.int64)


def colours(view: View, track: Track) -> list[str]:
    """The colour of each slice of a track."""
    if track.family == "dimension":
        return [DIMENSIONS[track.dim % len(DIMENSIONS)]] * len(track.rows)
    if track.family == "compute":
        return [
            PHASES[phase] if phase >= 0 else FAMILIES["compute"] for phase in view.events.phase[track.rows].tolist()
        ]
    return [FAMILIES[track.family]] * len(track.rows)


def meanings(timeline: Timeline, view: View) -> list[tuple[str, str]]:
    """The legend: what each colour means, one entry per colour."""
    phases = list(PHASE_WORDS.values()) if (view.events.phase >= 0).any() else ["compute"]
    entries = [*zip(PHASES, phases, strict=False), (FAMILIES["wait"], "waiting for communication")]
    for index, colour in enumerate(DIMENSIONS):
        dims = range(index, len(timeline.dims), len(DIMENSIONS))
        entries.append((colour, f"dimension {', '.join(map(str, dims))}"))
    return entries + [(FAMILIES[family], family) for family in ("collective", "message", "memory", "host", "link")]


NUM_SAMPLES = 200
MOST_LINKS = 8
MOST_LOOKED_AT = 16  # of links that are equally hot


@dataclass(frozen=True, slots=True, eq=False)
class BusyLink:
    """A link and when it was occupied: disjoint intervals, ascending; `share` of the run."""

    src: str
    dst: str
    share: float
    start_ns: Ints
    end_ns: Ints

    @property
    def title(self) -> str:
        """Its ends."""
        return f"link {self.src} > {self.dst}"


def samples(start_ns: Ints, end_ns: Ints, view: View) -> Iterator[tuple[int, float]]:
    """Times, and the percentage of the time until the next one that the union of the intervals covers; 0 at the end.

    The area below this curve is the time covered.
    """
    edges = _edges(view)
    shares: NDArray[np.float64] = coverage(start_ns, end_ns, edges)
    yield from zip(edges.tolist(), [*(100 * shares).tolist(), 0.0], strict=True)


def _edges(view: View) -> Ints:
    """Of the samples of a view."""
    num_samples = min(NUM_SAMPLES, view.end_ns - view.start_ns)
    return np.linspace(view.start_ns, view.end_ns, num_samples + 1).astype(np.int64)


def passed(events: EventTable) -> list[tuple[int, int]]:
    """Rows of the send and of the receive of every message that is sent before it is received."""
    pairs = events.messages.tolist()
    return [(send, receive) for send, receive in pairs if events.start_ns[send] < events.end_ns[receive]]


def counters(timeline: Timeline, view: View, tracks: list[Track]) -> Iterator[Curve]:
    """How busy recorded devices, dimensions (all lanes together) and the hottest links are; what queues do."""

    def busy(npu_class: int, title: str, rows: Ints) -> Curve:
        return Curve(npu_class, title, (*samples(view.events.start_ns[rows], view.events.end_ns[rows], view),))

    yield from (curve for curve in timeline.curves if curve.npu_class in view.classes)
    for npu_class in view.classes if timeline.streams and not timeline.curves else ():
        yield busy(npu_class, "device", np.flatnonzero(view.events.npu_class == npu_class))
    for track in tracks:
        if track.family == "dimension" and track.lane == 0:
            same = [each.rows for each in tracks if (each.npu_class, each.dim) == (track.npu_class, track.dim)]
            yield busy(track.npu_class, f"{track.title}, utilisation", np.concatenate(same))
    for link in busiest_links(timeline):
        yield Curve(-1, link.title, (*samples(link.start_ns, link.end_ns, view),))
    if timeline.circuits:
        yield Curve(-1, "circuits in place", timeline.circuits.changes, "number")
    yield from _of_queues(timeline, _edges(view))


def _of_queues(timeline: Timeline, edges: Ints) -> Iterator[Curve]:
    """Of the deepest queues what they hold, when their links stand still, what was marked and dropped so far."""
    links = timeline.links
    if links is None or links.queues is None:
        return
    for at in deepest(links.queues):
        told, name = curves(links.queues, at, edges), f"queue {links.src[at]} > {links.dst[at]}"
        still = 100 * np.array(told["curve_still_ns"]) / np.diff(edges)
        figures = (
            (name, "bytes", [*told["curve_bytes"], 0]),
            (f"{name}, still", "%", [*still.tolist(), 0]),
            (f"{name}, marked", "segments", np.cumsum([0, *told["curve_marks"]]).tolist()),
            (f"{name}, dropped", "segments", np.cumsum([0, *told["curve_drops"]]).tolist()),
        )
        for title, unit, values in figures:
            if any(values):
                yield Curve(-1, title, (*zip(edges.tolist(), map(float, values), strict=True),), unit)


def busiest_links(timeline: Timeline) -> list[BusyLink]:
    """The hottest links, the hottest first; of links that are occupied at the same times only the first."""
    links = timeline.links
    if links is None or links.use is None:
        return []
    found: dict[bytes, BusyLink] = {}
    for link in _hot(links):
        start_ns, end_ns = merge(*links.use.spans(link))
        share = int(links.busy_ns[link]) / max(timeline.time_ns, 1)
        known = BusyLink(links.src[link], links.dst[link], share, start_ns, end_ns)
        found.setdefault(start_ns.tobytes() + end_ns.tobytes(), known)
        if len(found) == MOST_LINKS:
            break
    return [*found.values()]


def _hot(links: LinkTable) -> Iterator[int]:
    """Links from the hottest on; few of each that are equally hot."""
    used = np.flatnonzero(links.busy_ns)
    order = used[np.lexsort([-links.size_bytes[used], -links.busy_ns[used]])]
    other = np.diff(links.busy_ns[order], prepend=-1) | np.diff(links.size_bytes[order], prepend=-1)
    for begin, end in pairwise([*np.flatnonzero(other).tolist(), len(order)]):
        yield from order[begin : min(end, begin + MOST_LOOKED_AT)].tolist()
