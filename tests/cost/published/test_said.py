"""Words of published rows: read by their meaning, however they are written, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.cost.published.said import again, number, schedule, zero_level
from simcore.cost.published.training import training
from simcore.errors import InputError
from simcore.model.presets import SHIPPED

ROW = {
    "framework": "Megatron-Core",
    "hardware": {"accelerator": "H100", "count": 64, "per_node": 8},
    "model": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq": 8192},
    "parallel": {"tp": 2, "pp": 4, "vp": 2, "dp": 8, "zero": 1},
    "batch": {"global_": 128, "micro": 1},
    "dtype": "bf16",
}


def read(**changes):
    """The question of a row that says something else in some of its parts."""
    parts = {key: ROW[key] | value if isinstance(value, dict) else value for key, value in changes.items()}
    return training(ROW | parts)


def computed_again(cell, words="", layers=8, profile="megatron-core", *, xla=False):
    return again(cell, words, layers, profile, xla=xla)


@pytest.mark.parametrize(
    ("cells", "meant"),
    [
        (("full", "Full", "FULL AC", "activation checkpointing", "remat", True, "yes"), ("full", 0, "block")),
        (("full (5 layers)", "Full, 5 layers", "block: 5", 5), ("full", 5, "block")),
        (("uniform 2", "full (uniform, 2 layers)"), ("full", 2, "uniform")),
        (("every 2nd layer", "every other layer", "selective 2"), ("full", 4, "block")),
    ],
)  # fmt: skip
def test_whole_layers_are_computed_again_however_a_source_says_it(cells, meant):
    names = "recompute", "recompute_layers", "recompute_method"
    for cell in cells:
        found = dict.fromkeys(names, 0) | {"recompute_method": "block"} | computed_again(cell)
        assert found == dict(zip(names, meant, strict=True)), cell


@pytest.mark.parametrize("cell", [None, "", "none", "None", "no recompute", False, 0, "n/a", "-", "off"])
def test_who_says_nothing_computes_nothing_again(cell):
    assert computed_again(cell) == {"recompute": "none"}


def test_modules_are_computed_again_by_name():
    both = computed_again("Selective: mla_up_proj, moe-act")
    assert both == {"recompute": "selective", "recompute_modules": ("mla_up_proj", "moe_act")}
    assert computed_again("selective (attention)")["recompute_modules"] == ("core_attn",)
    assert computed_again("selective") == {"recompute": "selective"}
    assert "out_proj" in computed_again("selective", profile="torchtitan")["recompute_modules"]
    assert computed_again("minimal", xla=True) == computed_again("none", "save_dot_with_no_batch", xla=True)


@given(st.text("bcdghijkpqxz", min_size=3, max_size=12))
def test_words_that_mean_nothing_are_never_taken_for_nothing(word):
    for reader in (computed_again, schedule, zero_level):
        with pytest.raises(InputError):
            reader(f"w{word}")


@given(st.integers(0, 1 << 20))
def test_numbers_are_read_however_they_are_written(value):
    assert {number(said) for said in (value, float(value), str(value), f"{value:,}", f"TP{value}")} == {value}
    assert number(f"{value}k") == value << 10


@pytest.mark.parametrize(
    ("said", "level"),
    [("ZeRO-3", 3), ("FSDP2", 3), ("HSDP", 3), ("stage 2", 2), ("DDP", 0), (None, 0), (True, 1), ("none", 0)],
)
def test_levels_of_sharing_are_read_however_they_are_written(said, level):
    assert zero_level(said) == level


def test_a_row_of_texts_asks_what_a_row_of_numbers_asks():
    texts = read(
        parallel={"tp": "2", "pp": 4.0, "vp": "2", "dp": "n/a", "zero": "ZeRO-1"},
        batch={"global_": None, "micro": "1", "accumulation": 16},
        model={"seq": "8k", "vocab": "128,256"},
        hardware={"count": None, "nodes": 8},
        dtype=None,
    )
    assert texts == training(ROW)


def test_schedules_and_tensor_ranks_of_experts_are_those_that_a_row_states():
    (one,) = read(parallel={"schedule": "DualPipe"}).jobs
    assert one.plan.schedule_name == "dualpipe"
    assert read(parallel={"schedule": "interleaved 1F1B"}) == training(ROW)
    mixture = {"model": {"experts": 8, "top_k": 2}, "parallel": {"ep": 2, "etp": 2}}
    assert read(**mixture).jobs[0].plan.expert_tp == 2


def test_a_model_is_filled_in_by_its_name_and_by_what_is_stated_of_it():
    deepseek = {"name": "DeepSeek-V3", "seq": 4096}
    row = ROW | {"parallel": {"pp": 8, "ep": 8, "zero": 1}, "model": deepseek}
    assert training(row).jobs[0].model == SHIPPED["deepseek-v3"]
    (one,) = training(row | {"model": deepseek | {"layers": 16, "experts": 64, "vocab": 1024}}).jobs
    assert (one.model.layers, one.model.vocab, one.model.experts.count) == (16, 1024, 64)
    assert one.model.latent and one.model.experts.shared_ffn
    stated = ROW["model"] | {"experts": 64, "top_k": 6, "expert_ffn": 1408, "shared_experts": 2, "dense_layers": 1}
    (one,) = training(row | {"model": stated | {"kv_lora_rank": 512}}).jobs
    assert (one.model.experts.shared_ffn, one.model.experts.dense_layers) == (2816, 1)
    assert one.model.latent.key_value_rank == 512
    with pytest.raises(InputError, match="vocab"):
        training(row | {"model": {"name": "FLUX.1", "layers": 57, "hidden": 3072, "heads": 24, "seq": 4608}})


@pytest.mark.parametrize("name", ["T5-11B", "mT5", "flan-t5-xl", "BART", "my encoder"])
def test_a_model_with_an_encoder_has_one_or_is_refused(name):
    """Of sizes alone a decoder was made, and `encoder_layers` were passed over."""
    with pytest.raises(InputError, match="is an encoder by its name, and a decoder by its sizes"):
        read(model={"name": name})
    found = read(model={"name": name, "encoder_layers": 32}).jobs[0].model
    assert (found.encoder_layers, found.layers) == (32, 32)
    assert read(model={"name": "GPT5"}).jobs[0].model.encoder_layers == 0
    assert read(model={"name": "BERT-large"}).jobs[0].model.layers == 32  # alone, an encoder's layers are a decoder's


def test_adapters_and_production_are_told_by_words():
    (one,) = read(model={"task": "LoRA fine-tuning, rank 32"}).jobs
    assert one.plan.lora_rank == 32 and "linear_fc1" in one.plan.lora_modules
    (usual,) = read(model={"task": "LoRA fine-tuning of attention"}).jobs
    assert usual.plan.lora_rank > 0 and usual.plan.lora_modules == ("linear_qkv", "linear_proj")
    weeks, bench = (read(inexact=words) for words in ("average over the whole run", "average of 100 steps"))
    assert weeks.jobs == bench.jobs and weeks.seconds() > 1.1 * bench.seconds()


def test_formats_that_a_device_has_no_products_of_are_refused():
    with pytest.raises(InputError, match="fp8"):
        read(hardware={"accelerator": "A100"}, dtype="fp8")
