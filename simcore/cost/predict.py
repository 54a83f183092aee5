"""Time of a training step from the model's shape, the parallelisation and the system, with no measurement of the job.

Kernels by the roofline, collectives by the system's fitted lines, the pipeline schedule played cell by cell, then what
follows the last backward: gradient reduction, optimizer, parameter gathering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum

from simcore.compute.operations import (
    Operation,
    Shard,
    Transformer,
    accumulation_operations,
    embedding_operations,
    head_operations,
    optimizer_operations,
)
from simcore.cost.job import Cluster, Job, Recompute, Software
from simcore.cost.layer import LayerTimes, device_s, exposed_s, layer_times, per_node, sharding_s, slowest_s
from simcore.cost.memory import stage_parameters
from simcore.system.collectives.nccl import collective_s, point_to_point_s
from simcore.workload.loops.schedules import Durations
from simcore.workload.loops.steady import length
from simcore.workload.model import CollectiveKind, PhaseName

__all__ = [
    "Cluster",
    "GradientSum",
    "Job",
    "Prediction",
    "Recompute",
    "Software",
    "gradient_sums",
    "lower_bound_s",
    "message_bytes",
    "messages_s",
    "part_times",
    "predict",
    "predict_layer",
]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a step and what they consist of on the stage that decides; `parts` add up to `step_s`."""

    step_s: float
    parts: dict[str, float]


@lru_cache(maxsize=4096)
def predict(job: Job, cluster: Cluster) -> Prediction:
    """The step time of `job` on `cluster`."""
    pipeline_s, busy_s = _pipeline(job, cluster)
    moves_s = _moves_s(job, cluster)
    layers_s = busy_s - moves_s
    shares = _wait_shares(job, cluster)
    parts = {
        "compute": layers_s * (1 - fsum(shares.values())),
        **{name: layers_s * share for name, share in shares.items()},
        "pipeline_parallel": moves_s,
        "bubble": pipeline_s - busy_s,
        "gradients": _gradients_s(job, cluster, pipeline_s),
        "optimizer": _optimizer_s(job, cluster),
        "other": cluster.software.step_s,
    }
    return Prediction(fsum(parts.values()), parts)


def _wait_shares(job: Job, cluster: Cluster) -> dict[str, float]:
    """Exposed collectives in all layers, as shares of their time."""
    counts = job.part_layers(1)[0]
    kinds = [(count, _layer(job, cluster, dense)) for count, dense in zip(counts, (True, False), strict=True) if count]
    whole = fsum(count * (layer.forward_s + layer.backward_s) for count, layer in kinds)
    return {name: fsum(count * layer.waits[name] for count, layer in kinds) / whole for name in kinds[0][1].waits}


def lower_bound_s(job: Job, cluster: Cluster) -> float:
    """What no order of cells can beat: for every stage its fill, its work, its drain; then the end of the step.

    A stage starts when its first part's input is there; after its last backward the parts before it still have
    theirs. It builds no schedule, and costs a fraction of `predict`.
    """
    durations = part_times(job, cluster)
    busy_s = max(_stage_bound_s(job, durations, stage) for stage in range(job.pp))
    tail_s = _gradients_s(job, cluster, float("inf"))
    return busy_s + tail_s + _optimizer_s(job, cluster) + cluster.software.step_s


def _stage_bound_s(job: Job, durations: Durations, stage: int) -> float:
    outline = job.outline
    parts = [outline.part(stage, chunk) for chunk in range(outline.chunks)]
    fill_s, drain_s = (min(fsum(times[:part]) for part in parts) for times in (durations.forward, durations.backward))
    work_s, weights_s = _stage_work_s(job, durations, stage)
    return fill_s + work_s + max(weights_s, drain_s)


def _stage_work_s(job: Job, durations: Durations, stage: int) -> tuple[float, float]:
    """Time of a stage's forward and backward cells, and of its weight gradients apart."""
    outline = job.outline
    parts = [outline.part(stage, chunk) for chunk in range(outline.chunks)]
    runs = job.micro_batches / 2 if outline.placement == "twoway" else job.micro_batches
    both, apart = (
        runs * fsum(times[part] for times in some for part in parts)
        for some in ((durations.forward, durations.backward), (durations.weight,))
    )
    return both, apart


