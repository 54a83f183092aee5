"""Whole nanoseconds: one message and columns of them, and a message on idle links."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from simcore.network.clock import cross, idle_ns, occupied_ns, steps, whole_column, whole_steps
from simcore.network.topology.fabric import Routes
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.noise import Noise, Spread
from simcore.units import transfer_ns, whole_ns

LATENCIES = st.lists(st.floats(0, 1e6), min_size=1, max_size=8)


@given(st.floats(0, 1e15), st.sampled_from([3, 6]))
@example(5.0005, 3)
@example(1.0000005, 6)
def test_a_column_is_rounded_as_a_number(time_ns, digits):
    assert whole_column(np.array([time_ns]), digits).tolist() == [whole_ns(time_ns, digits)]


@given(st.integers(0, 1 << 40), st.floats(1e6, 1e13))
def test_a_column_of_messages_occupies_links_as_one_does(size_bytes, bytes_per_s):
    assert occupied_ns(size_bytes, np.array([bytes_per_s])).tolist() == [transfer_ns(size_bytes, bytes_per_s)]


@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_steps_of_many_routes_are_those_of_each(routes):
    counts, latencies = np.array([len(route) for route in routes]), np.concatenate(routes)
    found = steps(latencies, Routes(counts, np.arange(counts.sum())))
    assert found.tolist() == [step for route in routes for step in whole_steps(route)]


@given(st.integers(0, 9), st.sampled_from(["Ring", "Mesh", "Switch"]), st.integers(1, 1 << 24))
def test_a_message_on_idle_links_takes_what_its_crossings_add_up_to(seed, kind, size_bytes):
    noise = Noise(seed, links=Spread("normal", 0.05))
    links = LinkGraph(Topology((Dimension(kind, 8, 50e9, 500.3),), noise=noise))
    routes = links.routes(np.array([0]), np.array([3]))
    head, tail, idle = np.zeros((3, 1), np.int64)
    for link, step in zip(routes.links, steps(links.latency_ns, routes), strict=True):
        head, tail, _ = cross(head, tail, idle, occupied_ns(size_bytes, links.bandwidth_bytes_per_s[[link]]), step)
    assert idle_ns(links, routes, size_bytes).tolist() == tail.tolist()
