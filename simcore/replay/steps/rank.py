"""One rank's trace seen as a program: its steps, its top-level calls, which call launched which task."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.replay.kinds import COMMUNICATION, LOADER, kind_of_name
from simcore.timeline.breakdown import merge
from simcore.workload.kineto import KERNEL, Column, Intervals, KinetoTrace, StepMark, StreamSync

NOWHERE = -1
LONG_AGO = -(1 << 62)
NONE = np.zeros(0, np.int64)


class Activity:
    """What a thread was seen doing: when each recorded interval ended, and the union of them all."""

    def __init__(self, start_ns: Column, end_ns: Column):
        self.ends_ns = np.sort(end_ns)
        self.busy_start_ns, self.busy_end_ns = merge(start_ns, end_ns)
        self.busy_before_ns = np.r_[0, np.cumsum(self.busy_end_ns - self.busy_start_ns)][:-1]

    def last_end(self, time_ns: int) -> int:
        """When the last interval that ended by `time_ns` ended; -1 when none did."""
        at = int(np.searchsorted(self.ends_ns, time_ns, side="right"))
        return int(self.ends_ns[at - 1]) if at else NOWHERE

    def busy_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of a span was recorded."""
        return self._busy_until(end_ns) - self._busy_until(start_ns) if end_ns > start_ns else 0

    def _busy_until(self, time_ns: int) -> int:
        at = int(np.searchsorted(self.busy_start_ns, time_ns, side="right")) - 1
        if at < 0:
            return 0
        return int(self.busy_before_ns[at] + min(time_ns, self.busy_end_ns[at]) - self.busy_start_ns[at])

    def first_active(self, time_ns: int) -> int:
        """The first moment from `time_ns` on at which something was recorded; `time_ns` when nothing follows."""
        at = int(np.searchsorted(self.busy_end_ns, time_ns, side="right"))
        return max(time_ns, int(self.busy_start_ns[at])) if at < len(self.busy_start_ns) else time_ns

    def gaps(self, start_ns: int, end_ns: int, least_ns: int) -> list[tuple[int, int]]:
        """Spans of at least `least_ns` between two recorded intervals, the second starting inside the given span."""
        first, last = np.searchsorted(self.busy_start_ns, (start_ns, end_ns), side="left")
        closes = self.busy_start_ns[first:last]
        opens = np.maximum(np.r_[start_ns, self.busy_end_ns][first:last], start_ns)
        wide = closes - opens >= least_ns
        return list(zip(opens[wide].tolist(), closes[wide].tolist(), strict=True))


