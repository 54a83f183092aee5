import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.system.collectives.nccl import FABRICS, collective_s, fabric, point_to_point_s
from simcore.workload.model import CollectiveKind

SYSTEMS = st.sampled_from(list(FABRICS.values()))
KINDS = st.sampled_from([kind for kind in CollectiveKind if kind is not CollectiveKind.BARRIER])
BYTES = st.integers(1, 1 << 34)


@given(SYSTEMS, KINDS, BYTES, st.integers(2, 256), st.floats(1, 8))
def test_more_bytes_never_take_less_time(system, kind, size, ranks, factor):
    assert collective_s(kind, size * factor, ranks, 8, system) >= collective_s(kind, size, ranks, 8, system)


@given(SYSTEMS, BYTES, st.sampled_from([2, 4, 8]))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_where_no_switch_reduces(system, size, ranks):
    if ranks < system.multicast_ranks or all(line.algorithm != "nvls" for line in system.node):
        halves = [CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
        both = sum(collective_s(kind, size, ranks, 8, system) for kind in halves)
        assert collective_s(CollectiveKind.ALL_REDUCE, size, ranks, 8, system) == pytest.approx(both)


@given(SYSTEMS, BYTES, st.sampled_from([1, 2, 4]))
def test_fewer_ranks_of_a_node_have_fewer_of_its_network_cards(system, size, per_node):
    some = collective_s(CollectiveKind.ALL_REDUCE, size, 4 * per_node, per_node, system)
    assert some >= collective_s(CollectiveKind.ALL_REDUCE, size, 4 * per_node, 8, system) or per_node == 4


@given(SYSTEMS, st.integers(2, 8))
def test_nothing_is_free_and_one_rank_pays_nothing(system, ranks):
    assert collective_s(CollectiveKind.ALL_REDUCE, 1, ranks, 8, system) > 1e-6
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 1, 8, system) == 0
    assert point_to_point_s(0, system, same_node=True) > 0


def test_small_messages_take_the_low_latency_protocol_and_large_ones_the_high_rate():
    """8 H200: NCCL used ring LL to 1 MiB, NVLS above (stas00/ml-engineering, network benchmarks): 46 us and 4053 us."""
    h200 = fabric("hgx-h200")
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 20, 8, 8, h200) == pytest.approx(46e-6, rel=0.1)
    assert collective_s(CollectiveKind.ALL_REDUCE, 1 << 30, 8, 8, h200) == pytest.approx(4053e-6, rel=0.03)
    ring = collective_s(CollectiveKind.ALL_REDUCE, 1 << 33, 4, 8, h200)
    assert (1 << 33) * 1.5 / ring / 1e9 == pytest.approx(363.3, rel=0.05)  # no NVLS at four GPUs


def test_an_unknown_fabric_names_the_nearest():
    with pytest.raises(InputError, match="hgx-h100"):
        fabric("hgx-h10")
