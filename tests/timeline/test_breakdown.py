"""Figures of a timeline are laws about unions of intervals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simcore.timeline.breakdown import (
    breakdown,
    class_figures,
    coverage,
    dimension_traffic,
    filled,
    layer_figures,
    merge,
    operation_totals,
    union_ns,
)
from simcore.timeline.events import EventKind
from tests.timelines import data_parallel, timelines

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=20)


def bounds(pairs):
    start = np.array([start for start, _ in pairs], dtype=np.int64)
    return start, start + np.array([length for _, length in pairs], dtype=np.int64)


@given(intervals)
def test_the_union_is_the_set_of_covered_nanoseconds(pairs):
    start, end = bounds(pairs)
    covered = {ns for a, b in zip(start, end, strict=True) for ns in range(a, b)}
    assert union_ns(start, end) == len(covered) <= (end - start).sum()


@given(intervals)
def test_merged_intervals_are_ascending_and_apart(pairs):
    start, end = merge(*bounds(pairs))
    assert (start < end).all()
    assert (start[1:] > end[:-1]).all()


@given(timelines())
def test_the_four_shares_add_up_to_the_time_and_none_is_negative(timeline):
    for npu_class in range(len(timeline.ranks)):
        shares = breakdown(timeline, npu_class)
        parts = [shares.compute_ns, shares.overlapped_ns, shares.exposed_comm_ns, shares.idle_ns]
        assert sum(parts) == timeline.time_ns
        assert min(parts) >= 0


@given(timelines())
def test_figures_of_all_classes_at_once_equal_those_of_each_alone(timeline):
    figures = class_figures(timeline)
    events = timeline.events
    for c, finish in enumerate(timeline.finish_ns):
        compute = (events.npu_class == c) & (events.kind == EventKind.COMPUTE)
        assert figures.compute_ns[c] == union_ns(events.start_ns[compute], events.end_ns[compute])
        assert figures.exposed_comm_ns[c] == finish - figures.compute_ns[c]
        assert figures.idle_ns[c] == breakdown(timeline, c).idle_ns - (timeline.time_ns - finish)
        assert 0 <= figures.idle_ns[c] <= figures.exposed_comm_ns[c]


@given(timelines())
def test_layers_hold_every_event_of_theirs_once(timeline):
    events = timeline.events
    compute_ns, _, exposed_ns = layer_figures(timeline)
    placed = (events.npu_class == 0) & (events.layer >= 0) & (events.phase >= 0)
    for kind, sums in ((EventKind.COMPUTE, compute_ns), (EventKind.WAIT, exposed_ns)):
        rows = placed & (events.kind == kind)
        assert sums.sum() == (events.end_ns - events.start_ns)[rows].sum()


@given(timelines())
def test_operations_hold_every_event_that_is_no_part_of_another_once_longest_first(timeline):
    events = timeline.events
    totals = operation_totals(timeline)
    whole = (events.npu_class == 0) & ~np.isin(events.kind, (EventKind.CHUNK, EventKind.WAIT))
    assert sum(each.total_ns for each in totals) == (events.end_ns - events.start_ns)[whole].sum()
    assert sum(each.count for each in totals) == whole.sum()
    assert [each.total_ns for each in totals] == sorted((each.total_ns for each in totals), reverse=True)


def test_traffic_of_a_dimension_is_the_chunks_of_npu_0():
    """4 layers x 4 chunks x 1,000 bytes x 2 iterations in each dimension."""
    traffic = dimension_traffic(data_parallel())
    assert [size_bytes for size_bytes, _ in traffic] == [32_000, 32_000]
    assert all(0 < busy_ns <= data_parallel().time_ns for _, busy_ns in traffic)


@given(intervals, st.integers(1, 9))
def test_what_whole_intervals_fill_is_what_their_union_covers(pairs, width):
    start, end = bounds(pairs)
    edges = np.arange(0, 90, width)
    np.testing.assert_allclose(filled(start, end, np.ones(len(start)), edges), coverage(start, end, edges), atol=1e-12)
    halves = filled(np.r_[start, start], np.r_[end, end], np.full(2 * len(start), 0.5), edges)
    np.testing.assert_allclose(halves, coverage(start, end, edges), atol=1e-12)
