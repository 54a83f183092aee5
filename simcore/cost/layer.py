"""One layer's forward and backward on one rank: kernels, and the collectives that they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum

from simcore.compute.accelerators import accelerator
from simcore.compute.operations import (
    Operation,
    accumulation_operations,
    attention_values,
    expert_parameters,
    layer_operations,
    layer_parameters,
)
from simcore.compute.roofline import duration_s
from simcore.cost.job import Cluster, Job, Software
from simcore.system.collectives.nccl import collective_s
from simcore.workload.model import CollectiveKind, PhaseName

__all__ = ["LayerTimes", "device_s", "exposed_s", "layer_times", "per_node", "sharding_s", "slowest_s"]

# A collective beside a product slows it: 38 % of the hidden time comes back (Echo, arXiv 2412.12487, mean slowdown).
SLOWDOWN = 0.38

Waits = dict[str, float]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Of one layer and micro-batch; `weight_s` is the part of `backward_s` that weight gradients take.

    `waits`: exposed collectives in both passes, by what they are for.
    """

    forward_s: float
    backward_s: float
    weight_s: float
    waits: Waits


@lru_cache(maxsize=8192)
def layer_times(job: Job, cluster: Cluster, *, dense: bool = True) -> LayerTimes:
    """A layer's forward and whole backward on one rank, recomputation and exposed collectives included."""
    model, shard = job.model, job.shard
    forward = layer_operations(model, shard, PhaseName.FORWARD, dense=dense)
    sizes = _layer_sizes(job, dense=dense)
    weights = (
        *layer_operations(model, shard, PhaseName.WEIGHT_GRAD, dense=dense),
        *accumulation_operations(sum(sizes), cluster.software.accumulation_bytes),
    )
    gradients = [*layer_operations(model, shard, PhaseName.INPUT_GRAD, dense=dense), *weights]
    again = _recomputed(job, forward)
    ahead, back = _waits(job, cluster, forward, dense=dense)
    forward_s = slowest_s(forward, job, cluster, fsum(ahead.values()))
    backward_s = slowest_s([*gradients, *again], job, cluster, fsum(back.values()))
    gather_s, reduce_s = sharding_s(job, cluster, *sizes)
    sharding = (exposed_s(gather_s, forward_s), exposed_s(gather_s + reduce_s, backward_s))
    waits = {name: ahead[name] + back[name] for name in ahead} | {"sharding": fsum(sharding)}
    weight_s = slowest_s(weights, job, cluster)
    return LayerTimes(forward_s + sharding[0], backward_s + sharding[1], weight_s, waits)


def slowest_s(operations: Sequence[Operation], job: Job, cluster: Cluster, waits_s: float = 0.0) -> float:
    """What a pass takes: its kernels and waits, or its launches where the host is slower; both where each waits."""
    host_s = fsum(operation.kernels for operation in operations) * cluster.software.launch_s
    kernels_s = device_s(operations, job, cluster) + waits_s
    return kernels_s + host_s if cluster.software.synchronous else max(kernels_s, host_s)


def device_s(operations: Iterable[Operation], job: Job, cluster: Cluster) -> float:
    """Seconds of kernels one after the other."""
    device = accelerator(cluster.accelerator)
    return fsum(duration_s(operation, device, job.dtype, cluster.efficiency) for operation in operations)


def exposed_s(collective: float, compute_s: float) -> float:
    """What a collective beside independent kernels costs: what it outlasts them by, and their slowdown."""
    return max(0.0, collective - compute_s) + SLOWDOWN * min(collective, compute_s)


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


def _waits(job: Job, cluster: Cluster, forward: Sequence[Operation], *, dense: bool) -> tuple[Waits, Waits]:
    """Exposed collectives of the forward and of the whole backward."""
    tensor_s = _tensor_parallel_s(job, cluster, dense=dense)
    ahead = {
        "tensor_parallel": tensor_s,
        "context_parallel": _context_s(job, cluster, forward),
        "expert_parallel": 0.0 if dense else _expert_s(job, cluster) + _expert_launches_s(job, cluster, forward),
    }
    again = 1.0 if job.recompute == "full" else 0.0
    back = {name: seconds * (1.0 + again) for name, seconds in ahead.items()}
    if not dense:
        back["expert_parallel"] += _expert_launches_s(job, cluster, forward)  # two gradients for one product
    back["tensor_parallel"] = tensor_s * (_backward_exposed(job, cluster.software) + again)
    return ahead, back


