"""Laws of the replay, on traces made to order and on public ones."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.api import run
from simcore.errors import InputError, SimcoreError
from simcore.replay.run import Changes, replay
from simcore.replay.session import replay_traces
from simcore.replay.steps.build import Prepared, build_step
from simcore.replay.views.report import to_dict
from simcore.replay.views.trial import VARIANTS, ablations
from simcore.replay.views.workloads import to_chakra, to_workload_text
from simcore.replay.whatif.changes import overlap, scale, straggler
from simcore.replay.whatif.retiming import Degree, Retimed
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder, recorded
from tests.shared import recording

EVERYTHING = re.compile(".*")
ABLATIONS = ("interstream", "sync", "gaps", "coupling", "residual")

operations = st.one_of(
    st.tuples(st.just("work"), st.integers(1, 200), st.integers(0, 100)),
    st.tuples(st.just("launch"), st.sampled_from(["gemm", "norm"]), st.integers(1, 400), st.sampled_from([7, 9])),
    st.tuples(st.just("launch"), st.just("ncclAllReduce"), st.integers(1, 400), st.just(21), st.just(7)),
    st.tuples(st.just("launch"), st.just("adam"), st.integers(1, 50), st.just(7), st.just(21)),
    st.tuples(st.just("synchronise")),
)
programs = st.lists(operations, min_size=1, max_size=25).map(
    lambda lines: [("work", 10), ("launch", "first", 5), *lines, ("work", 10)]
)


def traced(program, steps=3, rank=0):
    return read_kineto(recorded(program, steps, rank).content(), "made.json")


def periods(trace, changes=Changes(), factor=None):  # noqa: B008 - frozen
    scales = [scale(EVERYTHING, factor)] if factor is not None else []
    return [step.period.device_ns for step in replay_traces([trace], changes, scales).steps[0]]


@settings(deadline=None, max_examples=40)
@given(programs, st.integers(0, 100))
def test_shorter_tasks_never_lengthen_the_period(program, percent):
    trace = traced(program)
    for whole, part in zip(periods(trace), periods(trace, factor=percent / 100), strict=True):
        assert part <= whole


@settings(deadline=None, max_examples=40)
@given(programs, st.sampled_from(ABLATIONS))
def test_leaving_out_dependencies_never_delays_anything(program, left_out):
    rank = Prepared(traced(program))
    graph = build_step([rank], [1], [])
    whole = replay(graph, Changes(), copies=4)
    part = replay(graph, Changes(**{left_out: False}), copies=4)
    assert (part.start_ns <= whole.start_ns).all()


@settings(deadline=None, max_examples=40)
@given(programs)
def test_the_four_shares_of_a_breakdown_add_up_to_the_step(program):
    document = to_dict(replay_traces([traced(program)], Changes()))
    (rank,) = document["ranks"]
    scored = rank["steps"][1:]
    any_steady = any(step["steady"] for step in scored)
    spans = [s["measured_ns"] if s["steady"] else s["device_ns"] for s in scored if s["steady"] or not any_steady]
    assert sum(rank["breakdown"]["measured"].values()) == sum(spans) // len(spans)
    assert min(rank["breakdown"]["predicted"].values()) >= 0
    json.dumps(document, allow_nan=False)


@settings(deadline=None, max_examples=40)
@given(programs, st.randoms(use_true_random=False))
def test_damaged_traces_replay_or_are_refused(program, random):
    """Lost, shifted and renumbered events, on two ranks: never anything but a report or one of our errors."""
    traces = []
    for rank in (0, 1):
        document = recorded(program, 3, rank).document()
        document["traceEvents"] = [
            damaged(event, random) for event in document["traceEvents"] if random.random() > 0.05
        ]
        traces.append(json.dumps(document).encode())
    try:
        ranks = [read_kineto(content, f"rank{rank}") for rank, content in enumerate(traces)]
        json.dumps(to_dict(replay_traces(ranks, Changes())), allow_nan=False)
    except SimcoreError:
        pass


def damaged(event, random):
    changes = ({"ts": event["ts"] + 300}, {"dur": None}, {"dur": -5}, {"tid": "2"}, {"name": "cudaStreamSynchronize"})
    arguments = ({"correlation": None}, {"correlation": 1}, {"stream": "0x0"}, {"device": 1.0})
    if random.random() < 0.1:
        event = event | random.choice(changes)
    if random.random() < 0.1:
        event = event | {"args": event["args"] | random.choice(arguments)}
    return event


@settings(deadline=None, max_examples=30)
@given(programs)
def test_a_step_that_ends_synchronised_is_predicted_exactly(program):
    """Nothing reaches beyond such a step, so its copies are the step itself."""
    trace = traced([*program, ("synchronise",)])
    measured = [step.end_ns - step.start_ns for step in trace.steps]
    assert np.allclose(periods(trace), measured, rtol=0.002, atol=3_000)


def test_a_host_bound_step_takes_the_hosts_time_whatever_the_device_does():
    trace = traced([("work", 500, 200), ("launch", "gemm", 50)])
    assert periods(trace)[1:] == periods(trace, factor=0.1)[1:] == [705_000, 705_000]


def test_a_device_bound_step_takes_the_devices_time_though_the_host_runs_ahead():
    """The marks are and stay 15 us apart; three kernels of 300 us and their gaps of 1 us are the device's period."""
    trace = traced([("launch", "gemm", 300)] * 3)
    assert trace.steps[0].end_ns - trace.steps[0].start_ns == 15_000
    assert periods(trace)[1:] == [903_000, 903_000]
    steps = replay_traces([trace], Changes()).steps[0]
    assert [step.steady for step in steps] == [False, False, False]
    assert [step.predicted_ns for step in steps] == [15_000, 15_000, 15_000]


