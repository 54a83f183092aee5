"""One inference step of a transformer as rows: prefill of whole prompts or one decoded token of every sequence.

Tensor ranks split every matrix, experts included; expert ranks exchange tokens; stages hold their own layers. Decoding
reads the keys and values of the whole context (Pope et al. 2022, section 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator, accelerator
from simcore.compute.kernel import Attention, LatentAttention, Product
from simcore.errors import InputError
from simcore.generate.aicb.operations import csv_text
from simcore.generate.aicb.training import FP8_SHARE
from simcore.generate.build import number_format
from simcore.generate.durations import Roofline, chosen_gpu, parts_of
from simcore.generate.made import Made
from simcore.generate.step import Step, contents_of_step
from simcore.generate.traces import listed_step, write_set
from simcore.model.layer import blocks, embedding, head
from simcore.model.memory import held_parameters, kv_cache_bytes
from simcore.model.plan import NAMES, SPLIT_BY, Plan, check
from simcore.model.presets import model as named_model
from simcore.model.rows import IDLE, Rows
from simcore.model.shape import LayerKind, Model
from simcore.model.steps import Axis, Beside, Block, Collective, Kernel, Part
from simcore.model.steps import Step as Done
from simcore.workload.model import CollectiveKind, Layer, Phase, Role, Workload
from simcore.workload.text import write


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served at once: sequences of `context` tokens, in prefill all new, in decode one new each.

    The plan is that of the forward pass: its type is that of products and of the weights they read; what is sent and
    cached has 16 bits or more.
    """

    model: Model
    plan: Plan
    context: int
    decodes: bool
    fp8_dispatch: bool
    device: Accelerator

    @property
    def durations(self) -> Roofline:
        """Forward times."""
        every = (block for stage in range(self.plan.pp) for block in self._blocks(stage))
        return Roofline(self.device, self.plan.dtype, parts_of(every))

    def workload(self, stage: int) -> Workload:
        """Rows of one rank of a stage for one step; InputError names the options that do not fit each other."""
        model, plan = self.model, self.plan
        check(model, plan, SPLIT_BY)
        if stage >= plan.pp:
            expected = f"0 to {plan.pp - 1}"
            raise InputError.at("--pp_rank", "there is no such stage", expected=expected, found=str(stage))
        rows, made = Rows(model, plan, self.durations), list[Layer]()
        for block in self._blocks(stage):
            made += (Layer(row.name, row.forward) for row in rows.block(block)[0] if row.forward != IDLE)
        if stage == plan.pp - 1 and plan.tp > 1:
            size = plan.micro_batch * plan.padded_vocab(model.vocab) * plan.element_bytes
            made.append(Layer("logits", Phase(0, CollectiveKind.ALL_GATHER, size)))
        passed = plan.tokens if self.decodes else plan.passed_tokens(model)
        handed = passed * model.hidden * plan.element_bytes if plan.pp > 1 else 0
        told: dict[str, Any] = {"layers": tuple(made), "pipeline_bytes": handed, "name": model.name}
        return Workload("DISTRIBUTED_INFERENCE", parallelism=plan.sizes(model), dialect="simai", **told)

    def pipeline(self) -> Workload:
        """Rows of one rank of every stage."""
        stages = [self.workload(stage) for stage in range(self.plan.pp)]
        rows = tuple(row for stage in stages for row in stage.layers)
        lengths = tuple(len(stage.layers) for stage in stages) if self.plan.pp > 1 else ()
        return replace(stages[0], layers=rows, stage_rows=lengths)

    def held_bytes(self, stage: int) -> dict[str, int]:
        """Bytes of parameters and of the cache on a rank of a stage."""
        plan, held = self.plan, held_parameters(self.model, self.plan, stage)
        layers, width = plan.stage_layers(self.model, stage), plan.element_bytes
        cache = kv_cache_bytes(self.model, self.context, layers, tp=plan.tp, element_bytes=width)
        parameter_bytes = int(ELEMENT_BYTES[plan.dtype] * held.whole)
        return {"parameter_bytes": parameter_bytes, "kv_cache_bytes": plan.micro_batch * cache}

    def _blocks(self, stage: int) -> Iterator[Block]:
        """What a stage does: of the head every sequence's last logits; in decode an encoder has done its."""
        model, plan = self.model, self.plan
        if stage == 0:
            yield embedding(replace(model, encoder_layers=0) if self.decodes else model, plan)
        known: dict[LayerKind, tuple[Block, ...]] = {}
        for kind in map(model.kind, plan.stage_layers(model, stage)):
            if kind not in known:
                some = blocks(model, plan, kind) if not (self.decodes and kind.encoder) else ()
                known[kind] = tuple(self._served(block, kind) for block in some)
            yield from known[kind]
        if stage == plan.pp - 1:
            block = head(model, plan.but(seq=1))
            yield replace(block, steps=block.kernels)

    def _served(self, block: Block, kind: LayerKind) -> Block:
        """A block of a forward pass as it is served.

        Tensor ranks all see all tokens, whose experts' partial sums they add up at the end. Dispatch may be in fp8. In
        decode the cache has the keys and values of what an encoder wrote: of both projections queries' is left.
        """
        steps, share = list[Done](), FP8_SHARE if self.fp8_dispatch else 1.0
        mixed = any(isinstance(step, Kernel) and step.part is Part.EXPERTS for step in block.steps)
        projections = [one for one in block.kernels if one.part is Part.CROSS_IN and isinstance(one.work, Product)]
        cached = {id(one) for one in projections[1:] if self.decodes}
        for step in (one for one in block.steps if id(one) not in cached):
            if isinstance(step, Kernel):
                steps.append(self._cached(step, kind))
            elif step.axis is Axis.EXPERT and step.forward is CollectiveKind.ALL_TO_ALL:
                steps.append(replace(step, size_bytes=int(step.size_bytes * share)))
                share = 1.0
            elif step.axis is Axis.TENSOR and not mixed:
                steps.append(step)
        if mixed and self.plan.tp > 1:
            size = self.plan.tokens * self.model.hidden * self.plan.element_bytes
            summed = CollectiveKind.ALL_REDUCE
            steps.append(Collective("moe_output", Role.EXPERTS, Axis.TENSOR, size, summed, beside=Beside.PRODUCTS))
        return replace(block, steps=tuple(steps))

    def _cached(self, kernel: Kernel, kind: LayerKind) -> Kernel:
        """In decode one query per sequence and head over a layer's cache; latent attention in its absorbed form."""
        work, latent, keys = kernel.work, self.model.latent, self.model.seen(kind, self.context)
        if not self.decodes or not isinstance(work, Attention):
            return kernel
        if latent:
            width = latent.key_value_rank + latent.rope_size
            absorbed = LatentAttention(work.batch, work.heads, 1, 1, keys, width, latent.key_value_rank)
            return replace(kernel, work=absorbed)
        return replace(kernel, work=replace(work, keys=keys, causal=True))


