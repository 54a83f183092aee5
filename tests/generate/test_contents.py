"""What a summary says is what is in the rows; a text and its traces say the same; a comparison adds up."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.api import load_workload, run
from simcore.cli import main
from simcore.generate.step import read_contents
from simcore.report.workload import contents_figure
from simcore.report.workload_compare import compare_contents
from simcore.workload import text
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.contents import Roof, Work, of_workload
from simcore.workload.model import NodeKind, PhaseName

STEP = (
    *("generate", "megatron", "--model", "mixtral-8x7b", "--num-layers", "4", "--hidden-size", "1024"),
    *("--world_size", "16", "--tensor_model_parallel_size", "2", "--expert_model_parallel_size", "2"),
    *("--enable_sequence_parallel", "--use-distributed-optimizer", "--global_batch", "16", "--seq_length", "256"),
    *("--gpu_type", "A100"),
)


@pytest.fixture
def step(tmp_path):
    def make(name, *more):
        assert main([*STEP, *more, "-o", str(tmp_path / name)]) == 0
        return str(tmp_path / name)

    return make


def test_the_figures_are_the_sums_of_the_rows(step):
    path = step("step.txt")
    phases = [layer.phase(name) for layer in text.read(path).layers for name in PhaseName]
    contents = read_contents(path)
    assert contents.total_bytes == sum(phase.size_bytes for phase in phases if phase.collective)
    assert contents.compute_ns == sum(phase.compute_ns for phase in phases)
    assert sum(row.count for row in contents.traffic) == sum(phase.collective is not None for phase in phases)


@pytest.mark.parametrize("stages", ["1", "2"])
def test_a_text_a_specification_and_their_traces_have_the_same_contents(step, stages):
    """Bytes by collective and group size, transfers between stages, and computation by kind and phase."""
    stages = ("--pipeline_model_parallel", stages)
    written, spec = (
        read_contents(step("step.txt", *stages)),
        read_contents(step("step.yaml", "--format", "spec", *stages)),
    )
    traces = read_contents(step("step", "--format", "chakra", *stages))
    comparison = compare_contents(spec, traces)
    assert not comparison.compute_ns.difference
    assert all(not row.compute_ns.difference for row in comparison.compute)
    # A rank's part of a gathered buffer is rounded up to whole bytes; experts' replicas are not in the text's header.
    assert abs(comparison.size_bytes.difference) <= 64
    assert compare_contents(written, spec).size_bytes.difference == 0
    for row in comparison.traffic:
        assert abs(row.size_bytes.difference) <= 64, row
    assert "computes the same as A" in comparison.headline()


def test_a_comparison_says_what_changed_and_its_rows_add_up(step, capsys):
    a, b = step("a.txt"), step("b.txt", "--recompute", "full", "--moe_router_topk", "4")
    capsys.readouterr()
    assert main(["compare", a, b]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.match(
        r"B communicates [\d.]+ GB where A communicates [\d.]+ GB, [\d.]+ times as much, above all the", said
    )
    assert main(["compare", a, b, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for rows, total, figure in (("traffic", "size_bytes", "size_bytes"), ("compute", "compute_ns", "compute_ns")):
        for side in "ab":
            assert sum(row[figure][side] for row in document[rows]) == document[total][side]


def test_equal_workloads_differ_in_nothing(step, capsys):
    path = step("a.txt")
    capsys.readouterr()
    assert main(["compare", path, path]) == 0
    assert capsys.readouterr().out.startswith("B communicates the same as A")


@pytest.mark.parametrize("suffix", [".html", ".json"])  # a page holds the picture
def test_a_summary_is_written_whole_and_always_the_same(step, tmp_path, suffix):
    first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
    step("step.txt", "--summary", str(first))
    step("again.txt", "--summary", str(second))
    assert first.read_bytes() == second.read_bytes()
    assert "all" in first.read_text()


def test_a_page_shows_names_from_files_as_text(tmp_path):
    from simcore.report.workload import write_summary
    from simcore.workload.model import Layer, Phase, Workload

    layer = Layer("<script>alert(1)</script>", Phase(5))
    write_summary(of_workload(Workload("DATA", (layer,), name="<b>")), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "<b>" not in page


def test_no_part_of_a_model_is_above_the_roof():
    """Time is at least work over the peak and bytes over the bandwidth."""
    from simcore.compute.accelerators import accelerator
    from simcore.generate.durations import roofline, with_work
    from simcore.model.plan import Plan
    from simcore.model.presets import model
    from simcore.model.rows import stage_workload

    chosen, plan = model("llama-3-8b"), Plan(8, 4096, tp=2, global_batch=4)
    times = roofline(chosen, plan, accelerator("H100"))
    contents = with_work(of_workload(stage_workload(chosen, plan, times)), times, times)
    assert contents.roof
    assert len(contents.work) > 12
    for work in contents.work:
        assert work.flops / contents.roof.flops_per_s * 1e9 <= work.time_ns
        assert work.memory_bytes / contents.roof.memory_bytes_per_s * 1e9 <= work.time_ns


@pytest.mark.parametrize("slower", [1, 30, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("wide", [1, 30, 1e3, 1e6])
def test_a_roofline_has_some_numbers_on_both_axes(wide, slower):
    """Over many powers of ten one axis had none, and those of the other lay on each other."""
    roof = Roof("a device", "bf16", 1e15, 3e12)
    parts = [Work("part", "forward", 1e12, 1e12 / at, round(1e6 * slower)) for at in (1e3, 1e3 / wide)]
    contents = replace(of_workload(load_workload("dlrm")), roof=roof, work=tuple(parts))
    axes = contents_figure(contents).axes[-1]
    for numbers, (low, high) in ((axes.get_xticks(), axes.get_xlim()), (axes.get_yticks(), axes.get_ylim())):
        assert 2 <= sum(low <= number <= high for number in numbers) <= 8


def test_a_summary_of_an_unknown_format_is_refused(step, capsys):
    assert main([*STEP, "--summary", "step.bmp"]) == 2
    assert ".png" in capsys.readouterr().err


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_an_inference_step_in_traces_computes_and_sends_what_its_rows_do(tmp_path, phase):
    """All stages' rows together, and activations from stage to stage; nothing comes back."""
    plan = ("--tensor_model_parallel_size", "2", "--expert_model_parallel_size", "2", "--pipeline_model_parallel", "2")
    command = ("generate", "inference", "mixtral-8x7b", "--world_size", "8", "--seq_length", "128", "--phase", phase)
    command = (*command, *plan, "--gpu_type", "H100")
    computed = sent = 0
    for stage in range(2):
        path = tmp_path / f"{stage}.txt"
        assert main([*command, "--pp_rank", str(stage), "-o", str(path)]) == 0
        phases = [layer.forward for layer in text.read(path).layers]
        computed += sum(each.compute_ns for each in phases)
        sent += sum(each.size_bytes for each in phases)
    assert main([*command, "-o", str(tmp_path / "whole.txt")]) == 0
    whole = read_contents(str(tmp_path / "whole.txt"))
    assert main([*command, "--format", "chakra", "-o", str(tmp_path / "step")]) == 0
    contents = read_contents(str(tmp_path / "step"))
    assert contents.num_ranks == 8
    assert contents.compute_ns == 4 * computed == 4 * whole.compute_ns
    assert contents.total_bytes == 4 * whole.total_bytes
    passed = [row for row in contents.traffic if row.collective == "send"]
    assert [(row.count, row.size_bytes) for row in passed] == [(4, 4096 * 2 * (128 if phase == "prefill" else 1))]
    assert contents.total_bytes - passed[0].total_bytes == 4 * sent


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path_factory, sizes, one_name):
    """Ranks of several jobs may call their groups the same: what is gathered is that of each group's own size."""
    folder, first, sent = tmp_path_factory.mktemp("set"), 0, Counter()
    for number, size in enumerate(sizes):
        group = "tp" if one_name else f"tp{number}"
        defined = writer.groups(0, {group: range(first, first + size)})
        said = {"comm_type": int(CommType.ALL_GATHER), "comm_size": 1000, "pg_name": group}
        data = writer.encode(writer.metadata(), [defined, writer.node(1, "c", NodeKind.COLLECTIVE, attributes=said)])
        for rank in range(first, first + size):
            (folder / f"w.{rank}.et").write_bytes(data)
        first += size
        sent[size] += 1000 * size * size
    found = read_contents(str(folder / "w")).traffic
    assert {row.group_size: row.total_bytes for row in found} == sent


