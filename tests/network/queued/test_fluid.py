"""Laws played as flows: as with all messages, as segments where that is known, where the papers' equations settle."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcore.network.queued import repeats
from simcore.network.queued.fluid import FluidLinks
from simcore.network.queued.islands import Tables
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN, Marking
from tests.network.queued.test_runs import NATIVE, told_of_links, with_ports
from tests.queues import KIB, MIB, RATE, curves, machine, play
from tests.runs import runs

MARKING = Marking(4 * KIB, 32 * KIB, 0.5, 1000)


@st.composite
def lawful_ports(draw):
    law = draw(st.sampled_from(["dcqcn", "hpcc", "swift", "timely", "window"]))
    ports = replace(PLAIN, marking=MARKING, law=law, flows=True, routing=draw(st.sampled_from(["", "", "ecmp"])))
    if draw(st.booleans()):
        return replace(ports, flow_control="pfc", buffer_bytes=MIB, xoff_bytes=128 * KIB, xon_bytes=64 * KIB)
    return replace(ports, buffer_bytes=draw(st.sampled_from([64 * KIB, MIB])))


def longer(run):
    """A run whose links are long enough for flows."""
    dims = tuple(replace(dim, latency_ns=dim.latency_ns + 50) for dim in run.topology.dims)
    return replace(run, topology=replace(run.topology, dims=dims))


@given(
    runs(kinds=("Ring", "Mesh", "FatTree", "Switch", "FullyConnected"), modes=NATIVE), lawful_ports(), lawful_ports()
)
@settings(max_examples=25)
def test_phases_alone_and_one_npu_for_all_are_those_of_all_messages(run, inner, outer):
    limited = longer(with_ports(run, inner, outer))
    assert told_of_links(limited) == told_of_links(limited, exact="messages")


LAWFUL = replace(PLAIN, law="swift", flows=True)


def test_what_happens_elsewhere_changes_nothing():
    """Of messages that share links one is on a long link, while another one comes."""
    dims = Dimension("Mesh", 2, RATE, 100.0, ports=LAWFUL), Dimension("Mesh", 3, RATE, 10_000.0, ports=LAWFUL)
    links, meeting = LinkGraph(Topology(dims)), [(1, 3, 100, 0), (0, 3, 100, 0), (0, 1, 2000, 0)]
    elsewhere = [(4, 5, 1, time_ns) for time_ns in range(0, 5000, 70)]
    alone, _ = play(links, meeting, FluidLinks)
    together, _ = play(links, meeting + elsewhere, FluidLinks)
    assert alone == together[:3]
    assert alone[2] < alone[0]


def test_a_message_among_others_is_no_faster_than_one_alone():
    """Others go first on the fast links, and leave its last byte alone with the slow one."""
    dims = (Dimension("Mesh", 3, 100e9, 1000.0, ports=LAWFUL), Dimension("Mesh", 2, RATE, 1000.0, ports=LAWFUL))
    links, message = LinkGraph(Topology(dims)), (0, 5, 100_000, 0)
    others = [(0, 2, 400_000, 0), (1, 2, 400_000, 0)]
    (alone,), _ = play(links, [message], FluidLinks)
    (among, *_), _ = play(links, [message, *others], FluidLinks)
    assert alone == pytest.approx(3 * 1000 + 100_000, abs=1000)
    assert among >= alone


def test_what_waits_in_a_circle_ends_there_though_hardly_anything_still_moves():
    links = machine("Ring", 4, 500.0, replace(LAWFUL, buffer_bytes=4 * KIB), bytes_per_s=50 * RATE)
    messages = [(src, dst, 100_000, 0) for src in range(4) for dst in range(4) if src != dst]
    arrived, network = play(links, messages, FluidLinks)
    assert None in arrived
    assert network.stuck()[0] == "the buffers of 4 links wait for each other in a circle"


EVERYBODY, EVENS = range(8), range(0, 8, 2)
TRAFFIC = st.lists(
    st.tuples(
        st.sampled_from([1, 4, 7]),
        st.sampled_from([1000, 100_000, MIB]),
        st.sampled_from([0, 700, 40_000]),
        st.sampled_from([EVERYBODY, EVERYBODY, EVENS]),
    ),
    min_size=1,
    max_size=4,
)


@given(TRAFFIC, lawful_ports(), st.sampled_from(["Ring", "FatTree"]))
@example([(4, 1000, 0, EVENS), (1, MIB, 2150, EVENS), (1, 1000, 3000, EVENS)], LAWFUL, "Ring")
@settings(max_examples=15)
def test_one_for_many_and_periods_left_out_are_all_and_every_step(traffic, ports, kind):
    """Shifts: who takes part sends so far on. In the example there are links at last that nobody crosses any more."""
    links = machine(kind, ports=ports)
    messages = [(npu, (npu + far) % 8, size, start) for far, size, start, npus in traffic for npu in npus]
    told = []
    for least, first in ((0, 4), (10**18, 10**9)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tables, "least_hops", least)
            patch.setattr(Tables, "least_work", least)
            patch.setattr(repeats, "FIRST", first)
            arrived, network = play(links, messages, FluidLinks)
        told.append((arrived, network.stuck(), curves(network.queues())))
    assert told[0] == told[1]
