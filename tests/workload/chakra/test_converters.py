"""Converters against what Chakra's own tools make (mlcommons/chakra main of 2026-05-20, shared data/traces/chakra)."""

import gzip
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.workload.chakra import json_form, legacy, reader, writer
from simcore.workload.chakra.convert import flexflow, pytorch
from simcore.workload.chakra.convert import text as text_converter
from simcore.workload.chakra.convert.conversion import Options, convert
from simcore.workload.chakra.schema import messages
from simcore.workload.model import CollectiveKind, Layer, NodeKind, Phase, Workload
from simcore.workload.order import matches
from tests.shared import shared

TEXTS = [
    "AllReduce_1MB",
    "AllToAll_64KB",
    "DLRM_HybridParallel",
    "MLP_HybridParallel_Data_Model",
    "MLP_HybridParallel_Model_Data",
    "MLP_ModelParallel",
]
COUNTS = {"MLP_ModelParallel": (29, 33), "MLP_HybridParallel_Data_Model": (35, 39), "DLRM_HybridParallel": (32, 33)}


def traces():
    return shared("data", "traces", "chakra")


def of(data):
    return json.loads(json_form.to_json(data))


@pytest.mark.parametrize("name", TEXTS)
def test_text_becomes_chakras_own_files_byte_for_byte(name):
    folder = traces() / "text" / name
    for path, data in convert(str(folder / f"{name}.txt"), name, Options(npus=4, compat=True)).items():
        assert data == (folder / path.name).read_bytes()


@pytest.mark.parametrize("name", TEXTS)
def test_without_compat_the_graph_is_the_same_and_equal_on_all_ranks(name):
    source = traces() / "text" / name / f"{name}.txt"
    files = list(convert(str(source), "x", Options(npus=3)).values())
    assert len(set(files)) == 1
    ours = reader.decode(files[0], "x").graph
    theirs = reader.distinct_ranks(source.with_name(f"{name}.0.et"))[0][0].graph
    for column in ("node_id", "kind", "chakra_ns", "size_bytes", "collective", "deps", "dep_offsets"):
        np.testing.assert_array_equal(getattr(ours, column), getattr(theirs, column))
    assert ours.names == theirs.names
    assert (len(ours), len(ours.deps)) == COUNTS.get(name, (len(ours), len(ours.deps)))


LAYERS = st.lists(
    st.builds(
        Layer,
        st.sampled_from(["a", "b"]),
        *[st.builds(Phase, st.integers(0, 9), st.sampled_from([None, *list(CollectiveKind)[:4]]), st.integers(0, 99))]
        * 3,
    ),
    min_size=1,
    max_size=6,
)


@given(LAYERS, st.sampled_from(sorted(text_converter.LOOPS)), st.integers(1, 3), st.integers(-1, 6))
@settings(max_examples=60, deadline=None)
def test_every_loop_gives_a_graph_without_cycles_whose_passes_are_alike(layers, loop, passes, bottom):
    workload = Workload(loop, tuple(layers), last_bottom_layer=bottom)
    steps = text_converter.steps(workload, passes)
    assert len(steps) == passes * len(text_converter.steps(workload, 1))
    assert all(dep < index for index, step in enumerate(steps) for dep in step.deps)
    graph = reader.decode(text_converter.encode(steps), "x").graph
    assert graph.chakra_ns.tolist() == [1000 * step.duration_micros for step in steps]


