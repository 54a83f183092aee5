"""What a step runs on: accelerators, their interconnect and the software on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simcore.compute.accelerators import accelerator
from simcore.model.timing import LOOP, Loop
from simcore.system.collectives.nccl import Fabric

__all__ = ["Cluster", "Software"]


@dataclass(frozen=True, slots=True)
class Software:
    """What a training framework on its hosts costs beyond kernels.

    `launch_s`: host time per kernel class; a pass whose launches take longer than its kernels takes that long.
    `step_s`: once a step (data, logging, gradient-norm synchronisation). `tiles`: tensor-parallel collectives run
    piece by piece beside the products they feed, all but the first of as many pieces as there are ranks.
    `slowdown`: the share of the time a collective runs beside kernels that these lose; `slowdown_across`: of one that
    waits for network cards; `piece_s`: to hand over a piece. `hides_input_gradient`: the sum of input gradients runs
    beside the weight gradients. `expert_launch_s`: host time per local expert and pass, where experts are launched one
    by one. `sends_once`: a token goes once to a rank, however many of its experts live there. `exchange`: who brings
    tokens to their experts and back, NCCL's all-to-all or DeepEP's kernels.
    `synchronous`: a launch waits for the kernel before it (CUDA_LAUNCH_BLOCKING). `accumulation_bytes`: what adding a
    micro-batch's gradient to those before it moves per parameter, in a pass of its own; 0 = the product that makes it
    adds. `jitter`: standard deviation of a rank's step over its mean; all wait for the slowest. `owner_s`: after a step
    every rank that owns a share of the optimizer's states sends its parameters to the others in turn, each so long.
    `family`: what profiles that err alike have in common.
    """

    launch_s: float = 10e-6
    step_s: float = 0.05
    tiles: bool = False
    slowdown: float = 0.38  # mean of what NCCL beside products costs these (Echo, arXiv 2412.12487)
    slowdown_across: float = 0.1
    piece_s: float = 0.0
    hides_input_gradient: bool = False
    sends_once: bool = False
    exchange: Literal["nccl", "deepep", "deepep_low_latency"] = "nccl"
    expert_launch_s: float = 0.0
    synchronous: bool = False
    accumulation_bytes: float = 0.0
    kernels: Loop = LOOP
    jitter: float = 0.013
    owner_s: float = 0.0
    family: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Accelerators, their interconnect and the software on them.

    `losses`: the share of a step that a run loses on top of it (stragglers, clocks, data, checkpoints beside the step);
    none in a benchmark.
    """

    accelerator: str
    fabric: Fabric
    software: Software = field(default_factory=Software)
    losses: float = 0.0

    @property
    def memory_bytes(self) -> int:
        """Memory of one device."""
        return accelerator(self.accelerator).memory_bytes
