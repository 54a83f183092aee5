"""Congestion control: two flows share evenly, queues stay short, and the first steps are those of the papers."""

from dataclasses import replace
from functools import cache

import pytest

from simcore.network.instant import Environment
from simcore.network.queued.laws import LAWS, acknowledged, sends
from simcore.network.queued.network import Queued
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN, Marking
from simcore.timeline.events import WAITING
from tests.queues import KIB, MIB

RATE, LATENCY_NS = 5e9, 1000.0  # 40 Gb/s
MARKING = Marking(5_000, 200_000, 0.01, 1000)  # the DCQCN paper's for 40 Gb/s


@cache
def flows(law, count=2, size=64 * MIB, stagger_ns=0, **parameters):
    """Bytes of each flow that have left its NPU at every half millisecond, and the network, at the first one's end."""
    marking = MARKING if LAWS.get(law or "window").needs_marks or law == "window" else None
    ports = replace(
        PLAIN, buffer_bytes=4 * MIB, flow_control="pfc", xoff_bytes=3 * MIB, xon_bytes=2 * MIB,
        marking=marking, law=law, parameters=tuple(parameters.items()), segment_bytes=4 * KIB,
    )  # fmt: skip
    links = LinkGraph(Topology((Dimension("Switch", count + 1, RATE, LATENCY_NS, ports=ports),)))
    env = Environment()
    network, done, rows = Queued(env, links), [], []
    for number in range(1, count + 1):
        env.process(_send(env, network, number, size, (number - 1) * stagger_ns, done))
    while not done:
        env.run(until=env.now + 500_000)
        rows.append([network.ports[number].sent_bytes for number in range(1, count + 1)])
    return rows, network


def _send(env, network, number, size, wait_ns, done):
    yield env.timeout(wait_ns)
    network.send(number, 0, size, (number,), lambda: done.append(number))


def rates(rows, last):
    """Mean rates over the last rows but one."""
    return [(end - begin) / (last * 5e5) for begin, end in zip(rows[-2 - last], rows[-2], strict=True)]


@pytest.mark.parametrize(("law", "mib"), [("dcqcn", 64), ("hpcc", 40), ("swift", 40), ("window", 40)])
def test_two_flows_that_begin_together_share_a_link_evenly(law, mib):
    """DCQCN takes longest to come there."""
    rows, _ = flows(law, size=mib * MIB)
    one, other = rates(rows, 20)
    assert 0.75 < one / other < 1 / 0.75
    assert one + other > 0.75 * RATE * 1e-9


def test_dcqcn_gives_a_flow_that_comes_later_its_fair_share():
    rows, _ = flows("dcqcn", stagger_ns=2_000_000)
    one, other = rates(rows, 20)
    assert 0.75 < one / other < 1 / 0.75


@cache
def four_paused():
    """The network after four flows without a law."""
    return flows("", count=4, size=8 * MIB)[1]


@pytest.mark.parametrize("law", ["dcqcn", "hpcc", "swift", "timely", "window"])
def test_laws_keep_the_queue_shorter_than_pauses_do(law):
    paused = four_paused()
    _, ruled = flows(law, count=4, size=8 * MIB)
    down = 5  # to NPU 0
    assert ruled.ports[down].peak_bytes < 0.4 * paused.ports[down].peak_bytes
    assert sum(port.still_ns for port in ruled.ports) == 0 < sum(port.still_ns for port in paused.ports)


def test_hpcc_keeps_nearly_no_queue_at_its_share_of_the_rate():
    rows, network = flows("hpcc", size=40 * MIB)
    assert sum(rates(rows, 20)) == pytest.approx(0.95 * RATE * 1e-9, rel=0.1)
    times_ns, waiting = network.table().queues.curves_of(3)[WAITING]
    assert waiting[times_ns > 5_000_000].max() < 32 * KIB


def begun(law, **parameters):
    made = LAWS.get(law)(**parameters)
    made.begin(RATE, 8_000, 1000)
    return made


def ack(law, now_ns, sent_ns=0, *, marked=False):
    acknowledged(law, now_ns, sent_ns, 1000, marked)


def test_dcqcn_halves_at_first_and_recovers_half_of_what_it_lost_each_time():
    """Alpha is 1 until the first notification, which so cuts by a half; then five rounds of fast recovery."""
    law = begun("dcqcn")
    ack(law, 100_000, marked=True)
    assert law.rate_bytes_per_s == RATE / 2
    ack(law, 120_000, marked=True)
    assert law.rate_bytes_per_s == RATE / 2  # one notification in 50 us
    for rounds in range(1, 6):
        sends(law, 100_000 + rounds * 55_000, 0)
        assert law.rate_bytes_per_s == RATE * (1 - 2 ** -(rounds + 1))


def test_dcqcns_cut_shrinks_with_alpha():
    law = begun("dcqcn")
    ack(law, 0, marked=True)
    before = law.rate_bytes_per_s = RATE
    ack(law, 100 * 55_000, marked=True)
    assert law.rate_bytes_per_s == pytest.approx(before * (1 - (1 - 1 / 256) ** 100 / 2))


def test_swift_cuts_by_the_share_of_delay_above_its_target_and_once_a_round_trip():
    law = begun("swift", target_ns=10_000, beta=0.8)
    window = law.window_bytes
    ack(law, 20_000, sent_ns=0)
    assert law.window_bytes == pytest.approx(window * (1 - 0.8 * 2_000 / 20_000))
    ack(law, 20_500, sent_ns=500)
    assert law.window_bytes == pytest.approx(window * (1 - 0.8 * 2_000 / 20_000))


def test_timely_adds_below_its_low_threshold_and_shrinks_above_its_high_one():
    law = begun("timely", low_ns=20_000, high_ns=100_000)
    law.rate_bytes_per_s = RATE / 4
    ack(law, 10_000, sent_ns=0)
    assert law.rate_bytes_per_s == RATE / 4 + law.additive_bytes_per_s
    before = law.rate_bytes_per_s
    ack(law, 300_000, sent_ns=20_000)
    assert law.rate_bytes_per_s == pytest.approx(before * (1 - 0.8 * (1 - 108_000 / 280_000)))


def test_a_window_takes_a_step_a_round_trip_and_halves_on_marks():
    law = begun("window", additive_bytes=1000)
    window = law.window_bytes
    for number in range(int(window / 1000)):
        ack(law, 8_000 + number, sent_ns=number)
    assert law.window_bytes == pytest.approx(window + 1000, rel=0.01)
    grown = law.window_bytes
    ack(law, 20_000, sent_ns=12_000, marked=True)
    assert law.window_bytes == grown / 2
