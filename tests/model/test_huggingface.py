"""One reader of Hugging Face files: what it reads, every command takes."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.cli import main
from simcore.errors import InputError
from simcore.files import session
from simcore.generate.wse.operations import Scope, Step
from simcore.model.huggingface import ARCHITECTURES, FAMILIES, configuration
from simcore.model.presets import model
from simcore.model.shape import Experts, LayerKind, total_parameters
from tests.generate.wse import job, rows, system

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "decoder_sparse_step": 1, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip
QWEN2_MOE = {
    "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 60,
    "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "vocab_size": 151936,
}  # fmt: skip
SYSTEM = {
    "num_nodes": 8, "node_grid": [2, 4], "core_grid": [2, 2], "dp_attn": 2, "dp_ffn": 1, "tp_attn": 4, "tp_ffn": 1,
    "pp": 1, "sp": 1, "ep": 8, "n_redundant_shared_exp": 1, "expert_workload_model": "uniform", "moe_comm": "alltoall",
}  # fmt: skip


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes a configuration; its path."""
    monkeypatch.chdir(tmp_path)

    def write(entries):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(entries))
        return path

    return write


def test_a_configuration_of_experts_serves_every_command(config, tmp_path, capsys):
    path = str(config(QWEN3_MOE))
    (tmp_path / "system.json").write_text(json.dumps({"decode": SYSTEM}))
    study = {"model": path, "seq": 4096, "accelerators": 64, "global_batch": 256, "cluster": "h100"}
    study |= {"tp": [2], "pp": [2], "ep": [8], "micro_batch": [1]}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    plan = "--seq 4096 --global-batch 256 --tp 2 --pp 2 --ep 8"
    shared = "--world_size 64 --global_batch 64 --use_distributed_optimizer"
    degrees = "--tensor_model_parallel_size 2 --expert_model_parallel_size 4 --enable_sequence_parallel"
    for command in (
        f"generate megatron --model {path} {shared} --gpu_type H100 {degrees}",
        f"generate inference any {path} --world_size 8 --expert_model_parallel_size 8 --gpu_type H100",
        f"generate wse nodes --model_config {path} --system_config system.json --bsz 8 --layers decode5",
        f"predict --model {path} --cluster h100 --accelerators 64 {plan}",
        "search study.yaml",
    ):
        assert main([*command.split(), "--json"]) == 0, command
    assert capsys.readouterr().err == ""


def test_a_family_is_known_by_its_type_or_by_its_architecture(config):
    assert {*ARCHITECTURES.values(), "calculon"} == set(FAMILIES)
    by_type = configuration(config({key: value for key, value in QWEN3_MOE.items() if key != "architectures"}))
    assert configuration(config({key: value for key, value in QWEN3_MOE.items() if key != "model_type"})) == by_type
    assert total_parameters(by_type) == total_parameters(model("qwen3-30b-a3b"))


