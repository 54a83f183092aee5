"""What steps are made of: kernels and collectives, typed; what a kernel becomes in the passes for gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache
from typing import TypeVar

from simcore.compute.kernel import Attention, Gradient, GroupedProduct, MemoryPass, Product
from simcore.compute.kernel import Kernel as Work
from simcore.model.plan import Plan
from simcore.model.shape import Weight
from simcore.workload.model import CollectiveKind, PhaseName, Role


class Part(StrEnum):
    """A piece of the model that is timed as a whole."""

    EMBEDDING = "embedding"
    ATTENTION_DOWN = "attention_down"
    ATTENTION_IN = "attention_in"
    ATTENTION_CORE = "attention_core"
    ATTENTION_OUT = "attention_out"
    CROSS_IN = "cross_in"
    CROSS_CORE = "cross_core"
    CROSS_OUT = "cross_out"
    MLP_IN = "mlp_in"
    MLP_OUT = "mlp_out"
    ROUTER = "router"
    EXPERTS = "experts"
    COMBINE = "combine"
    SHARED = "shared"
    MTP_COMBINE = "mtp_combine"
    HEAD = "head"
    OPTIMIZER = "optimizer"


class Module(StrEnum):
    """What can be computed again instead of kept; the first seven by the names of Megatron-LM's --recompute-modules.

    The rest are pieces that other software chooses by: attention in one kernel, products on either side of it, and of
    a dense feed-forward block its first products, of gated ones half of them, and what lies between.
    """

    CORE = "core_attn"
    NORM = "layernorm"
    UP = "mla_up_proj"
    ACTIVATION = "moe_act"
    MLP = "mlp"
    MOE = "moe"
    SHARED = "shared_experts"
    FUSED = "fused_attn"
    QKV = "qkv_proj"
    OUT = "out_proj"
    MLP_UP = "mlp_up"
    MLP_GATE = "mlp_gate"
    MLP_ACTIVATION = "mlp_act"
    MLP_DOWN = "mlp_down"


class Axis(StrEnum):
    """Which ranks a collective joins, or that a rank waits for its own host."""

    TENSOR = "tensor_parallel"
    CONTEXT = "context_parallel"
    EXPERT = "expert_parallel"
    DATA = "data_parallel"
    EXPERT_DATA = "expert_data_parallel"
    HOST = "host"
    REPLICAS = "replicas of what is sharded"
    EXPERT_REPLICAS = "replicas of experts that are sharded"

    def layout(self, plan: Plan) -> tuple[int, int]:
        """How many ranks of a plan meet on it, and how far they stand apart, in Megatron-LM's order: tensor ranks
        innermost, then context, data and pipeline; of experts their tensor ranks, expert ranks, an expert's replicas.
        """
        match self:
            case Axis.TENSOR:
                return plan.tp, 1
            case Axis.CONTEXT:
                return plan.cp, plan.tp
            case Axis.EXPERT:
                return plan.ep, plan.expert_tp
            case Axis.EXPERT_DATA:
                return plan.expert_sharing, plan.ep * plan.expert_tp
            case Axis.REPLICAS:
                return plan.replicas // plan.sharing, plan.tp * plan.sharing
            case Axis.EXPERT_REPLICAS:
                shared = plan.expert_sharing
                return plan.expert_replicas // shared, plan.ep * plan.expert_tp * shared
            case _:
                return plan.sharing, plan.tp


class Beside(Enum):
    """What may run meanwhile; whether it does is the software's."""

    NOTHING = "nothing"
    PRODUCTS = "piece by piece the products that make it, or that need it"
    WEIGHT_GRADIENT = "the weight gradients of the kernels behind it"
    INPUT_GRADIENT = "the input gradients of the kernels ahead of it"
    ATTENTION = "the attention itself"


