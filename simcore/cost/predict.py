"""Time of a training step from the model's shape, the plan and the system, with no measurement of the job.

Layers take what their rows take alone (`simcore.cost.step`), the pipeline schedule is played cell by cell, then comes
what follows the last backward: gradient reduction, optimizer, parameter gathering.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, product
from math import fsum, isinf
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from simcore.cost.step import Cell, Machine, cells_of, cut_of, end_cells, scales_of, seats, stage_seats
from simcore.cost.systems import Cluster, Software
from simcore.model.memory import fullest_parameters, tied_gradient_bytes
from simcore.model.plan import Plan, alike, stage_parts
from simcore.model.rows import Sum, sums
from simcore.model.shape import Model
from simcore.model.steps import Axis
from simcore.system.collectives.nccl import Fabric, collective_s, point_to_point_s
from simcore.units import whole_ns
from simcore.workload.loops.schedules import Schedule
from simcore.workload.loops.timing import Durations, stage_ends
from simcore.workload.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a step and what they consist of on the stage that decides; `parts` add up to `step_s`."""

    step_s: float
    parts: dict[str, float]


@lru_cache(maxsize=4096)
def predict(model: Model, plan: Plan, cluster: Cluster) -> Prediction:
    """The step time of a model under a plan on a cluster."""
    ends_s, busy_s = _pipeline(model, plan, cluster)
    pipeline_s = max(ends_s)
    # What a stage waits for its transfers: one behind every forward and one behind every backward.
    moved = plan.micro_batches * (1 if plan.copies > 1 else plan.outline.chunks)
    moves_s = 1e-9 * moved * int(_waits_ns(model, plan, cluster).sum())
    layers_s = busy_s - moves_s
    cut = cut_of(plan)
    counts = Counter(_unlike_parts(model, cut, seats(plan, cluster))).items()
    cells = [(cell, count * many) for (part, at), many in counts for cell, count in part_cells(model, cut, at, part)]
    whole_s = 1e-9 * sum(count * cell.busy_ns for cell, count in cells)
    shares = {  # exposed collectives in all layers, of their time
        name: fsum(count * cell.waits.get(axis, 0.0) for cell, count in cells) / whole_s
        for name, axis in _WAITS.items()
    }
    parts = {
        "compute": layers_s * (1 - fsum(shares.values())),
        **{name: layers_s * share for name, share in shares.items()},
        "pipeline_parallel": moves_s,
        "bubble": pipeline_s - busy_s,
        "gradients": _gradients_s(model, plan, cluster, pipeline_s),
        "optimizer": _optimizer_s(model, plan, cluster),
        "stragglers": _stragglers_s(plan, cluster, busy_s),
        "other": cluster.software.step_s,
    }
    parts["losses"] = cluster.losses * fsum(parts.values())
    return Prediction(fsum(parts.values()), parts)


@lru_cache(maxsize=1024)
def slowest_of(ranks: int) -> float:
    """How many standard deviations the slowest of ranks is behind the mean: of normal values the largest (Blom 1958).

    >>> round(slowest_of(8), 2), round(slowest_of(10_000), 2)
    (1.43, 3.84)
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


_WAITS = {str(axis): axis for axis in (Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT)}
_WAITS |= {"sharding": Axis.DATA, "offload": Axis.HOST}


def mean_bound_s(model: Model, plan: Plan, cluster: Cluster, *, shared: bool) -> float:
    """As `stage_bound_s` of a stage with its share of the work, which the busiest has at least: cheaper.

    `shared`: of this plan, not of all that share differently. 0 where the host keeps some layers; where some are
    computed again, as if none were or all, whichever is shorter.
    """
    cut = (cut_of(plan) if shared else _unshared(plan)).but(pp=1, cuts=())
    if cut.offload_layers:
        return 0.0
    kinds = ("none", "full") if cut.recompute_layers else (cut.recompute,)
    cuts = (cut.but(recompute=again, recompute_layers=0) for again in kinds)
    each_ns = min(int(_passes_ns(model, one, at).sum()) for one, at in product(cuts, {*seats(plan, cluster)}))
    busy_s = 1e-9 * plan.micro_batches * each_ns / plan.pp
    return _with_rest_s(busy_s, busy_s, plan, cluster)


def stage_bound_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """As `lower_bound_s` without what replicas do for each other: the same for plans that share differently."""
    pipeline_s, busy_s = _least_s(model, plan, cluster, _unshared(plan))
    return _with_rest_s(pipeline_s, busy_s, plan, cluster)


def _unshared(plan: Plan) -> Plan:
    """A plan's cells without what replicas do for each other, nor weights from the host, of which sharers get less."""
    return cut_of(plan.but(zero=0, offload=tuple(what for what in plan.offload if what != "weights")))


