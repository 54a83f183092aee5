"""Laws of the times at which links are occupied: they add up to what the links were busy, whoever carried the bytes."""

from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine import loops
from simcore.errors import DeadlockError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Fault
from simcore.timeline.breakdown import merge
from tests.laws.test_pipelines import pipelines
from tests.laws.test_transports import ANYWHERE, NATIVE
from tests.runs import runs

SHARED = [*NATIVE, ("astra-sim-2", "congested")]


def use(timeline, step=1):
    """The intervals of every link, those that touch joined."""
    return [merge(*timeline.links.use.spans(link)) for link in range(0, len(timeline.links.busy_ns), step)]


def same(first, second):
    return all(
        np.array_equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )


def check_sums(timeline):
    for link, busy_ns in enumerate(timeline.links.busy_ns.tolist()):
        start, end = timeline.links.use.spans(link)
        assert (end - start).sum() == busy_ns
        assert (start[1:] >= end[:-1]).all()


@settings(deadline=None, max_examples=40)
@given(runs(kinds=ANYWHERE, modes=SHARED))
def test_the_intervals_of_a_link_are_apart_and_add_up_to_its_busy_time(run):
    try:
        timed, plain = run.timeline(link_times=True), run.timeline()
    except DeadlockError:  # of ASTRA-sim 2's queues, as there
        return
    check_sums(timed)
    assert plain.links.use is None
    assert plain.links.busy_ns.tolist() == timed.links.busy_ns.tolist()
    assert plain.time_ns == timed.time_ns


@settings(deadline=None, max_examples=40)
@given(runs(kinds=ANYWHERE, modes=NATIVE))
def test_folded_solved_and_played_runs_occupy_links_at_the_same_times(run):
    if run.system:
        run = replace(run, system=replace(run.system, active_chunks_per_dimension=1))
    run = replace(run, settings=replace(run.settings, queues_per_dim=1, link_times=True))
    folded, unfolded = use(run.timeline()), use(run.timeline(fold=False))
    played = use(run.timeline(exact="messages"))
    assert same(folded, unfolded)
    assert same(folded, played)


@settings(deadline=None, max_examples=15)
@given(pipelines().filter(lambda run: run.settings.network != "congestion-free"))
def test_pipelines_occupy_links_at_the_same_times_folded_repeated_and_played(run):
    folded = run.timeline(link_times=True)
    check_sums(folded)
    with mock.patch.object(loops, "_steady", lambda *_: False):
        step_by_step = use(run.timeline(link_times=True))
    assert same(use(folded), step_by_step)
    assert same(use(folded), use(run.timeline(exact="messages", link_times=True)))


def test_a_shipped_run_is_the_same_folded_and_message_by_message():
    folded, unfolded = (simcore.run("dlrm", "torus_4x4x4", exact=each, link_times=True) for each in ("", "messages"))
    assert same(use(folded.timeline, step=17), use(unfolded.timeline, step=17))


@settings(deadline=None, max_examples=15)
@given(runs(modes=NATIVE), st.data())
def test_faults_too_are_seen_in_the_times(run, data):
    links = len(LinkGraph(run.topology))
    if not links:
        return
    fault = Fault("slow", (data.draw(st.integers(0, links - 1)),), 0.5, 10, 10_000)
    check_sums(replace(run, topology=replace(run.topology, faults=(fault,))).timeline(link_times=True, fold=False))


def test_a_run_with_too_many_transfers_keeps_no_times(monkeypatch):
    monkeypatch.setattr("simcore.network.congested.MOST_TIMES", 10)  # of each part that is played
    links = simcore.run("dlrm", "ring8", network="fair", link_times=True).timeline.links
    assert links.use is None
    assert links.busy_ns.any()
