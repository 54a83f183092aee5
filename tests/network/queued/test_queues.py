"""Finite buffers: what they must not change, what they cost, and who waits for whom."""

from dataclasses import replace

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcore.network.congested import CutThrough
from simcore.network.queued.network import Queued
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN

KIB, MIB = 1 << 10, 1 << 20
RATE = 1e9  # a byte takes a nanosecond


def machine(kind="Switch", npus=8, latency_ns=100.0, ports=PLAIN, **more):
    dims = (Dimension(kind, npus, RATE, latency_ns, ports=ports, **more),)
    return LinkGraph(Topology(dims))


def play(links, messages, network=Queued):
    """Times of arrival of messages (src, dst, bytes, start), and the network."""
    env = simpy.Environment()
    played, arrived = network(env, links), {}

    def send(number, src, dst, size, start_ns):
        yield env.timeout(start_ns)
        played.send(src, dst, size, (number,), lambda: arrived.setdefault(number, int(env.now)))

    for number, message in enumerate(messages):
        env.process(send(number, *message))
    env.run()
    return [arrived.get(number) for number in range(len(messages))], played


def segments(size, buffer, control, **more):
    return replace(PLAIN, segment_bytes=size, buffer_bytes=buffer, flow_control=control, **more)


def pfc(segment=4 * KIB, xoff=64 * KIB, latency_ns=100):
    room = 2 * latency_ns + 2 * segment
    return segments(segment, xoff + room, "pfc", xoff_bytes=xoff, xon_bytes=xoff - 2 * segment)


kinds = st.sampled_from(
    [("Switch", {}), ("Ring", {}), ("Mesh", {}), ("FatTree", {"routers": 4}), ("FullyConnected", {})]
)
sizes = st.integers(0, 50_000)
message_lists = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), sizes, st.integers(0, 3000)), min_size=1, max_size=20
)


@given(kinds, st.sampled_from([0.0, 0.4, 100.0]), message_lists)
def test_without_limits_messages_take_what_they_take_on_shared_links(kind, latency_ns, messages):
    links = machine(kind[0], 8, latency_ns, **kind[1])
    (queued, played), (shared, other) = play(links, messages), play(links, messages, CutThrough)
    assert queued == shared
    for mine, theirs in zip(played.counts(), other.counts(), strict=True):
        assert mine.tolist() == theirs.tolist()


@given(st.sampled_from(["credits", "pfc", "drop"]), st.integers(2, 7), st.integers(1, 300))
def test_an_incast_takes_the_time_of_its_bytes_on_the_last_link(control, senders, kib):
    """n to 1: the last link is never idle once the first byte is there; a first segment and two latencies more."""
    ports = pfc() if control == "pfc" else segments(4 * KIB, 256 * KIB, control)
    times, played = play(machine(ports=ports), [(src, 0, kib * KIB, 0) for src in range(1, senders + 1)])
    work = senders * kib * KIB
    assert max(times) >= work + 200
    if not played.table().queues.drops.any():
        assert max(times) == work + 200
