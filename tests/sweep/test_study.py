import inspect
from dataclasses import fields
from itertools import islice
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import api
from simcore.errors import InputError
from simcore.options import SimaiOptions
from simcore.sweep.run import replaced, tasks
from simcore.sweep.study import OPTIONS, Choice, Range, grid, random, read_study, steps

VALUES = st.lists(st.integers(), min_size=1, max_size=4, unique=True)
AXES = st.dictionaries(st.sampled_from([*OPTIONS]), VALUES, max_size=4)


def write(folder, text):
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def problems(folder, text):
    with pytest.raises(InputError) as caught:
        read_study(write(folder, text))
    return caught.value.problems


def test_the_options_are_the_arguments_of_run_but_those_that_change_no_figure():
    closed = {option.name for option in fields(SimaiOptions)}
    assert {*OPTIONS, "link_times", "what_would_help", "explain_profile", "power"} - closed == set(
        inspect.signature(api.run).parameters
    )
    assert closed <= {*OPTIONS}


@given(AXES)
def test_a_grid_has_every_combination_once_and_the_last_axis_is_the_fastest(axes):
    made = [tuple(configuration.values()) for configuration in grid({}, axes)]
    assert len(set(made)) == len(made) == prod(map(len, axes.values()))
    places = [tuple(axis.index(value) for axis, value in zip(axes.values(), one, strict=True)) for one in made]
    assert places == sorted(places)


@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(0, 20))
def test_random_draws_are_decided_by_the_seed_and_more_samples_extend_fewer(seed, fewer, more):
    space = {"topology.bandwidth[0]": Range(1, 1000, log=True), "profile": Choice(("native", "astra-sim-2"))}
    some, others = ([*islice(random({"iterations": 2}, space, seed), count)] for count in (fewer, fewer + more))
    assert others[:fewer] == some
    assert all(1 <= one["topology.bandwidth[0]"] <= 1000 and one["iterations"] == 2 for one in others)


@given(st.integers(1, 1000), st.integers(0, 1000), st.booleans(), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_a_range_keeps_its_ends_and_its_kind(low, span, log, integer, share):
    drawn = Range(low, low + span, log, integer).at(share)
    assert low <= drawn <= low + span
    assert isinstance(drawn, int) or not integer


def test_grid_list_and_random_follow_each_other_on_the_same_base(tmp_path):
    study = read_study(
        write(
            tmp_path,
            "run: {workload: dlrm, topology: ring8}\n"
            "grid:\n  iterations: [1, 2]\n  topology.bandwidth[0]: [25]\n"
            "list:\n- {topology: ring64}\n"
            "random: {samples: 2, seed: 7, values: {comm_scale: {low: 1, high: 2}}}\n",
        )
    )
    assert study.varied == ("iterations", "topology.bandwidth[0]", "topology", "comm_scale")
    assert study.configurations[:3] == (
        {"workload": "dlrm", "topology": "ring8", "iterations": 1, "topology.bandwidth[0]": 25},
        {"workload": "dlrm", "topology": "ring8", "iterations": 2, "topology.bandwidth[0]": 25},
        {"workload": "dlrm", "topology": "ring64"},
    )
    assert all(1 <= one["comm_scale"] <= 2 for one in study.configurations[3:])


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("run: {workload: dlrm}\n", 1, 1, "nothing varies"),
        ("grid:\n  iteration: [1]\n", 2, 3, "unknown key 'iteration'"),
        ("grid:\n  iterations: [1, zero]\n", 2, 19, "iterations[1] must be a whole number"),
        ("grid:\n  iterations: []\n", 2, 15, "iterations has no value"),
        ("grid:\n  topologie.bandwidth[0]: [1]\n", 2, 3, "unknown key 'topologie.bandwidth[0]'"),
        ("list:\n- {comm_scale: -1}\n", 2, 16, "comm_scale must be a number above 0"),
        ("random: {samples: 1, values: {comm_scale: {low: 2, high: 1}}}\n", 1, 43, "comm_scale: not a range"),
        ("random: {samples: 1, values: {topology: {low: 1, high: 2}}}\n", 1, 41, "topology is not a number"),
        ("random: {values: {}}\n", 1, 9, "the key 'samples' is missing"),
        ("method: guess\nrandom: {samples: 1, values: {}}\n", 1, 9, "method is not known"),
        ("method: optuna\ngrid: {iterations: [1]}\n", 1, 9, "there is nothing to search"),
        ("minimize: time_ns\ngrid: {iterations: [1]}\n", 1, 11, "nothing is minimised"),
    ],
)
def test_a_wrong_study_is_told_with_its_place(tmp_path, text, line, column, message):
    found = problems(tmp_path, text)[0]
    assert (found.location.line, found.location.column) == (line, column)
    assert message in found.message


def test_a_grid_beyond_the_limit_is_refused_before_it_is_made(tmp_path):
    axes = "".join(f"  topology.bandwidth[{axis}]: {[*range(100)]}\n" for axis in range(8))
    assert "too large" in problems(tmp_path, f"grid:\n{axes}")[0].message


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("topology.bandwidth[0]", ("topology", ["bandwidth", 0])),
        ("workload.options.seq_length", ("workload", ["options", "seq_length"])),
        ("system.active-chunks-per-dimension", ("system", ["active-chunks-per-dimension"])),
        ("topology", None),
        ("profile.name", None),
        ("topology.", None),
    ],
)
def test_a_part_is_an_input_and_the_way_to_it(name, found):
    assert steps(name) == found


def test_replacing_a_part_leaves_the_original_alone():
    data = {"bandwidth": [50, 25]}
    assert replaced(data, ["bandwidth", 0], 1, "f") == {"bandwidth": [1, 25]}
    assert replaced(data, ["links"], [1, 1], "f") == {"bandwidth": [50, 25], "links": [1, 1]}
    assert data == {"bandwidth": [50, 25]}
    for way in (["bandwidth", 2], ["latency", 0], [0], ["bandwidth", "x"]):
        with pytest.raises(InputError, match="no such part"):
            replaced(data, way, 1, "f")


def test_the_key_follows_the_configuration_and_the_content_of_its_files_and_nothing_else(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("topology: [Ring]")

    def key(**configuration):
        return next(tasks([configuration])).key

    first = key(topology=str(path), iterations=1)
    assert first == key(iterations=1, topology=str(path)) != key(topology=str(path), iterations=2)
    path.write_text("topology: [Switch]")
    assert key(topology=str(path), iterations=1) != first


def test_the_documented_study_is_a_study_of_twelve_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text()
    study = read_study(write(tmp_path, page.split("```yaml\n")[1].split("```")[0]))
    assert len(study.configurations) == 12