def test_time_that_the_host_waits_is_no_host_time():
    """Blocking time inside the call would keep the step long when its kernels get shorter."""
    trace = traced([("work", 20), ("launch", "gemm", 1000), ("synchronise",)])
    assert periods(trace, factor=0.5)[1] == periods(trace)[1] - 500_000


def test_only_matching_tasks_are_scaled():
    trace = traced([("work", 20), ("launch", "gemm", 100), ("launch", "norm", 50), ("synchronise",)])
    scales = [scale(re.compile("^norm$"), 3.0)]
    assert replay_traces([trace], Changes(), scales).steps[0][1].predicted_ns == periods(trace)[1] + 100_000


def test_a_straggler_holds_the_other_ranks_up():
    """Rank 0 computes 400 us longer and rank 1 waits for it."""
    work = [("launch", "gemm", 400), ("launch", "ncclAllReduce", 50, 21, 7), ("synchronise",)]
    traces = [traced(work, 2, rank) for rank in (0, 1)]
    plain, slow = (replay_traces(traces, Changes(), whats).steps for whats in ([], [straggler((range(1),), 2.0)]))
    assert [s[1].predicted_ns - p[1].predicted_ns for p, s in zip(plain, slow, strict=True)] == [400_000, 400_000]


@settings(deadline=None, max_examples=40)
@given(programs)
def test_more_overlap_never_takes_longer(program):
    """Copy by copy: a period can differ as long as a slower stream has not caught up with a busier one."""
    trace = traced(program)
    whats = ([overlap("full")], [], [overlap("off")])
    for steps in zip(*(replay_traces([trace], Changes(), what).steps[0] for what in whats), strict=True):
        full, plain, off = (step.timing.end_ns.max(axis=1) for step in steps)
        for less, more in ((full, plain), (plain, off)):
            copies = min(len(less), len(more))
            assert (less[:copies] <= more[:copies]).all()


def test_overlap_is_worth_what_runs_at_the_same_time():
    """An all-reduce of 300 us beside a kernel of 400 us: one after the other, the step takes 300 us more."""
    beside = [
        ("launch", "gemm", 100),
        ("launch", "ncclAllReduce", 300, 21, 7),
        ("launch", "gemm", 400),
        ("synchronise",),
    ]
    step = replay_traces([traced(beside)], Changes(), [overlap("off")]).steps[0][1]
    assert step.period.device_ns - step.baseline.device_ns == pytest.approx(300_000, abs=3_000)
    waiting = [("launch", "gemm", 400), ("launch", "ncclAllReduce", 300, 21, 7), ("synchronise",)]
    step = replay_traces([traced(waiting)], Changes(), [overlap("full")]).steps[0][1]
    assert step.period.device_ns - step.baseline.device_ns == pytest.approx(-300_000, abs=10_000)


def all_reducing(size, description):
    document = recorded([("launch", "gemm", 400), ("launch", "ncclAllReduce", 60, 21, 7), ("synchronise",)]).document()
    said = {"Collective name": "allreduce", "In msg nelems": 9, "Group size": size}
    for event in document["traceEvents"]:
        if event["name"] == "ncclAllReduce":
            event["args"] |= said | {"Process Group Name": "0", "Process Group Description": description}
    return read_kineto(json.dumps(document).encode(), "made.json")


