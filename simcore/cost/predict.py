"""Time of a training step from the model's shape, the parallelisation and the system, with no measurement of the job.

Kernels by the roofline, collectives by the system's fitted lines, the pipeline schedule played cell by cell, then what
follows the last backward: gradient reduction, optimizer, parameter gathering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from simcore.compute.accelerators import accelerator
from simcore.compute.efficiency import Efficiency, efficiency
from simcore.compute.operations import (
    Operation,
    Shard,
    Transformer,
    embedding_operations,
    head_operations,
    layer_operations,
    layer_parameters,
    optimizer_operations,
)
from simcore.compute.roofline import duration_s
from simcore.errors import InputError
from simcore.system.collectives.nccl import Fabric, collective_s, point_to_point_s
from simcore.workload.loops.schedules import Durations, Schedule, make, play
from simcore.workload.model import CollectiveKind, PhaseName

__all__ = ["Cluster", "Job", "Prediction", "Recompute", "Software", "lower_bound_s", "predict", "predict_layer"]

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class Software:
    """What a training framework on its hosts costs beyond kernels.

    `launch_s`: host time per kernel class; a pass whose launches take longer than its kernels takes that long.
    `step_s`: once a step (data, logging, gradient-norm synchronisation). `tp_hidden`: share of the tensor-parallel
    collectives that computes meanwhile. `hides_input_gradient`: the sum of input gradients runs beside the weight
    gradients.
    """

    launch_s: float = 10e-6
    step_s: float = 0.05
    tp_hidden: float = 0.0
    hides_input_gradient: bool = False


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
    """A model and how its training step is spread: degrees, batch in sequences, schedule and memory options."""

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

    @property
    def micro_batches(self) -> int:
        """Micro-batches a replica runs in a step; InputError when the batch does not divide."""
        count, rest = divmod(self.global_batch, self.dp * self.micro_batch)
        if rest or count < 1:
            expected = f"a multiple of dp x micro-batch = {self.dp * self.micro_batch}"
            raise InputError.at("global batch", "does not divide", expected=expected, found=str(self.global_batch))
        return count

    @property
    def plan(self) -> Schedule:
        """The pipeline schedule; interleaved where a stage holds several chunks and none is named."""
        name = self.schedule or ("interleaved" if self.chunks > 1 else "1f1b")
        return make(name, self.pp, self.micro_batches, self.chunks if self.chunks > 1 else None)

    @property
    def shard(self) -> Shard:
        """One rank's share of a layer."""
        return Shard(self.micro_batch, self.tp, self.cp, self.ep, self.sequence_parallel)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a step and what they consist of on the stage that decides; `parts` add up to `step_s`."""

    step_s: float
    parts: dict[str, float]


@lru_cache(maxsize=4096)
def predict(job: Job, cluster: Cluster) -> Prediction:
    """The step time of `job` on `cluster`."""
    pipeline_s, busy_s = _pipeline(job, cluster)
    layer = _layer_times(job, cluster)
    gradients_s = _gradients_s(job, cluster, pipeline_s)
    optimizer_s = _optimizer_s(job, cluster)
    parts = {
        "compute": busy_s * layer.compute_share,
        "tensor_parallel": busy_s * (1 - layer.compute_share),
        "bubble": pipeline_s - busy_s,
        "gradients": gradients_s,
        "optimizer": optimizer_s,
        "other": cluster.software.step_s,
    }
    return Prediction(sum(parts.values()), parts)


def lower_bound_s(job: Job, cluster: Cluster) -> float:
    """What no order of cells can beat: the busiest stage without waiting, and what follows the last backward."""
    durations, plan = _part_times(job, cluster), job.plan
    whole = [sum(times) for times in zip(durations.forward, durations.backward, durations.weight, strict=True)]
    held = [[plan.part(stage, chunk) for chunk in range(plan.chunks)] for stage in range(job.pp)]
    runs = job.micro_batches / 2 if plan.placement == "twoway" else job.micro_batches
    busy_s = max(sum(whole[part] for part in parts) for parts in held) * runs
    tail_s = 0.0 if job.overlap_gradients else _gradients_s(job, cluster, busy_s)
    return busy_s + tail_s + _optimizer_s(job, cluster) + cluster.software.step_s


def predict_layer(job: Job, cluster: Cluster, phase: str) -> Prediction:
    """One layer's "forward" or "backward" (recomputation included) for one micro-batch."""
    layer = _layer_times(job, cluster)
    seconds = layer.forward_s if phase == "forward" else layer.backward_s
    return Prediction(seconds, {phase: seconds})


