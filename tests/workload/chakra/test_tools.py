"""Looking into traces and hiding what is in them."""

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.cli import cli, main
from simcore.errors import InputError
from simcore.generate import collectives
from simcore.markup import read_markup
from simcore.replay import recorded
from simcore.workload.chakra import json_form, reader, summary, variants, writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.model import CollectiveKind, NodeKind
from tests.shared import shared


def diamond():
    """Two chains of 5 and 7 us between a first and a last node, and a collective behind them."""

    def comp(number, deps, micros):
        return writer.node(number, f"secret{number}", NodeKind.COMPUTE, data_deps=deps, duration_micros=micros)

    size = {"comm_type": 0, "comm_size": 1000, "pg_name": "tensor", "is_cpu_op": False}
    reduce = writer.node(9, "secret9", NodeKind.COLLECTIVE, data_deps=[4], attributes=size)
    reduce.inputs.values = "secret tensor"
    writer.add_attribute(reduce, "op_schema", "secret schema", "string")
    group = writer.node(0, "g", NodeKind.METADATA)
    group.inputs.values = '[{"pg_name": "tensor", "ranks": [1, 0], "pg_desc": "secret"}]'
    nodes = [group, comp(1, [], 1), comp(2, [1], 5), comp(3, [1], 7), comp(4, [2, 3], 2), reduce]
    return writer.encode(writer.metadata(author="secret me"), nodes)


def test_the_critical_path_is_the_longest_chain():
    figures = summary.summarise(reader.decode(diamond(), "x").graph)
    assert figures["critical_path"]["duration_ns"] == 10_000
    assert figures["duration_ns"] == 15_000 and figures["parallelism"] == 1.5
    assert figures["communication"] == [{"collective": "all_reduce", "group": "tensor", "count": 1, "bytes": 1000}]
    assert figures["kinds"] == {"metadata": 1, "compute": 4, "collective": 1}
    assert "parallelism 1.5" in summary.render(figures)


def test_the_critical_path_does_not_depend_on_the_order_of_ids():
    nodes = [
        writer.node(number, "n", NodeKind.COMPUTE, data_deps=[number + 1] if number < 5 else [], duration_micros=1)
        for number in range(6)
    ]
    graph = reader.decode(writer.encode(writer.metadata(), nodes), "x").graph
    assert summary.critical_path(graph) == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("keep_sizes", [True, False])
def test_obfuscation_hides_names_and_keeps_the_graph(tmp_path, keep_sizes):
    hidden = variants.obfuscate(diamond(), b"salt", keep_sizes=keep_sizes)
    assert b"secret" not in hidden and b"tensor" not in hidden
    paths = [tmp_path / "a.et", tmp_path / "b.et"]
    for path, data in zip(paths, (diamond(), hidden), strict=True):
        path.write_bytes(data)
    old, new = (reader.read_graphs(str(path), 2) for path in paths)
    for column in ("node_id", "kind", "duration_ns", "collective", "deps", "dep_offsets", "on_cpu", "dims", "peer"):
        np.testing.assert_array_equal(getattr(old.graphs[0], column), getattr(new.graphs[0], column))
    assert new.graphs[0].size_bytes.max() == (1000 if keep_sizes else 1024)
    assert list(new.groups.values()) == [(1, 0)]
    assert new.graphs[0].group_names[1] in new.groups


def test_another_salt_gives_other_names():
    one, other = (variants.obfuscate(diamond(), salt, keep_sizes=True) for salt in (b"a", b"b"))
    assert one != other


@pytest.mark.parametrize("name", ["text/MLP_ModelParallel/MLP_ModelParallel", "generator/two_comp_nodes_dependent"])
def test_pictures_and_json_are_those_of_chakras_tools(name):
    path = shared("data", "traces", "chakra", f"{name}.0.et")
    assert summary.graphml(reader.read_columns(str(path))) == path.with_suffix(".graphml").read_text()
    assert json_form.to_jsonizer(path.read_bytes()) == path.with_suffix(".jsonizer.txt").read_text()


