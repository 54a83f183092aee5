"""Rendezvous: a message leaves when its receiver's request is there."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.network.instant import Environment
from simcore.network.topology.model import Dimension, Topology, Wafer
from simcore.profiles import profiles
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.groups import LogicalDim
from simcore.system.messages.point_to_point import RENDEZVOUS_BYTES
from simcore.system.streams import Dataset, Lane, Request, Stream, StreamPhase
from simcore.system.transport import CongestionFree, Costs, Played
from simcore.workload.model import CollectiveKind
from tests.runs import Run, micro

ALGORITHMS = {
    "ring": list(CollectiveKind)[:4],
    "direct": list(CollectiveKind)[:4],
    "halvingDoubling": [CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER],
    "doubleBinaryTree": [CollectiveKind.ALL_REDUCE],
}
PEER = profiles.get("astra-sim-2")
MACHINE = Topology((Dimension("Ring", 8, 5e9, 300.0),))


def exits(arrivals_ns, algorithm, kind, size_bytes, window=0, rendezvous=True):
    """When each of eight NPUs leaves a phase that they enter at different times; of one, it plays for all."""
    env = Environment()
    costs = Costs(10, lambda size: size // 100, PEER.plan_options, rendezvous=rendezvous)
    ranks = [[npu] for npu in range(8)] if len(arrivals_ns) > 1 else [range(8)]
    delay = PEER.delay(MACHINE)
    made = Played(env, ranks, CongestionFree(env, delay), costs)
    lane = Lane(0, LogicalDim(0, 8, 1), Algorithm(algorithm, window))
    dataset = Dataset(env, Request(kind, size_bytes, (lane,), 0))
    phase = StreamPhase(kind, lane, size_bytes, size_bytes, 0)
    leave = {}

    def enter(npu):
        made.start({npu: Stream(("", 0), dataset, (phase,))}, lambda _: leave.setdefault(npu, int(env.now)))

    for npu, arrival_ns in enumerate(arrivals_ns):
        env.timeout(arrival_ns).callbacks.append(lambda _, npu=npu: enter(npu))
    env.run()
    return [leave[npu] for npu in range(len(arrivals_ns))]


@given(
    st.lists(st.integers(0, 9000), min_size=8, max_size=8),
    st.sampled_from(sorted(ALGORITHMS)),
    st.integers(800, 90_000),
    st.integers(0, 3),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_nobody_leaves_earlier_who_has_to_be_asked_for_messages(arrivals, algorithm, size_bytes, window, data):
    kind = data.draw(st.sampled_from(ALGORITHMS[algorithm]))
    alike = data.draw(st.booleans())
    arrivals = [arrivals[0]] * 8 if alike else arrivals
    window = window if algorithm == "direct" else 0
    found = exits(arrivals, algorithm, kind, size_bytes, window)
    free = exits(arrivals, algorithm, kind, size_bytes, window, rendezvous=False)
    assert all(asked >= not_asked for asked, not_asked in zip(found, free, strict=True))


def test_on_a_ring_in_lockstep_every_step_is_longer_by_a_request():
    steps = 7
    request_ns = int(PEER.delay(MACHINE)(np.array([1]), np.array([0]), RENDEZVOUS_BYTES)[0])
    free, asked = (exits([0] * 8, "ring", CollectiveKind.REDUCE_SCATTER, 8192, rendezvous=flag)[0] for flag in (0, 1))
    assert asked - free == steps * request_ns


def test_a_receiver_that_waits_for_long_has_asked_before():
    late = [9_000_000, 0, 0, 0, 0, 0, 0, 0]
    free = exits(late, "doubleBinaryTree", CollectiveKind.ALL_REDUCE, 8192, rendezvous=False)
    asked = exits(late, "doubleBinaryTree", CollectiveKind.ALL_REDUCE, 8192)
    assert max(asked) == max(free)  # a leaf comes last: everybody on its way has listened for it since the start


@given(st.integers(0, 7), st.sampled_from(ALGORITHMS["direct"]), st.integers(800, 90_000))
@settings(max_examples=20, deadline=None)
def test_who_plays_for_all_tells_requests_from_near_and_far_apart(window, kind, size_bytes):
    every = exits([0] * 8, "direct", kind, size_bytes, window)
    assert exits([0], "direct", kind, size_bytes, window) == every[:1] and len(set(every)) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(2, 4), (3, 3), (4, 4), (5, 4)]),
    st.integers(0, 19),
    st.sampled_from([0.5, 10.0]),
    st.sampled_from([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL]),
    st.sampled_from([1000, 65536]),
    st.sampled_from(["congested", "congested", "fair"]),
)
def test_who_shares_links_only_with_those_who_ask_is_not_alone(sides, dead, latency_ns, kind, size_bytes, network):
    columns, rows = sides  # one of a spare row stands for one of another row: their messages cross columns
    across, down, longer = (Dimension("Mesh", size, 12.5e9, latency_ns) for size in (columns, rows, rows + 1))
    wafer = Topology((across, down), wafer=Wafer((across, longer), (dead % (columns * rows),), (), 1))
    system = SystemConfig(implementations={kind: (Algorithm("ring"),) * 2})
    run = Run(micro(kind, size_bytes), wafer, system, settings=Settings(network=network, rendezvous=True))
    assert run.report() == run.report(exact="messages")