PUBLISHED = """
27.23 gemma2    hidden_size=4608 intermediate_size=36864 num_hidden_layers=46 num_attention_heads=32 vocab_size=256000
                num_key_value_heads=16 head_dim=128
27.01 gemma3_text  hidden_size=5376 intermediate_size=21504 num_hidden_layers=62 num_attention_heads=32
                num_key_value_heads=16 head_dim=128
400.7 llama4_text  hidden_size=5120 intermediate_size=8192 intermediate_size_mlp=16384 num_hidden_layers=48
                num_attention_heads=40 num_key_value_heads=8 head_dim=128 vocab_size=202048 num_local_experts=128
                interleave_moe_layer_step=2
41.30 falcon    hidden_size=8192 num_hidden_layers=60 num_attention_heads=128 num_kv_heads=8 vocab_size=65024
                new_decoder_architecture=true
6.92  falcon    hidden_size=4544 num_hidden_layers=32 num_attention_heads=71 vocab_size=65024 multi_query=true
341.0 nemotron  hidden_size=18432 intermediate_size=73728 num_hidden_layers=96 num_attention_heads=96
                num_key_value_heads=8 vocab_size=256000
3.82  phi3      hidden_size=3072 intermediate_size=8192 num_hidden_layers=32 num_attention_heads=32 vocab_size=32064
20.55 gpt_neox  hidden_size=6144 intermediate_size=24576 num_hidden_layers=44 num_attention_heads=64 vocab_size=50432
29.97 opt       hidden_size=7168 ffn_dim=28672 num_hidden_layers=48 num_attention_heads=56 vocab_size=50272
                max_position_embeddings=2048
352.8 glm4_moe  hidden_size=5120 intermediate_size=12288 moe_intermediate_size=1536 num_hidden_layers=92
                num_attention_heads=96 num_key_value_heads=8 head_dim=128 n_routed_experts=160 n_shared_experts=1
                num_experts_per_tok=8 first_k_dense_replace=3 vocab_size=151552 attention_bias=true use_qk_norm=true
2.78  phi       hidden_size=2560 intermediate_size=10240 num_hidden_layers=32 num_attention_heads=32 vocab_size=51200
6.05  gptj      n_embd=4096 n_layer=28 n_head=16 vocab_size=50400 n_positions=2048 tie_word_embeddings=false
2.80  stablelm  hidden_size=2560 intermediate_size=6912 num_hidden_layers=32 num_attention_heads=32 vocab_size=50304
15.96 starcoder2  hidden_size=6144 intermediate_size=24576 num_hidden_layers=40 num_attention_heads=48
                num_key_value_heads=4 vocab_size=49152 tie_word_embeddings=false
34.98 cohere    hidden_size=8192 intermediate_size=22528 num_hidden_layers=40 num_attention_heads=64 vocab_size=256000
13.72 olmo2     hidden_size=5120 intermediate_size=13824 num_hidden_layers=40 num_attention_heads=40 vocab_size=100352
6.92  olmoe     hidden_size=2048 intermediate_size=1024 num_hidden_layers=16 num_attention_heads=16 vocab_size=50304
8.17  granite   hidden_size=4096 intermediate_size=12800 num_hidden_layers=40 num_attention_heads=32
                num_key_value_heads=8 vocab_size=49155 tie_word_embeddings=true
3.30  granitemoe  hidden_size=1536 intermediate_size=512 num_hidden_layers=32 num_attention_heads=24
                num_key_value_heads=8 vocab_size=49155 num_local_experts=40 num_experts_per_tok=8
                tie_word_embeddings=true
41.87 phimoe    hidden_size=4096 intermediate_size=6400 num_hidden_layers=32 num_attention_heads=32
                num_key_value_heads=8 vocab_size=32064 num_local_experts=16 attention_bias=true
228.7 minimax_m2  hidden_size=3072 intermediate_size=1536 num_hidden_layers=62 num_attention_heads=48
                num_key_value_heads=8 head_dim=128 vocab_size=200064 num_local_experts=256 num_experts_per_tok=8
7.74  internlm2  hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32
                num_key_value_heads=8 vocab_size=92544
36.15 seed_oss  hidden_size=5120 intermediate_size=27648 num_hidden_layers=64 num_attention_heads=80
                num_key_value_heads=8 head_dim=128 vocab_size=155136 attention_bias=true
3.08  smollm3   hidden_size=2048 intermediate_size=11008 num_hidden_layers=36 num_attention_heads=16
                num_key_value_heads=4 vocab_size=128256
1026  kimi_k2   hidden_size=7168 intermediate_size=18432 moe_intermediate_size=2048 num_hidden_layers=61
                num_attention_heads=64 n_routed_experts=384 n_shared_experts=1 num_experts_per_tok=8
                first_k_dense_replace=1 vocab_size=163840 q_lora_rank=1536 kv_lora_rank=512 qk_rope_head_dim=64
                qk_nope_head_dim=128 v_head_dim=128
7.62  qwen2_vl  hidden_size=3584 intermediate_size=18944 num_hidden_layers=28 num_attention_heads=28
                num_key_value_heads=4 vocab_size=152064
"""


