"""Kineto traces of every vintage become the same columns."""

import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.report import to_dict
from simcore.workload.kineto import KERNEL
from simcore.workload.kineto_reader import read_kineto, read_ranks
from tests.profiles_of_steps import recorded
from tests.shared import shared

PROGRAM = [("work", 10), ("launch", "gemm", 20), ("launch", "ncclDevKernel_AllReduce", 30, 9), ("synchronise",)]


def lengths(trace):
    return (trace.tasks.end_ns - trace.tasks.start_ns).tolist()


def old_spelling(document):
    """As the profiler wrote it in 2020: other categories, threads as texts, a bare list."""
    names = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator", "user_annotation": "Operator"}
    return [event | {"cat": names[event["cat"]], "tid": str(event["tid"])} for event in document["traceEvents"]]


def test_calls_tasks_operators_and_steps_are_told_apart():
    trace = read_kineto(recorded(PROGRAM).content(), "t.json")
    assert (len(trace.calls), len(trace.tasks), len(trace.operators), len(trace.steps)) == (9, 6, 3, 3)
    assert trace.streams == ((0, 7), (0, 9))
    assert lengths(trace) == [20_000, 30_000] * 3
    assert set(trace.tasks.kind.tolist()) == {KERNEL}


def test_the_old_spelling_reads_as_the_new_one():
    document = recorded(PROGRAM).document()
    new = read_kineto(json.dumps(document).encode(), "t.json")
    old = read_kineto(json.dumps(old_spelling(document)).encode(), "t.json")
    assert lengths(old) == lengths(new)
    assert old.tasks.start_ns.tolist() == new.tasks.start_ns.tolist()
    assert [step.index for step in old.steps] == [0, 1, 2]


def kept(document, content=b""):
    """All that a replay uses of a document."""
    trace = read_kineto(content or json.dumps(document).encode(), "t.json")
    said = [(row, one.operation, one.elements) for row, one in trace.collectives.items()]
    return lengths(trace), trace.tasks.lane.tolist(), trace.calls.correlation.tolist(), said, trace.device


def stream_as_thread(event):
    """A kernel of a version that does not say its stream: the row of the timeline is the stream."""
    if event["cat"] != "kernel":
        return event
    said = {key: value for key, value in event["args"].items() if key != "stream"}
    return event | {"tid": f"stream {event['args']['stream']}", "args": said}


def renamed(arguments, old, new):
    return {new if key == old else key: value for key, value in arguments.items()}


@pytest.mark.parametrize(
    "change",
    [
        stream_as_thread,
        lambda event: event | {"args": renamed(event["args"], "stream", "sycl queue")},
        lambda event: event | {"ts": str(event["ts"]), "dur": str(event["dur"])},
        lambda event: event | {"pid": str(event["pid"]), "cat": event["cat"].replace("cuda_", "privateuse1_")},
        lambda event: event | {"cat": event["cat"].replace("cuda_", "xpu_").upper()},
    ],
)
def test_events_as_other_versions_and_makers_write_them_say_the_same(change):
    document = recorded(PROGRAM).document()
    other = document | {"traceEvents": [change(event) for event in document["traceEvents"]]}
    assert kept(other) == kept(document)


@pytest.mark.parametrize("key", ["deviceProperties", "computeProperties"])  # the second in 2021
def test_every_version_names_the_device(key):
    document = recorded(PROGRAM).document() | {key: [{"id": 0, "name": "Tesla V100-DGXS-32GB"}]}
    assert read_kineto(json.dumps(document).encode(), "t.json").device == "Tesla V100-DGXS-32GB"


def test_a_head_of_another_form_a_byte_order_mark_and_numbers_that_are_none_do_no_harm():
    document = recorded(PROGRAM).document()
    strange = document | {"distributedInfo": [], "deviceProperties": {"0": 1}, "baseTimeNanoseconds": "?"}
    strange["traceEvents"] = [event | {"args": event["args"] | {"x": 7.5}} for event in document["traceEvents"]]
    strange |= {"traceName": "C:"}
    said = json.dumps(strange).replace('"x": 7.5', '"x": -nan', 1).replace("C:", r"C:\Users\q.json")
    content = b"\xef\xbb\xbf" + said.replace('"x": 7.5', '"blocks per SM": 7,5').encode()
    content = content.replace(b'"gemm"', b'"g\xffmm"')
    assert kept(None, content)[:4] == kept(document)[:4]


