"""Time of a training step from the model's shape, the plan and the system, with no measurement of the job.

Layers take what their rows take alone (`simcore.cost.step`), the pipeline schedule is played cell by cell, then comes
what follows the last backward: gradient reduction, optimizer, parameter gathering.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from statistics import NormalDist

from simcore.cost.cluster import Cluster, Software
from simcore.cost.step import Cell, Machine, edge, layer, layer_plan
from simcore.model.held import Held, held_parameters, tied_gradient_bytes
from simcore.model.plan import Plan, split, unlike
from simcore.model.shape import Model, kinds
from simcore.model.steps import Axis
from simcore.system.collectives.nccl import collective_s, point_to_point_s
from simcore.workload.loops.schedules import Durations
from simcore.workload.loops.steady import length
from simcore.workload.model import CollectiveKind

__all__ = [
    "Cluster",
    "GradientSum",
    "Prediction",
    "Software",
    "gradient_sums",
    "lower_bound_s",
    "mean_work_s",
    "message_bytes",
    "messages_s",
    "part_cells",
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
def predict(model: Model, plan: Plan, cluster: Cluster) -> Prediction:
    """The step time of a model under a plan on a cluster."""
    pipeline_s, busy_s = _pipeline(model, plan, cluster)
    moves_s = _moves_s(model, plan, cluster)
    layers_s = busy_s - moves_s
    shares = _wait_shares(model, plan, cluster)
    parts = {
        "compute": layers_s * (1 - fsum(shares.values())),
        **{name: layers_s * share for name, share in shares.items()},
        "pipeline_parallel": moves_s,
        "bubble": pipeline_s - busy_s,
        "gradients": _gradients_s(model, plan, cluster, pipeline_s),
        "optimizer": _optimizer_s(model, plan, cluster),
        "stragglers": cluster.software.jitter * busy_s * slowest_of(plan.world_size),
        "other": cluster.software.step_s,
    }
    parts["losses"] = cluster.losses * fsum(parts.values())
    return Prediction(fsum(parts.values()), parts)


@lru_cache(maxsize=1024)
def slowest_of(ranks: int) -> float:
    """How many standard deviations the slowest of some ranks is behind the mean: the expected largest of so many
    normal values (Blom 1958).

    >>> round(slowest_of(8), 2), round(slowest_of(10_000), 2)
    (1.43, 3.84)
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


_WAITS = {
    "tensor_parallel": Axis.TENSOR,
    "context_parallel": Axis.CONTEXT,
    "expert_parallel": Axis.EXPERT,
    "sharding": Axis.DATA,
    "offload": Axis.HOST,
}


def _wait_shares(model: Model, plan: Plan, cluster: Cluster) -> dict[str, float]:
    """Exposed collectives in all layers, as shares of their time."""
    alike = {part: _alike(model, plan, part) for part in range(plan.outline.parts)}
    shown = {kind: part for part, kind in alike.items()}
    counts = Counter(alike.values())
    cells = [
        (cell, count * counts[kind])
        for kind, part in shown.items()
        for cell, count in part_cells(model, plan, cluster, part)
    ]
    whole_s = 1e-9 * sum(count * (cell.forward_ns + cell.backward_ns + cell.weight_ns) for cell, count in cells)
    return {
        name: fsum(count * cell.waits.get(axis, 0.0) for cell, count in cells) / whole_s
        for name, axis in _WAITS.items()
    }


def mean_work_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """What the busiest stage cannot beat: the mean of what all stages work and wait for, nothing sharded.

    A stage waits until the layers before it have its first micro-batch, and at the end for their backward. Plans that
    differ in ZeRO's level only have the same.
    """
    alike = layer_plan(replace(plan, zero=0, shard=0))
    again = plan.recompute == "full" and not plan.recompute_layers
    ends = [(edge(model, alike, cluster, last=last), 1) for last in (False, True)]
    deep = [(layer(model, alike, cluster, kind, again=again), n) for kind, n in kinds(model, range(model.depth))]
    work_ns = sum(count * (one.forward_ns + one.backward_ns + one.weight_ns) for one, count in (*ends, *deep))
    passed_ns = _mean_before(model, plan) * min(one.forward_ns + one.backward_ns for one, _ in deep)
    return 1e-9 * (work_ns * plan.micro_batches / plan.pp + passed_ns) + cluster.software.step_s


def _mean_before(model: Model, plan: Plan) -> float:
    """Layers before a stage's first part of the model, the mean of all stages."""
    starts = [layers.start for layers in split(model.depth, plan.outline.parts, plan.cuts)]
    return sum(min(starts[part] for part in plan.parts(stage)) for stage in range(plan.pp)) / plan.pp