@pytest.mark.parametrize("row", re.split(r"\n(?=\d)", PUBLISHED.strip()), ids=lambda row: " ".join(row.split()[:2]))
def test_a_family_has_the_parameters_of_its_published_weights(config, row):
    """Source: sizes of the weights on the Hugging Face hub (the head of Falcon 7B is its word table).

    Where images are read, too, the language model is in an entry of its own.
    """
    billions, family, *said = row.split()
    values = {key: json.loads(value) for key, value in (one.split("=") for one in said)}
    read = configuration(config({"model_type": family, **values}))
    assert total_parameters(read) == pytest.approx(float(billions) * 1e9, rel=0.003)
    assert configuration(config({"model_type": "all", "text_config": {"model_type": family, **values}})) == read


def test_qwen2s_shared_expert_has_a_gate(config):
    """Source: the Qwen1.5-MoE-A2.7B card, 14.3 billion parameters of which 2.7 are active."""
    read = configuration(config(QWEN2_MOE))
    assert read.experts == Experts(60, 4, 1408, 5632, shared_gate=True)
    assert total_parameters(read) == pytest.approx(14.3e9, rel=0.01)
    assert total_parameters(read, active=True) == pytest.approx(2.7e9, rel=0.01)


def test_a_model_of_calculon_is_read_once_it_says_how_many_words_there_are(config):
    """GPT-3 of Megatron's and Calculon's validation tables: 175 billion parameters."""
    theirs = {"name": "gpt3-175B", "seq_size": 2048, "hidden": 12288, "feedforward": 49152, "attn_heads": 96}
    theirs |= {"attn_size": 128, "num_blocks": 96}
    with pytest.raises(InputError, match="'vocab_size' is missing"):
        configuration(config(theirs))
    read = configuration(config(theirs | {"vocab_size": 51200}))
    assert total_parameters(read) == pytest.approx(total_parameters(model("gpt-175b")), rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts_per_tok": 200}, "more experts per token"),
        ({"num_key_value_heads": 5}, "do not share keys and values evenly"),
        ({"head_dim": None, "hidden_size": 16}, "heads have no channels"),
        ({"mlp_only_layers": [2]}, "experts in every so manyth layer"),
        ({"moe_layers": [1, 3]}, "not the layers that have experts"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_their_file(config, changes, words):
    with pytest.raises(InputError, match=words) as error:
        configuration(config(QWEN3_MOE | changes))
    assert "config.json:1:" in str(error.value)


def test_a_wafer_runs_layers_with_windows_and_feed_forward_parts_without_gates():
    """A window bounds the positions that decode reads; of GPT-2's kind there is no gate."""
    seen = model("llama-3-8b")
    windowed = Scope(replace(seen, window=512, full_every=2), system(), Step("decode0", 2048, 1), 8, 2, 0)
    assert [windowed.window(f"decode{layer}") for layer in range(2)] == [512, 2049]
    _, _, nodes = rows(job(model("gpt-1.7b"), layers="decode0"))
    assert [row.uid for row in nodes[0] if row.uid.endswith(("_up", "_gate", "_down"))] == [
        "decode0_ffn_up",
        "decode0_ffn_down",
    ]


def test_a_wafer_refuses_encoders(config, tmp_path, capsys):
    (tmp_path / "system.json").write_text(json.dumps({"decode": SYSTEM}))
    shape = {
        "model_type": "t5",
        "d_model": 64,
        "num_layers": 2,
        "num_heads": 4,
        "d_ff": 96,
        "vocab_size": 9,
        "d_kv": 16,
    }
    path = config(shape)
    assert main(["generate", "wse", "nodes", "--model_config", str(path), "--system_config", "system.json"]) == 2
    assert "decoder-only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "text", "count"),
    [
        ("cohere", "hidden_size=8192 intermediate_size=22528 num_hidden_layers=40 num_attention_heads=64", 34980831232),
        ("phi", "hidden_size=2560 intermediate_size=10240 num_hidden_layers=32 num_attention_heads=32", 2779683840),
        ("gptj", "n_embd=4096 n_layer=28 n_head=16 n_positions=2048", 6050882784),
        ("phimoe", "hidden_size=4096 intermediate_size=6400 num_local_experts=16 attention_bias=true", 41873153344),
    ],
)  # fmt: skip
def test_a_file_that_leaves_the_rest_to_its_class_has_the_parameters_of_the_weights(config, family, text, count):
    """Sizes on the hub; biases of heads and of two projections of GPT-J's are what is left. One norm where both blocks
    read it; GPT-J's class has a head of its own.
    """
    values = {key: json.loads(value) for key, value in (one.split("=") for one in text.split())}
    vocab = {"cohere": 256000, "phi": 51200, "gptj": 50400, "phimoe": 32064}[family]
    more = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8} if family == "phimoe" else {}
    read = configuration(config({"model_type": family, "vocab_size": vocab, **values, **more}))
    assert total_parameters(read) == pytest.approx(count, rel=1e-4)
    norms = [weight for weight in read.layer_weights(LayerKind()) if weight.kind == "norms"]
    assert len(norms) == (2 if family == "phimoe" else 1)


