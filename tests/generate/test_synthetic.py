"""Synthetic traces resemble their source and give nothing of it away (reference: Chakra paper, arXiv 2305.14516)."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.generate import synthetic
from simcore.workload.chakra import reader, writer
from simcore.workload.model import CollectiveKind, NodeKind

COUNT = 600
GROUPS = {"tensor_a": [0, 1], "tensor_b": [2, 3]}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Four ranks: all-reduces of everybody with log-normal sizes, all-gathers in two groups of two."""
    folder, random = tmp_path_factory.mktemp("source"), np.random.default_rng(7)
    plan = [
        (kind, int(2 ** random.normal(20 if kind else 14, 1.5)), int(random.integers(1, 90)))
        for kind in random.choice([0, 2], COUNT, p=[0.4, 0.6]).tolist()
    ]
    for rank in range(4):
        group = next(name for name, ranks in GROUPS.items() if rank in ranks)
        head = writer.node(0, "init", NodeKind.METADATA)
        entries = ", ".join(f'{{"pg_name": "{name}", "ranks": {ranks}}}' for name, ranks in GROUPS.items())
        head.inputs.values = f"[{entries}]"
        nodes = [head]
        for kind, size, micros in plan:
            number = len(nodes)
            gap = writer.node(number, "secret", NodeKind.COMPUTE, data_deps=[number - 1], duration_micros=micros)
            attributes = {"comm_type": kind, "comm_size": size} | ({"pg_name": group} if kind else {})
            reduce = writer.node(number + 1, "secret", NodeKind.COLLECTIVE, data_deps=[number], attributes=attributes)
            nodes += [gap, reduce]
        (folder / f"s.{rank}.et").write_bytes(writer.encode(writer.metadata(), nodes))
    return str(folder / "s")


@pytest.fixture(scope="module")
def master(source):
    return synthetic.merge(reader.read_graphs(source, 4))


@pytest.fixture(scope="module")
def learnt(master):
    return synthetic.learn(master)


def test_merging_keeps_every_collective_once(master):
    counts = Counter((event.group, event.kind) for event in master.events)
    assert counts["", CollectiveKind.ALL_REDUCE] + counts["tensor_a", CollectiveKind.ALL_GATHER] == COUNT
    assert counts["tensor_a", CollectiveKind.ALL_GATHER] == counts["tensor_b", CollectiveKind.ALL_GATHER]


@given(st.integers(2, 5), st.integers(2, 12), st.integers(0, 9))
def test_groups_that_work_at_once_take_turns_and_go_on_to_do_so(groups, often, seed):
    """Every rank of what is made has as many collectives as in the source, but for one turn."""
    made = simcore.graph(2 * groups)
    for group in range(groups):
        for _ in range(often):
            made.collective("all_reduce", 1024, on=[2 * group, 2 * group + 1])
    merged = synthetic.merge(made.graphs())
    turns = [event.group for event in merged.events]
    assert all(len(set(turns[at : at + groups])) == groups for at in range(0, len(turns), groups))
    sampled = synthetic.sample(synthetic.learn(merged), seed=seed)
    assert {often} == set(Counter(event.group for event in sampled.events).values())


def test_sizes_and_gaps_have_the_sources_distribution(master, learnt):
    made = synthetic.sample(learnt, seed=3)
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        sizes = ([event.size_bytes for event in trace.events if event.kind == kind] for trace in (master, made))
        assert synthetic.kolmogorov_smirnov(*sizes)[1] > 0.01
    gaps = ([event.gap_ns for event in trace.events] for trace in (master, made))
    assert synthetic.kolmogorov_smirnov(*gaps)[0] < 0.15


def test_collectives_have_the_sources_frequencies(master, learnt):
    made = synthetic.sample(learnt, length=4000, seed=3)
    score, _ = synthetic.chi_square(*(Counter(event.kind.value for event in trace.events) for trace in (master, made)))
    assert score < 3 * 6.63  # 1 % level for one degree of freedom; a chain's draws are correlated


EVENTS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(list(CollectiveKind)), st.integers(0, 1 << 30)),
    min_size=1,
    max_size=30,
)


def drawn(rows, ranks=((0, 1), (2, 3))):
    events = tuple(synthetic.Event(group, kind, size, size % 7) for group, kind, size in rows)
    return synthetic.Master(4, events, dict(zip("ab", ranks, strict=True)))


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_the_chain_holds_every_collective_as_often_as_all_sources_have_it(sets):
    """A chain of a closed walk has the walk's frequencies as its stationary law."""
    masters = [drawn(rows) for rows in sets]
    follows = synthetic.learn(*masters).follows
    counts = Counter((event.group, event.kind.value) for master in masters for event in master.events)
    counts[synthetic.START] = len(masters)
    for state, count in counts.items():
        assert sum(counts[other] * follows[other].get(state, 0) for other in counts) == pytest.approx(count)


def test_sets_name_the_same_ranks_alike_and_learn_together(tmp_path):
    rows = [("a", CollectiveKind.ALL_REDUCE, 64), ("b", CollectiveKind.BROADCAST, 32)]
    one, other = synthetic.together([drawn(rows), drawn(rows, ((2, 3), (0, 2)))], ["one", "other"])
    assert one.groups == {"a": (0, 1), "b": (2, 3)}
    assert [event.group for event in other.events] == ["b", "b_2"]
    assert synthetic.learn(one, other).groups == {"a": (0, 1), "b": (2, 3), "b_2": (0, 2)}
    with pytest.raises(InputError, match="have as many ranks"):
        synthetic.together([one, synthetic.Master(2, (), {})], ["one", "two"])


