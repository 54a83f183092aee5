"""Why each task started when it did: its launch, its stream, another stream, or nothing we know of."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.replay.steps.rank import LONG_AGO, RankView
from simcore.workload.kineto import KERNEL, Column

# Figures of the trial in reference/lumos.md section 5; all on the scale of a launch (about 10 us).
SHORT_GAP_NS = 12_000  # two tasks of a stream this close follow each other without another reason
LAUNCH_JITTER_NS = 12_000  # a launch may take this much longer than usual
WAKE_NS = 50_000  # a stream resumes within this time after the task it waited for
LOOK_BACK = 64  # so many tasks of another stream at most can end within that time
DRAIN_SHARE = 0.025  # a kernel in this last part of its time no longer fills the device
NOTICEABLE_NS = 2_000  # later than every known reason by more than this is late
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
DEFAULT_LATENCY_NS, DEFAULT_GAP_NS = 8_000, 1_500
LATENCY_PERCENTILE = 25
LONG_CALL = 8  # a launch call this many times the median was blocked
LONG_CALL_NS = 20_000
FULL_QUEUE, LEAST_DEPTH, LEAST_BLOCKED = 0.98, 128, 8


class StreamWait(Struct, frozen=True):
    """A stream waiting for a task of another one; `recorded` by the profiler or inferred from timing."""

    source: int
    lag_ns: int
    recorded: bool


class Delays:
    """Why every task started when it did, by the measured times of its neighbours.

    Columns over tasks: lags after the launch call's start and after the previous task's end, and what is left over.

    `unrecorded_ns` is the time in which a graph ran nothing that was recorded, kept as if it were work.
    `late_ns` is how long after its launch and its stream would allow the task started, `unexplained_ns` the part of it
    that no other dependency explains either; `waits[task]` are its waits for other streams.
    """

    def __init__(self, rank: RankView):
        tasks = rank.trace.tasks
        start, launched = tasks.start_ns, rank.launch >= 0
        called = np.where(launched, rank.launch_ns, np.iinfo(np.int64).min >> 1)
        # What nothing launched and nothing precedes could have begun with the trace.
        nothing = np.where(launched, np.iinfo(np.int64).min >> 1, rank.windows[0].start_ns)
        previous_end = np.where(rank.previous >= 0, tasks.end_ns[rank.previous], nothing)
        latency, gap = start - called, start - previous_end
        unqueued = launched & (previous_end <= called)
        sources, waited = _recorded_sources(rank), np.zeros(len(tasks), dtype=bool)
        for task, some in sources.items():  # a recorded wait held it, after its launch and the task before it
            last_ns, ready_ns = int(tasks.end_ns[some].max()), max(called[task], previous_end[task])
            waited[task] = ready_ns < last_ns <= start[task] <= last_ns + WAKE_NS
        usual_latency = _usual(latency[unqueued & ~waited & (latency >= 0)], LATENCY_PERCENTILE, DEFAULT_LATENCY_NS)
        usual_gap = _usual(gap[~unqueued & ~waited & (gap >= 0) & (gap <= SHORT_GAP_NS)], 50, DEFAULT_GAP_NS)
        # A graph may run kernels that nobody records: what passes on its stream before a task is its work.
        in_graph = _in_graph(rank)
        own = unqueued & (in_graph | (latency <= usual_latency + LAUNCH_JITTER_NS)) & ~waited
        launch_lag = np.where(own, latency, np.minimum(latency, usual_latency))
        stream_lag = np.where((unqueued | waited | (gap > SHORT_GAP_NS)) & ~in_graph, np.minimum(gap, usual_gap), gap)
        # Tasks of one stream may overlap by rounding or by early launch; none may start before the one ahead of it.
        ahead_ns = np.where(rank.previous >= 0, (tasks.end_ns - start)[rank.previous], 0)
        stream_lag = np.maximum(stream_lag, -ahead_ns)
        by_launch, by_stream = called + launch_lag, previous_end + stream_lag
        self.launch_lag_ns = np.where(launched, launch_lag, 0)
        self.stream_lag_ns = np.where(rank.previous >= 0, stream_lag, usual_gap)
        self.unrecorded_ns = np.where(in_graph, np.maximum(np.minimum(latency, gap) - SHORT_GAP_NS, 0), 0)
        self.late_ns = np.maximum(start - np.maximum(by_launch, by_stream), 0)
        self.bound_by_launch = launched & (by_launch >= by_stream)
        self.waits = _recorded_waits(rank, sources, waited, usual_gap)
        self.unexplained_ns = _infer_waits(rank, start - self.late_ns, self.late_ns, self.waits)


def _launches_graph(rank: RankView) -> NDArray[np.bool_]:
    """Which calls launch a CUDA or HIP graph."""
    names = np.array([bool(GRAPH_LAUNCH.match(name)) for name in rank.trace.names], dtype=bool)
    found: NDArray[np.bool_] = names[rank.trace.calls.name]
    return found


def _in_graph(rank: RankView) -> NDArray[np.bool_]:
    """Which tasks were launched as part of a CUDA or HIP graph, but those behind another stream of a graph."""
    tasks, launched = rank.trace.tasks, rank.launch >= 0
    inside = np.zeros(len(launched), dtype=bool)
    inside[launched] = _launches_graph(rank)[rank.launch[launched]]
    alone = inside.copy()
    for lane, rows in enumerate(rank.stream_tasks):
        ends = np.r_[LONG_AGO, np.sort(tasks.end_ns[inside & (tasks.lane != lane)])]
        last_ns = ends[np.searchsorted(ends, tasks.start_ns[rows], side="right") - 1]
        alone[rows] &= tasks.start_ns[rows] - last_ns > WAKE_NS
    return alone


def _usual(values: Column, percentile: int, default: int) -> int:
    return int(np.percentile(values, percentile)) if len(values) else default


def _recorded_sources(rank: RankView) -> dict[int, list[int]]:
    """Event record and stream wait pairs, where the profiler wrote cuda_sync events: task -> those it waits for.

    The sources are the last task launched on the recording stream before the record call and what that stream was told
    to wait for since, the waiting one is the first launched on the waiting stream after the wait call (HTA issues 73,
    117 and 121 tell what other choices break).
    """
    trace, found = rank.trace, dict[int, list[int]]()
    for correlation, sync in trace.syncs.items():
        lane, began_ns = rank.stream_of(sync.stream, sync.device), rank.began_ns(correlation)
        if lane < 0 or began_ns == LONG_AGO or "Wait" not in sync.kind:
            continue
        target = int(np.searchsorted(rank.stream_launch_ns[lane], began_ns, side="right"))
        sources = [source for source in rank.recorded_behind(sync) if trace.tasks.lane[source] != lane]
        if sources and target < len(rank.stream_tasks[lane]):
            found.setdefault(int(rank.stream_tasks[lane][target]), []).extend(sources)
    return found


def _recorded_waits(
    rank: RankView, sources: dict[int, list[int]], waited: NDArray[np.bool_], usual_gap_ns: int
) -> dict[int, list[StreamWait]]:
    """The recorded waits: the one that held a task takes the time until it starts, others that of a short gap."""
    tasks, waits = rank.trace.tasks, dict[int, list[StreamWait]]()
    for task, some in sources.items():
        last_ns = int(tasks.end_ns[some].max())
        for source in some:
            after = int(tasks.start_ns[task] - tasks.end_ns[source])
            held = waited[task] and tasks.end_ns[source] == last_ns
            lag = after if held else min(usual_gap_ns, after)
            waits.setdefault(task, []).append(StreamWait(source, lag, recorded=True))
    return waits


def _infer_waits(rank: RankView, ready_ns: Column, late_ns: Column, waits: dict[int, list[StreamWait]]) -> Column:
    """Explain late starts by the other streams; what stays unexplained.

    A task that could have started earlier waited for one launched before it that ended shortly before, as behind an
    event; or, when there is none, for a kernel that held the multiprocessors and was draining when the task started.
    """
    tasks, left = rank.trace.tasks, late_ns.copy()
    for task in np.flatnonzero(late_ns > NOTICEABLE_NS).tolist():
        start, ready = int(tasks.start_ns[task]), int(ready_ns[task])
        if any(0 <= start - tasks.end_ns[wait.source] <= WAKE_NS for wait in waits.get(task, ())):
            left[task] = 0
            continue
        others = [rows for lane, rows in enumerate(rank.stream_tasks) if lane != tasks.lane[task] and len(rows)]
        before = [rows[: np.searchsorted(tasks.start_ns[rows], start, side="right")] for rows in others]
        found = [source for rows in before for source in _event_source(rank, task, ready, rows)]
        found = found or [source for rows in before for source in _draining(rank, start, ready, rows[-1:])]
        if found:  # which of those that ended together it waited for, nothing tells
            last_ns, left[task] = max(found)[0], 0
            together = (one for one in found if last_ns - one[0] <= NOTICEABLE_NS)
            waits.setdefault(task, []).extend(StreamWait(row, start - end, recorded=False) for end, row in together)
    return left


def _event_source(rank: RankView, task: int, ready_ns: int, rows: Column) -> list[tuple[int, int]]:
    """(end, row) of the last task on another stream not launched later, if it ended just before `task` started."""
    tasks, start = rank.trace.tasks, int(rank.trace.tasks.start_ns[task])
    for source in rows[-LOOK_BACK:][::-1].tolist():
        end = int(tasks.end_ns[source])
        if end <= max(start - WAKE_NS, ready_ns):
            break
        if end <= start and rank.launch_ns[source] <= rank.launch_ns[task]:
            return [(end, source)]
    return []


def _draining(rank: RankView, start: int, ready_ns: int, rows: Column) -> Iterator[tuple[int, int]]:
    """(end, row) of a kernel on another stream that ran when a task was ready and was almost done at its start."""
    tasks = rank.trace.tasks
    for source in rows.tolist():
        begin, end = int(tasks.start_ns[source]), int(tasks.end_ns[source])
        almost_done = start <= end <= start + max(WAKE_NS, DRAIN_SHARE * (end - begin)) and end - start < end - begin
        if tasks.kind[source] == KERNEL and begin <= ready_ns + SHORT_GAP_NS and almost_done:
            yield end, source


class LaunchQueue:
    """How many launches may be outstanding (0: no limit was met), which calls it blocked, and what a call costs.

    The driver's limit is seen where launch calls took long while as many launches as ever were outstanding: on a V100
    (trace `ns_resolution`) all but a few of 985 long calls returned with 1019 to 1021 tasks outstanding. A graph is one
    launch, whatever it holds, and its call takes long anyway.
    """

    def __init__(self, rank: RankView):
        calls, launched = rank.trace.calls, rank.launch >= 0
        done_ns = np.full(len(calls), LONG_AGO)
        np.maximum.at(done_ns, rank.launch[launched], rank.trace.tasks.end_ns[launched])
        launch = np.flatnonzero(done_ns > LONG_AGO)
        length = calls.end_ns[launch] - calls.start_ns[launch]
        self.depth, self.blocked, self.usual_ns = 0, frozenset[int](), int(np.median(length)) if len(launch) else 0
        completed = np.searchsorted(np.sort(done_ns[launch]), calls.end_ns[launch], side="right")
        outstanding = np.arange(len(launch)) - completed
        depth = int(outstanding.max(initial=0))
        full = (length > max(LONG_CALL * self.usual_ns, LONG_CALL_NS)) & (outstanding >= FULL_QUEUE * depth)
        full &= ~_launches_graph(rank)[launch]
        if depth >= LEAST_DEPTH and full.sum() >= LEAST_BLOCKED:
            self.depth, self.blocked = depth, frozenset(launch[full].tolist())