SMALL = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024,
    "vocab_size": 32000, "num_local_experts": 8, "sliding_window": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "windows"),
    [
        ({"model_type": "phi3"}, [128] * 4),
        ({"model_type": "mixtral"}, [128] * 4),
        ({"model_type": "phimoe", "sliding_window": None}, [0] * 4),
        ({"model_type": "qwen2"}, [0] * 4),
        ({"model_type": "qwen2", "use_sliding_window": True}, [0] * 4),  # from layer 28 on, as in the class
        ({"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 0}, [128] * 4),
        ({"model_type": "smollm3"}, [0] * 4),
        ({"model_type": "smollm3", "use_sliding_window": True, "layer_types": ["full_attention"] * 4}, [0] * 4),
        ({"model_type": "gpt_oss", "layer_types": ["sliding_attention", "full_attention"] * 2}, [128, 0, 128, 0]),
        ({"model_type": "gemma3_text", "_sliding_window_pattern": 2}, [128, 0, 128, 0]),  # as transformers 5 writes it
        ({"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": []}, [64, 64, 64, 0]),
        ({"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layer_interval": 2}, [64, 0, 64, 0]),
        ({"model_type": "llama4_text", "attention_chunk_size": None, "no_rope_layers": [1, 0, 1, 1]}, [0] * 4),
    ],
)
def test_windows_are_those_of_the_classes(config, entries, windows):
    """`Phi3Attention` and `MixtralAttention` use the window that is there, Qwen's layers where `use_sliding_window`
    says so, from `max_window_layers` on (transformers 4.5x): they were read as if all layers saw all. Llama 4's layers
    see pieces where they have rotary positions (`Llama4TextConfig.layer_types`).
    """
    found = configuration(config(SMALL | entries))
    assert [found.kind(layer).window for layer in range(4)] == windows


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
            "max_window_layers|only models whose",
        ),
        ({"model_type": "smollm3", "use_sliding_window": True}, "only models whose layers see all"),
        ({"model_type": "gpt_oss", "layer_types": ["full_attention"] * 4}, "layer 0 is not what layers"),
        ({"model_type": "llama", "layer_types": ["full_attention", "linear_attention"]}, "layer 1 is not what layers"),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 0]},
            "layer 1 is not what layers",
        ),
        (
            {"model_type": "gpt_oss", "layer_types": ["linear_attention", "full_attention"]},
            "layer 0 is not what layers",
        ),
    ],
)
def test_layers_that_the_family_does_not_say_are_refused(config, entries, told):
    with pytest.raises(InputError, match=told):
        configuration(config(SMALL | entries))


