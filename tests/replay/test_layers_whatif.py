"""Another number of layers, against traces of that many."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.steps.device import SHORT_GAP_NS
from simcore.replay.steps.rank import RankView
from simcore.replay.views.report import to_dict
from simcore.replay.whatif import changes
from simcore.replay.whatif.layers import find_layers
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import recorded
from tests.shared import recording

operations = st.one_of(
    st.tuples(st.just("work"), st.integers(1, 100)),
    st.tuples(st.just("launch"), st.sampled_from(["gemm", "norm"]), st.integers(1, 300)),
)
bodies = st.lists(operations, min_size=1, max_size=8).map(lambda body: [("work", 3), ("launch", "gemm", 40), *body])


def model(layers, forward, backward, batches=1, thread=1):
    """Forward and backward of every layer in ranges, an optimizer's kernel, and a synchronisation."""
    step = [("work", 20)]
    for _ in range(batches):
        step += [("launch", "embedding", 30)]
        step += [("annotate", f"layer {number} forward", forward) for number in range(layers)]
        last_first = [("annotate", f"layer {number} backward", backward) for number in reversed(range(layers))]
        step += [("on", thread, [("launch", "loss", 20), *last_first])]
    return [*step, ("launch", "adam", 70), ("synchronise",), ("work", 10)]


def trace_of(program, rank=0):
    return read_kineto(recorded(program, 3, rank).content(), "made.json")


@settings(deadline=None, max_examples=50)
@given(bodies, bodies, st.integers(2, 5), st.integers(1, 7), st.integers(1, 2))
def test_a_model_of_other_depth_takes_what_its_own_trace_says(forward, backward, layers, wanted, batches):
    """Against a recording of that many. At each seam a short gap may be the device's own or that of a late launch."""
    seams = 2 * batches * max(wanted - layers, 1)
    predicted = replay_traces(
        [trace_of(model(layers, forward, backward, batches))], Changes(), [changes.layers(wanted)]
    )
    measured = trace_of(model(wanted, forward, backward, batches)).steps[1]
    assert predicted.steps[0][1].predicted_ns == pytest.approx(
        measured.end_ns - measured.start_ns, rel=0.02, abs=SHORT_GAP_NS * seams
    )


@pytest.mark.parametrize("wanted", [1, 2, 4, 12])
@pytest.mark.parametrize("length_us", [4, 300])
def test_where_host_or_device_alone_decides_other_depths_are_exact(wanted, length_us):
    """Kernels of 300 us that always queue, or of 4 us that never do."""
    forward, backward = ([("work", 30), ("launch", "gemm", length_us), ("work", rest)] for rest in (20, 40))
    predicted = replay_traces([trace_of(model(4, forward, backward))], Changes(), [changes.layers(wanted)])
    measured = trace_of(model(wanted, forward, backward)).steps[1]
    assert predicted.steps[0][1].predicted_ns == measured.end_ns - measured.start_ns


def test_the_recorded_number_of_layers_changes_nothing():
    trace = trace_of(model(3, [("launch", "gemm", 50)], [("launch", "gemm", 90)]))
    step = replay_traces([trace], Changes(), [changes.layers(3)]).steps[0][1]
    assert (step.predicted_ns, step.timing.copies) == (step.baseline_ns, 4)


def test_a_layer_holds_on_to_its_collectives_on_all_ranks():
    """Two ranks, one 200 us slower a layer: each of six layers costs the slower one's time on both."""
    programs = [
        [
            (
                "annotate",
                f"layer {n}",
                [("launch", "gemm", 300 - 200 * rank), ("launch", "ncclAllReduce", 50 + 200 * rank)],
            )
            for n in range(3)
        ]
        for rank in (0, 1)
    ]
    traces = [trace_of([*program, ("synchronise",)], rank) for rank, program in enumerate(programs)]
    found = replay_traces(traces, Changes(), [changes.layers(6)]).steps
    gained = [steps[1].predicted_ns - steps[1].baseline_ns for steps in found]
    assert gained == pytest.approx([3 * 352_000] * 2, rel=0.01)


UNNAMED = {
    "no ranges": [("launch", "gemm", 50)] * 4,
    "one layer": [("annotate", "layer 0", [("launch", "gemm", 50)])],
    "nothing launched": [("annotate", f"layer {n}", [("work", 5)]) for n in range(3)] + [("launch", "gemm", 50)],
}


@pytest.mark.parametrize("program", UNNAMED.values(), ids=UNNAMED.keys())
def test_layers_need_ranges_that_launch_the_same_kernels(program):
    with pytest.raises(InputError, match="does not say which calls and kernels are a layer"):
        replay_traces([trace_of(program)], Changes(), [changes.layers(2)])


def test_layers_of_a_forward_pass_do_not_stand_for_the_backward_pass():
    recorder = recorded([*[("annotate", f"layer {n}", [("launch", "gemm", 50)]) for n in range(2)], ("work", 40)])
    recorder.add("cpu_op", "autograd::engine::evaluate_function", recorder.now_us - 20, 10, 2)
    with pytest.raises(InputError, match="the backward pass runs outside the ranges 'layer'") as raised:
        replay_traces(
            [read_kineto(json.dumps(recorder.document()).encode(), "made.json")], Changes(), [changes.layers(4)]
        )
    assert "layers cannot be changed" in str(raised.value)


