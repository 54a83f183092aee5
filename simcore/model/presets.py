"""Shipped models; `model` also reads Hugging Face files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore import library
from simcore.errors import InputError, closest
from simcore.model.shape import Experts, Latent, Model

_SIZES = "layers", "hidden", "heads", "ffn", "vocab", "kv_heads", "head_size"
_TRAITS: Mapping[str, Mapping[str, Any]] = {
    "gpt": {"gated": False, "tied": True, "positions": 2048, "norm": "layer", "linear_bias": True},
    "qwen3": {"query_key_norm": True},
    "tied": {"tied": True},
}


def _shipped(name: str, *cells: str) -> Model:
    """A row of the table."""
    *sizes, latent, experts, traits = (cell.replace("-", "").split() for cell in cells)
    found: dict[str, Any] = dict(zip(_SIZES, (int(*size) for size in sizes), strict=True))
    for trait in traits:
        found |= _TRAITS[trait]
    if latent:
        found["latent"] = Latent(*map(int, latent))
    if experts:
        mixture: list[Any] = [*map(int, experts[:5]), "bias" in experts]
        found["experts"] = Experts(*mixture)
    return Model(name, **found)


SHIPPED = {cells[0]: _shipped(*cells) for cells in library.table(__file__, "presets.txt")}


def model(name: str) -> Model:
    """A shipped model by name, or the one a `config.json` describes; InputError names what is close."""
    if name in SHIPPED:
        return SHIPPED[name]
    if Path(name).suffix == ".json" or (name and library.exists(Path(name))):
        from simcore.model.huggingface import configuration

        return configuration(name)
    expected = f"a config.json or a shipped model; {closest(name, SHIPPED)}"
    raise InputError.at("--model", "there is no such model", expected=expected, found=name)
