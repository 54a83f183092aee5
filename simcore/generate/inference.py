"""One inference step of a transformer as rows: prefill of whole prompts or one decoded token of every sequence.

Tensor ranks split every matrix, experts included; expert ranks exchange tokens; stages hold their own layers. Decoding
reads the keys and values of the whole context (Pope et al. 2022, section 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.kernel import Attention, LatentAttention
from simcore.generate.durations import Roofline, roofline
from simcore.model.held import held_parameters
from simcore.model.memory import kv_cache_bytes
from simcore.model.plan import Plan, check
from simcore.model.shape import Experts, Model
from simcore.model.steps import Kernel, Part
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, PhaseName, Workload

FORWARD = PhaseName.FORWARD
FP8_SHARE = (1 + 4 / 128) / 2
"""Bytes of an fp8 activation with a 32-bit scale per 128, relative to 16 bits (DeepSeek-V3, section 3.3)."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is served at once: `batch` sequences of `context` tokens, in prefill all new, in decode one new each.

    `dtype` is that of products and of the weights they read; what is sent and cached has 16 bits or more.
    """

    phase: Literal["prefill", "decode"]
    batch: int
    context: int
    world_size: int = 1
    tp: int = 1
    ep: int = 1
    pp: int = 1
    fp8_dispatch: bool = False
    dtype: str = "bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation as it is sent and cached."""
        return self.plan.element_bytes

    @property
    def tokens(self) -> int:
        """New tokens of a step."""
        return self.batch * (self.context if self.phase == "prefill" else 1)

    @property
    def plan(self) -> Plan:
        """The request as a forward pass."""
        seq = self.context if self.phase == "prefill" else 1
        replicas = max(1, self.world_size // (self.tp * self.pp))
        return Plan(
            self.world_size,
            seq,
            tp=self.tp,
            ep=self.ep,
            pp=self.pp,
            expert_tp=self.tp,
            micro_batch=self.batch,
            global_batch=self.batch * replicas,
            dtype=self.dtype,
        )


def inference_workload(model: Model, request: Request, device: Accelerator, stage: int = 0) -> Workload:
    """Rows of one rank of a stage for one step; InputError names the options that do not fit each other."""
    check(model, request.plan)
    rows = _Rows(model, request, durations_of(model, request, device))
    first, last = stage == 0, stage == request.pp - 1
    blocks = [row for layer in request.plan.stage_layers(model, stage) for row in rows.layer(layer)]
    handed = request.tokens * model.hidden * request.element_bytes if request.pp > 1 else 0
    return Workload(
        "DISTRIBUTED_INFERENCE",
        (*([rows.embedding()] if first else []), *blocks, *(rows.head() if last else ())),
        Parallelism(request.tp, request.ep, request.pp, 1, 0, 1, request.world_size),
        "simai",
        pipeline_bytes=handed,
        name=model.name,
    )


def inference_pipeline(model: Model, request: Request, device: Accelerator) -> Workload:
    """Rows of one rank of every stage; InputError as `inference_workload`."""
    stages = [inference_workload(model, request, device, stage) for stage in range(request.pp)]
    rows = tuple(row for stage in stages for row in stage.layers)
    return replace(stages[0], layers=rows, stage_rows=tuple(len(stage.layers) for stage in stages))


def held_bytes(model: Model, request: Request, stage: int = 0) -> dict[str, int]:
    """Bytes of parameters and of the cache on a rank of a stage."""
    held = held_parameters(model, request.plan, stage)
    layers = len(request.plan.stage_layers(model, stage))
    tokens, width = request.batch * request.context, request.element_bytes
    cache = kv_cache_bytes(replace(model, layers=layers), tokens, tp=request.tp, element_bytes=width)
    return {"parameter_bytes": int(ELEMENT_BYTES[request.dtype] * held.whole), "kv_cache_bytes": cache}


def durations_of(model: Model, request: Request, device: Accelerator) -> Roofline:
    """Forward times; in decode attention reads the cache, in prefill the head sees the last token only."""
    made = roofline(model, request.plan, device)
    if request.phase == "decode":
        core = Kernel(Part.ATTENTION_CORE, _cached_attention(model, request), wide=True)
        return replace(made, parts={**made.parts, Part.ATTENTION_CORE: (core,)})
    single = roofline(model, replace(request.plan, seq=1), device)
    return replace(made, parts={**made.parts, Part.HEAD: single.parts[Part.HEAD]})


def _cached_attention(model: Model, request: Request) -> Attention:
    """One query per sequence and head over the cache of a layer; latent attention in its absorbed form."""
    heads, latent = max(1, model.heads // request.tp), model.latent
    if latent:
        width = latent.key_value_rank + latent.rope_size
        return LatentAttention(request.batch, heads, 1, 1, request.context, width, latent.key_value_rank)
    keys = max(1, model.key_heads // request.tp)
    return Attention(request.batch, heads, keys, 1, request.context, model.head_dim)


@dataclass(frozen=True, slots=True)
class _Rows:
    model: Model
    request: Request
    durations: Roofline

    def _row(self, name: str, *parts: Part, summed: bool = False) -> Layer:
        """A row that computes parts and, where tensor ranks hold partial sums, adds them up."""
        known = self.durations.parts
        time_ns = sum(self.durations.time_ns(part, known.get(part, ()), FORWARD) for part in parts)
        size = self.request.tokens * self.model.hidden * self.request.element_bytes
        reduced = summed and self.request.tp > 1
        return Layer(name, Phase(time_ns, CollectiveKind.ALL_REDUCE, size) if reduced else Phase(time_ns))

    def embedding(self) -> Layer:
        """The vocabulary is split."""
        return self._row("embedding_layer", Part.EMBEDDING, summed=True)

    def layer(self, index: int) -> Iterator[Layer]:
        """Attention and the feed-forward block or the experts."""
        down: tuple[Part, ...] = (Part.ATTENTION_DOWN,) if self.model.latent else ()
        yield self._row(
            "attention_layer", *down, Part.ATTENTION_IN, Part.ATTENTION_CORE, Part.ATTENTION_OUT, summed=True
        )
        if self.model.experts is None or self.model.dense(index):
            yield self._row("mlp_layer", Part.MLP_IN, Part.MLP_OUT, summed=True)
        else:
            yield from self._experts(self.model.experts)

    def _experts(self, experts: Experts) -> Iterator[Layer]:
        yield self._row("moe_router", Part.ROUTER)
        routed = self.request.tokens * experts.top_k * self.model.hidden * self.request.element_bytes
        sizes = (int(routed * FP8_SHARE) if self.request.fp8_dispatch else routed, routed)
        exchanges = [Layer("moe_dispatch"), Layer("moe_combine")]
        if self.request.ep > 1:
            phases = (Phase(0, CollectiveKind.ALL_TO_ALL, size, Group.EP) for size in sizes)
            exchanges = [replace(row, forward=phase) for row, phase in zip(exchanges, phases, strict=True)]
        yield exchanges[0]
        yield self._row("moe_experts", Part.EXPERTS)
        yield exchanges[1]
        shared: tuple[Part, ...] = (Part.SHARED,) if experts.shared_ffn else ()
        yield self._row("moe_output", *shared, Part.COMBINE, summed=True)

    def head(self) -> list[Layer]:
        """The last token's logits of every sequence, gathered."""
        plan, request = self.request.plan, self.request
        size = request.batch * plan.padded_vocab(self.model.vocab) * request.element_bytes
        gather = Phase(0, CollectiveKind.ALL_GATHER, size)
        return [self._row("head", Part.HEAD), *([Layer("logits", gather)] if request.tp > 1 else [])]
