"""Published measurements on Hopper and Blackwell: Megatron-Core and Llama 3.

Their software is today's: fused attention, kernels launched from graphs, half of the tensor-parallel collectives
hidden, gradient reduction and pipeline messages overlapped, sharded optimizer. What a source leaves out (micro-batch,
interleaving) is the fastest choice that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from simcore.cost.published.bridge import MODERN
from simcore.cost.published.megatron import gpt
from simcore.cost.published.rows import Job, Row, Step, from_rate, job, selected, stated, step_s
from simcore.cost.published.tables import shipped


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


def megatron_core(document: Mapping[str, Any]) -> Iterator[Row]:
    """Megatron-Core on H100; the step from 72 B L s h^2 (1 + s / 6h + V / 12 L h) FLOPs (Megatron-LM's README)."""
    for row in selected(document, "mcore-h100-"):
        shape = row["model"]
        model = gpt({**shape, "ffn": 4 * shape["hidden"]}, tied=False)
        replica = row["batch"]["global_"] // row["parallel"]["dp"]
        sizes = (micro for micro in (1, 2, 4) if replica % micro == 0)
        jobs = [one for size in sizes for one in _interleavings(stated(row, model, micro_batch=size, **MODERN))]
        yield Row(row["id"], from_rate(row, 72, 12, "tflops_per_gpu"), Step(tuple(jobs), "h100"))


def llama3(document: Mapping[str, Any]) -> Iterator[Row]:
    """Table 4 of the Llama 3 report; the step from 6 N plus attention FLOPs per token.

    Its pipeline interleaves; a layer fewer leaves the first chunk of the first rank the embedding only, and the last of
    the last rank the head (section 3.3.2): a layer per chunk.
    """
    for row in selected(document, "llama3-405B-"):
        degrees, seq = row["parallel"], row["model"]["seq"]
        model = shipped("llama-3-405b")
        batch = row["batch"]["per_dp"] * degrees["dp"]
        split = {name: degrees[name] for name in ("tp", "pp", "dp", "cp")}
        chunks = -(-model.layers // degrees["pp"])
        one = job(model, seq, batch, **split, virtual_stages=chunks, **MODERN)
        flops = batch * seq * (6 * 405.85e9 + 6 * model.layers * seq * model.hidden)
        otherwise = partial(_at_rate, flops / (row["hardware"]["count"] * 1e12))
        yield Row(row["id"], step_s(row, otherwise), Step((one,), "h100-production"))


def _at_rate(teraflops: float, measured: Mapping[str, Any]) -> float:
    return float(teraflops / measured["tflops_per_gpu"])
