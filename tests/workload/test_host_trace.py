"""Host execution traces beside profiles: which operator is which, and what only the host trace tells."""

import json
import re
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simcore.errors import InputError
from simcore.workload.archives import documents
from simcore.workload.chakra import reader
from simcore.workload.chakra.convert.kineto_link import link
from simcore.workload.chakra.convert.pytorch import convert
from simcore.workload.host_trace import joined, read_host_trace, read_recorded
from simcore.workload.kineto_reader import read_kineto, read_ranks
from simcore.workload.model import CollectiveKind
from tests.shared import shared

LINEAR = ("linear_kineto.json.gz", "linear_et.json.gz")
DLRM = ("dlrm_kineto.tar.gz", "dlrm_pytorch_et.tar.gz")


def pair(names):
    return [str(shared("data", "traces", "param", name)) for name in names]


names = st.sampled_from(["aten::mm", "aten::add", "aten::empty", "aten::copy_"])
threads = st.lists(st.lists(names, min_size=1, max_size=12), min_size=1, max_size=3)


def profile(threads, first_id, **others):
    return read_kineto(profiled(threads, first_id, **others), "kineto.json")


def profiled(threads, first_id, *, ids="External id", process=5, groups=()):
    """Operators one after the other on each thread, each launching a kernel."""
    events, number = [], first_id
    for thread, operators in enumerate(threads):
        for at, name in enumerate(operators):
            place = {"ph": "X", "pid": process, "tid": thread, "ts": 10 * at, "dur": 8}
            kernel = groups[at] if thread == 0 and at < len(groups) else "gemm"
            events += [
                place | {"cat": "cpu_op", "name": name, "args": {ids: number}},
                place | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10 * at + 2, "dur": 2}
                | {"args": {"correlation": 1000 + number}},
                place | {"cat": "kernel", "name": kernel, "args": {"stream": 7, "correlation": 1000 + number}},
            ]  # fmt: skip
            number += 1
    return json.dumps({"traceEvents": events}).encode()


def operation(number, name, thread=0, inputs=(), **attributes):
    values, shapes, types = ([one[part] for one in inputs] for part in range(3))
    said = {"rf_id": number, "tid": thread, "scope": 0} | attributes
    sides = {"values": values, "shapes": shapes, "types": types}
    return {"id": number + 10, "name": name, "ctrl_deps": 1, "inputs": sides, "outputs": {}} | {
        "attrs": [{"name": key, "type": "", "value": value} for key, value in said.items()]
    }


def host(operations, process=5):
    content = json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": process, "nodes": operations}).encode()
    return read_host_trace(content, "et_0.json")


def of_threads(threads, process=5):
    numbered = [(thread, name) for thread, operators in enumerate(threads) for name in operators]
    return host([operation(number + 1, name, thread) for number, (thread, name) in enumerate(numbered)], process)


@settings(deadline=None)
@given(threads, st.sampled_from(["External id", "Record function id"]))
def test_ids_that_count_from_the_same_start_find_every_operation(threads, ids):
    use = joined(profile(threads, 1, ids=ids), of_threads(threads)).host
    assert (use.matched_by, use.found, use.operators) == (ids.lower(), *[sum(map(len, threads))] * 2)


@settings(deadline=None)
@given(threads)
def test_names_in_order_find_every_operation_where_ids_do_not(threads):
    use = joined(profile(threads, 500), of_threads(threads)).host
    assert (use.matched_by, use.found) == ("names in order", sum(map(len, threads)))


@settings(deadline=None)
@given(st.lists(names, min_size=1, max_size=8), st.integers(1, 5), st.lists(names, max_size=3))
def test_one_iteration_describes_all_that_are_alike(iteration, times, before):
    whole = [*before, *iteration * times]
    use = joined(profile([whole], 500), of_threads([iteration])).host
    assert (use.found, use.operators) == (len(iteration), len(iteration) * use.stretches)
    assert use.stretches >= times


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=10, max_size=20), st.data())
def test_a_few_operations_may_be_missing_on_either_side(operators, data):
    lost, more = (data.draw(st.integers(0, len(operators) - 1)) for _ in range(2))
    assume(lost != more)
    without = lambda at: [name for place, name in enumerate(operators) if place != at]  # noqa: E731
    use = joined(profile([without(lost)], 500), of_threads([without(more)])).host
    assert use.found >= len(operators) - 2


def test_other_runs_are_refused_with_what_was_found():
    with pytest.raises(InputError, match=r"is not of the run in kineto.json(.|\n)*found: +0 of 3"):
        joined(profile([["aten::mm", "x", "y"]], 9), of_threads([["aten::mm", "aten::add", "aten::bmm"]]))


