"""Memory of a rank in a training step: weights, gradients, optimizer states, activations a schedule keeps alive.

In closed form, over `Job`, for searches that ask for thousands; `simcore.generate.memory` counts the same weight by
weight for a plan, and `tests/laws/test_cost.py` holds the two to each other.
"""

from __future__ import annotations

from functools import lru_cache

from simcore.compute.operations import Transformer, attention_values, expert_parameters, layer_parameters
from simcore.cost.job import Job

__all__ = ["activation_bytes_per_layer", "in_flight", "memory_bytes", "model_bytes", "peak"]

_STATES = 12.0  # bytes per parameter: Adam's 32-bit copy and two moments
_LOGITS = 6.0  # bytes per logit: 16 bits from the product, 32 in the loss


def memory_bytes(job: Job) -> float:
    """Peak of the fullest rank."""
    return sum(peak(job).values())


def peak(job: Job) -> dict[str, float]:
    """Bytes by what they hold, on the fuller of the first and the last stage."""
    stages = {0, job.pp - 1}
    return max((_stage(job, stage) for stage in sorted(stages)), key=lambda held: sum(held.values()))


def _stage(job: Job, stage: int) -> dict[str, float]:
    copies = 2 if job.schedule == "dualpipe" else 1  # every stage holds a part of each of its two pipelines
    held = model_bytes(job, stage)
    dense, experts = job.part_layers(job.pp)[stage]
    each = dense * activation_bytes_per_layer(job) + experts * activation_bytes_per_layer(job, dense=False)
    activations = each * in_flight(job, stage) + _working(job, stage)
    return {name: copies * size for name, size in held.items()} | {"activations": activations}


def model_bytes(job: Job, stage: int = 0) -> dict[str, float]:
    """16-bit weights, gradients, optimizer states of a stage; ZeRO 1, 2, 3 shard states, gradients, weights."""
    plain, experts = _parameters(job.model, job.part_layers(job.pp)[stage], _tables(job, stage))
    positions = job.model.seq * job.model.hidden if job.model.learned_positions and stage == 0 else 0  # never split
    counts = ((plain / job.tp + positions, job.replicas), (experts / job.ep, job.expert_replicas))
    sizes = {"weights": (2.0, 3), "gradients": (job.gradient_bytes, 2), "optimizer": (_STATES, 1)}
    return {
        name: sum(size * count / (ranks if job.zero >= level else 1) for count, ranks in counts)
        for name, (size, level) in sizes.items()
    }


def _tables(job: Job, stage: int) -> int:
    """Word tables a stage holds; a tied one stands on the first and on the last stage."""
    if job.pp == 1:
        return 1 if job.model.tied else 2
    return 1 if stage in (0, job.pp - 1) else 0


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
        "dualpipe": stages + 1.0,
    }
    return min(float(job.micro_batches), most.get(name, float(stages - stage)))


def _working(job: Job, stage: int) -> float:
    """One layer's own activations while it is recomputed; on the last stage the head's input and the logits."""
    tokens, apart = job.shard.tokens(job.model), job.tp if job.sequence_parallel else 1
    layer = tokens * job.model.hidden * (10 + 24 / job.tp) if job.recompute == "full" else 0.0
    if stage < job.pp - 1:
        return layer
    return layer + 4.0 * tokens * job.model.hidden / apart + _LOGITS * tokens * job.model.vocab / job.tp