def _backward_exposed(job: Job, software: Software) -> float:
    """What the backward's tensor-parallel collectives cost, over their own time.

    Hidden behind weight gradients: the all-reduces of input gradients, or with sequence parallelism their
    reduce-scatter half; the all-gather before them stays exposed (Korthikanti et al. 2023, section 4.2.2).
    """
    if not software.hides_input_gradient:
        return 1.0
    exposed = 0.5 if job.sequence_parallel else 0.0
    return exposed + (1 - exposed) * SLOWDOWN


def per_node(job: Job, cluster: Cluster, ranks: int, stride: int) -> int:
    """How many of a group's ranks, `stride` apart, one node holds."""
    return max(1, min(ranks, cluster.fabric.node_ranks // stride))


def _tensor_parallel_s(job: Job, cluster: Cluster, *, dense: bool) -> float:
    """Exposed tensor-parallel collectives of one pass through a layer: an all-reduce behind each half of the block.

    With sequence parallelism a reduce-scatter and an all-gather take the all-reduce's place and cost the same. Whole
    experts need none.
    """
    blocks = 1 if job.model.parallel_block or not dense else 2
    size = job.shard.tokens(job.model) * job.model.hidden * job.shard.element_bytes
    inside = per_node(job, cluster, job.tp, 1)
    once = collective_s(CollectiveKind.ALL_REDUCE, size, job.tp, inside, cluster.fabric)
    return blocks * once * (1 - cluster.software.tp_hidden)


def _context_s(job: Job, cluster: Cluster, forward: Sequence[Operation]) -> float:
    """What a pass waits for the other ranks' tokens.

    Passed around (Liu et al., arXiv 2310.01889): keys and values, behind the attention itself. Exchanged (Jacobs et
    al., arXiv 2309.14509): queries, keys, values and the result, nothing behind them.
    """
    if job.cp == 1:
        return 0.0
    queries, keys = attention_values(job.model)
    each = job.shard.tokens(job.model) * job.shard.element_bytes / job.tp
    inside = per_node(job, cluster, job.cp, job.tp)
    if job.context == "all_to_all":
        size = 2 * each * (queries + keys)
        return collective_s(CollectiveKind.ALL_TO_ALL, size, job.cp, inside, cluster.fabric)
    gather_s = collective_s(CollectiveKind.ALL_GATHER, 2 * each * keys * job.cp, job.cp, inside, cluster.fabric)
    attention_s = device_s((one for one in forward if one.name == "attention"), job, cluster)
    return max(0.0, gather_s - attention_s)


def _expert_s(job: Job, cluster: Cluster) -> float:
    """Tokens to their experts and back; sent once, a token goes to each place where experts of it are."""
    if job.ep == 1:
        return 0.0
    share = job.tp if job.sequence_parallel else 1
    tokens = job.shard.tokens(job.model) / share
    inside = per_node(job, cluster, job.ep, 1)
    copies = float(job.model.top_k)
    if cluster.software.sends_once:
        places = job.ep // inside if job.ep > inside else job.ep
        copies = places * (1 - (1 - 1 / places) ** job.model.top_k)
    size = tokens * copies * job.model.hidden * job.shard.element_bytes
    return 2 * collective_s(CollectiveKind.ALL_TO_ALL, size, job.ep, inside, cluster.fabric)


def _expert_launches_s(job: Job, cluster: Cluster, forward: Sequence[Operation]) -> float:
    """What one product's pass waits for the host, which launches every expert apart once it knows their tokens."""
    local = max(1, job.model.experts // job.ep)
    names = [operation.name for operation in forward]
    experts = forward[names.index("permute") + 1 : names.index("unpermute")]
    return max(0.0, local * cluster.software.expert_launch_s - device_s(experts, job, cluster))


def _layer_sizes(job: Job, *, dense: bool) -> tuple[float, float]:
    """Weights of a layer on one rank: the replicated ones and the experts."""
    experts = 0 if dense else expert_parameters(job.model)
    return (layer_parameters(job.model, dense=dense) - experts) / job.tp, experts / job.ep


def sharding_s(job: Job, cluster: Cluster, plain: float, experts: float = 0.0) -> tuple[float, float]:
    """Gathering weights and reducing their gradients in every micro-batch, where they are sharded (ZeRO 2 and 3)."""
    gather_s = reduce_s = 0.0
    if job.zero < 2:
        return gather_s, reduce_s
    for size, ranks, stride in ((plain, job.replicas, job.tp), (experts, job.expert_replicas, job.ep)):
        inside = per_node(job, cluster, ranks, stride)
        if job.zero == 3:
            whole = size * job.shard.element_bytes
            gather_s += collective_s(CollectiveKind.ALL_GATHER, whole, ranks, inside, cluster.fabric)
        whole = size * job.gradient_bytes
        reduce_s += collective_s(CollectiveKind.REDUCE_SCATTER, whole, ranks, inside, cluster.fabric)
    return gather_s, reduce_s