def predict_layer(job: Job, cluster: Cluster, phase: str) -> Prediction:
    """One layer's "forward" or "backward" (recomputation included) for one micro-batch."""
    layer = _layer(job, cluster, not job.model.experts)
    seconds = layer.forward_s if phase == "forward" else layer.backward_s
    return Prediction(seconds, {phase: seconds})


def _layer(job: Job, cluster: Cluster, dense: bool) -> LayerTimes:
    return layer_times(job.one_layer, cluster, dense=dense)


def _pipeline(job: Job, cluster: Cluster) -> tuple[float, float]:
    """Length of the pipelined part and the busiest stage's busy time."""
    durations = part_times(job, cluster)
    if job.pp == 1 and job.chunks == 1:
        total = job.micro_batches * (fsum(durations.forward) + fsum(durations.backward) + fsum(durations.weight))
        return total, total
    chunks = job.chunks if job.chunks > 1 else None
    makespan_s = length(job.schedule_name, job.pp, job.micro_batches, chunks, durations)
    return makespan_s, max(fsum(_stage_work_s(job, durations, stage)) for stage in range(job.pp))


def _moves_s(job: Job, cluster: Cluster) -> float:
    """What a stage waits for its transfers in a step: one behind every forward and one behind every backward."""
    cells = job.micro_batches * (1 if job.outline.placement == "twoway" else job.outline.chunks)
    return 0.0 if job.overlap_pipeline else 2 * cells * max(messages_s(job, cluster))


def part_times(job: Job, cluster: Cluster) -> Durations:
    """Forward, backward and weight gradient of a micro-batch on every part of the model.

    Stages wait for their transfers, as part of a cell, in the pace of the slowest; overlapped, only what needs the data
    waits, for its own.
    """
    outline = job.outline
    kinds = [_layer(job, cluster, dense) for dense in ((True, False) if job.model.experts else (True, True))]
    counts = job.part_layers(outline.parts)
    sent_s = messages_s(job, cluster)
    blocked_s = 0.0 if job.overlap_pipeline else max(sent_s)

    def over_layers(times: Sequence[float]) -> list[float]:
        return [plain * times[0] + expert * times[1] for plain, expert in counts]

    weight = over_layers([layer.weight_s if job.splits_backward else 0.0 for layer in kinds])
    forward = [seconds + blocked_s for seconds in over_layers([layer.forward_s for layer in kinds])]
    whole = over_layers([layer.backward_s for layer in kinds])
    backward = [seconds + blocked_s - apart for seconds, apart in zip(whole, weight, strict=True)]
    for place, operations in ((0, embedding_operations), (-1, head_operations)):
        ahead, back = _edge_s(job, cluster, operations)
        forward[place] += ahead
        backward[place] += back
    return Durations(forward, backward, weight, sent_s if job.overlap_pipeline else 0.0)


