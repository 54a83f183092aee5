"""The host side of one step: a chain of nodes per thread, and where threads hand over to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from simcore.replay.device import LaunchQueue
from simcore.replay.graph import EdgeKind, GraphBuilder, NodeKind
from simcore.replay.host import SyncCall, Wake, find_wakes
from simcore.replay.rank import NOWHERE, RankView

__all__ = ["HostNodes", "add_host"]


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


@dataclass(frozen=True, slots=True)
class HostNodes:
    """The nodes that the device side refers to.

    `launcher[call]` is the node behind which a call's tasks are released, `returned[call]` the one that ends with the
    call. `begin` and `end` are the step's marks.
    """

    begin: int
    end: int
    launcher: dict[int, Reached]
    returned: dict[int, int]


def add_host(
    builder: GraphBuilder, number: int, rank: RankView, step: int, queue: LaunchQueue, syncs: dict[int, SyncCall]
) -> HostNodes:
    """Add the chains of all threads that launch or wait in a step of rank `number`."""
    threads = _Threads(builder, number, rank, step, queue, syncs)
    items = threads.calls()
    wakes = find_wakes(rank, rank.windows[step], items)
    for wake in wakes:
        items[wake.thread].append(Item(wake.at_ns, What.WAKE, wake.since_ns))
        items[wake.source_thread].append(Item(wake.source_ns, What.MARK, 0))
    ends = [threads.add_chain(thread, sorted(set(items[thread]))) for thread in sorted(items)]
    for wake in wakes:
        threads.hand_over(wake)
    begin, end = next(marks for marks in ends if marks is not None)
    if not rank.marked:
        threads.join(end)
    return HostNodes(begin, end, threads.launcher, threads.returned)


@dataclass(slots=True)
class _Threads:
    """The chains while they are built; `points` are the wakes and marks of each thread by time."""

    builder: GraphBuilder
    number: int
    rank: RankView
    step: int
    queue: LaunchQueue
    syncs: dict[int, SyncCall]
    launcher: dict[int, Reached] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    points: dict[tuple[int, What, int], Reached] = field(default_factory=dict)
    lasts: dict[int, Reached] = field(default_factory=dict)

    def calls(self) -> dict[int, list[Item]]:
        """Launching and waiting calls of each thread; the driving thread is always there."""
        rank, found = self.rank, dict[int, list[Item]]()
        found[rank.windows[self.step].thread] = []
        launching = set(rank.launch[rank.task_step == self.step].tolist()) - {NOWHERE}
        waiting = {call for call in self.syncs if rank.call_step[call] == self.step}
        for call in launching | waiting:
            item = Item(int(rank.trace.calls.start_ns[call]), What.CALL, call)
            found.setdefault(int(rank.trace.calls.lane[call]), []).append(item)
        return found

    def add_chain(self, thread: int, items: list[Item]) -> tuple[int, int] | None:
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

    def join(self, end: int) -> None:
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

    def hand_over(self, wake: Wake) -> None:
        """Let a thread resume after another one got to a point, by the recorded time in between."""
        source = self.points[wake.source_thread, What.MARK, wake.source_ns]
        target = self.points[wake.thread, What.WAKE, wake.at_ns]
        lag = wake.at_ns - source.end_ns
        self.builder.edge(EdgeKind.CROSS_THREAD, source.node, target.node, lag, idle_ns=max(lag, 0))
