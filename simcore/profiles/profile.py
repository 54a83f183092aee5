"""What differs between the native model and the peers' profiles: plain fields and small functions the layers take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsIndex

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.library import table
from simcore.network.congested import LinkNetwork
from simcore.network.topology.grid import coordinates
from simcore.network.topology.kinds import FABRICS
from simcore.network.topology.model import Dimension, Topology
from simcore.registry import Registry
from simcore.system.chunks.cut import QueueChoice
from simcore.system.collectives import EVERYBODY, Algorithm, PlanOptions
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.workload.model import CollectiveKind, Graph, Group, NodeKind, Workload

NetworkMode = Literal["congestion-free", "congested", "fair", "queued"]


@dataclass(frozen=True, slots=True)
class GraphRules:
    """How nodes of a dependency graph run.

    `slot(kind, on_cpu, stream, group)` names the resource a node holds, "" = none. `shortest_ns` is what a node without
    a duration takes. Rings of communicators smaller than the machine pay `group_endpoint_ns` (-1: as everywhere). With
    `one_queue` all of them queue in dimension 0, else each in the first in which its members are apart.
    With `chakra_durations` a node takes what Chakra's own field says where our attribute `duration_ns` contradicts it.
    `scales` says whether compute and communication scales apply (ASTRA-sim 2.x reads and ignores them). Collectives
    among `refused` cannot run; with `strict`, neither communication on the host nor a roofline without operations can.
    Collectives of a communicator that are on no stream begin in the order of the trace where they are `ordered`.
    """

    slot: Callable[[int, bool, int, str], str]
    shortest_ns: int = 0
    group_endpoint_ns: int = -1
    one_queue: bool = False
    chakra_durations: bool = False
    scales: bool = True
    refused: tuple[CollectiveKind, ...] = ()
    strict: bool = False
    ordered: bool = True

    def durations_ns(self, graph: Graph) -> NDArray[np.int64]:
        """How long every node of a graph takes that is not sent."""
        chakra_ns = graph.chakra_ns if self.chakra_durations else None
        return np.maximum(graph.duration_ns if chakra_ns is None else chakra_ns, self.shortest_ns)


def _stream_slot(kind: int, on_cpu: bool, stream: int, group: str) -> str:
    """Kernels of one device stream run one after the other; without streams, computations and each group's do."""
    if stream >= 0 and not on_cpu:
        return f"stream {stream}"
    if kind == NodeKind.COMPUTE:
        return "cpu" if on_cpu else "compute"
    return f"group {group}" if kind == NodeKind.COLLECTIVE else ""


def _every_queue(kind: CollectiveKind, decomposed: bool, num_queues: int) -> tuple[tuple[int, bool], ...]:
    """Every phase may use every queue of its dimension, and goes forward."""
    return tuple((queue, False) for queue in range(num_queues))