@dataclass(frozen=True, slots=True)
class Kernel:
    """Work of one kind in the forward pass.

    `launches` kernels do it. `keeps_bytes` stay until its gradients, unless one of its `modules` is computed again.
    `wide`: stays in 16 bits where products run in 8 or 4. Products with weights have two gradients; a pass over memory
    moves so many times its bytes for the gradient of its input (`input_growth`) and of its weights (`weight_growth`).
    Weights that are not `trained` have none.
    """

    part: Part
    work: Work
    launches: int = 1
    keeps_bytes: float = 0.0
    modules: tuple[Module, ...] = ()
    wide: bool = False
    input_growth: float = 1.5
    weight_growth: float = 0.0
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Collective:
    """What the ranks of an axis do together on whole buffers of `size_bytes`, in the forward pass and in the backward.

    A whole buffer is the gathered result, or what is not yet reduced. `name` is for people. Where one of its `modules`
    is computed again, ranks meet again.
    """

    name: str
    role: Role
    axis: Axis
    size_bytes: int
    forward: CollectiveKind | None = None
    backward: CollectiveKind | None = None
    beside: Beside = Beside.NOTHING
    modules: tuple[Module, ...] = ()


Step = Kernel | Collective
S = TypeVar("S", Kernel, Step)


@dataclass(frozen=True, slots=True)
class Block:
    """Half a layer, an embedding or a head: its steps and its weights."""

    name: str
    steps: tuple[Step, ...]
    weights: tuple[Weight, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Its kernels."""
        return tuple(step for step in self.steps if isinstance(step, Kernel))


@lru_cache(maxsize=1 << 14)
def in_phase(kernel: Kernel, phase: PhaseName) -> tuple[Kernel, ...]:
    """What a kernel of the forward pass becomes in a phase."""
    return tuple(_turned(kernel, phase))


def _turned(kernel: Kernel, phase: PhaseName) -> Iterator[Kernel]:
    if phase is PhaseName.FORWARD:
        yield kernel
    elif isinstance(kernel.work, Attention):
        if phase is PhaseName.INPUT_GRAD:
            yield replace(kernel, work=replace(kernel.work, backward=True))
    elif isinstance(kernel.work, MemoryPass):
        if growth := kernel.input_growth if phase is PhaseName.INPUT_GRAD else kernel.weight_growth:
            yield replace(kernel, work=replace(kernel.work, bytes=kernel.work.bytes * growth))
    else:
        # Of a product with activations on both sides both gradients are of inputs.
        of_heads = isinstance(kernel.work, Product) and kernel.work.row > 0
        if phase is PhaseName.INPUT_GRAD or (kernel.trained and not of_heads):
            yield replace(kernel, work=_gradient(kernel.work, phase))


def _gradient(work: Product | GroupedProduct, phase: PhaseName) -> Work:
    if isinstance(work, GroupedProduct):
        turned = replace(work, gradient=Gradient.WEIGHT)
        return turned if phase is PhaseName.WEIGHT_GRAD else replace(work, n=work.k, k=work.n, gradient=Gradient.INPUT)
    if work.row:
        return replace(work, batch=2 * work.batch)
    if phase is PhaseName.INPUT_GRAD:
        return replace(work, n=work.k, k=work.n, gradient=Gradient.INPUT)
    return replace(work, m=work.n, n=work.k, k=work.m, gradient=Gradient.WEIGHT)


def dropped(steps: Sequence[S], plan: Plan) -> tuple[S, ...]:
    """Steps that run again before the backward because selective recomputation does not keep what kernels made.

    Modules that keep nothing, such as fused attention as part of the core, are left alone.
    """
    if plan.recompute != "selective":
        return ()
    kernels = [step for step in steps if isinstance(step, Kernel)]
    kept = ((one, kernel.keeps_bytes or one is Module.FUSED) for kernel in kernels for one in kernel.modules)
    chosen = {module for module, keeps in kept if keeps and module in plan.recompute_modules}
    return tuple(step for step in steps if chosen & set(step.modules))
