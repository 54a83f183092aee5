"""File names as AICB gives them, and lists of several steps."""

import json

import pytest

from simcore.cli import main
from tests.shared import shared

NAMES = {
    "megatron": (
        "--gpu_type A100 --model_name gpt_7B --world_size 512 --tensor 2 --global 2048 --seq 2048 --use_flash_attn",
        "A100-gpt_7B-world_size512-tp2-pp1-ep1-gbs2048-mbs1-seq2048-MOE-False-GEMM-False-flash_attn-True.txt",
    ),
    "deepspeed": (
        "--model_name llama_7b --world_size 8 --stage 1 --epoch 2 --computation --format csv --global 8",
        "deepspeed_stage1_llama_7b_sp_False_iteration_2_computationEnable_True_8n_workload.csv",
    ),
}
"""Options and the name of the file that AICB wrote for them (its own runs, 2025)."""


@pytest.mark.parametrize("frame", NAMES)
@pytest.mark.parametrize("computing", ["--computation", "--aiob_enable"])
def test_a_folder_gets_a_file_of_aicbs_name(tmp_path, capsys, frame, computing):
    """AICB's --aiob_enable turns on --computation_enable (utils/utils.py)."""
    options, name = NAMES[frame]
    options = options.replace("--computation", computing)
    assert main(["generate", frame, "--compat", "aicb-2.1", *options.split(), "-o", f"{tmp_path}/made/"]) == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == [name]
    capsys.readouterr()


def test_every_file_of_the_oracle_has_the_name_that_aicb_gave_it():
    from simcore.generate.aicb.files import file_name
    from simcore.generate.aicb.options import Options

    known = set(Options.__dataclass_fields__)
    records = json.loads((shared() / "oracle" / "aicb.json").read_text())["records"]
    checked = 0
    for record in records:
        params = {key.replace("-", "_"): value for key, value in record["params"].items()}
        if not record.get("output_file_name") or "inference" in record["generator"] or record.get("fails"):
            continue
        form = "csv" if record["output_file_name"].endswith(".csv") else "text"
        options = Options(**{key: value for key, value in params.items() if key in known})
        if options.model_name:
            assert file_name(options, form) == record["output_file_name"]
            checked += 1
    assert checked > 40


@pytest.mark.parametrize(
    ("asked", "more", "named"),
    [
        ("DeepSeek-671B", {}, "DeepSeek-671B"),
        ("my/DeepSeek-V2", {}, "DeepSeek-671B"),
        ("Qwen3-Moe-30B", {}, "Qwen3-Moe-235B"),
        ("Qwen3-Moe-30B", {"model_name": "mine"}, "mine"),
    ],
)
def test_the_file_of_an_inference_step_is_called_after_the_kind_of_model_or_as_its_configuration_says(
    asked, more, named, tmp_path, capsys
):
    """What is typed chooses the kind alone (MockedParamsBase of AICB's `mocked_model/MockedModel.py`)."""
    keys = """num_layers num_hidden_layers dense_layer num_experts shared_experts hidden_size vocab_size expert_dim
        moe_intermediate_size d_kv_c d_q_c d_r d_q d_kv num_attention_heads moe_router_topk num_experts_per_tok"""
    (tmp_path / "config.json").write_text(json.dumps(dict.fromkeys(keys.split(), 2) | more))
    words = ["generate", "inference", "--compat", "aicb-2.1", asked, str(tmp_path / "config.json")]
    assert main([*words, "-o", f"{tmp_path}/made/"]) == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == [
        f"{named}-world_size1-tp1-pp1-ep1-bs1-seq1-decode.txt"
    ]
    capsys.readouterr()


def test_a_list_of_two_steps_is_the_list_of_one_twice(capsys):
    words = [
        "generate",
        "megatron",
        "--model",
        "llama-3-8b",
        "--world_size",
        "8",
        "--global_batch",
        "8",
        "--gpu_type",
        "H100",
    ]
    lists = []
    for number in ("1", "2"):
        assert main([*words, "--format", "csv", "--epoch_num", number]) == 0
        lists.append(capsys.readouterr().out.splitlines())
    (header, *once), (_, *twice) = lists
    assert header.startswith("comm_type")
    assert twice == once * 2
    assert main([*words, "--format", "csv", "--epoch_num", "0"]) == 2
    assert "--epoch_num" in capsys.readouterr().err


def test_the_pair_at_the_end_of_aicbs_notes_is_gpt_175b(capsys):
    """The notes print 34,552,676,352 and 69,105,352,704 without a configuration; both are of 96 layers of 12,288."""
    words = "--world_size 1024 --tensor_model_parallel_size 8 --global_batch 128 --micro_batch 1 --num_layers 96"
    more = "--hidden_size 12288 --num_attention_heads 96 --seq_length 4096 --vocab_size 50257 --swiglu"
    more += " --max_position_embeddings 4096 --use_distributed_optimizer"
    assert main(["generate", "megatron", "--compat", "aicb-2.1", *words.split(), *more.split()]) == 0
    (row,) = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line.startswith("grad_norm")]
    hidden, feed_forward, rows, tp = 12288, 32768, 51200, 8
    layer = (4 * hidden * hidden + 2 * hidden * feed_forward) // tp  # AICB leaves out the gate
    parameters = 96 * layer + 4 * (rows // tp) * hidden + 4096 * hidden  # it counts the word table four times
    assert (row[3:5], row[9:11]) == (["ALLGATHER", str(2 * parameters)], ["REDUCESCATTER", str(4 * parameters)])
    assert (2 * parameters, 4 * parameters) == (34_552_676_352, 69_105_352_704)
