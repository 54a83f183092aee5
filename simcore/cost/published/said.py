"""What the words of published rows mean: numbers, sharing, schedules, number formats, adapters, what is computed again.

A source writes them as its software does. What these rules do not understand is refused, never taken for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simcore.compute.accelerators import ELEMENT_BYTES
from simcore.errors import InputError
from simcore.model.plan import LINEAR
from simcore.model.shape import Weights
from simcore.model.steps import Module
from simcore.workload.loops import schedules

_NOTHING = re.compile(
    r"|-|n/?a|null|0|(none|no|off|false|never|without|not stated|unstated|unknown)\b.*", re.IGNORECASE
)


def told(value: object) -> str:
    """What a row says in a cell, "" where that is nothing.

    >>> told("n/a"), told(None), told(False), told("Full")
    ('', '', '', 'Full')
    """
    word = "" if value is None else str(value).strip()
    return "" if _NOTHING.fullmatch(word) else word


def number(value: object) -> int:
    """The number that a row states, 0 where it states none; k and M are powers of two, as sequences have them.

    >>> number(8), number("TP8"), number("8 (unverified)"), number("n/a"), number("128,256"), number("8k")
    (8, 8, 8, 0, 128256, 8192)
    """
    if isinstance(value, int | float):
        return int(value)
    found = re.search(r"(\d+) ?([kKM]?)\b", told(value).replace(",", ""))
    return int(found[1]) << _POWERS[found[2].lower()] if found else 0


_POWERS = {"": 0, "k": 10, "m": 20}


def yes(word: object) -> bool:
    """Whether a row says that something is so."""
    return str(word).lower() in ("1", "true", "yes")


_LEVELS = ((r"sdp|full.?shard", 3), (r"grad.?op", 2), (r"optimizer|optimiser", 1), (r"ddp|data.?parallel", 0))


def zero_level(value: object) -> int:
    """What data-parallel ranks share, of 0 to 3.

    >>> zero_level("ZeRO-3"), zero_level("FSDP2"), zero_level("distributed optimizer"), zero_level("DDP")
    (3, 3, 1, 0)
    """
    word = told(int(value) if isinstance(value, bool) else value).lower()
    known = next((level for words, level in _LEVELS if re.search(words, word)), None)
    if known is not None or not word:
        return known or 0
    if found := re.search(r"(?<!\d)[0-3](?!\d)", word):
        return int(found[0])
    raise InputError.at("zero", f"{word!r} is not understood", expected="0 to 3, FSDP, HSDP or DDP", found=word)


_FLAT = re.compile(r"[^a-z0-9]")
_SCHEDULES = {_FLAT.sub("", name): name for name in schedules.names()}
_SCHEDULES |= {"zerobubbleh1": "zb-h1", "zerobubblev": "zb-v", "dualpipev": "zb-v", "afab": "gpipe"}
_USUAL = re.compile(r"(?!.*(zb|zero))(.*1f1b|.*interleav|$)")


def schedule(value: object) -> str:
    """The pipeline schedule of a row; "" = the usual one of its chunks.

    >>> schedule("Interleaved 1F1B"), schedule("ZBVZeroBubble"), schedule("GPipe"), schedule(None)
    ('', 'zb-v', 'gpipe', '')
    """
    word = _FLAT.sub("", told(value).lower())
    if _USUAL.match(word):
        return ""
    named = [name for plain, name in _SCHEDULES.items() if plain in word and "interleav" not in word]
    if not named:
        raise InputError.at("schedule", f"{value!r} is not understood", expected=", ".join(schedules.names()))
    return named[-1]


def dtype(said: str) -> str:
    """The number format that a stated one is a kind of, of several the narrowest.

    >>> dtype("MXFP8"), dtype("bfloat16"), dtype("BF16, FP8 products"), dtype("E4M3"), dtype("half")
    ('fp8', 'bf16', 'fp8', 'fp8', 'fp16')
    """
    word = re.sub("e4m3|e5m2|hybrid", "fp8", said.lower()).replace("float", "fp").replace("bfp", "bf")
    word = re.sub(r"\bhalf\b", "fp16", word)
    return min((known for known in ELEMENT_BYTES if known in word), key=ELEMENT_BYTES.__getitem__, default=said)


_USUAL_RANK = 16  # a step hardly follows it


def adapters(words: str) -> dict[str, Any]:
    """Of adapters: their rank, and the weights beside which they stand, attention's alone where no others are named."""
    rank = re.search(r"\b(?:rank|r)\b\D{0,4}(\d+)", words, re.IGNORECASE)
    attention = re.search(r"attention|qkv|q_proj", words) and not re.search(r"mlp|fc1|feed|all.linear", words)
    beside = (str(Weights.QKV), str(Weights.PROJECTION)) if attention else LINEAR
    return {"lora_rank": int(rank[1]) if rank else _USUAL_RANK, "lora_modules": beside}


