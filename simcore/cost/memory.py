"""Memory of a rank in a training step: weights, gradients, optimizer states, activations a schedule keeps alive."""

from __future__ import annotations

from simcore.compute.operations import layer_parameters
from simcore.cost.predict import Job

__all__ = ["activation_bytes_per_layer", "in_flight", "memory_bytes", "model_bytes"]


def model_bytes(job: Job) -> float:
    """16-bit weights, gradients, and 12 bytes per parameter of optimizer state (sharded over dp from ZeRO level 1)."""
    model = job.model
    layers = -(-model.layers // job.pp)
    owned = layers * layer_parameters(model, dense=not model.experts) / job.tp + model.vocab * model.hidden / job.tp
    weights, gradients, states = 2.0, job.gradient_bytes, 12.0
    shards = (job.dp if job.zero >= level else 1 for level in (3, 2, 1))
    return owned * sum(size / shard for size, shard in zip((weights, gradients, states), shards, strict=True))


def activation_bytes_per_layer(job: Job) -> float:
    """Bytes one layer keeps for its backward of one micro-batch (Korthikanti et al. 2023, table 2).

    Without recomputation s b h (34 + 5 a s / h), the score part only where attention is not fused; tensor parallelism
    divides 24 of the 34 and the scores, sequence parallelism the other 10; full recomputation keeps the layer's
    input.
    """
    model, shard = job.model, job.shard
    unit = shard.tokens(model) * model.hidden
    rest = 10 / job.tp if job.sequence_parallel else 10.0
    if job.recompute == "full":
        return unit * (2 / job.tp if job.sequence_parallel else 2.0)
    scores = 5 * model.heads * model.seq / model.hidden / job.tp
    kept = scores if model.attention == "unfused" and job.recompute == "none" else 0.0
    return unit * (rest + 24 / job.tp + kept)


def memory_bytes(job: Job) -> float:
    """Peak on the first stage: model states, activations of the micro-batches in flight, one layer recomputed."""
    copies = 2 if job.schedule == "dualpipe" else 1  # every stage holds a part of each of its two pipelines
    layers = job.model.layers / job.pp
    return copies * model_bytes(job) + activation_bytes_per_layer(job) * layers * in_flight(job) + _working(job)


def in_flight(job: Job) -> float:
    """Micro-batches whose activations the first stage holds at once, in whole passes through its layers."""
    name, stages = job.schedule or ("interleaved" if job.chunks > 1 else "1f1b"), job.pp
    most = {
        "gpipe": float(job.micro_batches),
        "interleaved": stages * (1 + (stages - 1) / (stages * job.chunks)),
        "dualpipe": stages + 1.0,
    }
    return min(float(job.micro_batches), most.get(name, float(stages)))


def _working(job: Job) -> float:
    """One layer's own activations while it is recomputed, and the logits in 32 bits."""
    tokens = job.shard.tokens(job.model)
    layer = tokens * job.model.hidden * (10 + 24 / job.tp) if job.recompute == "full" else 0.0
    return layer + 4.0 * tokens * job.model.vocab / job.tp
