"""Laws of pipelined runs: schedules as data, closed forms, folding, transports, stragglers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Fault, Topology
from simcore.noise import parse_jitter
from simcore.system.config import SystemConfig
from simcore.timeline.events import FOREVER
from simcore.workload import text
from simcore.workload.loops import schedules, timing
from simcore.workload.loops.pipeline import pipeline_of
from simcore.workload.loops.step import group_axes
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Role, Workload
from tests.runs import KINDS, Run

LOOP = "HYBRID_TRANSFORMER"
FORWARD, INPUT_GRAD, WEIGHT_GRAD = 130, 110, 90  # ns of a row
ROWS = 2


def equal_stages(stages: int, micro_batches: int, *, vpp: int = 1, handed_bytes: int = 0) -> Workload:
    """Stages of two equal rows that only compute."""
    row = Layer("row", Phase(FORWARD), Phase(INPUT_GRAD), Phase(WEIGHT_GRAD))
    sizes = Parallelism(1, 1, stages, vpp, 0, micro_batches)
    return Workload(LOOP, (row,) * ROWS * micro_batches, sizes, "simai", pipeline_bytes=handed_bytes)


def machine(stages: int, *, bytes_per_s: float = 1e15, latency_ns: float = 0.0) -> Topology:
    """Two NPUs a stage."""
    return Topology((Dimension("Switch", 2, 1e15, 0.0), Dimension("Switch", stages, bytes_per_s, latency_ns)))


def played(schedule: schedules.Schedule, transfer_ns: int = 0) -> float:
    """What the schedule takes as data."""
    rows = ROWS if schedule.placement == "twoway" else ROWS / schedule.chunks
    forward, weight = [FORWARD * rows] * schedule.parts, [WEIGHT_GRAD * rows] * schedule.parts
    backward = [(INPUT_GRAD + (0 if schedule.splits_backward else WEIGHT_GRAD)) * rows] * schedule.parts
    return timing.play(schedule, timing.Durations(forward, backward, weight, transfer_ns)).makespan


SHAPES = [
    *(("gpipe", 4, 8), ("1f1b", 4, 8), ("1f1b", 4, 2), ("interleaved", 4, 8), ("zb-h1", 4, 8)),
    *(("zb-v", 4, 8), ("dualpipe", 4, 8), ("1f1b", 2, 1), ("interleaved", 2, 4), ("zb-v", 2, 3)),
]


@pytest.mark.parametrize("name,stages,micro_batches", SHAPES)
def test_equal_stages_without_a_network_take_what_the_schedule_says(name, stages, micro_batches):
    run = Run(equal_stages(stages, micro_batches), machine(stages), settings=Settings(schedule=name))
    assert run.timeline().time_ns == played(schedules.make(name, stages, micro_batches))


@pytest.mark.parametrize("name,chunks", [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_the_bubble_is_that_of_the_textbook(name, chunks):
    """(p - 1) / m of the ideal time, interleaved (p - 1) / (v m) (reference/collectives.md, section 9)."""
    stages, micro_batches = 4, 8
    run = Run(equal_stages(stages, micro_batches), machine(stages), settings=Settings(schedule=name))
    ideal = micro_batches * ROWS * (FORWARD + INPUT_GRAD + WEIGHT_GRAD)
    assert run.timeline().time_ns == ideal + ideal * (stages - 1) // (chunks * micro_batches)
    for stage in run.report()["pipeline"]["stages"]:
        assert stage["idle_ns"] == ideal * (stages - 1) // (chunks * micro_batches)


def test_the_zero_bubble_schedule_has_a_third_of_the_bubble():
    """Where F = B = W (Qi et al. 2024)."""
    row = Layer("row", Phase(100), Phase(100), Phase(100))
    workload = Workload(LOOP, (row,) * 8, Parallelism(1, 1, 4, 1, 0, 8), "simai")
    idle = {
        name: Run(workload, machine(4), settings=Settings(schedule=name)).timeline().time_ns - 8 * 300
        for name in ("1f1b", "zb-h1")
    }
    assert idle == {"1f1b": 900, "zb-h1": 300}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_a_transfer_takes_its_latencies_and_its_serialisation(name):
    """Transfers that never meet cost what the schedule pays for them as data: 1000 ns at 1 GB/s, two hops of 20 ns."""
    run = Run(
        equal_stages(4, 1, handed_bytes=1000),
        machine(4, bytes_per_s=1e9, latency_ns=20.0),
        settings=Settings(schedule=name),
    )
    assert run.timeline().time_ns == played(schedules.make(name, 4, 1), 1040)


PHASES = st.builds(
    Phase,
    st.sampled_from([0, 10, 1000, 50_000]),
    st.none() | st.sampled_from(KINDS),
    st.sampled_from([64, 4096, 65536]),
)


@st.composite
def pipelines(draw, kinds=("Ring", "Switch", "FullyConnected"), *, stragglers=True):
    """A pipelined run on dimensions of its groups, or on one that they share."""
    stages, tp, dp = draw(st.sampled_from([2, 4])), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3]))
    rate, latency_ns = draw(st.sampled_from([1e9, 50e9])), draw(st.sampled_from([0.0, 500.0]))
    sizes = draw(st.sampled_from([(tp, dp, stages), (tp, dp * stages), (tp * dp * stages,)]))
    dims = tuple(Dimension(draw(st.sampled_from(kinds)), size, rate, latency_ns) for size in sizes if size > 1)
    count = draw(st.sampled_from([1, 2, 4]))
    ends = (("gradient_reduce", Role.REDUCE), ("optimizer", Role.OPTIMIZER))
    end = tuple(Layer(name, draw(PHASES), Phase(), draw(PHASES), role=role) for name, role in ends)
    block = tuple(
        Layer(f"row{i}", draw(PHASES), draw(PHASES), draw(PHASES), draw(st.sampled_from([0, 3]))) for i in range(2)
    )
    handed = draw(st.sampled_from([0, 1000, 65536]))
    sized = Parallelism(tp, 1, stages, 1, 0, count)
    workload = Workload(LOOP, (*end[: draw(st.integers(0, 2))], *block * count), sized, "simai", pipeline_bytes=handed)
    slow = draw(st.dictionaries(st.integers(0, tp * dp * stages - 1), st.just(1.5), max_size=1)) if stragglers else {}
    name = draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-v"]))
    network = draw(st.sampled_from(["congested", "congested", "congestion-free", "fair"]))
    chosen = Settings(
        draw(st.sampled_from([1, 2])),
        network,
        stragglers=slow,
        schedule=name,
        rendezvous=draw(st.sampled_from([False, False, True])),
    )
    return Run(workload, Topology(dims), settings=chosen)


@settings(deadline=None, max_examples=100)
@given(pipelines(kinds=("Ring", "Switch", "FullyConnected", "Mesh")))
def test_a_pipeline_folded_repeated_and_on_links_of_its_stages_is_the_one_message_by_message(run):
    assert run.report() == run.report(exact="messages")


BLOCKING = st.builds(
    Phase,
    st.sampled_from([0, 700, 2000, 9000]),
    st.sampled_from([CollectiveKind.ALL_REDUCE, *KINDS]),
    st.sampled_from([3000, 30_000]),
)


@st.composite
def rows_of_collectives(draw):
    """A pipelined run whose cells send one collective after the other, on links that stages share or have alone."""
    stages, tp = draw(st.sampled_from([(2, 2), (2, 4), (4, 2)]))
    sizes = draw(st.sampled_from([(tp * stages,), (tp, stages), (2, tp // 2 * stages), (tp, 2, stages)]))
    shapes = st.sampled_from(["Ring", "Mesh", "Switch"])
    rate, latency_ns = draw(st.sampled_from([5e9, 50e9])), draw(st.sampled_from([0.0, 100.0]))
    topology = Topology(tuple(Dimension(draw(shapes), size, rate, latency_ns) for size in sizes))
    gradients = draw(st.sampled_from([0, 0, 4000]))
    layers = [
        Layer(f"row{i}", draw(BLOCKING), draw(BLOCKING), Phase(700, CollectiveKind.ALL_REDUCE, gradients), i)
        for i in range(2)
    ]
    block = tuple(draw(st.lists(st.sampled_from(layers), min_size=2, max_size=4)))
    ends = [replace(layer, role=role) for layer, role in zip(layers, (Role.REDUCE, Role.GATHER), strict=True)]
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1"]))
    handed, sized = draw(st.sampled_from([1000, 60_000])), Parallelism(tp, 1, stages, 1, 0, stages)
    end = draw(st.sampled_from([(), (), tuple(ends)]))
    workload = Workload(LOOP, (*end, *block * stages), sized, "simai", pipeline_bytes=handed)
    slow = draw(st.dictionaries(st.integers(0, topology.npus - 1), st.just(1.5), max_size=1))
    chosen = Settings(
        draw(st.sampled_from([1, 2])),
        schedule=name,
        stragglers=slow,
        rendezvous=draw(st.sampled_from([False, False, True])),
    )
    system = SystemConfig(
        preferred_dataset_splits=draw(st.sampled_from([1, 2])),
        active_chunks_per_dimension=draw(st.sampled_from([1, 2])),
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO"])),
    )
    return Run(workload, topology, system, settings=replace(chosen, link_times=True))


def rows_of(timeline, npu):
    """The events of an NPU, with their names."""
    events = timeline.events
    own = next(index for index, members in enumerate(timeline.ranks) if npu in members)
    table = events.where(events.npu_class == own)
    columns = (table.stream, table.start_ns, table.end_ns, table.kind, table.layer, table.phase, table.size_bytes)
    names = [events.names[name] for name in table.name.tolist()]
    return sorted(zip(names, *(column.tolist() for column in columns), strict=True))


def check_message_by_message(run):
    """Every event of every NPU and every use of a link as in the oracle; gives the run's timeline."""
    told, oracle = run.timeline(), run.timeline(exact="messages")
    for members, finish_ns in zip(told.ranks, told.finish_ns, strict=True):
        assert {oracle.finish_ns[npu] for npu in members} == {finish_ns}
        rows = rows_of(told, members[0])
        assert all(rows == rows_of(oracle, npu) for npu in members)
    assert (told.links.size_bytes == oracle.links.size_bytes).all()
    for link in range(len(told.links.size_bytes)):
        for own, other in zip(told.links.use.spans(link), oracle.links.use.spans(link), strict=True):
            assert own.tolist() == other.tolist()
    return told


