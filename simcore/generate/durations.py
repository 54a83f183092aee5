"""How long the parts of a training step take: from an accelerator's roofline or from AICB's measured time file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, fsum
from operator import add
from typing import Literal, NamedTuple, Protocol, get_args

from simcore.compute.accelerators import Accelerator
from simcore.compute.operations import (
    Operation,
    Shard,
    combine_operations,
    embedding_operations,
    head_operations,
    layer_operations,
    optimizer_operations,
)
from simcore.compute.operations import Transformer as Shape
from simcore.compute.roofline import duration_s
from simcore.generate.aicb.times import sections
from simcore.generate.models import Transformer
from simcore.generate.plan import Plan
from simcore.generate.shape import kernel_shape
from simcore.workload.model import PhaseName

__all__ = [
    "PARTS",
    "Cost",
    "Durations",
    "Measured",
    "Part",
    "Rescaled",
    "Roofline",
    "chosen_gpu",
    "cost_of",
    "measured",
    "profile",
    "rescaled",
    "roofline",
]

Part = Literal[
    "embedding",
    "attention_down",
    "attention_in",
    "attention_core",
    "attention_out",
    "mlp_in",
    "mlp_out",
    "router",
    "experts",
    "combine",
    "shared",
    "mtp_combine",
    "head",
]
"""A piece of the model that is timed as a whole."""

PARTS: tuple[Part, ...] = get_args(Part)

DEFAULT_GPU = "A100"

_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8": "fp8"}


class Durations(Protocol):
    """Times of one micro-batch on one rank, and of its share of the optimizer step."""

    def part(self, part: Part, phase: PhaseName) -> int:
        """Nanoseconds of a part of the model in a phase."""

    def optimizer(self, elements: int) -> int:
        """Nanoseconds of the optimizer on so many elements."""


# Part of an operation by its name and how often that name came before it in the layer.
_DENSE: Mapping[tuple[str, int], Part] = {("norm", 1): "mlp_in", ("up", 0): "mlp_in", ("down", 0): "mlp_out"}
_MIXED: Mapping[tuple[str, int], Part] = {
    ("norm", 1): "router",
    ("router", 0): "router",
    ("permute", 0): "router",
    ("up", 0): "experts",
    ("activation", 0): "experts",
    ("down", 0): "experts",
    ("unpermute", 0): "combine",
    ("residual", 1): "combine",
    ("up", 1): "shared",
    ("activation", 1): "shared",
    ("down", 1): "shared",
}
_CORE = ("attention", "scores", "softmax", "attention dropout", "scores by values", "transpose")
_OUT = ("projection", "residual")
_DOWN = ("query down", "query norm", "key-value down", "key-value norm")
_FEED_FORWARD = ("up", "activation", "down", "router", "permute", "unpermute")


class Cost(NamedTuple):
    """Time of a part, its arithmetic and what it moves in device memory."""

    seconds: float
    flops: float
    memory_bytes: float


NO_COST = Cost(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Times of a plan on an accelerator (`simcore.compute.roofline`); `load` scales the experts of the busiest rank."""

    device: Accelerator
    dtype: str
    costs: Mapping[tuple[Part, PhaseName], Cost]
    load: float = 1.0

    def part(self, part: Part, phase: PhaseName) -> int:
        """As `Durations.part`."""
        return ceil(self.cost(part, phase).seconds * 1e9)

    def cost(self, part: Part, phase: PhaseName) -> Cost:
        """What a part costs in a phase on the busiest rank; nothing where it does nothing."""
        scale = self.load if part == "experts" else 1.0
        return Cost(*(figure * scale for figure in self.costs.get((part, phase), NO_COST)))

    def optimizer(self, elements: int) -> int:
        """As `Durations.optimizer`."""
        work = optimizer_operations(elements)
        return ceil(fsum(duration_s(operation, self.device, self.dtype) for operation in work) * 1e9)