def in_halves(kind: CollectiveKind, decomposed: bool, num_queues: int) -> tuple[tuple[int, bool], ...]:
    """Every phase may use every queue; where there are several, the second half goes anticlockwise (ASTRA-sim)."""
    half = max(num_queues // 2, 1)
    return tuple((queue, queue >= half) for queue in range(num_queues))


class Rule(Struct, frozen=True):
    """A departure from the native model in words, and the fields that make it ("graph.x" is a field of `graph`)."""

    text: str
    fields: tuple[str, ...]


def rules_of(name: str) -> tuple[Rule, ...]:
    """The departures of a shipped profile, from `rules.txt`."""
    rows = table(__file__, "rules.txt", 3)
    return tuple(Rule(text, tuple(fields.split(","))) for owner, fields, text in rows if owner == name)


@dataclass(frozen=True, slots=True)
class Profile:
    """Timing rules of one model.

    `networks` are the network modes it has, the first is its default. `gigabyte` is what a topology file's GB means (""
    = as the file says, decimal when it does not). `step_ns` is the cost of a state of the training loop, `barrier`
    makes a chunk wait for the whole machine after every phase. `delay` times a message on an idle network. `chunks`
    cuts a collective of so many bytes on so many NPUs into pieces; of `endless` kinds the original never ends one of
    fewer bytes than chunks. `reduction` times a local reduction. `scale` applies
    a scale option to a size or a time. `dimension_bandwidth` weighs dimensions against each other (Themis).
    `total_all_gather` reads all-gather sizes of SimAI files as totals. With `in_turn`, NPUs act one after the
    other within a nanosecond, in the order in which they asked for it. With `oversized_groups`, a model-parallel group
    larger than the machine means none (ASTRA-sim 1.0). Settings of a system file among `ignored` are read and have no
    effect. `shared_links` chooses the network of the modes whose
    links are shared. `memory_bus` allows the shared memory bus. `noisy_links` says that its networks look at every link
    for itself. With `gang`, a chunk's phase begins on all NPUs of its group at once. `native_algorithms` allows the
    collective algorithms that ASTRA-sim has not. `by_messages` allows `--exact messages`. `pipelines`
    plays `pp` > 1 as stages, and takes a loop's groups from the header where that has them. `graph` is for graph
    workloads. `rules` say in words where all this departs from native.
    """

    name: str
    networks: tuple[NetworkMode, ...]
    gigabyte: Literal["", "binary"]
    delay: Callable[[Topology], Delay]
    chunks: Callable[[CollectiveKind, int, int, int], Iterator[int]]
    reduction: Callable[[SystemConfig], Callable[[int], int]]
    scale: Callable[[int, float], int]
    system: Callable[[Topology], SystemConfig]
    dimension_bandwidth: Callable[[Dimension], float]
    step_ns: int = 0
    barrier: bool = False
    first_layer_tail_only: bool = False
    in_turn: bool = False
    queue_choice: QueueChoice = _every_queue
    plan_options: PlanOptions = field(default_factory=PlanOptions)
    shared_links: Mapping[NetworkMode, Callable[[Topology], type[LinkNetwork]]] = field(default_factory=dict)
    noisy_links: bool = False
    total_all_gather: bool = False
    oversized_groups: bool = False
    endless: tuple[CollectiveKind, ...] = ()
    ignored: tuple[str, ...] = ()
    memory_bus: bool = False
    gang: bool = False
    native_algorithms: bool = False
    by_messages: bool = False
    pipelines: bool = False
    graph: GraphRules = field(default_factory=lambda: GraphRules(_stream_slot))
    rules: tuple[Rule, ...] = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickled as its name where it has one: some of its functions have none that pickle finds."""
        if self.name in profiles and profiles.get(self.name) is self:
            return _named, (self.name,)
        return object.__reduce_ex__(self, protocol)

    def heeded(self, system: SystemConfig) -> SystemConfig:
        """A system file's settings, those that are `ignored` as if it did not say them."""
        return replace(system, **{name: getattr(SystemConfig(), name) for name in self.ignored})

    def unheeded(self, system: SystemConfig) -> Iterator[str]:
        """What a system file asks for in vain, in words."""
        for name in self.ignored:
            if getattr(system, name) != getattr(SystemConfig(), name):
                yield f"profile {self.name} ignores {name.replace('_', '-')}, as its original does"
        yield from (f"{key} writes no file here; --timeline shows every node" for key in system.logs)

    def unsaid(self, workload: Workload) -> Iterator[str]:
        """What a text in SimAI's dialect says and the profile's original does not read so, in words."""
        if workload.dialect != "simai" or self.total_all_gather:
            return
        phases = {phase for layer in workload.layers for phase in layer.phases}
        if any(phase.collective is CollectiveKind.ALL_GATHER for phase in phases):
            yield f"profile {self.name} takes all-gather sizes as bytes per rank; SimAI's files give totals"
        if named := sorted({phase.group.name for phase in phases} - {Group.LOOP.name}):
            yield f"profile {self.name} plays the groups that columns name ({', '.join(named)}); its original has none"

    def turned(self, rule: Rule, other: Profile) -> Profile:
        """With the fields of a rule as another profile has them.

        >>> one, other = profiles.get("astra-sim-1.0"), profiles.get("native")
        >>> one.turned(Rule("a state costs 1 ns", ("step_ns",)), other).step_ns
        0
        """
        own = {name: getattr(other, name) for name in rule.fields if "." not in name}
        nodes = {name.partition(".")[2] for name in rule.fields} - {""}
        return replace(self, **own, graph=replace(self.graph, **{name: getattr(other.graph, name) for name in nodes}))


profiles: Registry[Profile] = Registry("profile")


def _named(name: str) -> Profile:
    return profiles.get(name)


def hops_along(
    topology: Topology, src: NDArray[np.int64], dst: NDArray[np.int64]
) -> Iterator[tuple[Dimension, NDArray[np.int64]]]:
    """How many links NPUs are apart in each dimension; 0 in those in which they are in one place.

    InputError where dimensions have no links of their own: ASTRA-sim has no such machines.
    """
    if not topology.apart:
        message = "ASTRA-sim has no graphs, wafers and twisted tori without contention"
        expected = "dimensions with links of their own, or --profile native"
        raise InputError.at(topology.name or "topology", message, expected=expected)
    sizes = [dim.npus for dim in topology.dims]
    for dim, here, there in zip(topology.dims, *(coordinates(npus, sizes).T for npus in (src, dst)), strict=True):
        yield dim, FABRICS.get(dim.kind)(dim).hops(here, there)


def rings(topology: Topology) -> SystemConfig:
    """A ring per dimension and 10 ns at the endpoints: ASTRA-sim's examples; it has no defaults for the algorithms."""
    chosen = tuple(Algorithm("ring") for _ in topology.dims)
    return SystemConfig(endpoint_delay_ns=10, implementations=dict.fromkeys(EVERYBODY, chosen))