@given(st.text("a<&]>\t\n\r\x85\u2028\x7f\x1b\0\ufffe\U0001f600"))
def test_a_name_in_graphml_is_read_back_but_for_what_xml_cannot_have(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("named") / "x.et"
    path.write_bytes(writer.encode(writer.metadata(), [writer.node(0, name, NodeKind.COMPUTE)]))
    drawn = path.with_suffix(".graphml")
    drawn.write_bytes(summary.graphml(reader.read_columns(str(path))).encode())
    (read,) = (each.content for each in read_markup(drawn).walk() if each.name == "data")
    assert read == re.sub("[\x1b\0\ufffe]", "?", name)


def test_graphviz_shows_data_as_arrows_and_control_as_bars(tmp_path):
    nodes = [writer.node(0, 'a"b', NodeKind.COMPUTE), writer.node(1, "c", NodeKind.COMPUTE, ctrl_deps=[0])]
    path = tmp_path / "x.et"
    path.write_bytes(writer.encode(writer.metadata(), nodes))
    text = summary.dot(reader.read_columns(str(path)))
    assert '0 [label="a\\"b" id=0 shape=box]' in text and "0 -> 1 [arrowhead=tee]" in text


def test_a_log_becomes_a_chrome_trace_in_microseconds_with_chakras_lanes(tmp_path, capsys):
    path, made = tmp_path / "x.log", tmp_path / "x.json"
    path.write_text(
        "issue,npu_id=0,tick=100,node_id=3,node_name=COMM_a\ncallback,npu_id=0,tick=600,node_id=3,node_name=COMM_a\n"
    )
    assert main(["trace", "timeline", str(path), "-o", str(made)]) == 0
    events = json.loads(made.read_text())["traceEvents"]
    (shown,) = [event for event in events if event["ph"] == "X"]
    assert (shown["name"], shown["ts"], shown["dur"]) == ("COMM_a", 0.1, 0.5)
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert threads[shown["tid"]] == "communication"
    path.write_text("callback,npu_id=0,tick=600,node_id=3,node_name=COMM_a\n")
    assert main(["trace", "timeline", str(path), "-o", str(made), "--force"]) == 2
    assert "x.log:1:1: error: completed but never issued" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(collectives.SAMPLES))
def test_the_small_traces_are_those_of_chakras_generator(name):
    path = shared("data", "traces", "chakra", "generator", f"{name}.0.et")
    assert collectives.samples(2)[name][0] == path.read_bytes()


@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_a_micro_benchmark_is_a_chain_of_one_collective(kind):
    data = collectives.collective(kind, 4096, repeat=3, compute_ns=1500, involved=[True, False])
    graph = reader.decode(data, "x").graph
    assert graph.deps.tolist() == [0, 1, 2, 3, 4] and graph.duration_ns.tolist() == [1500, 0] * 3
    assert [list(CollectiveKind)[index] for index in graph.collective[1::2]] == [kind] * 3
    assert graph.size_bytes[1::2].tolist() == [4096] * 3 and graph.dims[1] == 1