@dataclass(frozen=True, slots=True)
class _LayerTimes:
    """Of one layer and micro-batch; `weight_s` is the part of `backward_s` that weight gradients take."""

    forward_s: float
    backward_s: float
    weight_s: float
    compute_share: float


@lru_cache(maxsize=8192)
def _layer_times(job: Job, cluster: Cluster) -> _LayerTimes:
    """A layer's forward and whole backward on one rank, recomputation and exposed collectives included."""
    model, shard, launch = job.model, job.shard, cluster.software.launch_s
    forward = layer_operations(model, shard, PhaseName.FORWARD)
    weights = layer_operations(model, shard, PhaseName.WEIGHT_GRAD)
    gradients = [*layer_operations(model, shard, PhaseName.INPUT_GRAD), *weights]
    again = _recomputed(job, forward)
    collectives_s = _tensor_parallel_s(job, cluster)
    forward_s = max(_device_s(forward, job, cluster) + collectives_s, _calls(forward) * launch)
    repeat_s = collectives_s if job.recompute == "full" else 0.0
    behind_s = collectives_s * _backward_exposed(job, cluster.software)
    device_s = _device_s([*again, *gradients], job, cluster) + behind_s + repeat_s
    backward_s = max(device_s, (_calls(gradients) + _calls(again)) * launch)
    weight_s = max(_device_s(weights, job, cluster), _calls(weights) * launch)
    total = forward_s + backward_s
    return _LayerTimes(forward_s, backward_s, weight_s, 1 - (collectives_s + behind_s + repeat_s) / total)


# A collective beside a product slows it: 38 % of the hidden time comes back (Echo, arXiv 2412.12487, mean slowdown).
_SLOWDOWN = 0.38


def _backward_exposed(job: Job, software: Software) -> float:
    """What the backward's tensor-parallel collectives cost, over their own time.

    Hidden behind weight gradients: the all-reduces of input gradients, or with sequence parallelism their
    reduce-scatter half; the all-gather before them stays exposed (Korthikanti et al. 2023, section 4.2.2).
    """
    if not software.hides_input_gradient:
        return 1.0
    exposed = 0.5 if job.sequence_parallel else 0.0
    return exposed + (1 - exposed) * _SLOWDOWN


def _recomputed(job: Job, forward: Sequence[Operation]) -> list[Operation]:
    """Forward operations that run again before the backward."""
    if job.recompute == "full":
        return list(forward)
    if job.recompute == "selective" and job.model.attention == "unfused":
        return [operation for operation in forward if operation.name in _SELECTIVE]
    return []


# What selective recomputation drops and recomputes: the parts of the attention whose size grows with seq x seq
# (Korthikanti et al. 2023, section 5). Fused attention keeps nothing of the kind.
_SELECTIVE = {"scores", "softmax", "attention dropout", "scores by values"}


def _calls(operations: Iterable[Operation]) -> int:
    return sum(operation.kernels for operation in operations)


def _device_s(operations: Iterable[Operation], job: Job, cluster: Cluster) -> float:
    device = accelerator(cluster.accelerator)
    return sum(duration_s(operation, device, job.dtype, cluster.efficiency) for operation in operations)


def _tensor_parallel_s(job: Job, cluster: Cluster) -> float:
    """Exposed tensor-parallel collectives of one pass through a layer: an all-reduce behind each half of the block.

    With sequence parallelism a reduce-scatter and an all-gather take the all-reduce's place and cost the same.
    """
    blocks = 1 if job.model.parallel_block else 2
    size = job.shard.tokens(job.model) * job.model.hidden * job.shard.element_bytes
    once = collective_s(CollectiveKind.ALL_REDUCE, size, job.tp, min(job.tp, cluster.fabric.node_ranks), cluster.fabric)
    return blocks * once * (1 - cluster.software.tp_hidden)


def _pipeline(job: Job, cluster: Cluster) -> tuple[float, float]:
    """Length of the pipelined part and the busiest stage's busy time."""
    durations = _part_times(job, cluster)
    if job.pp == 1 and job.chunks == 1:
        total = job.micro_batches * (sum(durations.forward) + sum(durations.backward) + sum(durations.weight))
        return total, total
    played = play(job.plan, durations)
    return played.makespan, max(played.busy(stage) for stage in range(job.pp))


