"""What is predicted: a job (model, degrees, schedule, memory options) and the cluster it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from simcore.compute.accelerators import accelerator
from simcore.compute.efficiency import Efficiency, efficiency
from simcore.compute.operations import Shard, Transformer
from simcore.errors import InputError
from simcore.system.collectives.nccl import Fabric
from simcore.workload.loops.schedules import Schedule, make, outline, splits_backward

__all__ = ["Cluster", "Context", "Job", "Recompute", "Software"]

Recompute = Literal["none", "selective", "full"]
Context = Literal["ring", "all_to_all"]
_SHARDS_EVERY_PASS = 2  # the ZeRO level from which every micro-batch communicates


@dataclass(frozen=True, slots=True)
class Software:
    """What a training framework on its hosts costs beyond kernels.

    `launch_s`: host time per kernel class; a pass whose launches take longer than its kernels takes that long.
    `step_s`: once a step (data, logging, gradient-norm synchronisation). `tp_hidden`: share of the tensor-parallel
    collectives that computes meanwhile. `expert_launch_s`: host time per local expert and pass, where experts are
    launched one by one. `hides_input_gradient`: the sum of input gradients runs beside the weight
    gradients. `sends_once`: a token goes once to a rank, however many of its experts live there. `synchronous`: a
    launch waits for the kernel before it (CUDA_LAUNCH_BLOCKING). `accumulation_bytes`: what adding a micro-batch's
    gradient to those before it moves per parameter, in a pass of its own; 0 = the product that makes it adds.
    """

    launch_s: float = 10e-6
    step_s: float = 0.05
    tp_hidden: float = 0.0
    hides_input_gradient: bool = False
    sends_once: bool = False
    expert_launch_s: float = 0.0
    synchronous: bool = False
    accumulation_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Accelerators, their interconnect and the software on them."""

    accelerator: str
    fabric: Fabric
    software: Software = field(default_factory=Software)
    constants: Efficiency | None = None

    @property
    def efficiency(self) -> Efficiency:
        """The kernel constants in force."""
        return self.constants or efficiency(self.accelerator)

    @property
    def memory_bytes(self) -> int:
        """Memory of one device."""
        return accelerator(self.accelerator).memory_bytes


