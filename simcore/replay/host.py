"""The threads of one step: which calls wait for the device, and where threads wait for each other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simcore.replay.rank import NOWHERE, Activity, RankView, Window

__all__ = ["SyncCall", "Wake", "find_syncs", "find_wakes"]

DEVICE_SYNC = re.compile(r"(cuda|hip)DeviceSynchronize|(cu|hip)CtxSynchronize")
STREAM_SYNC = re.compile(r"(cuda|hip|cu)StreamSynchronize")
EVENT_SYNC = re.compile(r"(cuda|hip|cu)EventSynchronize")
COPY = re.compile(r"(cuda|hip|cu)Memcpy")
ASYNC = "Async"
PINNED = re.compile(r"Pinned|DtoD|Device -> Device|PtoP|P2P")
WAITING_GAP_NS = 40_000  # a thread this long without anything recorded may wait for another one ...
WAITING_BUSY = 0.4  # ... that was busy for this share of it
CLOCK_NS = 1_000  # a task may seem to end this much after the call that waited for it


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A call that returns only after `sources` (rows of the tasks) ended, and the host time it takes after that."""

    sources: tuple[int, ...]
    tail_ns: int


def find_syncs(rank: RankView) -> dict[int, SyncCall]:
    """Every outermost call that waited for the device, by its row in `trace.calls`.

    A device synchronisation waits for the last task of every stream. Which stream another call waited for is what
    cuda_sync events say, else the one whose last launched task ended during the call. A copy waits for itself when the
    host memory is not pinned.
    """
    names = rank.trace.names
    finders = ((DEVICE_SYNC, _device_sync), (STREAM_SYNC, _stream_sync), (EVENT_SYNC, _event_sync))
    kinds = {number: finder for number, name in enumerate(names) for pattern, finder in finders if pattern.match(name)}
    syncs = dict[int, SyncCall]()
    calls = rank.trace.calls
    for call, name in enumerate(calls.name.tolist()):
        if name in kinds and rank.outermost[call] == call:
            sources = kinds[name](rank, call)
            if sources:
                syncs[call] = _sync_call(rank, call, sources)
    for task, call in enumerate(rank.launch.tolist()):
        if call >= 0 and _copy_blocks(rank, task, call):
            syncs[call] = _sync_call(rank, call, (task,))
    return syncs


def _sync_call(rank: RankView, call: int, sources: tuple[int, ...]) -> SyncCall:
    start, end = int(rank.trace.calls.start_ns[call]), int(rank.trace.calls.end_ns[call])
    released = max(int(rank.trace.tasks.end_ns[source]) for source in sources)
    return SyncCall(sources, max(end - max(released, start), 0))


def _last_tasks(rank: RankView, before_ns: int) -> list[int]:
    lasts = (rank.last_launched(lane, before_ns) for lane in range(len(rank.stream_tasks)))
    return [task for task in lasts if task >= 0]


def _device_sync(rank: RankView, call: int) -> tuple[int, ...]:
    start, end = rank.trace.calls.start_ns[call], rank.trace.calls.end_ns[call]
    return tuple(task for task in _last_tasks(rank, start) if rank.trace.tasks.end_ns[task] <= end + CLOCK_NS)


def _stream_sync(rank: RankView, call: int) -> tuple[int, ...]:
    trace = rank.trace
    recorded = trace.syncs.get(int(trace.calls.correlation[call]))
    start, end = trace.calls.start_ns[call], trace.calls.end_ns[call]
    lasts = _last_tasks(rank, start)
    if recorded is not None and recorded.stream >= 0:
        lasts = [task for task in lasts if trace.streams[trace.tasks.lane[task]][1] == recorded.stream]
    else:
        lasts = [task for task in lasts if trace.tasks.end_ns[task] > start]
    ended = [task for task in lasts if trace.tasks.end_ns[task] <= end + CLOCK_NS]
    return (max(ended, key=lambda task: int(trace.tasks.end_ns[task])),) if ended else ()


def _event_sync(rank: RankView, call: int) -> tuple[int, ...]:
    """Any task launched before the call may have been the recorded one: the last that ended during the call."""
    trace = rank.trace
    start, end = trace.calls.start_ns[call], trace.calls.end_ns[call]
    inside = (trace.tasks.end_ns > start) & (trace.tasks.end_ns <= end + CLOCK_NS) & (rank.launch_ns < start)
    rows = np.flatnonzero(inside)
    return (int(rows[trace.tasks.end_ns[rows].argmax()]),) if len(rows) else ()


def _copy_blocks(rank: RankView, task: int, call: int) -> bool:
    trace = rank.trace
    function = trace.names[trace.calls.name[call]]
    if not COPY.match(function) or trace.tasks.end_ns[task] > trace.calls.end_ns[call] + CLOCK_NS:
        return False
    return ASYNC not in function or not PINNED.search(trace.names[trace.tasks.name[task]])


@dataclass(frozen=True, slots=True)
class Wake:
    """A thread resumes at `at_ns` because another one got as far as `source_ns`; it had been still since `since_ns`."""

    thread: int
    since_ns: int
    at_ns: int
    source_thread: int
    source_ns: int


def find_wakes(rank: RankView, window: Window, threads: Iterable[int]) -> list[Wake]:
    """Where the threads of a step hand over to each other.

    A thread that begins late is woken by the driving thread; a wide gap in which another thread was busy is a wait.
    """
    wakes, known = [], sorted(threads)
    for thread in known:
        own = rank.activities.get(thread)
        if own is None:
            continue
        others = [(other, rank.activities[other]) for other in known if other != thread and other in rank.activities]
        if thread != window.thread:
            wakes.append(_first_wake(own, window, thread, rank.activities.get(window.thread)))
        for since, at in own.gaps(window.start_ns, window.end_ns, WAITING_GAP_NS):
            if thread != window.thread and since <= window.start_ns:
                continue
            wake = _gap_wake(others, window, thread, since, at)
            if wake is not None:
                wakes.append(wake)
    return wakes


def _first_wake(own: Activity, window: Window, thread: int, driver: Activity | None) -> Wake:
    """A thread's first activity in the step follows the last thing the driving thread had finished by then."""
    at = own.first_active(window.start_ns)
    source = driver.last_end(at) if driver is not None else NOWHERE
    return Wake(thread, window.start_ns, at, window.thread, max(source, window.start_ns))


def _gap_wake(
    others: list[tuple[int, Activity]], window: Window, thread: int, since_ns: int, at_ns: int
) -> Wake | None:
    """The other thread that was busy in the gap and finished something last before its end."""
    busy = [
        (other.last_end(at_ns), number)
        for number, other in others
        if other.busy_ns(since_ns, at_ns) >= WAITING_BUSY * (at_ns - since_ns)
    ]
    busy = [(end, number) for end, number in busy if end > max(since_ns, window.start_ns)]
    if not busy:
        return None
    end, number = max(busy)
    return Wake(thread, since_ns, at_ns, number, end)
