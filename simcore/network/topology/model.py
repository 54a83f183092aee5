"""A topology as data: dimensions, innermost first, or an explicit graph of links."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

__all__ = ["Dimension", "Graph", "Memory", "Topology", "Wafer"]


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: `npus` per group, joined as `kind` says.

    `bandwidth_bytes_per_s` is of one link in one direction, `latency_ns` per hop; `links` counts parallel links.
    `nic_latency_ns` and `router_latency_ns` are ASTRA-sim 1.0's extra terms.
    """

    kind: str
    npus: int
    bandwidth_bytes_per_s: float
    latency_ns: float
    links: int = 1
    nic_latency_ns: float = 0.0
    router_latency_ns: float = 0.0
    oversubscription: float = 1.0
    groups: int = 0
    routers: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """ASTRA-sim 1.0's memory floor of a message: (latency + size / bandwidth) * scale, in ns."""

    latency_ns: float = 0.0
    bandwidth_bytes_per_ns: float = 1.0
    scale: float = 0.0


@dataclass(frozen=True, slots=True)
class Wafer:
    """The wafer as made: `columns` x `rows`, what is broken on it, and how many rows are spare.

    Ids are physical, column first: id = column + columns * row. A dead link is dead in both directions.
    """

    columns: int
    rows: int
    dead_npus: tuple[int, ...] = ()
    dead_links: tuple[tuple[int, int], ...] = ()
    spare_rows: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """Directed links one by one; nodes are numbered NPUs first, `names` are the user's names for them."""

    npus: int
    names: tuple[str, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    bandwidth_bytes_per_s: tuple[float, ...]
    latency_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Dimensions (0 innermost: NPU ids count it first), as the workload sees them.

    With a `graph` one dimension of kind "Graph" stands for it. On a `wafer` the dimensions are the logical mesh without
    the spare rows; when dead NPUs have no spare, one dimension of kind "Wafer" counts those that live.
    """

    dims: tuple[Dimension, ...]
    name: str = ""
    description: str = ""
    memory: Memory = Memory()
    wafer: Wafer | None = None
    graph: Graph | None = None
    path: str = field(default="", compare=False)

    @property
    def npus(self) -> int:
        """How many NPUs there are."""
        return prod(dim.npus for dim in self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in NPU ids neighbours of each dimension are."""
        return tuple(prod(dim.npus for dim in self.dims[:index]) for index in range(len(self.dims)))