def messages_s(job: Job, cluster: Cluster) -> list[float]:
    """A transfer of activations from every stage to the next, from the last to the first."""
    if job.pp == 1:
        return [0.0]
    width, node = job.tp * job.dp * job.cp, cluster.fabric.node_ranks
    near, far = (point_to_point_s(message_bytes(job), cluster.fabric, same_node=same) for same in (True, False))
    nodes = [stage * width // node for stage in range(job.pp)]
    return [near if one == other else far for one, other in zip(nodes, nodes[1:] + nodes[:1], strict=True)]


def message_bytes(job: Job) -> float:
    """What a rank hands to the next stage: all activations, or its part where they are scattered over tensor ranks."""
    size = job.shard.tokens(job.model) * job.model.hidden * job.shard.element_bytes
    return size / job.tp if job.sequence_parallel or job.scatter_pipeline else size


_Edge = Callable[[Transformer, Shard, PhaseName], tuple[Operation, ...]]


def _edge_s(job: Job, cluster: Cluster, operations: _Edge) -> tuple[float, float]:
    """Forward and backward of the embedding or the head."""
    table = job.model.vocab * job.model.hidden / job.tp
    ahead = operations(job.model, job.shard, PhaseName.FORWARD)
    back = [
        *operations(job.model, job.shard, PhaseName.INPUT_GRAD),
        *operations(job.model, job.shard, PhaseName.WEIGHT_GRAD),
        *accumulation_operations(table, cluster.software.accumulation_bytes),
    ]
    forward_s, backward_s = (slowest_s(some, job, cluster) for some in (ahead, back))
    gather_s, reduce_s = sharding_s(job, cluster, table)
    return forward_s + exposed_s(gather_s, forward_s), backward_s + exposed_s(gather_s + reduce_s, backward_s)


def _stage_parameters(job: Job) -> tuple[float, float]:
    """Parameters of the fullest stage on one rank, of one pipeline: the replicated ones and the experts."""
    plain, experts = max((stage_parameters(job, stage) for stage in range(job.pp)), key=sum)
    return plain / job.copies, experts / job.copies


_BACKWARD_SHARE = 2 / 3  # of a micro-batch's time: two products against the forward's one
_BUCKETS = 8  # gradient buckets of a stage, the last of which nothing can hide


@dataclass(frozen=True, slots=True)
class GradientSum:
    """A collective that ends a step: `size_bytes` on `ranks` that stand `stride` apart."""

    kind: CollectiveKind
    size_bytes: float
    ranks: int
    stride: int

    def seconds(self, job: Job, cluster: Cluster) -> float:
        """What it takes by itself."""
        inside = per_node(job, cluster, self.ranks, self.stride)
        return collective_s(self.kind, self.size_bytes, self.ranks, inside, cluster.fabric)


def gradient_sums(job: Job) -> list[GradientSum]:
    """What ends a step for the replicated parameters, then for the experts'; nothing with ZeRO 3.

    ZeRO 1 scatters the sums of the gradients and gathers the new weights; ZeRO 2 has scattered them before, ZeRO 3
    gathers them in the next step (Rajbhandari et al. 2020, section 7).
    """
    plain, experts = _stage_parameters(job)
    gradients, weights = job.gradient_bytes, job.shard.element_bytes
    scattered, gathered = (CollectiveKind.REDUCE_SCATTER, gradients), (CollectiveKind.ALL_GATHER, weights)
    summed = (CollectiveKind.ALL_REDUCE, gradients)
    levels = {0: [summed], 1: [scattered, gathered], 2: [gathered]}
    return [
        GradientSum(kind, size * width, ranks, stride)
        for size, ranks, stride in ((plain, job.replicas, job.tp), (experts, job.expert_replicas, job.ep))
        for kind, width in levels.get(job.zero, [])
    ]


def _gradients_s(job: Job, cluster: Cluster, pipeline_s: float) -> float:
    """Exposed part of the gradient reduction over the data-parallel ranks, tied embeddings included.

    Overlapped, it hides behind what is left of the backward when a part of the model has its last gradient: one
    micro-batch's backward, or with interleaving that of a whole group of micro-batches; the last bucket stays
    exposed.
    """
    whole = fsum(one.seconds(job, cluster) for one in gradient_sums(job))
    if job.overlap_gradients:
        window = pipeline_s / job.micro_batches * _BACKWARD_SHARE * (job.pp if job.chunks > 1 else 1)
        whole = max(whole - window, whole / _BUCKETS)
    return whole + _tied_s(job, cluster)


def _tied_s(job: Job, cluster: Cluster) -> float:
    """Sum of the first and last stages' gradients of a tied embedding."""
    if not job.ties_stages:
        return 0.0
    size = job.model.vocab * job.model.hidden / job.tp * job.gradient_bytes
    inside = job.tp * job.dp * job.cp * job.pp <= cluster.fabric.node_ranks
    return collective_s(CollectiveKind.ALL_REDUCE, size, 2, 2 if inside else 1, cluster.fabric)


def _optimizer_s(job: Job, cluster: Cluster) -> float:
    plain, experts = _stage_parameters(job)
    owned = plain / job.replicas + experts / job.expert_replicas if job.zero else plain + experts
    return device_s(optimizer_operations(owned), job, cluster)