@dataclass(frozen=True, slots=True)
class Job:
    """A model and how its training step is spread: degrees, batch in sequences, schedule and memory options.

    Expert-parallel ranks are taken from the tensor, context and data ranks (an expert is whole on its rank). `zero`: 0
    nothing sharded over data ranks, 1 optimizer states, 2 gradients too, 3 weights too. `context`: how attention gets
    at the other ranks' tokens, by passing keys and values around or by exchanging heads for tokens.
    """

    model: Transformer
    global_batch: int
    micro_batch: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    chunks: int = 1
    schedule: str = ""
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    zero: int = 0
    overlap_gradients: bool = False
    overlap_pipeline: bool = False
    scatter_pipeline: bool = False
    gradient_bytes: float = 4.0
    dtype: str = "bf16"
    context: Context = "ring"

    @property
    def micro_batches(self) -> int:
        """Micro-batches a replica runs in a step; InputError when the batch does not divide."""
        count, rest = divmod(self.global_batch, self.dp * self.micro_batch)
        if rest or count < 1:
            expected = f"a multiple of dp x micro-batch = {self.dp * self.micro_batch}"
            raise InputError.at("global batch", "does not divide", expected=expected, found=str(self.global_batch))
        return count

    @property
    def schedule_name(self) -> str:
        """The schedule; interleaved where a stage holds several chunks and none is named."""
        return self.schedule or ("interleaved" if self.chunks > 1 else "1f1b")

    @property
    def plan(self) -> Schedule:
        """The pipeline schedule."""
        return make(self.schedule_name, self.pp, self.micro_batches, self.chunks if self.chunks > 1 else None)

    @property
    def outline(self) -> Schedule:
        """The schedule's shape without the order of its cells."""
        return outline(self.schedule_name, self.pp, self.micro_batches, self.chunks if self.chunks > 1 else None)

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients are cells of their own."""
        return splits_backward(self.schedule_name)

    @property
    def shard(self) -> Shard:
        """One rank's share of a layer."""
        return Shard(self.micro_batch, self.tp, self.cp, self.ep, self.sequence_parallel)

    @property
    def one_layer(self) -> Job:
        """The job as one layer sees it: what differs elsewhere is left at its default."""
        sharded = self.zero >= _SHARDS_EVERY_PASS
        return Job(
            model=self.model,
            global_batch=0,
            micro_batch=self.micro_batch,
            tp=self.tp,
            dp=self.dp if sharded else 1,
            cp=self.cp,
            ep=self.ep,
            sequence_parallel=self.sequence_parallel,
            recompute=self.recompute,
            zero=self.zero if sharded else 0,
            gradient_bytes=self.gradient_bytes if sharded else 0.0,
            dtype=self.dtype,
            context=self.context,
        )

    @property
    def replicas(self) -> int:
        """Ranks with the same dense weights."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Ranks with the same experts."""
        return max(1, self.dp * self.cp * self.tp // self.ep)

    @property
    def copies(self) -> int:
        """Pipelines that run against each other on the same stages, each with weights of its own."""
        return 2 if self._shape.placement == "twoway" else 1

    @property
    def _shape(self) -> Schedule:
        """Which stage holds which parts; the number of micro-batches does not matter."""
        return outline(self.schedule_name, self.pp, 1, self.chunks if self.chunks > 1 else None)

    def part_layers(self, parts: int) -> tuple[tuple[int, int], ...]:
        """(dense, expert) layers of every part of the model, as even as they go."""
        return _spread(self.model.layers, self._dense_layers, parts)

    @property
    def stage_layers(self) -> tuple[tuple[int, int], ...]:
        """(dense, expert) layers of every stage, of all its parts together."""
        return _held(self.model.layers, self._dense_layers, self._shape)

    @property
    def _dense_layers(self) -> int:
        return self.model.dense_layers if self.model.experts else self.model.layers

    def ends(self, stage: int) -> tuple[int, int]:
        """How many embeddings and how many heads a stage holds."""
        shape = self._shape
        parts = [shape.part(stage, chunk) for chunk in range(shape.chunks)]
        return parts.count(0), parts.count(shape.parts - 1)

    def tables(self, stage: int) -> int:
        """Word tables of a stage; a tied one serves the embedding and the head where they lie together."""
        embeddings, heads = self.ends(stage)
        together = self.model.tied and self.copies == 1
        return max(embeddings, heads) if together else embeddings + heads

    @property
    def ties_stages(self) -> bool:
        """Whether two stages hold the same word table and sum its gradients."""
        return self.model.tied and self.ends(0)[1] == 0


@lru_cache(maxsize=4096)
def _spread(layers: int, dense: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The first and last part, which do more, get none of the layers that do not divide; the first layers are dense."""
    base, extra = divmod(layers, parts)
    middle = sorted(range(parts), key=lambda part: (part in (0, parts - 1), part))[:extra]
    found, start = [], 0
    for part in range(parts):
        count = base + (part in middle)
        plain = max(0, min(dense - start, count))
        found.append((plain, count - plain))
        start += count
    return tuple(found)


@lru_cache(maxsize=4096)
def _held(layers: int, dense: int, shape: Schedule) -> tuple[tuple[int, int], ...]:
    """What every stage holds of `_spread`."""
    spread = _spread(layers, dense, shape.parts)
    held = [[spread[shape.part(stage, chunk)] for chunk in range(shape.chunks)] for stage in range(shape.stages)]
    return tuple((sum(plain for plain, _ in parts), sum(mixed for _, mixed in parts)) for parts in held)