@pytest.mark.parametrize("source", ["s", ""], ids=["prefix", "folder"])
def test_what_is_made_of_a_set_has_the_groups_that_lie_beside_it(tmp_path, source):
    (tmp_path / "set").mkdir()
    for rank in range(4):
        asked = {"comm_type": 0, "comm_size": 64, "pg_name": str(1 + rank // 2)}
        node = writer.node(0, "t", NodeKind.COLLECTIVE, attributes=asked)
        (tmp_path / "set" / f"s.{rank}.et").write_bytes(writer.encode(writer.metadata(), [node]))
    (tmp_path / "set" / "s.groups.json").write_text('{"1": [1, 0], "2": [2, 3]}')
    (tmp_path / "set" / "other.groups.json").write_text('{"1": [0]}')  # of no set that is there
    given, (made, text, hidden) = str(tmp_path / "set" / source), (str(tmp_path / name) for name in ("m", "j", "h"))
    for command in (["convert", given, made], ["convert", made, f"{text}.json"], ["trace", "obfuscate", given, hidden]):
        assert main(command) == 0
    for place in (given, made, text, hidden):
        assert simcore.load_workload(place).groups == {"1": (1, 0), "2": (2, 3)}
    written = [*(f"j.{rank}.json" for rank in range(4)), "j.groups.json"]
    assert sorted(path.name for path in tmp_path.glob("j.*")) == written


def test_a_group_of_more_ranks_than_were_traced_is_refused_with_its_rank():
    data = writer.encode(writer.metadata(), [writer.groups(0, {"tp": [0, 1, 2]})])
    with pytest.raises(InputError, match="the trace of rank 0: error: group tp of a METADATA node is wrong"):
        variants.rescale([data, data], 4, {})


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_node_in_a_log_ends_no_sooner_than_it_begins(tmp_path_factory, start, end):
    path = tmp_path_factory.mktemp("log") / "x.log"
    path.write_text("".join(f"{event},npu_id=0,tick={tick},node_id=0,node_name=COMP\n" for event, tick in (
        ("issue", start), ("callback", end)
    )))  # fmt: skip
    if end < start:
        with pytest.raises(InputError, match=r"x.log:2:1: error: completed before it was issued"):
            recorded.spans(str(path))
    else:
        assert [(span.start, span.end) for span in recorded.spans(str(path))] == [(start, end)]


def test_a_set_that_lacks_a_rank_cannot_be_rescaled(tmp_path, capsys):
    for rank in (0, 2):
        (tmp_path / f"s.{rank}.et").write_bytes(diamond())
    assert main(["trace", "rescale", str(tmp_path / "s"), str(tmp_path / "big"), "--npus", "4"]) == 2
    assert "the traces of 1 of 3 ranks are missing" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["", "0", "dp", "all", "tp"])
@pytest.mark.parametrize(("said", "root"), [("root", 1), ("comm_src", 1), ("comm_src", -1), ("root", -1)])
def test_a_group_over_all_blocks_has_one_root_however_it_is_named(said, root, group):
    attributes = {"comm_type": int(CommType.BROADCAST), "comm_size": 8, "pg_name": group, said: root}
    defined = writer.groups(0, {"dp": [0, 1], "all": [], "tp": [0, 1]})
    node = writer.node(1, "b", NodeKind.COLLECTIVE, attributes=attributes)
    made = variants.rescale([writer.encode(writer.metadata(), [defined, node])] * 2, 6, {}, ["dp"])
    traced = [reader.decode(data, "x").graph for data in made]
    peers = [graph.peer[graph.kind == NodeKind.COLLECTIVE].item() for graph in traced]
    block = [rank // 2 * 2 if group == "tp" and root >= 0 else 0 for rank in range(6)]
    assert peers == [root + first for first in block]


def test_a_rescaled_trace_repeats_groups_and_messages_in_every_block(tmp_path):
    tensor = {"comm_type": 0, "comm_size": 64, "pg_name": "tensor"}
    data_parallel = {"comm_type": 0, "comm_size": 32, "pg_name": "dp"}
    for rank in range(2):
        head = writer.node(5, "init", NodeKind.METADATA)
        head.inputs.values = f'[{{"pg_name": "tensor", "ranks": [0, 1]}}, {{"pg_name": "dp", "ranks": [{rank}]}}]'
        ends = {"comm_src": rank, "comm_dst": 1 - rank} if rank == 0 else {"comm_src": 0, "comm_dst": 1}
        transfer = {"comm_size": 8, "comm_tag": 1, **ends}
        kind = NodeKind.SEND if rank == 0 else NodeKind.RECV
        nodes = [
            head,
            writer.node(6, "t", NodeKind.COLLECTIVE, attributes=tensor),
            writer.node(7, "p", kind, data_deps=[6], attributes=transfer),
        ]
        if rank == 0:
            nodes.append(writer.node(8, "d", NodeKind.COLLECTIVE, data_deps=[7], attributes=data_parallel))
        (tmp_path / f"s.{rank}.et").write_bytes(writer.encode(writer.metadata(), nodes))
    big = str(tmp_path / "big")
    assert main(["trace", "rescale", str(tmp_path / "s"), big, "--npus", "6"]) == 0
    graphs = reader.read_graphs(big, 6)
    assert [graphs.groups[f"tensor.{block}"] for block in range(3)] == [(0, 1), (2, 3), (4, 5)]
    assert [graphs.groups[f"dp.{block}"] for block in range(3)] == [(0,), (2,), (4,)]
    peers = [graphs.graphs[index].peer.max() for index in graphs.graph_of_rank]
    assert peers == [1, 0, 3, 2, 5, 4]
    assert main(["trace", "rescale", str(tmp_path / "s"), big, "--npus", "7", "--force"]) == 2
    assert main(["trace", "rescale", str(tmp_path / "s"), big, "--npus", "6", "--grow", "none", "--force"]) == 2
    assert main(["trace", "rescale", str(tmp_path / "s"), big, "--npus", "6", "--grow", "dp", "--force"]) == 0
    groups = reader.read_graphs(big, 6).groups
    assert (groups["dp"], groups["dp@1"], groups["tensor.1"]) == ((0, 2, 4), (1, 3, 5), (2, 3))


def test_the_root_of_a_group_of_a_block_moves_with_it_and_that_of_all_ranks_stays(tmp_path):
    for rank in range(2):
        head = writer.node(1, "g", NodeKind.METADATA)
        head.inputs.values = '[{"pg_name": "tensor", "ranks": [0, 1]}]'
        own = {"comm_type": 5, "comm_size": 64, "root": 1, "pg_name": "tensor"}
        everybody = {"comm_type": 5, "comm_size": 64, "root": 1}
        nodes = [writer.node(2 + at, "b", NodeKind.COLLECTIVE, attributes=a) for at, a in enumerate((own, everybody))]
        (tmp_path / f"s.{rank}.et").write_bytes(writer.encode(writer.metadata(), [head, *nodes]))
    big = str(tmp_path / "big")
    assert main(["trace", "rescale", str(tmp_path / "s"), big, "--npus", "4"]) == 0
    graphs = reader.read_graphs(big, 4)
    roots = [graphs.graphs[index].peer[graphs.graphs[index].collective >= 0].tolist() for index in graphs.graph_of_rank]
    assert roots == [[1, 1], [1, 1], [3, 1], [3, 1]]


def test_the_commands_work_together(tmp_path):
    path = tmp_path / "d.et"
    path.write_bytes(diamond())
    run = CliRunner().invoke(cli, ["trace", "info", str(path), "--json"])
    assert json.loads(run.output)["traces"][0]["nodes"] == 6
    assert main(["trace", "obfuscate", str(path), str(tmp_path / "h")]) == 0
    assert main(["trace", "graph", str(tmp_path / "h.et"), "-o", str(tmp_path / "h.dot")]) == 0
    assert main(["convert", str(tmp_path / "h.et"), str(tmp_path / "h.json")]) == 0
    assert main(["convert", str(tmp_path / "h.json"), str(tmp_path / "again.et")]) == 0
    assert (tmp_path / "again.et").read_bytes() == (tmp_path / "h.et").read_bytes()


def test_files_are_not_overwritten_without_force(tmp_path, capsys):
    path = tmp_path / "d.et"
    path.write_bytes(diamond())
    other = tmp_path / "other.et"
    assert main(["convert", str(path), str(other)]) == 0
    assert main(["convert", str(path), str(other)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["convert", str(path), str(other), "--force"]) == 0
    assert main(["convert", str(path), str(path), "--force"]) == 2
    assert "is an input" in capsys.readouterr().err


def test_sizes_are_rounded_to_the_nearest_power_of_two():
    for value in range(1, 2000):
        rounded = variants._rounded(value)
        assert abs(math.log2(rounded / value)) <= 0.5