@pytest.mark.parametrize(("size", "degree", "longer_ns"), [(2, 4, 30_000), (4, 2, -20_000), (8, 8, 0), (2, 1, -60_000)])
def test_another_data_parallel_degree_changes_what_each_rank_sends(size, degree, longer_ns):
    """Each rank sends (n - 1) / n of twice the buffer; the recorded 60 us follow."""
    trace = all_reducing(size, "default_pg")
    changed = replay_traces([trace], Changes(), [Retimed((Degree("dp", degree),))]).steps[0][1]
    assert changed.predicted_ns - changed.baseline_ns == longer_ns


def test_a_data_parallel_degree_needs_to_know_the_group():
    with pytest.raises(InputError, match="which collectives are data parallel"):
        replay_traces([traced([("launch", "ncclAllReduce", 60)])], Changes(), [Retimed((Degree("dp", 4),))])


def test_a_wait_between_streams_is_inferred_and_its_removal_shortens_the_step():
    program = [("launch", "gemm", 400), ("launch", "ncclAllReduce", 300, 21, 7), ("launch", "adam", 40, 7, 21)]
    trace = traced([*program, ("synchronise",)])
    rank = Prepared(trace)
    assert build_step([rank], [1], []).edge_counts(0)["interstream_inferred"] == 2
    assert periods(trace, Changes(interstream=False))[1] < periods(trace)[1] - 200_000


def ranks_of(work_us):
    """Ranks that differ in the time before their collective; each kernel lasts until 50 us after the last came."""
    last = max(work_us)
    programs = [[("work", own), ("launch", "ncclAllReduce", last - own + 50), ("synchronise",)] for own in work_us]
    return [traced(program, 1, rank) for rank, program in enumerate(programs)]


def test_a_collective_waits_for_the_last_rank_and_is_intrinsically_short():
    traces = ranks_of([100, 700, 300])
    together = replay_traces(traces, Changes())
    alone = replay_traces(traces, Changes(coupling=False))
    assert [steps[0].predicted_ns for steps in together.steps] == [760_000] * 3
    assert [steps[0].predicted_ns for steps in alone.steps] == [160_000, 760_000, 360_000]
    assert to_dict(together)["stragglers"] == {"1": 1}


def test_dependencies_grow_as_the_ranks_do():
    few, more, many = (
        len(replay_traces(ranks_of([100] * ranks), Changes()).steps[0][0].graph.source) for ranks in (4, 8, 12)
    )
    assert many - more == more - few


def in_groups(rank, groups, late_us):
    """A rank of which each kernel and collective ends with those of the others, and whose clock is late."""
    recorder = Recorder(rank)
    for group in groups:
        recorder.launch("gemm", 100)
        recorder.launch("ncclAllReduce", 60, 21, 7)
        if rank in group:
            recorder.events[-1]["args"] |= {"Collective name": "allreduce", "Process Group Ranks": str(group)}
        recorder.synchronise()
    recorder.mark()
    for event in recorder.events:
        event["ts"] += late_us
    return read_kineto(recorder.content(), f"rank{rank}")


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(4)), st.lists(st.integers(-90_000, 90_000), min_size=4, max_size=4))
def test_clocks_of_ranks_change_nothing_wherever_collectives_lead_from_one_to_another(order, late_us):
    """As in a pipeline, where the first and the last stage have no collective in common."""
    groups = [sorted(pair) for pair in pairwise(order)]
    found = replay_traces([in_groups(rank, groups, late_us[rank]) for rank in range(4)], Changes())
    assert {steps[0].predicted_ns for steps in found.steps} == {found.steps[0][0].measured_ns}


CONTROL = ("hta", "trace_diff__control__control.json.gz")
RAMP = ("hta", "ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")


def mean_error(found):
    """Of the first rank's steps after the first."""
    steps = found.steps[0][1:]
    return float(np.mean([abs(step.error) for step in steps]))


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        (Changes(), 0.0, 0.001),
        (Changes(residual=False), 0.0, 0.01),
        (Changes(residual=False, interstream=False), 0.10, 0.20),
        (Changes(residual=False, sync=False), 0.10, 0.20),
    ],
)
def test_a_recommendation_model_needs_waits_between_streams_and_synchronisation(changes, low, high):
    """HTA's control trace, rank 3 of 8 A100: measured 75.5 to 81.1 ms a step."""
    assert low <= mean_error(replay_traces(recording(*CONTROL), changes)) <= high


