import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.system.collectives.nccl import FABRICS, choose, collective_s, point_to_point_s
from simcore.units import format_ns
from simcore.workload.model import CollectiveKind

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"

SYSTEMS = st.sampled_from(list(FABRICS.values()))
KINDS = st.sampled_from([kind for kind in CollectiveKind if kind is not CollectiveKind.BARRIER])
BYTES = st.integers(1, 1 << 34)
PATIENT = settings(deadline=None)  # the first question reads measured tables
ALONE = [
    ("hgx-h200", 1 << 20, 8, 46.0),
    ("hgx-h200", 1 << 23, 8, 94.4),
    ("hgx-h200", 1 << 26, 8, 338.9),
    ("hgx-h200", 1 << 30, 8, 4053.3),
    ("azure-a100", 1 << 20, 2, 59.5),
    ("azure-a100", 1 << 24, 2, 136.4),
    ("azure-a100", 1 << 24, 8, 235.6),
    ("azure-a100", 1 << 28, 8, 2096.0),
]


@PATIENT
@given(SYSTEMS, KINDS, BYTES, st.integers(2, 256), st.floats(1, 8))
def test_more_bytes_never_take_less_time(system, kind, size, ranks, factor):
    assert collective_s(kind, size * factor, ranks, 8, system) >= collective_s(kind, size, ranks, 8, system)


@PATIENT
@given(SYSTEMS, BYTES, st.sampled_from([2, 4, 8, 16, 64]))
def test_an_all_reduce_takes_no_longer_than_its_halves_one_after_the_other(system, size, ranks):
    halves = [CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
    both = sum(collective_s(kind, size, ranks, 8, system) for kind in halves)
    assert collective_s(CollectiveKind.ALL_REDUCE, size, ranks, 8, system) <= 1.1 * both


@pytest.mark.parametrize(("name", "size", "ranks", "measured_us"), ALONE)
def test_lone_calls_in_a_node_take_nccl_tests_time_and_a_launch(name, size, ranks, measured_us):
    """Published calls one by one, none of which is in the tables: stas00/ml-engineering (H200), Echo (A100)."""
    found = collective_s(CollectiveKind.ALL_REDUCE, size, ranks, 8, FABRICS[name])
    assert found == pytest.approx(measured_us * 1e-6, rel=0.1)


@PATIENT
@given(SYSTEMS, st.integers(1, 1 << 12), st.sampled_from([2, 4, 8, 16, 64]))
def test_a_small_collective_takes_microseconds_and_more_ranks_never_less(system, size, ranks):
    """nccl-tests on 8 H100: 15 us; a lone call adds launch and last peer. A slice of TPUs holds them all."""
    inside = 128 if system.generation == "slices" else 8
    small = collective_s(CollectiveKind.ALL_REDUCE, size, ranks, inside, system)
    assert 10e-6 < small < 700e-6
    assert collective_s(CollectiveKind.ALL_REDUCE, size, 2 * ranks, inside, system) >= 0.9 * small


def test_between_slices_of_tpus_a_ring_takes_a_step_more_for_every_slice():
    """One chip of each slice, as sums of sharded gradients have it: up and down the ring."""
    some = [collective_s(CollectiveKind.ALL_REDUCE, 1, slices, 1, FABRICS["tpu-v5e"]) for slices in (2, 3, 4, 32)]
    assert [round((one - some[0]) / 300e-6) for one in some] == [0, 2, 4, 60]


@PATIENT
@given(SYSTEMS, BYTES, st.sampled_from([1, 2, 4]))
def test_fewer_ranks_of_a_node_have_fewer_of_its_network_cards(system, size, per_node):
    whole = min(8, system.node_ranks)
    some = collective_s(CollectiveKind.ALL_REDUCE, size, 4 * per_node, per_node, system)
    assert some >= collective_s(CollectiveKind.ALL_REDUCE, size, 4 * per_node, whole, system) or 2 * per_node >= whole


@PATIENT
@given(SYSTEMS, st.integers(2, 8))
def test_nothing_is_free_and_one_rank_pays_nothing(system, ranks):
    assert collective_s(CollectiveKind.ALL_REDUCE, 1, ranks, 8, system) > 1e-6
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 1, 8, system) == 0
    assert point_to_point_s(1, system, same_node=True) > point_to_point_s(0, system, same_node=True) == 0


