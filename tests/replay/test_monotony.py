"""Shorter durations and fewer dependencies never make anything later: on random graphs and on public traces."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simcore.replay.run import Changes, replay
from simcore.replay.session import replay_traces
from simcore.replay.steps.build import Prepared, build_step
from simcore.replay.steps.coupling import match_collectives
from simcore.replay.steps.graph import EdgeKind, GraphBuilder, NodeKind, RankNodes
from simcore.replay.views.breakdown import critical_path, critical_tasks, idle_causes, predicted, taken
from tests.shared import recording

COPIES = 4
generators = st.integers(0, 2**32).map(np.random.default_rng)
EDGE_COLUMNS = ("source", "target", "edge_kind", "lag_ns", "idle_ns", "residual_ns", "back")


@st.composite
def graphs(draw):
    """A few nodes that wait for earlier ones of their copy or for any of the copy before."""
    builder, count = GraphBuilder(), draw(st.integers(2, 10))
    for _ in range(count):
        builder.node(NodeKind.TASK, draw(st.integers(0, 100)), 0, 0, 0)
    for _ in range(draw(st.integers(1, 25))):
        back, (one, other) = draw(st.integers(0, 1)), sorted(draw(st.permutations(range(count)))[:2])
        source, target = (other, one) if back and draw(st.booleans()) else (one, other)
        lag_ns = draw(st.integers(-40, 60))
        slack = {"idle_ns": draw(st.integers(0, max(lag_ns, 0))), "residual_ns": draw(st.integers(0, 30))}
        builder.edge(draw(st.sampled_from(EdgeKind)), source, target, lag_ns, back=back, **slack)
    for node in range(count):
        builder.edge(EdgeKind.STREAM, node, node, back=1)
    builder.ranks.append(RankNodes(0, count - 1, [], [], []))
    return builder.graph(lambda _: AssertionError())


def without(graph, keep):
    return replace(graph, **{name: getattr(graph, name)[keep] for name in EDGE_COLUMNS})


def shorter(graph, random, factor):
    chosen = random.random(len(graph.kind)) < 0.5
    return np.where(chosen, np.rint(graph.duration_ns * factor), graph.duration_ns).astype(np.int64)


def never_later(graph, changed, durations_ns, copies=COPIES):
    """No node of any copy starts or ends later; if both settle, the step takes no longer."""
    changed = replace(changed, duration_ns=durations_ns)
    before, after = replay(graph, Changes(), copies=copies), replay(changed, Changes(), copies=copies)
    assert (after.start_ns <= before.start_ns).all()
    assert (after.end_ns <= before.end_ns).all()
    settled = replay(graph, Changes()), replay(changed, Changes())
    if all(schedule.lasting for schedule in settled):
        before, after = (
            np.diff(timing.latest_ns(whose.rank == 0))[-1]
            for whose, timing in zip((graph, changed), settled, strict=True)
        )
        assert after <= before


@settings(deadline=None, max_examples=100)
@given(graphs(), st.floats(0, 1), generators)
def test_shorter_durations_of_any_nodes(graph, factor, random):
    never_later(graph, graph, shorter(graph, random, factor))


@settings(deadline=None, max_examples=100)
@given(graphs(), generators)
def test_fewer_edges(graph, random):
    changed = without(graph, random.random(len(graph.source)) < 0.7)
    never_later(graph, changed, graph.duration_ns)


@settings(deadline=None, max_examples=100)
@given(graphs(), st.lists(st.integers(0, 2), min_size=10, max_size=10))
def test_a_step_goes_on_as_it_is_told(graph, ranks):
    """What a settled replay says of a rank's step holds for every copy from there on."""
    rank = np.array(ranks[: len(graph.kind)])
    graph = replace(graph, rank=rank, ranks=graph.ranks * 3)
    told = replay(graph, Changes())
    if told.lasting:
        longer = replay(graph, Changes(), copies=2000)
        for nodes in (rank == number for number in np.unique(rank)):
            assert set(np.diff(longer.latest_ns(nodes))[-60:]) == set(np.diff(told.latest_ns(nodes))[-1:])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**12)), min_size=1, max_size=8), st.data())
