"""Traces as PARAM's: nothing is lost, every rank agrees with its peers, and everything is waited for once.

The keys are those that PARAM's parser reads (facebookresearch/param, train/comms/pt/commsTraceParser.py).
"""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.workload.chakra.legacy import to_current
from simcore.workload.chakra.param_form import to_param
from simcore.workload.chakra.reader import decode, read_graphs
from simcore.workload.model import CollectiveKind, NodeKind

KINDS = [kind.value for kind in CollectiveKind if kind != CollectiveKind.BARRIER]
WIDTH = {"bfloat16": 2, "byte": 1}
TURNED = {"all_gather_base": "all_gather", "reduce_scatter_base": "reduce_scatter", "all_to_allv": "all_to_all"}
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 30), st.sampled_from([0, 1, 2]), st.integers(0, 1000)),
    max_size=8,
)


def graph(npus, steps):
    """Collectives of all or half of the NPUs, each waiting for the one before, and a message at the end."""
    made, half, last = simcore.graph(npus), npus // 2, {}
    for kind, size, part, duration_ns in steps:
        members = (range(npus), range(half), range(half, npus))[part]
        if len(members) > 1:
            compute = made.compute(duration_ns, on=members, depends=[last[part]] if part in last else [])
            last[part] = made.collective(kind, size, on=members, depends=[compute])
    made.send(0, 1, 4096)
    made.recv(0, 1, 4096)
    return made


def entries(made):
    return [json.loads(data) for data in to_param(made.graphs())]


@given(st.sampled_from([2, 4, 6, 8]), STEPS)
def test_every_collective_is_there_with_its_bytes_on_all_ranks_of_its_group(npus, steps):
    made = graph(npus, steps).graphs()
    for rank, trace in enumerate(map(json.loads, to_param(made))):
        groups = {entry["pg_id"]: entry["global_ranks"] for entry in trace if entry["comms"] == "init"}
        found = [entry for entry in trace if entry["comms"] not in {"init", "wait", "isend", "irecv"}]
        own = made.graphs[made.graph_of_rank[rank]]
        wanted = [own.size_bytes[row] for row in range(len(own)) if own.collective[row] >= 0]
        assert len(found) == len(wanted)
        for entry, size_bytes in zip(found, wanted, strict=True):
            scatters = entry["comms"] in {"reduce_scatter_base", "scatter"}
            sent = entry["in_msg_size"] * WIDTH[entry["dtype"]]
            assert rank in groups[entry["pg_id"]]
            assert entry["world_size"] == len(groups[entry["pg_id"]])
            assert size_bytes <= sent <= size_bytes + (2 * entry["world_size"] - 1) * scatters


@given(st.sampled_from([2, 4, 6, 8]), STEPS)
def test_ranks_agree_on_order_types_and_splits(npus, steps):
    traces = entries(graph(npus, steps))
    groups = {entry["pg_id"]: entry["global_ranks"] for entry in traces[0] if entry["comms"] == "init"}
    for number, ranks in groups.items():
        rows = [
            [e for e in traces[rank] if e["pg_id"] == number and e["comms"] not in {"init", "wait", "isend", "irecv"}]
            for rank in ranks
        ]
        assert len(set(map(len, rows))) == 1
        for together in zip(*rows, strict=True):
            assert len({(each["comms"], each["dtype"], each["req"], each.get("root")) for each in together}) == 1
            for place, each in enumerate(together if together[0]["comms"] == "all_to_allv" else ()):
                assert each["out_split"] == [other["in_split"][place] for other in together]
                assert (sum(each["in_split"]), sum(each["out_split"])) == (each["in_msg_size"], each["out_msg_size"])


@given(st.sampled_from([2, 4, 6, 8]), STEPS)
def test_everything_is_waited_for_once_and_after_it_began(npus, steps):
    for trace in entries(graph(npus, steps)):
        begun = set()
        waits = Counter()
        for entry in trace:
            key = entry["pg_id"], entry["req"]
            if entry["comms"] == "wait":
                assert key in begun
                waits[key] += 1
            elif entry["comms"] != "init":
                begun.add(key)
        assert waits == Counter(begun)


