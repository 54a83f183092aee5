"""Shipped models against their published sizes, and Hugging Face configurations."""

import json

import pytest

from simcore.errors import InputError
from simcore.model.huggingface import configuration
from simcore.model.presets import SHIPPED, model
from simcore.model.shape import elements, mtp_parameters, total_parameters

PUBLISHED = {
    "gpt-1.7b": (1.7e9, 0.03, "SC21 table 1"),
    "gpt-3.6b": (3.6e9, 0.02, "SC21 table 1"),
    "gpt-7.5b": (7.5e9, 0.01, "SC21 table 1"),
    "gpt-13b": (13.0e9, 0.02, "GPT-3 table 2.1"),
    "gpt-18.4b": (18.4e9, 0.01, "SC21 table 1"),
    "gpt-22b": (22.0e9, 0.02, "MLSys 2023 table 3"),
    "gpt-39.1b": (39.1e9, 0.01, "SC21 table 1"),
    "gpt-76.1b": (76.1e9, 0.01, "SC21 table 1"),
    "gpt-145.6b": (145.6e9, 0.01, "SC21 table 1"),
    "gpt-175b": (174.6e9, 0.001, "SC21 section 5.1"),
    "gpt-310.1b": (310.1e9, 0.01, "SC21 table 1"),
    "gpt-529.6b": (529.6e9, 0.01, "SC21 table 1"),
    "gpt-1t": (1008.0e9, 0.001, "SC21 table 1"),
    "llama-2-7b": (6738415616, 0.0, "released weights"),
    "llama-2-13b": (13015864320, 0.0, "released weights"),
    "llama-30b": (32528943616, 0.0, "released weights"),
    "llama-65b": (65285660672, 0.0, "released weights"),
    "llama-2-70b": (68976648192, 0.0, "released weights"),
    "llama-3-8b": (8030261248, 0.0, "released weights"),
    "llama-3-70b": (70553706496, 0.0, "released weights"),
    "llama-3-405b": (405853388800, 0.0, "released weights"),
    "mixtral-8x7b": (46702792704, 0.0, "released weights"),
    "mixtral-8x22b": (140620634112, 0.001, "released weights"),
    "deepseek-v2-lite": (15.7e9, 0.005, "DeepSeek-V2 section B"),
    "deepseek-v2": (236e9, 0.005, "DeepSeek-V2 abstract"),
    "deepseek-v3": (671e9, 0.001, "DeepSeek-V3 abstract"),
    "kimi-k2": (1.04e12, 0.02, "Kimi K2 technical report, table 2"),
    "qwen3-0.6b": (596049920, 0.0, "released weights"),
    "qwen3-8b": (8190735360, 0.0, "released weights"),
    "qwen3-14b": (14768307200, 0.0, "released weights"),
    "qwen3-32b": (32762123264, 0.0, "released weights"),
    "qwen3-30b-a3b": (30532122624, 0.0, "released weights"),
    "qwen3-235b-a22b": (235093634560, 0.0, "released weights"),
    "gpt-2": (124439808, 0.0, "released weights"),
    "gpt-2-medium": (354823168, 0.0, "released weights"),
    "gpt-2-large": (774030080, 0.0, "released weights"),
    "gpt-2-xl": (1557611200, 0.0, "released weights"),
    "opt-6.7b": (6658473984, 0.0, "released weights; positions are counted from 2"),
    "opt-13b": (12853473280, 0.0, "released weights"),
    "opt-30b": (29974540288, 0.0, "released weights"),
    "opt-66b": (66e9, 0.005, "OPT table 1"),
    "opt-175b": (175e9, 0.005, "OPT table 1"),
    "gpt-neox-20b": (20554567680, 0.0, "released weights"),
    "pythia-6.9b": (6857302016, 0.0, "released weights"),
    "pythia-12b": (11846072320, 0.0, "released weights"),
    "bloom-7.1b": (7069016064, 1e-05, "released weights; a norm behind the words"),
    "bloom-176b": (176247271424, 1e-05, "released weights"),
    "mpt-7b": (6649286656, 0.0001, "released weights; norms without biases"),
    "mpt-30b": (29.96e9, 0.001, "released weights"),
    "falcon-7b": (6921720704, 0.0, "released weights"),
    "falcon-40b": (41303293952, 0.0, "released weights"),
    "falcon-180b": (
        178557088768,
        0.0,
        "released weights, the copy of the word table left out (vllm-project/vllm 3579)",
    ),
    "palm-540b": (540.35e9, 0.001, "PaLM table 1"),
    "nemotron-4-15b": (15.6e9, 0.003, "Nemotron-4 15B table 1: 3.2B of words, 12.5B others"),
    "nemotron-4-340b": (341e9, 0.001, "Nemotron-4 340B table 1: 9.4B of words, 331.6B others"),
    "tinyllama-1.1b": (1100048384, 0.0, "released weights"),
    "llama-3.2-1b": (1235814400, 0.0, "released weights"),
    "llama-3.2-3b": (3212749824, 0.0, "released weights"),
    "codellama-34b": (33743970304, 0.0, "released weights"),
    "mistral-7b": (7241732096, 0.0, "released weights"),
    "mistral-nemo-12b": (12247782400, 0.0, "released weights"),
    "mistral-large-123b": (122610069504, 0.0, "released weights"),
    "gemma-2b": (2506172416, 0.0, "released weights"),
    "gemma-7b": (8537680896, 0.0, "released weights"),
    "yi-6b": (6061035520, 0.0, "released weights"),
    "yi-34b": (34388917248, 0.0, "released weights"),
    "internlm2-20b": (19861149696, 0.0, "released weights"),
    "baichuan2-13b": (13896668160, 0.0, "released weights"),
    "deepseek-67b": (67.4e9, 0.001, "released weights"),
    "phi-4": (14659507200, 0.0, "released weights"),
    "olmo-7b": (6888095744, 0.0001, "released weights; norms without weights"),
    "pangu-ultra-135b": (135e9, 0.01, "Pangu Ultra abstract"),
    "qwen2.5-7b": (7615616512, 0.0, "released weights"),
    "qwen2.5-14b": (14770033664, 0.0, "released weights"),
    "qwen2.5-32b": (32763876352, 0.0, "released weights"),
    "qwen2.5-72b": (72706203648, 0.0, "released weights"),
    "qwen3-1.7b": (1720574976, 0.0, "released weights"),
    "qwen3-4b": (4022468096, 0.0, "released weights"),
    "grok-1": (314e9, 0.006, "its announcement; the head is the word table (`InOutEmbed` in its model.py)"),
    "dbrx": (131596523520, 0.0, "released weights"),
    "glm-4.5": (355e9, 0.01, "GLM-4.5 abstract"),
}
"""Name -> published parameters, relative rounding of that figure, where it stands."""


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_has_the_published_number_of_parameters(name):
    """Source: `PUBLISHED`, with the rounding of the figure there."""
    published, tolerance, _ = PUBLISHED[name]
    assert total_parameters(SHIPPED[name]) == pytest.approx(published, rel=tolerance, abs=0.5)


