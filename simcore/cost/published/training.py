"""Training steps in the forms that framework vendors and MLPerf Training publish them in, and in a user's own.

A row is told by what it holds: `benchmark` and `precision` (MLPerf), `framework` and `dtype` (vendors). Nothing of
`measured` goes into the question. Words of a source that name a choice (what is computed again, who shares what) are
read by the rules below, the same for all rows; what a source leaves out is what its software does by default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator, accelerator, recognised
from simcore.cost.published.megatron import CLASSIC
from simcore.cost.published.rows import Job, Step, job
from simcore.cost.systems import SOFTWARE, framework, placed, profile_of, software_on
from simcore.errors import InputError
from simcore.model.plan import STORED_BYTES, check
from simcore.model.shape import Experts, Model, Weights
from simcore.model.steps import Module

Stated = Mapping[str, Any]


def family(row: Stated, known: Collection[str]) -> str:
    """The suite of a row: its benchmark, or the software that ran it, on a maker's boards; else the form's "other"."""
    form, kind = ("mlperf", str(row["benchmark"])) if "benchmark" in row else ("frameworks", _software(row)[0])
    hardware = row.get("hardware")
    device = recognised(str(hardware.get("accelerator"))) if isinstance(hardware, Mapping) else None
    names = (f"{form}_{kind}_{device.maker.lower()}" if device else "", f"{form}_{kind}")
    return next((name for name in names if name in known), f"{form}_other")


def _software(row: Stated) -> tuple[str, str]:
    """Family and profile of what ran a row, by the first of the frameworks that it names."""
    profile = framework(str(row.get("framework") or "")) or "unknown"
    return SOFTWARE[profile_of(profile)].family, profile


def training(row: Stated) -> Step:
    """The question of a row; InputError says what is missing in it."""
    needed = {"hardware": "accelerators", "model": "shape of the model", "parallel": "degrees", "batch": "batch"}
    for key, what in needed.items():
        if not row.get(key):
            raise InputError.at(str(row.get("id")), f"states no {what}", expected=", ".join(needed.values()))
    read = _mlperf if "benchmark" in row else _framework
    return read(row)


# --- what both forms share


def _shape(stated: Stated) -> Model:
    """A Llama where keys are grouped or the feed-forward is gated, else a GPT."""
    gated = stated.get("gated", "kv_heads" in stated)
    learned = stated.get("learned_positions", not gated and "kv_heads" not in stated)
    experts = None
    if stated.get("experts"):
        experts = Experts(stated["experts"], stated["top_k"], stated.get("expert_ffn") or stated["ffn"])
    return Model(
        str(stated.get("name", "model")),
        stated["layers"],
        stated["hidden"],
        stated["heads"],
        stated.get("ffn") or 4 * stated["hidden"],
        stated["vocab"],
        stated.get("kv_heads") or 0,
        stated.get("head_dim") or 0,
        gated=gated,
        tied=stated.get("tied", learned),
        positions=stated["seq"] if learned else 0,
        norm="rms" if gated else "layer",
        linear_bias=learned,
        experts=experts,
    )


def _degrees(row: Stated) -> dict[str, int]:
    """Degrees under the names of a plan, as many replicas as there are accelerators; chunks only with stages."""
    degrees = {name: row["parallel"].get(name) or 1 for name in ("tp", "pp", "cp", "ep")}
    width = degrees["tp"] * degrees["pp"] * degrees["cp"]
    count = row["hardware"].get("count") or width * (row["parallel"].get("dp") or 1)
    degrees["dp"] = row["parallel"].get("dp") or count // width
    if width * degrees["dp"] != count:
        raise InputError.at(str(row.get("id")), "degrees do not multiply to the accelerators", expected=str(count))
    chunks = row["parallel"].get("vp") or 1
    return {**degrees, "virtual_stages": chunks if degrees["pp"] > 1 else 1}


def _device(row: Stated) -> Accelerator:
    """The device, by our name or a driver's."""
    name = str(row["hardware"]["accelerator"])
    return recognised(name) or accelerator(name)