@given(
    above=st.sets(st.sampled_from(["vision_config", "audio_config", "quantization_config"])),
    quantised=st.booleans(),
    nested=st.booleans(),
)
def test_parts_that_are_not_read_are_told_once(tmp_path_factory, above, quantised, nested):
    path, inner = tmp_path_factory.mktemp("model") / "config.json", SMALL | {"model_type": "mixtral"}
    inner |= {"quantization_config": {"quant_method": "fp8"}} if quantised else {}
    path.write_text(json.dumps({key: {} for key in above} | ({"text_config": inner} if nested else inner)))
    with session() as account:
        first = configuration(path)
        assert configuration(path) == first
    parts = sorted(line.split("'")[1] for line in account.told)
    assert parts == sorted(above | ({"quantization_config"} if quantised else set()))
    assert all(line.startswith(f"{path}:1:") for line in account.told)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"model_type": "llama", "num_key_value_head": 2}, "'num_key_value_heads' may be meant"),
        ({"model_type": "mixtral", "num_experts_per_token": 1}, "'num_experts_per_tok' may be meant"),
        ({"model_type": "mixtral", "kv_lora_rank": 512}, "models of this family have no latent attention"),
        ({"model_type": "phi3", "num_experts": 16}, "models of this family have no experts"),
        ({"model_type": "phi3", "num_experts": 0, "kv_lora_rank": None, "qk_head_dim": 64}, ""),
        ({"model_type": "falcon", "num_kv_heads": 71, "bias": False}, ""),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "n_ctx": 64}, ""),
    ],
)
def test_keys_that_are_lost_are_told(config, entries, told):
    """Of a family's own files none is: they may say what a family has not by a null, a zero or a false."""
    sizes = {key: SMALL[key] for key in SMALL if key != "num_local_experts" or entries["model_type"] == "mixtral"}
    with session() as account:
        configuration(config(sizes | entries))
    lines = [f"'{list(entries)[1]}' is not read: {told}"] if told else []
    assert [line.split(": ", 1)[1] for line in account.told] == lines


def test_a_null_says_nothing(config):
    """Files that transformers writes have nulls for what a class has no value of."""
    plain = {key: value for key, value in QWEN3_MOE.items() if key != "model_type"}
    nothing = dict.fromkeys(("model_type", "text_config", "sliding_window", "mlp_only_layers", "layer_types"))
    assert configuration(config(plain | nothing)) == configuration(config(plain))


EXACT = """
6921720704   falcon  hidden_size=4544 num_hidden_layers=32 num_attention_heads=71 vocab_size=65024 num_kv_heads=71
41303293952  falcon  hidden_size=8192 num_hidden_layers=60 num_attention_heads=128 vocab_size=65024 num_kv_heads=8
                     new_decoder_architecture=true
178557088768 falcon  hidden_size=14848 num_hidden_layers=80 num_attention_heads=232 vocab_size=65024 num_kv_heads=8
                     new_decoder_architecture=true
125239296    opt     hidden_size=768 ffn_dim=3072 num_attention_heads=12 num_hidden_layers=12 vocab_size=50272
                     word_embed_proj_dim=768 max_position_embeddings=2048
13716198400  olmo2   hidden_size=5120 intermediate_size=13824 num_hidden_layers=40 num_attention_heads=40
                     vocab_size=100352
6919161856   olmoe   hidden_size=2048 intermediate_size=1024 num_hidden_layers=16 num_attention_heads=16
                     vocab_size=50304
103810674688 cohere  hidden_size=12288 intermediate_size=33792 num_hidden_layers=64 num_attention_heads=96
                     num_key_value_heads=8 vocab_size=256000 use_qk_norm=true
2779683840   phi     hidden_size=2560 intermediate_size=10240 num_hidden_layers=32 num_attention_heads=32
                     vocab_size=51200
6050882784   gptj    n_embd=4096 n_layer=28 n_head=16 vocab_size=50400 n_positions=2048
41873153344  phimoe  hidden_size=4096 intermediate_size=6400 num_hidden_layers=32 num_attention_heads=32
                     num_key_value_heads=8 vocab_size=32064 num_local_experts=16 attention_bias=true lm_head_bias=true
"""


@pytest.mark.parametrize("row", re.split(r"\n(?=\d)", EXACT.strip()), ids=lambda row: " ".join(row.split()[:2]))
def test_a_family_with_variants_has_exactly_the_parameters_of_the_released_weights(config, row):
    """Source: sizes on the hub of Falcon 7B, whose blocks share a norm, Falcon 40B and 180B, whose do not, OPT 125M,
    OLMo 2, OLMoE and Command R+, whose norms of queries and keys have weights for every head, Phi-2, GPT-J 6B and
    Phi-3.5-MoE, whose heads have a bias.
    """
    count, family, *said = row.split()
    values = {key: json.loads(value) for key, value in (one.split("=") for one in said)}
    assert total_parameters(configuration(config({"model_type": family, **values}))) == int(count)