def test_steps_in_which_the_host_ran_ahead_tell_the_period_of_the_later_ones():
    """V100: the marks of the first two steps are 35.1 and 72.1 ms apart, of the later ones 95.7 ms."""
    found = periods(recording(*RAMP)[0])
    assert all(abs(period / 95.7e6 - 1) < 0.01 for period in found)


def test_what_a_graph_ran_unrecorded_is_kept_as_its_work_and_said():
    """A100, rank 0 of 16: a graph of 64 ms of which only the last memset was recorded; measured 216 ms a step."""
    found = replay_traces(
        recording("hta", "negative_queue_length_values_check__rank0.json.gz"), Changes(residual=False)
    )
    assert mean_error(found) < 0.02
    (rank,) = to_dict(found)["ranks"]
    assert any("inside graphs has no recorded kernel" in warning for warning in rank["warnings"])


def test_the_launch_queue_of_a_v100_holds_1021_tasks():
    rank = Prepared(recording(*RAMP)[0])
    assert rank.queue.depth == 1021
    assert len(rank.queue.blocked) > 900


def test_steps_shorter_than_the_device_needs_are_reported_as_not_steady():
    """MI300X, rank 0 of 8: marks 16 ms apart, while the device takes 18.98 and 18.55 ms and falls further behind."""
    (trace,) = recording("tracelens", "mi300__resnet_act_checkpoint.json.gz")
    steps = replay_traces([trace], Changes()).steps[0][1:]
    assert not any(step.steady for step in steps)
    assert all(abs(step.period.device_ns / step.device_ns - 1) < 0.01 for step in steps)
    assert all(abs(step.error) < 0.001 for step in steps)


def test_eight_coupled_ranks_keep_their_step_times():
    """DLRM on 8 V100 (PARAM), ProfilerStep of ranks 0 to 7 in ms."""
    measured = [14.455, 19.901, 13.017, 19.313, 17.979, 17.797, 13.091, 12.509]
    traces = recording("param", "dlrm_kineto.tar.gz")
    together, alone = (replay_traces(traces, Changes(coupling=coupled)).steps for coupled in (True, False))
    errors = [abs(steps[0].predicted_ns / (ms * 1e6) - 1) for steps, ms in zip(together, measured, strict=True)]
    assert max(errors) < 0.001
    assert np.mean([1 - steps[0].predicted_ns / (ms * 1e6) for steps, ms in zip(alone, measured, strict=True)]) > 0.1


def test_the_ablation_table_says_what_each_kind_of_dependency_is_worth():
    table = ablations([Prepared(trace) for trace in recording(*CONTROL)])
    assert list(table)[: len(VARIANTS)] == list(VARIANTS)
    assert table["null_model"][0] > 0.1 > table["next_step_as_this"][0]
    assert table["no_residual"][0] < 0.01 < 0.1 < min(table["no_interstream"][0], table["no_sync"][0])


def test_an_exported_step_takes_the_recorded_time_on_a_fast_network(tmp_path):
    """A100, rank 0 of 2, measured 219.8 to 224.9 ms; its five all-reduces are the simulated network's."""
    replay_of_two = replay_traces(recording("hta", "nccl_parser_config__nccl_data.json.gz"), Changes())
    exported = to_chakra(replay_of_two)
    assert (sorted(exported.files), exported.collectives) == ([0, 1], 5)
    for rank, content in exported.files.items():
        (tmp_path / f"step.{rank}.et").write_bytes(content)
    machine = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [150GB/s]\nlatency: [500ns]\n"
    (tmp_path / "two.yml").write_text(machine)
    report = run(str(tmp_path / "step"), str(tmp_path / "two.yml"))
    assert abs(report.timeline.time_ns / 219.79e6 - 1) < 0.01


def test_an_exported_text_has_a_row_for_every_sized_collective():
    trace = all_reducing(4, "default_pg")
    with pytest.raises(InputError, match="no collective says its kind and size"):
        to_workload_text(replay_traces([trace], Changes()))
    recorded_two = replay_traces(recording("hta", "nccl_parser_config__nccl_data.json.gz"), Changes())
    assert to_workload_text(recorded_two).count("ALLREDUCE") == 5