def test_what_depends_on_a_collective_comes_behind_its_wait():
    made = simcore.graph(npus=2)
    first = made.collective("all_reduce", 1 << 20)
    alone = made.collective("all_reduce", 2 << 20)
    behind = made.compute(700, depends=[first])
    made.collective("all_gather", 1 << 10, depends=[behind])
    shown = [(entry["comms"], entry["req"]) for entry in entries(made)[0]]
    assert shown == [
        ("init", -1), ("all_reduce", 0), ("all_reduce", 1), ("wait", 0), ("all_gather_base", 3), ("wait", 1),
        ("wait", 3),
    ]  # fmt: skip
    gathered = entries(made)[1][4]
    assert (gathered["startTime_ns"], gathered["in_msg_size"], gathered["out_msg_size"]) == (700, 512, 1024)
    assert alone.number == 1


def param(folder, *more):
    return main(["convert", str(folder / "w"), str(folder / "replay"), "--to", "param", *more])


def test_the_command_writes_a_file_a_rank_and_refuses_what_cannot_be_replayed(tmp_path, capsys):
    made = simcore.graph(npus=2)
    made.collective("all_reduce", 1 << 20)
    made.save(tmp_path / "w")
    assert param(tmp_path) == 0
    assert sorted(path.name for path in (tmp_path / "replay").iterdir()) == ["0.json", "1.json"]
    for words in (["--native"], ["--iterations", "2"], ["--kineto", "x"]):
        assert param(tmp_path, *words) == 2
        assert f"{words[0]}: error: has no effect here" in capsys.readouterr().err
    assert param(tmp_path) == 2  # the files are there


def test_ranks_that_do_not_agree_are_refused(tmp_path, capsys):
    for rank, kind in enumerate(["all_reduce", "all_gather"]):
        made = simcore.graph(npus=1)
        made.collective(kind, 1 << 20)
        made.save(tmp_path / "one")
        (tmp_path / "one.0.et").rename(tmp_path / f"w.{rank}.et")
    assert param(tmp_path) == 2
    assert "the other ranks of its group do not" in capsys.readouterr().err


def test_dimensions_of_a_machine_are_no_groups(tmp_path):
    (tmp_path / "w.txt").write_text("DATA\n1\nlayer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n")
    assert main(["convert", str(tmp_path / "w.txt"), str(tmp_path / "t"), "--npus", "2", "--num-dims", "2"]) == 0
    with pytest.raises(InputError, match="name dimensions"):
        to_param(read_graphs(str(tmp_path / "t"), 2))


def read(folder, traces):
    """Ranks' traces as files, and the graphs of them."""
    for rank, trace in enumerate(traces):
        (folder / f"{rank}.json").write_text(json.dumps(trace))
    return read_graphs(str(folder), len(traces))


def with_own_groups(trace):
    """A rank's trace that names only the groups that it sends in."""
    used = {entry["pg_id"] for entry in trace if entry["comms"] not in {"init", "wait", "isend", "irecv"}}
    return [entry for entry in trace if entry["comms"] != "init" or entry["pg_id"] in used]


@given(st.sampled_from([2, 4, 6]), STEPS, st.booleans())
@example(4, [("all_reduce", 1 << 20, 1, 0), ("all_reduce", 1 << 20, 2, 0)], True)
@settings(max_examples=30, deadline=None)
def test_what_is_read_communicates_as_what_was_written(tmp_path_factory, npus, steps, own_groups):
    written = entries(graph(npus, steps))
    written = [with_own_groups(trace) if own_groups else trace for trace in written]
    made = read(tmp_path_factory.mktemp("param"), written)
    for rank, trace in enumerate(written):
        groups = {entry["pg_id"]: tuple(entry["global_ranks"]) for entry in trace if entry["comms"] == "init"}
        own = made.graphs[made.graph_of_rank[rank]]
        members = {"": tuple(range(npus)), **made.groups}
        sent = [entry for entry in trace if entry["comms"] not in {"init", "wait"}]
        for row, entry in zip(np.flatnonzero(own.kind >= NodeKind.SEND), sent, strict=True):
            assert own.size_bytes[row] == entry["in_msg_size"] * WIDTH[entry["dtype"]]
            if own.kind[row] == NodeKind.COLLECTIVE:
                name = str(list(CollectiveKind)[own.collective[row]])
                assert name == TURNED.get(entry["comms"], entry["comms"])
                assert members[own.group_names[own.group[row]]] == groups[entry["pg_id"]]
                assert own.peer[row] == entry.get("root", -1)