def test_data_parallel_waits_for_its_gradients_in_the_next_pass():
    phase = Phase(5, CollectiveKind.ALL_REDUCE, 64)
    layers = tuple(Layer(name, Phase(1), Phase(2), phase) for name in "ab")
    steps = text_converter.steps(Workload("DATA", layers), 2)
    names = [(step.name, [steps[dep].name for dep in step.deps]) for step in steps]
    assert names[:7] == [
        ("COMP_NODE_a_FWD", []),
        ("COMP_NODE_b_FWD", ["COMP_NODE_a_FWD"]),
        ("COMP_NODE_b_BWD_WG", ["COMP_NODE_b_FWD"]),
        ("COMM_COLL_NODE_b_ALLREDUCE", ["COMP_NODE_b_BWD_WG"]),
        ("COMP_NODE_b_BWD_IG", ["COMP_NODE_b_BWD_WG"]),
        ("COMP_NODE_a_BWD_WG", ["COMP_NODE_b_BWD_IG"]),
        ("COMM_COLL_NODE_a_ALLREDUCE", ["COMP_NODE_a_BWD_WG"]),
    ]
    assert names[7] == ("COMP_NODE_a_FWD", ["COMM_COLL_NODE_a_ALLREDUCE"])


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("DATA", ["COMP_NODE_a_FWD", "COMM_COLL_NODE_b_REDUCESCATTER"]),
        ("MODEL", ["COMM_COLL_NODE_a_ALLGATHER", "COMP_NODE_b_BWD_WG"]),
        ("HYBRID_DATA_MODEL", ["COMM_COLL_NODE_b_REDUCESCATTER", "COMM_COLL_NODE_a_ALLGATHER"]),
        ("HYBRID_MODEL_DATA", ["COMM_COLL_NODE_b_REDUCESCATTER", "COMM_COLL_NODE_a_ALLGATHER"]),
        ("HYBRID_DLRM", ["COMM_COLL_NODE_b_REDUCESCATTER", "COMP_NODE_a_FWD"]),
    ],
)
def test_what_a_forward_pass_waits_for_stands_in_the_order_of_the_original(loop, waits):
    """`add_parent` of src/converter/text_converter.py of mlcommons/chakra, second pass and layer."""
    kinds = (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
    layers = tuple(Layer(name, *(Phase(5, kind, 64) for kind in kinds)) for name in "ab")
    steps = text_converter.steps(Workload(loop, layers, last_bottom_layer=0), 2)
    *_, last = (step for step in steps if step.name == "COMP_NODE_b_FWD")
    assert [steps[dep].name for dep in last.deps] == waits


SIMAI = "HYBRID_DATA_MODEL model_parallel_NPU_group: 2 ep: 2\n1\na -1 1 {} 64 1 NONE 0 1 ALLREDUCE 64 {}\n"


@pytest.mark.parametrize(("word", "said"), [("ALLTOALL_EP", "groups of ranks"), ("ALLGATHER", "a gathered total")])
def test_what_chakras_graph_cannot_say_is_refused_and_compat_takes_unknown_words_for_all_reduces(tmp_path, word, said):
    path = tmp_path / "w.txt"
    path.write_text(SIMAI.format(word, 0))
    with pytest.raises(InputError, match=rf"w\.txt:3:1: error: Chakra's graph cannot say {said}"):
        convert(str(path), "w", Options(npus=4))
    assert convert(str(path), "w", Options(npus=4, sizes=(4,)))
    (data,) = convert(str(path), "w", Options(compat=True)).values()
    (first,) = (node for node in of(data)["nodes"] if node["name"] == f"COMM_COLL_NODE_a_{word}")
    kind = next(attribute["int64_val"] for attribute in first["attr"] if attribute["name"] == "comm_type")
    assert kind == ("2" if word == "ALLGATHER" else "0")


@pytest.mark.parametrize("update_ns", [0, 5])
def test_update_delays_are_not_lost_without_a_word(tmp_path, update_ns):
    path, told = tmp_path / "w.txt", []
    path.write_text(SIMAI.format("NONE", update_ns))
    convert(str(path), "w", Options(tell=told.append))
    assert len(told) == bool(update_ns)


def test_a_loop_chakra_does_not_know_is_refused_by_name():
    with pytest.raises(InputError, match="HYBRID_TRANSFORMER"):
        text_converter.steps(Workload("HYBRID_TRANSFORMER", (Layer("a"),)), 1)


@pytest.mark.parametrize("name", ["mnist_mlp.4", "multi_head_attention.4"])
def test_flexflow_graphs_become_what_the_first_converter_made(name):
    folder = traces() / "flexflow" / name
    made = flexflow.convert(str(folder / f"{name}.graph"), ns_per_unit=1_000_000_000)
    for rank, data in enumerate(made):
        old = folder / f"{name}.{rank}.eg"
        assert nodes_of(data) == nodes_of(legacy.to_current(old.read_bytes(), "x"))


TASKS = [f'node{n} [label="{{device_id=0|t{n}|Forward|COMP_NODE|simulated_run_time={n}}}",shape=r];' for n in range(4)]
STATEMENTS = [*TASKS, "node0 -> node1;", "node1 -> node2", "node0->node3 [color=red];"]


@given(st.lists(st.sampled_from([" ", "\n", " \n\n "]), min_size=7, max_size=7), st.permutations(STATEMENTS))
@settings(max_examples=40, deadline=None)
def test_a_task_graph_says_the_same_however_its_statements_are_laid_out(tmp_path_factory, gaps, statements):
    path = tmp_path_factory.mktemp("graph") / "g.graph"
    path.write_text("digraph taskgraph {" + "".join(map("".join, zip(gaps, statements, strict=True))) + "}")
    (data,) = flexflow.convert(str(path))
    path.write_text("\n".join(["digraph taskgraph {", *STATEMENTS, "}"]))
    assert nodes_of(data) == nodes_of(*flexflow.convert(str(path)))


@pytest.mark.parametrize(
    ("more", "place"),
    [(TASKS[0], "9:1: error: node0 is here twice"), ("node1 -> node2 -> node3", "9:16: error: neither")],
)
def test_what_a_task_graph_says_twice_or_in_another_way_is_not_passed_over(tmp_path, more, place):
    path = tmp_path / "g.graph"
    path.write_text("\n".join(["digraph taskgraph {", *STATEMENTS, more, "}"]))
    with pytest.raises(InputError, match=f"g.graph:{place}"):
        flexflow.convert(str(path))


def nodes_of(data):
    """Nodes by id, attributes in any order."""
    found = {node.pop("id", "0"): node for node in of(data)["nodes"]}
    for node in found.values():
        node["attr"] = sorted(json.dumps(attribute, sort_keys=True) for attribute in node.get("attr", []))
    return found


@pytest.mark.parametrize(
    "line",
    ['node1 [label="{device_id=0|a|F|COMP_NODE|x=1}"];', "node0 -> node9;", "what?", 'node1 [label="{a|b|c|NO}"];'],
)
def test_a_broken_flexflow_graph_is_refused(tmp_path, line):
    path = tmp_path / "g.graph"
    first = 'node0 [label="{device_id=0|a|Forward|COMP_NODE|simulated_run_time=1}"];'
    path.write_text(f"digraph taskgraph {{ {first}\n{line}\n}}\n")
    with pytest.raises(InputError, match=r"g\.graph"):
        flexflow.convert(str(path))


def test_flexflow_milliseconds_keep_their_nanoseconds(tmp_path):
    path = tmp_path / "g.graph"
    path.write_text(
        'digraph taskgraph {\nnode0 [label="{device_id=0|a|Forward|COMP_NODE|simulated_run_time=0.0205856}"];\n}'
    )
    assert reader.decode(flexflow.convert(str(path))[0], "x").graph.duration_ns.tolist() == [20586]


def test_old_text_graphs_read_like_todays():
    old = reader.distinct_ranks(traces() / "text_old" / "MLP_ModelParallel.0.eg")[0][0].graph
    new = reader.distinct_ranks(traces() / "text" / "MLP_ModelParallel" / "MLP_ModelParallel.0.et")[0][0].graph
    for column in ("kind", "collective", "size_bytes", "deps", "dep_offsets"):
        np.testing.assert_array_equal(getattr(old, column), getattr(new, column))
    np.testing.assert_array_equal(old.duration_ns * 1000, new.duration_ns)  # cycles of 1 ns then, microseconds now


OLD_ATTRIBUTES = {
    "0.0.2": [("comm_type", "i", 2), ("comm_size", "i", 64)],
    "0.0.3": [("is_cpu_op", "b", False), ("comm_type", "i", 2), ("comm_size", "u", 64)],
}


@pytest.mark.parametrize("version", sorted(OLD_ATTRIBUTES))
@pytest.mark.parametrize("with_metadata", [False, True])
def test_attribute_schemas_are_detected_and_converted(version, with_metadata):
    classes = messages(version)
    shift = 1 if version == "0.0.3" else 0
    comm = classes["Node"](id=1, name="c", type=6 + shift, parent=[0], inputs="[]")
    for name, field, value in OLD_ATTRIBUTES[version]:
        setattr(comm.attribute.add(name=name, type=1), field, value)
    comp = classes["Node"](id=0, name="n", type=3 + shift)
    comp.attribute.add(name="runtime", type=1).i = 5
    made = [comp, comm]
    if with_metadata:
        head = classes["GlobalMetadata"]()
        head.attribute.add(name="who", type=4).s = "me"
        made.insert(0, head)
    data = b"".join(writer.frame(message.SerializeToString()) for message in made)
    assert legacy.detect(data) == version
    graph = reader.decode(legacy.to_current(data, "x"), "x").graph
    assert graph.kind.tolist() == [NodeKind.COMPUTE, NodeKind.COLLECTIVE]
    assert graph.duration_ns.tolist() == [5000, 0] and graph.size_bytes.tolist() == [0, 64]
    assert list(CollectiveKind)[graph.collective[1]] == CollectiveKind.ALL_GATHER
    assert graph.deps.tolist() == [0]


@pytest.mark.parametrize(("version", "field", "kind"), [("0.0.2", "ints", 6), ("0.0.3", "bools", 7)])
@given(dims=st.lists(st.booleans(), min_size=1, max_size=9))
def test_dimensions_of_older_schemas_are_read_as_their_generators_wrote_them(version, field, kind, dims):
    """Chakra's et_generator.py wrote `involved_dim` as INTS in 0.0.2, which had no truth values, and as BOOLS later."""
    node = messages(version)["Node"](id=0, name="ALL_REDUCE", type=kind)
    for name, value in (("comm_type", 0), ("comm_size", 65536)):
        node.attribute.add(name=name, type=2).i = value
    kept = getattr(node.attribute.add(name="involved_dim", type=7), field)
    kept.extend(map(int, dims) if field == "ints" else dims)
    data = writer.frame(node.SerializeToString())
    assert legacy.detect(data) == version
    mask = reader.decode(legacy.to_current(data, "x"), "x").graph.dims[0]
    assert [bool(mask >> place & 1) for place in range(len(dims))] == dims


def chakra_files():
    folder = Path(__file__).parents[4] / "shared" / "data" / "traces" / "chakra"
    return sorted(folder.glob("*/*.et")) + sorted(folder.glob("*/*/*.et")) or [None]


@pytest.mark.parametrize("path", chakra_files(), ids=lambda path: path.name if path else "none")
def test_upstream_files_round_trip_through_json_byte_for_byte(path):
    data = (path or traces()).read_bytes()
    assert legacy.detect(data) == ""
    text = json_form.to_json(data)
    for form in (text, json_form.to_jsonizer(data)):
        assert json_form.from_json(form.encode(), "x") == data
    dump = path.with_suffix("").with_suffix(path.with_suffix("").suffix + ".dump.json")
    if dump.exists():
        assert json.loads(text) == json.loads(dump.read_text())


def test_fields_of_no_schema_are_kept_or_told(tmp_path):
    """Those of side branches, or of tomorrow: here field 33 of an attribute, in the second of three messages."""
    attribute = writer.frame(b"\x0a\x02me" + b"\x8a\x02\x01x")
    raws = [messages()["Node"](id=number, type=NodeKind.COMPUTE).SerializeToString() for number in (1, 2)]
    data = writer.encode(writer.metadata(), []) + writer.frame(raws[0] + b"\x52" + attribute) + writer.frame(raws[1])
    (tmp_path / "w.et").write_bytes(data)
    source, target = str(tmp_path / "w.et"), str(tmp_path / "made.et")
    assert main(["convert", source, target]) == 0
    assert Path(target).read_bytes() == data
    with pytest.raises(InputError, match=r"w.et: error: not all fields of message 1 are in Chakra's schema"):
        convert(source, str(tmp_path / "made.json"), Options())


NO_TRACES = [
    ('{"a": {"meta": 1, "nodes": []}}', "1:1: error: this JSON is no execution trace"),
    ('{"a": "workload_graph"}', "1:1: error: this JSON is no execution trace"),
    ('[{"a": "comms"}]', "1:1: error: this JSON is no execution trace"),
    ('{"nodes": [], "links": [], "directed": true}', "1:1: error: this is a graph"),
    ('{"traceEvents": [], "meta": 1}', "1:1: error: this is a profiler's timeline"),
    ('{"nodes": [{"id": 1}]', "1:22: error: not well-formed JSON"),
    ('{"version": "1"}{"id": "1"}', "1:17: error: not well-formed JSON"),
]


@pytest.mark.parametrize(("text", "message"), NO_TRACES)
def test_json_that_is_no_trace_is_told_as_json(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    for read in (reader.distinct_ranks, lambda path: convert(str(path), "x.et", Options())):
        with pytest.raises(InputError, match=f"x.json:{message}"):
            read(path)


@pytest.mark.parametrize("text", ["[]", '{"nodes": []}', '\ufeff{"meta": {}, "nodes": []}', '{"workload_graph": []}'])
def test_a_rank_in_json_may_do_nothing(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    assert set(reader.distinct_ranks(path)[0][0].graph.kind.tolist()) <= {NodeKind.METADATA}


@pytest.mark.parametrize("head", [{}, {"version": "}\n}{"}])
def test_the_text_of_chakra_jsonizer_is_read_and_its_faults_have_their_lines(tmp_path, head):
    nodes = [writer.node(number, "}{", NodeKind.COMPUTE, duration_micros=5) for number in (1, 2)]
    data = b"".join(writer.frame(each.SerializeToString()) for each in (messages()["GlobalMetadata"](**head), *nodes))
    text = json_form.to_jsonizer(data)
    path = tmp_path / "x.json"
    path.write_text(text)
    assert reader.distinct_ranks(path)[0][0].graph.duration_ns.tolist() == [5000, 5000]
    path.write_text(text.replace('"2"', '"x"'))
    line = text[: text.index('"2"')].count("\n") + 1
    with pytest.raises(InputError, match=rf"x.json:{line}:\d+: error: nodes\[1\].id"):
        reader.distinct_ranks(path)


@given(st.sampled_from([91, 123]), st.binary(max_size=80))
def test_metadata_as_long_as_a_bracket_or_a_brace_is_no_json(length, version):
    """Its length reads as "[" or "{" in ASCII."""
    version_field = b"\x0a" + bytes([len(version)]) + version
    filler = length - len(version_field) - 2
    assert not json_form.is_json(bytes([length]) + version_field + b"\x12" + bytes([filler]) + b" " * filler)


def test_the_feeders_json_is_read(tmp_path):
    path = tmp_path / "x.json"
    nodes = [
        {"Id": 1, "Name": "a", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 318, "is_cpu_op": True},
        {"Id": 2, "Name": "b", "NodeType": 7, "data_deps": [1], "is_cpu_op": False, "comm_type": 0, "comm_size": 64},
    ]
    path.write_text(json.dumps({"workload_graph": nodes}))
    graph = reader.distinct_ranks(path)[0][0].graph
    assert graph.duration_ns.tolist() == [318_000, 0] and graph.on_cpu.tolist() == [True, False]
    nodes[0]["NodeTyp"] = 1
    path.write_text(json.dumps({"workload_graph": nodes}))
    with pytest.raises(InputError, match=r"1:139: error: .*NodeTyp: unknown key 'NodeTyp', did you mean 'nodetype'"):
        reader.distinct_ranks(path)[0][0]


def test_a_linked_pytorch_trace_becomes_chakras_own_nodes():
    folder = traces() / "pytorch" / "dlrm"
    ours = of(pytorch.convert(str(folder / "linked_0.json.gz"), compat=True))
    theirs = json.loads(gzip.decompress((folder / "dlrm.0.dump.json.gz").read_bytes()))
    assert ours["meta"] == theirs["meta"]
    for document in (ours, theirs):
        document["nodes"] = {node.get("id", "0"): node for node in document["nodes"]}
        for node in document["nodes"].values():
            node["data_deps"] = sorted(node.get("data_deps", []))
    assert ours["nodes"] == theirs["nodes"]


def test_a_host_trace_alone_becomes_chakras_own_chain():
    folder = traces() / "pytorch" / "t102"
    ours = of(pytorch.convert(str(folder / "1.0.2-chakra.0.0.4.json"), compat=True))
    theirs = json.loads((folder / "t102.0.dump.json").read_text())
    for document in (ours, theirs):
        document["nodes"].sort(key=lambda node: int(node["id"]))
    assert ours == theirs


def test_kineto_gives_times_kernels_stream_order_and_waits():
    folder = traces() / "pytorch" / "dlrm"
    made = pytorch.convert(str(folder / "host_0.json.gz"), str(folder / "device_0.json.gz"))
    graph = reader.decode(made, "x").graph
    assert len(graph) == 1935 and (~graph.on_cpu).sum() == 261  # as upstream's converter has them
    assert (graph.kind == NodeKind.COLLECTIVE).sum() == 8
    waits = [graph.deps[graph.dep_offsets[row] : graph.dep_offsets[row + 1]] for row in range(len(graph))]
    for stream in np.unique(graph.stream[~graph.on_cpu]).tolist():
        rows = np.flatnonzero(~graph.on_cpu & (graph.stream == stream)).tolist()
        chained = sum(any(dep in rows for dep in waits[row].tolist()) for row in rows)
        assert chained == len(rows) - 1
    assert any((~graph.on_cpu[waits[row]]).any() for row in np.flatnonzero(graph.on_cpu))


def test_files_without_record_function_ids_are_joined_by_names(tmp_path):
    """The originals of the case above: schema 1.0.1 and a Kineto file of 2023."""
    inside = {"dlrm_pytorch_et": "dlrm_eg_0.json", "dlrm_kineto": "worker0_step_12.1694128201545.pt.trace.json"}
    for name, member in inside.items():
        with tarfile.open(shared("data", "traces", "param", f"{name}.tar.gz")) as archive:
            (tmp_path / name).write_bytes(archive.extractfile(f"{name}/{member}").read())
    made = pytorch.convert(str(tmp_path / "dlrm_pytorch_et"), str(tmp_path / "dlrm_kineto"))
    graph = reader.decode(made, "x").graph
    assert len(graph) == 1935 and (~graph.on_cpu).sum() == 261
    assert (graph.kind == NodeKind.COLLECTIVE).sum() == 8


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 90)), min_size=4, max_size=8), st.integers(0, 1))
@settings(deadline=None, max_examples=30)
def test_tasks_and_operations_that_cannot_be_joined_are_told(tmp_path_factory, tasks, absent):
    """Each operation launches a kernel of some length, whose launch may be lost."""
    folder = tmp_path_factory.mktemp("pair")
    inputs = {f"{side}{part}": [] for side in ("input", "output") for part in ("s", "_shapes", "_types")}
    operations = [
        inputs | {"id": 1 + number, "name": f"aten::{number}", "parent": 1, "rf_id": number}
        for number in range(1, len(tasks) + absent + 1)
    ]
    root = inputs | {"id": 1, "name": "[pytorch|profiler|execution_graph|thread]", "parent": 0, "rf_id": 0}
    (folder / "host.json").write_text(json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [root, *operations]}))
    events = []
    for number, (found, length) in enumerate(tasks, 1):
        place = {"ph": "X", "pid": 1, "tid": 1, "ts": 100 * number, "dur": 9}
        events += [
            place | {"cat": "cpu_op", "name": f"aten::{number}", "args": {"Record function id": number}},
            place | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 3, "args": {"correlation": number}},
            place | {"cat": "kernel", "name": "gemm", "tid": 7, "dur": length}
            | {"args": {"stream": 7, "correlation": number if found else 1000 + number}},
        ]  # fmt: skip
    (folder / "kineto.json").write_text(json.dumps({"traceEvents": events}))
    told = []
    made = pytorch.convert(str(folder / "host.json"), str(folder / "kineto.json"), tell=told.append)
    graph = reader.decode(made, "x").graph
    lost = [length for found, length in tasks if not found]
    assert (~graph.on_cpu).sum() + len(lost) == len(tasks)
    said = [f"{len(lost)} tasks ({sum(lost)} us) of {len(tasks)} tasks"] * bool(lost)
    said += [f"{absent} of the host trace's {len(operations)} operations"] * bool(absent)
    assert len(told) == len(said) and all(text in line for text, line in zip(said, told, strict=True))
    (folder / "host.json").write_text(json.dumps({"schema": "1.0.1", "pid": 1, "nodes": operations}))
    pytorch.convert(str(folder / "host.json"), tell=told.append)
    assert f"{len(operations)} of {len(operations)} operations are below no thread's root" in told[-1]


