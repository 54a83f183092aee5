"""Options without effect: refused where the table says so, told where scripts of AICB have them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from simcore.cli import main
from simcore.cli.table import _sections, options_of

SIMPLE = "cost simple --chip A100_40GB --n_layers 32 --d_model 4096"
TRANSFORMER = "cost transformer --num_layers 24 --d_model 2048 --dataset_size 1e11 --batch_size 512"
STEP = "--world_size 8 --global_batch 16 --seq_length 512 --num_layers 4 --hidden_size 512 --num_attention_heads 8"
GPT, DEEPSPEED = f"generate megatron {STEP} --gpu_type H100", f"generate deepspeed {STEP} --gpu_type H100"

BY_KIND = "collective", "schedule --topology ring8"


def test_what_an_option_needs_is_a_parameter_of_its_command():
    for path, section in _sections().items():
        known = {one.name for one in options_of(path)} if section.runs else set()
        for one in options_of(path) if section.runs else ():
            assert {*filter(None, getattr(one, "needs", "").removeprefix("!").split("|"))} <= known


@pytest.mark.parametrize(
    ("command", "option", "expected"),
    [
        (SIMPLE, "--pue 1.5", "--chip_watts, too"),
        (TRANSFORMER, "--microbatch_size 64", "--cluster or --topology, too"),
        (TRANSFORMER, "--checkpoint_seconds 60", "--mtbf_hours, too"),
        ("cost scaling --training_flop 1e24 --max_devices 100", "--pp 4", "--fixed, too"),
        ("cost scaling --training_flop 1e24 --fixed", "--max_devices 100", "no --fixed"),
        (
            "cost scaling --training_flop 1e24 --fixed --pp 4 --n_microbatches 4",
            "--no_network_reduction",
            "--dp, --tp_",
        ),
        ("cost scaling --training_flop 1e24 --max_devices 1", "--no_network_reduction", "more devices"),
        ("cost failures --nodes 64 --mtbf 6334h --days 2", "--node-bandwidth 1GB/s", "--checkpoint-size, too"),
        ("cost failures --nodes 64 --mtbf 6334h --days 2", "--checkpoint-size 5TB", "--storage or --node-bandwidth or"),
        ("generate collective --samples -o OUT", "--repeat 2", "no --samples"),
        ("sweep study.yaml --scheduler tcp://host:8786", "--jobs 4", "no --scheduler"),
        (TRANSFORMER, "--net_precision_bytes 4", "--cluster_flop_rate or --wan_bandwidth, too"),
        ("replay docs/traces", "--tokens 500", "--scale or --fuse"),
        *((f"generate {made} -o OUT --kind all_reduce", "--root 3", "--kind broadcast") for made in BY_KIND),
        ("run --workload dlrm --topology ring64", "--ranks 0", "--output or --timeline, too"),
    ],
)
def test_an_option_that_belongs_to_another_is_refused_alone(command, option, expected, capsys, tmp_path):
    words = command.replace("OUT", str(tmp_path / "out")).split()
    assert main([*words, *option.split()]) == 2
    told = capsys.readouterr().err
    assert f"{option.split()[0]}: error: has no effect here" in told
    assert f"expected: {expected}" in told
    assert not [*tmp_path.iterdir()]


CONVERT = {
    "--npus": "8", "--iterations": "2", "--kineto": "w.0.et", "--rank": "1", "--native": "", "--topology": "ring8",
    "--policy": "fifo", "--num-dims": "2", "--npu-frequency": "500", "--comm-groups": "w.0.et", "--compat": "chakra",
}  # fmt: skip
SOURCES = [f"workloads/resnet50_data_parallel.txt made{native}" for native in ("", " --native --npus 4")]
SOURCES += ["w made", "w made --to param", "w.0.et made.et", "w.0.et made.json"]


@pytest.mark.parametrize("source", SOURCES)
def test_an_option_of_a_conversion_changes_what_is_written_or_is_refused(source, capsys, tmp_path, monkeypatch):
    (tmp_path / "workloads").symlink_to(Path("workloads").resolve())
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "workloads/dlrm.txt", "w", "--npus", "2"]) == 0

    def written(*options):
        for file in tmp_path.glob("made*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        status = main(["convert", *source.split(), *options])
        made = {path: path.read_bytes() for path in tmp_path.rglob("*") if "made" in str(path) and path.is_file()}
        return status, made, capsys.readouterr().err

    status, plain, _ = written()
    assert status == 0
    for option, value in CONVERT.items():
        if option not in source:
            status, made, told = written(option, *value.split())
            refused = status == 2 and not made and re.search("has no effect|counts no cycles", told)
            assert refused or made != plain, option


def given(command, *options, capsys):
    """The document of a command without warnings and AICB's file, and the options that it says are without effect."""
    assert main([*command.split(), *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    del document["deviations"]
    told = [line for line in document.pop("warnings") if line.startswith("without effect: ")]
    return document, {word for line in told for word in line.replace(",", "").split() if word.startswith("--")}


@pytest.mark.parametrize(
    ("command", "options", "idle"),
    [
        (GPT, "--enable_sequence_parallel", True),
        (GPT, "--num_experts 4 --moe_router_topk 2", True),
        (GPT, "--kv_lora_rank 64 --stage 1", True),
        (GPT, "--seed 3", True),
        (f"{GPT} --tensor_model_parallel_size 8", "--overlap_grad_reduce", True),
        (f"{GPT} --tensor_model_parallel_size 8", "--use-distributed-optimizer", True),
        (f"{GPT} --use_flash_attn", "--recompute_activations", True),
        (f"{GPT} --model llama-3-8b", "--max_position_embeddings 8192 --moe_enable", True),
        (DEEPSPEED, "--make_vocab_size_divisible_by 1000", True),
        (f"{GPT} --model mixtral-8x7b", "--moe_imbalance zipf:1.2 --seed 3", True),
        (f"{GPT} --model llama-3-8b", "--swiglu", False),
        (f"{GPT} --model mixtral-8x7b --expert_model_parallel_size 4", "--moe_enable", False),
        (GPT, "--gradient_dtype float32", False),
        ("generate inference llama-3-8b --world_size 8 --gpu_type H100", "--fp8_dispatch", True),
    ],
)
def test_generators_tell_what_has_no_effect(command, options, idle, capsys):
    """And nothing else: what says only what is so anyway is no mistake."""
    plain, _ = given(command, capsys=capsys)
    found, told = given(command, *options.split(), capsys=capsys)
    assert found == plain
    names = {word.replace("-", "_").replace("__", "--") for word in options.split() if word.startswith("--")}
    assert {name.replace("-", "_").replace("__", "--") for name in told} == (names if idle else set())