def lower_bound_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """What no order of cells can beat: for every stage its fill, its work, its drain; then the end of the step.

    A stage starts when its first part's input is there; after its last backward the parts before it still have
    theirs. It builds no schedule, and costs a fraction of `predict`.
    """
    durations = part_times(model, plan, cluster)
    busy_s = max(_stage_bound_s(plan, durations, stage) for stage in range(plan.pp))
    tail_s = _gradients_s(model, plan, cluster, float("inf"))
    step_s = busy_s + tail_s + _optimizer_s(model, plan, cluster) + cluster.software.step_s
    return step_s * (1 + cluster.losses)


def _stage_bound_s(plan: Plan, durations: Durations, stage: int) -> float:
    parts = plan.parts(stage)
    fill_s, drain_s = (min(fsum(times[:part]) for part in parts) for times in (durations.forward, durations.backward))
    work_s, weights_s = _stage_work_s(plan, durations, stage)
    return fill_s + work_s + max(weights_s, drain_s)


def _stage_work_s(plan: Plan, durations: Durations, stage: int) -> tuple[float, float]:
    """Time of a stage's forward and backward cells, and of its weight gradients apart."""
    parts, runs = plan.parts(stage), plan.micro_batches / plan.copies
    both, apart = (
        runs * fsum(times[part] for times in some for part in parts)
        for some in ((durations.forward, durations.backward), (durations.weight,))
    )
    return both, apart


def predict_layer(model: Model, plan: Plan, cluster: Cluster, phase: str) -> Prediction:
    """One layer's "forward" or "backward" (recomputation included) for one micro-batch."""
    (cell, _), *_ = _layers(model, plan, cluster, range(1))
    seconds = 1e-9 * (cell.forward_ns if phase == "forward" else cell.backward_ns)
    return Prediction(seconds, {phase: seconds})


def _layers(model: Model, plan: Plan, cluster: Cluster, layers: range) -> list[tuple[Cell, int]]:
    """Cells of some layers of a part of the model, and how many there are of each."""
    alike = layer_plan(plan)
    return [
        (layer(model, alike, cluster, kind, again=again, away=away), count)
        for some, again, away in plan.layer_states(layers)
        for kind, count in kinds(model, some)
    ]


def part_cells(model: Model, plan: Plan, cluster: Cluster, part: int) -> list[tuple[Cell, int]]:
    """Cells of a part of the model in order, and how many there are of each."""
    alike, last = layer_plan(plan), plan.outline.parts - 1
    first = [(edge(model, alike, cluster, last=False), 1)] if part == 0 else []
    ends = [(edge(model, alike, cluster, last=True), 1)] if part == last else []
    return [*first, *_layers(model, plan, cluster, plan.layers(model, part)), *ends]


def _pipeline(model: Model, plan: Plan, cluster: Cluster) -> tuple[float, float]:
    """Length of the pipelined part and the busiest stage's busy time."""
    durations = part_times(model, plan, cluster)
    if plan.pp == 1 and plan.virtual_stages == 1:
        total = plan.micro_batches * (fsum(durations.forward) + fsum(durations.backward) + fsum(durations.weight))
        return total, total
    chunks = plan.virtual_stages if plan.virtual_stages > 1 else None
    makespan_s = length(plan.schedule_name, plan.pp, plan.micro_batches, chunks, durations)
    return makespan_s, max(fsum(_stage_work_s(plan, durations, stage)) for stage in range(plan.pp))


def _moves_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """What a stage waits for its transfers in a step: one behind every forward and one behind every backward."""
    cells = plan.micro_batches * (1 if plan.copies > 1 else plan.outline.chunks)
    return 0.0 if plan.overlap_pipeline else 2 * cells * max(messages_s(model, plan, cluster))


def part_times(model: Model, plan: Plan, cluster: Cluster) -> Durations:
    """Forward, backward and weight gradient of a micro-batch on every part of the model.

    Stages wait for their transfers, as part of a cell, in the pace of the slowest; overlapped, only what needs the data
    waits, for its own.
    """
    sent_s = messages_s(model, plan, cluster)
    blocked_s = 0.0 if plan.overlap_pipeline else max(sent_s)
    known: dict[tuple[object, ...], tuple[float, ...]] = {}
    times = []
    for part in range(plan.outline.parts):
        kind = _alike(model, plan, part)
        if kind not in known:
            cells = part_cells(model, plan, cluster, part)
            ahead, back, apart = (
                1e-9 * sum(count * time_ns for time_ns, count in some)
                for some in (
                    [(cell.forward_ns, count) for cell, count in cells],
                    [(cell.backward_ns, count) for cell, count in cells],
                    [(cell.weight_ns, count) for cell, count in cells],
                )
            )
            known[kind] = ahead + blocked_s, back + blocked_s, apart
        times.append(known[kind])
    forward, backward, weight = ([*some] for some in zip(*times, strict=True))
    return Durations(forward, backward, weight, sent_s if plan.overlap_pipeline else 0.0)


