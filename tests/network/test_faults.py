"""Links that are slow or down for a while."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError
from simcore.network.congested import CutThrough, FaultyCutThrough
from simcore.network.fair import FairShare
from simcore.network.faults import parse_faults
from simcore.network.instant import Environment
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology

NETWORKS = pytest.mark.parametrize("network", [FaultyCutThrough, FairShare])


def ring(*faults, npus=4, rate=1e9, latency_ns=0.0):
    topology = Topology((Dimension("Ring", npus, rate, latency_ns),))
    return LinkGraph(Topology(topology.dims, faults=parse_faults(faults, LinkGraph(topology))))


def sent(links, network, messages):
    """When each message (time, src, dst, bytes) arrives; and the network."""
    env = Environment()
    made, arrived = network(env, links), {}

    def send(number, at_ns, *message):
        yield env.timeout(at_ns)
        made.send(*message, number, lambda: arrived.setdefault(number, int(env.now)))

    for number, message in enumerate(messages):
        env.process(send(number, *message))
    env.run()
    return [arrived[number] for number in range(len(messages))], made


MESSAGES = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 3), st.integers(0, 3), st.integers(0, 500)), min_size=1, max_size=12
)
SPANS = st.tuples(st.integers(0, 800), st.integers(1, 800), st.sampled_from([0.25, 0.5, 0.75, 2.0]))


@settings(deadline=None, max_examples=60)
@given(MESSAGES, st.sampled_from([0.0, 3.0, 0.5]))
def test_a_fault_that_changes_nothing_changes_nothing(messages, latency_ns):
    usual = sent(ring(latency_ns=latency_ns), CutThrough, messages)[0]
    assert sent(ring("link 0-1 x1 @ 5-700", latency_ns=latency_ns), FaultyCutThrough, messages)[0] == usual


@settings(deadline=None, max_examples=80)
@given(st.lists(SPANS, max_size=3), st.integers(0, 900), st.integers(1, 900))
def test_the_integral_of_the_rate_over_a_transfer_is_its_size(spans, start_ns, size_bytes):
    faults = [f"link 0>1 x{factor} @ {begin}-{begin + length}" for begin, length, factor in spans]
    (end_ns,), _ = sent(ring(*faults), FaultyCutThrough, [(start_ns, 0, 1, size_bytes)])

    def carried(until_ns):
        marks = sorted({start_ns, until_ns} | {t for b, n, _ in spans for t in (b, b + n) if start_ns < t < until_ns})
        total = Fraction(0)
        for begin, end in pairwise(marks):
            rate = Fraction(1)
            for first, length, factor in spans:
                rate *= Fraction(factor) if first <= begin < first + length else 1
            total += rate * (end - begin)
        return total

    assert carried(end_ns) >= size_bytes > carried(end_ns - 1)


@NETWORKS
def test_a_link_at_half_its_bandwidth_for_the_whole_run_is_a_link_of_half_the_bandwidth(network):
    messages = [(number, number % 4, (number + 1) % 4, 1000 + number) for number in range(20)]
    slow = sent(ring("link 0-1 x0.5", "link 1-2 x0.5", "link 2-3 x0.5", "link 3-0 x0.5"), network, messages)[0]
    usual = CutThrough if network is FaultyCutThrough else network
    assert slow == sent(ring(rate=0.5e9), usual, messages)[0]


@NETWORKS
def test_the_same_slow_hour_is_felt_alike_by_a_single_transfer(network):
    """100 ns at full rate, 200 at half of it, the rest at full rate again."""
    (end_ns,), made = sent(ring("link 0-1 x0.5 @ 100-300"), network, [(0, 0, 1, 1000)])
    assert end_ns == 1100
    (counted,) = made.table().faults
    assert (counted.transfers, counted.size_bytes, counted.rerouted) == (1, 1000, 0)


@NETWORKS
def test_a_link_that_is_down_takes_nothing_and_finishes_what_it_had(network):
    messages = [(0, 0, 1, 1000), (500, 0, 1, 10), (2000, 0, 1, 10)]
    arrived, made = sent(ring("link 0-1 down @ 400-1500"), network, messages)
    assert arrived == [1000, 510, 2010], "the second goes the other way around"
    assert made.table().faults[0].rerouted == 1


def test_a_head_that_comes_to_a_dead_link_is_led_around_from_there():
    links = ring("link 1-2 down @ 10-", npus=4, latency_ns=20.0)
    (end_ns,), made = sent(links, FaultyCutThrough, [(0, 0, 2, 100)])
    assert end_ns == 100 + 4 * 20, "0, 1, back to 0, 3, 2"
    used = np.flatnonzero(made.counts()[0])
    assert sorted(zip(links.src[used].tolist(), links.dst[used].tolist(), strict=True)) == [
        (0, 1),
        (0, 3),
        (1, 0),
        (3, 2),
    ]


@NETWORKS
def test_without_a_way_a_message_waits_for_one(network):
    faults = ("link 0-1 down @ 0-700", "link 3-0 down @ 0-900")
    assert sent(ring(*faults), network, [(5, 0, 1, 100)])[0] == [800]


CUT_OFF = st.tuples(st.integers(0, 5), st.integers(1, 900), st.integers(1, 900))


@settings(deadline=None, max_examples=60)
@given(st.lists(CUT_OFF, min_size=1, max_size=3), st.tuples(*[st.integers(0, most) for most in (900, 5, 5, 500)]))
def test_a_lone_message_waits_where_it_is_for_a_way_whatever_shares_links(npus, message):
    """Links that come back while it is on its way change nothing: the way that it has goes on."""
    ends = [(npu + side, end_ns) for npu, *both in npus for side, end_ns in enumerate(both)]
    texts = [f"link {(npu - 1) % 6}-{npu % 6} down @ 0-{end_ns}" for npu, end_ns in ends]
    links = ring(*texts, npus=6, latency_ns=20.0)
    assert sent(links, FaultyCutThrough, [message])[0] == sent(links, FairShare, [message])[0]


@NETWORKS
def test_without_a_way_for_ever_a_run_is_refused(network):
    with pytest.raises(InputError, match="no way is left from 0 to 1"):
        sent(ring("link 0-1 down", "link 3-0 down"), network, [(5, 0, 1, 100)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("link 0-2 x0.5", "for example 0-1"),
        ("npu 3 x0.5", "not a fault"),
        ("link 0-1 x-1", "not a factor"),
        ("link 0-1 xnan", "not a factor"),
        ("link 0-1 x0.5 @ 2ms-1ms", "not a span of time"),
        ("link 0-1 x0.5 @ 2ms", "not a span of time"),
        ("link 0-1 x0.5 @ soon-later", "expected a time"),
    ],
)
def test_faults_that_cannot_be_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        ring(text)


def test_a_run_says_what_its_faults_hit_and_is_the_same_unfolded():
    faults = ("link 3-4 x0.5 @ 100us-", "link 0>1 down @ 200us-300us")
    usual = simcore.run("micro_all_reduce", "ring8")
    folded, unfolded = (simcore.run("micro_all_reduce", "ring8", fault=faults, no_fold=flag) for flag in (False, True))
    assert folded.to_json() == unfolded.to_json()
    slow, down = folded.to_dict()["faults"]
    assert folded.timeline.time_ns > usual.timeline.time_ns
    assert slow["transfers"] > 0 == slow["rerouted"]
    assert down["rerouted"] > 0 == down["transfers"]
    assert (slow["begin_ns"], slow["end_ns"], down["end_ns"]) == (100_000, -1, 300_000)


@pytest.mark.parametrize("options", [{"network": "congestion-free"}, {"profile": "astra-sim-2"}])
def test_networks_without_shared_links_in_time_refuse_faults(options):
    with pytest.raises(InputError, match="faults need links that are shared"):
        simcore.run("micro_all_reduce", "ring8", fault=("link 3-4 x0.5",), **options)
