"""Named ranges: what they tell of layers, passes and micro-batches."""

import json

import pytest

from simcore.replay.whatif.layers import layer_number, model_order, named_ranges
from simcore.workload.kineto import StepMark
from simcore.workload.kineto_reader import read_kineto


def ranges_of(*named):
    """(name, start, end) in microseconds on one thread, with a kernel so that it is a trace."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 0, "tid": 1, "ts": start, "dur": end - start}
        for name, start, end in named
    ]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 1, "args": {"stream": 7}}
    trace = read_kineto(json.dumps({"traceEvents": [*events, kernel]}).encode(), "rank0.json")
    return named_ranges(trace, StepMark(0, 0, 1 << 40, 0))


@pytest.mark.parametrize(
    ("name", "number"),
    [("layer 3", 3), ("layers.12", 12), ("decoder.layers.7", 7), ("layer norm", -1), ("player 3", -1)],
)
def test_layers_are_told_by_a_number(name, number):
    assert layer_number(name) == number


def test_the_nth_range_of_a_name_is_the_nth_micro_batch():
    found = ranges_of(("layers.0 forward", 0, 9), ("layers.0 forward", 10, 19), ("layers.0 backward", 20, 29))
    assert [(one.part, one.kind, one.micro_batch) for one in found] == [
        ("layer 0", "F", 0), ("layer 0", "F", 1), ("layer 0", "B", 0),
    ]  # fmt: skip


def test_what_is_computed_again_in_a_backward_pass_belongs_to_it():
    first, again, weights = ranges_of(
        ("layer 0 backward", 0, 99), ("layer 0 forward", 1, 9), ("layer 0 weight gradient", 50, 99)
    )
    assert (first.kind, again.kind, weights.kind) == ("B", "", "")
    assert again.way == weights.way == "backward"
    assert (again.weight, weights.weight) == (False, True)


def test_of_equal_spans_the_weight_gradient_is_inside():
    outer, inner = ranges_of(("layer 0 weight gradient", 0, 9), ("layer 0 backward", 0, 9))
    assert (outer.weight, inner.weight) == (False, True)


def test_parts_that_only_go_backwards_stand_where_the_backward_pass_has_them():
    passes = ["layer 0 forward", "head forward", "again backward", "head backward", "layer 0 backward"]
    assert model_order(ranges_of(*((name, 10 * at, 10 * at + 9) for at, name in enumerate(passes)))) == (
        "layer 0", "head", "again",
    )  # fmt: skip
