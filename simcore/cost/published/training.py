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
from simcore.cost.published.said import adapters, again, dtype, number, schedule, shared, told, yes, zero_level
from simcore.cost.systems import RUNS, SOFTWARE, framework, placed, profile_of, software_on
from simcore.errors import InputError
from simcore.model.plan import STORED_BYTES, check
from simcore.model.presets import recognised as recognised_model
from simcore.model.shape import Experts, Latent, Model

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


_ALIKE = "layers", "hidden", "heads", "vocab", "ffn", "kv_heads", "window", "mtp_layers", "encoder_layers"
_SIZES = dict(zip(_ALIKE, _ALIKE, strict=True)) | {"head_dim": "head_size"}  # of a row -> of a model
_NEEDED = _ALIKE[:4]
_ENCODERS = re.compile(r"bart|(?<!p)t5|encoder", re.IGNORECASE)  # in names
_LATENT = {"q_lora_rank": 0, "kv_lora_rank": 0, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}


def _shape(stated: Stated) -> Model:
    """The model of that name with what is stated of it; else a Llama where keys are grouped or gated, else a GPT."""
    sizes: dict[str, Any] = {field: number(stated[key]) for key, field in _SIZES.items() if number(stated.get(key))}
    known = recognised_model(str(stated.get("name") or ""))
    if known and all(getattr(known, name) == sizes.get(name, getattr(known, name)) for name in ("hidden", "heads")):
        base = replace(known, positions=number(stated.get("seq")) if known.positions else 0)
    elif missing := [name for name in _NEEDED if name not in sizes]:
        expected = f"{', '.join(_NEEDED)}, or the name of a language model (simcore list models)"
        raise InputError.at("model", f"states no {', '.join(missing)}", expected=expected)
    else:
        base = _unnamed(stated, sizes)
    latent = Latent(*(number(stated.get(key)) or usual for key, usual in _LATENT.items()))
    sizes |= {"latent": latent if latent.key_value_rank else base.latent, "experts": _experts(stated, base)}
    return replace(base, **sizes)


def _unnamed(stated: Stated, sizes: Mapping[str, Any]) -> Model:
    if _ENCODERS.search(name := str(stated.get("name", "model"))) and "encoder_layers" not in sizes:
        message, expected = "is an encoder by its name, and a decoder by its sizes", "encoder_layers, beside layers"
        raise InputError.at("model", message, expected=expected, found=name)
    gated = stated.get("gated", "kv_heads" in stated)
    learned = stated.get("learned_positions", not gated and "kv_heads" not in stated)
    return Model(
        name,
        **{"ffn": 4 * sizes["hidden"], **sizes},
        gated=gated,
        tied=stated.get("tied", learned),
        positions=number(stated["seq"]) if learned else 0,
        norm="rms" if gated else "layer",
        linear_bias=learned,
    )


def _experts(stated: Stated, model: Model) -> Experts | None:
    """Experts as stated, the rest as the model of that name has it."""
    count = number(stated.get("experts"))
    if not count:
        return model.experts
    ffn = number(stated.get("expert_ffn")) or (model.experts.ffn if model.experts else number(stated["ffn"]))
    shared = number(stated.get("shared_ffn")) or number(stated.get("shared_experts")) * ffn
    top_k, dense = number(stated.get("top_k")), number(stated.get("dense_layers"))
    if known := model.experts:
        shared, dense, top_k = shared or known.shared_ffn, dense or known.dense_layers, top_k or known.top_k
    if not top_k:
        raise InputError.at("model", "states no experts of a token", expected="top_k")
    own: dict[str, Any] = {"count": count, "top_k": top_k, "ffn": ffn, "shared_ffn": shared, "dense_layers": dense}
    return replace(known, **own) if known else Experts(**own)


