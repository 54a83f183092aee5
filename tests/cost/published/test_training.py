"""Steps of framework vendors and of MLPerf: read row by row, predicted without their answers."""

import json
from dataclasses import replace

import pytest

from simcore.api import predict as predict_for_users
from simcore.cli import main
from simcore.cost.answer import Answer
from simcore.cost.predict import gradient_sums, predict, slowest_of
from simcore.cost.published.reading import sort_rows
from simcore.cost.published.suites import SUITES
from simcore.cost.published.training import family, training
from simcore.cost.published.validate import default_documents, document, score
from simcore.cost.systems import CLUSTERS, SOFTWARE, Software, placed
from simcore.model.memory import peak
from simcore.model.plan import LINEAR, Plan
from simcore.model.presets import SHIPPED as MODELS

BAD = [
    {"id": "no-model", "framework": "Megatron", "hardware": {"accelerator": "H100"}, "measured": {"iter_s": 1.0}},
    {"id": "no-software", "measured": {"iter_s": 1.0}},
    {"measured": 3},
    "no row at all",
]


@pytest.fixture(scope="module")
def rows():
    """Every tenth row of both forms."""
    found = [row for each in default_documents() for row in each.get("rows", ())]
    return [row for row in found if "framework" in row or "benchmark" in row][::10]


def answers(rows, tmp_path, capsys):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": rows}))
    assert main(["validate", "--data", str(path), "--json"]) in (0, 3)
    suites = json.loads(capsys.readouterr().out)["suites"]
    return [suite for suite in suites if not suite["name"].endswith("_memory")]  # the same rows again


def test_every_row_is_predicted_or_refused_once_whatever_stands_beside_it(rows, tmp_path, capsys):
    suites = answers([*rows, *BAD], tmp_path, capsys)
    predicted = [row["id"] for suite in suites for row in suite["rows"]]
    refused = {one["id"]: one["reason"] for suite in suites for one in suite["refused"]}
    assert sorted([*predicted, *refused]) == sorted(
        [row["id"] for row in rows] + ["no-model", "no-software"] + [f"rows[{len(rows) + n}]" for n in (2, 3)]
    )
    assert set(refused) >= {"no-model", "no-software"}
    assert all(refused.values())


def test_predictions_and_intervals_know_neither_the_answer_nor_the_name(rows, tmp_path, capsys):
    def made(some):
        suites = answers(some, tmp_path, capsys)
        return sorted((row["predicted_s"], *row["interval_s"]) for suite in suites for row in suite["rows"])

    hidden = [{**row, "id": f"row {number}", "measured": {"iter_s": 1.0}} for number, row in enumerate(rows)]
    stated = [row for row in rows if "iter_s" in row["measured"]]
    names = {row["id"] for row in stated}
    assert made(stated) == made([one for one, row in zip(hidden, rows, strict=True) if row["id"] in names])


def test_a_file_of_refused_rows_only_is_no_error(tmp_path, capsys):
    suites = answers(BAD, tmp_path, capsys)
    assert sum(len(suite["refused"]) for suite in suites) == len(BAD)
    assert not any(suite["rows"] for suite in suites)


def test_the_document_says_what_was_fitted_and_what_leaving_sources_out_costs():
    (one,) = [some for some in sort_rows(default_documents()) if some.suite.name == "mlperf_llama31_405b"]
    (suite,) = document([score(one)])["suites"]
    assert suite["in_sample"]
    assert suite["left_out"]["mean_abs_error"] > 0
    assert suite["bias"] == pytest.approx(sum(row["error"] for row in suite["rows"]) / len(suite["rows"]))


def lora(**changes):
    (row,) = [
        row for each in default_documents() for row in each.get("rows", ())
        if row.get("id") == "mlperf-v5.0-nvidia-nyx_n1_ngc25.04_nemo-llama2_70b_lora"
    ]  # fmt: skip
    step = training({**row, **changes})
    return step.jobs[0], step.system()


def test_adapters_on_attention_cost_less_than_on_every_product_and_full_training_most():
    (model, plan), cluster = lora()
    assert plan.lora_modules == ("linear_qkv", "linear_proj")
    times = [predict(model, replace(plan, lora_rank=rank, lora_modules=targets), cluster).step_s
             for rank, targets in ((16, plan.lora_modules), (16, LINEAR), (0, ()))]  # fmt: skip
    assert times == sorted(times)
    assert peak(model, plan).total < peak(model, replace(plan, lora_modules=LINEAR)).total