def _step(row: Stated, model: Model, software: str, choices: dict[str, Any]) -> Step:
    stated = row["batch"]
    one = job(model, row["model"]["seq"], stated["global_"], micro_batch=stated.get("micro") or 1, **choices)
    check(one.model, one.plan)
    hardware = row["hardware"]
    cluster = placed(
        _device(row).name,
        software,
        count=hardware.get("count", one.plan.world_size),
        per_node=hardware.get("per_node") or 0,
        scale_out=str(hardware.get("scale_out") or ""),
        remarks=str(hardware.get("note") or ""),
    )
    return Step((one,), cluster)


_COMMON: dict[str, Any] = {"overlap": True, "overlap_pipeline": True}


# --- what vendors of frameworks publish

# Words of a source -> modules computed again. XLA names what it saves; what nothing needs is not computed again, such
# as the last product of a layer. TorchTitan's per-operator checkpoint saves attention and every second product.
_ALL_BUT_PRODUCTS = (Module.NORM, Module.FUSED, Module.MLP_ACTIVATION)
_REMATERIALISED: tuple[tuple[re.Pattern[str], tuple[Module, ...]], ...] = (
    (re.compile(r"save_dot_with_no_batch", re.IGNORECASE), _ALL_BUT_PRODUCTS),
    (re.compile(r"save_dot_except_mlp|save_qkv_out_proj", re.IGNORECASE), (*_ALL_BUT_PRODUCTS, Module.MLP_UP)),
    (re.compile(r"save_qkv_proj|qkv_proj_offloaded", re.IGNORECASE), (*_ALL_BUT_PRODUCTS, Module.MLP_UP, Module.OUT)),
    (re.compile(r"per-op", re.IGNORECASE), (Module.NORM, Module.MLP_ACTIVATION, Module.OUT, Module.MLP_GATE)),
)
_XLA_FULL = (*_ALL_BUT_PRODUCTS, Module.MLP_UP, Module.QKV, Module.OUT)


# DeepSpeed sums gradients of ZeRO 1 and 2 behind the backward (`overlap_comm` is false by default but for ZeRO 3); its
# pipeline sends messages between passes, a tensor rank its part (pipe/engine.py). Its Megatron splits sequences only
# where asked. So is Megatron-LM of before fused attention.
_PLAIN = {"overlap": False, "overlap_pipeline": False, "scatter_pipeline": True}


def _framework(row: Stated) -> Step:
    kind, profile = _software(row)
    model, degrees = _shape(row["model"]), _degrees(row)
    words = f"{row.get('inexact') or ''} {row.get('note') or ''}"
    zero = int(row["parallel"].get("zero") or 0)
    if kind == "fsdp" and degrees["pp"] > 1:
        zero = min(1, zero)  # weights gathered for a pass stay for all (TorchTitan: reshard_after_forward)
    ways = (profile + way for told, way in _WAYS.items() if told in words)
    software = next((name for name in ways if name in SOFTWARE), profile)
    usual = software_on(_device(row), software).usual
    classic = CLASSIC if not usual["fused_attention"] else {}
    plain = kind == "deepspeed" or bool(classic)
    choices: dict[str, Any] = {
        **(_PLAIN if plain else _COMMON),
        **classic,
        "sequence_parallel": _yes(row["parallel"].get("sequence_parallel")) if plain else _splits(row, degrees),
        **usual,
        **degrees,
        **_again(row, words, model, xla=kind == "xla"),
        "zero": zero,
        "shard": _shared(words, degrees, row["hardware"].get("per_node") or 8) if zero else 0,
        "dtype": _dtype(str(row["dtype"])),
        "expert_tp": degrees["tp"] if "ETP" in words else 1,
        "offload": ("activations",) if "on the host" in words else (),
    }
    if kind == "megatron":
        choices["gradient_bytes"] = 2  # NeMo's recipes (grad_reduce_in_fp32 of DistributedDataParallelConfig)
    if "weights in 16 bits" in words:
        choices["optimizer_bytes"] = 2 * STORED_BYTES  # moments of their type, and no other copy
    return _step(row, model, software, choices)


def _dtype(stated: str) -> str:
    """The number format that a stated one is a kind of, of several the narrowest.

    >>> _dtype("MXFP8"), _dtype("bfloat16"), _dtype("BF16, FP8 products"), _dtype("E4M3")
    ('fp8', 'bf16', 'fp8', 'fp8')
    """
    word = re.sub("e4m3|e5m2", "fp8", stated.lower()).replace("float", "fp").replace("bfp", "bf")
    return min((known for known in ELEMENT_BYTES if known in word), key=ELEMENT_BYTES.__getitem__, default=stated)


