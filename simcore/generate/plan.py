"""How a training step is spread over ranks: the degrees of parallelism, what is sharded, what is recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from simcore.errors import Location, Problem, Problems
from simcore.generate.models import Transformer

__all__ = ["ELEMENT_BYTES", "Plan", "check"]

Recompute = Literal["none", "selective", "full"]

ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8": 1}

MOST_ROWS, MOST_CAPACITY, MOST_LAYERS = 1 << 24, 1 << 20, 1 << 13
MOST = 1 << 32  # of anything: beyond, products of them are no numbers of bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """Degrees and choices of a training step.

    `zero` is what data-parallel ranks share: 0 nothing, 1 optimizer states (Megatron's distributed optimizer), 2 also
    gradients, 3 also parameters (FSDP). `expert_tp` ranks split one expert. Gradients are reduced and accumulated in
    `gradient_bytes` an element. `overlap` reduces a layer's gradients as soon as its last micro-batch has made them.
    `shard` ranks share the parameters of ZeRO-3, which the others replicate (FSDP's hybrid sharding); 0 = all do.
    With a `capacity` every expert gets that many times its mean share of tokens, padded; `load` is that of the busiest
    expert rank, for which the others wait.
    """

    world_size: int
    seq: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    expert_tp: int = 1
    virtual_stages: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    recompute: Recompute = "none"
    dtype: str = "bfloat16"
    gradient_bytes: int = 4
    overlap: bool = False
    pad_vocab_to: int = 128
    capacity: float = 0.0
    load: float = 1.0
    shard: int = 0

    @property
    def dp(self) -> int:
        """Ranks that see different sequences."""
        return self.world_size // (self.tp * self.cp * self.pp)

    @property
    def replicas(self) -> int:
        """Ranks with the same dense parameters: data and context parallelism together."""
        return self.dp * self.cp

    @property
    def sharing(self) -> int:
        """Ranks that share states: replicas, or as many of them as hybrid sharding says."""
        return self.shard or self.replicas

    @property
    def expert_replicas(self) -> int:
        """Ranks with the same experts."""
        return self.replicas * self.tp // (self.ep * self.expert_tp)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def element_bytes(self) -> int:
        """Bytes of a parameter or activation."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank, before sequence parallelism."""
        return self.micro_batch * self.seq // self.cp

    def padded_vocab(self, vocab: int) -> int:
        """The vocabulary padded so that every rank holds a whole multiple."""
        multiple = self.pad_vocab_to * self.tp
        return -(-vocab // multiple) * multiple

    def stage_layers(self, layers: int, stage: int) -> range:
        """Layers of a stage; what does not divide goes to the first stages, one each."""
        each, rest = divmod(layers, self.pp)
        start = stage * each + min(stage, rest)
        return range(start, start + each + (stage < rest))

    def mtp_layers(self, model: Transformer, stage: int) -> range:
        """Numbers of the layers of the MTP modules, which are on the last stage."""
        return range(model.layers, model.layers + (model.mtp_layers if stage == self.pp - 1 else 0))


def check(model: Transformer, plan: Plan) -> None:
    """Raise InputError, all problems at once, for degrees that do not divide what they split."""
    with Problems() as problems:
        _positive(problems, model, plan)
    with Problems() as problems:
        for option, value, divisor, by in _divisions(model, plan):
            if divisor < 1 or value % divisor:
                _note(problems, option, f"{value} is not divisible by {divisor}, {by}", str(value))
        for refused, option, message, found in _refusals(model, plan):
            if refused:
                _note(problems, option, message, str(found))


def _divisions(model: Transformer, plan: Plan) -> Iterator[tuple[str, int, int, str]]:
    """Option, its value, what must divide it, and what that is."""
    yield "world_size", plan.world_size, plan.tp * plan.cp * plan.pp, "the product of tp, cp and pp"
    yield "num_attention_heads", model.heads, plan.tp, "the tensor parallel size"
    yield "ffn_hidden_size", model.ffn, plan.tp, "the tensor parallel size"
    yield "seq_length", plan.seq, plan.cp * (plan.tp if plan.sequence_parallel else 1), "the ranks that share it"
    yield "global_batch", plan.global_batch, plan.dp * plan.micro_batch, "data parallel ranks times micro-batch"
    if model.experts:
        yield "num_experts", model.experts.count, plan.ep, "the expert parallel size"
        yield "ffn_hidden_size", model.experts.ffn, plan.expert_tp, "the ranks that split an expert"
        yield "expert_model_parallel_size", plan.replicas * plan.tp, plan.ep * plan.expert_tp, "ep times its tp"
    if plan.shard:
        yield "shard_ranks", plan.replicas, plan.shard, "the ranks that share the parameters"


def _refusals(model: Transformer, plan: Plan) -> Iterator[tuple[bool, str, str, int]]:
    """Whether it is wrong, the option, what is wrong with it, and what was found."""
    rows = model.layers * (plan.global_batch // (max(plan.dp, 1) * plan.micro_batch))
    yield rows > MOST_ROWS, "global_batch", f"{rows:,} layers of micro-batches are too many", plan.global_batch
    yield model.layers > MOST_LAYERS, "num_layers", f"at most {MOST_LAYERS:,} can be timed one by one", model.layers
    yield model.layers < plan.pp, "pipeline_model_parallel", "more stages than layers", plan.pp
    tp = "must be 1 or the tensor parallel size"
    yield plan.expert_tp not in (1, plan.tp), "expert_tensor_parallel_size", tp, plan.expert_tp
    if model.experts:
        groups = "ZeRO-3 shares experts over all replicas: expert parallelism has other groups"
        yield plan.zero == 3 and (plan.ep > 1 or plan.expert_tp != plan.tp), "stage", groups, plan.zero
    else:
        yield plan.ep > 1, "expert_model_parallel_size", "this model has no experts", plan.ep
    common = "ZeRO-3 does not share what MTP modules and the model have in common"
    yield plan.zero == 3 and model.mtp_layers > 0, "stage", common, plan.zero
    yield plan.shard > 0 and plan.zero != 3, "shard_ranks", "only ZeRO-3 shares parameters: --stage 3", plan.shard


def _positive(problems: Problems, model: Transformer, plan: Plan) -> None:
    names = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "ffn_hidden_size": model.ffn,
        "vocab_size": model.vocab,
        "world_size": plan.world_size,
        "tensor_model_parallel_size": plan.tp,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "pipeline_model_parallel": plan.pp,
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "seq_length": plan.seq,
        "make_vocab_size_divisible_by": plan.pad_vocab_to,
    }
    for option, value in names.items():
        if value < 1:
            _note(problems, option, "the value must be 1 or more", str(value))
        elif value > MOST:
            _note(problems, option, f"the value must be {MOST:,} or less", str(value))
    if not problems.found and plan.world_size < plan.tp * plan.cp * plan.pp:
        _note(
            problems,
            "world_size",
            f"fewer GPUs than tp * cp * pp = {plan.tp * plan.cp * plan.pp}",
            str(plan.world_size),
        )
    if not 0 <= plan.capacity <= MOST_CAPACITY:
        _note(problems, "moe_expert_capacity_factor", f"at most {MOST_CAPACITY:,}", str(plan.capacity))
    if plan.dtype not in ELEMENT_BYTES:
        _note(problems, "dtype", f"unknown number format; known: {', '.join(ELEMENT_BYTES)}", plan.dtype)


def _note(problems: Problems, option: str, message: str, found: str) -> None:
    problems.add(Problem(Location(f"--{option}"), message, found=found, field=option))
