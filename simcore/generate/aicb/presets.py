"""The models AICB's shell scripts know by `-m`, as its scripts have them."""

from __future__ import annotations

from collections.abc import Mapping

from simcore.errors import InputError, closest

Values = Mapping[str, int | str | bool | None]


def _gpt(name: str, layers: int, hidden: int, heads: int, tp: int) -> Values:
    return {
        "model_name": name,
        "num_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "tensor_model_parallel_size": tp,
        "vocab_size": 50257,
    }


def _deepseek(size: str, layers: int, hidden: int, heads: int, ffn: int, experts: int, **values: int) -> Values:
    """Name the dense layers' intermediate size the hidden size, and the experts' every MLP's, as AICB does."""
    shape = _gpt(f"DeepSeek_{size}", layers, hidden, heads, 1)
    moe = {"moe_enable": True, "ffn_hidden_size": ffn, "num_experts": experts, "kv_lora_rank": 512}
    return dict(shape) | moe | values


PRESETS: Mapping[str, Mapping[str, Values]] = {
    "Megatron": {
        "7": _gpt("gpt_7B", 36, 4096, 32, 4),
        "13": _gpt("gpt_13B", 40, 5120, 40, 8),
        "22": _gpt("gpt_22B", 48, 6144, 64, 8),
        "175": _gpt("gpt_175B", 96, 12288, 96, 8),
        "65": dict(_gpt("llama_65B", 80, 8192, 64, 8)) | {"ffn_hidden_size": 28672, "pipeline_model_parallel": 2},
        "405": dict(_gpt("llama_405B", 128, 16384, 128, 8)) | {"ffn_hidden_size": 53248},
        "moe": dict(_gpt("Mixtral_8*7B", 32, 4096, 32, 4))
        | {"ffn_hidden_size": 14336, "moe_enable": True, "moe_grouped_gemm": True},
    },
    "DeepSeek": {
        "16": _deepseek("16B", 27, 10944, 16, 1408, 64, q_lora_rank=0, n_shared_expert=2, n_dense_layers=1),
        "236": _deepseek("236B", 60, 12288, 128, 1536, 160, q_lora_rank=1536, n_shared_expert=2, n_dense_layers=1),
        "671": _deepseek("671B", 61, 18432, 128, 2048, 256, q_lora_rank=1536, n_shared_expert=1, n_dense_layers=3),
    },
    "DeepSpeed": {
        size: {
            "model_name": f"llama_{size}b",
            "num_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "ffn_hidden_size": ffn,
            "vocab_size": 32000,
        }
        for size, layers, hidden, heads, ffn in (
            ("7", 32, 4096, 32, 11008),
            ("13", 40, 5120, 40, 13824),
            ("30", 60, 6656, 52, 17920),
            ("65", 80, 8192, 64, 22016),
        )
    },
}
"""Framework -> size -> the options it stands for."""


def preset(frame: str, size: str) -> Values:
    """Options of `-m SIZE`; InputError names the sizes there are."""
    known = PRESETS[frame]
    plain = size.removeprefix("deepseek").removeprefix("DeepSeek").removesuffix("B")
    if plain not in known:
        raise InputError.at(
            "--model_size", f"AICB has no such {frame} model", expected=closest(size, known), found=size
        )
    return known[plain]
