"""ASTRA-sim 1.0 (branch ASTRA-sim-1.0 @07d5d19, analytical backend @d27635b), to the nanosecond.

Its ways: every state of the training loop costs 1 ns; a chunk leaves a phase when the whole machine has finished it;
the network has no contention; a message is charged to the highest dimension in which its ends differ, in an int that
is truncated after each term, or to that dimension's memory, whose fraction of a nanosecond carries on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.model import Dimension, Topology
from simcore.profiles.profile import Profile, hops_along, in_halves, profiles, rings, rules_of
from simcore.system.collectives import EVERYBODY, PlanOptions
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.workload.model import CollectiveKind

REDUCTION_BUNDLE_BYTES = 500_000  # 3 memory accesses of 1 ns for every so many bytes


def effective_bytes_per_ns(dim: Dimension) -> float:
    """What a message gets: a ring's links both ways together, a switch's all, a full mesh's share of one neighbour.

    Too few links would give upstream no bandwidth at all (it exits); here a message then has one link.
    """
    links = {"Ring": dim.links // 2 * 2, "FullyConnected": dim.links // max(1, dim.npus - 1)}.get(dim.kind, dim.links)
    return dim.bandwidth_bytes_per_s / 1e9 * max(1, links)


def dimension_bandwidth(dim: Dimension) -> float:
    """A dimension's bandwidth as Themis sees it: all links together, those of a full mesh too."""
    neighbours = max(1, dim.npus - 1)
    links = {"Ring": dim.links // 2 * 2, "FullyConnected": dim.links // neighbours * neighbours}
    return dim.bandwidth_bytes_per_s * max(1, links.get(dim.kind, dim.links))


def delay(topology: Topology) -> Delay:
    """Time of messages."""
    speeds = [effective_bytes_per_ns(dim) for dim in topology.dims]

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        found = np.zeros(len(src), dtype=np.float64)
        for index, (dim, hops) in enumerate(hops_along(topology, src, dst)):
            router_ns = dim.router_latency_ns if dim.kind == "Switch" else 0
            time = (hops * dim.latency_ns).astype(np.int64)
            for term in (size_bytes / speeds[index], 2 * dim.nic_latency_ns, router_ns):
                time = (time + term).astype(np.int64)
            found = np.where(hops, np.maximum(time, dim.memory.floor_ns(size_bytes)), found)
        whole: NDArray[np.int64] = found.astype(np.int64)
        return whole if (whole == found).all() else found  # type: ignore[return-value]  # the one that has fractions

    return times


def chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> Iterator[int]:
    """`splits` equal chunks and the remainder as one more."""
    chunk = max(1, size_bytes // splits)
    for start in range(0, size_bytes, chunk):
        yield min(chunk, size_bytes - start)


def reduction(system: SystemConfig) -> Callable[[int], int]:
    """Time of a local reduction."""
    return lambda size_bytes: 3 * (size_bytes // REDUCTION_BUNDLE_BYTES)


ASTRA_SIM_1 = profiles.register("astra-sim-1.0")(
    Profile(
        name="astra-sim-1.0",
        networks=("congestion-free",),
        gigabyte="binary",
        step_ns=1,
        barrier=True,
        first_layer_tail_only=True,
        in_turn=True,
        delay=delay,
        chunks=chunks,
        endless=EVERYBODY,
        reduction=reduction,
        queue_choice=in_halves,
        plan_options=PlanOptions(astra_reductions=True),
        # Options are single precision, the product double, and truncated.
        scale=lambda value, factor: int(value * float(np.float32(factor))),
        system=rings,
        dimension_bandwidth=dimension_bandwidth,
        oversized_groups=True,
        memory_bus=True,
        rules=rules_of("astra-sim-1.0"),
    )
)
