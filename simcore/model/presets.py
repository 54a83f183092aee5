"""Shipped models; `model` also reads Hugging Face files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from simcore import library
from simcore.errors import InputError, closest
from simcore.model.shape import Experts, Latent, Model

_SIZES = "layers", "hidden", "heads", "ffn", "vocab", "kv_heads", "head_size"
_TRAITS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("traits.json").read_text(encoding="utf-8"))


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


def recognised(name: str) -> Model | None:
    """The shipped model that a publication or a hub means by a name; None where it names none.

    >>> recognised("meta-llama/Llama-3.1-70B-Instruct").name, recognised("GPT-3 175B").name, recognised("LLaMA 8B")
    ('llama-3-70b', 'gpt-175b', None)
    """
    return SHIPPED.get(_SPELT.get(_words(name), ""))


def _words(name: str) -> tuple[str, ...]:
    """What of a name says which model it is."""
    said = re.sub(r"\(.*?\)|v0\.\d+", "", name.lower().rpartition("/")[2])
    return tuple(one for one in re.findall(r"[a-z]+|\d+(?:\.\d+)?", said) if one not in _ANY)


_ANY = {"instruct", "chat", "base", "it", "hf", "meta", "model", "lora", "sft", "pretraining"}
_ELSEWHERE = library.table(__file__, "spelled.txt")
_SPELT = {_words(name): name for name in SHIPPED}
_SPELT |= {_words(said): name for name, *others in _ELSEWHERE for said in others}


def model(name: str) -> Model:
    """A shipped model by name, or the one a `config.json` describes; InputError names what is close."""
    if found := recognised(name):
        return found
    if Path(name).suffix == ".json" or (name and library.exists(Path(name))):
        from simcore.model.huggingface import configuration

        return configuration(name)
    expected = f"a config.json or a shipped model; {closest(name, SHIPPED)}"
    raise InputError.at("--model", "there is no such model", expected=expected, found=name)
