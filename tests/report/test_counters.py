"""Counters of timelines: their area is the time that what they count was busy."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.report.model import Report
from simcore.report.timelines.chrome import chrome_json
from simcore.report.timelines.selection import Limits, Selection, View, choose
from simcore.report.timelines.tracks import MOST_LOOKED_AT, _hot, busiest_links, samples
from simcore.timeline.breakdown import union_ns
from simcore.timeline.events import EventKind, LinkTable
from tests.timelines import data_parallel


def shown(timeline):
    return choose(timeline, Selection(), Limits(16, 1_000_000))


def area(points):
    times, values = zip(*points, strict=True)
    return np.diff(times) @ np.array(values[:-1]) / 100


@pytest.fixture(scope="module")
def runs():
    """A run whose links were timed: folded and not."""
    return [simcore.run("dlrm", "torus_4x4x4", no_fold=each, link_times=True).timeline for each in (False, True)]


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(1, 300)), max_size=20), st.integers(1300, 3000))
def test_the_area_of_a_counter_is_the_time_covered(pairs, end_ns):
    start, length = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    view = View(data_parallel().events, 0, end_ns, (0,), ("",), ())
    assert area(samples(start, start + length, view)) == pytest.approx(union_ns(start, start + length), abs=1e-6)


def test_the_busiest_links_are_busy_as_long_as_the_report_says_and_at_times_of_their_own(runs):
    timeline = runs[0]
    links = busiest_links(timeline)
    busy = [int((link.end_ns - link.start_ns).sum()) for link in links]
    assert busy == sorted(busy, reverse=True)
    assert busy[0] == timeline.links.busy_ns.max()
    assert {link.dst for link in links} >= {"1", "3", "4", "12", "16"}  # both directions of the rings of NPU 0
    assert [area(samples(link.start_ns, link.end_ns, shown(timeline))) for link in links] == pytest.approx(busy)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=60))
def test_links_are_looked_at_from_the_hottest_on_and_few_of_those_as_hot(figures):
    busy_ns, size_bytes = np.array(figures, dtype=np.int64).reshape(-1, 2).T
    names = [str(link) for link in range(len(figures))]
    seen = [*_hot(LinkTable(names, names, size_bytes, busy_ns))]
    assert all(busy_ns[seen])
    assert [(-busy_ns[link], -size_bytes[link], link) for link in seen] == sorted(
        (-figures[link][0], -figures[link][1], link) for link in seen
    )
    counts = {one: figures.count(one) for one in figures if one[0]}
    shown = [figures[link] for link in seen]
    assert {one: shown.count(one) for one in counts} == {one: min(counts[one], MOST_LOOKED_AT) for one in counts}


def test_folded_and_unfolded_runs_have_the_same_counters(runs):
    folded, unfolded = (chrome_counters(run) for run in runs)
    assert folded == unfolded
    busy = {link.title: int((link.end_ns - link.start_ns).sum()) for link in busiest_links(runs[0])}
    assert {name: 1000 * area(points) for name, points in folded.items()} == pytest.approx(busy)


def chrome_counters(timeline, start="link "):
    every = json.loads(chrome_json(Report(timeline, "native", "fair"), shown(timeline)))["traceEvents"]
    events = [each for each in every if each["name"].startswith(start)]
    return {
        name: [(each["ts"], *each["args"].values()) for each in events if each["ph"] == "C" and each["name"] == name]
        for name in sorted({each["name"] for each in events if each["ph"] == "C"})
    }


def test_a_run_that_kept_no_times_has_no_counters_of_links():
    assert busiest_links(data_parallel()) == []
    assert chrome_counters(data_parallel()) == {}


def test_the_utilisation_of_a_dimension_is_the_time_that_its_chunks_cover(runs):
    """A dimension's counter covers what its chunks cover, on whichever lanes they are."""
    events = runs[0].events
    for dim in range(3):
        (points,) = chrome_counters(runs[0], f"dim {dim}").values()
        chunks = events.where((events.kind == EventKind.CHUNK) & (events.stream == dim + 1))
        assert 1000 * area(points) == pytest.approx(union_ns(chunks.start_ns, chunks.end_ns))
