"""ASTRA-sim 2.x (master 518bd513, analytical network 599a0473), to the nanosecond on every NPU.

Its ways: a message is charged to the first dimension in which its ends differ; every chunk has the full size, and at
least one byte per NPU; a node without a duration takes 1 ns; one CPU node, one compute node and one communication node
run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.model import Topology
from simcore.profiles.native import dimension_bandwidth
from simcore.profiles.profile import GraphRules, Profile, hops_along, in_halves, profiles, rings, rules_of
from simcore.system.collectives import PlanOptions
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.system.messages.in_order import StoreAndForward
from simcore.workload.model import CollectiveKind, NodeKind

GROUP_ENDPOINT_NS = 10
MEMORY_ACCESSES = 3
REFUSED = (CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER, CollectiveKind.BARRIER)


def delay(topology: Topology) -> Delay:
    """Time of messages without contention: hops and serialisation of the first dimension that differs."""

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        found = np.zeros(len(src), dtype=np.int64)
        undecided = np.ones(len(src), dtype=np.bool_)
        for dim, hops in hops_along(topology, src, dst):
            transfer = size_bytes / (dim.bandwidth_bytes_per_s / 1e9)
            time = (hops * dim.latency_ns + transfer).astype(np.int64)
            found = np.where(undecided & (hops > 0), time, found)
            undecided &= hops == 0
        return found

    return times


def chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> Iterator[int]:
    """Chunks of full size until nothing is left; but for an all-gather, at least one byte per NPU each."""
    chunk = size_bytes // splits
    if kind != CollectiveKind.ALL_GATHER and npus > chunk:
        chunk, size_bytes = npus, splits * npus
    chunk = max(1, chunk)
    for _ in range(0, size_bytes, chunk):
        yield chunk


def reduction(system: SystemConfig) -> Callable[[int], int]:
    """Two reads and a write, each truncated."""
    rate = system.local_memory_bytes_per_s
    return lambda size_bytes: MEMORY_ACCESSES * int(size_bytes / rate * 1e9) if rate else 0


@cache
def queue_choice(kind: CollectiveKind, decomposed: bool, num_queues: int) -> tuple[tuple[int, bool], ...]:
    """A decomposed all-reduce goes down through the first half and gathers through the others, anticlockwise always."""
    half = num_queues // 2
    if not decomposed:
        return in_halves(kind, decomposed, num_queues)
    if kind == CollectiveKind.ALL_GATHER:
        return tuple((queue, True) for queue in range(half, num_queues))
    return tuple((queue, False) for queue in range(max(half, 1)))


def slot(kind: int, on_cpu: bool, stream: int, group: str) -> str:
    """One slot each for CPU nodes, computations and communication; receives need none."""
    if on_cpu:
        return "cpu"
    if kind == NodeKind.COMPUTE:
        return "compute"
    return "" if kind == NodeKind.RECV else "communication"


ASTRA_SIM_2 = profiles.register("astra-sim-2")(
    Profile(
        name="astra-sim-2",
        networks=("congestion-free", "congested"),
        gigabyte="binary",
        delay=delay,
        chunks=chunks,
        endless=(CollectiveKind.ALL_GATHER,),
        reduction=reduction,
        queue_choice=queue_choice,
        plan_options=PlanOptions(astra_reductions=True),
        scale=lambda value, factor: int(value * factor),
        system=rings,
        dimension_bandwidth=dimension_bandwidth,
        ignored=("inter_dimension_scheduling", "intra_dimension_scheduling"),
        memory_bus=True,
        shared_links={"congested": StoreAndForward.on},
        graph=GraphRules(
            slot,
            1,
            GROUP_ENDPOINT_NS,
            one_queue=True,
            chakra_durations=True,
            scales=False,
            refused=REFUSED,
            strict=True,
            ordered=False,
        ),
        rules=rules_of("astra-sim-2"),
    )
)
