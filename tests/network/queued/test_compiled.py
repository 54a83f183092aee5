"""Queues of which much is to be played are compiled: the answer is that of the lists, and of every segment."""

from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.core import NEVER
from simcore.network.queued import calendar, steady
from simcore.network.queued import network as of_queues
from simcore.network.queued.calendar import Calendar
from simcore.network.queued.network import Queued
from simcore.network.queued.segments import SegmentTables
from simcore.network.queued.steady import QueuedLinks
from simcore.network.topology.ports import Marking
from simcore.progress import metered
from simcore.timeline.events import QueueTable
from tests.network.queued.test_runs import told_of_links, training
from tests.queues import KIB, MIB, curves, machine, pfc, play, segments

MARKING = Marking(8 * KIB, 64 * KIB, 0.5, 1000)
RULES = [
    ("dcqcn", segments(4 * KIB, 16 * KIB, "drop")),
    ("hpcc", segments(4 * KIB, 16 * KIB, "credits")),
    ("swift", pfc()),
    ("swift", pfc(channels=2)),
    ("", segments(4 * KIB, 8 * KIB, "credits", channels=3)),
    ("timely", segments(4 * KIB, MIB, "credits", routing="adaptive")),
    ("window", segments(4 * KIB, 64 * KIB, "drop", routing="spray")),
]


def told(links, messages, network):
    """Arrivals, and all that is said of links."""
    arrived, played = play(links, messages, network)
    queues = played.queues()
    columns = [*played.counts(), *(getattr(queues, name) for name in QueueTable.COLUMNS)]
    return arrived, [column.tolist() for column in columns], curves(queues) if of_queues.MOST_ROWS else []


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 1, 6, 300, 4095, 4096, 5000, 1 << 40]), max_size=4), max_size=12),
    st.integers(0, 12),
)
@settings(max_examples=50)
def test_a_calendar_gives_what_a_heap_does(batches, shifted):
    """What is taken brings about more, at its time or later; once all becomes later."""
    entries, now, number = [(shifted, 0, 5, 6)], shifted, 0
    own = Calendar.of(np.array(entries), 4 * len(batches) + 1)
    for turn, batch in enumerate(batches):
        for later in batch:
            number -= 1
            heappush(entries, (now + later, number, 5, 6))
            calendar.push(own, (now + later, number, 5, 6))
        if turn == shifted:
            entries, now, own = [(time + 7, *rest) for time, *rest in entries], now + 7, own.again(7)
        assert [tuple(row) for row in own.entries().tolist()] == sorted(entries)
        assert calendar.first(own) == min(entries, default=(NEVER,))[0]
        if entries:
            now, *rest = heappop(entries)
            assert calendar.pop_timer(own)[1:] == (*rest,)


def test_long_queues_without_numba_say_how_to_play_them_sooner(monkeypatch):
    monkeypatch.setattr(steady, "installed", lambda: False)
    monkeypatch.setattr(steady, "TO_COMPILE", 500)
    with metered() as meter:
        play(machine(ports=segments(4 * KIB, 16 * KIB, "drop")), [(1, 0, MIB, 0), (2, 0, MIB, 0)], QueuedLinks)
    assert "pip install numba" in meter.hint


@pytest.mark.parametrize("routing", ["adaptive", "valiant"])
def test_what_meets_is_the_same_when_compiled(monkeypatch, routing):
    pytest.importorskip("numba", reason="nothing is compiled without numba")
    made = []
    monkeypatch.setattr(steady, "repaid", lambda events, ahead: True)
    monkeypatch.setattr(QueuedLinks, "least_events", 200)
    monkeypatch.setattr(QueuedLinks, "_compile", lambda self, go=QueuedLinks._compile: (made.append(routing), go(self)))
    run = training(routing, {5: 1.5}, outer=2)
    compiled = told_of_links(run)
    assert made
    assert compiled == told_of_links(run, exact="messages")


@pytest.mark.parametrize(("law", "ports"), RULES)
def test_compiled_queues_are_those_of_all_segments_in_lists(monkeypatch, law, ports):
    """Three send to one, and one more message comes later."""
    pytest.importorskip("numba", reason="nothing is compiled without numba")
    monkeypatch.setattr(steady, "repaid", lambda events, ahead: True)
    monkeypatch.setattr(QueuedLinks, "least_events", 500)
    made = []
    monkeypatch.setattr(QueuedLinks, "_compile", lambda self, go=QueuedLinks._compile: (made.append(law), go(self)))
    links = machine("FatTree", 8, 700.0, replace(ports, law=law, marking=MARKING), routers=2, oversubscription=2)
    messages = [(1, 0, 401 * KIB, 0), (2, 0, 300 * KIB + 5, 0), (5, 0, 401 * KIB, 700), (6, 1, 64 * KIB, 300_000)]
    assert told(links, messages, QueuedLinks) == told(links, messages, Queued)
    assert made == [law]


@pytest.mark.parametrize("rows", [of_queues.MOST_ROWS, 0])
def test_what_repeats_itself_is_left_out_of_compiled_queues_too(monkeypatch, rows):
    pytest.importorskip("numba", reason="nothing is compiled without numba")
    monkeypatch.setattr(of_queues, "MOST_ROWS", rows)
    monkeypatch.setattr(steady, "repaid", lambda events, ahead: True)
    monkeypatch.setattr(QueuedLinks, "least_events", 1)
    monkeypatch.setattr(SegmentTables, "events_of_a_look", 1)
    links = machine("FatTree", 8, 700.0, replace(RULES[1][1], channels=3), routers=2, oversubscription=2)
    messages = [(1, 0, 2 * MIB, 0), (5, 0, 2 * MIB, 0), (6, 1, MIB, 200_000)]
    assert told(links, messages, QueuedLinks) == told(links, messages, Queued)
    events = [play(links, messages, network)[1]._state.counts[0].events for network in (QueuedLinks, Queued)]
    assert events[0] < events[1] / 2
