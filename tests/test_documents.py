"""Located YAML and JSON: values as Python's own readers see them, and the place of everything that is wrong."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import documents
from simcore.errors import MAX_PROBLEMS, InputError, Location, Problem, Problems, closest
from simcore.registry import Registry
from simcore.units import parse_bytes, parse_ns

SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | st.text("abc xyz-_", max_size=9)
)
DOCUMENTS = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=5),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("kl", min_size=1), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def parsed(text):
    with Problems() as problems:
        return documents.parse(text, "file", problems)


@given(DOCUMENTS, st.sampled_from([None, 1]))
def test_json_is_read_as_json(document, indent):
    assert parsed(json.dumps(document, indent=indent)).value == document


@given(
    st.sampled_from(["topologies/ring8.yaml", "workloads/dlrm.txt", "docs/traces/two.yml"]),
    st.floats(0, 1),
    st.integers(0xA0, 0xFF),
)
def test_a_letter_in_another_encoding_is_told_where_it_stands(name, share, letter):
    content = Path(name).read_bytes()
    at = round(share * len(content))
    line, column = content.count(b"\n", 0, at) + 1, at - content.rfind(b"\n", 0, at)
    with TemporaryDirectory() as folder:
        file = Path(folder, "x")
        file.write_bytes(content[:at] + bytes([letter]) + content[at:])
        with pytest.raises(InputError, match=f":{line}:{column}: error: this is not a text file"):
            documents.read_text(file)


def test_a_mark_of_utf_8_is_no_part_of_what_stands_before_such_a_letter(tmp_path):
    file = tmp_path / "x"
    file.write_bytes("\ufeff\xe9".encode() + b"\xff")
    with pytest.raises(InputError, match=":1:2: error: this is not a text file"):
        documents.read_text(file)


@given(st.text(max_size=60))
def test_no_text_at_all_ends_in_anything_but_a_document_or_an_input_error(text):
    try:
        parsed(text)
    except InputError as error:
        assert error.problems
        assert all(problem.location.file == "file" for problem in error.problems)


def test_an_unknown_key_is_shown_where_it_stands_with_the_nearest_known_one():
    with pytest.raises(InputError) as caught, Problems() as problems:
        documents.parse("topology: [Ring]\nbandwith: [1]\n", "net.yaml", problems).keys(
            required=("topology", "bandwidth")
        )
    unknown, missing = caught.value.problems
    assert (unknown.location.line, unknown.location.column) == (2, 1)
    assert "'bandwidth'" in unknown.hint
    assert "'bandwidth' is missing" in missing.message


def test_values_of_the_wrong_kind_are_all_found_with_their_places():
    with pytest.raises(InputError) as caught, Problems() as problems:
        root = documents.parse("a: 1.5\nb: yes please\nc: [1, x]\nd: -3\n", "f", problems)
        root["a"].integer()
        root["b"].flag()
        root["c"].items[1].number()
        root["d"].number()
        root["a"].sequence()
    assert [problem.location.line for problem in caught.value.problems] == [1, 2, 3, 4, 1]


@given(st.sampled_from([None, parse_bytes, parse_ns]), st.sampled_from(["many", "1 fortnight", "[1]"]))
def test_a_unit_is_expected_only_where_one_is_read(parse, text):
    with pytest.raises(InputError) as caught, Problems() as problems:
        node = documents.parse(f"a: {text}\n", "f", problems)["a"]
        node.quantity(parse) if parse else node.number()
    assert [("unit" in problem.expected) for problem in caught.value.problems] == [parse is not None]


def test_whatever_is_of_the_wrong_kind_is_told_with_what_is_expected_and_cut_where_it_is_long():
    with pytest.raises(InputError) as caught, Problems() as problems:
        root = documents.parse(f"name: 7\nflag: 3\nrest: {'x' * 5000}\n", "a.yaml", problems)
        root["name"].text()
        root["flag"].flag()
        list(root["rest"].mapping())
    assert all(problem.expected for problem in caught.value.problems)
    assert len(caught.value.problems) == 3
    assert len(str(caught.value)) < 1000


@given(st.lists(st.sampled_from("abcdef"), max_size=9), st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
def test_what_was_noted_before_an_error_ended_the_reading_is_told_before_it_and_nothing_twice(noted, ending):
    def problem(word):
        return Problem(Location("file", 1, 1), word)

    with pytest.raises(InputError) as caught, Problems() as problems:
        for word in noted:
            problems.add(problem(word))
        raise InputError([problem(word) for word in ending])
    assert caught.value.problems == [problem(word) for word in dict.fromkeys([*noted, *ending])]


def test_the_first_problem_too_many_ends_the_reading():
    with pytest.raises(InputError) as caught, Problems() as problems:
        root = documents.parse(json.dumps(["x"] * 99), "f", problems)
        for item in root.items:
            item.integer()
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_a_key_given_twice_is_refused():
    with pytest.raises(InputError, match="stands twice"):
        parsed("a: 1\na: 2\n")


def test_a_registry_gives_a_name_once_and_helps_with_misses():
    shapes: Registry[int] = Registry("shape")
    shapes.register("square")(4)
    with pytest.raises(ValueError, match="registered twice"):
        shapes.register("square")
    with pytest.raises(InputError, match="did you mean 'square'"):
        shapes.get("sqare")
    assert shapes.names() == list(shapes) == ["square"]
    assert "square" in shapes
    assert "circle" not in shapes


@given(st.lists(st.text("abcd", min_size=1, max_size=6), min_size=1, unique=True))
def test_everything_that_exists_is_named(names):
    hint = closest("nothing like it", names)
    assert all(name in hint for name in names)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("017", "017"),
        ("0o17", 15),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        (".5e3", 500.0),
        ("-.INF", float("-inf")),
        ("1_000", 1000),
        ("'5'", "5"),
        ("!!int '5'", 5),
        ("!!python/object:os.system x", "x"),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\\\ud83d\\\\ude00"', "\\ud83d\\ude00"),
    ],
)
def test_a_word_is_what_yaml_1_2_and_json_say(text, value):
    assert parsed(text).value == value


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("- " * 100_000, 1, 131, "nested deeper than 64"),
        ("[" * 900, 1, 66, "nested deeper than 64"),
        ('{"a":' * 100_000, 1, 326, "nested deeper than 64"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
        ("a: &x 1\nb: [*y]\n", 2, 5, "no anchor '&y'"),
        ("a: 1\n[1, 2]: 3\n", 2, 1, "cannot be a key"),
        ("a: 1\nb: é\0\n", 2, 5, "control characters"),
        ("a: [1,\n\n", 3, 1, "not well-formed"),
        ('a: "\\ud800"\n', 1, 7, "invalid Unicode"),
    ],
)
def test_what_is_no_document_is_refused_at_its_place(text, line, column, message):
    with pytest.raises(InputError, match=message) as caught:
        parsed(text)
    assert caught.value.problems[0].location == Location("file", line, column)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  // groups\n  "0": [0, 1]\n}\n', True),
        ('// groups\n{"0": [0, 1]}\n', True),
        ('{"0": [0], /* all */\n "1": [0] }\n', True),
        ('{"0": [0],// all\n "1": [0] }\n', True),
        ('# see // there\n{"0": "a // b", "1": "http://c"]\n', False),
        ('{"0": [0]]\n// behind\n', False),
    ],
)
def test_comments_of_other_languages_are_told_of(text, told):
    with pytest.raises(InputError, match="not well-formed") as caught:
        parsed(text)
    assert ("comments begin with #" in caught.value.problems[0].hint) is told


def test_what_is_nested_deeper_than_the_parser_reads_is_nested_too_deep_there():
    """From 6.0.4 on PyYAML's parser has a limit of 1,000, where it looks ahead."""
    with pytest.raises(InputError, match="nested deeper than 64") as caught:
        parsed("[" * 100_000)
    assert caught.value.problems[0].location in (Location("file", 1, 66), Location("file", 1, 1001))


def test_an_alias_stands_for_its_anchor_under_its_own_name():
    root = parsed("a: &x {k: [1, 2]}\nb: *x\n")
    assert root["b"].value == root["a"].value
    assert (root["b"].name, root["b"]["k"].items[1].value) == ("b", 2)
