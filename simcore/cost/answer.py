"""The answer of `simcore predict`: time, its parts, rates, memory and what would fit, and what it all rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum

from simcore.compute.accelerators import accelerator
from simcore.cost.basis import Basis
from simcore.cost.cluster import Cluster
from simcore.cost.margins import Margin, interval, kind_of, margin_of
from simcore.cost.played import engine_ns, network_ns
from simcore.cost.predict import Prediction, predict
from simcore.errors import InputError
from simcore.model.layer import blocks, head
from simcore.model.memory import PEAK_MARGIN, Memory, peak, stage_memory
from simcore.model.plan import OFFLOADED, Plan, check, seen_by
from simcore.model.shape import Model, kinds
from simcore.model.steps import Block

# Parts of a prediction -> their names in the document.
PARTS = {
    "compute": "compute_s",
    "tensor_parallel": "exposed_tp_s",
    "context_parallel": "exposed_cp_s",
    "expert_parallel": "exposed_ep_s",
    "sharding": "exposed_sharding_s",
    "offload": "exposed_offload_s",
    "pipeline_parallel": "exposed_pp_s",
    "gradients": "exposed_dp_s",
    "bubble": "bubble_s",
    "optimizer": "optimizer_s",
    "stragglers": "stragglers_s",
    "other": "software_s",
    "losses": "losses_s",
}


@dataclass(frozen=True)
class Answer:
    """The training step of a `model` under a `plan` on a `cluster`; `simcore.predict` gives it."""

    model: Model
    plan: Plan
    cluster: Cluster

    @cached_property
    def prediction(self) -> Prediction:
        """The step and its parts."""
        return predict(self.model, self.plan, self.cluster)

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.prediction.step_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """The seconds, from and to, in which nine of ten measured steps of such jobs would lie."""
        return interval(self.step_s, self.margin.share)

    @property
    def margin(self) -> Margin:
        """How far like jobs were missed."""
        return margin_of(kind_of(self.model, self.plan, self.cluster))

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second on each accelerator."""
        plan = self.plan
        return plan.global_batch * plan.seq / self.step_s / plan.world_size

    @property
    def mfu(self) -> float:
        """The model's FLOPs, nothing computed again, over the dense peak of the products' type.

        Causal attention counts the tokens a query sees.
        """
        device, plan = accelerator(self.cluster.accelerator), self.plan
        return model_flops(self.model, plan) / (self.step_s * plan.world_size * device.peak(plan.dtype))

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """The peak of every stage."""
        return tuple(stage_memory(self.model, self.plan, stage) for stage in range(self.plan.pp))

    def run_s(self) -> float:
        """The same step run by the native engine."""
        return engine_ns(self.model, self.plan, self.cluster) * 1e-9

    def network_s(self) -> float | None:
        """The same step on the links of the cluster's topology, where it has one of this size."""
        found_ns = network_ns(self.model, self.plan, self.cluster)
        return None if found_ns is None else found_ns * 1e-9

    @cached_property
    def basis(self) -> Basis:
        """The kernels, and what their times rest on."""
        return Basis(self.model, self.plan, self.cluster)

    def sources(self) -> dict[str, object]:
        """What times of kernels and collectives rest on, as shares of their sum."""
        return self.basis.sources()

    def power(self) -> dict[str, float] | None:
        """Watts and joules of a board in a step, and tokens per joule; None where no power limit is stated."""
        energy_j = self.basis.energy_j(self.step_s)
        if energy_j is None:
            return None
        watts = energy_j / self.step_s
        return {"board_w": watts, "board_j": energy_j, "tokens_per_j": self.tokens_per_s / watts}

    def to_dict(self) -> dict[str, object]:
        """The document of `simcore predict --json`."""
        low, high = self.interval_s
        return {
            "schema": "simcore.prediction/1",
            "step_s": self.step_s,
            "interval_s": [low, high],
            "parts": {PARTS[name]: seconds for name, seconds in self.prediction.parts.items()},
            "tokens_per_s_per_accelerator": self.tokens_per_s,
            "mfu": self.mfu,
            "memory": [
                {"stage": stage, "peak_bytes": memory.total, "parts": memory._asdict()}
                for stage, memory in enumerate(self.memory)
            ],
            "capacity_bytes": self.cluster.memory_bytes,
            "peak_margin": PEAK_MARGIN,
            "sources": self.sources(),
            "power": self.power(),
        }


_seen_alone = seen_by("seq", "encoder_seq", "pad_vocab_to", "lora_rank", "lora_modules", "frozen")


def model_flops(model: Model, plan: Plan) -> float:
    """FLOPs of a step that the model needs: products and attention, forward and both gradients."""
    alone = _seen_alone(plan)
    layers = kinds(model, range(model.depth + model.mtp_layers))
    forward = sum(count * _flops(block) for kind, count in layers for block in blocks(model, alone, kind))
    heads = 1 + model.mtp_layers
    forward += heads * _flops(head(model, alone))
    return plan.global_batch * forward


def _flops(block: Block) -> float:
    """Forward and for both gradients, each as much; frozen weights have none."""
    return fsum(kernel.work.flops * (3 if kernel.trained else 2) for kernel in block.kernels)


def remedies(model: Model, plan: Plan, cluster: Cluster) -> list[tuple[str, int, float]]:
    """Option, peak bytes and step seconds of every single change with which the plan fits, the fastest first."""
    fitting = []
    for option, other in _changes(model, plan):
        try:
            check(model, other)
            size = peak(model, other).total
        except InputError:
            continue
        if size <= cluster.memory_bytes:
            fitting.append((option, size, predict(model, other, cluster).step_s))
    return sorted(fitting, key=lambda one: one[2])


def _changes(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans on as many accelerators that need less."""
    yield from ((f"--zero {zero}", replace(plan, zero=zero)) for zero in range(plan.zero + 1, 4))
    if plan.recompute == "none":
        yield from _computed_again(model, plan)
    for what in OFFLOADED:
        if what not in plan.offload:
            yield f"--offload {what}", replace(plan, offload=(*plan.offload, what))
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "--sequence-parallel", replace(plan, sequence_parallel=True)
    yield f"--ep {2 * plan.ep}", replace(plan, ep=2 * plan.ep)
    for name in ("tp", "pp", "cp") if plan.dp % 2 == 0 else ():  # what replicas were
        degree = 2 * getattr(plan, name)
        yield f"--{name} {degree} --dp {plan.dp // 2}", plan.but(**{name: degree})
    if plan.micro_batch > 1:
        yield f"--micro-batch {plan.micro_batch // 2}", replace(plan, micro_batch=plan.micro_batch // 2)


def _computed_again(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Modules, or layers of every part of the model: powers of two, and all."""
    if not plan.fused_attention:
        yield "--recompute selective", replace(plan, recompute="selective")
    deepest = max(len(plan.layers(model, part)) for part in range(plan.outline.parts))
    for layers in sorted({*(1 << power for power in range(deepest.bit_length())), deepest}):
        some = replace(plan, recompute="full", recompute_layers=layers)
        yield f"--recompute full --recompute-layers {layers}", some