def chosen_gpu(name: str | None, *, computed: bool = True) -> tuple[str, list[str]]:
    """The accelerator called `name`, or the usual one and what to say of it where it computes anything.

    The text "None" of AICB's scripts names none.
    """
    if name and name != "None":
        return name, []
    return DEFAULT_GPU, [f"no --gpu_type: computation times are those of an {DEFAULT_GPU}"] if computed else []


def roofline(model: Transformer, plan: Plan, device: Accelerator) -> Roofline:
    """Times of every part of a model under a plan; sources of the rule in `simcore.compute`."""
    dtype = _FORMATS[plan.dtype]
    shape = kernel_shape(model, plan.seq, plan.padded_vocab(model.vocab))
    shard = Shard(plan.micro_batch, plan.tp, plan.cp, plan.ep, plan.sequence_parallel, float(plan.element_bytes))
    costs: dict[tuple[Part, PhaseName], Cost] = {}
    for phase in PhaseName:
        for part, operation in _parts(model, shape, shard, phase):
            added = cost_of(operation, device, dtype)
            costs[part, phase] = Cost(*map(add, costs.get((part, phase), NO_COST), added))
    return Roofline(device, dtype, costs, plan.capacity or plan.load)


def cost_of(operation: Operation, device: Accelerator, dtype: str) -> Cost:
    """An operation's cost on an accelerator."""
    return Cost(duration_s(operation, device, dtype), operation.flops, operation.memory_bytes)


def _parts(model: Transformer, shape: Shape, shard: Shard, phase: PhaseName) -> Iterator[tuple[Part, Operation]]:
    """Every operation of a layer of each kind, of the embedding and of the head with its part."""
    yield from (("embedding", operation) for operation in embedding_operations(shape, shard, phase))
    yield from (("head", operation) for operation in head_operations(shape, shard, phase))
    if model.mtp_layers:
        yield from (("mtp_combine", operation) for operation in combine_operations(shape, shard, phase))
    kinds = {model.dense(layer) for layer in range(model.layers + model.mtp_layers)}
    attention_seen = False
    for dense in sorted(kinds):
        seen: dict[str, int] = {}
        for operation in layer_operations(shape, shard, phase, dense=dense):
            part = _part(operation.name, seen, _DENSE if dense else _MIXED)
            if not (attention_seen and part.startswith("attention")):
                yield part, operation
        attention_seen = True


def _part(name: str, seen: dict[str, int], feed_forward: Mapping[tuple[str, int], Part]) -> Part:
    """The part an operation belongs to; the first norm and residual are the attention's, the second the MLP's."""
    count = seen.get(name, 0)
    seen[name] = count + 1
    if name in _CORE:
        return "attention_core"
    if name in _DOWN:
        return "attention_down"
    if name in _OUT and not count:
        return "attention_out"
    if name in _FEED_FORWARD or count:
        return feed_forward.get((name, count), "mlp_out")
    return "attention_in"


@dataclass(frozen=True, slots=True)
class Measured:
    """AICB's measured times by part: the file has one time for forward and both gradients."""

    times: Mapping[Part, int]
    step_ns: int

    def part(self, part: Part, phase: PhaseName) -> int:
        """As `Durations.part`; only the forward and the input gradient of attention itself and of norms exist."""
        if part == "attention_core" and phase is PhaseName.WEIGHT_GRAD:
            return 0
        return self.times.get(part, 0)

    def optimizer(self, elements: int) -> int:
        """As `Durations.optimizer`: the file's mean `param_time`, of whatever size it was measured at."""
        del elements
        return self.step_ns


_SECTIONS: Mapping[str, Part] = {
    "Emb": "embedding",
    "layernorm": "attention_in",
    "atten_qkv": "attention_in",
    "atten_flash": "attention_core",
    "atten_linear": "attention_out",
    "layernorm2": "mlp_in",
    "mlp_linear_1": "mlp_in",
    "mlp_gelu": "mlp_out",
    "mlp_linear_2": "mlp_out",
    "layernorm_post": "head",
    "logit_time": "head",
}


