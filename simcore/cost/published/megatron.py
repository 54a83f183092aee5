"""Megatron-LM's published steps, and those of systems measured beside it or built on it: SC'21, MLSys'23, MegaScale,
MT-NLG, Lumos; on H100 Megatron-Core and Llama 3, whose micro-batch and interleaving are the fastest that fit where left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from simcore.cost.published.rows import Held, Job, Row, Step, job, measured_s, named, selected, stated
from simcore.model.plan import Recompute
from simcore.model.presets import SHIPPED
from simcore.model.shape import Model

# Attention in products, a softmax and dropout of its own.
CLASSIC: dict[str, Any] = {"fused_attention": False, "dropout": True}
# Today's Megatron-Core: sharded optimizer, gradients and pipeline messages beside the kernels.
MODERN: dict[str, Any] = {"zero": 1, "overlap": True, "overlap_pipeline": True, "sequence_parallel": True}
OF_2021: dict[str, Any] = {**CLASSIC, "scatter_pipeline": True, "dtype": "fp16"}


def gpt(shape: Mapping[str, Any], **changes: Any) -> Model:
    """A GPT of Megatron-LM's kind from the source's figures."""
    hidden = shape["hidden"]
    base: dict[str, Any] = {"gated": False, "tied": True, "norm": "layer", "linear_bias": True}
    sizes = shape["layers"], hidden, shape["heads"], shape.get("ffn", 4 * hidden), shape.get("vocab", 51200)
    return Model("gpt", *sizes, **{**base, "positions": shape["seq"], **changes})


def mlsys23(row: Mapping[str, Any]) -> Step:
    """Megatron-LM of 2022: fp16, interleaved where vp > 1, scatter-gather between stages."""
    shards = row["parallel"].get("sequence_parallel", False)
    again = "full" if str(row["recompute"]).startswith("full") else "selective"
    return Step((stated(row, gpt(row["model"]), sequence_parallel=shards, recompute=again, **OF_2021),), "selene")


_RECOMPUTE: dict[str, Recompute] = {"full_recompute": "full", "selective_recompute": "selective"}


def _table4(row: Mapping[str, Any], phase: str) -> Step:
    """One layer of the 22B model, forward or backward alone."""
    kind = row["id"].removeprefix("mlsys23-t4-layer-")
    shape, micro = {**row["model"], "layers": 1}, row["batch"]["micro"]
    choices = {**CLASSIC, "dtype": "fp16", "tp": row["parallel"]["tp"], "micro_batch": micro}
    choices |= {"sequence_parallel": kind == "sequence_parallel", "recompute": _RECOMPUTE.get(kind, "none")}
    return Step((job(gpt(shape), shape["seq"], micro, **choices),), "selene", phase)


def layers(document: Mapping[str, Any]) -> Iterator[Row]:
    """Forward and backward of single layers."""
    for row in document.get("rows", ()):
        for key, phase in (("fwd_ms", "forward"), ("bwd_ms", "backward")):
            if str(row.get("id", "")).startswith("mlsys23-t4-") and key in row.get("measured", {}):
                yield Row(f"{row['id']}-{phase}", row["measured"][key] / 1e3, _table4(row, phase))


def sc21(row: Mapping[str, Any]) -> Step:
    """Megatron-LM of 2021: full recomputation; the source states no interleaving: 1F1B."""
    sizes = _micro_batches(row, (1, 2, 4, 8, 16))
    jobs = [stated(row, gpt(row["model"]), micro_batch=size, recompute="full", **OF_2021) for size in sizes]
    return Step(tuple(jobs), "selene-2021")


def _micro_batches(row: Mapping[str, Any], some: Iterable[int]) -> list[int]:
    """The micro-batch that a row states, or those that divide what a replica gets."""
    replica, said = row["batch"]["global_"] // row["parallel"]["dp"], row["batch"].get("micro")
    return [said] if said else [size for size in some if replica % size == 0]


# MegaScale's table 3 adds to its Megatron-LM baseline (1) one thing a row: the parallel block, sliding windows, overlap
# of tensor-parallel, of pipeline and of data-parallel communication, efficient operators (fused attention), the rest,
# LAMB's larger batch. Table 2 has both ends.
_BASELINE, _BLOCK, _WINDOW, _TENSOR, _PIPELINE, _GRADIENTS, _OPERATORS = range(1, 8)


def megascale(row: Mapping[str, Any]) -> Step:
    """Both systems of the paper and what lies between them; Megatron-LM recomputes selectively."""
    # Its place in table 3, elsewhere all or nothing.
    place = row["id"].rpartition("-")[2] if "ablation" in row else ""
    level = int(place or (_OPERATORS if row["system"] == "MegaScale" else _BASELINE))
    seq = row["model"]["seq"]
    block = {"parallel_block": True, "norms": 1} if level >= _BLOCK else {}
    model = gpt(row["model"], **block, window=seq // 2 if level >= _WINDOW else 0)
    hidden = {"overlap": level >= _GRADIENTS, "overlap_pipeline": level >= _PIPELINE, "scatter_pipeline": True}
    choices = {**hidden, "fused_attention": level >= _OPERATORS, "recompute": "selective", "zero": 1}
    one = stated(row, model, sequence_parallel=True, **choices)
    return Step((one,), "megascale" if level >= _TENSOR else "megascale-megatron")


def zero3(row: Mapping[str, Any]) -> Step:
    """SC'21 table 2 without model parallelism: DeepSpeed's ZeRO 3, weights gathered in every micro-batch."""
    one = stated(row, gpt(row["model"]), recompute="full", zero=3, by_matrix=True, gradient_bytes=2, **OF_2021)
    return Step((one,), "selene-2021")


def lumos(row: Mapping[str, Any]) -> Step:
    """Lumos, figure 7: GPT-3 15B of MLPerf on H100. It states no batch: `cost.published.lumos` derives it."""
    shape, degrees = {**row["model"], "seq": 2048, "vocab": 51200}, row["parallel"]
    full = {**row, "model": shape, "batch": {"global_": 2 * degrees["pp"] * degrees["dp"], "micro": 2}}
    one = stated(full, gpt(shape, head_size=shape["head_dim"]), sequence_parallel=True, zero=1, overlap=True)
    return Step((one,), "h100-production")


_GIB = 2.0**30


def activations(document: Mapping[str, Any]) -> Iterator[Row]:
    """MLSys'23 figure 1 as Calculon's authors read it: the first stage's activations, and its weights and states."""
    shapes = named("mlsys23")
    for row in selected(document, "mlsys23-fig1-mem-"):
        layers, hidden, heads, stages, chunks, micro = map(int, *shapes[row["model"]["name"]])
        model = gpt({"layers": layers, "hidden": hidden, "heads": heads, "seq": 2048})
        degrees = {"tp": row["parallel"]["tp"], "pp": stages, "virtual_stages": chunks}
        plain = job(model, 2048, 512 * micro, micro_batch=micro, **degrees, **CLASSIC)
        better = Job(model, replace(plain.plan, sequence_parallel=True, recompute="selective"))
        for key, one, part in (
            ("activation_GiB_baseline", plain, "activations"),
            ("activation_GiB_selective_seqpar", better, "activations"),
            ("params_opt_GiB", plain, "states"),
        ):
            if key in row["measured"]:
                yield Row(f"{row['id']}-{key}", row["measured"][key] * _GIB, Held(one, part))


