"""Repeating or leaving out stretches of a step's graph, linked to what is around them as the recorded ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.errors import InputError, SimulationError
from simcore.replay.steps.graph import EDGE_COLUMNS, NODE_COLUMNS, EdgeKind, NodeKind, RankNodes, StepGraph
from simcore.replay.steps.rank import NOWHERE
from simcore.replay.whatif.repetition import Segment

Mask = NDArray[np.bool_]
CHAINS = (EdgeKind.PROGRAM_ORDER, EdgeKind.STREAM)


class Stretch:
    """A stretch of a step: its nodes, and per rank its host time before the first and behind the last of them.

    What each rank, by its position, did in its part, and the tasks launched in it.
    """

    def __init__(self, graph: StepGraph, parts: Mapping[int, Segment]):
        self.inside = inside = np.zeros(len(graph.kind), dtype=bool)
        for number, part in parts.items():
            here = (graph.rank == number) & (graph.kind == NodeKind.HOST) & (graph.lane == part.thread)
            inside |= here & (graph.measured_ns >= part.start_ns) & (graph.measured_ns < part.end_ns)
        launches = (graph.edge_kind == EdgeKind.LAUNCH) & inside[graph.source]
        inside[graph.target[launches]] = True
        halves = (graph.edge_kind == EdgeKind.STREAM) & (graph.kind[graph.source] == NodeKind.ARRIVAL)
        inside[graph.target[halves]] |= inside[graph.source[halves]]
        meets = (graph.edge_kind == EdgeKind.COLLECTIVE) & (graph.rank[graph.target] == NOWHERE)
        inside[graph.target[meets & inside[graph.source]]] = True
        host = (graph.edge_kind == EdgeKind.PROGRAM_ORDER) & (graph.back == 0)
        self.head_ns, self.tail_ns = dict.fromkeys(parts, 0), dict.fromkeys(parts, 0)
        for edge in np.flatnonzero(host & (inside[graph.source] != inside[graph.target])).tolist():
            target, lag = int(graph.target[edge]), max(int(graph.lag_ns[edge]), 0)
            number, enters = int(graph.rank[target]), bool(inside[target])
            before_ns = int(graph.measured_ns[target]) - (parts[number].start_ns if enters else parts[number].end_ns)
            within = before_ns if enters else lag - before_ns
            (self.head_ns if enters else self.tail_ns)[number] = min(max(within, 0), lag)


def spliced(graph: StepGraph, blocks: Sequence[Stretch], times: int) -> StepGraph:
    """The graph with each block in it so many times: 0 leaves it out, 2 repeats it once.

    On every thread and stream a repetition follows the block as the block follows what is before it. What the block
    waits for elsewhere, its repetition waits for at the same place counted from the block's end, if the block reaches
    that far; what waited for the block waits for the last repetition. InputError when other work is between the tasks
    of a block, or a full launch queue held the step.
    """
    if (graph.edge_kind == EdgeKind.BACKPRESSURE).any():
        raise InputError.at("--set", "layers cannot be changed in a step that a full launch queue holds")
    keep = np.ones(len(graph.kind), dtype=bool)
    for block in blocks:
        for _ in range(times - 1):
            graph = _repeated(graph, block)
        if not times:
            graph, keep = _without(graph, block), keep & ~block.inside
    whole = (graph if times else _kept(graph, keep)).in_order()
    if len(whole.order) < len(whole.kind):
        raise SimulationError("the step's tasks wait for each other in a circle with these layers")
    return whole


class _Border:
    """Where a block begins and ends on each thread and stream; `places` ranks the nodes along them."""

    def __init__(self, graph: StepGraph, inside: Mask):
        self.graph, self.inside = graph, inside
        self.chain = np.isin(graph.edge_kind, CHAINS)
        self.enters = ~inside[graph.source] & inside[graph.target]
        self.leaves = inside[graph.source] & ~inside[graph.target]
        self.lanes = {
            lane: self._along(*lane) for lane in sorted({self.lane(node) for node in np.flatnonzero(inside).tolist()})
        }

    def lane(self, node: int) -> tuple[int, int, int]:
        """Rank, thread or stream, and which of the two."""
        graph = self.graph
        return int(graph.rank[node]), int(graph.lane[node]), min(int(graph.kind[node]), 1)

    def _along(self, rank: int, lane: int, kind: int) -> tuple[list[int], list[int]]:
        """The nodes of a lane before the block and in it, in order; tasks by the nodes that end them."""
        graph = self.graph
        wanted = NodeKind.TASK if kind else NodeKind.HOST
        order = np.array(graph.order, dtype=np.int64)
        nodes = order[(graph.rank[order] == rank) & (graph.lane[order] == lane) & (graph.kind[order] == wanted)]
        at = np.flatnonzero(self.inside[nodes])
        if len(at) and at[-1] - at[0] + 1 != len(at):
            raise InputError.at("--set", "layers cannot be changed: other work runs between the tasks of one layer")
        return (nodes[: at[0]].tolist(), nodes[at].tolist()) if len(at) else (nodes.tolist(), [])

    def image(self, source: int) -> int:
        """The node of the block where `source` is before it, counted from the end; itself when there is none."""
        before, own = self.lanes.get(self.lane(source), ([], []))
        place = len(before) - before.index(source) if source in before else 0
        return own[-place] if 0 < place <= len(own) else source

    def origin(self, node: int) -> int:
        """The node before the block that stands where `node` does in it; -1 when there is none."""
        before, own = self.lanes[self.lane(node)]
        place = len(own) - own.index(node) if node in own else 0
        return before[-place] if 0 < place <= len(before) else -1


def _repeated(graph: StepGraph, block: Stretch) -> StepGraph:
    """The graph with the block twice; the new nodes come last, and stand second."""
    count = len(graph.kind)
    inside = np.r_[block.inside, np.zeros(count - len(block.inside), dtype=bool)]
    border = _Border(graph, inside)
    twin = np.cumsum(inside) - 1 + count
    into = np.flatnonzero(inside[graph.target])
    new = {name: getattr(graph, name)[into].copy() for name in EDGE_COLUMNS}
    for place, edge in enumerate(into.tolist()):
        source, chain = int(graph.source[edge]), bool(border.chain[edge])
        if chain and (border.enters[edge] or graph.back[edge]):
            last = border.lanes[border.lane(int(graph.target[edge]))][1][-1]
            new["source"][place], new["back"][place] = last, 0
            if graph.edge_kind[edge] == EdgeKind.PROGRAM_ORDER:
                number = int(graph.rank[source])
                new["lag_ns"][place] = block.head_ns[number] + block.tail_ns[number]
                new["idle_ns"][place] = min(new["idle_ns"][place], new["lag_ns"][place])
        elif border.enters[edge]:
            new["source"][place] = border.image(source) if not graph.back[edge] else source
        else:
            new["source"][place] = twin[source]
        new["target"][place] = twin[graph.target[edge]]
    old = graph.source.copy()
    later = border.leaves | (inside[graph.source] & inside[graph.target] & (graph.back > 0) & border.chain)
    old[later] = twin[graph.source[later]]
    nodes = {name: np.r_[getattr(graph, name), getattr(graph, name)[inside]] for name in NODE_COLUMNS}
    edges = {name: np.r_[old if name == "source" else getattr(graph, name), new[name]] for name in EDGE_COLUMNS}
    ranks = []
    for own in graph.ranks:  # repeated tasks stand behind the last of the block
        rows = [row for row, begin in enumerate(own.begins) if inside[begin]]
        at = rows[-1] + 1 if rows else len(own.tasks)
        begins, ends = ([int(twin[column[row]]) for row in rows] for column in (own.begins, own.ends))
        columns = ((own.tasks, [own.tasks[row] for row in rows]), (own.begins, begins), (own.ends, ends))
        ranks.append(RankNodes(own.begin, own.end, *([*was[:at], *more, *was[at:]] for was, more in columns)))
    return replace(graph, **nodes, **edges, ranks=tuple(ranks)).in_order()


def _without(graph: StepGraph, block: Stretch) -> StepGraph:
    """The graph in which nothing waits for the block; its nodes are still there, on their own."""
    inside = block.inside
    border = _Border(graph, inside)
    entry = {border.lane(int(graph.target[edge])): edge for edge in np.flatnonzero(border.enters & border.chain)}
    source, back, lag, idle = (column.copy() for column in (graph.source, graph.back, graph.lag_ns, graph.idle_ns))
    keep = ~inside[graph.target]
    for edge in np.flatnonzero(border.leaves).tolist():
        node = int(graph.source[edge])
        before = entry.get(border.lane(node))
        if border.chain[edge] and before is not None:
            source[edge], back[edge] = graph.source[before], back[edge] + graph.back[before]
            if graph.edge_kind[edge] == EdgeKind.PROGRAM_ORDER:
                number = int(graph.rank[node])
                lag[edge] += graph.lag_ns[before] - block.head_ns[number] - block.tail_ns[number]
                idle[edge] = min(idle[edge] + graph.idle_ns[before], max(lag[edge], 0))
        else:
            origin = -1 if border.chain[edge] else border.origin(node)
            source[edge], keep[edge] = max(origin, 0), origin >= 0
    return replace(graph, source=source, back=back, lag_ns=lag, idle_ns=idle).kept(keep).in_order()


def _kept(graph: StepGraph, keep: Mask) -> StepGraph:
    """The graph without the nodes that stand on their own."""
    number = np.cumsum(keep) - 1
    nodes = {name: getattr(graph, name)[keep] for name in NODE_COLUMNS}
    ranks = []
    for own in graph.ranks:
        rows = [row for row, begin in enumerate(own.begins) if keep[begin]]
        begins, ends = ([int(number[column[row]]) for row in rows] for column in (own.begins, own.ends))
        tasks = [own.tasks[row] for row in rows]
        ranks.append(RankNodes(int(number[own.begin]), int(number[own.end]), tasks, begins, ends))
    source, target = number[graph.source], number[graph.target]
    return replace(graph, **nodes, source=source, target=target, ranks=tuple(ranks))