def test_active_parameters_are_those_a_token_sees():
    """Source: DeepSeek-V3 abstract (37B of 671B), Mixtral paper (12.9B of 46.7B), Qwen3 report (22B of 235B)."""
    for name, active in (("deepseek-v3", 37e9), ("mixtral-8x7b", 12.9e9), ("qwen3-235b-a22b", 22e9)):
        assert total_parameters(model(name), active=True) == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_tensor_ranks_hold_no_less_than_their_share_of_a_layer(name, tp):
    """What is split over ranks adds up to the whole; norms, routers and scarce key heads are held by every rank."""
    shape = SHIPPED[name]
    weights = shape.layer_weights(shape.kind(shape.layers - 1))
    whole, held = elements(weights, experts=False), elements(weights, tp, experts=False)
    assert whole <= held * tp
    assert held <= whole


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
}


@pytest.mark.parametrize(("values", "name"), [(LLAMA, "llama-3-8b"), (DEEPSEEK, "deepseek-v3")])
def test_a_hugging_face_configuration_gives_the_shipped_model(values, name, tmp_path):
    """Source: the config.json released with the weights, the keys that matter."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert total_parameters(configuration(path)) == total_parameters(model(name))


GPT_OSS = {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "sliding_window": 128,
    "vocab_size": 201088,
}
GEMMA = {
    "model_type": "gemma",
    "head_dim": 256,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "vocab_size": 256000,
}
T5 = {
    "model_type": "t5",
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 768,
    "feed_forward_proj": "gated-gelu",
    "num_decoder_layers": 12,
    "num_heads": 12,
    "num_layers": 12,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32128,
}


@pytest.mark.parametrize(("values", "count"), [(GPT_OSS, 20914757184), (GEMMA, 8537680896), (T5, 247577856)])
def test_a_configuration_has_as_many_parameters_as_the_released_weights(values, count, tmp_path):
    """Source: the sizes of the weights of gpt-oss-20b, gemma-7b and t5-v1_1-base."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert total_parameters(configuration(path)) == count


def test_a_configuration_with_modules_that_predict_further_tokens_has_their_parameters_apart(tmp_path):
    """Source: DeepSeek-V3's README_WEIGHTS.md: 671B, and 11.5B more of one module that shares word table and head."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DEEPSEEK | {"num_nextn_predict_layers": 1}))
    read = configuration(path)
    assert total_parameters(read) == total_parameters(model("deepseek-v3"))
    assert mtp_parameters(read) == pytest.approx(11.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("values", "word"),
    [({"model_type": "lama"}, "llama"), ({"hidden_size": 3}, "model_type"), ({"model_type": "llama"}, "hidden_size")],
)
def test_a_wrong_configuration_says_what_is_wrong(values, word, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=word):
        configuration(path)
