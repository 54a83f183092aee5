"""What a task waited for, where more than one answer fits the record."""

import json
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.steps.coupling import match_collectives
from simcore.replay.steps.rank import NOWHERE, RankView
from simcore.replay.whatif.changes import scale
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import LAUNCH_US, Recorder, recorded


def step_us(content, name, factor):
    """The second step from its dependencies alone, with another length of some kernels."""
    changed = [scale(re.compile(name), factor)]
    steps = replay_traces([read_kineto(content, "made.json")], Changes(residual=False), changed).steps[0]
    return steps[1].predicted_ns / 1000


@pytest.mark.parametrize("longer", ["send", "recv"])
def test_a_kernel_waits_for_all_streams_that_were_done_just_before_it(longer):
    program = [
        ("launch", "gemm", 100), ("launch", "nccl_send", 200, 21, 7), ("launch", "nccl_recv", 200, 23, 7),
        ("launch", "gemm", 100, 7, 21), ("synchronise",),
    ]  # fmt: skip
    content = recorded(program).content()
    assert step_us(content, longer, 2) == step_us(content, longer, 1) + 200


@pytest.mark.parametrize(("name", "saved_us"), [("first", 100), ("other", 200), ("join", 50)])
def test_kernels_of_a_graph_wait_for_its_other_streams(name, saved_us):
    """Their delay behind the launch was kept as work that nobody had recorded."""
    graph = ("first", 200), ("other", 400, 13, 7), ("join", 100, 7, 13)
    content = recorded([("work", 20), ("graph", *graph), ("synchronise",)]).content()
    assert step_us(content, name, 0.5) == step_us(content, name, 1) - saved_us


kernels = st.tuples(st.just("launch"), st.sampled_from(["gemm", "norm"]), st.integers(1, 400), st.sampled_from([7, 9]))


@pytest.mark.parametrize("steps", [4, 10])
def test_a_graph_is_one_launch_in_the_queue_and_takes_its_time(steps):
    """Its call of 100 us was taken for one that a queue of as many launches as it has kernels had held up."""
    recorder = Recorder()
    for _ in range(steps):
        for _ in range(200):
            recorder.launch("gemm", 2)
        recorder.graph(*[("gemm", 1)] * 180)
        recorder.events[-181]["dur"], recorder.now_us = 100, recorder.now_us + 100 - LAUNCH_US
        recorder.work(400)
        recorder.launch("gemm", 2)
        recorder.synchronise()
        recorder.mark()
    (found,) = replay_traces([read_kineto(recorder.content(), "made.json")], Changes(residual=False)).steps
    assert {(step.predicted_ns, step.source.graph.left_out) for step in found} == {(found[0].measured_ns, 0)}


@settings(deadline=None, max_examples=60)
@given(st.lists(kernels, min_size=1, max_size=8), st.sets(st.integers(0, 30), min_size=10))
def test_kernels_without_a_launch_belong_to_the_step_in_which_they_run(program, lost):
    """Any but a step's first, and those of a stream before its first recorded launch: these began before the trace."""
    recorder = recorded([("work", 10), ("launch", "first", 5), *program, ("synchronise",)])
    whole = RankView(read_kineto(recorder.content(), "made.json"))
    document = recorder.document()
    for event in document["traceEvents"]:
        if event["cat"] == "kernel" and event["name"] != "first" and event["args"]["correlation"] in lost:
            del event["args"]["correlation"]
    part = RankView(read_kineto(json.dumps(document).encode(), "made.json"))
    for rows in part.stream_tasks:
        later = np.maximum.accumulate(part.launch[rows]) != NOWHERE if (part.launch[rows] >= 0).any() else rows >= 0
        assert (part.task_step[rows][later] == whole.task_step[rows][later]).all()


lengths = st.integers(100, 400)


@settings(deadline=None, max_examples=60)
@given(lengths, lengths, lengths, st.sampled_from([0.25, 0.5, 2, 4]), st.booleans())
def test_the_host_waits_for_what_an_event_was_recorded_behind(first, second, third, factor, before):
    """Not for what ended last while it waited, nor for all that the step before launched on the stream."""

    def made(second):
        ahead = [("launch", "first", first), ("record", 7), ("launch", "second", second, 7 if before else 9)]
        behind = [("launch", "third", third, 7 if before else 11)]
        program = [("await_record",), *ahead, *behind] if before else [*ahead, ("await_record",), *behind]
        return recorded(program if before else [*program, ("synchronise",)], 6).content()

    trace, truth = (read_kineto(made(length), "made.json") for length in (second, second * factor))
    (steps,) = replay_traces([trace], Changes(residual=False), [scale(re.compile("second"), factor)]).steps
    assert steps[3].baseline_ns == pytest.approx(trace.steps[3].length_ns, abs=2)
    assert steps[3].predicted_ns == pytest.approx(truth.steps[4].length_ns, abs=2)