def test_ranks_whose_clocks_count_from_other_times_are_compared_on_one():
    document = recorded(PROGRAM).document()
    later = document | {"baseTimeNanoseconds": 5_000_000}
    later["traceEvents"] = [event | {"ts": event["ts"] - 5_000} for event in document["traceEvents"]]
    one, other = (read_kineto(json.dumps(each).encode(), "t.json") for each in (document, later))
    assert one.base_ns + one.tasks.start_ns[0] == other.base_ns + other.tasks.start_ns[0]


def test_what_only_the_operator_around_a_launch_says_of_a_collective_is_its_kernels():
    """PyTorch 2.2 writes NCCL's arguments on the operator, later versions on the kernel, too."""
    document = recorded(PROGRAM, steps=1).document()
    launch = next(event for event in document["traceEvents"] if event["args"].get("correlation") == 2)
    said = {"Collective name": "allreduce", "In msg nelems": 1024, "Group size": 2, "dtype": "Float"}
    operator = launch | {"cat": "cpu_op", "name": "record_param_comms", "args": said}
    assert kept(document)[3] == []
    (found,) = kept(document | {"traceEvents": [*document["traceEvents"], operator]})[3]
    assert found[1:] == ("allreduce", 1024)


def halves(event):
    """A complete event as its beginning and its end."""
    end = {key: event[key] for key in ("pid", "tid", "ts")}
    return [{key: value for key, value in event.items() if key != "dur"} | {"ph": "B"},
            end | {"ph": "E", "ts": event["ts"] + event["dur"]}]  # fmt: skip


@given(st.sets(st.sampled_from(["cpu_op", "cuda_runtime", "kernel"])), st.data())
@settings(deadline=None, max_examples=30)
def test_events_whose_beginning_and_end_stand_apart_read_as_complete_ones(categories, data):
    document = recorded(PROGRAM).document()
    whole = [event for event in document["traceEvents"] if event["cat"] not in categories]
    parts = [half for event in document["traceEvents"] if event["cat"] in categories for half in halves(event)]
    split = document | {"traceEvents": data.draw(st.permutations(whole)) + parts}
    one, other = (read_kineto(json.dumps(each).encode(), "t.json") for each in (document, split))
    for rows in ("calls", "operators", "tasks"):
        first, second = (getattr(trace, rows) for trace in (one, other))
        assert first.start_ns.tolist() == second.start_ns.tolist() and first.end_ns.tolist() == second.end_ns.tolist()
    if parts:
        split["traceEvents"].pop()
        place = len(whole) + len(parts) - 2
        with pytest.raises(InputError, match=rf"traceEvents\[{place}\]: .* begins and never ends"):
            read_kineto(json.dumps(split).encode(), "t.json")


@pytest.mark.parametrize("name", ["gemm", "cudaLaunchKernel", "aten::op", "ProfilerStep#1"])
@pytest.mark.parametrize("change", [{"dur": -5}, {"dur": None}, {}])
def test_events_that_do_not_end_are_counted(name, change):
    document = recorded(PROGRAM).document()
    chosen = [event for event in document["traceEvents"] if event["name"] == name]
    for event in chosen:
        del event["dur"]
        event.update(change)
    trace = read_kineto(json.dumps(document).encode(), "t.json")
    (rank,) = to_dict(replay_traces([trace], Changes()))["ranks"]
    assert trace.endless == len(chosen)
    assert sum(f"{len(chosen)} events have no duration" in text for text in rank["warnings"]) == 1
    assert min(step["measured_ns"] for step in rank["steps"]) >= 0


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_events_that_stand_twice_count_once(data):
    """As in a profile joined from two that overlap: ranks waited twice as long for each other."""
    document = recorded(PROGRAM).document()
    events = document["traceEvents"]
    again = data.draw(st.permutations([event for event in events if "Step" not in event["name"]]))
    again = again[: data.draw(st.integers(0, len(again)))]
    twice = document | {"traceEvents": events + again}
    once, other = (read_kineto(json.dumps(each).encode(), "t.json") for each in (document, twice))
    assert other.again == len(again)
    (rank,), (expected,) = (to_dict(replay_traces([trace], Changes()))["ranks"] for trace in (other, once))
    warnings = rank.pop("warnings")
    assert any(text.startswith(f"{len(again)} events stand") for text in warnings) == bool(again)
    assert expected.pop("warnings") == [text for text in warnings if "a second time" not in text]
    assert rank == expected


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(3)))
def test_steps_are_in_the_order_of_their_marks_whatever_their_numbers(numbers):
    """A trace joined from two profiles, say: a step of a smaller number behind one of a larger took a time below 0."""
    document = recorded(PROGRAM).document()
    usual = read_kineto(json.dumps(document).encode(), "t.json")
    for event in document["traceEvents"]:
        name, mark, number = event["name"].partition("#")
        event["name"] = f"{name}#{numbers[int(number)]}" if mark else name
    trace = read_kineto(json.dumps(document).encode(), "t.json")
    assert [step.index for step in trace.steps] == list(numbers)
    assert [step.start_ns for step in trace.steps] == [step.start_ns for step in usual.steps]
    found, plain = (replay_traces([one], Changes()).steps[0] for one in (trace, usual))
    assert [step.predicted_ns for step in found] == [step.predicted_ns for step in plain]