def _served(model: str, config: str | None, **values: Any) -> tuple[Serving, str, tuple[str, ...]]:
    """What AICB's options ask for, of a shipped or read model; the accelerator's name and what to warn about."""
    chosen = replace(named_model(config or model), mtp_layers=0)  # what predicts further tokens serves training
    gpu, warnings = chosen_gpu(values["gpu_type"])
    decodes, context = values["phase"] == "decode", values["seq_length"]
    told = {field: values[name] for name, field in NAMES["plan"].items() if name in values}
    told |= {"seq": 1 if decodes else context, "expert_tp": told["tp"]}
    plan = Plan(**told, dtype=number_format(values["dtype"] or "bf16"))
    accelerator(gpu).peak(plan.dtype)  # refused where the accelerator has none
    plan = plan.but(global_batch=plan.micro_batch * max(1, plan.world_size // max(1, plan.tp * plan.pp)))
    if values["fp8_dispatch"] and not (chosen.experts and plan.ep > 1):
        warnings.append("without effect: --fp8_dispatch")  # no token leaves its rank
    serving = Serving(chosen, plan, context, decodes, values["fp8_dispatch"], accelerator(gpu))
    return serving, gpu, tuple(warnings)


def inference_step(model: str, config: str | None, form: str, **values: Any) -> Made:
    """The corrected inference step of a shipped or read model; the names of `values` are AICB's."""
    if file := values["comp_filepath"]:
        raise InputError.at("--comp_filepath", "a time file is read under --compat only", found=file)
    (serving, gpu, warnings), stage = _served(model, config, **values), values["pp_rank"]
    workload = serving.pipeline() if stage is None else serving.workload(stage)
    step = Step(serving.model, serving.plan, stage or 0, workload, serving.durations, gpu, warnings)
    asked = range(step.plan.pp) if stage is None else [stage]
    fullest = max(asked, key=lambda each: sum(serving.held_bytes(each).values()))
    held, device = serving.held_bytes(fullest), serving.device
    lacking = sum(held.values()) - device.memory_bytes
    if lacking > 0:
        warnings += (f"stage {fullest} on {device.name}: does not fit: {lacking / 1e9:.1f} GB too much",)
    told = {"stage": fullest, "device": device.name, "device_bytes": device.memory_bytes}
    document = step.document(held | told, warnings)
    text = csv_text(listed_step(serving.pipeline(), step.plan, step.stage)) if form == "csv" else write(workload)
    return Made(text, document, warnings, contents=partial(contents_of_step, step))


def inference_traces(
    model: str, config: str | None, prefix: Path, ranks: Sequence[int], force: bool, **values: Any
) -> tuple[list[Path], tuple[str, ...]]:
    """Write the traces of an inference step; as `write_traces`, values as those of `inference_step`."""
    serving, _, warnings = _served(model, config, **values)
    return write_set(serving.pipeline(), serving.plan, prefix, ranks, force=force), warnings