def test_attention_in_eight_bits_is_faster():
    (model, plan), cluster = lora()
    assert plan.attention_dtype == "fp8"
    assert predict(model, replace(plan, attention_dtype=""), cluster).step_s > predict(model, plan, cluster).step_s


def test_what_is_computed_again_takes_time_by_the_piece():
    (model, plan), cluster = lora()
    full = replace(plan, lora_rank=0, lora_modules=LINEAR)
    pieces = [("layernorm",), ("layernorm", "mlp_gate"), ("layernorm", "mlp_up"), ("layernorm", "mlp_up", "qkv_proj")]
    again = [replace(full, recompute="selective", recompute_modules=some) for some in pieces]
    times = [predict(model, one, cluster).step_s for one in (full, *again, replace(full, recompute="full"))]
    assert times == sorted(times)


def test_the_slowest_of_more_ranks_is_later():
    assert slowest_of(1) == 0
    assert 0 < slowest_of(2) < slowest_of(64) < slowest_of(10_000) < 4


@pytest.mark.parametrize(("name", "count"), [("mlperf_memory", 25), ("torchtitan_memory", 8)])
def test_published_peaks_of_memory_are_met_within_a_tenth(name, count):
    (some,) = sort_rows(default_documents(), [SUITES[name]])
    scored = score(some)
    assert len(scored.rows) == count
    assert max(map(abs, scored.errors)) < 0.1


def test_weights_and_what_products_read_take_a_byte_where_products_have_eight_bits():
    model = replace(MODELS["llama-3-8b"], vocab=128)
    wide, narrow = (Plan.of(2048, 8, dp=8, zero=1, dtype=dtype) for dtype in ("bf16", "fp8"))
    assert peak(model, narrow).activations < peak(model, wide).activations
    assert peak(model, narrow).parameters == peak(model, wide).parameters
    halved = replace(narrow, parameter_dtype="fp8")
    assert 2 * peak(model, halved).parameters == peak(model, narrow).parameters
    gathered, smaller = (gradient_sums(model, plan, Software())[1].size_bytes for plan in (narrow, halved))
    assert gathered == 2 * smaller


def test_sums_beside_the_backward_slow_its_kernels():
    model, plan = MODELS["llama-3-8b"], Plan.of(8192, 64, dp=64, tp=1, zero=1, overlap=True)
    calm = CLUSTERS["h100"]
    slowed = replace(calm, software=replace(calm.software, slowdown_across=0.5))
    assert predict(model, plan, slowed).step_s > predict(model, plan, calm).step_s


def test_finding_eight_bit_scales_costs_hopper_a_wait_per_part_and_pass_and_blackwell_nothing():
    model = MODELS["llama-3-8b"]
    whole = Plan.of(8192, 8, dp=8, zero=1, dtype="fp8")
    for plan in (whole, Plan.of(8192, 64, dp=4, pp=2, virtual_stages=4, zero=1, dtype="fp8")):
        for name, waits in (("h100", True), ("dgx-b200", False)):
            free = replace(CLUSTERS[name], software=replace(CLUSTERS[name].software, scales_s=0.0))
            cost = predict(model, plan, CLUSTERS[name]).step_s - predict(model, plan, free).step_s
            waited = 2 * plan.micro_batches * plan.virtual_stages * CLUSTERS[name].software.scales_s
            assert cost > waited if waits else cost == 0
            assert cost < 1.5 * waited + 1e-12


def test_frozen_eight_bit_weights_are_turned_for_input_gradients_before_blackwell():
    """The least that it takes is to read and write them all once a micro-batch at the device's memory rate."""
    model, adapters = MODELS["llama-2-70b"], {"lora_rank": 16, "lora_modules": ("linear_qkv", "linear_proj")}
    plan = Plan.of(8192, 8, dp=8, zero=1, dtype="fp8", parameter_dtype="fp8", **adapters)
    for name, all_turned, frozen in (("h100", True, True), ("dgx-b200", False, True), ("h100", False, False)):
        asked = plan if frozen else plan.but(lora_rank=0, lora_modules=())
        kept = replace(CLUSTERS[name], software=replace(CLUSTERS[name].software, transposing_bytes=0.0))
        cost = predict(model, asked, CLUSTERS[name]).step_s - predict(model, asked, kept).step_s
        least_s = 2 * 68e9 / CLUSTERS[name].device.memory_bytes_per_s
        assert least_s < cost < 2 * least_s if all_turned else cost == 0


