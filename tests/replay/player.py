"""A second engine for the same graphs: SimPy processes that wait for each other, one per node and copy."""

import numpy as np
import simpy

from simcore.replay.steps.graph import EdgeKind, NodeKind

NEVER = -1


def play(graph, changes, durations_ns, copies=1, begins_ns=None, runtime=False):
    """Start and end of every node, shape (copies, nodes).

    With `runtime` a stream takes its tasks as their launches come, whatever order was recorded.
    """
    return Player(graph, changes, durations_ns, copies, begins_ns or {}, runtime).times()


class Player:
    def __init__(self, graph, changes, durations_ns, copies, begins_ns, runtime):
        self.graph, self.copies, self.runtime = graph, copies, runtime
        self.lengths, self.begins = durations_ns.tolist(), begins_ns
        self.clock = simpy.Environment()
        count = len(graph.kind)
        self.started, self.ended = ([[self.clock.event() for _ in range(count)] for _ in range(copies)] for _ in "se")
        self.start, self.end = (np.full((copies, count), NEVER) for _ in "se")
        self.edges = self.edges_into(changes)
        self.last = {}  # (rank, lane) -> (copy, end node) of the task launched last
        self.finish = {b: e for nodes in graph.ranks for b, e in zip(nodes.begins, nodes.ends, strict=True)}

    def edges_into(self, changes):
        graph, into = self.graph, [[] for _ in self.lengths]
        for edge in range(len(graph.source)):
            if EdgeKind(graph.edge_kind[edge]) not in changes.dropped():
                lag = int(graph.lag_ns[edge])
                lag += int(graph.residual_ns[edge]) if changes.residual else 0
                lag -= 0 if changes.gaps else int(graph.idle_ns[edge])
                into[graph.target[edge]].append(
                    (int(graph.source[edge]), EdgeKind(graph.edge_kind[edge]), lag, int(graph.back[edge]))
                )
        return into

    def times(self):
        for copy in range(self.copies):
            for node in range(len(self.lengths)):
                self.clock.process(self.life(copy, node))
        self.clock.run()
        assert (self.end != NEVER).all(), "some node waited for ever"
        return self.start, self.end

    def life(self, copy, node):
        """Wait for all that holds the start, take the time, and let a full queue hold the return."""
        begin = self.begins.get(node, 0) if copy == 0 else 0
        holds = [self.clock.process(self.hold(copy, node, *edge)) for edge in self.edges[node]]
        yield self.clock.timeout(begin)
        full = [edge for edge in self.edges[node] if edge[1] == EdgeKind.BACKPRESSURE and edge[3] <= copy]
        yield self.clock.all_of(holds)
        self.start[copy, node] = self.clock.now
        self.started[copy][node].succeed()
        yield self.clock.timeout(self.lengths[node])
        yield self.clock.all_of([self.ended[copy - back][source] for source, _, _, back in full])
        self.end[copy, node] = self.clock.now
        self.ended[copy][node].succeed()

    def hold(self, copy, node, source, kind, lag, back):
        if kind == EdgeKind.BACKPRESSURE:
            return
        if kind == EdgeKind.STREAM and self.runtime and self.graph.kind[source] != NodeKind.ARRIVAL:
            yield from self.queue(copy, node, lag)
            return
        if back <= copy:
            yield from self.after(copy - back, source, lag)

    def after(self, copy, source, lag):
        """Until the end of the source and `lag` more; less than nothing is counted from its start."""
        if lag >= 0:
            yield self.ended[copy][source]
            yield self.clock.timeout(lag)
        else:
            yield self.started[copy][source]
            yield self.clock.timeout(max(self.lengths[source] + lag, 0))

    def queue(self, copy, node, lag):
        """Behind whatever was launched on the stream before."""
        launcher = next(source for source, kind, _, _ in self.edges[node] if kind == EdgeKind.LAUNCH)
        yield self.ended[copy][launcher]
        stream = int(self.graph.rank[node]), int(self.graph.lane[node])
        before, self.last[stream] = self.last.get(stream), (copy, self.finish[node])
        if before is not None:
            yield from self.after(*before, lag)