class RankView:
    """A trace and what follows from it for all steps; columns are parallel to `trace.calls` or `trace.tasks`.

    `outermost[call]` is the call that contains a nested one, itself otherwise. `launch[task]` is the outermost call
    that launched it or -1, `launch_ns` when, `launch_order` the tasks in that order. `previous[task]` ran before it on
    its stream (-1: none). `task_step` and `call_step` are positions in `windows` or -1; a task belongs to the step that
    launched it. `stream_tasks` are the tasks of each stream in order, `stream_launch_ns` when each was launched at the
    latest. `categories` are those of kinds.txt for each of the trace's names, `loading` a thread's times in the loader.
    `position_of` says which of the `windows` a step's number is, `communicators` what a group of ranks calls its own.
    """

    def __init__(self, trace: KinetoTrace):
        self.trace, self.windows, calls, tasks = trace, _windows(trace), trace.calls, trace.tasks
        self.position_of = {window.index: at for at, window in enumerate(self.windows)}
        self.outermost = _outermost(calls)
        numbers, owners = calls.correlation.tolist(), self.outermost.tolist()
        first, last = dict(zip(numbers[::-1], owners[::-1], strict=True)), dict(zip(numbers, owners, strict=True))
        # A number that several calls have, as 0 in some versions, names none.
        known = {number: owner for number, owner in last.items() if first[number] == owner and number != NOWHERE}
        launch = [known.get(one, NOWHERE) for one in tasks.correlation.tolist()]
        self.launch = np.array(launch, dtype=np.int64)
        self.stream_tasks = tuple(np.flatnonzero(tasks.lane == lane) for lane in range(len(trace.streams)))
        self.launch_ns = _launch_times(calls, tasks, self.launch, self.stream_tasks)
        self.launch_order = np.lexsort((tasks.start_ns, self.launch_ns))
        self.stream_launch_ns = tuple(np.maximum.accumulate(self.launch_ns[rows]) for rows in self.stream_tasks)
        self.previous = np.full(len(tasks), NOWHERE)
        for rows in self.stream_tasks:
            self.previous[rows[1:]] = rows[:-1]
        self.call_step = _step_at(self.windows, calls.start_ns)
        self.task_step = _task_steps(self.launch, self.launch_ns, self.windows, self.stream_tasks)
        self.categories = tuple(kind_of_name(name).category for name in trace.names)
        loads, talks = (
            np.array([one == kind for one in self.categories], dtype=bool) for kind in (LOADER, COMMUNICATION)
        )
        self.communication = talks[tasks.name]
        called = defaultdict[str, set[str]](set)
        for said in trace.collectives.values():
            called[said.group].add(said.communicator)
        self.communicators = {group: frozenset(names) for group, names in called.items()}
        self.activities = _activities(calls, trace.operators)
        # Whether a host that was recorded marked the steps; else nothing says that they outlast their work.
        self.marked = bool(trace.steps and self.activities)
        self.loading = _activities(*(rows.where(loads[rows.name]) for rows in (trace.operators, trace.annotations)))

    @cached_property
    def _call_ns(self) -> dict[int, int]:
        """When the call of each correlation began."""
        calls = self.trace.calls
        return dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))

    def stream_of(self, number: int, device: int = NOWHERE) -> int:
        """The position among all streams of a device's, or of the only one of that number; -1 where there is none."""
        found = {device: lane for lane, (device, stream) in enumerate(self.trace.streams) if stream == number}
        return found.get(device, next(iter(found.values())) if len(found) == 1 else NOWHERE)

    def began_ns(self, correlation: int) -> int:
        """When the call of a correlation began; long ago where it was not recorded."""
        return self._call_ns.get(correlation, LONG_AGO)

    @cached_property
    def _told_to_wait(self) -> dict[int, list[tuple[int, StreamSync]]]:
        """The events that each stream was told to wait for, by time."""
        found = defaultdict[int, list[tuple[int, StreamSync]]](list)
        for correlation, sync in self.trace.syncs.items():
            if "Wait" in sync.kind:
                found[self.stream_of(sync.stream, sync.device)].append((self.began_ns(correlation), sync))
        return {lane: sorted(waits, key=itemgetter(0)) for lane, waits in found.items()}

    def recorded_behind(self, sync: StreamSync) -> list[int]:
        """The tasks that a recorded event stands behind. [] where that is not known; which device's stream it is where
        several have one of that number, nothing says.
        """
        return self.behind(self.stream_of(sync.wait_stream), self.began_ns(sync.record_correlation))

    def behind(self, lane: int, before_ns: int) -> list[int]:
        """The tasks behind all that a stream was told before a time: launched last on it, and those for which it was
        told to wait since then.
        """
        found, asked, reached = dict[int, None](), [(lane, before_ns)], dict[int, int]()
        for stream, time_ns in asked:  # grows while it is walked
            if stream < 0 or time_ns <= reached.get(stream, LONG_AGO):
                continue
            last, waits = self.last_launched(stream, time_ns), self._told_to_wait.get(stream, [])
            since_ns, reached[stream] = int(self.launch_ns[last]) if last >= 0 else LONG_AGO, time_ns
            found |= {last: None} if last >= 0 else {}
            first, end = (bisect_left(waits, at_ns, key=itemgetter(0)) for at_ns in (since_ns, time_ns))
            events = (sync for _, sync in reversed(waits[first:end]))
            asked += [(self.stream_of(event.wait_stream), self.began_ns(event.record_correlation)) for event in events]
        return list(found)

    def communicating(self, step: int) -> list[int]:
        """The communication kernels of a step in the order of their launch."""
        kernels = self.communication & (self.trace.tasks.kind == KERNEL) & (self.task_step == step)
        rows: list[int] = self.launch_order[kernels[self.launch_order]].tolist()
        return rows

    def without_task(self) -> int:
        """How many calls in the steps launched nothing recorded, though others of their name launch kernels."""
        calls, launched = self.trace.calls, self.launch >= 0
        kernels = launched & (self.trace.tasks.kind == KERNEL)
        missing = np.isin(calls.name, calls.name[self.launch[kernels]]) & (self.call_step >= 0)
        missing &= self.outermost == np.arange(len(calls))
        missing[self.launch[launched]] = False
        return int(missing.sum())

    def of_category(self, *categories: str) -> NDArray[np.bool_]:
        """Which tasks are of some categories."""
        chosen: NDArray[np.bool_] = np.isin(self.categories, categories)[self.trace.tasks.name]
        return chosen

    @cached_property
    def _launched_on(self) -> dict[int, tuple[Column, Column]]:
        """The tasks that each thread launched and when, in the order of their launch."""
        rows = self.launch_order[self.launch[self.launch_order] >= 0]
        threads = self.trace.calls.lane[self.launch[rows]]
        some = {thread: rows[threads == thread] for thread in np.unique(threads).tolist()}
        return {thread: (own, self.launch_ns[own]) for thread, own in some.items()}

    def launched(self, thread: int, from_ns: int, to_ns: int, among: NDArray[np.bool_] | None = None) -> Column:
        """The tasks that a thread launched in a time, of all or `among` some."""
        own, times_ns = self._launched_on.get(thread, (NONE, NONE))
        rows = np.sort(own[slice(*np.searchsorted(times_ns, (from_ns, to_ns)))])
        return rows if among is None else rows[among[rows]]

    def done_ns(self, time_ns: int) -> int:
        """When the device was done with what had been launched by a time."""
        return int(self.trace.tasks.end_ns[self.launch_ns < time_ns].max(initial=time_ns))

    def last_launched(self, lane: int, before_ns: int) -> int:
        """The task launched last on a stream before a time; -1 when there is none."""
        at = int(np.searchsorted(self.stream_launch_ns[lane], before_ns, side="left"))
        return int(self.stream_tasks[lane][at - 1]) if at else NOWHERE


