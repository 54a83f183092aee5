"""What a step runs on: accelerators, their interconnect and the software on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simcore.compute.accelerators import Accelerator, accelerator
from simcore.hashed import Hashed
from simcore.model.timing import LOOP, Loop
from simcore.network.topology.model import Topology
from simcore.system.collectives.nccl import Fabric


@dataclass(frozen=True, slots=True)
class Software:
    """What a training framework on its hosts costs beyond kernels.

    `launch_s`: host time per kernel class; a pass whose launches take longer than its kernels takes that long.
    `step_s`: once a step (data, logging, gradient-norm synchronisation). `tiles`: tensor-parallel collectives run piece
    by piece beside the products they feed, all but the first of as many pieces as there are ranks. `slowdown`: the
    share of the time a collective runs beside kernels that these lose; `slowdown_across`: of one that waits for network
    cards; `piece_s`: to hand over a piece. `hides_input_gradient`: the sum of input gradients runs beside the weight
    gradients. `expert_launch_s`: host time per local expert and pass, where experts are launched one by one.
    `sends_once`: a token goes once to a rank, however many of its experts live there. `exchange`: who brings tokens to
    their experts and back, NCCL's all-to-all or DeepEP's kernels; `hides_exchange`: beside the kernels of another
    micro-batch. `synchronous`: a launch waits for the kernel before it (CUDA_LAUNCH_BLOCKING). `accumulation_bytes`:
    what adding a micro-batch's gradient to those before it moves per parameter, in a pass of its own; 0 = the product
    that makes it adds. `transposing_bytes`: what turning a frozen 8-bit weight moves, where products want both ways.
    `jitter`: standard deviation of a rank's step over its mean; all wait for the slowest. Under ZeRO 1
    `owners_broadcast`: every owner of a share sends its new parameters to the others in turn, in place of one gather;
    `sums_whole`: gradients are all-reduced, not scattered. `gathers_keys`: keys and values of other context ranks,
    repeated for all heads, are gathered in one go that attention waits for, not passed around beside it. `scales_s`:
    what a part of the model waits in a pass for the largest values of all ranks that 8-bit scales follow.
    `reserved_bytes`: of a device's memory beside what a step asks for: buffers of libraries, the allocator's segments.
    `family`: what profiles that err alike have in common.
    """

    launch_s: float = 10e-6
    step_s: float = 0.03
    tiles: bool = False
    slowdown: float = 0.38  # mean of what NCCL beside products costs these (Echo, arXiv 2412.12487)
    slowdown_across: float = 0.1
    piece_s: float = 0.0
    hides_input_gradient: bool = False
    sends_once: bool = False
    exchange: Literal["nccl", "deepep", "deepep_low_latency"] = "nccl"
    hides_exchange: bool = False
    expert_launch_s: float = 0.0
    synchronous: bool = False
    accumulation_bytes: float = 0.0
    transposing_bytes: float = 0.0
    kernels: Loop = LOOP
    jitter: float = 0.013
    owners_broadcast: bool = False
    sums_whole: bool = False
    gathers_keys: bool = False
    scales_s: float = 0.0
    reserved_bytes: int = 0
    family: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """An accelerator's share of its host: the link between them, one way, and the host's memory.

    PCIe 4.0 x16 carries 25 GB/s of its 32. `memory_bytes_per_s` is what the optimizer's step reaches: CPU-Adam moves 28
    bytes a parameter, and takes 2.57 s for 10^10 on 256 GB/s of DDR4 (ZeRO-Offload, arXiv 2101.06840, table 4): 43 %;
    of a DGX A100's 410 GB/s an eighth each.
    """

    link_bytes_per_s: float = 25e9
    memory_bytes_per_s: float = 0.43 * 410e9 / 8


# PCIe 5.0 x16 and an eighth of 614 GB/s (DDR5-4800); NVLink-C2C's 450 GB/s and a Grace's 512 GB/s, for two devices.
# A TPU has 15 GB/s to its host, v6e 32 (jax-ml's scaling book, part 2).
_PCIE_5, _GRACE = Host(55e9, 0.43 * 614e9 / 8), Host(225e9, 0.43 * 512e9 / 2)
_HOSTS = {
    **dict.fromkeys(("H100-SXM-80GB", "H200-SXM", "B200-SXM", "B300-SXM"), _PCIE_5),
    **dict.fromkeys(("GB200", "GB300"), _GRACE),
    **dict.fromkeys(("TPUv3", "TPUv4", "TPUv5e", "TPUv5p"), Host(15e9)),
    "TPUv6e": Host(32e9),
}


@dataclass(frozen=True)
class Cluster(Hashed):
    """Accelerators, their interconnect, the software on them; hosts if not the usual; the second's topology, if any.

    `losses`: the share of a step that a run loses on top of it (stragglers, clocks, data, checkpoints beside the step);
    none in a benchmark.
    """

    __hash__ = Hashed.__hash__

    accelerator: str
    fabric: Fabric
    software: Software = field(default_factory=Software)
    losses: float = 0.0
    own_host: Host | None = None
    topology: Topology | None = None

    @property
    def device(self) -> Accelerator:
        """One of the accelerators."""
        return accelerator(self.accelerator)

    @property
    def host(self) -> Host:
        """An accelerator's share of its host: as stated, or what it usually stands in."""
        return self.own_host or _HOSTS.get(self.device.preset, Host())

    @property
    def memory_bytes(self) -> int:
        """Memory of one device that a step may take, beside what software reserves of it."""
        return max(0, self.device.memory_bytes - self.software.reserved_bytes)