def test_a_trace_that_breaks_off_is_called_one(tmp_path):
    """Kernels have a grid, and so have studies of a sweep."""
    document = recorded(PROGRAM).document()
    document["traceEvents"][0]["args"]["grid"] = [1, 1, 1]
    text = json.dumps(document)[:-9]
    with pytest.raises(InputError, match=rf"t.json:1:{len(text) + 1}: .* ends in the midst of its events") as caught:
        read_kineto(text.encode(), "t.json")
    assert "sweep" not in str(caught.value)


def test_fractions_of_a_microsecond_are_kept_beside_a_large_base():
    """4458676416788.066 us is a real time stamp of an H100 trace."""
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 4458676416788.066, "dur": 1.281, "args": {"stream": 7}}
    trace = read_kineto(json.dumps({"traceEvents": [event]}).encode(), "t.json")
    assert (trace.tasks.start_ns[0], trace.tasks.end_ns[0]) == (66, 1347)
    assert trace.base_ns == 4458676416788 * 1000


def test_what_a_collective_says_of_itself_is_kept_with_its_kernel():
    document = recorded(PROGRAM, steps=1).document()
    kernel = document["traceEvents"][4]
    kernel["args"] |= {"Collective name": "allreduce", "In msg nelems": 1024, "Process Group Name": "3"}
    trace = read_kineto(json.dumps(document).encode(), "t.json")
    ((row, collective),) = trace.collectives.items()
    assert trace.names[trace.tasks.name[row]] == "ncclDevKernel_AllReduce"
    assert (collective.operation, collective.group, collective.elements) == ("allreduce", "3", 1024)


def said_of(rank, **arguments):
    """What is kept of one kernel's arguments."""
    document = recorded(PROGRAM, 1, rank).document()
    document["traceEvents"][4]["args"] |= {"Collective name": "x"} | arguments
    (said,) = read_kineto(json.dumps(document).encode(), "t.json").collectives.values()
    return said


def test_the_ranks_of_a_large_group_follow_from_its_first_rank_and_stride():
    """The profiler names thirty ranks of a group and puts dots for the others."""
    shown = {"Process Group Ranks": "[2, 10, ..., 506]", "Group size": 64}
    assert said_of(2, **shown).ranks == ()
    assert said_of(2, **shown, **{"Global rank start": 2, "Global rank stride": 8}).ranks == tuple(range(2, 514, 8))
    assert said_of(2, **shown, **{"Global rank start": 2, "Global rank stride": -1}).ranks == ()


def test_both_ends_of_a_transfer_are_known_though_the_profiler_names_the_other_rank_only():
    group = {"Process Group Ranks": "[1, 5]", "Group size": 2}
    both = said_of(1, **group, **{"Src Rank": 1, "Dst Rank": 5})
    sends, receives = said_of(1, **group, **{"Dst Rank": 5}), said_of(5, **group, **{"Src Rank": 1})
    assert both == sends == receives
    assert (both.ends, both.ranks) == ((1, 5), (1, 5))


def archive(members):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


