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
from simcore.generate.aicb.training import FP8_SHARE
from simcore.generate.durations import Roofline, parts_of
from simcore.model.held import held_parameters
from simcore.model.layer import blocks, embedding, head
from simcore.model.memory import kv_cache_bytes
from simcore.model.plan import Plan, check
from simcore.model.rows import IDLE, Rows
from simcore.model.shape import LayerKind, Model
from simcore.model.steps import Axis, Beside, Block, Collective, Kernel, Part, Step
from simcore.workload.model import CollectiveKind, Layer, Phase, Role, Workload


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
    plan = request.plan
    check(model, plan)
    rows, made = Rows(model, plan, durations_of(model, request, device)), list[Layer]()
    for block in _blocks(model, request, stage):
        made += (Layer(row.name, row.forward) for row in rows.block(block) if row.forward != IDLE)
    if stage == request.pp - 1 and request.tp > 1:
        size = request.batch * plan.padded_vocab(model.vocab) * plan.element_bytes
        made.append(Layer("logits", Phase(0, CollectiveKind.ALL_GATHER, size)))
    handed = request.tokens * model.hidden * plan.element_bytes if request.pp > 1 else 0
    layers = tuple(made)
    return Workload("DISTRIBUTED_INFERENCE", layers, plan.sizes, "simai", pipeline_bytes=handed, name=model.name)


def inference_pipeline(model: Model, request: Request, device: Accelerator) -> Workload:
    """Rows of one rank of every stage; InputError as `inference_workload`."""
    stages = [inference_workload(model, request, device, stage) for stage in range(request.pp)]
    rows = tuple(row for stage in stages for row in stage.layers)
    return replace(stages[0], layers=rows, stage_rows=tuple(len(stage.layers) for stage in stages))


def held_bytes(model: Model, request: Request, stage: int = 0) -> dict[str, int]:
    """Bytes of parameters and of the cache on a rank of a stage."""
    held = held_parameters(model, request.plan, stage)
    layers = len(request.plan.stage_layers(model, stage))
    tokens, width = request.batch * request.context, request.plan.element_bytes
    cache = kv_cache_bytes(replace(model, layers=layers), tokens, tp=request.tp, element_bytes=width)
    return {"parameter_bytes": int(ELEMENT_BYTES[request.dtype] * held.whole), "kv_cache_bytes": cache}


def durations_of(model: Model, request: Request, device: Accelerator) -> Roofline:
    """Forward times."""
    every = (block for stage in range(request.pp) for block in _blocks(model, request, stage))
    return Roofline(device, request.dtype, parts_of(every))


def _blocks(model: Model, request: Request, stage: int) -> Iterator[Block]:
    """What a stage does: of the head the last token's logits of every sequence; in decode an encoder has done its."""
    plan, decodes = request.plan, request.phase == "decode"
    if stage == 0:
        yield embedding(model, plan)
    known: dict[LayerKind, tuple[Block, ...]] = {}
    for kind in map(model.kind, plan.stage_layers(model, stage)):
        if kind not in known:
            some = blocks(model, plan, kind) if not (decodes and kind.encoder) else ()
            known[kind] = tuple(_served(block, model, request, kind) for block in some)
        yield from known[kind]
    if stage == request.pp - 1:
        block = head(model, plan.but(seq=1))
        yield replace(block, steps=block.kernels)


def _served(block: Block, model: Model, request: Request, kind: LayerKind) -> Block:
    """A block of a forward pass as it is served.

    Tensor ranks all see all tokens, whose experts' partial sums they add up at the end. Dispatch may be in fp8.
    """
    steps, share = list[Step](), FP8_SHARE if request.fp8_dispatch else 1.0
    mixed = any(isinstance(step, Kernel) and step.part is Part.EXPERTS for step in block.steps)
    for step in block.steps:
        if isinstance(step, Kernel):
            steps.append(_cached(step, model, request, kind))
        elif step.axis is Axis.EXPERT and step.forward is CollectiveKind.ALL_TO_ALL:
            steps.append(replace(step, size_bytes=int(step.size_bytes * share)))
            share = 1.0
        elif step.axis is Axis.TENSOR and not mixed:
            steps.append(step)
    if mixed and request.tp > 1:
        size = request.tokens * model.hidden * request.plan.element_bytes
        summed = CollectiveKind.ALL_REDUCE
        steps.append(Collective("moe_output", Role.EXPERTS, Axis.TENSOR, size, summed, beside=Beside.PRODUCTS))
    return replace(block, steps=tuple(steps))


def _cached(kernel: Kernel, model: Model, request: Request, kind: LayerKind) -> Kernel:
    """In decode one query per sequence and head over the cache of a layer; latent attention in its absorbed form."""
    work, latent, keys = kernel.work, model.latent, min(request.context, kind.window or request.context)
    if request.phase != "decode" or not isinstance(work, Attention):
        return kernel
    if latent:
        width = latent.key_value_rank + latent.rope_size
        return replace(kernel, work=LatentAttention(work.batch, work.heads, 1, 1, keys, width, latent.key_value_rank))
    return replace(kernel, work=replace(work, keys=keys, causal=True))
