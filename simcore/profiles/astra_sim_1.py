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
from simcore.profiles.profile import Profile, Rule, hops_along, profiles, rings
from simcore.system.collectives import PlanOptions
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.workload.model import CollectiveKind

__all__ = ["ASTRA_SIM_1"]

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
    fixed = [2 * dim.nic_latency_ns + (dim.router_latency_ns if dim.kind == "Switch" else 0) for dim in topology.dims]

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        found = np.zeros(len(src), dtype=np.float64)
        for index, (dim, hops) in enumerate(hops_along(topology, src, dst)):
            time = (hops * dim.latency_ns).astype(np.int64)
            time = (time + size_bytes / speeds[index]).astype(np.int64)
            time = (time + fixed[index]).astype(np.int64)
            found = np.where(hops, np.maximum(time, dim.memory.floor_ns(size_bytes)), found)
        whole: NDArray[np.int64] = found.astype(np.int64)
        return whole if (whole == found).all() else found  # type: ignore[return-value]  # the one that has fractions

    return times


def chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> Iterator[int]:
    """`splits` equal chunks and the remainder as one more (upstream never ends with fewer bytes than splits)."""
    chunk = max(1, size_bytes // splits)
    for start in range(0, size_bytes, chunk):
        yield min(chunk, size_bytes - start)


def reduction(system: SystemConfig) -> Callable[[int], int]:
    """Time of a local reduction."""
    return lambda size_bytes: 3 * (size_bytes // REDUCTION_BUNDLE_BYTES)


def scale(value: int, factor: float) -> int:
    """Options are single precision, the product double, and truncated."""
    return int(value * float(np.float32(factor)))


ASTRA_SIM_1 = profiles.register("astra-sim-1.0")(
    Profile(
        name="astra-sim-1.0",
        networks=("congestion-free",),
        gigabyte="binary",
        step_ns=1,
        barrier=True,
        first_layer_tail_only=True,
        late_clearing=True,
        delay=delay,
        chunks=chunks,
        reduction=reduction,
        plan_options=PlanOptions(alternate_reductions=True, late_reductions=True),
        scale=scale,
        system=rings,
        dimension_bandwidth=dimension_bandwidth,
        oversized_groups=True,
        memory_bus=True,
        rules=(
            Rule("Messages share no links: each takes as long as if it were alone.", ("networks", "shared_links")),
            Rule(
                "A message pays the highest dimension in which its ends differ and no other, "
                "cut to whole nanoseconds term by term.",
                ("delay",),
            ),
            Rule("A gigabyte is 2^30 bytes.", ("gigabyte",)),
            Rule("Every state of the training loop costs a nanosecond.", ("step_ns",)),
            Rule("A chunk leaves a phase when all NPUs of the machine have finished it.", ("barrier",)),
            Rule("An NPU begins a phase when it has room, whether or not its partners have.", ("gang",)),
            Rule("What is left of a collective's equal chunks is one chunk more.", ("chunks",)),
            Rule("A reduction takes 3 ns for every whole 500,000 bytes.", ("reduction",)),
            Rule("Which receives pay for a reduction follows the original's counters.", ("plan_options",)),
            Rule("Scaled sizes and times are cut to whole numbers.", ("scale",)),
            Rule("Without a system file there are rings, and endpoints take 10 ns.", ("system", "native_algorithms")),
            Rule("Themis weighs dimensions by all links of an NPU together.", ("dimension_bandwidth",)),
            Rule("Themis forgets its loads only when NPU 0 is the first to issue.", ("late_clearing",)),
            Rule("The wait at the end is booked on the first layer alone.", ("first_layer_tail_only",)),
            Rule("A model-parallel group larger than the machine is none.", ("oversized_groups",)),
            Rule("All-gather sizes of SimAI's files are taken per rank.", ("total_all_gather",)),
            Rule("There are no pipelines: the rows are those of one stage.", ("pipelines",)),
            Rule(
                "It has a memory bus that packets share, no noisy links, and no --exact messages.",
                ("memory_bus", "noisy_links", "by_messages"),
            ),
        ),
    )
)
