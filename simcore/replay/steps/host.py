"""The host side of one step: which calls wait for the device, a chain of nodes per thread, where threads hand over."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from simcore.replay.steps.device import LaunchQueue
from simcore.replay.steps.graph import EdgeKind, GraphBuilder, NodeKind
from simcore.replay.steps.rank import NOWHERE, RankView
from simcore.workload.kineto import StepMark, StreamSync

# As CUDA, HIP, and Intel's unified runtime and Level Zero call them.
DEVICE_SYNC = re.compile(r"(cuda|hip)DeviceSynchronize|(cu|hip)CtxSynchronize")
STREAM_SYNC = re.compile(r"(cuda|hip|cu)StreamSynchronize|urQueueFinish|zeCommandQueueSynchronize")
EVENT_SYNC = re.compile(r"(cuda|hip|cu)EventSynchronize|urEventWait|ze(Event|Fence)HostSynchronize")
COPY = re.compile(r"(cuda|hip|cu)Memcpy")
ASYNC = "Async"
PINNED = re.compile(r"Pinned|DtoD|Device -> Device|PtoP|P2P")
WAITING_GAP_NS = 40_000  # a thread this long without anything recorded may wait for another one ...
WAITING_BUSY = 0.4  # ... that was busy for this share of it
CLOCK_NS = 1_000  # a task may seem to end this much after the call that waited for it


class SyncCall(Struct, frozen=True):
    """A call that returns only after `sources` (rows of the tasks) ended, and the host time it takes after that."""

    sources: tuple[int, ...]
    tail_ns: int


def find_syncs(rank: RankView) -> dict[int, SyncCall]:
    """Every outermost call that waited for the device, by its row in `trace.calls`.

    A device synchronisation waits for the last task of every stream. Which device, stream or event a call waited for is
    what cuda_sync events say, else all devices, and the stream whose last launched task ended during the call. A copy
    waits for itself when the host memory is not pinned.
    """
    names = rank.trace.names
    finders = ((DEVICE_SYNC, _device_sync), (STREAM_SYNC, _stream_sync), (EVENT_SYNC, _event_sync))
    kinds = {number: finder for number, name in enumerate(names) for pattern, finder in finders if pattern.match(name)}
    syncs = dict[int, SyncCall]()
    calls = rank.trace.calls
    for call, name in enumerate(calls.name.tolist()):
        if name in kinds and rank.outermost[call] == call:
            recorded = rank.trace.syncs.get(int(calls.correlation[call]))
            sources = kinds[name](rank, recorded, int(calls.start_ns[call]), int(calls.end_ns[call]) + CLOCK_NS)
            if sources:
                syncs[call] = _sync_call(rank, call, sources)
    ends_ns, labels = rank.trace.tasks.end_ns, rank.trace.tasks.name
    for task, call in enumerate(rank.launch.tolist()):
        function = names[calls.name[call]] if call >= 0 else ""
        blocks = COPY.match(function) and (ASYNC not in function or not PINNED.search(names[labels[task]]))
        if blocks and ends_ns[task] <= calls.end_ns[call] + CLOCK_NS:
            syncs[call] = _sync_call(rank, call, (task,))
    return syncs


def _sync_call(rank: RankView, call: int, sources: tuple[int, ...]) -> SyncCall:
    start, end = int(rank.trace.calls.start_ns[call]), int(rank.trace.calls.end_ns[call])
    released = max(int(rank.trace.tasks.end_ns[source]) for source in sources)
    return SyncCall(sources, max(end - max(released, start), 0))


def _last_tasks(rank: RankView, before_ns: int) -> list[int]:
    lasts = (rank.last_launched(lane, before_ns) for lane in range(len(rank.stream_tasks)))
    return [task for task in lasts if task >= 0]


def _device_sync(rank: RankView, recorded: StreamSync | None, start_ns: int, until_ns: int) -> tuple[int, ...]:
    trace = rank.trace
    devices = {device for device, _ in trace.streams}
    if recorded is not None and recorded.device in devices:
        devices = {recorded.device}
    own = (task for task in _last_tasks(rank, start_ns) if trace.streams[trace.tasks.lane[task]][0] in devices)
    return tuple(task for task in own if trace.tasks.end_ns[task] <= until_ns)


def _stream_sync(rank: RankView, recorded: StreamSync | None, start_ns: int, until_ns: int) -> tuple[int, ...]:
    end_ns = rank.trace.tasks.end_ns
    if recorded is not None and recorded.stream >= 0:
        own = rank.behind(rank.stream_of(recorded.stream, recorded.device), start_ns)
        return tuple(task for task in own if end_ns[task] <= until_ns)
    ended = [task for task in _last_tasks(rank, start_ns) if start_ns < end_ns[task] <= until_ns]
    return (max(ended, key=lambda task: int(end_ns[task])),) if ended else ()


def _event_sync(rank: RankView, recorded: StreamSync | None, start_ns: int, until_ns: int) -> tuple[int, ...]:
    """The tasks that the event was recorded behind; where that is not said, any launched before the call may be it: the
    last that ended during the call.
    """
    end_ns = rank.trace.tasks.end_ns
    if recorded is not None and (sources := rank.recorded_behind(recorded)):
        return tuple(source for source in sources if end_ns[source] <= until_ns)
    rows = np.flatnonzero((end_ns > start_ns) & (end_ns <= until_ns) & (rank.launch_ns < start_ns))
    return (int(rows[end_ns[rows].argmax()]),) if len(rows) else ()


class Wake(Struct, frozen=True):
    """A thread resumes at `at_ns` because another one got as far as `source_ns`; it had been still since `since_ns`."""

    thread: int
    since_ns: int
    at_ns: int
    source_thread: int
    source_ns: int


def find_wakes(rank: RankView, window: StepMark, threads: Iterable[int]) -> list[Wake]:
    """Where the threads of a step hand over to each other.

    A thread that begins late is woken by the driving thread; a wide gap in which another thread was busy is a wait.
    """
    wakes, known = [], sorted(threads)
    for thread in known:
        own = rank.activities.get(thread)
        if own is None:
            continue
        others = [(other, rank.activities[other]) for other in known if other != thread and other in rank.activities]
        if thread != window.thread:  # its first activity follows the last thing the driving thread had finished by then
            driver, at = rank.activities.get(window.thread), own.first_active(window.start_ns)
            source = driver.last_end(at) if driver is not None else NOWHERE
            wakes.append(Wake(thread, window.start_ns, at, window.thread, max(source, window.start_ns)))
        for since, at in own.gaps(window.start_ns, window.end_ns, WAITING_GAP_NS):
            if thread != window.thread and since <= window.start_ns:
                continue
            # The other thread that was busy in the gap and finished something last before its end.
            busy = [
                (other.last_end(at), number)
                for number, other in others
                if other.busy_ns(since, at) >= WAITING_BUSY * (at - since)
            ]
            end, number = max(busy, default=(NOWHERE, NOWHERE))
            if end > max(since, window.start_ns):
                wakes.append(Wake(thread, since, at, number, end))
    return wakes


class What(IntEnum):
    """What a thread has at a moment; the order is what comes first at equal times."""

    WAKE = 0
    MARK = 1
    CALL = 2


class Item(NamedTuple):
    """A moment of a thread. `detail` is when the thread fell still (WAKE) or the row of the call (CALL)."""

    time_ns: int
    what: What
    detail: int


class Reached(NamedTuple):
    """A node and when it ended in the trace."""

    node: int
    end_ns: int


class HostNodes:
    """The chains of all threads that launch or wait in a step of rank `number`.

    `points` are their wakes and marks by time, `begin` and `end` the step's marks. `launcher[call]` is the node behind
    which a call's tasks are released, `returned[call]` the one that ends with the call.
    """

    def __init__(
        self, builder: GraphBuilder, number: int, rank: RankView, step: int, queue: LaunchQueue,
        syncs: dict[int, SyncCall],
    ):  # fmt: skip
        self.builder, self.number, self.rank, self.step = builder, number, rank, step
        self.queue, self.syncs = queue, syncs
        self.launcher, self.returned = dict[int, Reached](), dict[int, int]()
        self.points, self.lasts = dict[tuple[int, What, int], Reached](), dict[int, Reached]()
        items = self._calls()
        wakes = find_wakes(rank, rank.windows[step], items)
        for wake in wakes:
            items[wake.thread].append(Item(wake.at_ns, What.WAKE, wake.since_ns))
            items[wake.source_thread].append(Item(wake.source_ns, What.MARK, 0))
        ends = [self._add_chain(thread, sorted(set(items[thread]))) for thread in sorted(items)]
        for wake in wakes:
            self._hand_over(wake)
        self.begin, self.end = next(marks for marks in ends if marks is not None)
        if not rank.marked:
            self._join(self.end)

    def _calls(self) -> dict[int, list[Item]]:
        """Launching and waiting calls of each thread; the driving thread is always there."""
        rank, found = self.rank, dict[int, list[Item]]()
        found[rank.windows[self.step].thread] = []
        launching = set(rank.launch[rank.task_step == self.step].tolist()) - {NOWHERE}
        waiting = {call for call in self.syncs if rank.call_step[call] == self.step}
        for call in launching | waiting:
            item = Item(int(rank.trace.calls.start_ns[call]), What.CALL, call)
            found.setdefault(int(rank.trace.calls.lane[call]), []).append(item)
        return found

    def _add_chain(self, thread: int, items: list[Item]) -> tuple[int, int] | None:
        """One thread from item to item; the first and the last node of the driving thread, which are the marks."""
        rank, window = self.rank, self.rank.windows[self.step]
        driving = thread == window.thread
        last = Reached(self._node(thread, window.start_ns) if driving else NOWHERE, window.start_ns)
        first = last.node
        for item in items:
            last = self._add_item(thread, last, item)
            first = last.node if first < 0 else first
        if driving:
            end = self._node(thread, window.end_ns)
            self._follow(thread, last, end, window.end_ns if rank.marked else self._still_ns(thread, last))
            last = Reached(end, window.end_ns)
        self.lasts[thread] = last
        if last.node >= 0:
            # A thread goes on where it was; its first node is the step's mark, on the other threads their first wake.
            self.builder.edge(EdgeKind.PROGRAM_ORDER, last.node, first, back=1)
        return (first, last.node) if driving else None

    def _still_ns(self, thread: int, last: Reached) -> int:
        """When the last thing recorded on a thread ended."""
        own = self.rank.activities.get(thread)
        return max(last.end_ns, own.last_end(self.rank.windows[self.step].end_ns) if own is not None else 0)

    def _join(self, end: int) -> None:
        """Without marks a step ends when every thread is still."""
        for thread, last in self.lasts.items():
            if last.node not in (NOWHERE, end):
                lag = self._still_ns(thread, last) - last.end_ns
                self.builder.edge(EdgeKind.CROSS_THREAD, last.node, end, lag, idle_ns=lag)

    def _add_item(self, thread: int, last: Reached, item: Item) -> Reached:
        """What comes next on a thread; a mark at or before the last node's end is that node."""
        if item.what == What.CALL:
            return self._add_call(thread, last, item)
        if item.what == What.MARK and last.node >= 0 and item.time_ns <= last.end_ns:
            self.points[thread, item.what, item.time_ns] = last
            return last
        node = self._node(thread, item.time_ns)
        self._follow(thread, last, node, item.detail if item.what == What.WAKE else item.time_ns)
        self.points[thread, item.what, item.time_ns] = Reached(node, item.time_ns)
        return Reached(node, item.time_ns)

    def _add_call(self, thread: int, last: Reached, item: Item) -> Reached:
        """A call: what it costs without waiting, and behind the wait what it does before it returns."""
        call, start_ns = item.detail, item.time_ns
        end_ns = int(self.rank.trace.calls.end_ns[call])
        sync = self.syncs.get(call)
        length_ns = 0 if sync else self.queue.usual_ns if call in self.queue.blocked else end_ns - start_ns
        node = self._node(thread, start_ns, length_ns, call)
        self._follow(thread, last, node, start_ns)
        self.launcher[call] = Reached(node, start_ns + length_ns)
        if sync:
            tail = self._node(thread, end_ns - sync.tail_ns, sync.tail_ns, call)
            self.builder.edge(EdgeKind.PROGRAM_ORDER, node, tail)
            node = tail
        self.returned[call] = node
        return Reached(node, end_ns)

    def _node(self, thread: int, time_ns: int, length_ns: int = 0, call: int = NOWHERE) -> int:
        name = int(self.rank.trace.calls.name[call]) if call >= 0 else NOWHERE
        return self.builder.node(NodeKind.HOST, length_ns, self.number, thread, time_ns, name)

    def _follow(self, thread: int, last: Reached, node: int, until_ns: int) -> None:
        """Program order, keeping the host time in between; only the step's end may cut the last call short."""
        if last.node < 0:
            return
        lag = until_ns - last.end_ns
        if until_ns < self.rank.windows[self.step].end_ns:
            lag = max(lag, 0)
        own = self.rank.activities.get(thread)
        busy = own.busy_ns(last.end_ns, until_ns) if own is not None else 0
        loading = self.rank.loading.get(thread)
        loader_ns = min(loading.busy_ns(last.end_ns, until_ns), max(lag, 0)) if loading is not None else 0
        idle_ns = max(lag - max(busy, loader_ns), 0)
        self.builder.edge(EdgeKind.PROGRAM_ORDER, last.node, node, lag, idle_ns=idle_ns, loader_ns=loader_ns)

    def _hand_over(self, wake: Wake) -> None:
        """Let a thread resume after another one got to a point, by the recorded time in between."""
        source = self.points[wake.source_thread, What.MARK, wake.source_ns]
        target = self.points[wake.thread, What.WAKE, wake.at_ns]
        lag = wake.at_ns - source.end_ns
        self.builder.edge(EdgeKind.CROSS_THREAD, source.node, target.node, lag, idle_ns=max(lag, 0))