@settings(deadline=None)
@given(threads, threads, st.integers(1, 2), st.sampled_from(["External id", "Record function id"]), st.booleans())
def test_a_conversion_joins_what_a_replay_joins(tmp_path_factory, ran, other, first, ids, same):
    """By numbers where both count from the same start, else by names; once where an iteration repeats."""
    file = tmp_path_factory.mktemp("pair") / "kineto.json"
    file.write_bytes(content := profiled(ran, first, ids=ids))
    told, trace = [], of_threads(ran if same else other)
    linked = lambda: link(trace.operations, trace.file, str(file), told.append)  # noqa: E731
    try:
        use = joined(read_kineto(content, str(file)), trace).host
    except InputError as error:
        with pytest.raises(InputError, match=re.escape(str(error))):
            linked()
        return
    operations = [op for op in linked() if not op.on_device]
    assert (len(operations), sum(op.start_ns >= 0 for op in operations)) == (use.operations, use.found)
    assert any("the first one is taken" in line for line in told) == (use.stretches > 1)


def test_a_conversion_takes_the_first_of_the_iterations_that_a_host_trace_describes():
    """PARAM's linear: 926 operators, 39 times; its 261 tasks."""
    profile, trace = pair(LINEAR)
    graph = reader.decode(convert(trace, profile), "x").graph
    assert (~graph.on_cpu).sum() == 261


def converted(folder, launched):
    """The graph of operations one after the other, each of which launched one kernel: the operation, and the kernel's
    arguments beside its correlation (None: neither the kernel nor the call has one).
    """
    events, told = [], []
    for at, (asked, name, correlation, arguments) in enumerate(launched):
        place = {"ph": "X", "pid": 5, "tid": 0, "ts": 10 * at, "dur": 8}
        number = {} if correlation is None else {"correlation": correlation}
        events += [
            place | {"cat": "cpu_op", "name": asked["name"], "args": {"Record function id": at + 1}},
            place | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10 * at + 2, "dur": 2, "args": number},
            place | {"cat": "kernel", "name": name, "ts": 10 * at + 4, "dur": 100, "args": number | arguments},
        ]
    (folder / "kineto.json").write_text(json.dumps({"traceEvents": events}))
    nodes = [operation(-9, "[pytorch|profiler|execution_trace|thread]", rf_id=0), *(one for one, *_ in launched)]
    (folder / "host.json").write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 5, "nodes": nodes}))
    return reader.decode(
        convert(str(folder / "host.json"), str(folder / "kineto.json"), tell=told.append), "x"
    ).graph, told


places = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 0, 7, "20"])), min_size=1, max_size=6)


@settings(deadline=None)
@given(places)
def test_converted_kernels_follow_one_another_on_a_stream_of_a_device(tmp_path_factory, places):
    """In the replay, too; where no stream is said the row of the timeline is one."""
    launched = [
        (operation(at + 1, "aten::mm"), "gemm", at + 1, {"device": device, "stream": stream})
        for at, (device, stream) in enumerate(places)
    ]
    folder = tmp_path_factory.mktemp("devices")
    graph, _ = converted(folder, launched)
    trace = read_kineto((folder / "kineto.json").read_bytes(), "k")
    own = graph.stream[~graph.on_cpu].tolist()
    assert len(set(own)) == len(trace.streams)
    assert len(set(zip(own, trace.tasks.lane.tolist(), strict=True))) == len(trace.streams)


@settings(deadline=None)
@given(st.lists(st.sampled_from([None, 0, 5, 6, 7]), min_size=1, max_size=6))
def test_a_kernel_without_a_number_of_its_own_is_of_no_operation(tmp_path_factory, numbers):
    launched = [(operation(at + 1, "aten::mm"), "gemm", number, {"stream": 7}) for at, number in enumerate(numbers)]
    graph, told = converted(tmp_path_factory.mktemp("numbers"), launched)
    own = [number for number in numbers if number is not None and numbers.count(number) == 1]
    assert (~graph.on_cpu).sum() == len(own)
    assert len(told) == (len(own) < len(numbers))


KERNELS = [
    ("ncclDevKernel_AllGather_RING_LL", "allreduce", "all_gather"),  # the kernel's name goes first
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "allreduce", "all_reduce"),  # RCCL's for all
    ("rcclGenericKernel", "_reduce_scatter_base", "reduce_scatter"),
    ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32", "", "all_reduce"),
    ("void ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "all_to_allv", "all_to_all"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "said", "kind"), KERNELS, ids=[kind for *_, kind in KERNELS])
def test_what_a_converted_kernel_communicates_its_name_says_or_what_launched_it(kernel, said, kind, tmp_path):
    inputs = [tensor(1024), (said, [], "String")]
    graph, _ = converted(tmp_path, [(operation(1, "record_param_comms", inputs=inputs), kernel, 1, {})])
    (row,) = (~graph.on_cpu).nonzero()[0].tolist()
    assert (list(CollectiveKind)[graph.collective[row]], graph.size_bytes[row]) == (kind, 4096)


def tensor(elements, size=4, kind="float"):
    return [1, 2, 0, elements, size, "cuda:0"], [elements], f"Tensor({kind})"


TWO = {"pg_name": "3", "ranks": [4, 5], "group_size": 2}
GROUP = json.dumps([TWO, {"backend_id": 77, "ranks": [], "group_size": 4}])
SPACED = {"pg_size": 2, "global_rank_start": 1, "global_rank_stride": 3}
TALKING = {
    "named group": ([tensor(9), (["3", "tp"], [[], []], "Tuple[String,String]")], {}, (36, "[4, 5]", 2)),
    "attributes": ([tensor(9)], {"pg_name": "3", "pg_size": 2}, (36, "[4, 5]", 2)),
    "backend id": ([tensor(9, 2, "c10::Half"), (77, [], "Int")], {}, (18, "[0, 1, 2, 3]", 4)),
    "spaced": ([tensor(5, 8, "long int")], SPACED, (40, "[1, 4]", 2)),
    "list": ([([tensor(3)[0], tensor(4)[0]], [], "GenericList[Tensor(float),Tensor(float)]")], {}, (28, "", 0)),
    "unknown type": ([tensor(9, 3, "odd")], {}, (27, "", 0)),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "attributes", "expected"), TALKING.values(), ids=TALKING.keys())