def _part_times(job: Job, cluster: Cluster) -> Durations:
    """Forward, backward and weight gradient of a micro-batch on every part of the model, with blocking transfers."""
    layer, plan = _layer_times(job, cluster), job.plan
    counts = _layer_counts(job.model.layers, plan.parts)
    message_s = 0.0 if job.pp == 1 or job.overlap_pipeline else _message_s(job, cluster)
    weight = [count * layer.weight_s if plan.splits_backward else 0.0 for count in counts]
    forward = [count * layer.forward_s + message_s for count in counts]
    backward = [count * layer.backward_s + message_s - apart for count, apart in zip(counts, weight, strict=True)]
    for place, operations in ((0, embedding_operations), (-1, head_operations)):
        ahead, back = _edge_s(job, cluster, operations)
        forward[place] += ahead
        backward[place] += back
    return Durations(forward, backward, weight)


def _layer_counts(layers: int, parts: int) -> list[int]:
    """Layers per part, as even as they go; the first and last part, which do more, get none extra.

    >>> _layer_counts(10, 4)
    [2, 3, 3, 2]
    """
    base, extra = divmod(layers, parts)
    middle = sorted(range(parts), key=lambda part: (part in (0, parts - 1), part))
    return [base + (part in middle[:extra]) for part in range(parts)]


def _message_s(job: Job, cluster: Cluster) -> float:
    """A blocking transfer of activations to the next stage; scattered over the tensor ranks where configured."""
    size = job.shard.tokens(job.model) * job.model.hidden * job.shard.element_bytes
    if job.sequence_parallel or job.scatter_pipeline:
        size /= job.tp
    inside = job.tp * job.dp * job.cp * 2 <= cluster.fabric.node_ranks
    return point_to_point_s(size, cluster.fabric, same_node=inside)


_Edge = Callable[[Transformer, Shard, PhaseName], tuple[Operation, ...]]


def _edge_s(job: Job, cluster: Cluster, operations: _Edge) -> tuple[float, float]:
    """Forward and backward of the embedding or the head."""
    launch = cluster.software.launch_s
    ahead = operations(job.model, job.shard, PhaseName.FORWARD)
    back = [
        *operations(job.model, job.shard, PhaseName.INPUT_GRAD),
        *operations(job.model, job.shard, PhaseName.WEIGHT_GRAD),
    ]
    seconds = [max(_device_s(some, job, cluster), _calls(some) * launch) for some in (ahead, back)]
    return seconds[0], seconds[1]


def _stage_parameters(job: Job) -> float:
    """Parameters of the fullest stage on one rank."""
    model = job.model
    layers = max(_layer_counts(model.layers, job.pp))
    experts = layer_parameters(model) if model.experts else layer_parameters(model, dense=True)
    table = model.vocab * model.hidden * (2 if job.pp == 1 and not model.tied else 1)
    return (layers * experts + table) / job.tp


_BACKWARD_SHARE = 2 / 3  # of a micro-batch's time: two products against the forward's one
_BUCKETS = 8  # gradient buckets of a stage, the last of which nothing can hide


def _gradients_s(job: Job, cluster: Cluster, pipeline_s: float) -> float:
    """Exposed part of the gradient reduction over the data-parallel ranks, tied embeddings included.

    Overlapped, it hides behind what is left of the backward when a part of the model has its last gradient: one
    micro-batch's backward, or with interleaving that of a whole group of micro-batches; the last bucket stays
    exposed.
    """
    ranks = job.dp * job.cp
    per_node = max(1, min(ranks, cluster.fabric.node_ranks // job.tp))
    size = _stage_parameters(job) * job.gradient_bytes
    whole = collective_s(CollectiveKind.ALL_REDUCE, size, ranks, per_node, cluster.fabric)
    if job.overlap_gradients:
        window = pipeline_s / job.micro_batches * _BACKWARD_SHARE * (job.pp if job.chunks > 1 else 1)
        whole = max(whole - window, whole / _BUCKETS)
    return whole + _tied_s(job, cluster)


def _tied_s(job: Job, cluster: Cluster) -> float:
    """Sum of the first and last stages' gradients of a tied embedding."""
    if job.pp == 1 or not job.model.tied:
        return 0.0
    size = job.model.vocab * job.model.hidden / job.tp * job.gradient_bytes
    inside = job.tp * job.dp * job.cp * job.pp <= cluster.fabric.node_ranks
    per_node = 2 if inside else 1
    return collective_s(CollectiveKind.ALL_REDUCE, size, 2, per_node, cluster.fabric)


def _optimizer_s(job: Job, cluster: Cluster) -> float:
    owned = _stage_parameters(job) / (job.dp if job.zero else 1)
    return _device_s(optimizer_operations(owned), job, cluster)
