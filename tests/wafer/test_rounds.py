"""Messages stepped hop by hop arrive when those solved link by link do."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.batch import solve_batch
from simcore.network.congested import CutThrough
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.wafer.steps import send_all, step_batch

MESSAGE = st.tuples(
    st.integers(0, 11), st.integers(0, 11), st.integers(1, 5000), st.integers(0, 90), st.integers(-1, 2)
)


def mesh(kind="Mesh"):
    """Four columns, three rows."""
    return LinkGraph(Topology((Dimension(kind, 4, 1e9, 3.0), Dimension(kind, 3, 2e9, 7.5))))


def columns(messages):
    """Source, target, bytes, start, tree: messages of a tree come from one source at one time."""
    firsts = {}
    rows = []
    for source, target, size, start, tree in messages:
        first = firsts.setdefault(tree, (source, size, start)) if tree >= 0 else (source, size, start)
        rows.append((first[0], target, first[1], first[2], tree))
    return np.array(rows, np.int64).reshape(-1, 5).T


@settings(max_examples=80, deadline=None)
@given(messages=st.lists(MESSAGE, max_size=20), free=st.integers(0, 3000))
def test_stepping_and_solving_agree_on_a_mesh(messages, free):
    """Arrival, bytes, occupation and when links are free again, with multicasts and links that are busy at first."""
    graph = mesh()
    source, target, size, start, tree = columns(messages)
    busy = np.arange(len(graph)) % 3 * free
    solved = solve_batch(graph, graph.routes(source, target), size, start, tree=tree, free_ns=busy)
    stepped = step_batch(graph, graph.routes(source, target), size, start, tree, busy)
    for name in ("arrival_ns", "size_bytes", "busy_ns", "free_ns"):
        assert getattr(solved, name).tolist() == getattr(stepped, name).tolist(), name


MULTICAST = st.tuples(
    st.integers(0, 11), st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5000), st.integers(0, 90)
)


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(MULTICAST, min_size=1, max_size=6))
def test_multicasts_solved_at_once_arrive_as_those_of_the_network(calls):
    """`CutThrough.multicast` is the same tree, event by event."""
    graph, env = mesh(), Environment()
    network = CutThrough(env, graph)
    found = {}

    def send(number, source, targets, size, start):
        yield env.timeout(start)
        network.multicast(source, targets, size, (number,), lambda npu: found.update({(number, npu): env.now}))

    rows = []
    for number, (source, targets, size, start) in enumerate(calls):
        others = sorted(targets - {source})
        rows += [(source, target, size, start, number) for target in others]
        env.process(send(number, source, others, size, start))
    env.run()
    source, target, size, start, tree = np.array(rows, np.int64).reshape(-1, 5).T
    batch = solve_batch(
        graph, graph.routes(source, target), size, start, tree=tree, free_ns=np.zeros(len(graph), np.int64)
    )
    assert dict(zip(zip(tree.tolist(), target.tolist(), strict=True), batch.arrival_ns.tolist(), strict=True)) == found
    assert batch.size_bytes.tolist() == network.counts()[0].tolist()


def test_a_torus_is_stepped():
    """Links that wait for each other in a circle have no order to be solved in."""
    graph = LinkGraph(Topology((Dimension("Ring", 5, 1e9, 3.0),)))
    ids = np.arange(5)
    source, target = np.tile(ids, 2), np.concatenate([(ids + 2) % 5, (ids + 1) % 5])
    size, start, free = np.full(10, 100), np.zeros(10, np.int64), np.zeros(len(graph), np.int64)
    assert solve_batch(graph, graph.routes(source, target), size, start) is None
    batch = send_all(graph, graph.routes(source, target), size, start, np.full(10, -1), free)
    assert (batch.busy_ns <= batch.arrival_ns.max()).all()
    assert batch.size_bytes.sum() == 100 * sum(len(graph.route(a, b)) for a, b in zip(source, target, strict=True))
