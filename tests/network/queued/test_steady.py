"""What repeats itself is left out: times, bytes, queues and curves are those of all segments."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.queued import network as of_queues
from simcore.network.queued import steady
from simcore.network.queued.network import Queued
from simcore.network.queued.steady import QueuedLinks
from simcore.network.topology.ports import Marking
from simcore.timeline.events import QueueTable
from tests.queues import KIB, MIB, curves, machine, pfc, play, segments

MARKING = Marking(32 * KIB, 256 * KIB, 0.5, 1000)


@pytest.fixture(autouse=True, scope="module")
def in_lists():
    """Compiled queues look for repeats less often, as they are played faster."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(steady, "repaid", lambda events, ahead: False)
        yield


RULES = {
    "credits": segments(4 * KIB, 64 * KIB, "credits"),
    "few credits": segments(4 * KIB, 8 * KIB, "credits"),
    "pfc": pfc(),
    "drop": segments(4 * KIB, 16 * KIB, "drop"),
    "marks": segments(4 * KIB, MIB, "credits", marking=MARKING),
}


@st.composite
def flows(draw):
    """A network, and some long messages and short ones on it, some of which begin later."""
    kind, npus, more = draw(
        st.sampled_from(
            [("Switch", 4, {}), ("Ring", 6, {}), ("FatTree", 8, {"routers": 2, "oversubscription": 2}), ("Mesh", 4, {})]
        )
    )
    rules = replace(
        RULES[draw(st.sampled_from(sorted(RULES)))],
        law=draw(st.sampled_from(["", "", "dcqcn", "hpcc", "swift", "timely", "window"])),
        routing=draw(st.sampled_from(["", "", "ecmp", "spray", "adaptive", "valiant"])),
        channels=draw(st.sampled_from([1, 1, 2, 3])),
    )
    rate = draw(st.sampled_from([1e9, 25e9, 45e9, 0.3e9]))
    npu, sizes = st.integers(0, npus - 1), st.sampled_from([3 * KIB, 100 * KIB, 401 * KIB, 2 * MIB + 5])
    messages = draw(st.lists(st.tuples(npu, npu, sizes, st.sampled_from([0, 0, 700, 90_000])), min_size=1, max_size=4))
    latency_ns = draw(st.sampled_from([1.0, 100.0, 700.0]))
    return machine(kind, npus, latency_ns, rules, rate, **more), messages


def told(links, messages, network, keys=None):
    """All that a network says of some messages, and how many events it played."""
    arrived, played = play(links, messages, network, keys)
    table = played.table()
    columns = [table.size_bytes, table.busy_ns, *(getattr(table.queues, name) for name in QueueTable.COLUMNS)]
    rows = [] if played.times() is None else np.sort(played.times().columns)
    said = (arrived, *(np.array(each).tolist() for each in (*columns, rows)))
    return (*said, curves(table.queues) if of_queues.MOST_ROWS else []), played._state.counts[0].events


@given(flows(), st.booleans())
@settings(max_examples=40)
def test_what_repeats_itself_is_left_out_without_a_trace(case, alike):
    """Of messages of one key, as those of a round of a collective are, or of one each."""
    links, messages = case
    ends = [message[:2] for message in messages]
    keys = [ends[:number].count(pair) for number, pair in enumerate(ends)] if alike else None
    assert told(links, messages, QueuedLinks, keys)[0] == told(links, messages, Queued, keys)[0]


@given(flows())
@settings(max_examples=40)
def test_so_it_is_where_nobody_notes_how_queues_grow(case):
    links, messages = case
    with patch.object(of_queues, "MOST_ROWS", 0):
        *played, _ = told(links, messages, QueuedLinks)[0]
    assert played == [*told(links, messages, Queued)[0][:-1]]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rules", ["credits", "few credits", "pfc"])
def test_of_two_long_messages_through_one_link_most_is_left_out(rules, channels):
    links = machine(ports=replace(RULES[rules], channels=channels))
    sent = [(0, 2, 2 * MIB, 0), (1, 2, 2 * MIB, 0), (2, 1, 100, 1_500_000)]  # somebody else comes in between
    (times, events), (all_times, all_events) = told(links, sent, QueuedLinks), told(links, sent, Queued)
    assert times == all_times
    assert events < all_events / 2


def test_so_it_is_of_those_of_many_that_begin_one_after_the_other():
    """Of credits on their way to many links some have come and are not yet counted."""
    links = machine("FatTree", 8, 700.0, RULES["credits"], routers=2, oversubscription=2)
    sent = [(npu, (npu + on) % 8, 3 * MIB, npu * 9300) for npu in range(8) for on in (1, 2)]
    (times, events), (all_times, all_events) = told(links, sent, QueuedLinks), told(links, sent, Queued)
    assert times == all_times
    assert events < all_events / 2


@pytest.mark.parametrize("law", ["dcqcn", "hpcc", "swift", "timely", "window"])
def test_a_law_that_has_settled_repeats_itself_too(law):
    links = machine(ports=replace(RULES["marks"], law=law))
    sent = [(0, 2, 8 * MIB, 0)]
    (times, events), (all_times, all_events) = told(links, sent, QueuedLinks), told(links, sent, Queued)
    assert times == all_times
    assert events < all_events / 2


@pytest.mark.parametrize("latency_ns", [100.0, 700.0])
def test_messages_of_one_key_are_left_out_only_where_their_segments_keep_their_order(latency_ns):
    """Numbers of segments say who comes first at one time, and one of these messages begins later and is faster."""
    links = machine("Switch", 4, latency_ns, segments(4 * KIB, 8 * KIB, "credits"))
    sent = [(0, 3, 2 * MIB, 0), (0, 2, 2 * MIB, 0), (2, 1, 2 * MIB, 405_504), (0, 1, 2 * MIB, 0)]
    times, all_times = (play(links, sent, network, keys=[0] * 4)[0] for network in (QueuedLinks, Queued))
    assert times == all_times