def lower_bound_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    """What no order of cells can beat: for every stage its fill, its work, its drain; stragglers; the end of the step.

    A stage starts when its first part's input is there; after its last backward the parts before it still have
    theirs. It builds no schedule, and costs a fraction of `predict`.
    """
    pipeline_s, busy_s = _least_s(model, plan, cluster, cut_of(plan))
    end_s = _gradients_s(model, plan, cluster, float("inf")) + _optimizer_s(model, plan, cluster)
    return _with_rest_s(pipeline_s + end_s, busy_s, plan, cluster)


def _with_rest_s(seconds: float, busy_s: float, plan: Plan, cluster: Cluster) -> float:
    """With stragglers, what software costs once a step, and what a run loses."""
    return (seconds + _stragglers_s(plan, cluster, busy_s) + cluster.software.step_s) * (1 + cluster.losses)


def _least_s(model: Model, plan: Plan, cluster: Cluster, cut: Plan) -> tuple[float, float]:
    """What the pipelined part takes at least, and the work of the busiest stage."""
    waits_ns = 0 if plan.overlap_pipeline else max(messages_ns(model, plan, cluster))
    return _least(model, seats(plan, cluster), cut, plan.outline, plan.micro_batches / plan.copies, waits_ns)


@lru_cache(maxsize=1 << 14)
def _least(
    model: Model, clusters: tuple[Cluster, ...], cut: Plan, outline: Schedule, runs: float, waits_ns: int
) -> tuple[float, float]:
    forward, backward, weight = _passes_ns(model, cut, *clusters)
    forward, backward, (parts, first) = forward + waits_ns, backward + waits_ns, _held(outline)
    fill, drain = (np.cumsum(some)[first] - some[first] for some in (forward, backward))
    work, weights = (runs * some[parts].sum(axis=1) for some in (forward + backward, weight))
    return 1e-9 * float((fill + work + np.maximum(weights, drain)).max()), 1e-9 * float((work + weights).max())


def _stragglers_s(plan: Plan, cluster: Cluster, busy_s: float) -> float:
    """What waiting for the slowest rank of a step costs."""
    return cluster.software.jitter * busy_s * slowest_of(plan.world_size)


@lru_cache(maxsize=1024)
def _held(outline: Schedule) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The parts of every stage, and the first of them."""
    parts = np.array(stage_parts(outline))
    return parts, parts.min(axis=1)


def predict_layer(model: Model, plan: Plan, cluster: Cluster, phase: str) -> Prediction:
    """One layer's "forward" or "backward" (recomputation included) for one micro-batch."""
    (cell, _), *_ = cells_of(model, cut_of(plan), cluster, 0)
    seconds = 1e-9 * (cell.forward_ns if phase == "forward" else cell.backward_ns)
    return Prediction(seconds, {phase: seconds})


def part_cells(model: Model, cut: Plan, cluster: Cluster, part: int) -> list[tuple[Cell, int]]:
    """Cells of a part of the model in order (its plan is that of `cut_of`), and how many there are of each."""
    first = end_cells(model, cut, cluster, last=False) if part == 0 else []
    ends = end_cells(model, cut, cluster, last=True) if part == cut.pp - 1 else []
    return [*first, *cells_of(model, cut, cluster, part), *scales_of(cut, cluster), *ends]