def test_small_messages_take_the_low_latency_protocol_and_large_ones_the_high_rate():
    """8 H200: NCCL used ring LL to 1 MiB, NVLS above (stas00/ml-engineering, network benchmarks): 46 us and 4053 us."""
    h200 = FABRICS["hgx-h200"]
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 20, 8, 8, h200) == pytest.approx(46e-6, rel=0.1)
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, h200) == pytest.approx(4053e-6, rel=0.05)
    ring = collective_s(CollectiveKind.ALL_REDUCE, 1 << 33, 4, 8, h200)
    assert (1 << 33) * 1.5 / ring / 1e9 == pytest.approx(363.3, rel=0.05)  # no NVLS at four GPUs


@PATIENT
@given(
    st.sampled_from(["azure-a100", "hgx-h100", "hgx-b200", "hgx-v100", "nvl72"]),
    st.sampled_from([CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER]),
    st.integers(1, 1 << 30),
    st.sampled_from([2, 4, 16, 64]),
)
def test_gathers_and_scatters_grow_with_ranks(name, kind, size, nodes):
    """Rings pass every node: twice the nodes add a step's latency for each; trees of all-reduces add one."""
    system = FABRICS[name]
    some, more = (collective_s(kind, size, 8 * count, 8, system) for count in (nodes, 2 * nodes))
    assert more - some >= nodes * 2.6e-6
    small = [collective_s(CollectiveKind.ALL_REDUCE, 256, 8 * count, 8, system) for count in (nodes, 2 * nodes)]
    assert small[1] - small[0] == pytest.approx(2 * (5e-6 + system.far_s), rel=0.2) or nodes == 2


def test_one_rank_a_node_gathers_by_pat_where_rings_would_pass_hundreds():
    assert choose(CollectiveKind.ALL_GATHER, 1 << 24, 512, 1, FABRICS["hgx-h100"]).algorithm == "PAT"
    assert choose(CollectiveKind.ALL_GATHER, 1 << 24, 512, 8, FABRICS["hgx-h100"]).algorithm == "ring"


RINGS = [(4, 1 << 26, 343), (4, 1 << 31, 8627), (8, 1 << 26, 393), (8, 1 << 28, 1326), (8, 1 << 31, 10043)]
NODES = [(2, 1 << 20, 100.1), (4, 1 << 20, 131.8), (16, 1 << 20, 183.1), (16, 1 << 26, 1431), (8, 1 << 32, 66444)]


@pytest.mark.parametrize(
    ("system", "points", "per_node", "mean", "most"),
    [
        (replace(FABRICS["hgx-h100"], multicast_ranks=1 << 30), RINGS, 1, 0.02, 0.09),
        (FABRICS["azure-a100"], NODES, 8, 0.05, 0.08),
    ],
)
def test_the_own_constants_take_what_was_measured(system, points, per_node, mean, most):
    """HGX H100 with NCCL held to rings (ASTRA-sim's validation): one rate, nothing else fitted; ranks, bytes, us.

    Echo, Azure ND v4: one rate and 3 us of the network for all sizes and numbers of nodes of 8.
    """
    taken = [collective_s(CollectiveKind.ALL_REDUCE, size, per_node * n, 8, system) * 1e6 for n, size, _ in points]
    errors = [abs(us / point[-1] - 1) for us, point in zip(taken, points, strict=True)]
    assert max(errors) <= most
    assert sum(errors) / len(errors) <= mean  # as docs/collectives.md says


@pytest.mark.parametrize(
    ("name", "kind", "size", "ranks"),
    [
        ("efa-b200", CollectiveKind.ALL_GATHER, 400_000, 8),
        ("mi300x", CollectiveKind.ALL_REDUCE, 17_600_000, 8),
        ("dgx-a100", CollectiveKind.ALL_REDUCE, 31_500_000, 2),
    ],
)
def test_what_docs_replay_says_of_kernels_on_these_systems(name, kind, size, ranks):
    told = collective_s(kind, size, ranks, 8, FABRICS[name])
    assert re.search(rf"\| {re.escape(format_ns(told * 1e9))} \(`{name}`\)", PAGE.read_text())
