"""Congestion control against closed forms that follow from the papers: where queues and rates settle."""

import numpy as np
import pytest

from simcore.network.instant import Environment
from simcore.network.queued.network import Queued
from simcore.network.topology.ports import Marking
from simcore.timeline.events import WAITING
from tests.queues import KIB, MIB, machine, segments

MARKING = Marking(5_000, 200_000, 0.01, 1000)  # the DCQCN paper's for 40 Gb/s
LATENCY_NS = 1000.0


def settled(law, flows, bytes_per_s, segment, until_ns, marking=None):
    """Mean bytes in front of the shared link, and its use: flows without an end, in the second half of the time."""
    ports = segments(segment, 64 * MIB, "credits", law=law, marking=marking)
    env = Environment()
    links = machine("Switch", flows + 1, LATENCY_NS, ports, bytes_per_s=bytes_per_s)
    network, down = Queued(env, links), flows + 1
    for src in range(1, flows + 1):
        network.send(src, 0, 1 << 40, (src,), lambda: None)
    env.run(until=until_ns // 2)
    sent_bytes = network.ports[down].sent_bytes
    env.run(until=until_ns)
    use = (network.ports[down].sent_bytes - sent_bytes) / (until_ns / 2 * 1e-9 * bytes_per_s)
    at_ns, waiting = network.table().queues.curves_of(down)[WAITING]
    late = at_ns > until_ns // 2
    held_ns = np.diff(at_ns[late], append=until_ns)
    return (waiting[late] * held_ns).sum() / held_ns.sum(), use


def dcqcn_queue_bytes(flows, bytes_per_s):
    """Where DCQCN's fluid model stands still: Zhu et al., CoNEXT 2016, equations 5 to 9, with the defaults here.

    With marks of a share p a rate R = C / N loses R alpha A / 2 tau, A = 1 - (1 - p)^(tau R), and wins half its
    distance to the target for every byte counter and timer; the target grows by the additive step for each of them that
    five have gone before.
    """
    packet = MARKING.packet_bytes
    rate, counter, timer = bytes_per_s / flows / packet, 10e6 / packet, 55e-6 * bytes_per_s / flows / packet
    step = 40e6 / 8 / packet

    def surplus(p):
        events = np.array([p / np.expm1(-span * np.log1p(-p)) for span in (counter, timer)])
        active = sum(each * (1 - p) ** (5 * span) for each, span in zip(events, (counter, timer), strict=True))
        cut, alpha = (1 - (1 - p) ** (span * rate) for span in (50e-6, 55e-6))
        return cut**2 * alpha - 50e-6**2 * step * rate * events.sum() * active

    low, high = 1e-9, 0.5
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if surplus(middle) < 0 else (low, middle)
    return MARKING.kmin_bytes + low / MARKING.pmax * (MARKING.kmax_bytes - MARKING.kmin_bytes)


def test_dcqcns_queue_settles_where_its_fluid_model_does():
    """10 Gb/s, two flows: 93.8 kB expected. At 40 Gb/s 2, 4, 8 flows: +13, +6, +17 % (of 1000 bytes, 40 ms)."""
    queue_bytes, _ = settled("dcqcn", 2, 1.25e9, 4000, 20_000_000, MARKING)
    assert dcqcn_queue_bytes(2, 1.25e9) == pytest.approx(93_800, rel=0.01)
    assert queue_bytes == pytest.approx(dcqcn_queue_bytes(2, 1.25e9), rel=0.15)


@pytest.mark.parametrize("flows", [2, 5])
def test_hpcc_uses_its_share_and_what_the_additive_steps_add_and_keeps_no_queue(flows):
    """W = W eta / U + step stands still at U = eta + N (1 - eta) / 10: equation 4 of the paper, steps for ten flows.

    U counts the queue in, so that ten flows use 2 % less. The paper claims a queue near zero at 95 % use; a product of
    rate and round trip is 20 kB here.
    """
    queue_bytes, use = settled("hpcc", flows, 5e9, KIB, 600_000)
    assert use == pytest.approx(0.95 + 0.05 * flows / 10, rel=0.02)
    assert queue_bytes < 1000


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_swift_keeps_delay_at_its_target_and_above_it_the_more_flows_there_are(flows):
    """10 us at 5 GB/s are 50 kB; the paper scales the target by the flows since the excess grows with them."""
    queue_bytes, use = settled("swift", flows, 5e9, 2 * KIB, 1_000_000)
    assert use > 0.99
    assert 50_000 * 0.95 < queue_bytes < 50_000 * (1.05 + 0.025 * flows)


@pytest.mark.parametrize("law", ["hpcc", "swift", "window"])
def test_a_window_of_a_few_segments_does_not_slow_flows_that_do_not_meet(law):
    """1.8 segments of 64 KiB are the round trip of 2.4 us at 50 GB/s: as much is on its way as with small ones."""
    took_ns = []
    for size in (4 * KIB, 64 * KIB):
        env, there = Environment(), []
        links = machine("Ring", 4, 550.0, segments(size, 64 * MIB, "credits", law=law), bytes_per_s=50e9)
        Queued(env, links).send(0, 1, 64 * MIB, (0,), lambda env=env, there=there: there.append(int(env.now)))
        env.run()
        took_ns += there
    assert took_ns[1] == pytest.approx(took_ns[0], rel=0.03)