@lru_cache(maxsize=4096)
def _pipeline(model: Model, plan: Plan, cluster: Cluster) -> tuple[tuple[float, ...], float]:
    """When every stage is through with the pipelined part, and the busiest stage's busy time."""
    times = part_times_ns(model, plan, cluster)
    each = np.array([[*times.forward], [*times.backward], [*times.weight]]).sum(axis=0)
    busy_s = 1e-9 * (float(each[_held(plan.outline)[0]].sum(axis=1).max()) * plan.micro_batches / plan.copies)
    if plan.pp == 1 and plan.virtual_stages == 1:
        return (busy_s,), busy_s
    chunks = plan.virtual_stages if plan.virtual_stages > 1 else None
    ends_ns = stage_ends(plan.schedule_name, plan.pp, plan.micro_batches, chunks, times)
    return tuple((1e-9 * ends_ns).tolist()), busy_s


def part_times_ns(model: Model, plan: Plan, cluster: Cluster) -> Durations:
    """Nanoseconds of forward, backward and weight gradient of a micro-batch on every part of the model.

    Stages wait for transfers, as part of a cell, in the pace of the slowest; overlapped, what needs data for its own.
    """
    times = _passes_ns(model, cut_of(plan), *seats(plan, cluster)) + _waits_ns(model, plan, cluster)
    forward, backward, weight = times.tolist()
    return Durations(forward, backward, weight, messages_ns(model, plan, cluster) if plan.overlap_pipeline else 0)


@lru_cache(maxsize=1 << 14)
def _passes_ns(model: Model, cut: Plan, *clusters: Cluster) -> NDArray[np.int64]:
    """Nanoseconds of the passes of a micro-batch (rows) on the parts of the model (columns), no waiting for others.

    `clusters`: as every part's ranks see it, or one for all.
    """
    shown = _unlike_parts(model, cut, clusters)
    known = {}
    for part in dict.fromkeys(shown):
        cells = part_cells(model, cut, part[1], part[0])
        each = [(count * cell.forward_ns, count * cell.backward_ns, count * cell.weight_ns) for cell, count in cells]
        known[part] = [*map(sum, zip(*each, strict=True))]
    return np.array([known[part] for part in shown]).T


def _unlike_parts(model: Model, cut: Plan, clusters: tuple[Cluster, ...]) -> list[tuple[int, Cluster]]:
    """For every part of the model the first that does the same, and the cluster as its ranks see it."""
    return [*zip(alike(model, cut.pp, cut.cuts), cycle(clusters))]


def busy_ns(model: Model, cut: Plan, cluster: Cluster, outline: Schedule) -> NDArray[np.int64]:
    """What every stage works for a micro-batch."""
    times: NDArray[np.int64] = _passes_ns(model, cut, cluster).sum(axis=0)[_held(outline)[0]].sum(axis=1)
    return times


def _waits_ns(model: Model, plan: Plan, cluster: Cluster) -> NDArray[np.int64]:
    """What a cell of each pass waits for its transfer, as a column."""
    waits = 0 if plan.overlap_pipeline else max(messages_ns(model, plan, cluster))
    return np.array(((waits,), (waits,), (0,)))


