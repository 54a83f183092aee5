"""The system file: both generations' ways to write it, and what is refused."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.system.collectives import algorithms, traits_of
from simcore.system.config import WHOLE_MACHINE, Algorithm, SystemConfig, read
from simcore.workload.model import CollectiveKind

REDUCE = CollectiveKind.ALL_REDUCE


def config(tmp_path, content):
    path = tmp_path / "system"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read(path)


def problems(tmp_path, content):
    with pytest.raises(InputError) as caught:
        config(tmp_path, content)
    return caught.value.problems


def test_both_generations_say_the_same(tmp_path):
    first = "scheduling-policy: FIFO\nendpoint-delay: 3\npreferred-dataset-splits: 8\n"
    first += "all-reduce-implementation: ring_direct2\n"
    second = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 3,
        "preferred-dataset-splits": 8,
        "all-reduce-implementation": ["ring", "direct2"],
    }
    assert config(tmp_path, first) == config(tmp_path, second)
    assert config(tmp_path, first).implementations[REDUCE] == (Algorithm("ring"), Algorithm("direct", 2))


SETTINGS = {
    "scheduling-policy": st.sampled_from(["LIFO", "FIFO"]),
    "endpoint-delay": st.integers(0, 99),
    "all-reduce-implementation": st.lists(st.sampled_from(["ring", "direct", "direct4"]), min_size=1, max_size=3),
    "all-to-all-implementation": st.lists(st.sampled_from(["ring", "direct"]), min_size=1, max_size=3),
}


@given(
    st.fixed_dictionaries({}, optional=SETTINGS).filter(bool),
    st.sampled_from([None, False, True]),
    st.sampled_from([None, 4]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_every_way_to_write_yaml_says_the_same_as_json(tmp_path_factory, settings, flow, indent, marked, end):
    path = tmp_path_factory.getbasetemp() / "system"
    written = yaml.safe_dump(settings, default_flow_style=flow, indent=indent, explicit_start=marked, line_break=end)
    found = []
    for text in (json.dumps(settings), written):
        path.write_bytes(text.encode())
        found.append(read(path))
    assert found[0] == found[1]


NAMED = [(name, kind) for name in algorithms for kind in traits_of(name).kinds]


@pytest.mark.parametrize(("name", "kind"), [entry for entry in NAMED if entry[1] != CollectiveKind.BARRIER])
def test_every_algorithm_can_be_named_for_what_it_can_do(tmp_path, name, kind):
    key = f"{kind.replace('_', '-')}-implementation"
    assert config(tmp_path, {key: [name]}).implementations[kind] == (Algorithm(name),)


@pytest.mark.parametrize(("name", "kind"), [(name, traits_of(name).kinds[0]) for name in algorithms])
def test_a_number_is_a_window_where_an_algorithm_has_one_and_no_name_elsewhere(tmp_path, name, kind):
    chosen = {f"{kind.replace('_', '-')}-implementation": [f"{name}12"]}
    if kind != CollectiveKind.BARRIER and traits_of(name).windowed:
        assert config(tmp_path, chosen).implementations[kind] == (Algorithm(name, 12),)
    else:
        with pytest.raises(InputError):
            config(tmp_path, chosen)


@pytest.mark.parametrize(("name", "meant"), WHOLE_MACHINE.items())
def test_some_words_mean_an_algorithm_on_the_whole_machine(tmp_path, name, meant):
    made = config(tmp_path, {"all-gather-implementation": [name]}).implementations[CollectiveKind.ALL_GATHER]
    assert made == (Algorithm(meant[0], whole_machine=True, tour=meant[1]),)


def test_rings_on_tours_do_nothing_that_rings_do_not(tmp_path):
    with pytest.raises(InputError, match="snakeRing cannot do broadcast"):
        config(tmp_path, {"broadcast-implementation": ["snakeRing"]})


def test_a_file_where_an_algorithm_stands_is_told_how_to_write_it(tmp_path):
    with pytest.raises(InputError, match=r"\{schedule: FILE\}"):
        config(tmp_path, {"all-reduce-implementation": ["ring8.xml"]})


def test_a_file_that_says_little_leaves_the_defaults(tmp_path):
    assert config(tmp_path, {"endpoint-delay": 7}) == SystemConfig(endpoint_delay_ns=7)


def test_keys_that_change_no_result_are_checked_and_dropped(tmp_path):
    assert config(tmp_path, {"trace-enabled": 1, "boost-mode": 0, "L": 0.5}) == SystemConfig()


def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path):
    (problem,) = problems(tmp_path, {"endpoint-dely": 3})
    assert "endpoint-delay" in str(problem)
    assert problem.location.line == 1


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("packet-routing: software", "leave it out"),
        ("direct-collective-window: 4", "direct4"),
        ("all-reduce-implementation-chakra: here", "all-reduce-implementation-custom"),
    ],
)
def test_a_key_of_early_files_is_answered_with_what_later_ones_write(tmp_path, line, hint):
    (problem,) = problems(tmp_path, f"scheduling-policy: LIFO\n{line}\n")
    assert problem.location.line == 2
    assert hint in problem.hint


def test_everything_wrong_with_a_file_is_said_at_once(tmp_path):
    wrong = {
        "scheduling-policy": "RANDOM",
        "endpoint-delay": -1,
        "active-chunks-per-dimension": 0,
        "preferred-dataset-splits": 1.5,
        "local-mem-bw": 0,
        "all-reduce-implementation": ["rnig"],
    }
    assert len(problems(tmp_path, wrong)) == len(wrong)


def test_a_line_without_a_value_and_an_empty_file_are_refused(tmp_path):
    (problem,) = problems(tmp_path, "scheduling-policy: FIFO\nendpoint-delay\n")
    assert (problem.location.line, problem.location.column) == (2, 1)
    (problem,) = problems(tmp_path, "")
    assert "empty" in problem.message
