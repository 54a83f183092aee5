"""Shipped models; `model` also reads Hugging Face files."""

from __future__ import annotations

from pathlib import Path

from simcore import library
from simcore.errors import InputError, closest
from simcore.model.shape import Experts, Latent, Model


def _gpt(name: str, layers: int, hidden: int, heads: int) -> Model:
    """A model of Narayanan et al. 2021 (SC21), section 5: tied embeddings, 51,200 words, 2,048 positions."""
    shape = {"gated": False, "tied": True, "positions": 2048, "linear_bias": True}
    return Model(name, layers, hidden, heads, 4 * hidden, 51200, norm="layer", **shape)  # type: ignore[arg-type]


def _llama(name: str, layers: int, hidden: int, heads: int, ffn: int, vocab: int = 32000, kv_heads: int = 0) -> Model:
    """A model of Touvron et al. 2023 or Grattafiori et al. 2024."""
    return Model(name, layers, hidden, heads, ffn, vocab, kv_heads)


def _qwen3(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    kv_heads: int = 8,
    *,
    tied: bool = False,
    experts: int = 0,
) -> Model:
    """A model of the Qwen3 technical report (2025); with `experts` the width is that of one expert."""
    mixture = Experts(experts, 8, ffn) if experts else None
    normed = {"tied": tied, "query_key_norm": True}
    return Model(name, layers, hidden, heads, ffn, 151936, kv_heads, 128, experts=mixture, **normed)  # type: ignore[arg-type]


_MODELS = (
    _gpt("gpt-1.7b", 24, 2304, 24),
    _gpt("gpt-3.6b", 30, 3072, 32),
    _gpt("gpt-7.5b", 36, 4096, 32),
    _gpt("gpt-13b", 40, 5120, 40),
    _gpt("gpt-18.4b", 40, 6144, 48),
    _gpt("gpt-22b", 48, 6144, 64),
    _gpt("gpt-39.1b", 48, 8192, 64),
    _gpt("gpt-76.1b", 60, 10240, 80),
    _gpt("gpt-145.6b", 80, 12288, 96),
    _gpt("gpt-175b", 96, 12288, 96),
    _gpt("gpt-310.1b", 96, 16384, 128),
    _gpt("gpt-529.6b", 105, 20480, 128),
    _gpt("gpt-1t", 128, 25600, 160),
    _llama("llama-2-7b", 32, 4096, 32, 11008),
    _llama("llama-2-13b", 40, 5120, 40, 13824),
    _llama("llama-30b", 60, 6656, 52, 17920),
    _llama("llama-65b", 80, 8192, 64, 22016),
    _llama("llama-2-70b", 80, 8192, 64, 28672, kv_heads=8),
    _llama("llama-3-8b", 32, 4096, 32, 14336, 128256, 8),
    _llama("llama-3-70b", 80, 8192, 64, 28672, 128256, 8),
    _llama("llama-3-405b", 126, 16384, 128, 53248, 128256, 8),
    Model("mixtral-8x7b", 32, 4096, 32, 14336, 32000, 8, experts=Experts(8, 2, 14336)),
    Model("mixtral-8x22b", 56, 6144, 48, 16384, 32000, 8, experts=Experts(8, 2, 16384)),
    Model(
        *("deepseek-v2-lite", 27, 2048, 16, 10944, 102400),
        latent=Latent(0, 512, 64, 128, 128),
        experts=Experts(64, 6, 1408, 2816, 1),
    ),
    Model(
        *("deepseek-v2", 60, 5120, 128, 12288, 102400),
        latent=Latent(1536, 512, 64, 128, 128),
        experts=Experts(160, 6, 1536, 3072, 1),
    ),
    Model(
        *("deepseek-v3", 61, 7168, 128, 18432, 129280),
        latent=Latent(1536, 512, 64, 128, 128),
        experts=Experts(256, 8, 2048, 2048, 3, router_bias=True),
    ),
    Model(
        *("kimi-k2", 61, 7168, 64, 18432, 163840),
        latent=Latent(1536, 512, 64, 128, 128),
        experts=Experts(384, 8, 2048, 2048, 1, router_bias=True),
    ),
    _qwen3("qwen3-0.6b", 28, 1024, 16, 3072, tied=True),
    _qwen3("qwen3-8b", 36, 4096, 32, 12288),
    _qwen3("qwen3-14b", 40, 5120, 40, 17408),
    _qwen3("qwen3-32b", 64, 5120, 64, 25600),
    _qwen3("qwen3-30b-a3b", 48, 2048, 32, 768, 4, experts=128),
    _qwen3("qwen3-235b-a22b", 94, 4096, 64, 1536, 4, experts=128),
)
SHIPPED = {shipped.name: shipped for shipped in _MODELS}


def model(name: str) -> Model:
    """A shipped model by name, or the one a `config.json` describes; InputError names what is close."""
    if name in SHIPPED:
        return SHIPPED[name]
    if Path(name).suffix == ".json" or library.exists(Path(name)):
        from simcore.model.huggingface import configuration

        return configuration(name)
    expected = f"a config.json or a shipped model; {closest(name, SHIPPED)}"
    raise InputError.at("--model", "there is no such model", expected=expected, found=name)