@given(st.text("abc", max_size=9), st.text("abc", max_size=9))
@settings(deadline=None)
def test_matching_finds_the_longest_common_subsequence(one, other):
    pairs = matches(one, other)
    assert all(one[i] == other[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    length = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, x in enumerate(one):
        for j, y in enumerate(other):
            length[i + 1][j + 1] = length[i][j] + 1 if x == y else max(length[i][j + 1], length[i + 1][j])
    assert len(pairs) == length[-1][-1]


def test_schema_1_0_1_is_taken(tmp_path):
    entry = {
        "inputs": [],
        "input_shapes": [],
        "input_types": [],
        "outputs": [],
        "output_shapes": [],
        "output_types": [],
    }
    root = entry | {"id": 1, "name": "[pytorch|profiler|execution_graph|thread]", "parent": 0, "rf_id": 0}
    child = entry | {"id": 2, "name": "aten::x", "parent": 1, "rf_id": 1}
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [root, child]}))
    graph = reader.decode(pytorch.convert(str(path)), "x").graph
    assert graph.names == (root["name"], "aten::x") and graph.deps.tolist() == [0]
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [{"id": 1}]}))
    with pytest.raises(InputError, match=r"nodes\[0\]: the key 'inputs' is missing"):
        pytorch.convert(str(path))


