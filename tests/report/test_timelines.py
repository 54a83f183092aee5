"""Timelines as traces: no overlap on a track, exact counts and times, choices said aloud."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest
from google.protobuf.internal.decoder import _DecodeVarint
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.report.model import Report
from simcore.report.timelines.chrome import chrome_json
from simcore.report.timelines.perfetto import perfetto_trace
from simcore.report.timelines.selection import Limits, Selection, choose, parse_ranks, parse_window
from simcore.report.timelines.tracks import lanes, lay_out, passed
from simcore.workload.chakra.writer import varint
from tests.timelines import data_parallel, timelines

EVERYTHING = Limits(1000, 1_000_000)


def fields(message):
    """The fields of a protobuf message: (number, value) with bytes for nested ones."""
    at, found = 0, []
    while at < len(message):
        tag, at = _DecodeVarint(message, at)
        if tag & 7 == 2:
            size, at = _DecodeVarint(message, at)
            value, at = message[at : at + size], at + size
        elif tag & 7 == 1:
            value, at = message[at : at + 8], at + 8
        else:
            value, at = _DecodeVarint(message, at)
        found.append((tag >> 3, value))
    return found


def packets(trace):
    """Track events as (time, type, track) in file order; field numbers of perfetto's trace_packet.proto."""
    for _, packet in fields(trace):
        content = dict(fields(packet))
        if 11 in content:
            event = dict(fields(content[11]))
            yield content[8], event[9], event[11]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_slices_on_a_lane_never_overlap_and_lanes_are_as_few_as_possible(pairs):
    start = np.array(sorted(start for start, _ in pairs), dtype=np.int64)
    end = start + np.array([length for _, length in pairs], dtype=np.int64)
    lane = lanes(start, end)
    for each in set(lane.tolist()):
        assert (end[lane == each][:-1] <= start[lane == each][1:]).all()
    busiest = max((int(((start <= t) & (t < end)).sum()) for t in start), default=0)
    assert int(lane.max(initial=-1)) + 1 <= busiest + 1


@given(timelines())
def test_every_event_is_on_exactly_one_track(timeline):
    view = choose(timeline, Selection(), EVERYTHING)
    rows = [row for track in lay_out(timeline, view) for row in track.rows.tolist()]
    assert sorted(rows) == list(range(len(timeline.events)))


@settings(deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1))
def test_arrows_join_ranks_of_which_one_sends_to_the_other_whoever_plays_for_them(ranks):
    """Rank 0 sends to rank 4, 1 to 5 and so on: 0-3 are one class, 4-7 another one."""
    made = simcore.graph(8)
    for npu in range(4):
        made.send(npu, npu + 4, 1000)
        made.recv(npu, npu + 4, 1000)
    topology = Topology(tuple(Dimension("Ring", npus, 1e9, 0.0) for npus in (4, 2)))
    for no_fold in (False, True):
        timeline = simcore.run(made, topology, no_fold=no_fold).timeline
        view = choose(timeline, Selection(tuple(sorted(ranks))), EVERYTHING)
        assert len(timeline.ranks) == (8 if no_fold else 2)
        assert bool(passed(view.events)) == any({npu, npu + 4} <= ranks for npu in range(4))


@settings(max_examples=50)
@given(timelines())
def test_a_perfetto_trace_has_every_slice_in_order_and_no_overlap_on_a_track(timeline):
    view = choose(timeline, Selection(), EVERYTHING)
    found = list(packets(perfetto_trace(Report(timeline, "native", "fair"), view)))
    assert [time for time, _, _ in found] == sorted(time for time, _, _ in found)
    depth, slices = Counter(), 0
    for _, kind, track in found:
        depth[track] += {1: 1, 2: -1}.get(kind, 0)
        assert depth[track] in (0, 1)
        slices += kind == 1
    assert slices == len(timeline.events) + (timeline.time_ns > 0)
    assert set(depth.values()) <= {0}


@settings(max_examples=50)
@given(timelines())
def test_a_chrome_trace_has_every_slice_with_exact_times_and_no_overlap_in_a_thread(timeline):
    view = choose(timeline, Selection(), EVERYTHING)
    slices = [
        event
        for event in json.loads(chrome_json(Report(timeline, "native", "fair"), view))["traceEvents"]
        if event["ph"] == "X"
    ]
    spans = sorted((round(event["ts"] * 1000), round(event["dur"] * 1000)) for event in slices)
    events = timeline.events
    assert spans == sorted(zip(events.start_ns.tolist(), (events.end_ns - events.start_ns).tolist(), strict=True))
    threads = defaultdict(list)
    for event in slices:
        threads[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    for each in threads.values():
        assert all(a + length <= b for (a, length), (b, _) in zip(sorted(each), sorted(each)[1:], strict=False))


@given(st.integers(0, 2**63))
def test_a_varint_reads_back(value):
    assert _DecodeVarint(varint(value), 0) == (value, len(varint(value)))


def test_where_all_is_too_much_the_last_iteration_and_representative_ranks_are_kept_and_it_is_said():
    timeline = data_parallel(classes=8, mix=10, iterations=4)
    view = choose(timeline, Selection(), Limits(4, 400))
    assert view.classes == (0, 4, 7)
    assert set(view.events.iteration.tolist()) == {3}
    assert view.left_out == ("5 of 8 ranks (--ranks chooses)", "3 of 4 iterations (--iteration chooses)")
    fewer = choose(timeline, Selection(), Limits(4, 100))
    assert len(fewer.events) == 100
    assert "events after" in fewer.left_out[-1]


def test_a_selection_shows_what_is_asked_for():
    timeline = data_parallel(classes=4)
    view = choose(timeline, Selection(ranks=(3, 4)), EVERYTHING)
    assert view.labels == ("rank 3", "rank 4")
    assert view.left_out == ("6 of 8 ranks (--ranks chooses)",)
    assert set(view.events.npu_class.tolist()) == {1, 2}
    window = choose(timeline, Selection(window_ns=(0, 100)), EVERYTHING)
    assert (window.events.start_ns < 100).all()
    assert set(choose(timeline, Selection(iteration=1), EVERYTHING).events.iteration.tolist()) == {1}


@pytest.mark.parametrize(
    "selection", [Selection(ranks=(8,)), Selection(iteration=2), Selection(window_ns=(10**9, 10**10))]
)
def test_what_does_not_exist_cannot_be_selected(selection):
    with pytest.raises(InputError, match="--"):
        choose(data_parallel(), selection, EVERYTHING)


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-2-3", "-1", "0-99999999999"])
def test_ranks_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError, match="--ranks"):
        parse_ranks(text)


@pytest.mark.parametrize("text", ["", "5", "2:1", "a:b", "1 mile:2"])
def test_windows_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError, match="--window"):
        parse_window(text)
