import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings, straggler_factors
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Workload

CUBE = Topology(tuple(Dimension("Switch", npus, 1e9, 1.0) for npus in (4, 2, 8)))
SIZES = Parallelism(tp=4, ep=2, pp=2)


@given(st.sampled_from(["tp", "ep", "dp", "pp", "dim0", "dim1", "dim2"]), st.data())
def test_every_npu_has_one_index_in_every_group_and_dimension(name, data):
    size = {"tp": 4, "ep": 2, "dp": 8, "pp": 2, "dim0": 4, "dim1": 2, "dim2": 8}[name]
    named = [straggler_factors((f"{name}={index}:2",), CUBE, SIZES) for index in range(size)]
    assert sorted(rank for ranks in named for rank in ranks) == list(range(CUBE.npus))
    assert {len(ranks) for ranks in named} == {CUBE.npus // size}
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, size - 1)] * 2)))
    together = straggler_factors((f"{name}={first}-{last}:2",), CUBE, SIZES)
    assert set(together) == {rank for ranks in named[first : last + 1] for rank in ranks}


def test_tp_is_innermost_and_dp_holds_ep():
    assert list(straggler_factors(("tp=1:2",), CUBE, SIZES))[:3] == [1, 5, 9]
    assert list(straggler_factors(("ep=1:2",), CUBE, SIZES))[:5] == [4, 5, 6, 7, 12]
    assert list(straggler_factors(("dp=3:1.2",), CUBE, SIZES)) == [12, 13, 14, 15, 44, 45, 46, 47]
    assert list(straggler_factors(("pp=1:2",), CUBE, SIZES)) == list(range(32, 64))
    assert straggler_factors(("dp=3:1.5", "12=2"), CUBE, SIZES)[12] == 3.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dp=8:1.2", "dp indexes 0 to 7"),
        ("cp=1:1.2", "no such group"),
        ("dim3=0:1.2", "dim2"),
        ("dp=3:0", "factor above 0"),
        ("dp=:2", "factor above 0"),
        ("64=2", "ranks 0 to 63"),
    ],
)
def test_what_is_not_there_is_named(text, said):
    with pytest.raises(InputError, match=said):
        straggler_factors((text,), CUBE, SIZES)


def test_traces_have_dimensions_only():
    assert len(straggler_factors(("dim2=0:2",), CUBE)) == 8
    with pytest.raises(InputError, match="no such group"):
        straggler_factors(("dp=0:2",), CUBE)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["tp=1", "ep=0", "dp=3", "pp=1", "dim0=2", "dim1=0", "dim2=5-6"]), st.sampled_from(["1.2", "3"]))
def test_a_named_straggler_is_folded_exactly(where, factor):
    phase = Phase(10_000, CollectiveKind.ALL_REDUCE, 1 << 16, Group.TP)
    gradient = Phase(5_000, CollectiveKind.ALL_REDUCE, 1 << 18, Group.DP)
    layer = Layer("one", phase, Phase(7_000), gradient)
    workload = Workload("HYBRID_TRANSFORMER", (layer, layer), SIZES)
    factors = straggler_factors((f"{where}:{factor}",), CUBE, SIZES)
    documents = []
    for fold in (True, False):
        timeline = simulate(
            workload, CUBE, None, profiles.get("native"), Settings(1, "congestion-free", fold=fold, stragglers=factors)
        )
        assert not fold or len(timeline.ranks) < CUBE.npus
        document = dict(Report(timeline, "native", "congestion-free").to_dict())
        del document["classes"]
        documents.append(document)
    assert documents[0] == documents[1]
