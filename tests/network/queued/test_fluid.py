"""Laws played as flows: as with all messages, as segments where that is known, and where the papers' equations settle."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.network.queued.islands import Tables
from simcore.network.topology.ports import PLAIN, Marking
from tests.network.queued.test_runs import NATIVE, told_of_links, with_ports
from tests.queues import KIB, MIB
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


@given(runs(kinds=("Ring", "Mesh", "FatTree", "Switch", "FullyConnected"), modes=NATIVE), lawful_ports(), lawful_ports())
@settings(max_examples=25)
def test_phases_alone_and_one_npu_for_all_are_those_of_all_messages(run, inner, outer):
    limited = longer(with_ports(run, inner, outer))
    assert told_of_links(limited) == told_of_links(limited, exact="messages")
