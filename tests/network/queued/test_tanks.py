"""Many steps of flows at once: as long as one by one, with the same bytes, and far fewer steps."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.queued import islands, laws, tanks
from simcore.network.queued.fluid import FluidLinks
from simcore.network.topology.ports import PLAIN
from tests.network.queued import test_published as papers
from tests.queues import KIB, MIB, machine, play

SIZES = st.sampled_from([100_000, MIB, 3 * MIB])
SHIFTS = st.lists(st.tuples(st.sampled_from([1, 3, 5]), SIZES, st.sampled_from([0, 40_000])), min_size=1, max_size=2)


def played(links, messages, **constants):
    """Times of arrival, bytes of all links, and steps of tanks, in lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(islands, "installed", lambda: False)
        for name, value in constants.items():
            patch.setattr(laws if name == "PATIENCE" else tanks, name, value)
        arrived, network = play(links, messages, FluidLinks)
    return arrived, network.counts()[0].sum(), network._tables._played


@given(st.sampled_from(["Ring", "Mesh", "FatTree"]), st.sampled_from(["ugal", "adaptive", "spray"]), SHIFTS)
@settings(max_examples=8)
def test_many_steps_at_once_take_as_long_as_one_by_one(kind, routing, shifts):
    """Of 398 runs like these none was 0.3 % off."""
    links = machine(kind, 6, 500.0, replace(PLAIN, buffer_bytes=MIB, routing=routing))
    messages = [(npu, (npu + far) % 6, size, start) for far, size, start in shifts for npu in range(6)]
    (some, bytes_some, _), (every, bytes_every, _) = played(links, messages), played(links, messages, FEWEST=10**18)
    assert max(some) == pytest.approx(max(every), rel=5e-3)
    assert bytes_some == pytest.approx(bytes_every, rel=5e-2 if routing == "ugal" else 5e-3)  # of ways that are longer


@pytest.mark.parametrize(("kind", "routing", "far", "times"), [("Mesh", "ugal", 3, 4), ("Ring", "spray", 1, 400)])
def test_where_flows_change_slowly_few_steps_are_played(kind, routing, far, times):
    """On the mesh four meet, and what waits grows and shrinks for long; on the ring nothing changes."""
    links = machine(kind, 8, 100.0, replace(PLAIN, buffer_bytes=4 * MIB, routing=routing), bytes_per_s=50e9)
    messages = [(npu, (npu + far) % 8, 20 * MIB, 0) for npu in (0, 1, 2, 5)]
    (some, _, few), (every, _, many) = played(links, messages), played(links, messages, FEWEST=10**18)
    assert max(some) == pytest.approx(max(every), rel=1e-3)
    assert few * times < many


@pytest.mark.parametrize("senders", [1, 2, 3])
def test_a_law_that_hears_less_while_nothing_is_marked_does_the_same(senders):
    """An incast of DCQCN, whose intervals are of 50 us: heard of four times in a round trip, and an 8th of that."""
    ports = replace(PLAIN, buffer_bytes=4 * MIB, law="dcqcn", marking=papers.MARKING, segment_bytes=4 * KIB)
    links = machine("Switch", senders + 1, 500.0, ports, bytes_per_s=5e9)
    messages = [(npu, 0, 4 * MIB, 0) for npu in range(1, senders + 1)]
    (some, *_, few), (every, *_, many) = played(links, messages), played(links, messages, PATIENCE=0, FEWEST=10**18)
    assert max(some) == pytest.approx(max(every), rel=0.03)
    assert few < many
