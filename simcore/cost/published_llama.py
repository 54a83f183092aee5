"""Published measurements on Hopper and Blackwell: Megatron-Core, Llama 3 and Megatron-Bridge, dense models.

Their software is today's: fused attention, kernels launched from graphs, half of the tensor-parallel collectives
hidden, gradient reduction and pipeline messages overlapped, sharded optimizer. What a source leaves out (micro-batch,
interleaving) is the fastest choice that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from simcore.compute.operations import Transformer
from simcore.cost.predict import Job
from simcore.cost.rows import Row, Step

__all__ = ["bridge", "llama3", "megatron_core"]

_70B = Transformer(80, 8192, 64, 28672, 128256, 8192, 8, gated=True, tied=False, learned_positions=False)
_405B = replace(_70B, layers=126, hidden=16384, heads=128, ffn=53248)
_MODERN: dict[str, Any] = {
    "zero": 1,
    "overlap_gradients": True,
    "overlap_pipeline": True,
    "sequence_parallel": True,
}


def _interleavings(job: Job) -> tuple[Job, ...]:
    """The job at every number of chunks per stage that its layers and micro-batches allow.

    Layers that do not divide leave the first and last chunk short, as Llama 3's 126 on 16 stages do.
    """
    per_stage = -(-job.model.layers // job.pp)
    if job.pp == 1 or job.micro_batches % job.pp:
        return (job,)
    return tuple(replace(job, chunks=chunks) for chunks in range(1, per_stage + 1) if per_stage % chunks == 0)


def _selected(document: Mapping[str, Any], prefix: str) -> Iterator[Mapping[str, Any]]:
    return (row for row in document.get("rows", ()) if str(row.get("id", "")).startswith(prefix))


def megatron_core(document: Mapping[str, Any]) -> Iterator[Row]:
    """Megatron-Core on H100; the step from 72 B L s h^2 (1 + s / 6h + V / 12 L h) FLOPs (Megatron-LM's README)."""
    for row in _selected(document, "mcore-h100-"):
        shape, degrees, batch = row["model"], row["parallel"], row["batch"]["global_"]
        layers, h, s, vocab = shape["layers"], shape["hidden"], shape["seq"], shape["vocab"]
        model = Transformer(layers, h, shape["heads"], 4 * h, vocab, s, tied=False)
        split = (degrees["tp"], degrees["pp"], degrees["dp"])
        sizes = [micro for micro in (1, 2, 4) if batch // degrees["dp"] % micro == 0]
        jobs = [one for micro in sizes for one in _interleavings(Job(model, batch, micro, *split, **_MODERN))]
        flops = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h))
        yield Row(row["id"], _seconds(row, flops), Step(tuple(jobs), "h100"))


def llama3(document: Mapping[str, Any]) -> Iterator[Row]:
    """Table 4 of the Llama 3 report; the step from 6 N plus attention FLOPs per token."""
    for row in _selected(document, "llama3-405B-"):
        degrees, seq = row["parallel"], row["model"]["seq"]
        batch = row["batch"]["per_dp"] * degrees["dp"]
        split = (degrees["tp"], degrees["pp"], degrees["dp"], degrees["cp"])
        job = Job(replace(_405B, seq=seq), batch, 1, *split, **_MODERN)
        flops = batch * seq * (6 * 405.85e9 + 6 * _405B.layers * seq * _405B.hidden)
        yield Row(row["id"], _seconds(row, flops), Step(_interleavings(job), "h100"))


def _seconds(row: Mapping[str, Any], flops: float) -> float:
    return float(flops / (row["measured"]["tflops_per_gpu"] * 1e12 * row["hardware"]["count"]))


_MODELS = {"Model: LLAMA3_70B": _70B, "Model: LLAMA3.1_405B": _405B}
_TYPES = {"FP8": "fp8", "MXFP8": "fp8", "NVFP4": "fp4", "BF16": "bf16"}
_CLUSTERS = {"DGX-H100": "h100", "DGX-GB200": "gb200", "DGX-GB300": "gb300"}


def bridge(document: Mapping[str, Any]) -> Iterator[Row]:
    """Pre-training rows of Megatron-Bridge's tables for dense Llama models on the systems it names in a column."""
    table = document.get("bulk_tables", {}).get("nemo_megatron_bridge", {"columns": [], "rows": []})
    for number, values in enumerate(table["rows"]):
        row = dict(zip(table["columns"], values, strict=False))
        if row["heading"] in _MODELS and row["kind"].startswith("Pre") and row["System"] in _CLUSTERS:
            yield _bridge_row(f"bridge-{number}", row)


def _bridge_row(name: str, row: Mapping[str, Any]) -> Row:
    gpus, batch, seq = (int(row[key]) for key in ("#-GPUs", "GBS", "Sequence Length"))
    tp, pp, cp = (int(row[key]) for key in ("TP", "PP", "CP"))
    chunks = int(row["VP"]) if pp > 1 and row["VP"] != "n/a" else 1
    job = Job(
        model=replace(_MODELS[row["heading"]], seq=seq),
        global_batch=batch,
        micro_batch=int(row["MBS"]),
        tp=tp,
        pp=pp,
        dp=gpus // (tp * pp * cp),
        cp=cp,
        chunks=chunks,
        dtype=_TYPES[row["Precision"]],
        **_MODERN,
    )
    measured_s = batch * seq / (float(row["Tokens / sec / GPU"]) * gpus)
    return Row(f"{name}-{row['System']}-{row['Precision']}", measured_s, Step((job,), _CLUSTERS[row["System"]]))