def messages_ns(model: Model, plan: Plan, cluster: Cluster) -> list[int]:
    """A transfer of activations from every stage to the next, from the last to the first."""
    if plan.pp == 1:
        return [0]
    return _messages_ns(plan.pp, plan.world_size // plan.pp, message_bytes(model, plan), cluster.fabric)


@lru_cache(maxsize=1024)
def _messages_ns(stages: int, width: int, size_bytes: int, fabric: Fabric) -> list[int]:
    near, far = (whole_ns(1e9 * point_to_point_s(size_bytes, fabric, same_node=same)) for same in (True, False))
    firsts = [stage * width for stage in range(stages)]
    nodes = [{rank // fabric.node_ranks for rank in (first, first + width - 1)} for first in firsts]
    return [near if len(one | other) == 1 else far for one, other in zip(nodes, nodes[1:] + nodes[:1], strict=True)]


def message_bytes(model: Model, plan: Plan) -> int:
    """What a rank hands to the next stage: all activations, or its part where they are scattered over tensor ranks."""
    size = plan.passed_tokens(model) * model.hidden * plan.element_bytes
    return size // plan.tp if plan.sequence_parallel or plan.scatter_pipeline else size


_BACKWARD_SHARE = 2 / 3  # of a micro-batch's time: two products against the forward's one
_BUCKETS = 8  # gradient buckets of a stage, the last of which nothing can hide


def gradient_sums(model: Model, plan: Plan, software: Software) -> list[Sum]:
    """What ends a step."""
    held = fullest_parameters(model, plan)
    return list(sums(held, plan, whole=software.sums_whole, by_owners=software.owners_broadcast))


def sum_s(one: Sum, plan: Plan, cluster: Cluster) -> float:
    """What it takes by itself."""
    return one.calls * Machine(plan, cluster).collective_s(one.kind, one.size_bytes, one.axis)


def shown_sums(model: Model, plan: Plan, software: Software) -> list[Sum]:
    """Those over replicas that every stage begins when it is through with the pipeline, and nothing hides."""
    if plan.overlap or plan.sharing == 1 or plan.sharing < plan.replicas:
        return []
    return [one for one in gradient_sums(model, plan, software) if one.axis is Axis.DATA and one.calls == 1]


def shown_s(model: Model, plan: Plan, cluster: Cluster, *, least: bool = False) -> float:
    """What these last behind the whole pipeline; `least`: however it goes. Replicas of some stages are nearer."""
    some, there = shown_sums(model, plan, cluster.software), stage_seats(plan, cluster)
    each = {at: fsum(sum_s(one, plan, at) for one in some) for at in dict.fromkeys(there)}
    if least or len(each) == 1:
        return min(each.values())
    ends_s, _ = _pipeline(model, plan, cluster)
    return max(end_s + each[at] for end_s, at in zip(ends_s, there, strict=True)) - max(ends_s)


_COPIES = (Axis.REPLICAS, Axis.EXPERT_REPLICAS)


def _gradients_s(model: Model, plan: Plan, cluster: Cluster, pipeline_s: float) -> float:
    """Exposed part of the gradient reduction over the data-parallel ranks, tied embeddings included.

    Overlapped, it hides behind what is left of the backward when a part of the model has its last gradient: one
    micro-batch's backward, or with interleaving that of a whole group of micro-batches; the last bucket stays
    exposed. An approximation: sums over replicas of a shard hide behind all of the backward, for nothing (the one
    system that was measured grows by 2.7 % from 16 to 512 accelerators).
    """
    apart = shown_sums(model, plan, cluster.software)
    others = (one for one in gradient_sums(model, plan, cluster.software) if one not in apart)
    taken = [(one, sum_s(one, plan, cluster)) for one in others]
    copies = fsum(took for one, took in taken if one.axis in _COPIES)
    whole, after = (fsum(took for one, took in taken if (one.calls > 1) == turns) for turns in (0, 1))
    if plan.overlap:
        backward_s = pipeline_s * _BACKWARD_SHARE
        window = backward_s / plan.micro_batches * (plan.pp if plan.schedule_name == "interleaved" else 1)
        whole -= copies
        shown = max(whole - window, whole / _BUCKETS)
        whole = shown + Machine(plan, cluster).slowdown(Axis.DATA) * (whole - shown) + max(0.0, copies - backward_s)
    tied, near = tied_gradient_bytes(model, plan), 2 if plan.world_size <= cluster.fabric.node_ranks else 1
    tied_s = collective_s(CollectiveKind.ALL_REDUCE, tied, 2, near, cluster.fabric) if tied else 0.0
    return whole + after + tied_s + shown_s(model, plan, cluster, least=isinf(pipeline_s))


def _optimizer_s(model: Model, plan: Plan, cluster: Cluster) -> float:
    return Machine(plan, cluster).optimizer_s(fullest_parameters(model, plan).owned(plan))
