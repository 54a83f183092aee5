"""Where the time of a step goes: the four-way breakdown, the critical path, idle time by cause, the largest tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.library import table
from simcore.replay.kinds import COMMUNICATION
from simcore.replay.session import StepReplay
from simcore.replay.steps.graph import EdgeKind, NodeKind
from simcore.timeline.breakdown import Breakdown, filled, shares
from simcore.workload.kineto import Column

UNEXPLAINED, OTHER_RANKS, LOADER = "unexplained", "other_ranks", "data_loader"
# The rows of path.txt, and what they say of edges: what a critical path calls them, and an idle device's wait.
PARTS = table(__file__, "path.txt", 5)
EDGES = [(EdgeKind[name], label, idle) for *_, label, names, idle in PARTS for name in names.split(", ") if name != "-"]
PATH_LABELS = {kind: label for kind, label, _ in EDGES}
IDLE_CAUSES = {kind: idle for kind, _, idle in EDGES if idle != "-"}


class TaskTotal(Struct, frozen=True):
    """Everything one name did in a step of a rank."""

    name: str
    rank: int
    count: int
    time_ns: int


def _breakdown(start_ns: Column, end_ns: Column, communication: NDArray[np.bool_], span: tuple[int, int]) -> Breakdown:
    """The four shares of a span, from the intervals of tasks."""
    times = np.clip([start_ns, end_ns], *span)
    working, talking = ((some[0], some[1]) for some in (times[:, ~communication], times[:, communication]))
    return shares(working, talking, span[1] - span[0])


def measured(step: StepReplay) -> Breakdown:
    """The breakdown of a step as it was recorded."""
    view = step.prepared.view
    return _breakdown(view.trace.tasks.start_ns, view.trace.tasks.end_ns, view.communication, step.measured_span_ns)


def predicted(step: StepReplay) -> Breakdown:
    """The breakdown of the predicted period."""
    start, end, rows, _ = played(step)
    return _breakdown(start, end, step.prepared.view.communication[rows], (step.from_ns, step.to_ns))


def played(step: StepReplay) -> tuple[Column, Column, Column, Column]:
    """Start, end, row in the trace and binding edge (-1: none) of every task within the predicted period.

    A single copy begins with what the device had left to do, as recorded.
    """
    nodes, timing = step.graph.ranks[step.number], step.timing
    begins, ends = np.array(nodes.begins, dtype=np.int64), np.array(nodes.ends, dtype=np.int64)
    start, end = timing.start_ns[:, begins].ravel(), timing.end_ns[:, ends].ravel()
    rows, held = np.tile(np.array(nodes.tasks, dtype=np.int64), timing.copies), timing.binding[:, begins].ravel()
    if timing.copies == 1:
        view, later_ns = step.prepared.view, int(timing.start_ns[0, nodes.begin]) - step.window.start_ns
        tasks = view.trace.tasks
        old = np.flatnonzero((view.launch_ns < step.window.start_ns) & (tasks.end_ns > step.window.start_ns))
        old = old[~np.isin(old, rows)]
        start, end = np.r_[start, tasks.start_ns[old] + later_ns], np.r_[end, tasks.end_ns[old] + later_ns]
        rows, held = np.r_[rows, old], np.r_[held, np.full(len(old), -1)]
    inside = (end > step.from_ns) & (start < step.to_ns)
    return start[inside], end[inside], rows[inside], held[inside]


def taken(
    step: StepReplay, bin_ns: int, shares: NDArray[np.float64], devices: Column | None = None
) -> tuple[list[float], list[float]]:
    """How much of something the tasks take in each bin of a step, measured and predicted; `shares` are those of each.

    With 1 for every task the share of the bin in which at least one stream ran something. Of something that each of
    several `devices` has, those of the tasks, the mean over these.
    """
    tasks, span = step.prepared.view.trace.tasks, (step.from_ns, step.to_ns)
    owners = np.zeros(len(tasks), np.int64) if devices is None else devices
    sides = (
        (tasks.start_ns, tasks.end_ns, slice(None), step.measured_span_ns),
        (*played(step)[:3], span),
    )
    both = []
    for start_ns, end_ns, rows, (from_ns, to_ns) in sides:
        last_ns = max(to_ns, from_ns + 1)  # a step that takes no time has a bin, too
        edges = np.arange(from_ns, last_ns + bin_ns, bin_ns).clip(max=last_ns)
        own = [owners[rows] == one for one in np.unique(owners)]
        parts = [filled(start_ns[some], end_ns[some], shares[rows][some], edges) for some in own]
        both.append([round(share, 4) for share in np.mean(parts, axis=0).tolist()])
    return both[0], both[1]


def critical_path(step: StepReplay) -> dict[str, int]:
    """What one period consists of along the chain of binding edges that ends with its last node, in ns."""
    parts = Counter[str]()
    for label, _, length in _path(step):
        parts[label] += length
    return {name: length for name, length in sorted(parts.items()) if length}


def sides(path: Mapping[str, int]) -> dict[str, float]:
    """The shares of a critical path that are the host's, the data loader's, the device's and the other ranks'."""
    found = dict.fromkeys((side for side, *_ in PARTS), 0)
    for side, _, label, *_ in PARTS:
        found[side] += path.get(label, 0)
    return {side: time_ns / max(sum(path.values()), 1) for side, time_ns in found.items()}


def host_share(path: Mapping[str, int]) -> float:
    """The share of a critical path that is recorded host time."""
    return sum(path.get(label, 0) for _, host, label, *_ in PARTS if host != "-") / max(sum(path.values()), 1)


def critical_tasks(step: StepReplay, count: int = 10) -> list[TaskTotal]:
    """The names of tasks, of this or another rank, that take most of the critical path."""
    graph, often, total = step.graph, Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for _, node, length in _path(step):
        if node >= 0 and length and graph.kind[node] != NodeKind.HOST:
            owned = int(graph.rank[node]), int(graph.name[node])
            often[owned] += 1
            total[owned] += length
    order = sorted(total, key=lambda owned: (-total[owned], owned))[:count]
    traces = [rank.view.trace for rank in step.source.ranks]
    return [
        TaskTotal(traces[owner].names[name], traces[owner].rank, often[owner, name], total[owner, name])
        for owner, name in order
    ]


def _path(step: StepReplay) -> Iterator[tuple[str, int, int]]:
    """From the end of a period to its start: what was going on, at which node (-1: between two) and for how long."""
    graph, timing = step.graph, step.timing
    own = np.flatnonzero(graph.rank == step.number)
    copy, cursor = timing.copies - 1, step.to_ns
    latest = int(own[timing.end_ns[copy, own].argmax()])
    node = latest if copy or not step.steady else graph.ranks[step.number].end
    while cursor > step.from_ns:
        start = max(int(timing.start_ns[copy, node]), step.from_ns)
        label = OTHER_RANKS
        if graph.rank[node] == step.number and graph.kind[node] == NodeKind.HOST:
            label = "host_calls"
        elif graph.rank[node] == step.number:
            talks = step.prepared.view.categories[graph.name[node]] == COMMUNICATION
            label = "communication" if talks else "computation"
        yield label, node, max(cursor - start, 0)
        cursor = min(cursor, start)
        edge = int(timing.binding[copy, node])
        if edge < 0 or copy < graph.back[edge]:
            yield "before_the_replay", -1, cursor - step.from_ns
            return
        node, copy = int(graph.source[edge]), copy - int(graph.back[edge])
        reached = max(int(timing.end_ns[copy, node]), step.from_ns)
        yield from _on_the_way(step, edge, max(cursor - reached, 0))
        cursor = min(cursor, reached)


def _on_the_way(step: StepReplay, edge: int, length_ns: int) -> Iterator[tuple[str, int, int]]:
    """Parts of the time between two nodes: for no known reason, in the data loader, and what the edge stands for."""
    graph = step.graph
    own = graph.rank[graph.target[edge]] == step.number
    if not own or (graph.kind[graph.source[edge]] == NodeKind.ARRIVAL):
        yield OTHER_RANKS, -1, length_ns
        return
    unknown = min(int(graph.residual_ns[edge]), max(length_ns - max(int(graph.lag_ns[edge]), 0), 0))
    loader = min(int(graph.loader_ns[edge]), length_ns - unknown)
    yield UNEXPLAINED, -1, unknown
    yield LOADER, -1, loader
    yield PATH_LABELS[EdgeKind(graph.edge_kind[edge])], -1, length_ns - unknown - loader


def idle_causes(step: StepReplay) -> dict[str, int]:
    """Predicted time in which the device had nothing to do, by what held the task that ended each pause, in ns."""
    graph, (start, end, _, held) = step.graph, played(step)
    causes, reach = Counter[str](), step.from_ns
    for at in np.argsort(start, kind="stable").tolist():
        pause = int(start[at]) - reach
        if pause > 0:
            causes[IDLE_CAUSES.get(graph.edge_kind[held[at]], UNEXPLAINED) if held[at] >= 0 else UNEXPLAINED] += pause
        reach = max(reach, min(int(end[at]), step.to_ns))
    if step.to_ns > reach:
        causes["host"] += step.to_ns - reach
    return dict(sorted(causes.items()))


def largest_tasks(step: StepReplay, count: int = 10) -> list[TaskTotal]:
    """The names on which the device spends most of a predicted step."""
    trace = step.prepared.view.trace
    nodes, number = step.graph.ranks[step.number], trace.tasks.name[np.array(step.tasks, dtype=np.int64)]
    # As predicted, waiting for other ranks included.
    length = step.timing.end_ns[-1, list(nodes.ends)] - step.timing.start_ns[-1, list(nodes.begins)]
    total = np.bincount(number, weights=length, minlength=len(trace.names)).astype(np.int64)
    often = np.bincount(number, minlength=len(trace.names))
    order = [int(n) for n in np.argsort(-total, kind="stable")[:count] if often[n]]
    return [TaskTotal(trace.names[n], trace.rank, int(often[n]), int(total[n])) for n in order]