def measured(path: str) -> Measured:
    """Read AICB's time file by its sections' names; InputError when it cannot be read."""
    times: dict[Part, float] = {}
    step_us = 0.0
    for section, name, time_us in sections(path):
        part = _SECTIONS.get(section) or _by_word(section)
        if name == "avg" and section == "param_time":
            step_us = time_us
        elif name == "avg" and part:
            times[part] = times.get(part, 0.0) + time_us
    return Measured({part: round(time_us * 1000) for part, time_us in times.items()}, round(step_us * 1000))


@dataclass(frozen=True, slots=True)
class Rescaled:
    """A roofline corrected by a time file: each part by how much longer it took where the file was measured."""

    roofline: Roofline
    ratios: Mapping[Part, float]
    step_ratio: float

    def part(self, part: Part, phase: PhaseName) -> int:
        """As `Durations.part`."""
        return round(self.roofline.cost(part, phase).seconds * self.ratios.get(part, 1.0) * 1e9)

    def optimizer(self, elements: int) -> int:
        """As `Durations.optimizer`."""
        return round(self.roofline.optimizer(elements) * self.step_ratio)


def rescaled(file: Measured, source: Roofline, source_elements: int, target: Roofline) -> Rescaled:
    """Times of a file for another shape or accelerator.

    Parameters
    ----------
    file : Measured
        Forward times, measured at the shape and on the accelerator that `source` is the roofline of.
    source_elements : int
        Parameters whose optimizer step the file has.
    target : Roofline
        What to correct. Parts that the file does not have stay as they are; gradients are as much slower as forward.
    """
    ratios: dict[Part, float] = {}
    for parts in _WRITTEN.values():
        measured_s = fsum(file.times.get(part, 0) for part in parts) / 1e9
        expected_s = fsum(source.cost(part, PhaseName.FORWARD).seconds for part in parts)
        if measured_s and expected_s:
            ratios |= dict.fromkeys(parts, measured_s / expected_s)
    step_ns = source.optimizer(source_elements)
    return Rescaled(target, ratios, file.step_ns / step_ns if file.step_ns and step_ns else 1.0)


_WRITTEN: Mapping[str, tuple[Part, ...]] = {
    "Emb": ("embedding",),
    "atten_qkv": ("attention_down", "attention_in"),
    "atten_flash": ("attention_core",),
    "atten_linear": ("attention_out",),
    "mlp_linear_1": ("mlp_in",),
    "mlp_linear_2": ("mlp_out",),
    "mlp_moe": ("router", "experts", "combine", "shared"),
    "logit_time": ("head",),
}


def profile(durations: Durations, elements: int, about: str) -> str:
    """Forward times as one of AICB's time files, with what they are times of in its second line.

    AICB adds minimum and mean of `param_time`: the minimum is written as 0.
    """
    times = {name: sum(durations.part(part, PhaseName.FORWARD) for part in parts) for name, parts in _WRITTEN.items()}
    lines = ["train_iter:1", f"# {about}"]
    for name, time_ns in times.items():
        if time_ns:
            lines += [f"{name}:", *(f"    time_gpu_{which}: {time_ns / 1000}" for which in ("max", "min", "avg"))]
    step_us = durations.optimizer(elements) / 1000
    lines += ["param_time:", f"    time_gpu_max: {step_us}", "    time_gpu_min: 0", f"    time_gpu_avg: {step_us}"]
    return "\n".join([*lines, ""])


def _by_word(section: str) -> Part | None:
    """Part of a section that AICB's other profiles name: attention and MLP by a word of it."""
    if "flash" in section or "core" in section:
        return "attention_core"
    if "atten" in section:
        return "attention_out" if "row" in section else "attention_in"
    return "experts" if "moe" in section else "mlp_out" if "mlp" in section else None