@pytest.mark.parametrize("name", ["nothing.txt", "nothing", "nothing.yaml", "nothing.et", "."])
def test_a_workload_that_is_not_there_is_an_error(step, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "summary", name]) == 2
    assert main(["compare", step("step.txt"), name]) == 2


def test_a_recommender_s_embeddings_are_exchanged_by_all():
    found = of_workload(load_workload("dlrm")).by_group()
    assert ("all_to_all", "all") in found
    assert not any(group == "none" for _, group in found)


@pytest.mark.parametrize(("loop", "sent"), [("DATA", 1 << 16), ("MODEL", 4096), ("HYBRID_TRANSFORMER", 70144)])
def test_what_a_loop_sends_to_nobody_is_not_communicated(loop, sent):
    row = "fc -1 10 ALLREDUCE 4096 10 ALLREDUCE 512 10 ALLREDUCE 65536 0"
    header = loop + " model_parallel_NPU_group: 2" * loop.startswith("HYBRID")
    assert of_workload(text.parse(f"{header}\n1\n{row}\n", "rows.txt")).total_bytes == sent


@pytest.mark.parametrize(
    "loop", ["DATA", "MODEL", "HYBRID_DLRM 1", "HYBRID_TRANSFORMER model_parallel_NPU_group: 2", "MICRO"]
)
def test_a_text_computes_and_sends_what_its_run_does(loop):
    """Of row 0 most loops send, or compute, no input gradient; some play one row alone."""
    row = "fc -1 10 ALLTOALL 4096 100 ALLREDUCE 512 1000 ALLREDUCE 65536 0"
    workload = text.parse(f"{loop}\n4\n" + f"{row}\n" * 4, "rows.txt")
    contents, played = of_workload(workload), [row[name] for row in run(workload, "ring8").layers for name in PhaseName]
    assert contents.compute_ns == sum(phase["compute_ns"] for phase in played)
    assert sum(each.count for each in contents.traffic) == sum(phase["comm_ns"] > 0 for phase in played)


