"""Communication on other interconnects and under other degrees."""

import json
import re
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.api import load_topology, run
from simcore.errors import InputError, SimcoreError
from simcore.generate.collectives import collective
from simcore.network.topology.model import Dimension, Topology
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.report import to_dict
from simcore.replay.views.workloads import to_chakra
from simcore.replay.whatif.products import shard_factors
from simcore.replay.whatif.retiming import Degree, Retimed
from simcore.replay.whatif.transfers import Interconnect, Transfer
from simcore.workload.kineto_reader import read_kineto, read_ranks
from simcore.workload.model import CollectiveKind
from tests.profiles_of_steps import Recorder

KINDS = [str(kind) for kind in CollectiveKind]
NODES = Topology((Dimension("Switch", 4, 100e9, 500.0), Dimension("Ring", 2, 25e9, 2000.0)), path="nodes.yml")
TP, DP, PP = "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP"


def faster(topology, factor):
    dims = tuple(
        Dimension(dim.kind, dim.npus, dim.bandwidth_bytes_per_s * factor, dim.latency_ns) for dim in topology.dims
    )
    return Topology(dims, path=topology.path)


def said(operation, mebibytes, ranks, description="default_pg", **more):
    """NCCL's arguments of a kernel."""
    return {
        "Collective name": operation,
        "In msg nelems": mebibytes << 19,
        "dtype": "BFloat16",
        "Group size": len(ranks),
        "Process Group Ranks": str(list(ranks)),
        "Process Group Description": description,
    } | more


def communicating(kernels, rank=0, late_us=0, shapes=(), steps=2):
    """A rank that launches kernels (length in us, arguments) behind its work, and products of given shapes.

    What NCCL takes is known of real devices only, and so what of a kernel is waiting.
    """
    recorder = Recorder(rank)
    for _ in range(steps):
        recorder.work(50 + late_us)
        for m, k, n in shapes:
            began_us = recorder.now_us
            recorder.launch("gemm", m * k * n / 1e9)
            sides = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
            recorder.add("cpu_op", "aten::mm", began_us, recorder.now_us - began_us, 1, **sides)
        for length_us, arguments in kernels:
            recorder.launch("ncclDevKernel", length_us, 21, 7)
            recorder.events[-1]["args"] |= arguments
        recorder.synchronise()
        recorder.mark()
    device = "NVIDIA H100 80GB HBM3" if shapes else "made to order"
    document = recorder.document() | {"deviceProperties": [{"name": device}]}
    return read_kineto(json.dumps(document).encode(), f"rank{rank}.json")


def replayed(traces, *degrees, on=None, recorded_on=None):
    what = Retimed(degrees, Interconnect(on) if on else None, Interconnect(recorded_on) if recorded_on else None)
    return replay_traces(traces, Changes(), [what])


def gained_ns(traces, *degrees, **networks):
    """How much longer the last step of the first rank becomes."""
    step = replayed(traces, *degrees, **networks).steps[0][-1]
    return step.period.device_ns - step.baseline.device_ns


