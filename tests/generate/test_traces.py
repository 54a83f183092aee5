"""Execution traces of a generated step: read back, every transfer has two ends, every rank stands in its groups."""

import json
from collections import Counter

import numpy as np
import pytest

from simcore.cli import main
from simcore.generate.traces import groups_of
from simcore.model.plan import Plan
from simcore.workload.chakra.groups import read_groups
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import CollectiveKind, NodeKind

KINDS = list(CollectiveKind)
COMMAND = (
    *("generate", "megatron", "--model", "mixtral-8x7b", "--num-layers", "4", "--hidden-size", "1024"),
    *("--world_size", "16", "--tensor_model_parallel_size", "2", "--pipeline_model_parallel", "2"),
    *("--expert_model_parallel_size", "2", "--enable_sequence_parallel", "--use-distributed-optimizer"),
    *("--global_batch", "16", "--seq_length", "256", "--gpu_type", "A100"),
)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("traces") / "step"
    assert main([*COMMAND, "--format", "chakra", "-o", str(prefix)]) == 0
    known = read_groups(f"{prefix}.groups.json", 16)
    return read_graphs(str(prefix), 16, known)


def nodes(graphs, rank):
    graph = graphs.graphs[graphs.graph_of_rank[rank]]
    return [(NodeKind(graph.kind[row]), row, graph) for row in range(len(graph))]


def test_every_send_is_received_with_its_tag_and_size(graphs):
    sent, received = Counter(), Counter()
    for rank in range(16):
        for kind, row, graph in nodes(graphs, rank):
            what = (int(graph.tag[row]), int(graph.size_bytes[row]))
            if kind is NodeKind.SEND:
                sent[rank, int(graph.peer[row]), *what] += 1
            elif kind is NodeKind.RECV:
                received[int(graph.peer[row]), rank, *what] += 1
    assert sent == received
    assert set(sent.values()) == {1}


def test_the_ranks_of_a_group_call_the_same_collectives_in_the_same_order(graphs):
    calls = {}
    for rank in range(16):
        for kind, row, graph in nodes(graphs, rank):
            if kind is NodeKind.COLLECTIVE:
                name = graph.group_names[graph.group[row]]
                assert rank in graphs.groups[name]
                call = (KINDS[graph.collective[row]], int(graph.size_bytes[row]))
                calls.setdefault(name, {}).setdefault(rank, []).append(call)
    for name, by_rank in calls.items():
        assert sorted(by_rank) == sorted(graphs.groups[name])
        assert len({tuple(order) for order in by_rank.values()}) == 1


def test_durations_keep_their_nanoseconds(graphs):
    graph = graphs.graphs[graphs.graph_of_rank[0]]
    computed = graph.duration_ns[graph.kind == NodeKind.COMPUTE]
    assert np.all(computed > 0)
    assert np.any(computed % 1000)


def test_the_groups_of_a_kind_hold_every_rank_once():
    plan = Plan(64, 128, tp=2, cp=2, pp=2, ep=4, expert_tp=2)
    groups = groups_of(plan)
    for kind in ("tp_group", "cp_group", "dp_group", "ep_group", "ep_dp_group"):
        found = {groups.of(kind, rank) for rank in range(64)}
        assert sorted(rank for number in found for rank in groups.members[number]) == list(range(64))


def test_only_the_ranks_asked_for_are_written(tmp_path, capsys):
    assert main([*COMMAND, "--format", "chakra", "-o", str(tmp_path / "s"), "--ranks", "0,8-9"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.0.et", "s.8.et", "s.9.et", "s.groups.json"]
    assert json.loads((tmp_path / "s.groups.json").read_text())["1"] == [0, 1]
    assert main([*COMMAND, "--format", "chakra", "-o", str(tmp_path / "s"), "--ranks", "99"]) == 2
    assert "--ranks" in capsys.readouterr().err
