"""The native model: the same loops and collectives without the peers' artefacts.

Links are shared, every hop is paid, nothing costs a nanosecond that has no cause; reductions take the time the system
file's memory bandwidth gives them, none when it gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from simcore.network.clock import idle_ns
from simcore.network.congested import CutThrough, LinkNetwork
from simcore.network.fair import FairShare
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles.profile import Profile, profiles
from simcore.system.collectives import EVERYBODY, Algorithm
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.units import transfer_ns
from simcore.workload.model import CollectiveKind

MEMORY_ACCESSES = 3  # a reduction reads two operands and writes one


def delay(topology: Topology) -> Delay:
    """Time of a message that meets nobody."""
    links = LinkGraph(topology)

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        return idle_ns(links, links.routes(src, dst), size_bytes)

    return times


def chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> Iterator[int]:
    """At most `splits` chunks that differ by one byte at most, and add up."""
    count = min(splits, size_bytes)
    for index in range(count):
        yield size_bytes * (index + 1) // count - size_bytes * index // count


def reduction(system: SystemConfig) -> Callable[[int], int]:
    """Two reads and a write at the local memory's bandwidth."""
    rate = system.local_memory_bytes_per_s
    return lambda size_bytes: MEMORY_ACCESSES * transfer_ns(size_bytes, rate) if rate else 0


def default_system(topology: Topology) -> SystemConfig:
    """Rings on rings and lines; direct where every pair is connected or behind one switch, and for all-to-alls.

    Broadcasts and reductions go along chains there, binomial trees elsewhere; gathers and scatters straight.
    """
    rings = {"Ring", "Torus", "Mesh"}
    chosen = {
        **dict.fromkeys(EVERYBODY, ("ring", "direct")),
        CollectiveKind.ALL_TO_ALL: ("direct", "direct"),
        CollectiveKind.BARRIER: ("dissemination", "dissemination"),
        **dict.fromkeys((CollectiveKind.BROADCAST, CollectiveKind.REDUCE), ("chain", "binomial")),
        **dict.fromkeys((CollectiveKind.GATHER, CollectiveKind.SCATTER), ("flat", "flat")),
    }
    joined = [dim.kind not in rings for dim in topology.dims]
    return SystemConfig(
        implementations={kind: tuple(Algorithm(names[every]) for every in joined) for kind, names in chosen.items()}
    )


def queued(topology: Topology) -> type[LinkNetwork]:
    """Links with queues, which no other run has to load."""
    from simcore.network.queued.fluid import FluidLinks
    from simcore.network.queued.routing import as_flows
    from simcore.network.queued.steady import QueuedLinks

    return FluidLinks if as_flows(topology) else QueuedLinks.on(topology)


def dimension_bandwidth(dim: Dimension) -> float:
    """What an NPU can send into a dimension."""
    links = dim.links * (dim.npus - 1 if dim.kind == "FullyConnected" else 1)
    return dim.bandwidth_bytes_per_s * links


NATIVE = profiles.register("native")(
    Profile(
        name="native",
        networks=("congested", "congestion-free", "fair", "queued"),
        gigabyte="",
        delay=delay,
        chunks=chunks,
        reduction=reduction,
        scale=lambda value, factor: max(round(value * factor), min(value, 1)),  # nothing sent vanishes
        system=default_system,
        dimension_bandwidth=dimension_bandwidth,
        shared_links={"congested": CutThrough.on, "fair": FairShare.on, "queued": queued},
        noisy_links=True,
        total_all_gather=True,
        gang=True,
        native_algorithms=True,
        by_messages=True,
        pipelines=True,
    )
)