def unnamed(program):
    """The same without ranges."""
    bare = [line for op, *rest in program for line in (rest[1] if op == "annotate" else [(op, *rest)])]
    return [("on", line[1], unnamed(line[2])) if line[0] == "on" else line for line in bare]


whole = [("work", 9), ("launch", "qkv", 60), ("work", 4), ("launch", "proj", 40)]
other = [("work", 9), ("launch", "dqkv", 80), ("work", 4), ("launch", "dproj", 70)]


@settings(deadline=None, max_examples=40)
@given(bodies, bodies, st.integers(3, 5), st.integers(2, 7), st.integers(1, 2))
def test_blocks_that_repeat_are_layers_where_nothing_is_named(forward, backward, layers, wanted, batches):
    """Backward passes run on a thread of their own, so that those of several micro-batches take turns.

    Blocks reach from launch to launch: where a thread's first or last one borders on another thread, a little is lost.
    """
    parts = [*whole, *forward], [*other, *backward]
    trace = trace_of(unnamed(model(layers, *parts, batches, thread=2)))
    try:
        predicted = replay_traces([trace], Changes(), [changes.layers(wanted)]).steps[0][1].predicted_ns
    except InputError as error:
        assert "either could be the layers" in str(error)
        return
    measured = trace_of(model(wanted, *parts, batches, thread=2)).steps[1]
    seams = 2 * batches * max(wanted - layers, 1)
    assert predicted == pytest.approx(measured.end_ns - measured.start_ns, rel=0.05, abs=SHORT_GAP_NS * seams)
    (rank,) = to_dict(replay_traces([trace], Changes()))["ranks"]
    assert (rank["layers"]["count"], rank["layers"]["name"]) == (layers, "")


UNCLEAR = {
    "no block of kernels repeats for half of the computation; the longest do 2 x 2 kernels": [
        *[("launch", "gemm", 50), ("launch", "norm", 5)] * 2,
        ("launch", "adam", 500),
    ],
    "no block of kernels repeats$": [("launch", "gemm", 50)] * 9,
    "whole passes repeat, 3 x 2 kernels .*, but within them no block of kernels repeats": [
        ("launch", "gemm", 50),
        ("launch", "norm", 5),
        ("synchronise",),
    ]
    * 3,
    "3 x 9 kernels (.*) repeat, and 4 x 2 within each block": [
        *[("launch", "gemm", 50), ("launch", "norm", 5)] * 4,
        ("launch", "head", 5),
    ]
    * 3,
    "repeat nearly, but not equally often: 5 x 2 .*, 3 x 2": [
        *[("launch", "gemm", 50), ("launch", "norm", 5)] * 5,
        *[("launch", "dgemm", 50), ("launch", "dnorm", 5)] * 3,
    ],
}


@pytest.mark.parametrize(("found", "program"), UNCLEAR.items(), ids=[text[:30] for text in UNCLEAR])
def test_unclear_repetitions_are_refused_with_what_was_found(found, program):
    with pytest.raises(InputError, match=found):
        replay_traces([trace_of(program)], Changes(), [changes.layers(2)])


PUBLIC_LAYERS = {
    "h100__Qwen_Qwen1.5-0.5B-Chat__1016005": (24, 49),
    "h100__Falconsai_nsfw_image_detection__1016002": (12, 12),
    "h100__gaunernst_bert-small-uncased__1016001": (4, 12),
    "b200__eager_trace": (18, 50),
}


@pytest.mark.parametrize("file", PUBLIC_LAYERS)
def test_public_models_have_as_many_blocks_as_layers(file):
    """Without their module names; in the last one two layers follow each other in turn, 36 in all."""
    (trace,) = recording("tracelens", f"{file}.json.gz")
    nameless = replace(trace, annotations=read_kineto(recorded([("launch", "gemm", 9)]).content(), "").annotations)
    stack = find_layers(RankView(nameless), 0)
    assert (stack.count, stack.kernels, stack.title) == (*PUBLIC_LAYERS[file], "")
    assert find_layers(RankView(trace), 0).title.startswith("nn.Module: ")


@pytest.mark.parametrize("place", [("kineto", "r50_w4.pt.trace"), ("hta", "nccl_parser_config__nccl_data")])
def test_blocks_that_are_not_most_of_a_step_or_not_alike_are_no_layers(place):
    (trace,) = recording(place[0], f"{place[1]}.json.gz")
    with pytest.raises(InputError, match="does not say which calls and kernels are a layer"):
        find_layers(RankView(trace), 1)


def test_public_models_grow_by_their_layers():
    """Inference on an H100 with PyTorch's module stack: Qwen1.5-0.5B has 24 layers, 47.15 ms a pass."""
    traces = recording("tracelens", "h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    times = [
        replay_traces(traces, Changes(), [changes.layers(count)]).steps[0][0].predicted_ns for count in (23, 24, 25, 26)
    ]
    assert times[1] == pytest.approx(47.15e6, rel=0.001)
    assert np.diff(times) == pytest.approx([times[1] / 24] * 3, rel=0.5)
    assert np.diff(times)[1:] == pytest.approx([times[2] - times[1]] * 2, rel=0.01)
