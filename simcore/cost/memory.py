"""Memory of a rank in a training step: weights, gradients, optimizer states, activations a schedule keeps alive.

In closed form, over `Job`, for searches that ask for thousands; `simcore.generate.memory` counts the same weight by
weight for a plan, and `tests/laws/test_cost.py` holds the two to each other.
"""

from __future__ import annotations

from functools import lru_cache
from math import fsum

from simcore.compute.operations import Transformer, attention_values, expert_parameters, layer_parameters
from simcore.cost.job import Job

__all__ = [
    "activation_bytes_per_layer",
    "in_flight",
    "memory_bytes",
    "model_bytes",
    "peak",
    "stage_parameters",
]

_STATES = 12.0  # bytes per parameter: Adam's 32-bit copy and two moments
_LOGITS = 6.0  # bytes per logit: 16 bits from the product, 32 in the loss


def memory_bytes(job: Job) -> float:
    """Peak of the fullest rank."""
    return fsum(peak(job).values())


def peak(job: Job) -> dict[str, float]:
    """Bytes by what they hold, on the fullest stage.

    Earlier stages keep no fewer micro-batches than later ones, so of those with equal layers the first is fullest.
    """
    layers = job.stage_layers
    stages = {0, job.pp - 1} | {layers.index(kind) for kind in set(layers)}
    return max((_stage(job, stage) for stage in sorted(stages)), key=lambda held: fsum(held.values()))


def _stage(job: Job, stage: int) -> dict[str, float]:
    dense, experts = job.stage_layers[stage]
    each = dense * activation_bytes_per_layer(job) + experts * activation_bytes_per_layer(job, dense=False)
    activations = each / job.copies * in_flight(job, stage) + _working(job, stage)
    return model_bytes(job, stage) | {"activations": activations}


def model_bytes(job: Job, stage: int = 0) -> dict[str, float]:
    """16-bit weights, gradients, optimizer states of a stage; ZeRO 1, 2, 3 shard states, gradients, weights."""
    counts = tuple(zip(stage_parameters(job, stage), (job.replicas, job.expert_replicas), strict=True))
    sizes = {"weights": (2.0, 3), "gradients": (job.gradient_bytes, 2), "optimizer": (_STATES, 1)}
    return {
        name: fsum(size * count / (ranks if job.zero >= level else 1) for count, ranks in counts)
        for name, (size, level) in sizes.items()
    }


def stage_parameters(job: Job, stage: int) -> tuple[float, float]:
    """Parameters a rank of a stage holds: the replicated ones, positions included, and its experts."""
    model = job.model
    plain, experts = _parameters(model, job.stage_layers[stage], job.tables(stage))
    positions = model.seq * model.hidden * job.ends(stage)[0] if model.learned_positions else 0  # never split
    return plain / job.tp + positions, experts / job.ep


@lru_cache(maxsize=4096)
def _parameters(model: Transformer, layers: tuple[int, int], tables: int) -> tuple[float, float]:
    """Replicated parameters and experts' of (dense, expert) layers and word tables, before any split."""
    dense, mixed = layers
    routed = expert_parameters(model)
    plain = dense * layer_parameters(model, dense=True) + tables * model.vocab * model.hidden
    return plain + (mixed * (layer_parameters(model) - routed) if mixed else 0), mixed * routed


def activation_bytes_per_layer(job: Job, *, dense: bool = True) -> float:
    """Bytes one layer keeps for its backward of one micro-batch (Korthikanti et al. 2023, section 4, term by term).

    For a GPT s b h (34 + 5 a s / h), the score part only where attention is not fused; tensor parallelism divides 24
    of the 34 and the scores, sequence parallelism the other 10; full recomputation keeps the layer's input.
    """
    model, tokens, size = job.model, job.shard.tokens(job.model), job.shard.element_bytes
    apart = job.tp if job.sequence_parallel else 1
    if job.recompute == "full":
        return tokens * model.hidden * size / apart
    masks = 2 if model.dropout else 0
    kept = 5.0 * model.heads * model.seq / job.tp
    scores = kept if model.attention == "unfused" and job.recompute == "none" else 0.0
    whole = model.hidden * (4 * size + masks) + 2 * size * (model.query_rank + model.key_value_rank)
    return tokens * (whole / apart + size * _widths(model, dense=dense) / job.tp + scores)


def _widths(model: Transformer, *, dense: bool) -> float:
    """Elements per token that tensor ranks share: attention's operands and result, the feed-forward's activations."""
    wide = 3 if model.gated else 2
    attention = sum(attention_values(model)) + model.heads * (model.value_size or model.head_dim)
    if dense:
        return attention + wide * model.ffn
    return attention + model.top_k * (wide * model.expert_ffn + 2 * model.hidden) + wide * model.shared_ffn


def in_flight(job: Job, stage: int = 0) -> float:
    """Micro-batches whose activations a stage holds at once, in whole passes through its layers."""
    name, stages = job.schedule_name, job.pp
    most = {
        "gpipe": float(job.micro_batches),
        "interleaved": (2 * (stages - stage - 1) + (job.chunks - 1) * stages + 1) / job.chunks,
        "zb-h1": float(stages),  # until their weight gradients, which a later stage puts off longer
        "zb-v": float(stages),
        "dualpipe": stages + 1.0,
    }
    return min(float(job.micro_batches), most.get(name, float(stages - stage)))


def _working(job: Job, stage: int) -> float:
    """One layer's own activations while it is recomputed; with the head, its input and the logits."""
    tokens, apart = job.shard.tokens(job.model), job.tp if job.sequence_parallel else 1
    layer = tokens * job.model.hidden * (10 + 24 / job.tp) if job.recompute == "full" else 0.0
    if not job.ends(stage)[1]:
        return layer
    return layer + 4.0 * tokens * job.model.hidden / apart + _LOGITS * tokens * job.model.vocab / job.tp
