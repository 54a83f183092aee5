"""Laws of the native algorithms in whole runs: textbook times, folding, and who may use them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.system import config
from simcore.system.collectives import algorithms, traits_of
from simcore.system.config import Algorithm, SystemConfig
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind
from tests.runs import KINDS, Run, micro, runs

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
ALL_TO_ALL = CollectiveKind.ALL_TO_ALL
OURS = {name: traits_of(name).kinds for name in algorithms if traits_of(name).native}
ALL = [(name, kind) for name, kinds in OURS.items() for kind in kinds if kind in KINDS]
OF_POWERS = {"recursiveDoubling"}
RATE = 25e9


def alone(kind, name, topology, size_bytes):
    system = SystemConfig(implementations={kind: (Algorithm(name),)}, preferred_dataset_splits=1)
    return Run(micro(kind, size_bytes), topology, system).timeline().time_ns


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["FullyConnected", "Switch"]),
    st.sampled_from([2, 3, 4, 6, 8, 13, 16]),
    st.sampled_from([1, 1000, 65536]),
    st.sampled_from([0.0, 500.0]),
)
def test_algorithms_take_their_textbook_times_where_nobody_meets(kind, n, share, latency_ns):
    """Bruck et al. 1997 and Thakur et al. 2005; the sums of the reference's flat algorithms, S = n shares."""
    topology = Topology((Dimension(kind, n, RATE, latency_ns),))
    alpha_ns = int(latency_ns) * (2 if kind == "Switch" else 1)
    steps = (n - 1).bit_length()

    def sends(sizes):
        return sum(alpha_ns + transfer_ns(size, RATE) for size in sizes)

    doubled = [min(1 << step, n - (1 << step)) * share for step in range(steps)]
    assert alone(ALL_GATHER, "bruck", topology, share) == sends(doubled)
    moved = [share * sum(1 for distance in range(n) if distance >> step & 1) for step in range(steps)]
    assert alone(ALL_TO_ALL, "bruck", topology, n * share) == sends(moved)
    assert alone(ALL_TO_ALL, "pairwise", topology, n * share) == sends([share] * (n - 1))
    if n & (n - 1) == 0:
        assert moved == [n * share // 2] * steps
        assert alone(ALL_REDUCE, "recursiveDoubling", topology, n * share) == sends([n * share] * steps)


@settings(deadline=None, max_examples=60)
@given(runs(("Ring", "FullyConnected", "Switch", "Mesh"), [("native", "congested"), ("native", "fair")]), st.data())
def test_folding_changes_nothing_with_native_algorithms_either(run, data):
    name, kind = data.draw(st.sampled_from(ALL))
    shapes = {dim.kind for dim in run.topology.dims}
    powers = all(dim.npus & (dim.npus - 1) == 0 for dim in run.topology.dims)
    able = (powers or name not in OF_POWERS) and (name != "inNetwork" or shapes == {"Switch"})
    chosen = [Algorithm(name if able else "ring")]
    before = run.system or SystemConfig()
    system = replace(
        before,
        implementations={**before.implementations, kind: tuple(chosen) * len(run.topology.dims)},
        collective_optimization="baseline",
        inter_dimension_scheduling="ascending",
    )
    run = replace(run, system=system)
    assert run.report() == run.report(exact="messages")


@pytest.mark.parametrize("profile", ["astra-sim-1.0", "astra-sim-2"])
@pytest.mark.parametrize(("name", "kind"), ALL)
def test_the_peers_profiles_refuse_them_where_they_stand(tmp_path, profile, name, kind):
    file = tmp_path / "system.json"
    key = f"{kind.replace('_', '-')}-implementation"
    file.write_text(f'{{\n  "preferred-dataset-splits": 1,\n  "{key}": ["{name}"]\n}}\n')
    run = Run(micro(kind, 64), Topology((Dimension("Switch", 4, RATE, 1.0),)), config.read(file))
    run.timeline()
    with pytest.raises(InputError, match=f"{file}:3:.*profile {profile} has no algorithm '{name}'"):
        replace(run, profile=profile).timeline()


def test_a_collective_that_an_algorithm_cannot_do_is_refused_where_it_stands(tmp_path):
    file = tmp_path / "system.json"
    file.write_text('{\n  "all-reduce-implementation": ["bruck"]\n}\n')
    with pytest.raises(InputError, match=r"json:2:.*bruck cannot do all_reduce"):
        config.read(file)


def test_an_all_reduce_of_two_dimensions_says_how_recursive_doubling_can_do_it():
    dims = (Dimension("Ring", 4, RATE, 1.0), Dimension("Ring", 2, RATE, 1.0))
    doubling = SystemConfig(implementations={ALL_REDUCE: (Algorithm("recursiveDoubling"),) * 2})
    run = Run(micro(ALL_REDUCE, 64), Topology(dims), doubling)
    with pytest.raises(InputError, match="baseline"):
        run.timeline()
    replace(run, system=replace(doubling, collective_optimization="baseline")).timeline()