_WAYS = {"async TP": "-async", "eager": "-eager"}  # words of a source -> how its software was run


def _again(row: Stated, words: str, model: Model, *, xla: bool) -> dict[str, Any]:
    """What is computed again."""
    chosen = next((modules for told, modules in _REMATERIALISED if told.search(words)), None)
    stated = row.get("recompute") or "none"
    if chosen is None and xla and stated == "full":
        chosen = _XLA_FULL
    if chosen:
        return {"recompute": "selective", "recompute_modules": tuple(map(str, chosen))}
    if "every 2nd" in words:
        return {"recompute": "full", "recompute_layers": -(-model.layers // 2)}
    if "selective checkpoint; nearest" in words:  # of an unknown share of the layers: the middle of what may be
        share = 3 if stated == "full" else 1
        return {"recompute": "full", "recompute_layers": max(1, share * model.layers // 4)}
    return {"recompute": stated}


def _splits(row: Stated, degrees: Mapping[str, int]) -> bool:
    """Whether tensor ranks split sequences, where nothing is said: where there are several and it divides."""
    return degrees["tp"] > 1 and row["model"]["seq"] % (degrees["tp"] * degrees["cp"]) == 0


_SHARED = re.compile(r"shards? over (\d+)")


def _shared(words: str, degrees: Mapping[str, int], per_node: int) -> int:
    """Ranks that share what is sharded: all, those of a node, or as many as stated."""
    stated = _SHARED.search(words)
    replicas = degrees["dp"] * degrees["cp"]
    ranks = int(stated[1]) if stated else per_node // degrees["tp"] if "a node" in words else 0
    return ranks if 0 < ranks < replicas else 0


# --- MLPerf Training

_FULL = re.compile(r"full(?: \((\d+) layers\))?")
_WIDE_GRADIENTS = 4
_BLACKWELL = 2024


def _mlperf(row: Stated) -> Step:
    model, degrees, precision = _shape(row["model"]), _degrees(row), row["precision"] or {}
    options = row.get("options") or {}
    lora = "LoRA" in str(row["model"].get("task", ""))
    full = _FULL.fullmatch(str(row.get("recompute")))
    choices: dict[str, Any] = {
        **_COMMON,
        **degrees,
        "zero": 1,
        "sequence_parallel": bool(row["parallel"].get("sequence_parallel")) or degrees["tp"] > 1,
        "dtype": _dtype(str(precision.get("compute", "bf16"))),
        # Over context ranks Transformer Engine's attention stays in 16 bits.
        "attention_dtype": "fp8" if _yes(precision.get("fp8_attention")) and degrees["cp"] == 1 else "",
        "recompute": "full" if full else "none",
        "recompute_layers": int(full[1] or 0) if full else 0,
        "gradient_bytes": 2 if options.get("gradient_reduction") == "bf16" else _WIDE_GRADIENTS,
    }
    if lora:
        adapted = str(Weights.QKV), str(Weights.PROJECTION)
        choices |= {"lora_rank": _rank(row["model"]["task"]), "lora_modules": adapted}
        choices["parameter_dtype"] = "fp8" if ELEMENT_BYTES[choices["dtype"]] < STORED_BYTES else ""
    # A step is one CUDA graph where a submission says so, and on all of Blackwell since MLPerf 5.1.
    device = _device(row)
    graph = (str(row.get("round", "")) >= "5.1" and device.year >= _BLACKWELL) or _yes(options.get("cuda_graph"))
    step = _step(row, model, "mlperf-graphs" if graph else "mlperf-nemo", choices)
    narrower = precision.get("confirmed") is False and "fp4" in device.peak_flops_per_s
    if not narrower:
        return step
    (one,) = step.jobs
    return replace(step, jobs=(one, Job(one.model, replace(one.plan, dtype="fp4"))))


def _yes(word: object) -> bool:
    return str(word).lower() in ("1", "true", "yes")


def _rank(task: str) -> int:
    """The rank of adapters that a task states."""
    found = re.search(r"rank (\d+)", task)
    if not found:
        raise InputError.at("model", "LoRA without a rank", expected="rank 16", found=task)
    return int(found[1])