groups = st.sampled_from([range(8), range(4), range(0, 8, 4), [1, 2], [0, 3, 5], range(2, 8, 2)])
kernels = st.lists(
    st.builds(
        lambda kind, size, ranks, length: (length, said(kind, size, ranks)),
        st.sampled_from([kind for kind in KINDS if kind != "barrier"]),
        st.integers(1, 64),
        groups,
        st.integers(10, 900),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=25)
@given(kernels, st.booleans())
def test_twice_the_bandwidth_never_lengthens_the_period(kernels, by_ratio):
    trace, recorded_on = communicating(kernels), NODES if by_ratio else None
    slow, fast = (gained_ns([trace], on=machine, recorded_on=recorded_on) for machine in (NODES, faster(NODES, 2)))
    assert fast <= slow


@settings(deadline=None, max_examples=25)
@given(kernels)
def test_the_recorded_interconnect_and_the_recorded_degree_change_nothing(kernels):
    trace = communicating(kernels)
    assert gained_ns([trace], on=NODES, recorded_on=NODES) == 0
    described = communicating([(90, said("allreduce", 4, [0, 4], DP)), *kernels])
    for on in (None, NODES):
        assert gained_ns([described], Degree("dp", 2), on=on, recorded_on=on) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_collective_takes_what_the_engine_takes_for_it_alone(kind, tmp_path):
    path = tmp_path / "nodes.yml"
    path.write_text(
        "topology: [Switch, Ring]\nnpus_count: [4, 2]\nbandwidth: [100 GB/s, 25 GB/s]\nlatency: [500 ns, 2 us]\n"
    )
    for rank in range(8):
        (tmp_path / f"one.{rank}.et").write_bytes(collective(CollectiveKind(kind), 1 << 20))
    alone_ns = run(str(tmp_path / "one"), str(path)).timeline.time_ns
    assert Interconnect(NODES).time_ns(Transfer(kind, 1 << 20, tuple(range(8)))) == alone_ns


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_group_that_is_a_dimension_takes_what_that_dimension_takes_alone(kind):
    for dim, ranks in zip(NODES.dims, ((4, 5, 6, 7), (1, 5)), strict=True):
        alone = Interconnect(Topology((dim,))).time_ns(Transfer(kind, 1 << 20, tuple(range(dim.npus))))
        assert Interconnect(NODES).time_ns(Transfer(kind, 1 << 20, ranks)) == alone


def test_a_kernel_takes_the_time_of_the_topology():
    """Two ranks of a ring, 32 MiB: each sends half of them twice at 25 GB/s, and a hop takes 2 us."""
    trace = communicating([(900, said("allreduce", 32, [0, 4]))])
    assert 900_000 + gained_ns([trace], on=NODES) == pytest.approx(2 * (16 * 2**20 / 25 + 2000), rel=0.01)


def test_what_the_recorded_interconnect_does_not_explain_was_waiting_and_stays():
    """A kernel of 5 ms whose collective takes 1.35 ms of it as recorded loses half of those on a faster one."""
    trace = communicating([(5000, said("allreduce", 32, [0, 4]))])
    own_ns = Interconnect(NODES).time_ns(Transfer("all_reduce", 32 << 20, (0, 4)))
    fast_ns = Interconnect(faster(NODES, 2)).time_ns(Transfer("all_reduce", 32 << 20, (0, 4)))
    assert gained_ns([trace], on=faster(NODES, 2), recorded_on=NODES) == fast_ns - own_ns


def test_an_exported_step_run_on_a_topology_takes_what_its_replay_on_that_topology_takes(tmp_path):
    traces, topology = read_ranks(["docs/traces"]), "docs/traces/two.yml"
    for rank, content in to_chakra(replay_traces(traces, Changes())).files.items():
        (tmp_path / f"step.{rank}.et").write_bytes(content)
    steps = replayed(traces, on=load_topology(topology)).steps
    assert run(str(tmp_path / "step"), topology).timeline.time_ns == steps[0][-1].predicted_ns


def test_coupled_ranks_stay_coupled():
    """The late rank's kernel is the collective itself; on a network of half the speed both end together, later."""
    arguments = said("allreduce", 32, [0, 4])
    traces = [communicating([(2400, arguments)]), communicating([(1400, arguments)], rank=4, late_us=1000)]
    slow = faster(NODES, 0.5)
    replay = replayed(traces, on=slow)
    assert [len(step.source.matches) for step in replay.steps[0]] == [1, 1]
    expected_ns = Interconnect(slow).time_ns(Transfer("all_reduce", 32 << 20, (0, 4)))
    for step in replay.steps[0]:
        ends = [nodes.ends[0] for nodes in step.graph.ranks]
        starts = [nodes.begins[0] for nodes in step.graph.ranks]
        last = step.timing.start_ns[-1, starts].max()
        assert set(step.timing.end_ns[-1, ends].tolist()) == {last + expected_ns}
    ratio = replayed(traces, on=slow, recorded_on=NODES).steps[0][-1]
    assert ratio.period.device_ns - ratio.baseline.device_ns == pytest.approx(1_400_000, rel=0.02)


def transferring(rank, late_us, length_us):
    """Two steps of one end of a transfer: rank 1's kernel begins with that of rank 0, which sends behind its work."""
    recorder = Recorder(rank)
    for _ in range(2):
        recorder.launch("gemm", 10, 21)
        recorder.launch("gemm", late_us, 21 if rank == 0 else 7)
        recorder.free_us[21] = max(recorder.free_us.values())
        recorder.launch("ncclDevKernel_SendRecv", length_us, 21)
        ends = {"Src Rank": 0, "Dst Rank": 1}
        recorder.events[-1]["args"] |= said("recv" if rank else "send", 4, [0, 1], PP, **ends)
        recorder.launch("gemm", 70, 7, 21)
        recorder.synchronise()
        recorder.mark()
    return read_kineto(recorder.content(), f"rank{rank}.json")


@settings(deadline=None)
@given(st.integers(50, 2000), st.integers(10, 900))
def test_what_is_received_as_it_is_sent_takes_its_time_once(late_us, length_us):
    traces = [transferring(rank, late_us, length_us) for rank in (1, 0)]
    assert gained_ns(traces) == gained_ns(traces, on=NODES, recorded_on=NODES) == 0


@given(st.integers(0, 2000), st.integers(10, 900), st.booleans())
def test_a_group_of_one_rank_waits_for_nobody(late_us, length_us, elsewhere):
    """Without other replicas a rank takes what it takes where no other was recorded, however late that one was."""
    arguments = said("allreduce", 32, [0, 4])
    traces = [communicating([(length_us + late_us, arguments)]), communicating([(length_us, arguments)], 4, late_us)]
    on = NODES if elsewhere else None
    together = replayed(traces, Degree("dp", 1), on=on).steps
    apart = [replayed([trace], Degree("dp", 1), on=on).steps[0] for trace in traces]
    assert [[step.period for step in rank] for rank in together] == [[step.period for step in rank] for rank in apart]


def test_the_report_says_what_was_timed_anew():
    trace = communicating([(900, said("allreduce", 32, [0, 4])), (70, said("send", 1, [0, 1], **{"Dst Rank": 1}))])
    (rank,) = to_dict(replayed([trace], on=NODES))["ranks"]
    interconnect = Interconnect(NODES)
    new_ns = interconnect.time_ns(Transfer("all_reduce", 32 << 20, (0, 4)))
    sent_ns = interconnect.time_ns(Transfer("send", 1 << 20, (0, 1)))
    assert rank["retimed"] == {
        "all_reduce": {"count": 1, "recorded_ns": 900_000, "new_ns": new_ns},
        "send": {"count": 1, "recorded_ns": 70_000, "new_ns": sent_ns},
    }


def test_what_keeps_its_time_or_is_assumed_is_said():
    unsaid = [(10, {}), (20, said("allreduce", 0, [0, 1])), (30, said("broadcast", 1, [0, 1]))]
    nameless = {"Process Group Ranks": "", "Process Group Name": "7"}
    trace = communicating([*unsaid, (40, said("allreduce", 1, range(4)) | nameless)])
    (rank,) = to_dict(replayed([trace], on=NODES))["ranks"]
    assert rank["warnings"] == [
        "1 x all_reduce in a group whose ranks were not recorded: taken as ranks 0 to 3",
        "1 x broadcast whose root was not recorded: taken as the group's first rank",
        "2 x communication keeps its recorded time: kind, size or group were not recorded",
        "how much of communication is waiting for ranks that were not recorded is estimated, and stays",
    ]


def test_a_machine_that_is_too_small_is_refused():
    trace = communicating([(900, said("allreduce", 32, [0, 4]))])
    small = Topology(NODES.dims[:1], path="small.yml")
    with pytest.raises(InputError, match=r"(?s)small.yml.*rank 4.*at least 5 NPUs.*4 NPUs"):
        gained_ns([trace], on=small)
    with pytest.raises(InputError, match="rank 12"):
        gained_ns([trace], Degree("dp", 4), on=NODES)


# The 8 ranks of tp 2 x dp 2 x pp 2 as Megatron numbers them: rank = tensor + 2 * data + 4 * stage.
JOB = [
    said("reduce_scatter_tensor", 8, [4, 5], TP),
    said("allgather_into_tensor", 4, [4, 5], TP),
    said("allreduce", 16, [4, 6], DP),
    said("send", 2, [0, 4], PP, **{"Dst Rank": 0}),
    said("allgather_into_tensor", 2, range(8)),
    said("allreduce", 1, [4, 7]),
]


def after(*degrees, rank=4):
    """What the job's transfers become: ranks and bytes that a rank puts in."""
    (trace,) = [communicating([(50, one) for one in JOB], rank, shapes=[(64, 8, 16), (64, 16, 8)], steps=1)]
    played = []

    class Listening(Interconnect):
        def time_ns(self, transfer):
            played.append((transfer.ranks, transfer.sent_bytes >> 20))
            return 1000

    replay_traces([trace], Changes(), [Retimed(degrees, Listening(NODES))])
    return played


def test_another_data_parallel_degree_numbers_the_job_anew():
    assert after(Degree("dp", 4)) == [
        ((8, 9), 8),
        ((8, 9), 4),
        ((8, 10, 12, 14), 16),
        ((8, 0), 2),
        (tuple(range(16)), 1),  # the buffer that all gather keeps its size
    ]  # and ranks 4 and 7, some of both groups, keep their time


def test_degrees_change_together_whatever_their_order():
    degrees = [Degree("tp", 4), Degree("dp", 4)]
    by_one = after(*degrees[::-1], rank=4)
    assert by_one[0] == ((16, 17, 18, 19), 8)
    assert by_one[2] == ((16, 20, 24, 28), 8)
    assert by_one[3] == ((16, 0), 2)
    assert by_one[4][0] == tuple(range(32))


def test_tensor_parallel_ranks_share_products_and_parameters():
    hidden, ffn, tokens = 4096, 16384, 8192
    layer = [(hidden, 3 * hidden), (hidden, hidden), (hidden, ffn), (ffn, hidden)]
    columns, rows = layer[::2], layer[1::2]

    def sharded(tp):
        """Forward pass and both gradients; the first of two products divides its columns, the second its rows."""
        forward = [(tokens, k, n // tp) for k, n in columns] + [(tokens, k // tp, n) for k, n in rows]
        return [shape for m, k, n in forward for shape in ((m, k, n), (m, n, k), (k, m, n))]

    by_degree = []
    for tp in (2, 8):
        trace = communicating([(50, said("allreduce", 8, range(tp), TP))], shapes=sharded(tp))
        assert gained_ns([trace], Degree("tp", tp)) == 0
        by_degree.append(trace)
    halves, eighths = by_degree
    rank = replayed([halves], Degree("tp", 8)).ranks[0].view
    factors = shard_factors(rank, 2, 8)[~rank.communication]
    assert 0.23 < factors.min() < 0.25 < factors.mean() < 0.3  # the less is divided, the more is moved per operation
    lengths = [(trace.tasks.end_ns - trace.tasks.start_ns)[0:12].sum() for trace in (halves, eighths)]
    assert lengths[1] / lengths[0] == pytest.approx(0.25, rel=0.01)
    with pytest.raises(InputError, match="7 ranks cannot share"):
        gained_ns([halves], Degree("tp", 7))
    (said_of,) = to_dict(replayed([halves], Degree("tp", 8)))["ranks"]
    assert any("100% of the computation" in warning for warning in said_of["warnings"])


@pytest.mark.parametrize(
    ("arguments", "degree", "why"),
    [
        (said("allreduce", 1, range(8)), Degree("tp", 4), "0 such among the groups default_pg"),
        (said("allreduce", 1, range(8), "TENSOR_AND_DATA_PARALLEL_GROUP"), Degree("tp", 4), "0 such"),
        (said("allreduce", 1, range(8), TP), Degree("dp", 4), "0 such among the groups TENSOR_MODEL"),
        (said("allreduce", 1, [0, 1, 3], TP), Degree("tp", 4), "evenly spaced"),
        (said("allreduce", 1, range(8)), Degree("dp", 4, re.compile("mesh")), "0 such among the groups default_pg"),
        (said("allreduce", 1, range(8), TP), Degree("tp", 4), "no matrix product says its shape"),
    ],
)
def test_a_degree_needs_to_know_its_group_and_products(arguments, degree, why):
    with pytest.raises(InputError) as raised:
        gained_ns([communicating([(50, arguments)])], degree)
    assert why in str(raised.value)


def test_a_group_can_be_named():
    trace = communicating([(60, said("allreduce", 1, [0, 1], "a")), (60, said("allreduce", 1, [0, 2], "b"))])
    with pytest.raises(InputError, match="2 such among the groups"):
        gained_ns([trace], Degree("dp", 4))
    assert gained_ns([trace], Degree("dp", 4, re.compile("^b"))) == 30_000
    assert gained_ns([trace], Degree("dp", 4, re.compile(r"\[0, 1\]"))) == 30_000


def test_one_group_cannot_have_two_degrees():
    trace = communicating([(60, said("allreduce", 1, [0, 1]))])
    with pytest.raises(InputError, match="one process group"):
        gained_ns([trace], Degree("dp", 4), Degree("tp", 4, re.compile("default")))


numbers = st.one_of(st.integers(-3, 9), st.sampled_from(["", "x", None, 1.5, 1 << 62]))
damaged = st.fixed_dictionaries(
    {"Collective name": st.sampled_from([*KINDS, "send", "recv", "coalesced", "", None])},
    optional=dict.fromkeys(("In msg nelems", "Group size", "Global rank start", "Global rank stride"), numbers)
    | dict.fromkeys(("Src Rank", "Dst Rank"), numbers)
    | {"Process Group Ranks": st.sampled_from(["[0, 1]", "[1, 1]", "[0, ..., 7]", "[]", "", "[9]"])}
    | {"Process Group Name": numbers.map(str), "dtype": st.sampled_from(["Float", "Long", "", "Blob"])},
)


@settings(deadline=None, max_examples=200)
@given(st.lists(damaged, min_size=1, max_size=3), st.sampled_from([(), (Degree("dp", 3),)]))
def test_damaged_arguments_are_replayed_or_refused(arguments, degrees):
    with suppress(SimcoreError):
        to_dict(replayed([communicating([(50, one) for one in arguments])], *degrees, on=NODES))


def test_more_data_parallel_ranks_never_shorten_the_step_on_a_ring():
    trace = communicating([(60, said("allreduce", 8, [0, 1]))])
    ring = Topology((Dimension("Ring", 8, 50e9, 500.0),))
    gains = [gained_ns([trace], Degree("dp", size), on=ring) for size in (1, 2, 4, 8)]
    assert all(less <= more for less, more in pairwise(gains))