def _windows(trace: KinetoTrace) -> tuple[StepMark, ...]:
    """The marked steps, each up to the next one; a trace without marks is one, from its first call or task on."""
    if marks := trace.steps:
        return (*(replace(mark, end_ns=after.start_ns) for mark, after in pairwise(marks)), marks[-1])
    lanes = np.r_[trace.calls.lane, trace.operators.lane]
    return (StepMark(0, *trace.span_ns, int(np.bincount(lanes).argmax()) if len(lanes) else 0),)


def _outermost(calls: Intervals) -> Column:
    """For each call the one it is nested in on its thread (a driver call inside a runtime call), itself otherwise."""
    outermost = np.arange(len(calls))
    for lane in np.unique(calls.lane):
        rows = np.flatnonzero(calls.lane == lane)
        reach = np.maximum.accumulate(calls.end_ns[rows])
        nested = np.r_[False, calls.end_ns[rows][1:] <= reach[:-1]] & (calls.start_ns[rows] < np.r_[0, reach[:-1]])
        holder = np.maximum.accumulate(np.where(nested, 0, np.arange(len(rows))))
        outermost[rows] = rows[holder]
    return outermost


def _launch_times(calls: Intervals, tasks: Intervals, launch: Column, stream_tasks: tuple[Column, ...]) -> Column:
    """When each task was launched; without a recorded launch, with the latest launch that the device had got to, but
    between those of its neighbours on its stream.

    What a stream ran before its first recorded launch was launched before the trace; a stream without any recorded
    launch counts its tasks as launched when they started.
    """
    launched = launch >= 0
    times: Column = np.where(launched, calls.start_ns[launch] if len(calls) else 0, LONG_AGO)
    reached = np.maximum.accumulate(times)
    for rows in stream_tasks:
        known = times[rows]
        before = np.maximum.accumulate(known)
        after = np.minimum.accumulate(np.where(launched[rows], known, -LONG_AGO)[::-1])[::-1]
        between = np.where(before > LONG_AGO, np.clip(reached[rows], before, np.maximum(before, after)), before)
        times[rows] = np.where(launched[rows], known, between if launched[rows].any() else tasks.start_ns[rows])
    return times


def _step_at(windows: tuple[StepMark, ...], times_ns: Column) -> Column:
    """The window that holds each time, -1 outside."""
    starts = np.array([window.start_ns for window in windows])
    at = np.searchsorted(starts, times_ns, side="right") - 1
    return np.where(times_ns < windows[-1].end_ns, at, NOWHERE)


def _task_steps(
    launch: Column, launch_ns: Column, windows: tuple[StepMark, ...], stream_tasks: tuple[Column, ...]
) -> Column:
    """The step that launched each task.

    What was left over from a time before the trace belongs to no step. A stream without any recorded launch goes with
    what other streams run at the time, in a trace without launches with the marks.
    """
    steps, launched = _step_at(windows, launch_ns), np.flatnonzero(launch >= 0)
    before = np.searchsorted(launched, np.arange(len(launch)), side="right") - 1
    for rows in stream_tasks if len(launched) else ():
        if (launch[rows] < 0).all():
            steps[rows] = steps[launched[np.maximum(before[rows], 0)]]
    return steps


def _activities(*some: Intervals) -> dict[int, Activity]:
    start, end, lane = (
        np.concatenate([getattr(rows, name) for rows in some]) for name in ("start_ns", "end_ns", "lane")
    )
    return {one: Activity(start[lane == one], end[lane == one]) for one in np.unique(lane).tolist()}