def test_a_rank_takes_what_the_slowest_takes_that_it_waits_for(ranks, data):
    """However far apart they begin: the pace of a rank is the longest step of those that lead to it."""
    builder, pace_ns = GraphBuilder(), [length_ns for length_ns, _ in ranks]
    for number, (length_ns, _) in enumerate(ranks):
        builder.node(NodeKind.TASK, length_ns, number, 0, 0)
        builder.edge(EdgeKind.STREAM, number, number, back=1)
        builder.ranks.append(RankNodes(number, number))
        for other in data.draw(st.sets(st.integers(0, number - 1))) if number else ():
            lag_ns, back = data.draw(st.integers(-(10**6), 10**6)), data.draw(st.integers(0, 3))
            builder.edge(EdgeKind.COLLECTIVE, other, number, lag_ns, back=back)
            pace_ns[number] = max(pace_ns[number], pace_ns[other])
    begins_ns = dict(enumerate(begin_ns for _, begin_ns in ranks))
    timing = replay(builder.graph(lambda _: AssertionError()), Changes(), begins_ns=begins_ns)
    assert timing.lasting
    assert np.diff(timing.end_ns, axis=0)[-1].tolist() == pace_ns


def test_ranks_that_drift_apart_take_a_step_of_where_that_ends():
    """Rank 1 begins 400 us later and is 20 us a step quicker: in step 16 it waits for rank 0."""
    builder = GraphBuilder()
    for number, length_us in enumerate((100, 80)):
        builder.node(NodeKind.TASK, 1_000 * length_us, number, 0, 0)
        builder.edge(EdgeKind.STREAM, number, number, back=1)
        builder.ranks.append(RankNodes(number, number))
    builder.edge(EdgeKind.COLLECTIVE, 0, 1)
    timing = replay(builder.graph(lambda _: AssertionError()), Changes(), begins_ns={1: 400_000})
    assert np.diff(timing.latest_ns(np.array([False, True])))[-1] == 100_000


def test_copies_that_differ_in_turns_have_no_lasting_pace():
    builder = GraphBuilder()
    for node in (0, 1):
        builder.node(NodeKind.TASK, 10, 0, 0, 0)
        builder.edge(EdgeKind.INTERSTREAM, node, 1 - node, 5 * node, back=1)
    builder.ranks.append(RankNodes(0, 1))
    assert not replay(builder.graph(lambda _: AssertionError()), Changes(), begins_ns={1: 3}).lasting


PUBLIC = (
    ("hta", "amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
    ("hta", "critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz"),
    ("hta", "critical_path__cuda_event_sync_multi_stream__event_sync_trace.json.gz"),
    ("hta", "with_gpu_user_annotation.json.gz"),
    ("tracelens", "h100__gaunernst_bert-small-uncased__1016001.json.gz"),
    ("param", "dlrm_kineto.tar.gz"),
)


@cache
def public(*place):
    """The first step of a public trace on all its ranks, coupled."""
    ranks = [Prepared(trace) for trace in recording(*place)]
    steps = [0] * len(ranks)
    return build_step(ranks, steps, match_collectives([rank.view for rank in ranks], steps) if len(ranks) > 1 else [])


@pytest.mark.parametrize("place", PUBLIC, ids=[name[:24] for _, name in PUBLIC])
@settings(deadline=None, max_examples=3)
@given(random=generators)
def test_public_traces_with_some_tasks_of_half_the_time_and_some_edges_less(place, random):
    graph = public(*place)
    never_later(graph, graph, shorter(graph, random, 0.5), copies=2)
    changed = without(graph, random.random(len(graph.source)) < 0.9)
    never_later(graph, changed, graph.duration_ns, copies=2)


@pytest.mark.parametrize("place", PUBLIC, ids=[name[:24] for _, name in PUBLIC])
def test_what_a_step_consists_of_adds_up_to_it(place):
    """The critical path to the step; idle time by cause to the idle time, and to what the curve leaves free."""
    found = replay_traces(recording(*place), Changes())
    for steps in found.steps:
        for step in steps:
            length_ns, idle_ns = step.to_ns - step.from_ns, predicted(step).idle_ns
            assert sum(critical_path(step).values()) == length_ns
            assert sum(idle_causes(step).values()) == idle_ns
            assert sum(task.time_ns for task in critical_tasks(step, 10**6)) <= length_ns
            size_ns = length_ns // 300 + 1
            _, curve = taken(step, size_ns, np.ones(len(step.prepared.view.trace.tasks.start_ns)))
            bins_ns = np.minimum(size_ns, length_ns - size_ns * np.arange(len(curve)))
            assert np.dot(curve, bins_ns) == pytest.approx(length_ns - idle_ns, abs=length_ns * 1e-4)