def test_a_replayed_chain_takes_as_long_as_the_graph_it_was_written_from(tmp_path):
    """Nothing overlaps: 1 us, an all-reduce and an all-gather behind it, 2 us and a message behind both."""
    made = simcore.graph(npus=4)
    first = made.collective("all_reduce", 1 << 20, depends=[made.compute(1000)])
    second = made.collective("all_gather", 1 << 10, depends=[first])
    made.collective("broadcast", 1 << 12, root=2, depends=[second])
    topology = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [100]\nlatency: [1000]\n"
    (tmp_path / "ring.yaml").write_text(topology)
    graphs = read(tmp_path, entries(made))
    direct, replayed = (simcore.run(each, str(tmp_path / "ring.yaml")).time_ns for each in (made.graphs(), graphs))
    assert direct == replayed > 1000


BASIC = [
    {"comms": "init", "pg_id": 0, "global_ranks": [0, 1], "world_size": 2},
    {"compute": "gemm", "mm_dim": 512, "dtype": "float16", "count": 10},
    {"comms": "all_reduce", "in_msg_size": 100, "out_msg_size": 100, "dtype": "Float"},
    {"comms": "allreduce", "in_msg_size": 7, "out_msg_size": 7, "dtype": "int8", "req": 1, "startTime_ns": 500},
    {"comms": "barrier", "req": 2, "startTime_ns": 900},
    {"comms": "wait", "req": 1},
]


def test_entries_wait_for_requests_times_and_what_has_no_request(tmp_path):
    found = read(tmp_path, [BASIC, BASIC]).graphs[0]
    after = [
        [found.names[dep] for dep in found.deps[slice(*found.dep_offsets[row : row + 2])]] for row in range(len(found))
    ]
    assert list(zip(found.names, after, strict=True)) == [
        ("groups", []), ("gemm", []), ("allreduce", []), ("wait", ["allreduce"]), ("time", []),
        ("allreduce", ["wait", "time"]), ("time", ["time"]), ("barrier", ["wait", "time"]),
        ("wait", ["wait", "allreduce"]),
    ]  # fmt: skip
    assert found.size_bytes.tolist() == [0, 10 * 3 * 512**2 * 2, 400, 0, 0, 7, 0, 0, 0]
    assert found.num_ops[1] == 10 * 2 * 512**3
    assert found.duration_ns.tolist() == [0, 0, 0, 0, 500, 0, 400, 0, 0]


def test_a_group_that_nobody_defines_is_none_of_all_ranks(tmp_path):
    sent = {"comms": "all_reduce", "pg_id": 3, "in_msg_size": 1, "dtype": "int"}
    with pytest.raises(InputError, match="unknown group '3'"):
        read(tmp_path, [[*BASIC, sent]] * 2)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"comms": "all_reduce", "in_msg_size": 1}, "'dtype' is missing"),
        ({"comms": "all_reduce", "in_msg_size": 1, "dtype": "tile"}, "unknown type 'tile'"),
        ({"comms": "all_reduce", "in_msg_size": -1, "dtype": "int"}, r"\[6\].in_msg_size: the size is negative"),
        (
            {"comms": "all_reduce", "in_msg_size": "many", "dtype": "int"},
            r"\[6\].in_msg_size: not a whole number: 'many'",
        ),
        ({"comms": "gossip", "in_msg_size": 1, "dtype": "int"}, r"\[6\].comms: 'gossip' is not supported"),
        ({"compute": "emb_lookup"}, "'emblookup' is not supported"),
        ({"markers": []}, "'compute' is missing"),
        (5, r"\[6\]"),
    ],
)
def test_an_entry_that_cannot_be_replayed_is_named_with_its_place(tmp_path, entry, message):
    with pytest.raises(InputError, match=message) as refused:
        read(tmp_path, [[*BASIC, entry]])
    (problem,), whole = refused.value.problems, json.dumps([*BASIC, entry])
    assert problem.location.line == 1
    assert len(whole) - len(json.dumps(entry)) <= problem.location.column <= len(whole)


def test_batched_transfers_are_waited_for_together():
    ends = {"in_msg_size": 8, "out_msg_size": 8, "dtype": "float", "use_batch": True}
    batch = [
        {"comms": "isend", "src_rank": 0, "dst_rank": 1, **ends},
        {"comms": "irecv", "src_rank": 1, "dst_rank": 0, **ends},
        {"comms": "batch_isend_irecv", "req": 3},
        {"comms": "wait", "req": 3},
    ]
    found = decode(to_current(json.dumps(batch).encode(), "x"), "x").graph
    assert found.names[-1] == "wait" and found.deps.tolist() == [1, 2]
    assert found.kind.tolist()[1:3] == [NodeKind.SEND, NodeKind.RECV]