def _alike(model: Model, plan: Plan, part: int) -> tuple[object, ...]:
    """What tells a part of the model from others: parts with the same take as long."""
    ends = part == 0, part == plan.outline.parts - 1
    layers = plan.layers(model, part)
    return (*ends, len(layers), kinds(model, layers) if model.experts or model.window or model.encoder_layers else ())


def messages_s(model: Model, plan: Plan, cluster: Cluster) -> list[float]:
    """A transfer of activations from every stage to the next, from the last to the first."""
    if plan.pp == 1:
        return [0.0]
    width, node = plan.world_size // plan.pp, cluster.fabric.node_ranks
    size = message_bytes(model, plan)
    near, far = (point_to_point_s(size, cluster.fabric, same_node=same) for same in (True, False))
    nodes = [stage * width // node for stage in range(plan.pp)]
    return [near if one == other else far for one, other in zip(nodes, nodes[1:] + nodes[:1], strict=True)]


def message_bytes(model: Model, plan: Plan) -> float:
    """What a rank hands to the next stage: all activations, or its part where they are scattered over tensor ranks."""
    size = plan.tokens * model.hidden * plan.element_bytes
    return size / plan.tp if plan.sequence_parallel or plan.scatter_pipeline else size


@lru_cache(maxsize=4096)
def _fullest(model: Model, plan: Plan) -> Held:
    """Parameters of the fullest stage on one rank, of one pipeline."""
    held = max(
        (held_parameters(model, plan, stage) for stage in unlike(model, plan.outline, plan.cuts)),
        key=lambda one: one.whole,
    )
    copies = plan.copies
    counts = (held.dense, held.experts, held.replicated, held.trained, held.trained_experts)
    return Held(*(count // copies for count in counts))


_BACKWARD_SHARE = 2 / 3  # of a micro-batch's time: two products against the forward's one
_BUCKETS = 8  # gradient buckets of a stage, the last of which nothing can hide


@dataclass(frozen=True, slots=True)
class GradientSum:
    """A collective that ends a step, of whole buffers of `size_bytes`."""

    kind: CollectiveKind
    size_bytes: int
    axis: Axis

    def seconds(self, plan: Plan, cluster: Cluster) -> float:
        """What it takes by itself."""
        return Machine(plan, cluster).collective_s(self.kind, self.size_bytes, self.axis)


def gradient_sums(model: Model, plan: Plan) -> list[GradientSum]:
    """What ends a step for the replicated parameters, then for the experts'; nothing with ZeRO 3.

    ZeRO 1 scatters the sums of the gradients and gathers the new weights; ZeRO 2 has scattered them before, ZeRO 3
    gathers them in the next step (Rajbhandari et al. 2020, section 7).
    """
    held = _fullest(model, plan)
    scattered, gathered = (
        (CollectiveKind.REDUCE_SCATTER, plan.gradient_bytes),
        (CollectiveKind.ALL_GATHER, plan.parameter_bytes),
    )
    levels = {0: [(CollectiveKind.ALL_REDUCE, plan.gradient_bytes)], 1: [scattered, gathered], 2: [gathered]}
    return [
        GradientSum(kind, count * width, axis)
        for count, axis in ((held.trained, Axis.DATA), (held.trained_experts, Axis.EXPERT_DATA))
        for kind, width in levels.get(plan.zero, [])
        if count
    ]


def _gradients_s(model: Model, plan: Plan, cluster: Cluster, pipeline_s: float) -> float:
    """Exposed part of the gradient reduction over the data-parallel ranks, tied embeddings included.

    Overlapped, it hides behind what is left of the backward when a part of the model has its last gradient: one
    micro-batch's backward, or with interleaving that of a whole group of micro-batches; the last bucket stays
    exposed.
    """
    whole = fsum(one.seconds(plan, cluster) for one in gradient_sums(model, plan))
    if plan.overlap:
        window = pipeline_s / plan.micro_batches * _BACKWARD_SHARE * (plan.pp if plan.virtual_stages > 1 else 1)
        shown = max(whole - window, whole / _BUCKETS)
        whole = shown + Machine(plan, cluster).slowdown(Axis.DATA) * (whole - shown)
    owners_s = cluster.software.owner_s * plan.sharing if plan.zero == 1 and plan.sharing > 1 else 0.0
    return whole + owners_s + _tied_s(model, plan, cluster)


def _tied_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """Sum of the first and last stages' gradients of a tied embedding."""
    size = tied_gradient_bytes(model, plan)
    inside = plan.world_size <= cluster.fabric.node_ranks
    return collective_s(CollectiveKind.ALL_REDUCE, size, 2, 2 if inside else 1, cluster.fabric) if size else 0.0


def _optimizer_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    held = _fullest(model, plan)
    owned = held.owned(plan) if plan.zero else held.trained + held.trained_experts
    return Machine(plan, cluster).optimizer_s(owned)