_SHARED = re.compile(r"shards? over (\d+)")
_IN_NODES = re.compile(r"a node|hsdp|hybrid.?shard", re.IGNORECASE)


def shared(words: str, degrees: Mapping[str, int], per_node: int) -> int:
    """Ranks that share what is sharded: all (0), those of a node (so does hybrid sharding), or as many as stated."""
    said = _SHARED.search(words)
    replicas = degrees["dp"] * degrees["cp"]
    ranks = int(said[1]) if said else per_node // degrees["tp"] if _IN_NODES.search(words) else 0
    return ranks if 0 < ranks < replicas else 0


# --- what is computed again

# Words of a source -> modules. XLA names what it saves; what nothing needs is not computed again, such as the last
# product of a layer. TorchTitan's per-operator checkpoint saves attention and every second product.
_ALL_BUT_PRODUCTS = (Module.NORM, Module.FUSED, Module.MLP_ACTIVATION)
_REMATERIALISED: tuple[tuple[re.Pattern[str], tuple[Module, ...]], ...] = (
    (re.compile(r"save_dot_with_no_batch|\bminimal", re.IGNORECASE), _ALL_BUT_PRODUCTS),
    (re.compile(r"save_dot_except_mlp|save_qkv_out_proj", re.IGNORECASE), (*_ALL_BUT_PRODUCTS, Module.MLP_UP)),
    (re.compile(r"save_qkv_proj|qkv_proj_offloaded", re.IGNORECASE), (*_ALL_BUT_PRODUCTS, Module.MLP_UP, Module.OUT)),
    (re.compile(r"per-op", re.IGNORECASE), (Module.NORM, Module.MLP_ACTIVATION, Module.OUT, Module.MLP_GATE)),
)
_XLA_FULL = (*_ALL_BUT_PRODUCTS, Module.MLP_UP, Module.QKV, Module.OUT)
_PER_OPERATOR = re.compile(r"(selective\W*)?(op|operator)|sac")
_EVERY = re.compile(r"every (\d+|second|other)(?:nd|rd|th)?\b|\bselective,? (\d+)$", re.IGNORECASE)
_LAYERS = re.compile(r"(\d+) layers|(?:block|uniform)\D*(\d+)|^(\d+)$", re.IGNORECASE)
_WHOLE = re.compile(r"full|checkpoint|remat|recomput|uniform|block|nothing_saveable|true|yes|\ball\b|^\d+( layers)?$")
_NAMED_MODULES = re.compile("|".join(sorted(map(str, Module), key=len, reverse=True)) + "|attention|attn")
_EXPECTED = "none, full, full (N layers), selective, or modules: " + ", ".join(map(str, Module))


def again(said: object, words: str, layers: int, profile: str, *, xla: bool) -> dict[str, Any]:
    """What is computed again, by a row's cell and its other words; `layers`: of a part of the model."""
    cell = told(said).lower()
    titan = profile == "torchtitan" and cell.startswith("selective") and not _EVERY.search(cell)
    if titan or _PER_OPERATOR.fullmatch(cell):
        words += " per-op"  # so TorchTitan's configurations mean it (selective_ac_option)
    chosen = next((modules for words_of, modules in _REMATERIALISED if words_of.search(f"{cell} {words}")), None)
    if chosen is None and xla and _WHOLE.match(cell):
        chosen = _XLA_FULL
    if chosen:
        return _modules(*chosen)
    if every := _EVERY.search(f"{words} {cell}"):
        return {"recompute": "full", "recompute_layers": -(-layers // max(2, number(every[1] or every[2])))}
    if "selective checkpoint; nearest" in words:  # of an unknown share of the layers: the middle of what may be
        share = 3 if cell == "full" else 1
        return {"recompute": "full", "recompute_layers": max(1, share * layers // 4)}
    return _of_cell(cell.replace("-", "_"))


def _of_cell(cell: str) -> dict[str, Any]:
    """By Megatron-LM's words: modules, whole layers, some of them."""
    if not cell:
        return {"recompute": "none"}
    named = () if "full" in cell else dict.fromkeys(_NAMED_MODULES.findall(cell))
    if named:
        return _modules(*(Module(one) if one in [*Module] else Module.CORE for one in named))
    if "selective" in cell:
        return {"recompute": "selective"}
    if not _WHOLE.search(cell):
        raise InputError.at("recompute", f"{cell!r} is not understood", expected=_EXPECTED, found=cell)
    some = _LAYERS.search(cell)
    layers = int(next(filter(None, some.groups()))) if some else 0
    method = "uniform" if "uniform" in cell and layers else "block"
    return {"recompute": "full", "recompute_layers": layers, "recompute_method": method}


def _modules(*some: Module) -> dict[str, Any]:
    return {"recompute": "selective", "recompute_modules": tuple(dict.fromkeys(map(str, some)))}