@pytest.mark.parametrize(
    ("loop", "activations", "gradients"),
    [
        ("DATA", None, [True, True, True]),
        ("HYBRID_DATA_MODEL", [True, False, False], [False, True, True]),
        ("HYBRID_MODEL_DATA", [False, True, True], [True, False, False]),
    ],
)
def test_collectives_of_a_text_name_the_dimensions_that_the_converter_of_2023_gave_them(loop, activations, gradients):
    phase = Phase(5, CollectiveKind.ALL_REDUCE, 64)
    steps = text_converter.steps(Workload(loop, (Layer("a", phase, phase, phase),)), 1, num_dims=3)
    dims = [list(step.collective["involved_dim"]) for step in steps if step.collective]
    assert dims == [found for found in (activations, gradients) if found]


@pytest.mark.parametrize("mhz", [500.0, 1000.0, 2000.0])
def test_cycles_are_those_of_the_clock_that_is_given(tmp_path, mhz):
    (tmp_path / "g.graph").write_text(
        'digraph taskgraph {\nnode0 [label="{device_id=0|a|Forward|COMP_NODE|simulated_run_time=0.5}"];\n}\n'
    )
    options = Options(compat=True, npu_frequency_mhz=mhz)
    (data,) = convert(str(tmp_path / "g.graph"), str(tmp_path / "g"), options).values()
    assert reader.decode(data, "x").graph.duration_ns.tolist() == [mhz * 1e6 / 2]
    old = messages("2023-01")["Node"](id=1, name="a", node_type=3, simulated_run_time=6000)
    (tmp_path / "old.eg").write_bytes(writer.frame(old.SerializeToString()))
    (data,) = convert(str(tmp_path / "old.eg"), "new.et", Options(npu_frequency_mhz=mhz)).values()
    assert reader.decode(data, "x").graph.duration_ns.tolist() == [6_000_000 / mhz]