@pytest.mark.parametrize(("header", "sends"), [("vpp: 1", 2 * 3 * 4), ("vpp: 2", 2 * 7 * 4)])
def test_a_text_of_one_stage_is_that_of_all_and_they_hand_on(header, sends):
    """AICB's texts have the rows that every stage runs: of four stages three hand on, in both directions."""
    header = f"HYBRID_TRANSFORMER model_parallel_NPU_group: 2 pp: 4 ga: 4 all_gpus: 16 pp_comm: 100 {header}"
    row = "fc -1 10 ALLREDUCE 4096 10 ALLREDUCE 512 10 NONE 0 0"
    contents = of_workload(text.parse(f"{header}\n8\n" + f"{row}\n" * 8, "rows.txt"))
    assert contents.num_ranks == 4
    assert contents.by_group()["send", "pp"] == (sends, 100 * sends)
    assert contents.compute_ns == 4 * 8 * 30


def test_shipped_workloads_are_known_by_name(capsys):
    assert main(["compare", "gpt_7b", "dlrm"]) == 0
    assert capsys.readouterr().out.startswith("B communicates")


def test_what_is_served_in_fp8_holds_half_the_weights_and_the_same_cache(capsys):
    """Activations are sent and cached in 16 bits; a GPU without fp8 refuses."""
    served = ["generate", "inference", "llama-3-8b", "--phase", "prefill", "--seq_length", "4096", "--json"]
    made = {}
    for dtype in ("bfloat16", "float8"):
        assert main([*served, "--gpu_type", "H100", "--dtype", dtype]) == 0
        made[dtype] = json.loads(capsys.readouterr().out)
    wide, narrow = (made[dtype]["memory"] for dtype in ("bfloat16", "float8"))
    assert wide["parameter_bytes"] == 2 * narrow["parameter_bytes"]
    assert wide["kv_cache_bytes"] == narrow["kv_cache_bytes"]
    times = [sum(row["forward"]["compute_ns"] for row in made[dtype]["rows"]) for dtype in ("bfloat16", "float8")]
    assert times[1] < times[0]
    assert main([*served, "--gpu_type", "A100", "--dtype", "float8"]) == 2
    assert "fp8" in capsys.readouterr().err
