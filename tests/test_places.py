"""Wrong values of JSON documents are found where they stand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.places import offset_of
from simcore.workload.chakra import json_form
from simcore.workload.chakra.pytorch_form import parse_host
from simcore.workload.kineto_reader import read_kineto

WORDS = st.text('ab":,[{ \\é', max_size=4)
DOCUMENTS = st.recursive(
    st.none() | st.integers() | WORDS, lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner), max_leaves=9
)


def paths(value, steps=()):
    """The steps to a value and to all in it."""
    yield steps, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from paths(item, (*steps, key))


@given(DOCUMENTS, st.sampled_from([None, 0, 3]), st.booleans())
def test_steps_lead_to_the_value_in_the_text(document, indent, ascii_only):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    for steps, value in paths(document):
        assert json.JSONDecoder().raw_decode(text, offset_of(text, steps))[0] == value


@pytest.mark.parametrize("read", [json_form.from_json, parse_host])
def test_a_name_that_is_half_a_character_can_be_told(read):
    with pytest.raises(InputError) as wrong:
        read(b'{"\\ud800": "1.1.1", "meta": {}, "nodes": [{"\\ud800": [1]}]}', "trace.json")
    assert str(wrong.value).encode()


NODE = '{"id": 1, "name": "a", "ctrl_deps": 0, "inputs": {}, "outputs": {}'
EVENT = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1'
WRONG = [  # reader, text with the wrong value between « and », its name
    (json_form.from_json, '{"meta": {},\n "nodes": [{"id": 1},\n {"data_deps": [1, «"x"»]}]}', "nodes[1].data_deps[1]"),
    (
        json_form.from_json,
        '{"meta": {}, "nodes": [{"attr": [{"name": "a", "int64_val": «"z"»}]}]}',
        "attr[0].int64_val",
    ),
    (json_form.from_json, '{"meta": «5», "nodes": []}', "meta"),
    (json_form.from_json, '{"meta": {}, "nodes": [{}, «[]»]}', "nodes[1]"),
    (json_form.from_json, '{"workload_graph": [{"Id": 1,\n "NodeType": 7, "comm_type": «"SUM"»}]}', "[0].comm_type"),
    (json_form.from_json, '{"workload_graph": [{"Id": «"1"», "NodeType": 7}]}', "[0].Id"),
    (json_form.from_json, '[{"comms": "init", "pg_id": 0, "global_ranks": [0, «"a"»]}]', "[0].global_ranks[1]"),
    (
        parse_host,
        f'{{"schema": "1.1.1", "nodes": [\n{NODE}, "attrs": [], "sync_dep": [«"x"»]}}]}}',
        "nodes[0].sync_dep[0]",
    ),
    (
        parse_host,
        f'{{"schema": "1.1.1", "nodes": [«{NODE}}}»]}}',
        "nodes[0]: the key 'input_shapes'",
    ),
    (read_kineto, f'{{"traceEvents": [{EVENT}}},\n {EVENT}, "dur": «[2]»}}]}}', "traceEvents[1].dur"),
    (read_kineto, f'[{EVENT}, "args": {{"stream": «[7]»}}}}]', "[0].args.stream"),
]


@pytest.mark.parametrize(("read", "text", "name"), WRONG, ids=[name for _, _, name in WRONG])
def test_a_wrong_value_has_line_and_column(read, text, name):
    before, _, behind = text.partition("«")
    with pytest.raises(InputError) as caught:
        read((before + behind.replace("»", "")).encode(), "x.json")
    (problem,) = caught.value.problems
    assert (problem.location.line, problem.location.column) == (
        before.count("\n") + 1,
        len(before) - before.rfind("\n"),
    )
    assert name in problem.message
    assert problem.source[problem.location.column - 1] == behind[0]