def test_options_of_a_text_and_of_cycles_are_for_their_sources_only(tmp_path, capsys):

    text, prefix = "workloads/dlrm.txt", str(tmp_path / "w")
    assert main(["convert", text, prefix, "--num_dims", "2", "-q"]) == 0
    assert main(["convert", f"{prefix}.0.et", f"{prefix}.json", "--npu-frequency", "500", "-q"]) == 2
    assert main(["convert", f"{prefix}.0.et", f"{prefix}.x.et", "--num-dims", "2"]) == 2
    assert main(["convert", text, f"{prefix}2", "--npu_frequency", "500"]) == 2
    assert main(["convert", text, f"{prefix}3", "--num-dims", "2", "--native"]) == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("compat", "profile", "unit_ns"),
    [((), "native", 1), ((), "astra-sim-2", 1000), (("--compat", "chakra"), "native", 1000)],
)
def test_a_converted_text_computes_as_long_as_it_says_and_under_astra_sim_a_thousand_times_that(
    compat, profile, unit_ns, tmp_path, capsys
):
    """ASTRA-sim 2.x plays Chakra's whole microseconds, into which Chakra's converter puts the text's nanoseconds."""
    text, prefix = tmp_path / "step.txt", str(tmp_path / "step")
    text.write_text("DATA\n1\nrow -1 4000 NONE 0 300 NONE 0 1 ALLREDUCE 1024 0\n")
    assert main(["convert", str(text), prefix, "--npus", "8", *compat]) == 0
    assert "microseconds" in capsys.readouterr().err
    report = simcore.run(prefix, "ring8", profile=profile).to_dict()
    assert report["compute_ns"] == 4001 * unit_ns


@pytest.mark.parametrize("ending", [".et", ".et.gz", ".json", ".json.gz"])
def test_the_name_of_what_is_made_says_its_form_as_it_does_of_a_set(ending, tmp_path):
    """Of a text as of the traces that are made of it."""
    (tmp_path / "w.txt").write_text("DATA\n1\nfc -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 65536 0\n")
    for source, target in (("w.txt", "plain"), ("w.txt", f"a{ending}"), ("plain", f"b{ending}")):
        count = ["--npus", "2"] if source == "w.txt" else []
        assert main(["convert", str(tmp_path / source), str(tmp_path / target), *count]) == 0
    for rank in range(2):
        made, again = (tmp_path / f"{name}.{rank}{ending}" for name in "ab")
        assert made.read_bytes() == again.read_bytes()
    assert len([*tmp_path.iterdir()]) == 7