@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=50), st.floats(1.0, 1.04))
def test_what_is_the_same_within_the_tolerance_is_alike(values, factor):
    assert synthetic.kolmogorov_smirnov(values, [value * factor for value in values], 1.05) == (0.0, 1.0)
    assert synthetic.chi_square(Counter(values), Counter(values)) == (0.0, 1.0)


def test_a_set_that_the_others_outweigh_scores_worse():
    often = drawn([("", CollectiveKind.ALL_REDUCE, 1 << 20)] * 900)
    rare = drawn([("", CollectiveKind.ALL_TO_ALL, 1 << 10), ("", CollectiveKind.ALL_REDUCE, 1 << 14)] * 30)
    made = synthetic.sample(synthetic.learn(often, rare), length=1000, seed=1)
    levels = [synthetic.likeness(each, made) for each in (often, rare)]
    assert levels[0]["sizes"]["all_reduce"]["distance"] < 0.1 < 0.9 < levels[1]["sizes"]["all_reduce"]["distance"]
    assert levels[1]["kinds"]["level"] < 1e-6


def test_nothing_of_the_source_survives(master, learnt):
    made = synthetic.sample(learnt, seed=1)
    assert not {event.size_bytes for event in made.events} & {event.size_bytes for event in master.events}
    for data in synthetic.project(made):
        assert b"secret" not in data and b"tensor" not in data


@pytest.mark.parametrize("npus", [4, 12])
def test_every_rank_of_a_group_runs_the_same_collectives_in_one_order(tmp_path, learnt, npus):
    made = synthetic.sample(learnt, length=50, seed=5)
    for rank, data in enumerate(synthetic.project(made, npus)):
        (tmp_path / f"m.{rank}.et").write_bytes(data)
    graphs = reader.read_graphs(str(tmp_path / "m"), npus)
    again = synthetic.merge(graphs)  # would refuse ranks that disagree
    blocks = npus // 4
    everybody = [event for event in again.events if not event.group]
    assert len(everybody) == sum(not event.group for event in made.events)
    assert len(again.events) - len(everybody) == blocks * sum(bool(event.group) for event in made.events)


def test_the_number_of_ranks_must_be_a_multiple(master):
    with pytest.raises(InputError, match="multiple of 4"):
        synthetic.project(master, 6)


def test_ranks_that_disagree_are_refused(tmp_path):
    for rank, size in enumerate((64, 128)):
        node = writer.node(0, "c", NodeKind.COLLECTIVE, attributes={"comm_type": 0, "comm_size": size})
        (tmp_path / f"s.{rank}.et").write_bytes(writer.encode(writer.metadata(), [node]))
    with pytest.raises(InputError, match="the other ranks of its group do not"):
        synthetic.merge(reader.read_graphs(str(tmp_path / "s"), 2))


def test_a_mixture_finds_its_components():
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(0, 1, 700), random.normal(10, 0.5, 300)])
    found = synthetic.fit(values)
    order = np.argsort(found.means)
    np.testing.assert_allclose(found.means[order], [0, 10], atol=0.2)
    np.testing.assert_allclose(found.weights[order], [0.7, 0.3], atol=0.02)
    np.testing.assert_allclose(found.deviations[order], [1, 0.5], atol=0.1)


def test_the_commands_write_what_can_be_read(tmp_path, source, capsys):
    out = str(tmp_path / "new")
    assert main(["generate", "synthetic", "--from", source, "--npus", "8", "--length", "9", "-o", out]) == 0
    assert "learnt from 1 set of 4 ranks, 2 groups, 3 states" in capsys.readouterr().out
    assert len(reader.read_graphs(out, 8).graphs) > 1
    one = str(tmp_path / "one.et")
    command = ["generate", "collective", "--kind", "all_reduce", "--bytes", "4 KiB", "--dims", "0,2", "-o", one]
    assert main(command) == 0
    graph = reader.distinct_ranks(one)[0][0].graph
    assert graph.kind.tolist() == [NodeKind.COLLECTIVE] and graph.size_bytes.tolist() == [4096]
    assert graph.dims.tolist() == [0b101]
    assert main(command) == 2  # it is there
    assert main([*command[:-1], str(tmp_path / "two.et"), "--bytes", "many"]) == 2
    assert main(["generate", "collective", "--samples", "-o", str(tmp_path / "samples")]) == 0
    assert len(list((tmp_path / "samples").iterdir())) == 28


def test_what_generators_write_can_be_learnt_from(tmp_path, capsys):
    """Its groups stand in a file beside the traces; messages between stages are no collectives, which is said."""
    made, like = str(tmp_path / "made"), str(tmp_path / "like")
    plan = ["--world_size", "4", "--tensor_model_parallel_size", "2", "--pipeline_model_parallel", "2"]
    assert main(["generate", "inference", "llama-3-8b", *plan, "--format", "chakra", "-o", made]) == 0
    assert main(["generate", "synthetic", "--from", made, "--length", "9", "-o", like]) == 0
    assert len(list(tmp_path.glob("like.*.et"))) == 4
    told = capsys.readouterr()
    assert " 4 groups" in told.out
    assert "messages from NPU to NPU are left out" in told.err
