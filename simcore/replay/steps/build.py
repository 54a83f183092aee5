"""From a rank's trace to the dependency graph of one of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from simcore.errors import SimulationError
from simcore.replay.steps.coupling import Match, transfers
from simcore.replay.steps.device import Delays, LaunchQueue
from simcore.replay.steps.graph import EdgeKind, GraphBuilder, NodeKind, RankNodes, StepGraph
from simcore.replay.steps.host import HostNodes, find_syncs
from simcore.replay.steps.rank import NOWHERE, RankView
from simcore.workload.kineto import KinetoTrace


class Prepared:
    """A rank's trace with everything found in it that does not depend on a step.

    Launches, waits between streams, the launch queue's limit, calls that wait for the device, how long transfers last.
    """

    def __init__(self, trace: KinetoTrace):
        self.view = RankView(trace)
        self.delays, self.queue = Delays(self.view), LaunchQueue(self.view)
        self.syncs, self.transfers = find_syncs(self.view), transfers(self.view)


def build_step(
    ranks: Sequence[Prepared],
    steps: Sequence[int],
    matches: Sequence[Match],
    *,
    coupled: bool = True,
    alone_ns: Sequence[Mapping[int, int]] = (),
) -> StepGraph:
    """One step of several ranks as one graph.

    `steps[r]` is the position of the step in rank r's windows; `matches` are the collectives that they share, which
    take their intrinsic time after the last arrival, or after their own when not `coupled`. `alone_ns` says of each
    rank how long communication transfers that no other rank recorded; the rest of its time is waiting, and stays.
    SimulationError when the traces contradict each other so that nodes wait in a circle.
    """
    builder = GraphBuilder()
    made = [
        _RankStep(builder, number, rank, step) for number, (rank, step) in enumerate(zip(ranks, steps, strict=True))
    ]
    found = {(m.rank, m.task): match for match in matches for m in match.members}
    for rank_step in made:
        rank_step.add_tasks(found, alone_ns[rank_step.number] if alone_ns else {})
        rank_step.add_dependencies(coupled=coupled)
    for match in matches if coupled else ():
        _meet(builder, [(made[member.rank], member.task) for member in match.members], match.waiting_ns)
    files = ", ".join(prepared.view.trace.file for prepared in ranks)
    return builder.graph(
        lambda nodes: SimulationError(
            f"{files}: error: {len(nodes)} calls and tasks wait for each other in a circle\n"
            "  hint:     the ranks' collectives do not fit together; --no-coupling replays the ranks apart"
        )
    )


def _meet(builder: GraphBuilder, members: Sequence[tuple[_RankStep, int]], waiting_ns: int) -> None:
    """Let every member of a collective end its intrinsic time after the last arrival, which is a node of no rank, and
    the waiting for ranks that were not recorded.
    """
    last = builder.node(NodeKind.ARRIVAL, 0, NOWHERE, NOWHERE, 0)
    for own, task in members:
        builder.edge(EdgeKind.COLLECTIVE, own.arrival[task], last)
        builder.edge(EdgeKind.COLLECTIVE, last, own.finish[task], waiting_ns)
        for other, its in members if own.follows_send(task) else ():
            if other is not own:
                builder.edge(EdgeKind.COLLECTIVE, other.arrival[its], own.arrival[task])


class _RankStep:
    """One step of one rank while its part of the graph is built.

    `arrival[task]` is the node whose start and `finish[task]` the one whose end is the task's; `on_stream` lists the
    tasks of each stream in order.
    """

    def __init__(self, builder: GraphBuilder, number: int, prepared: Prepared, step: int):
        self.builder, self.number, self.prepared, self.step = builder, number, prepared, step
        self.rank, self.trace = prepared.view, prepared.view.trace
        self.tasks: list[int] = np.flatnonzero(self.rank.task_step == step).tolist()
        self.host = HostNodes(builder, number, self.rank, step, prepared.queue, prepared.syncs)
        self.arrival: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.on_stream: dict[int, list[int]] = defaultdict(list)
        self.sent, self.coupled = set[int](), set[int]()
        for task in self.tasks:
            self.on_stream[int(self.trace.tasks.lane[task])].append(task)

    def add_tasks(self, matches: Mapping[tuple[int, int], Match], alone_ns: Mapping[int, int]) -> None:
        """A node per task; a collective that waits is its arrival and the part after the last arrival."""
        tasks, nodes = self.trace.tasks, RankNodes(self.host.begin, self.host.end)
        self.builder.ranks.append(nodes)
        for task in self.tasks:
            start, lane, name = int(tasks.start_ns[task]), int(tasks.lane[task]), int(tasks.name[task])
            matched, whole = matches.get((self.number, task)), tasks.length_ns(task)
            length = matched.intrinsic_ns if matched else min(alone_ns.get(task, whole), whole)
            waited = matched.waiting_ns if matched else whole - length
            waits = matched is not None or waited > 0
            place = self.number, lane, start, name
            arrival = self.builder.node(NodeKind.ARRIVAL, 0, *place) if waits else NOWHERE
            node = self.builder.node(NodeKind.TASK, length, *place)
            if waits:
                self.builder.edge(EdgeKind.STREAM, arrival, node, waited)
            self.arrival[task], self.finish[task] = (arrival if waits else node), node
            self.coupled |= {task} if matched is not None else set()
            nodes.tasks.append(task)
            nodes.begins.append(self.arrival[task])
            nodes.ends.append(node)

    def follows_send(self, task: int) -> bool:
        """Whether a coupled receive began late for no reason of its own: with its send then; the end is the same."""
        said = self.trace.collectives.get(task)
        late = task in self.coupled and self.prepared.delays.late_ns[task] > 0
        recorded = any(wait.recorded for wait in self.prepared.delays.waits.get(task, ()))
        return bool(said and said.operation.lower().endswith("recv") and late and not recorded)

    def add_dependencies(self, *, coupled: bool) -> None:
        """Launches, stream order, waits between streams, synchronisation and the launch queue."""
        self.sent = {task for task in self.tasks if coupled and self.follows_send(task)}
        for rows in self.on_stream.values():
            for before, task in zip([rows[-1], *rows[:-1]], rows, strict=True):
                self._start_edges(before, task, back=int(task == rows[0]))
        if not self.rank.marked:  # a step ends when the device is done, too
            for rows in self.on_stream.values():
                self.builder.edge(EdgeKind.STREAM, self.finish[rows[-1]], self.host.end)
        for call, node in self.host.returned.items():
            sync = self.prepared.syncs.get(call)
            for source in sync.sources if sync else ():
                place = self._same_task(source) or self._last_before(source)
                if place is not None:
                    self.builder.edge(EdgeKind.SYNC, place[0], node, back=place[1])
        self._queue_edges()

    def _start_edges(self, before: int, task: int, back: int) -> None:
        delays, node, sent = self.prepared.delays, self.arrival[task], task in self.sent
        call, left = int(self.rank.launch[task]), 0 if sent else int(delays.unexplained_ns[task])
        # What delayed a stream since the step before is no property of this step: it is counted from the launch.
        by_launch = (bool(delays.bound_by_launch[task]) or back > 0) and call in self.host.launcher
        if call in self.host.launcher:
            source, source_ns = self.host.launcher[call]
            ready_ns = int(self.trace.calls.start_ns[call] + delays.launch_lag_ns[task])
            late_ns = int(self.trace.tasks.start_ns[task]) - ready_ns if left and by_launch else 0
            self.builder.edge(EdgeKind.LAUNCH, source, node, ready_ns - source_ns, residual_ns=late_ns)
        lag = max(int(delays.stream_lag_ns[task]), -self.trace.tasks.length_ns(before))
        residual = 0 if by_launch else left
        if call < 0 and self.rank.previous[task] < 0:
            begun_ns = int(self.trace.tasks.start_ns[task]) - self.rank.windows[self.step].start_ns
            self.builder.edge(EdgeKind.STREAM, self.host.begin, node, 0, residual_ns=max(min(left, begun_ns), 0))
        self.builder.edge(EdgeKind.STREAM, self.finish[before], node, lag, residual_ns=residual, back=back)
        for wait in delays.waits.get(task, ()) if not sent else ():
            kind = EdgeKind.INTERSTREAM if wait.recorded else EdgeKind.INTERSTREAM_INFERRED
            place = self._same_task(wait.source)
            if place is not None:
                self.builder.edge(kind, place[0], node, wait.lag_ns, back=place[1])

    def _same_task(self, source: int) -> tuple[int, int] | None:
        """The node of a task, or of the same one in a previous copy when an earlier step launched it.

        The same one stands equally far from the end of its stream's step and has the same name; otherwise None.
        """
        if source in self.finish:
            return self.finish[source], 0
        lane = int(self.trace.tasks.lane[source])
        step, here = int(self.rank.task_step[source]), self.on_stream.get(lane, [])
        if not 0 <= step < self.step:
            return None
        rows = self.rank.stream_tasks[lane]
        behind = int((self.rank.task_step[rows] == step)[rows > source].sum())
        if behind >= len(here) or self.trace.tasks.name[here[-1 - behind]] != self.trace.tasks.name[source]:
            return None
        return self.finish[here[-1 - behind]], self.step - step

    def _last_before(self, source: int) -> tuple[int, int] | None:
        """For a task of an earlier step that has no equal in this one its stream's last task in the previous copy."""
        rows = self.on_stream.get(int(self.trace.tasks.lane[source]))
        return (self.finish[rows[-1]], 1) if rows and self.rank.task_step[source] < self.step else None

    def _queue_edges(self) -> None:
        """The n-th launch returns when the last task of launch n - depth - 1 has ended, counted through the copies."""
        depth, end_ns = self.prepared.queue.depth, self.trace.tasks.end_ns
        last = {int(self.rank.launch[task]): task for task in sorted(self.tasks, key=end_ns.__getitem__)}
        order = sorted(last.keys() & self.host.returned.keys())
        for place, call in enumerate(order if depth else ()):
            copies, source = divmod(place - depth - 1, len(order))
            node = self.host.returned[call]
            lag = -self.builder.nodes[node][1]
            self.builder.edge(EdgeKind.BACKPRESSURE, self.finish[last[order[source]]], node, lag, back=-copies)
