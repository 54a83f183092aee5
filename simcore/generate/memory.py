"""Memory of one rank of a pipeline stage: parameters, gradients, optimizer states, activations; and the KV cache.

Sources: activations per layer Korthikanti et al. 2022 (MLSys 2023), section 4 and table 2, term by term, so that
grouped queries, gated layers and flash attention follow; sharded states Rajbhandari et al. 2020 (ZeRO), figure 1;
micro-batches in flight Narayanan et al. 2021 (SC21), section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simcore.generate.models import Transformer
from simcore.generate.plan import Plan
from simcore.generate.training import held_parameters

__all__ = ["Memory", "Schedule", "activation_bytes_per_layer", "advice", "in_flight", "kv_cache_bytes", "stage_memory"]

Schedule = Literal["gpipe", "1f1b"]

OPTIMIZER_BYTES = 12
"""Adam with a 32-bit copy of the weight and two moments."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank at the peak of a step."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.parameters + self.gradients + self.optimizer + self.activations


def stage_memory(
    model: Transformer, plan: Plan, stage: int = 0, *, flash: bool = True, schedule: Schedule = "1f1b"
) -> Memory:
    """Peak memory of a rank of a stage.

    `flash`: attention scores are never stored. GPipe keeps the activations of every micro-batch, 1F1B of as many as
    there are stages left.
    """
    held = held_parameters(model, plan, stage)
    count = held.dense + held.experts
    sharded = held.dense // plan.sharing + held.experts // (plan.shard or plan.expert_replicas)
    shares = [sharded if plan.zero >= least else count for least in (3, 2, 1)]
    layers = (*plan.stage_layers(model.layers, stage), *plan.mtp_layers(model, stage))
    each = sum(activation_bytes_per_layer(model, plan, layer, flash=flash) for layer in layers)
    batches = in_flight(plan.pp, stage, plan.micro_batches, plan.virtual_stages, schedule=schedule)
    activations = round(each * batches) + _table_activations(model, plan, stage)
    parameters, gradients, optimizer = shares
    return Memory(
        plan.element_bytes * parameters, plan.gradient_bytes * gradients, OPTIMIZER_BYTES * optimizer, activations
    )


def in_flight(stages: int, stage: int, micro_batches: int, chunks: int = 1, *, schedule: Schedule = "1f1b") -> float:
    """Micro-batches whose activations a stage holds at once; with interleaved chunks in units of a whole stage.

    >>> in_flight(4, 0, 8), in_flight(4, 3, 8), in_flight(4, 0, 8, 2)
    (4.0, 1.0, 5.5)
    """
    if schedule == "gpipe":
        return float(micro_batches)
    if chunks == 1:
        return float(min(micro_batches, stages - stage))
    warm_up = (stages - stage - 1) * 2 + (chunks - 1) * stages + 1
    return min(micro_batches * chunks, warm_up) / chunks


def activation_bytes_per_layer(model: Transformer, plan: Plan, layer: int, *, flash: bool = True) -> int:
    """Bytes that one micro-batch leaves in a layer for its gradients.

    Plain layers with 4h and no flash attention give the paper's sbh(10 + 24/t + 5as/(ht)), with sequence parallelism
    sbh/t (34 + 5as/h); selective recompute drops the last term, full recompute leaves the layer's input.
    """
    size, tp = plan.element_bytes, plan.tp
    apart = tp if plan.sequence_parallel else 1
    if plan.recompute == "full":
        return plan.tokens * model.hidden * size // apart
    whole = plan.tokens * model.hidden * (4 * size + 2 * _drops(model))
    split = plan.tokens * size * (_attention_widths(model) + _feed_forward_widths(model, layer))
    return whole // apart + split // tp + (0 if flash or plan.recompute == "selective" else _scores(model, plan))


def _drops(model: Transformer) -> int:
    """GPT's layers keep two dropout masks of a byte; later models have no dropout."""
    return int(model.norm == "layer")


def _scores(model: Transformer, plan: Plan) -> int:
    """Softmax, and with dropout its mask and output, over all scores."""
    each = plan.element_bytes + _drops(model) * (1 + plan.element_bytes)
    return plan.tokens * plan.seq * model.heads * each // plan.tp


def _attention_widths(model: Transformer) -> int:
    """Queries, keys, values, and the input of the projection."""
    if model.latent:
        key = model.latent.nope_size + model.latent.rope_size
        return model.heads * 2 * (key + model.latent.value_size)
    return (2 * model.heads + 2 * model.key_heads) * model.head_dim


def _feed_forward_widths(model: Transformer, layer: int) -> int:
    """Input and output of the activation; of the experts for every token's copies."""
    wide = 3 if model.gated else 2
    if model.dense(layer) or model.experts is None:
        return wide * model.ffn
    experts = model.experts
    return experts.top_k * (wide * experts.ffn + 2 * model.hidden) + wide * experts.shared_ffn


def _table_activations(model: Transformer, plan: Plan, stage: int) -> int:
    """The embedding's dropout mask; the head's norm, input and 32-bit logits of one micro-batch.

    An MTP module has as much of a head, and keeps the inputs of its norms and of its projection.
    """
    tp, apart = plan.tp, plan.tp if plan.sequence_parallel else 1
    first = plan.tokens * model.hidden * _drops(model) // apart * plan.pp if stage == 0 else 0
    logits = 4 * plan.tokens * plan.padded_vocab(model.vocab) // tp
    hidden = plan.tokens * model.hidden * plan.element_bytes // apart
    further = len(plan.mtp_layers(model, stage))
    last = (2 * hidden + logits) * (1 + further) + 4 * hidden * further if stage == plan.pp - 1 else 0
    return first + last


def kv_cache_bytes(model: Transformer, tokens: int, *, tp: int = 1, element_bytes: int = 2) -> int:
    """Bytes of keys and values kept for so many tokens on a tensor rank; latent attention keeps one for all heads.

    >>> from simcore.generate.presets import model
    >>> kv_cache_bytes(model("llama-3-8b"), 8192) / 2**30
    1.0
    """
    if model.latent:
        width = model.latent.key_value_rank + model.latent.rope_size
    else:
        width = 2 * max(1, model.key_heads // tp) * model.head_dim
    return tokens * model.layers * width * element_bytes


def advice(memory: Memory, plan: Plan, capacity_bytes: int) -> str:
    """What is missing and what would help, nothing when the peak fits.

    >>> advice(Memory(1, 1, 1, 1), Plan(1, 1), 8)
    ''
    """
    if memory.total <= capacity_bytes:
        return ""
    states = memory.parameters + memory.gradients + memory.optimizer
    helps = []
    if memory.activations > states and plan.recompute == "none":
        helps.append("--recompute selective or full")
    if memory.activations > states and not plan.sequence_parallel and plan.tp > 1:
        helps.append("--enable_sequence_parallel")
    if plan.zero == 0 and plan.replicas > 1:
        helps.append("--use_distributed_optimizer")
    helps.append("more tensor or pipeline parallel ranks")
    gigabytes = (memory.total - capacity_bytes) / 1e9
    return f"does not fit: {gigabytes:.1f} GB too much of {memory.total / 1e9:.1f} GB; would help: {', '.join(helps)}"