def test_an_archive_holds_one_trace_per_rank_in_order_of_rank(tmp_path):
    members = {f"traces/x{9 - rank}.json": recorded(PROGRAM, rank=rank).content() for rank in (2, 0, 1)}
    (tmp_path / "ranks.tar.gz").write_bytes(archive(members))
    assert [trace.rank for trace in read_ranks([tmp_path / "ranks.tar.gz"])] == [0, 1, 2]


@pytest.mark.parametrize("said", [{}, {"rank": -5}, {"rank": 1e300}])
def test_where_no_rank_is_said_the_file_name_tells_it(said, tmp_path):
    document = recorded(PROGRAM).document() | {"distributedInfo": said}
    for rank in (11, 3):
        (tmp_path / f"worker{rank}_step_12.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    assert [trace.rank for trace in read_ranks([tmp_path])] == [3, 11]


@pytest.mark.parametrize("packed", [False, True])
def test_where_nothing_tells_the_rank_files_are_counted_as_people_do_and_it_is_said(packed, tmp_path):
    members = {}
    for rank in range(11):
        document = recorded([("work", 10 + rank), *PROGRAM[1:]]).document() | {"distributedInfo": {}}
        members[f"gpu{rank}.json"] = json.dumps(document).encode()
    for name, content in {"all.tar.gz": archive(members)}.items() if packed else members.items():
        (tmp_path / name).write_bytes(content)
    traces = read_ranks([tmp_path / "all.tar.gz" if packed else tmp_path])
    assert [(trace.rank, trace.file.rpartition("gpu")[2]) for trace in traces] == [(n, f"{n}.json") for n in range(11)]
    told = to_dict(replay_traces(traces, Changes()))["ranks"][10]["warnings"]
    assert any("by its place among the files it is 10" in text for text in told)


def test_a_folder_whose_folders_have_the_traces_names_one(tmp_path):
    (tmp_path / "iteration_10").mkdir()
    (tmp_path / "iteration_10" / "rank0.json").write_bytes(recorded(PROGRAM).content())
    with pytest.raises(InputError, match="iteration_10"):
        read_ranks([tmp_path])


def test_the_same_rank_twice_is_refused(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(recorded(PROGRAM).content())
    with pytest.raises(InputError, match="rank 0 occurs twice"):
        read_ranks([tmp_path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"42", "not a profiler trace"),
        (b'{"traceEvents": [', "ends in the midst of its events"),
        (b'{"schemaVersion": 1}', "no list of events"),
        (b'{"traceEvents": []}', "nothing in this trace ran on a GPU"),
        (b"\x1f\x8bnot gzip", "compressed data is broken"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "compressed data is broken"),
    ],
)
def test_a_broken_trace_is_refused_with_its_name(tmp_path, content, message):
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_ranks([tmp_path / "broken.json"])
    assert "broken.json" in str(error.value)


@pytest.mark.parametrize("written", ["Infinity", "-inf", "NaN", "null"])
def test_a_time_that_is_no_number_is_told_as_it_stands_there(written):
    content = b'{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k", "ts": %s, "dur": 1}]}' % written.encode()
    with pytest.raises(InputError) as error:
        read_kineto(content, "t.json")
    assert f"t.json:2:49: error: traceEvents[0].ts: Expected `int | float`, got `{written}`" in str(error.value)


@pytest.mark.parametrize(
    ("file", "calls", "tasks", "steps"),
    [
        ("hta/trace_diff__control__control.json.gz", 24692, 9450, 6),
        ("tracelens/mi300__resnet_act_checkpoint.json.gz", 3100, 3653, 3),
        ("kineto/r50_w0.pt.trace.json.gz", 10800, 9927, 6),
        ("kineto/r50_autograd_w0.pt.trace.json.gz", 15754, 10133, 0),
        ("hta/triton_example__triton_example.json.gz", 2, 1, 0),
        ("hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", 21, 16, 2),
    ],
)
def test_public_traces_of_every_vintage_read_whole(file, calls, tasks, steps):
    """Counts taken from the files with another JSON reader."""
    (trace,) = read_ranks([shared("data", "traces", *file.split("/"))])
    assert (len(trace.calls), len(trace.tasks), len(trace.steps)) == (calls, tasks, steps)