def test_a_communication_kernel_gets_bytes_and_group_from_what_launched_it(inputs, attributes, expected):
    inputs = [*inputs, ("allreduce", [], "String")]
    init = operation(1, "## process_group:init ##", scope=7, inputs=[(GROUP, [], "String")])
    said = operation(2, "record_param_comms", inputs=inputs, **attributes)
    trace = joined(profile([["record_param_comms"]], 2, groups=["ncclKernel"]), host([init, said]))
    ((_, collective),) = trace.collectives.items()
    assert (collective.size_bytes, collective.group, collective.size) == expected
    assert (trace.host.collectives, trace.host.unsized) == (1, 0)


def test_kernels_of_one_launch_that_share_a_size_stay_without():
    names = ["record_param_comms", "nccl:wait"]
    trace = profile([names], 1, groups=["ncclA", "ncclB"])
    waiting = host([operation(1, names[0], inputs=[("wait", [], "String")]), operation(2, names[1])])
    assert joined(trace, waiting).host.unsized == 2


def test_shapes_of_a_host_trace_are_those_that_the_profile_records_itself():
    """PARAM's DLRM has both: eight ranks, 1633 operators each."""
    recorded = read_ranks(pair(DLRM[:1]))
    hosts, _ = joined_dlrm()
    assert [trace.host.found for trace in hosts] == [1633] * 8
    files = {trace.rank: trace.host.file for trace in hosts}
    assert all(file.endswith(f"dlrm_eg_{rank}.json") for rank, file in files.items())
    own = {host.file: host for host in _hosts()}
    for trace in recorded:
        assert joined(replace(trace, products={}), own[files[trace.rank]]).products == trace.products


@cache
def joined_dlrm():
    return read_recorded(pair(DLRM))


def _hosts():
    return [read_host_trace(content, file) for file, content in documents(pair(DLRM[1:])[0])]


def test_collectives_of_old_profiles_get_their_bytes():
    """DLRM, rank 0: 6144 floats there and back, three gradients of 394241, 112 and 226960 floats."""
    (trace, *_), left = joined_dlrm()
    sizes = [(said.operation, said.size_bytes) for _, said in sorted(trace.collectives.items())]
    assert (len(sizes), left) == (8, [])
    assert sizes[0] == sizes[5] == ("all_to_allv", 4 * 6144)
    assert [size for name, size in sizes if name == "allreduce"] == [4 * 394241, 4 * 112, 4 * 226960]


def test_a_folder_joins_what_is_in_it_and_leaves_out_other_runs():
    """PARAM's folder: linear's pair, and ResNet's host trace alone; archives in a folder are not opened."""
    (trace,), left = read_recorded([shared("data", "traces", "param")])
    assert (trace.host.found, trace.host.stretches, trace.host.products) == (926, 39, 39 * 62)
    assert [host.process for host in left] == ["2254958"]


def test_record_function_ids_join_newer_traces():
    files = [
        str(shared("data", "traces", "chakra", "pytorch", "dlrm", f"{name}_0.json.gz")) for name in ("device", "host")
    ]
    (trace,), _ = read_recorded(files[:1], files[1:])
    assert (trace.host.matched_by, trace.host.found, trace.host.operations) == ("record function id", 1629, 1633)


@pytest.mark.parametrize(
    ("files", "hosts", "message"),
    [
        (LINEAR[1:], (), "a host execution trace says what ran, but not when on the GPU"),
        (LINEAR[:1], DLRM[1:], "belongs to no trace here|is not of the run in"),
        (DLRM[:1], LINEAR[1:], "belongs to no trace here(.|\n)*found: +process 24248"),
        (LINEAR[:1], LINEAR[:1], "no PyTorch execution trace"),
    ],
)
def test_host_traces_that_fit_nothing_are_refused(files, hosts, message):
    with pytest.raises(InputError, match=message):
        read_recorded(pair(files), pair(hosts))