streams = st.sampled_from([7, 9, 11, 13])
launches = st.tuples(st.just("launch"), st.sampled_from(["gemm", "norm"]), st.integers(100, 400), streams)
handed = st.tuples(st.just("hand_on"), streams, streams).filter(lambda one: one[1] != one[2])
awaited = st.tuples(st.just("await_stream"), streams)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(launches, handed, handed, awaited), min_size=3, max_size=12), st.sampled_from([2, 3]))
@example([("launch", "gemm", 247, 11), ("hand_on", 7, 11), ("hand_on", 11, 9), ("launch", "gemm", 100, 9)], 2)
@example([("launch", "gemm", 247, 11), ("hand_on", 11, 9), ("await_stream", 9), ("launch", "norm", 400, 13)], 2)
def test_streams_wait_for_what_those_that_they_wait_for_waited_for(program, factor):
    """Also where one was told to wait and got no work before its event: nothing then stood between the other two. The
    host waits for the same where it synchronises a stream.
    """
    first = [("launch", "norm", 10, stream) for stream in (7, 9, 11, 13)]  # traces know streams by their tasks
    program = [("work", 20), *first, ("launch", "gemm", 300, 7), *program, ("synchronise",)]
    longer = [(*one[:2], factor * one[2], *one[3:]) if "gemm" in one else one for one in program]
    trace, truth = (read_kineto(recorded(each, 4).content(), "made.json") for each in (program, longer))
    (steps,) = replay_traces([trace], Changes(residual=False), [scale(re.compile("gemm"), factor)]).steps
    assert steps[2].predicted_ns == pytest.approx(truth.steps[2].length_ns, abs=1000 * len(program))


@pytest.mark.parametrize(("said", "later_us"), [(0, 0), (1, 45), (None, 10)])
def test_a_device_synchronisation_waits_for_the_device_that_is_told(said, later_us):
    """Kernels of 100 us on device 0 and of 60 us, then 105, on device 1, in one process."""
    recorder = recorded([("launch", "gemm", 100), ("launch", "other", 60, 8), ("synchronise",)])
    for event in list(recorder.events):
        if event["name"] == "other":
            event["args"]["device"] = 1
        if event["name"] == "cudaDeviceSynchronize" and said is not None:
            told = {"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 0, "device": said}
            recorder.add("cuda_sync", "Context Sync", event["ts"], event["dur"], 9, **told)
    content = recorder.content()
    assert step_us(content, "other", 1.75) == step_us(content, "other", 1) + later_us


def launching(rank, order, called):
    """A rank that launches all-reduces of two ranks in some order, that of communicator n on stream 20 + n."""
    recorder = Recorder(rank)
    for number in order:
        recorder.launch("ncclAllReduce", 10 * (number + 1), 20 + number)
        said = {"Collective name": "allreduce", "Group size": 2, "Process Group Ranks": "[0, 1]"}
        recorder.events[-1]["args"] |= said | {"Process Group Name": called[number]}
    recorder.synchronise()
    recorder.mark()
    return RankView(read_kineto(recorder.content(), f"rank{rank}.json"))


@settings(deadline=None, max_examples=40)
@given(*[st.permutations(range(4))] * 2, st.booleans())
def test_communicators_of_the_same_ranks_have_an_order_each(first, second, alike):
    """Where ranks call them differently, nothing tells which is which but the order of all."""
    names = [f"pg{number}" for number in range(4)]
    ranks = launching(0, first, names), launching(1, second, names if alike else [f"own {name}" for name in names])
    streams = [
        [ranks[one.rank].trace.streams[ranks[one.rank].trace.tasks.lane[one.task]][1] - 20 for one in match.members]
        for match in match_collectives(ranks, (0, 0))
    ]
    asked = zip(*[range(4)] * 2, strict=True) if alike else zip(first, second, strict=True)
    assert sorted(streams) == sorted(map(list, asked))


def pipelined(rank, *, together):
    """A rank of four whose 20 transfers name no group: with all of them, or with the one two further alone. Before each
    it computes, 100 us longer in every other pair's turn, where that is not `together`.

    An all-reduce of all, which says its group, ends each step at one time.
    """
    recorder = Recorder(rank, now_us=1e6 * rank, began_us=1e6 * rank)
    for _ in range(3):
        for number in range(20):
            recorder.launch("gemm", 100 if together else 100 + 100 * ((number + rank) % 2), 21)
            recorder.launch("ncclDevKernel_SendRecv", 50, 21)
        recorder.launch("ncclDevKernel_AllReduce", 50, 21)
        said = {"Collective name": "allreduce", "Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"}
        recorder.events[-1]["args"] |= said
        recorder.synchronise()
        recorder.mark()
    return read_kineto(recorder.content(), f"rank{rank}.json")


@pytest.mark.parametrize(("together", "matched"), [(True, 21), (False, 1)])
def test_kernels_that_name_no_group_are_collectives_of_all_where_they_end_together(together, matched):
    """Else the pairs waited for each other in turns: a step of 4.1 ms took 5.1."""
    traces = [pipelined(rank, together=together) for rank in range(4)]
    (first, *_) = replay_traces(traces, Changes(residual=False)).steps
    assert len(first[1].source.matches) == matched
    assert first[1].predicted_ns == first[1].measured_ns