@pytest.mark.parametrize(
    ("family", "flag", "field"),
    [
        ("mistral", "attention_bias", "qkv_bias"),
        ("gemma2", "attention_bias", "qkv_bias"),
        ("cohere", "attention_bias", "qkv_bias"),
        ("llama", "attention_bias", "projection_bias"),
        ("seed_oss", "attention_out_bias", "projection_bias"),
        ("nemotron", "mlp_bias", "mlp_bias"),
        ("opt", "enable_bias", "linear_bias"),
        ("cohere", "use_qk_norm", "query_key_norm"),
        ("phi", "qk_layernorm", "query_key_norm"),
        ("stablelm", "qk_layernorm", "query_key_norm"),
        ("stablelm", "use_parallel_residual", "parallel_block"),
    ],
)
def test_what_a_file_says_of_biases_and_norms_is_not_lost(config, family, flag, field):
    """Command R+ and StableLM 2 12B have norms of queries and keys, Galactica no biases."""
    sizes = SMALL | {"ffn_dim": 1024, "max_position_embeddings": 64}
    read = [configuration(config({"model_type": family, **sizes, flag: said})) for said in (False, True)]
    assert [getattr(one, field) for one in read] == [False, True]
    assert [one.norms for one in read] == ([2, 1] if field == "parallel_block" else [read[0].norms] * 2)


def test_words_narrower_than_layers_are_refused(config):
    """OPT 350M, which was read as if its words were as wide: 355,889,152 parameters, not 331,196,416."""
    sizes = SMALL | {"model_type": "opt", "ffn_dim": 1024, "max_position_embeddings": 64, "word_embed_proj_dim": 256}
    with pytest.raises(InputError, match="words are as wide as their layers") as error:
        configuration(config(sizes))
    assert "word_embed_proj_dim" in str(error.value)


BIASES = """
attention_bias      1280  llama mistral qwen3 qwen3_moe gemma gemma2 gemma3_text cohere olmo2 granite smollm3 nemotron
attention_bias      768   glm4_moe
qkv_bias            768   qwen2_moe
attention_out_bias  512   seed_oss
mlp_bias            2560  llama granite smollm3 seed_oss
"""


@pytest.mark.parametrize("row", BIASES.strip().splitlines(), ids=lambda row: " ".join(row.split()[:2]))
def test_biases_stand_where_the_classes_have_them(config, row):
    """Counted of transformers 5.24: `attention_bias` is the output's, too, but not GLM's; `mlp_bias` no attention's.

    8 heads of 64, 2 of keys, 512 wide, the feed-forward 1,024.
    """
    flag, each, *families = row.split()
    sizes = QWEN2_MOE | SMALL | {"num_key_value_heads": 2, "head_dim": 64, "n_routed_experts": 4}
    for family in families:
        read = [configuration(config(sizes | {"model_type": family, flag: said})) for said in (False, True)]
        fewer, more = map(total_parameters, read)
        assert more - fewer == read[0].layers * int(each), family


def test_what_transformers_writes_of_text_models_is_read(config):
    """Version 5 calls Qwen3's experts local and text models by names of their own; what ties words may stand above."""
    renamed = {("num_local_experts" if key == "num_experts" else key): value for key, value in QWEN3_MOE.items()}
    assert configuration(config(renamed)) == configuration(config(QWEN3_MOE))
    part = {"text_config": SMALL | {"model_type": "qwen2_vl_text"}, "model_type": "qwen2_vl"}
    assert configuration(config(part)) == configuration(config(SMALL | {"model_type": "qwen2_vl"}))
    assert configuration(config(part | {"tie_word_embeddings": True})).tied


@pytest.mark.parametrize(("entries", "count"), [({}, 3), ({"use_mtp": False}, 0)])
def test_mtp_modules_of_minimax_are_read(config, entries, count):
    """MiniMax-M2's file says `num_mtp_modules`: they took no time and no memory. Its class has 8 experts a token."""
    read = configuration(config(SMALL | {"model_type": "minimax_m2", "num_mtp_modules": 3, **entries}))
    assert read.mtp_layers == count
    assert read.experts is not None and read.experts.top_k == 8
