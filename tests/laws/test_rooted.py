"""Laws of broadcast, reduce, gather and scatter: the data are where they belong, and the times are the textbooks'."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.generate.collectives import collective
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system.chunks.cut import Cutting, PhaseMaker
from simcore.system.collectives import ROOTED, PlanOptions, algorithms
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.groups import logical_dims
from simcore.system.plans.flow import Claim, faults
from simcore.system.streams import IDLE, Lane, Request
from simcore.units import transfer_ns
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import CollectiveKind

BROADCAST, REDUCE, GATHER, SCATTER = ROOTED
NAMES = ("binomial", "chain", "chain3", "flat")
RATE = 25e9


def algorithm(name):
    return Algorithm("chain", 3) if name == "chain3" else Algorithm(name)


def plan_of(name, kind, size, data_bytes, root=0):
    chosen = algorithm(name)
    return algorithms.get(chosen.name)(kind, size, data_bytes, PlanOptions(chosen.window, root=root))


def play(tmp_path, topology, kind, size_bytes, root, name, **options):
    """The timeline of one collective on all NPUs."""
    file = tmp_path / "one.et"
    file.write_bytes(collective(kind, size_bytes, root=root))
    system = SystemConfig(
        implementations={kind: tuple(algorithm(name) for _ in topology.dims)}, preferred_dataset_splits=1
    )
    graphs = read_graphs(file, topology.npus)
    return simulate(graphs, topology, system, profiles.get("native"), Settings(**options))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ROOTED)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 13])
def test_every_rank_gets_what_it_shall_whoever_is_the_root(name, kind, size):
    for root in range(size):
        plan = plan_of(name, kind, size, 60 * size, root)
        chunks = 1 + max(chunk for entry in plan.transfers for chunk in entry.chunks)
        pieces = chunks if kind in {BROADCAST, REDUCE} else size
        assert not list(faults(plan, Claim(kind, size, pieces, root)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ROOTED)
def test_a_plan_without_one_of_its_transfers_is_found_out(name, kind):
    plan = plan_of(name, kind, 5, 300, 2)
    chunks = 1 + max(chunk for entry in plan.transfers for chunk in entry.chunks)
    claim = Claim(kind, 5, chunks if kind in {BROADCAST, REDUCE} else 5, 2)
    for left_out in range(len(plan.transfers)):
        rest = plan.transfers[:left_out] + plan.transfers[left_out + 1 :]
        assert list(faults(replace(plan, transfers=rest), claim))


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3),
    st.sampled_from(ROOTED),
    st.sampled_from(["ascending", "roundRobin", "themis"]),
    st.data(),
)
def test_over_several_dimensions_data_start_from_the_root_and_reach_everybody(sizes, kind, order, data):
    """For reductions and gathers the same holds backwards."""
    dims = logical_dims(sizes)
    npus = int(np.prod(sizes))
    root = data.draw(st.integers(0, npus - 1))
    lanes = tuple(Lane(at, dim, Algorithm("flat")) for at, dim in enumerate(dims))

    def phases_of(npu):
        bandwidths = [1.0] * len(sizes)
        rules = Cutting(order, sizes, bandwidths, lambda kind, size, _: iter([size]), lambda *_: ((0, False),))
        maker = PhaseMaker(npu, rules)
        return next(iter(maker.split(Request(kind, npus * 8, lanes, 0, root=root), 0, ())))

    programs = [phases_of(npu) for npu in range(npus)]
    rounds = list(range(len(sizes)))
    if kind in {REDUCE, GATHER}:
        rounds.reverse()
    reached = {root}
    for at in rounds:
        before = set(reached)
        for npu, phases in enumerate(programs):
            members = phases[at].lane.dim.members(npu)
            assert len({programs[member][at].root for member in members.tolist()}) == 1, "a group agrees"
            if phases[at].root != IDLE:
                assert members[phases[at].root] in before
                reached.add(npu)
    assert reached == set(range(npus))


@pytest.mark.parametrize("kind", ROOTED)
@pytest.mark.parametrize("name", ["binomial", "chain3", "flat"])
@pytest.mark.parametrize(("shape", "n"), [("Switch", 8), ("Ring", 5), ("FullyConnected", 4)])
def test_links_carry_what_the_plan_sends_and_the_root_nothing_beats_its_port(tmp_path, kind, name, shape, n):
    topology = Topology((Dimension(shape, n, RATE, 500.0),))
    root = n - 2
    timeline = play(tmp_path, topology, kind, 8000 * n, root, name)
    plan = plan_of(name, kind, n, 8000 * n, root)
    hops = {
        "Switch": lambda a, b: 2,
        "FullyConnected": lambda a, b: 1,
        "Ring": lambda a, b: min((a - b) % n, (b - a) % n),
    }
    carried = sum(entry.size_bytes * hops[shape](entry.src, entry.dst) for entry in plan.transfers)
    assert int(timeline.links.size_bytes.sum()) == carried
    ports = 1 if shape == "Switch" else 2 if shape == "Ring" else n - 1
    through_root = {BROADCAST: 8000 * n, REDUCE: 8000 * n, SCATTER: 8000 * (n - 1), GATHER: 8000 * n * (n - 1)}[kind]
    assert timeline.time_ns >= through_root / ports / RATE * 1e9


@pytest.mark.parametrize("n", [4, 8, 16])
def test_behind_a_switch_a_binomial_tree_takes_log_n_steps(tmp_path, n):
    """Reference: broadcast log2(n) (a + S B); scatter log2(n) a + (n-1)/n S B."""
    topology, size = Topology((Dimension("Switch", n, RATE, 500.0),)), 1000 * n
    steps = n.bit_length() - 1
    assert play(tmp_path, topology, BROADCAST, size, 1, "binomial").time_ns == steps * (1000 + transfer_ns(size, RATE))
    halves = sum(transfer_ns(size >> step, RATE) for step in range(1, steps + 1))
    assert play(tmp_path, topology, SCATTER, size, 1, "binomial").time_ns == steps * 1000 + halves


@pytest.mark.parametrize("n", [2, 5, 8])
def test_a_pipelined_chain_takes_its_textbook_time(tmp_path, n):
    """Reference: (h + c - 1) (a + S/c B) , where the next piece goes while the one before is on its way."""
    topology = Topology((Dimension("Mesh", n, RATE, 500.0),))
    timeline = play(tmp_path, topology, BROADCAST, 30000, 0, "chain3")
    piece = transfer_ns(10000, RATE)
    assert timeline.time_ns == (n - 1) * (500 + piece) + 2 * piece


@pytest.mark.parametrize("kind", ROOTED)
def test_where_nobody_meets_shared_links_and_free_ones_give_one_answer(tmp_path, kind):
    topology = Topology((Dimension("Ring", 4, RATE, 500.0), Dimension("FullyConnected", 3, RATE / 2, 700.0)))
    for name in ("chain", "chain3"):
        times = {
            play(tmp_path, topology, kind, 9999, 0, name, network=mode, fold=fold).finish_ns
            for mode in ("congested", "congestion-free")
            for fold in (True, False)
        }
        assert len(times) == 1


def test_a_root_outside_the_group_is_refused_with_its_node(tmp_path):
    topology = Topology((Dimension("Ring", 4, RATE, 500.0),))
    with pytest.raises(InputError, match="root of node 'broadcast_0' is not in its group"):
        play(tmp_path, topology, BROADCAST, 100, 4, "flat")


@pytest.mark.parametrize("kind", [SCATTER, GATHER])
def test_on_many_ranks_shares_of_neighbours_go_together(kind, monkeypatch):
    monkeypatch.setattr("simcore.system.collectives.trees.MOST_TRANSFERS", 50)
    plan = plan_of("chain3", kind, 13, 26, 4)
    assert not list(faults(plan, Claim(kind, 13, 13, 4)))
    assert len(plan.transfers) < 13 * 12 / 2
    with pytest.raises(ValueError, match="3 pieces on 17 ranks are more than 50"):
        plan_of("chain3", kind, 17, 26)


def test_other_collectives_are_refused_along_trees():
    with pytest.raises(ValueError, match="flat cannot do all_reduce"):
        plan_of("flat", CollectiveKind.ALL_REDUCE, 4, 64)