@settings(deadline=None, max_examples=30)
@given(rows_of_collectives())
def test_cells_told_ahead_are_those_message_by_message_to_every_event_and_link(run):
    check_message_by_message(run)


@st.composite
def stragglers_of_pipelines(draw):
    """A pipelined run whose groups and stages have dimensions of their own, and one slow NPU."""
    tp, dp, stages = draw(st.sampled_from([(2, 3, 2), (3, 2, 2), (3, 1, 4), (1, 3, 3)]))
    across = draw(st.sampled_from([(stages,), (2, stages // 2)])) if stages == 4 else (stages,)
    rate = draw(st.sampled_from([5e9, 50e9]))
    dims = [Dimension(draw(st.sampled_from(["Ring", "Switch"])), size, rate, 100.0) for size in (tp, dp) if size > 1]
    dims += [Dimension(draw(st.sampled_from(["Ring", "Mesh", "Switch"])), size, rate, 100.0) for size in across]
    layers = [Layer(f"row{i}", draw(BLOCKING), draw(BLOCKING), draw(PHASES), i) for i in range(2)]
    end = Layer("gradient_reduce", Phase(), Phase(), draw(BLOCKING), role=Role.REDUCE)
    handed, sized = draw(st.sampled_from([1000, 60_000])), Parallelism(tp, 1, stages, 1, 0, stages)
    workload = Workload(LOOP, (end, *layers * stages), sized, "simai", pipeline_bytes=handed)
    slow = {draw(st.integers(0, tp * dp * stages - 1)): draw(st.sampled_from([1.1, 1.5]))}
    chosen = Settings(schedule=draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"])), stragglers=slow, link_times=True)
    system = SystemConfig(preferred_dataset_splits=draw(st.sampled_from([1, 2])), active_chunks_per_dimension=1)
    return Run(workload, Topology(tuple(dims)), system, settings=chosen)


@settings(deadline=None, max_examples=15)
@given(stragglers_of_pipelines())
def test_of_a_stage_only_the_peers_of_a_straggler_and_of_these_differ(run):
    """Four classes a stage at most: the one in its place, those of its two groups, and the others."""
    assert len(check_message_by_message(run).ranks) <= 4 * run.workload.parallelism.pp


@settings(deadline=None, max_examples=20)
@given(pipelines(), st.sampled_from(["compute=lognormal:0.1", "links=uniform:0.2"]), st.integers(0, 3))
def test_noise_in_a_pipeline_is_the_same_message_by_message(run, jitter, seed):
    noise = parse_jitter((jitter,), seed)
    noisy = Run(run.workload, replace(run.topology, noise=noise), settings=replace(run.settings, noise=noise))
    assert noisy.report() == noisy.report(exact="messages")


@settings(deadline=None, max_examples=20)
@given(pipelines(), st.integers(0, 1 << 20), st.sampled_from([0.0, 0.5]), st.sampled_from([1000, 50_000, 1_000_000]))
def test_a_fault_in_a_pipeline_is_felt_the_same_message_by_message(run, link, factor, until_ns):
    links = len(LinkGraph(run.topology))
    usual = replace(run, settings=replace(run.settings, network="congested"))
    time_ns = usual.report()["time_ns"]

    def during(begin_ns, end_ns):
        fault = Fault("drawn", (link % links,), factor, begin_ns, end_ns)
        return replace(usual, topology=replace(run.topology, faults=(fault,)))

    assert during(time_ns + 1, FOREVER).report()["time_ns"] == time_ns
    hit = during(0, until_ns)
    assert hit.report() == hit.report(exact="messages")


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-v"])
def test_a_straggler_slows_its_own_pipeline_and_all_others_at_the_end(name):
    """Two pipelines that meet in the reduction only."""
    row = Layer("row", Phase(FORWARD), Phase(INPUT_GRAD), Phase(WEIGHT_GRAD))
    end = Layer("gradient_reduce", weight_grad=Phase(0, CollectiveKind.ALL_REDUCE, 64), role=Role.REDUCE)
    workload = Workload(LOOP, (end, *(row,) * ROWS * 4), Parallelism(1, 1, 4, 1, 0, 4), "simai")
    run = Run(workload, machine(4), settings=Settings(schedule=name))
    slow = replace(run.settings, stragglers=dict.fromkeys(range(0, 8, 2), 2.0))
    alone = Run(workload, machine(4), settings=replace(run.settings, compute_scale=2.0)).report()
    both = replace(run, settings=slow).report()
    assert both["time_ns"] == alone["time_ns"]
    assert both["pipeline"]["stages"] == alone["pipeline"]["stages"]
    fast = {row["ranks"]: row["compute_ns"] for row in both["ranks"]}
    assert fast["1"] == run.report()["compute_ns"]


def test_a_stage_that_is_slow_sets_the_pace():
    """1F1B with one stage of twice the time takes what the schedule with such a stage takes."""
    run = Run(equal_stages(4, 16), machine(4), settings=Settings(stragglers={4: 2.0, 5: 2.0}))
    slow = [1, 1, 2, 1]
    forward, backward = ([ROWS * time_ns * by for by in slow] for time_ns in (FORWARD, INPUT_GRAD + WEIGHT_GRAD))
    expected = timing.play(schedules.make("1f1b", 4, 16), timing.Durations(forward, backward))
    report = run.report()
    assert report["time_ns"] == expected.makespan
    idle = [stage["idle_ns"] for stage in report["pipeline"]["stages"]]
    assert idle == [expected.makespan - expected.busy(stage) for stage in range(4)]


def test_parts_of_a_model_differ_in_length():
    """`stage_rows`: two stages of one and three rows take what the schedule with such stages takes."""
    row = Layer("row", Phase(100), Phase(100), Phase(100))
    workload = Workload(LOOP, (row,) * 4 * 4, Parallelism(1, 1, 2, 1, 0, 4), "simai", stage_rows=(4, 12))
    assert text.parse(text.write(workload), "made").stage_rows == (4, 12)
    schedule = schedules.make("1f1b", 2, 4)
    expected = timing.play(schedule, timing.Durations([100, 300], [200, 600])).makespan
    assert Run(workload, machine(2)).timeline().time_ns == expected


def test_a_text_says_its_schedule():
    """As the option does, which comes first; profiles without pipelines pass over it."""
    workload = replace(equal_stages(4, 8), schedule="zb-h1")
    parsed = text.parse(text.write(workload), "made")
    assert parsed == workload
    asked = Run(equal_stages(4, 8), machine(4), settings=Settings(schedule="zb-h1"))
    assert Run(parsed, machine(4)).timeline().time_ns == asked.timeline().time_ns
    other = Run(parsed, machine(4), settings=Settings(schedule="gpipe"))
    assert other.report()["pipeline"]["schedule"] == "gpipe"
    assert "pipeline" not in Run(parsed, machine(4), profile="astra-sim-1.0").report()


def test_ranks_that_split_no_expert_exchange_with_their_neighbours():
    """`etp: 1`: an expert group of four is as many NPUs side by side; without it, every second of eight."""
    row = Layer("row", Phase(0, CollectiveKind.ALL_TO_ALL, 1 << 20, Group.EP))
    apart = Workload("HYBRID_TRANSFORMER", (row,), Parallelism(2, 4), "simai")
    beside = replace(apart, parallelism=Parallelism(2, 4, expert_tp=1))
    assert text.parse(text.write(beside), "made").parallelism == beside.parallelism
    inside = Topology((Dimension("Switch", 4, 100e9, 0.0), Dimension("Switch", 2, 1e9, 0.0)))
    near_ns, far_ns = (Run(one, inside).timeline().time_ns for one in (beside, apart))
    assert far_ns > 10 * near_ns
    assert group_axes(beside.parallelism, 8)[Group.DP_EP] == (2, 4)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(schedules.names()), st.integers(1, 3), st.integers(2, 4), st.integers(0, 3))
def test_all_stages_run_the_rows_of_a_file_of_one(name, half, chunks, more):
    """Each once a micro-batch, a chunk after the other, however stages and chunks divide each other; so the end."""
    stages, chunks = 2 * half, chunks if name == "interleaved" else schedules.outline(name, 2, 4).chunks
    count, names = 4 * half, [f"row{at}" for at in range(chunks + more)]
    end = Layer("optimizer", role=Role.OPTIMIZER)
    block = tuple(Layer(row, Phase(100), Phase(100), Phase(100)) for row in names)
    sizes = Parallelism(1, 1, stages, chunks if name == "interleaved" else 1, 0, count)
    made = pipeline_of(Workload(LOOP, (end, *block * count), sizes, "simai"), name)
    ways = made.schedule.ways
    for passages, (head, _) in zip(made.stages, made.ends, strict=True):
        forwards = [each for each in passages if each.cell.kind == "F" and each.cell.micro_batch == 0]
        assert [block[(row - 1) % len(block)].name for each in forwards for row in each.rows] == names
        assert head == (0,) * ways


def test_virtual_stages_and_cut_parts_take_as_long():
    whole = Run(equal_stages(4, 8), machine(4), settings=Settings(schedule="interleaved"))
    said = Run(equal_stages(4, 8, vpp=2), machine(4))
    assert whole.timeline().time_ns == said.timeline().time_ns
    assert any("virtual stages" in note for note in said.timeline().notes)


def test_virtual_stages_that_cannot_be_interleaved_are_one():
    run = Run(equal_stages(4, 6, vpp=2), machine(4))
    assert run.report()["pipeline"]["schedule"] == "1f1b"
    assert any("no multiple of pp" in note for note in run.timeline().notes)


def test_without_gradients_a_pipeline_only_goes_forward():
    layer = Layer("row", Phase(100))
    workload = Workload("DISTRIBUTED_INFERENCE", (layer,) * 2, Parallelism(1, 1, 4, 1, 0, 1), "simai")
    assert Run(workload, machine(4)).timeline().time_ns == 4 * 200


HEADER = f"{LOOP} model_parallel_NPU_group: 2 pp: {{pp}} vpp: 1 ga: {{ga}} all_gpus: 8 {{rows}}pp_comm: 8\n"
ROW = "{name}\t-1\t10\tNONE\t0\t10\tNONE\t0\t10\tNONE\t0\t0\n"


@pytest.mark.parametrize(
    ("names", "sizes", "schedule", "line", "said"),
    [
        ("aaaaa", {"pp": 2, "ga": 3}, "", 3, "5 rows are not ga: 3 equal micro-batches"),
        ("abac", {"pp": 2, "ga": 2}, "", 6, "'c' is the first that differs"),
        ("aa", {"pp": 2, "ga": 10**12}, "", 1, "more than there are rows"),
        ("abab", {"pp": 8, "ga": 2}, "", 1, "do not fit the topology"),
        ("abab", {"pp": 2, "ga": 2}, "dualpipe", 0, "does not exist"),
        ("abab", {"pp": 2, "ga": 2, "rows": "etp: 2 ep: 4 "}, "", 1, "expert ranks reach over stages"),
        ("aa", {"pp": 2, "ga": 2}, "zb-v", 1, "cannot be cut into 2"),
        ("abab", {"pp": 1, "ga": 2}, "1f1b", 0, "no pipeline to schedule"),
        ("abab", {"pp": 2, "ga": 2, "rows": "stage_rows: 3 1 1 2 "}, "", 1, "must count the rows of pp \\* vpp parts"),
        ("abab", {"pp": 2, "ga": 2, "rows": "stage_rows: 2 1 2 "}, "", 1, "are not those of the file"),
        ("abab", {"pp": 1, "ga": 2, "rows": "schedule: zb-h1 "}, "", 1, "no pipeline to schedule"),
        ("abab", {"pp": 2, "ga": 2, "rows": "schedule: 1f2b "}, "", 1, "no such schedule"),
        ("abab", {"pp": 2, "ga": 2, "rows": "schedule: dualpipe "}, "", 1, "does not exist"),
    ],
)
def test_what_is_no_pipeline_is_an_error_with_its_place(names, sizes, schedule, line, said):
    written = HEADER.format(**{"rows": "", **sizes}) + f"{len(names)}\n" + "".join(ROW.format(name=n) for n in names)
    with pytest.raises(InputError, match=said) as raised:
        Run(text.parse(written, "made.txt"), machine(4), settings=Settings(schedule=schedule)).timeline()
    place = raised.value.problems[0].location
    assert (place.file, place.line) == (("made.txt", line) if line else ("--schedule", 0))


@pytest.mark.parametrize("loop", ["DATA", "HYBRID_DLRM"])
def test_other_loops_have_no_pipeline(loop):
    workload = Workload(loop, (Layer("one"),), Parallelism(pp=2), "simai", last_bottom_layer=0)
    with pytest.raises(InputError, match="has no pipeline"):
        Run(workload, machine(2)).timeline()


def test_pipelines_of_profiles_that_have_none_are_one_stage():
    run = Run(equal_stages(4, 4), machine(4), profile="astra-sim-1.0")
    assert "pipeline" not in run.report()
    with pytest.raises(InputError, match="no pipeline to schedule"):
        run.timeline(schedule="1f1b")


COMMAND = (
    *("generate", "megatron", "--model", "gpt-175b", "--num-layers", "6", "--hidden-size", "1024"),
    *("--num_attention_heads", "8", "--world_size", "8", "--tensor_model_parallel_size", "2"),
    *("--pipeline_model_parallel", "2", "--global_batch", "8", "--seq_length", "256", "--gpu_type", "A100"),
    "--untie_embeddings_and_output_weights",  # rows cannot say what a tied table sends between stages
)
RINGS = "topology: [Ring, Ring, Ring]\nnpus_count: [2, 2, 2]\nbandwidth: [450, 50, 25]\nlatency: [500, 1000, 2000]\n"


@pytest.mark.parametrize(
    ("given", "schedule"),
    [
        ((), "1f1b"),
        (("--use-distributed-optimizer", "--enable_sequence_parallel"), "1f1b"),
        (("--virtual_pip", "3"), "interleaved"),
        (("--recompute", "full"), "gpipe"),
        ((), "zb-h1"),
        (("--overlap_grad_reduce",), "1f1b"),
        (("--overlap_grad_reduce", "--enable_sequence_parallel"), "zb-h1"),
    ],
)
def test_text_specification_and_traces_of_a_step_take_the_same_time(tmp_path, given, schedule):
    topology = tmp_path / "rings.yaml"
    topology.write_text(RINGS)
    forms = {"text": tmp_path / "step.txt", "spec": tmp_path / "step.yaml", "chakra": tmp_path / "step"}
    for form, path in forms.items():
        order = ("--schedule", schedule) if form == "chakra" else ()
        assert main([*COMMAND, *given, *order, "--format", form, "-o", str(path)]) == 0
    rows, spec = (simcore.run(str(forms[form]), str(topology), schedule=schedule) for form in ("text", "spec"))
    traces = simcore.run(str(forms["chakra"]), str(topology), comm_groups=f"{forms['chakra']}.groups.json")
    assert rows.timeline.time_ns == spec.timeline.time_ns == traces.timeline.time_ns
    assert len(rows.timeline.ranks) == 2


def test_a_specification_with_context_parallelism_takes_as_long_as_its_traces(tmp_path):
    """The text has no word for the group: it stands inside the data-parallel one, next to the tensor ranks."""
    topology = tmp_path / "rings.yaml"
    topology.write_text(RINGS)
    for form in ("spec", "chakra"):
        path = str(tmp_path / ("step.yaml" if form == "spec" else "step"))
        assert main([*COMMAND, "--context_parallel_size", "2", "--format", form, "-o", path]) == 0
    spec = simcore.run(str(tmp_path / "step.yaml"), str(topology))
    traces = simcore.run(str(tmp_path / "step"), str(topology))  # with step.groups.json, which lies beside them
    assert spec.timeline.time_ns == traces.timeline.time_ns
    sent = [row["forward"]["comm_ns"] for row in spec.to_dict()["layers"] if row["name"] == "attention_context"]
    assert sent and all(sent)