@pytest.mark.parametrize(
    ("way", "zero", "cp"), [("owners_broadcast", 1, 1), ("sums_whole", 1, 1), ("gathers_keys", 3, 4)]
)
def test_what_software_does_in_a_costlier_way_takes_longer(way, zero, cp):
    model = MODELS["llama-3-8b"]
    plan = Plan.of(8192, 256, dp=256 // cp, cp=cp, zero=zero, context="ring")
    spread = placed("A100", "mosaicml", count=256, per_node=1)
    costly = replace(spread, software=replace(spread.software, **{way: not getattr(spread.software, way)}))
    times = sorted(predict(model, plan, one).step_s for one in (spread, costly))
    assert getattr(costly.software, way) == (predict(model, plan, costly).step_s == times[1])
    assert times[0] < times[1]


STATED = {
    "id": "mine", "batch": {"global_": 16}, "parallel": {"zero": 1}, "measured": {"iter_s": 1.0},
    "model": {"layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000, "seq": 4096},
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("A100-SXM-40GB", "bfloat16"), ("NVIDIA H800", "bf16"), ("H20", "fp8"), ("NVIDIA H100 80GB HBM3", "fp8"),
     ("L40S", "bf16"), ("H200-NVL", "fp8"), ("GB300", "NVFP4"), ("V100-SXM-32GB", "fp16"), ("MI300X", "bf16"),
     ("MI325X", "fp8"), ("MI355X", "MXFP8"), ("Gaudi2", "fp8"), ("Gaudi3", "bf16"), ("TPUv4", "bf16"),
     ("TPUv5e", "int8"), ("TPUv5p", "bf16"), ("TPUv6e", "bf16")],
)  # fmt: skip
@pytest.mark.parametrize(
    "software", ["NeMo", "TorchTitan FSDP2", "MaxText", "DeepSpeed", "Nanotron", "one that nobody measured"]
)
def test_a_row_that_states_a_job_is_answered_whatever_ran_it(device, dtype, software):
    row = STATED | {
        "framework": software,
        "dtype": dtype,
        "hardware": {"accelerator": device, "count": 8},
        "note": "eager",
    }
    step = training(row)
    answer = Answer(*step.jobs[0], step.system())
    assert 0.01 < answer.mfu < 0.9
    assert 0.05 < answer.margin.share < 0.6
    assert answer.margin.support < 1 or software not in ("Nanotron", "one that nobody measured")


def test_boards_with_slower_links_wait_longer_for_each_other():
    row = STATED | {"framework": "NeMo", "dtype": "bf16", "parallel": {"tp": 8}}
    fast, slow = (training(row | {"hardware": {"accelerator": name, "count": 8}}) for name in ("H100", "H800"))
    assert slow.seconds() > fast.seconds()


@pytest.mark.parametrize("software", ["Megatron-DeepSpeed", "GPT-NeoX"])
def test_rows_of_deepspeed_are_read_as_its_published_tables_are(software):
    """Its pipeline sends between passes, its gradients are summed behind them, its tensor ranks split no sequences."""
    row = STATED | {"framework": software, "dtype": "bf16", "hardware": {"accelerator": "A100", "count": 16}}
    degrees = {"tp": 2, "pp": 2, "zero": 1}
    (read,) = training(row | {"parallel": degrees}).jobs
    (suite,) = sort_rows(default_documents(), [SUITES["bigscience"]])
    (known,) = suite.rows[0].question.jobs
    for name in ("overlap", "overlap_pipeline", "scatter_pipeline", "sequence_parallel"):
        assert getattr(read.plan, name) == getattr(known.plan, name), name
    (split,) = training(row | {"parallel": degrees | {"sequence_parallel": True}}).jobs
    assert split.plan.sequence_parallel


@pytest.mark.parametrize(
    ("name", "count", "node"),
    [("TPUv4", 6144, 3072), ("TPUv5e", 512, 256), ("TPUv5e", 640, 160), ("TPUv4", 24, 4096), ("GB300", 144, 72),
     ("GB300", 128, 64), ("H100", 12, 8)],
)  # fmt: skip
def test_users_and_rows_have_the_same_nodes_and_equal_slices(name, count, node):
    row = STATED | {"framework": "MaxText", "dtype": "bf16", "batch": {"global_": count}}
    read = training(row | {"hardware": {"accelerator": name, "count": count}}).system().fabric
    asked = predict_for_users("llama-3-8b", name, count, 4096, zero=3, global_batch=count).cluster.fabric
    assert read == asked and read.node_ranks == node


@pytest.mark.parametrize(("tp", "split"), [(1, False), (4, True), (12, False)])
def test_tensor_ranks_split_sequences_without_a_word_where_these_divide(tp, split):
    """PaLM's twelve tensor ranks (arXiv 2204.02311) do not divide 2,048 tokens."""
    row = STATED | {"framework": "T5X", "dtype": "bf16", "parallel": {"tp": tp, "zero": 3}, "batch": {"global_": 48}}
    shape = STATED["model"] | {"hidden": 4608, "heads": 48, "kv_heads": 1, "head_dim": 96, "ffn": 18432}
    step = training(row | {"model": shape, "hardware": {"accelerator": "TPUv4", "count": 48}})
    assert step.jobs[0].plan.sequence_parallel is split
    assert step.seconds() > 0


@pytest.mark.parametrize(("software", "known"), [("Megatron-LM", "megatron-lm-2021"), ("DeepSpeed", "deepspeed-volta")])
def test_volta_has_the_software_of_before_fused_attention(software, known):
    """FlashAttention is for Turing and later: what ran on V100 is read as the tables of 2021 are."""
    row = STATED | {"framework": software, "dtype": "fp16", "parallel": {"tp": 2, "pp": 2, "zero": 1}}
    older, newer = (training(row | {"hardware": {"accelerator": name, "count": 16}}) for name in ("V100-SXM2", "A100"))
    (suite,) = sort_rows(default_documents(), [SUITES["sc21_table1"]])
    (plan,), table = (one.plan for one in older.jobs), suite.rows[-1].question.jobs[0].plan
    for name in ("fused_attention", "dropout", "overlap", "overlap_pipeline", "scatter_pipeline", "sequence_parallel"):
        assert getattr(plan, name) == getattr(table, name), name
    assert older.system().software == SOFTWARE[known]
    assert newer.jobs[0].plan.fused_attention and newer.system().software != SOFTWARE[known]


def test_deepseek_v3_takes_what_its_authors_paid_for_it():
    """2.664 million hours of 2,048 H800 for 14.8e12 tokens (arXiv 2412.19437, table 1), never fitted."""
    plan = Plan.of(
        4096, 15360, dp=128, pp=16, ep=64, zero=1, dtype="fp8", schedule="dualpipe", virtual_stages=2, overlap=True
    )
    cluster = placed("H800", "hai-llm", count=2048)
    measured_s = 2.664e6 * 3600 / 2048 / (14.8e12 / (15360 * 4096))
    assert predict(MODELS["deepseek-v3"], plan, cluster).step_s == pytest.approx(measured_s, rel=0.1)


@pytest.fixture(scope="module")
def on_tpus():
    """MaxText's steps by their names."""
    (some,) = sort_rows(default_documents(), [SUITES["frameworks_xla_google"]])
    return {row.id: row.question for row in some.rows}


def test_a_makers_boards_may_have_a_suite_of_their_own():
    row, known = {"framework": "MaxText", "hardware": {"accelerator": "TPU v5p-128"}}, ["frameworks_xla"]
    assert family(row, known) == "frameworks_xla"
    assert family(row, [*known, "frameworks_xla_google"]) == "frameworks_xla_google"
    assert family({**row, "hardware": "a pod"}, [*known, "frameworks_xla_google"]) == "frameworks_xla"


def test_xla_that_computes_all_again_keeps_no_more_than_the_inputs_of_layers(on_tpus):
    ((model, plan),) = on_tpus["recipe-v6e-llama2-70b-256-full"].jobs
    assert plan.recompute == "selective"
    assert peak(model, plan).activations == peak(model, replace(plan, recompute="full")).activations


def test_what_the_host_keeps_leaves_the_device_and_is_never_faster(on_tpus):
    step = on_tpus["recipe-v6e-llama31-8b-8"]
    ((model, plan),) = step.jobs
    here = replace(plan, offload=())
    assert peak(model, plan).activations < peak(model, here).activations
    assert step.seconds() >= predict(model, here, step.system()).step_s
