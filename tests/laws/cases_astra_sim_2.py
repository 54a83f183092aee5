"""Random runs with everything that ASTRA-sim 2.x has, none of which can deadlock.

A program is a list of events, each on some NPUs. On every NPU what holds the communication slot waits for what held it
before, so that all NPUs come to their collectives and messages in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.config import Algorithm, SystemConfig
from simcore.system.memory import BusCosts, RemoteMemory
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind
from tests.graphs import graph, node
from tests.runs import KINDS

__all__ = ["Case", "Event", "cases", "systems", "topologies"]

PROFILE = profiles.get("astra-sim-2")
NUMBERS = list(CollectiveKind)
COMPUTE, SEND, RECV, COLLECTIVE = NodeKind.COMPUTE, NodeKind.SEND, NodeKind.RECV, NodeKind.COLLECTIVE
LOAD, STORE = NodeKind.MEM_LOAD, NodeKind.MEM_STORE
SIZES = st.sampled_from([1, 16, 100, 1597, 8192, 65536, 1 << 20])
DURATIONS = st.sampled_from([1000, 3000, 50_000])


@dataclass(frozen=True)
class Event:
    """A node on each of some NPUs: a collective in ring order, a message from the first to the second, or work."""

    kind: NodeKind
    npus: tuple[int, ...]
    details: Mapping[str, int] = field(default_factory=dict)
    waits: tuple[bool, ...] = ()  # for each NPU, whether it waits for all that came before


@dataclass(frozen=True)
class Case:
    """All inputs of a run of dependency graphs."""

    events: tuple[Event, ...]
    topology: Topology
    system: SystemConfig
    settings: Settings
    memory: RemoteMemory | None = None

    def graphs(self) -> GraphSet:
        """A graph for every NPU, one object for all that do the same."""
        groups = {str(number + 1): event.npus for number, event in enumerate(self.events) if self.is_group(event)}
        names = ("", *groups)
        rows: list[list[dict[str, object]]] = [[] for _ in range(self.topology.npus)]
        last = [-1] * self.topology.npus
        for number, event in enumerate(self.events):
            group = names.index(str(number + 1)) if self.is_group(event) else 0
            for place, npu in enumerate(event.npus):
                kind = RECV if event.kind == SEND and place else event.kind
                peer = event.npus[1 - place] if event.kind == SEND else 0
                before = {last[npu]} if kind not in {COMPUTE, RECV} else set()
                before |= set(range(len(rows[npu]))) if event.waits[place] else set()
                if kind not in {COMPUTE, RECV}:
                    last[npu] = len(rows[npu])
                details = dict(event.details) | {"group": group, "peer": peer}
                rows[npu].append(node(kind, *sorted(before - {-1}), **details))
        kinds = {repr(mine): mine for mine in rows}
        made = [graph(*mine, group_names=names) for mine in kinds.values()]
        return GraphSet(tuple(made), np.array([[*kinds].index(repr(mine)) for mine in rows], np.int32), groups)

    def is_group(self, event: Event) -> bool:
        """Whether it is a collective of a communicator."""
        return event.kind == COLLECTIVE and event.npus != tuple(range(self.topology.npus))

    def report(self, **changes: object) -> dict[str, object]:
        """The report without the number of classes; `changes` are settings."""
        settings = replace(self.settings, **changes)
        timeline = simulate(self.graphs(), self.topology, self.system, PROFILE, settings, self.memory)
        document = dict(Report(timeline, PROFILE.name, settings.network).to_dict())
        del document["classes"]
        return document

    def finish_ns(self, **changes: object) -> list[int]:
        """When every NPU is done."""
        settings = replace(self.settings, fold=False, **changes)
        graphs = self.graphs()
        timeline = simulate(graphs, self.topology, self.system, PROFILE, settings, self.memory)
        return list(timeline.finish_ns)


@st.composite
def topologies(draw, *, shared: bool = False, kinds=("Ring", "FullyConnected", "Switch")):
    """One to three dimensions, one where links are shared (the original has no more there)."""
    dims: list[Dimension] = []
    for _ in range(1 if shared else draw(st.integers(1, 3))):
        sizes = [size for size in (2, 3, 4, 5, 8) if size * prod(dim.npus for dim in dims) <= 8]
        kind = draw(st.sampled_from(kinds))
        sizes = [size for size in sizes if not (shared and kind == "Ring" and size == 2)]  # ASTRA-sim aborts
        if sizes:
            rate = draw(st.sampled_from([1, 12.5, 50, 291.98])) * 2**30
            latency_ns = draw(st.sampled_from([0.0, 1.0, 30.0, 500.0, 936.25]))
            dims.append(Dimension(kind, draw(st.sampled_from(sizes)), rate, latency_ns))
    return Topology(tuple(dims))


@st.composite
def systems(draw, topology: Topology, *, names=("ring", "direct", "halvingDoubling", "doubleBinaryTree"), bus=True):
    """Any system file that fits a machine."""
    whole = draw(st.sampled_from([False, False, False, True]))

    def chosen(kind: CollectiveKind) -> tuple[Algorithm, ...]:
        found = []
        for size in [topology.npus] if whole else [dim.npus for dim in topology.dims]:
            cannot = {"doubleBinaryTree"} if whole else set()
            cannot |= {"halvingDoubling", "doubleBinaryTree"} if size & (size - 1) else set()
            cannot |= {"halvingDoubling"} if kind == CollectiveKind.ALL_TO_ALL else set()
            name = draw(st.sampled_from([name for name in names if name not in cannot]))
            window = draw(st.sampled_from([0, 0, 1, 2])) if name == "direct" else 0
            found.append(Algorithm(name, window, whole))
        return tuple(found)

    costs = BusCosts(draw(st.integers(0, 5)), draw(st.integers(0, 5)), draw(st.integers(0, 5)), 0.001, 1)
    return SystemConfig(
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO", "EXPLICIT"])),
        endpoint_delay_ns=draw(st.sampled_from([1, 10, 47])),
        active_chunks_per_dimension=draw(st.sampled_from([1, 1, 2, 8])),
        preferred_dataset_splits=draw(st.sampled_from([1, 2, 3])),
        implementations={kind: chosen(kind) for kind in KINDS},
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
        local_memory_bytes_per_s=draw(st.sampled_from([50e9, 1600e9])),
        roofline=draw(st.booleans()),
        peak_flops=100e12,
        bus=costs if bus and draw(st.integers(0, 3)) == 0 else None,
    )


@st.composite
def _event(draw, topology: Topology, sharing: Callable[[Sequence[int]], Sequence[int]], loads: bool) -> Event:
    everybody = range(topology.npus)
    kind = draw(st.sampled_from([COMPUTE, COLLECTIVE, COLLECTIVE, SEND, *[LOAD, STORE] * loads]))
    details: dict[str, int] = {"size_bytes": draw(SIZES)}
    if kind == SEND:
        npus = draw(st.permutations(everybody))[:2]
        details["tag"] = draw(st.integers(0, 2))
    elif kind == COLLECTIVE:
        npus = draw(st.just(list(everybody)) | st.permutations(everybody).map(sharing))
        details["collective"] = NUMBERS.index(draw(st.sampled_from(KINDS)))
        dims = [draw(st.booleans()) for _ in topology.dims]
        if any(dims) and all(dim.npus > 1 for dim in topology.dims):
            details["dims"] = sum(1 << at for at, used in enumerate(dims) if used)
        details["size_bytes"] = max(details["size_bytes"], 16)
    else:
        npus = draw(st.lists(st.sampled_from(everybody), min_size=1, unique=True) | st.just(list(everybody)))
        if kind == COMPUTE:
            details |= {"duration_ns": draw(DURATIONS), "num_ops": 1000 * draw(SIZES)}
            details["on_cpu"] = draw(st.sampled_from([False, False, True]))
    return Event(kind, tuple(npus), details, tuple(draw(st.booleans()) for _ in npus))


@st.composite
def cases(draw, *, shared: bool | None = None, loads: bool = True, groups: bool = True, events: int = 5, **choice):
    """Any run; `choice` narrows its system. Without `groups`, every collective is everybody's."""
    shared = draw(st.booleans()) if shared is None else shared
    topology = draw(topologies(shared=shared))
    system, queues = draw(systems(topology, **choice)), draw(st.sampled_from([1, 1, 2, 3]))

    def sharing(npus: Sequence[int]) -> Sequence[int]:
        """Some of them; as many as every algorithm can do where the group takes that of the only dimension."""
        sizes = [2, 4, 8] if len(topology.dims) == 1 else range(2, 9)
        some = (
            groups and queues == 1
        )  # NPUs that come with different turns may go round different ways, and wait forever
        size = draw(st.sampled_from([size for size in sizes if size < topology.npus] * some + [topology.npus]))
        return npus[:size] if size < topology.npus else sorted(npus)

    made = draw(st.lists(_event(topology, sharing, loads), min_size=1, max_size=events))
    port = draw(st.sampled_from([0, -1, 1, 2])) if loads else 0
    settings = Settings(
        network="congested" if shared else "congestion-free",
        queues_per_dim=queues,
        rendezvous=draw(st.sampled_from([False, False, True])),
    )
    return Case(tuple(made), topology, system, settings, RemoteMemory(100, 2.0, port))
