"""The shared memory bus: ASTRA-sim's figure, its routes, and what a single packet costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.instant import Environment, Timers
from simcore.network.topology.model import Dimension, Topology
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.memory import BusCosts, MemoryBus, Route, packets
from simcore.workload.model import CollectiveKind
from tests.runs import KINDS, Run, micro

RING = Topology((Dimension("Ring", 8, 50 * 2**30, 500.0),))
BUS = BusCosts(10, 5, 2, float(np.float32(0.01)))


def system(bus=BUS, algorithm="ring", splits=1, active=1, dims=1):
    """ASTRA-sim's example with a bus."""
    implementations = dict.fromkeys(KINDS, (Algorithm(algorithm),) * dims)
    return SystemConfig("LIFO", 10, active, splits, implementations, local_memory_bytes_per_s=1.6e12, bus=bus)


def finish_ns(profile, config, topology=RING, size_bytes=1 << 20, kind=CollectiveKind.ALL_REDUCE, **settings):
    """When one collective ends on every NPU."""
    run = Run(micro(kind, size_bytes), topology, config, profile, Settings(**settings))
    timeline = run.timeline()
    return [timeline.finish_ns[c] for npu in range(topology.npus) for c, r in enumerate(timeline.ranks) if npu in r]


def test_a_ring_all_reduce_over_the_bus_takes_as_long_as_in_astra_sim_2():
    # ASTRA-sim 2.x master 518bd513: 109,543 cycles; the loop of a text workload adds none in this profile.
    assert set(finish_ns("astra-sim-2", system())) == {109_543}


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
@pytest.mark.parametrize("profile", ["astra-sim-1.0", "astra-sim-2"])
def test_chunks_that_share_the_bus_wait_for_each_other(profile, algorithm):
    # Without contention on the network four chunks at a time take as long as one, but for the bus.
    alone = max(finish_ns(profile, system(algorithm=algorithm, splits=1), size_bytes=1 << 19))
    together = max(finish_ns(profile, system(algorithm=algorithm, splits=4, active=4), size_bytes=1 << 21))
    free = max(finish_ns(profile, system(None, algorithm, 1), size_bytes=1 << 19))
    assert free < alone < together


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
def test_a_folded_run_over_the_bus_equals_an_unfolded_one(algorithm):
    torus = Topology((Dimension("Ring", 2, 1e11, 300.0), Dimension("Switch", 4, 5e10, 100.0)))
    config = system(algorithm=algorithm, splits=3, active=2, dims=2)
    assert finish_ns("astra-sim-2", config, torus, fold=True) == finish_ns("astra-sim-2", config, torus, fold=False)


def test_the_bus_also_counts_where_links_are_shared():
    config = system(algorithm="direct")
    congested = finish_ns("astra-sim-2", config, network="congested", kind=CollectiveKind.ALL_TO_ALL)
    assert max(congested) > max(finish_ns("astra-sim-2", config, kind=CollectiveKind.ALL_TO_ALL))


def test_a_profile_without_a_bus_says_so():
    with pytest.raises(InputError, match="profile native has no shared memory bus"):
        finish_ns("native", system())


@given(st.sampled_from(["ring", "direct", "halvingDoubling"]), st.sampled_from(KINDS), st.integers(1, 4), st.data())
def test_the_bus_reduces_the_packets_that_the_plan_reduces(algorithm, kind, levels, data):
    if algorithm == "halvingDoubling" and kind == CollectiveKind.ALL_TO_ALL:
        return
    window = data.draw(st.integers(0, 5))
    size_bytes = data.draw(st.integers(100_000, 200_000))
    options = PlanOptions(window, astra_reductions=True)
    plan = algorithms.get(algorithm)(kind, 1 << levels, size_bytes, options)
    reduced = [size if route.reduced else 0 for route, size in packets(algorithm, kind, plan)]
    assert reduced == [0] * plan.window + [entry.reduce_bytes for entry in plan.expanded]


@given(st.integers(1, 10**6), st.booleans(), st.booleans())
def test_a_lonely_packet_pays_both_buses_and_its_reduction(size_bytes, reduced, send_back):
    env, ends = Environment(), []
    bus = MemoryBus(env, Timers(env), BusCosts(10, 5, 0, 0.5, 3))
    bus.carry(Route(False, reduced, send_back), size_bytes, lambda: ends.append(env.now))
    env.run()
    outer = int(20 + 0.5 * (size_bytes - 1))
    inner = int(20 + 0.0038 * (size_bytes - 1))
    # To the NPU; there and back to be reduced; there and back to be sent, and the way; or there to stay.
    expected = outer + (2 * inner + size_bytes // 100 * 3 + 50 if reduced else 0)
    expected += 2 * inner + outer if send_back else inner
    assert ends == [expected]