def _degrees(row: Stated) -> dict[str, int]:
    """Degrees under the names of a plan, as many replicas as there are accelerators; chunks only with stages."""
    hardware, parallel = row["hardware"], row["parallel"]
    degrees = {name: number(parallel.get(name)) or 1 for name in ("tp", "pp", "cp", "ep")}
    width, dp = degrees["tp"] * degrees["pp"] * degrees["cp"], number(parallel.get("dp"))
    nodes = number(hardware.get("nodes")) * number(hardware.get("per_node"))
    count = number(hardware.get("count")) or nodes or width * dp
    if not count:
        raise InputError.at("hardware", "states no number of accelerators", expected="count, nodes and per_node, or dp")
    degrees["dp"] = dp or max(1, count // width)
    if width * degrees["dp"] != count:
        raise InputError.at(str(row.get("id")), "degrees do not multiply to the accelerators", expected=str(count))
    return {**degrees, "virtual_stages": (number(parallel.get("vp")) or 1) if degrees["pp"] > 1 else 1}


def _batch(row: Stated, dp: int) -> tuple[int, int]:
    """Sequences of a step and of a micro-batch, of which there is one a rank where nothing is said."""
    batch = row["batch"]
    micro, steps = number(batch.get("micro")), number(batch.get("accumulation"))
    whole = number(batch.get("global_")) or number(batch.get("tokens")) // number(row["model"]["seq"])
    whole = whole or micro * steps * dp
    if not whole:
        raise InputError.at("batch", "states no sequences", expected="global_, or micro and accumulation")
    return whole, micro or (max(1, whole // (dp * steps)) if steps else 1)


def _device(row: Stated) -> Accelerator:
    """The device, by our name or a driver's."""
    name = str(row["hardware"]["accelerator"])
    return recognised(name) or accelerator(name)


def _step(row: Stated, model: Model, software: str, choices: dict[str, Any]) -> Step:
    whole, micro = _batch(row, choices["dp"])
    one = job(model, number(row["model"]["seq"]), whole, micro_batch=micro, **choices)
    check(one.model, one.plan)
    hardware, device = row["hardware"], _device(row)
    if one.plan.narrow:
        device.peak(one.plan.dtype)  # there is no such product elsewhere
    cluster = placed(
        device.name,
        software,
        count=one.plan.world_size,
        per_node=number(hardware.get("per_node")),
        scale_out=str(hardware.get("scale_out") or ""),
        remarks=str(hardware.get("note") or ""),
    )
    words = " ".join(str(row.get(key) or "") for key in ("conditions", "inexact", "note", "group"))
    return Step((one,), replace(cluster, losses=RUNS["production"]) if _PRODUCTION.search(words) else cluster)


# Words of what is no benchmark but weeks of training.
_PRODUCTION = re.compile(
    r"\bproduction\b|\b(whole|entire|full|over the|of the) (pre-?)?(training )?run\b"
    r"|\bover (the )?(pre-?)?training\b|\b(days|weeks|months)\b",
    re.IGNORECASE,
)
_COMMON: dict[str, Any] = {"overlap": True, "overlap_pipeline": True}


# --- what vendors of frameworks publish

# DeepSpeed sums gradients of ZeRO 1 and 2 behind the backward (`overlap_comm` is false by default but for ZeRO 3); its
# pipeline sends messages between passes, a tensor rank its part (pipe/engine.py). Its Megatron splits sequences only
# where asked. So is Megatron-LM of before fused attention.
_PLAIN = {"overlap": False, "overlap_pipeline": False, "scatter_pipeline": True}


def _framework(row: Stated) -> Step:
    kind, profile = _software(row)
    model, degrees = _shape(row["model"]), _degrees(row)
    parallel, words = row["parallel"], f"{row.get('inexact') or ''} {row.get('note') or ''}"
    zero = zero_level(parallel.get("zero"))
    if kind == "fsdp" and degrees["pp"] > 1:
        zero = min(1, zero)  # weights gathered for a pass stay for all (TorchTitan: reshard_after_forward)
    ways = (profile + way for told, way in _WAYS.items() if told in words)
    software = next((name for name in ways if name in SOFTWARE), profile)
    device = _device(row)
    usual = software_on(device, software).usual
    classic = CLASSIC if not usual["fused_attention"] else {}
    plain = kind == "deepspeed" or bool(classic)
    parts, per_node = degrees["pp"] * degrees["virtual_stages"], number(row["hardware"].get("per_node")) or 8
    adapted = f"{row['model'].get('task') or ''} {words} {row.get('group') or ''}"
    choices: dict[str, Any] = {
        **(_PLAIN if plain else _COMMON),
        **classic,
        "sequence_parallel": yes(parallel.get("sequence_parallel")) if plain else _splits(row, degrees),
        **usual,
        **degrees,
        **again(row.get("recompute"), words, -(-model.depth // parts), profile, xla=kind == "xla"),
        **(adapters(adapted) if _ADAPTERS.search(adapted) else {}),
        "zero": zero,
        "shard": shared(f"{words} {parallel.get('zero')}", degrees, per_node) if zero else 0,
        "schedule": schedule(parallel.get("schedule")) if degrees["pp"] > 1 else "",
        "dtype": dtype(told(row.get("dtype")) or device.wide_dtype),
        "expert_tp": number(parallel.get("etp")) or (degrees["tp"] if "ETP" in words else 1),
        "offload": ("activations",) if "on the host" in words else (),
    }
    if kind == "megatron":
        choices["gradient_bytes"] = 2  # NeMo's recipes (grad_reduce_in_fp32 of DistributedDataParallelConfig)
    if "weights in 16 bits" in words:
        choices["optimizer_bytes"] = 2 * STORED_BYTES  # moments of their type, and no other copy
    return _step(row, model, software, choices)


_ADAPTERS = re.compile(r"\blora\b|\bpeft\b|\badapters?\b", re.IGNORECASE)
_WAYS = {"async TP": "-async", "eager": "-eager"}  # words of a source -> how its software was run


def _splits(row: Stated, degrees: Mapping[str, int]) -> bool:
    """Whether tensor ranks split sequences, where nothing is said: where there are several and it divides."""
    said, ranks = row["parallel"].get("sequence_parallel"), degrees["tp"] * degrees["cp"]
    return (said is None or yes(said)) and degrees["tp"] > 1 and number(row["model"]["seq"]) % ranks == 0


# --- MLPerf Training

_WIDE_GRADIENTS = 4
_BLACKWELL = 2024


def _mlperf(row: Stated) -> Step:
    model, degrees, precision = _shape(row["model"]), _degrees(row), row["precision"] or {}
    options = row.get("options") or {}
    lora = "LoRA" in str(row["model"].get("task", ""))
    choices: dict[str, Any] = {
        **_COMMON,
        **degrees,
        "zero": 1,
        "sequence_parallel": bool(row["parallel"].get("sequence_parallel")) or degrees["tp"] > 1,
        "dtype": dtype(told(precision.get("compute")) or "bf16"),
        # Over context ranks Transformer Engine's attention stays in 16 bits.
        "attention_dtype": "fp8" if yes(precision.get("fp8_attention")) and degrees["cp"] == 1 else "",
        **again(row.get("recompute"), "", model.layers, "", xla=False),
        "gradient_bytes": 2 if options.get("gradient_reduction") == "bf16" else _WIDE_GRADIENTS,
    }
    if lora:
        choices |= adapters(row["model"]["task"])
        choices["parameter_dtype"] = "fp8" if ELEMENT_BYTES[choices["dtype"]] < STORED_BYTES else ""
    # A step is one CUDA graph where a submission says so, and on all of Blackwell since MLPerf 5.1.
    device = _device(row)
    graph = (str(row.get("round", "")) >= "5.1" and device.year >= _BLACKWELL) or yes(options.get("cuda_graph"))
    step = _step(row, model, "mlperf-graphs" if graph else "mlperf-nemo", choices)
    narrower = precision.get("confirmed") is False and "fp4" in device.peak_flops_per_s
    if not narrower:
        return step
    (one,) = step.jobs
    return replace(step, jobs=(one, Job(one.model, replace(one.plan, dtype="fp4"))))
