"""Trace files into graphs: what is written is read, equal contents are shared, every defect is named."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.workload.chakra import columns, groups, json_form, legacy, reader, variants, wire, writer
from simcore.workload.chakra.schema import ATTRIBUTE_KINDS, CommType, messages
from simcore.workload.model import CollectiveKind, NodeKind

BOUNDS = {"int32": 31, "int64": 62, "uint32": 32, "uint64": 62, "sint32": 31, "sint64": 62, "fixed32": 32}
BOUNDS |= {"fixed64": 62, "sfixed32": 31, "sfixed64": 62}
KINDS = st.sampled_from(sorted(BOUNDS))


@st.composite
def nodes(draw):
    """Nodes with distinct ids in any order, waiting for smaller ids, with attributes of any integer kind."""
    ids = draw(st.lists(st.integers(0, 1 << 40), unique=True, max_size=12))
    made = []
    for number in draw(st.permutations(ids)):
        smaller = [other for other in ids if other < number]
        deps = st.lists(st.sampled_from(smaller), unique=True, max_size=4) if smaller else st.just([])
        made.append(draw(node(number, deps)))
    return made


@st.composite
def node(draw, number, deps):
    kind = draw(st.sampled_from([NodeKind.COMPUTE, NodeKind.COLLECTIVE, NodeKind.INVALID]))
    message = writer.node(
        number,
        draw(st.text(max_size=8)),
        kind,
        data_deps=draw(deps),
        ctrl_deps=draw(deps),
        duration_micros=draw(st.integers(0, 1 << 40)),
    )
    names = ["comm_type", "comm_size"] if kind == NodeKind.COLLECTIVE else ["num_ops"]
    for name in [*names, *draw(st.lists(st.sampled_from(["stream", "comm_priority", "comm_tag"]), unique=True))]:
        integer = draw(KINDS)
        top = max(CommType) if name == "comm_type" else (1 << BOUNDS[integer] - 1) - 1
        writer.add_attribute(message, name, draw(st.integers(0, top)), integer)
    if draw(st.booleans()):
        message.attr.add(name="op_schema", string_val="aten::x")
    return message


def columns_of(made):
    data = writer.encode(writer.metadata(), made)
    starts, ends = wire.frames(data)
    return columns.decode(data, starts[1:], ends[1:])


def attribute(message, name):
    found = [a for a in message.attr if a.name == name]
    return getattr(found[-1], found[-1].WhichOneof("value")) if found else columns.MISSING


@given(nodes())
@settings(max_examples=60, deadline=None)
def test_columns_hold_what_protobuf_reads_from_the_same_bytes(made):
    found = columns_of(made)
    again = [messages()["Node"].FromString(message.SerializeToString()) for message in made]
    assert found.node_id.tolist() == [message.id for message in again]
    assert found.names == [message.name for message in again]
    assert found.kind.tolist() == [message.type for message in again]
    assert found.duration_micros.tolist() == [message.duration_micros for message in again]
    for name in ("comm_type", "comm_size", "num_ops", "stream", "comm_priority", "comm_tag"):
        assert found.attributes[name].tolist() == [attribute(message, name) for message in again]
    for field, (rows, ids) in (("data_deps", found.data), ("ctrl_deps", found.control)):
        pairs = sorted(zip(rows.tolist(), ids.tolist(), strict=True))
        assert pairs == sorted((row, dep) for row, message in enumerate(again) for dep in getattr(message, field))


@given(nodes())
@settings(max_examples=30, deadline=None)
def test_a_graph_has_ascending_ids_and_rows_for_dependencies(made):
    graph = reader.decode(writer.encode(writer.metadata(), made), "x.et").graph
    by_id = {message.id: message for message in made}
    assert graph.node_id.tolist() == sorted(by_id)
    for row, number in enumerate(graph.node_id.tolist()):
        waits = graph.node_id[graph.deps[graph.dep_offsets[row] : graph.dep_offsets[row + 1]]].tolist()
        assert waits == sorted({*by_id[number].data_deps, *by_id[number].ctrl_deps})


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_trace_or_an_input_error(data):
    head = writer.frame(writer.metadata().SerializeToString())
    for content in (data, head + data, head + writer.frame(data)):
        try:
            reader.decode(content, "x.et") if content else None
        except InputError as error:
            assert "x.et" in str(error)


@given(st.sampled_from(sorted(columns.TEXTS)), st.binary(max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_the_place_of_a_name_or_list_are_one_or_an_input_error(name, value):
    head, made = writer.frame(writer.metadata().SerializeToString()), collective().SerializeToString()
    number, what = columns.TEXTS[name]
    said = b"".join(map(field, (1, number), (name.encode(), value)))
    try:
        reader.decode(head + writer.frame(made + field(10, said)), "x.et")
    except InputError as error:
        assert f"message 1 at byte {len(head) + 1}, node 0 'c': attribute {name} is not {what}" in str(error)


def field(number, value):
    return writer.varint(number << 3 | wire.LENGTH) + writer.frame(value)


@given(nodes(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_is_shorter_or_refused(made, data):
    content = writer.encode(writer.metadata(), made)
    cut = data.draw(st.integers(1, len(content)))
    try:
        assert len(reader.decode(content[:cut], "x.et").graph) <= len(made)
    except InputError as error:
        assert "x.et" in str(error)


@pytest.mark.parametrize("kind", sorted(set(ATTRIBUTE_KINDS) - {"double", "float", "string", "bytes", "bool"}))
@pytest.mark.parametrize("value", [0, 7, (1 << 30) + 3])
def test_an_integer_attribute_is_read_from_every_integer_kind(kind, value):
    message = writer.node(1, "n", NodeKind.COMPUTE)
    writer.add_attribute(message, "num_ops", value, kind)
    assert columns_of([message]).attributes["num_ops"].tolist() == [value]


@pytest.mark.parametrize("kind", ["int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64"])
def test_a_signed_attribute_keeps_its_sign(kind):
    message = writer.node(1, "n", NodeKind.COMPUTE)
    writer.add_attribute(message, "comm_priority", -5, kind)
    assert columns_of([message]).attributes["comm_priority"].tolist() == [-5]


def collective(number=0, **attributes):
    attributes = {"comm_type": 0, "comm_size": 64} | attributes
    present = {key: value for key, value in attributes.items() if value is not None}
    return writer.node(number, "c", NodeKind.COLLECTIVE, attributes=present)


def compute(number, deps=(), **more):
    return writer.node(number, f"n{number}", NodeKind.COMPUTE, data_deps=deps, duration_micros=1, **more)


def text_size():
    message = writer.node(0, "c", NodeKind.COLLECTIVE, attributes={"comm_type": 0})
    writer.add_attribute(message, "comm_size", "64", "string")
    return message


DEFECTS = {
    "unknown node type": [messages()["Node"](id=1, name="x")],
    "stands twice": [compute(1), compute(1)],
    "not in the file": [compute(0), compute(1, [9])],
    "waits for itself": [compute(1, [1])],
    "wait for each other: 1 -> 3 -> 2 -> 1": [compute(0), compute(1, [3]), compute(2, [1]), compute(3, [2])],
    "no size": [collective(comm_size=None)],
    "no type": [collective(comm_type=None)],
    "unknown collective": [collective(comm_type=77)],
    "size is negative": [collective(comm_size=-1)],
    "attribute comm_size is not an integer": [text_size()],
    "no rank": [writer.node(0, "s", NodeKind.SEND, attributes={"comm_size": 1})],
    "does not exist": [writer.node(0, "s", NodeKind.SEND, attributes={"comm_size": 1, "comm_dst": 4})],
    "unknown group '7'": [collective(pg_name="7")],
    "no member": [collective(pg_name="1")],
}
DEFECTS["unknown node type"][0].MergeFromString(b"\x18\x2a")  # type = 42


@pytest.mark.parametrize("text", sorted(DEFECTS))
def test_a_defect_is_named_with_its_file_message_byte_and_node(tmp_path, text):
    path = tmp_path / "t.et"
    path.write_bytes(writer.encode(writer.metadata(), DEFECTS[text]))
    with pytest.raises(InputError, match=rf"t\.et: error: message \d+ at byte \d+.*{text}"):
        reader.read_graphs(str(path), 4, {"1": (0, 1)})


def test_a_set_shares_equal_files_and_reads_gzip(tmp_path):
    one, other = (writer.encode(writer.metadata(), [compute(1)] * count) for count in (1, 0))
    for rank, content in enumerate([one, gzip.compress(one), other, one]):
        (tmp_path / f"w.{rank}.et").write_bytes(content)
    for name in (tmp_path / "w", tmp_path):
        found = reader.read_graphs(str(name), 4)
        assert found.graph_of_rank.tolist() == [0, 0, 1, 0] and len(found.graphs) == 2


def test_graphs_that_differ_in_their_ids_only_are_one(tmp_path):
    for rank in range(4):
        made = [writer.node(10 * rank + i, "n", NodeKind.COMPUTE, data_deps=[10 * rank] * i) for i in range(2)]
        (tmp_path / f"w.{rank}.et").write_bytes(writer.encode(writer.metadata(), made))
    assert len(reader.read_graphs(str(tmp_path / "w"), 4).graphs) == 1


def test_a_field_of_the_wrong_wire_type_is_named():
    data = writer.encode(writer.metadata(), [compute(1)]) + writer.frame(b"\x0a\x017")
    with pytest.raises(InputError, match=r"message 2 at byte \d+: field id \(1\) has the wrong wire type"):
        reader.decode(data, "x.et")


def test_traces_of_more_ranks_than_npus_are_mentioned(tmp_path):
    for rank in range(4):
        (tmp_path / f"w.{rank}.et").write_bytes(writer.encode(writer.metadata(), [compute(1)]))
    assert "ranks 2-3 are not used" in reader.read_graphs(str(tmp_path / "w"), 2).warnings[0]


def test_one_file_serves_every_npu(tmp_path):
    path = tmp_path / "w.et"
    path.write_bytes(writer.encode(writer.metadata(), [compute(1)]))
    found = reader.read_graphs(str(path), 1000)
    assert len(found.graphs) == 1 and not found.graph_of_rank.any()


def test_missing_ranks_are_named(tmp_path):
    (tmp_path / "w.0.et").write_bytes(writer.encode(writer.metadata(), [compute(1)]))
    with pytest.raises(InputError, match=r"traces of 3 of 4 ranks are missing\n.*the files of ranks 1, 2, 3"):
        reader.read_graphs(str(tmp_path / "w"), 4)


@pytest.mark.parametrize(
    ("names", "said"), [(["w.0.et", "w.00.et"], "rank 0 is here twice"), (["a.0.et", "b.0.et"], "several sets")]
)
def test_a_set_has_one_trace_a_rank(names, said, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=said):
        reader.files_of_set(tmp_path)


def test_columns_of_a_collective(tmp_path):
    made = collective(3, comm_type=8, is_cpu_op=False, involved_dim=[True, False, True], pg_name="1", comm_priority=2)
    graph = reader.decode(writer.encode(writer.metadata(), [made]), "x").graph
    assert graph.kind.tolist() == [NodeKind.COLLECTIVE]
    assert list(CollectiveKind)[graph.collective[0]] == CollectiveKind.REDUCE_SCATTER
    assert (graph.size_bytes[0], graph.dims[0], graph.priority[0]) == (64, 0b101, 2)
    assert graph.group_names[graph.group[0]] == "1"


def test_more_dimensions_than_any_machine_has_are_read():
    made = collective(3, comm_type=8, is_cpu_op=False, involved_dim=[True] + [False] * 70 + [True])
    assert reader.decode(writer.encode(writer.metadata(), [made]), "x").graph.dims[0] == 1 | 1 << 62


def test_group_zero_is_everybody():
    graph = reader.decode(writer.encode(writer.metadata(), [collective(pg_name="0")]), "x").graph
    assert graph.group_names == ("",)


def test_metadata_nodes_define_groups(tmp_path):
    meta = writer.node(0, "## process_group:init ##", NodeKind.METADATA)
    meta.inputs.values = """['[{"pg_name": "5", "ranks": [2, 0]}, {"pg_name": "0", "ranks": []}]']"""
    path = tmp_path / "w.et"
    path.write_bytes(writer.encode(writer.metadata(), [meta]))
    assert reader.read_graphs(str(path), 4).groups == {"5": (2, 0)}


def test_a_metadata_node_s_group_without_ranks_is_one_of_all(tmp_path):
    """PyTorch leaves out the ranks of every group that is as large as the job (`pg_config_info`)."""
    meta = writer.node(0, "## process_group:init ##", NodeKind.METADATA)
    meta.inputs.values = '[{"pg_name": "7", "pg_desc": "dp", "ranks": [], "group_size": 4}]'
    content = writer.encode(writer.metadata(), [meta, collective(1, pg_name="7")])
    hidden = variants.obfuscate(content, b"salt", keep_sizes=True)
    for made in (content, hidden, *variants.rescale([content], 4, {}, ("7",))):
        (tmp_path / "w.et").write_bytes(made)
        assert reader.read_graphs(str(tmp_path / "w.et"), 4).groups == {"7": (0, 1, 2, 3)}


def test_ranks_that_give_one_name_to_different_groups_keep_both(tmp_path):
    for rank, ranks in enumerate(([0, 1], [0, 1], [2, 3], [2, 3])):
        meta = writer.node(0, "g", NodeKind.METADATA)
        meta.inputs.values = f'[{{"pg_name": "5", "ranks": {ranks}}}]'
        content = writer.encode(writer.metadata(), [meta, collective(1, pg_name="5")])
        (tmp_path / f"w.{rank}.et").write_bytes(content)
    found = reader.read_graphs(str(tmp_path / "w"), 4)
    names = [found.graphs[index].group_names[1] for index in found.graph_of_rank]
    assert [found.groups[name] for name in names] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_the_groups_file_is_read_in_ring_order(tmp_path):
    path = tmp_path / "g.json"
    path.write_text('{"2": [3, 1], "1": [0, 2]}')
    assert groups.read_groups(str(path), 4) == {"2": (3, 1), "1": (0, 2)}


@pytest.mark.parametrize("text", ['{"0": [1]}', '{"1": [9]}', '{"1": [1, 1]}', '{"1": []}', '{"1": "x"}', "[]"])
def test_a_wrong_groups_file_is_refused(tmp_path, text):
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"g\.json:1:"):
        groups.read_groups(str(path), 4)


STORAGE = [
    {"level": "STORAGE_LEVEL_FS", "fs": {"op": "FS_OP_PREAD", "pathname": "/data/0", "fd": 3, "size_bytes": "4096"}},
    {"level": "STORAGE_LEVEL_PAGE", "page": {"op": "PAGE_OP_READAHEAD_ASYNC", "inode": "7", "nr_pages": 32}},
    {"level": "STORAGE_LEVEL_BLOCK", "block": {"op": "BLOCK_OP_READ", "queue_event": "BLOCK_EVENT_COMPLETE",
                                               "device": "nvme0n1", "lba": "2048", "nr_sectors": 8}},
    {"level": "STORAGE_LEVEL_DEVICE"},
]  # fmt: skip


@given(st.lists(st.sampled_from(STORAGE), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_storage_nodes_of_the_newest_schema_are_kept_as_they_are_and_take_their_recorded_time(details, micros):
    entries = [
        {"id": str(number), "name": f"s{number}", "type": kind, "duration_micros": str(micros + 1), "storage": detail,
         "inputs": {"values": "[]", "strides": "[[1]]"}}
        for number, (kind, detail) in enumerate(zip(["STORAGE_NODE"] * len(details), details, strict=True))
    ]  # fmt: skip
    entries += [{"id": "9", "type": "BATCH_NODE", "data_deps": ["0"]}, {"id": "10", "type": "CHECKPOINT_NODE"}]
    text = json.dumps({"meta": {"version": "0.0.4"}, "nodes": entries}).encode()
    data = json_form.from_json(text, "x.json")
    again = json.loads(json_form.to_json(data))["nodes"]
    assert [entry.get("storage") for entry in again[:-2]] == details
    assert [entry["inputs"]["strides"] for entry in again[:-2]] == ["[[1]]"] * len(details)
    assert json_form.from_json(json.dumps(json.loads(json_form.to_json(data))).encode(), "x.json") == data
    trace = reader.decode(data, "x.et")
    assert set(trace.graph.kind.tolist()) == {NodeKind.COMPUTE}
    assert trace.graph.on_cpu.all()
    assert trace.graph.duration_ns.tolist() == [(micros + 1) * 1000] * len(details) + [0, 0]
    assert f"{len(entries)} nodes of storage, batches and checkpoints" in trace.warnings[0]
    assert trace.graph.delays.tolist()[: len(entries)] == [True] * len(entries), "whatever computes, and how fast"


def test_storage_is_not_taken_for_attributes_of_the_schemas_of_2023():
    one = messages()["Node"](id=0, type=8, storage={"level": 1, "fs": {"op": 3, "size_bytes": 1}})
    data = writer.frame(b"") + writer.frame(one.SerializeToString())
    assert legacy.detect(data) == ""


def test_the_newest_types_did_not_exist_in_2023():
    first = writer.frame(bytes([8, 1, 18, 1, 120, 24, 7]))  # id 1, name x, type 7: one more than the last
    with pytest.raises(InputError, match="is no type of node"):
        legacy.to_current(first, "old.eg")


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ("[0, -1]", "a whole number of at least 0"),
        ('"0-3"', "must be a list"),
        ("null", "must be a list"),
        ("[]", "has no ranks"),
        ("[1, 1]", "names a rank twice"),
        ("[4, 4]", "names a rank that does not exist"),
    ],
)
def test_a_fault_of_a_group_is_told_once(ranks, told, tmp_path):
    file = tmp_path / "groups.json"
    file.write_text(f'{{"7": {ranks}}}')
    with pytest.raises(InputError) as raised:
        groups.read_groups(str(file), 4)
    assert all(told in problem.message for problem in raised.value.problems)