def _interleavings(one: Job) -> tuple[Job, ...]:
    """The job at every number of chunks per stage that its layers and micro-batches allow.

    Layers that do not divide leave the first and last chunk short, as Llama 3's 126 on 16 stages do.
    """
    model, plan = one
    per_stage = -(-model.layers // plan.pp)
    if plan.pp == 1 or plan.micro_batches % plan.pp:
        return (one,)
    counts = (chunks for chunks in range(1, per_stage + 1) if per_stage % chunks == 0)
    return tuple(Job(model, replace(plan, virtual_stages=chunks)) for chunks in counts)


def megatron_core(row: Mapping[str, Any]) -> Step:
    """Megatron-Core on H100."""
    shape = row["model"]
    model = gpt({**shape, "ffn": 4 * shape["hidden"]}, tied=False)
    sizes = _micro_batches(row, (1, 2, 4))
    jobs = [one for size in sizes for one in _interleavings(stated(row, model, micro_batch=size, **MODERN))]
    return Step(tuple(jobs), "h100")


def llama3(document: Mapping[str, Any]) -> Iterator[Row]:
    """Table 4 of the Llama 3 report; the step from 6 N plus attention FLOPs per token. Its FSDP shards gradients.

    Its pipeline interleaves; a layer fewer leaves the first chunk of the first rank the embedding only, and the last of
    the last rank the head (section 3.3.2): a layer per chunk.
    """
    for row in selected(document, "llama3-405B-"):
        degrees, seq = row["parallel"], row["model"]["seq"]
        model = SHIPPED["llama-3-405b"]
        batch = row["batch"]["per_dp"] * degrees["dp"]
        split = {name: degrees[name] for name in ("tp", "pp", "dp", "cp")}
        one = job(model, seq, batch, **split, virtual_stages=-(-model.layers // degrees["pp"]), **MODERN | {"zero": 2})
        flops = batch * seq * (6 * 405.85e9 + 6 * model.layers * seq * model.hidden)
        yield Row(row["id"], measured_s(row, flops), Step((one,), "h100-production"))
