"""A topology as data: dimensions, innermost first, or an explicit graph of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from numbers import Integral, Real
from typing import Any

from simcore.errors import InputError, wrong
from simcore.network.topology.ports import PLAIN, Ports
from simcore.noise import QUIET, Noise
from simcore.units import parse_bytes_per_s, parse_ns

FEW_LINKS = "dimension {}: an NPU has {} of the {}'s {} links; it has them all here, and no bandwidth in ASTRA-sim 1.0"
CIRCUITS = "circuits are changed all at once, when nothing is under way on those in place"


@dataclass(frozen=True, slots=True)
class Memory:
    """ASTRA-sim 1.0's memory floor of a message: (latency + size / bandwidth) * scale, in ns."""

    latency_ns: float = 0.0
    bandwidth_bytes_per_ns: float = 1.0
    scale: float = 0.0

    def floor_ns(self, size_bytes: int) -> float:
        """A message of so many bytes takes no less."""
        return (self.latency_ns + size_bytes / self.bandwidth_bytes_per_ns) * self.scale


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: `npus` per group, joined as `kind` says.

    `bandwidth_bytes_per_s` is of one link in one direction, `latency_ns` per hop; `links` counts parallel links to a
    neighbour or, with `links_per_npu`, the links of an NPU to all its neighbours of this dimension (ASTRA-sim 1.0).
    `nic_latency_ns`, `router_latency_ns` and `memory` are ASTRA-sim 1.0's extra terms. `oversubscription` belongs to a
    FatTree, `groups`, `global_links` (between two groups) and `routing` to a Dragonfly, `routers` to both (leaves;
    routers of a group). `level` says where the dimension is (inside a server, between servers, ...), for its price.
    `ports` are what links with queues do (`network.queued`). InputError for what no links can be.
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
    global_links: int = 1
    routing: str = "minimal"
    links_per_npu: bool = False
    memory: Memory = Memory()
    level: str = ""
    ports: Ports = PLAIN

    def __post_init__(self) -> None:
        whole = isinstance(self.npus, Integral) and not isinstance(self.npus, bool)
        if not whole or self.npus < 1:
            raise wrong("npus", "a whole number of at least 1", self.npus)
        rate, latency_ns = self.bandwidth_bytes_per_s, self.latency_ns
        if not (isinstance(rate, Real) and rate > 0):
            raise wrong("bandwidth_bytes_per_s", "a number above 0", rate)
        if not (isinstance(latency_ns, Real) and 0 <= latency_ns < inf):
            raise wrong("latency_ns", "a number of at least 0", latency_ns)

    @property
    def ends(self) -> int:
        """Who shares `links`: one neighbour or, of links of an NPU, all of this dimension."""
        return {"Ring": 2, "FullyConnected": max(self.npus - 1, 1)}.get(self.kind, 1) if self.links_per_npu else 1

    @property
    def parallel_links(self) -> int:
        """Links to one neighbour, at least one."""
        return max(self.links // self.ends, 1)


@dataclass(frozen=True, slots=True)
class Wafer:
    """The wafer as made: its two dimensions with the spare rows, what is broken on it, how many rows are spare.

    Ids are physical, column first: id = column + columns * row. A dead link is dead in both directions.
    """

    dims: tuple[Dimension, Dimension]
    dead_npus: tuple[int, ...] = ()
    dead_links: tuple[tuple[int, int], ...] = ()
    spare_rows: int = 0

    @property
    def columns(self) -> int:
        """NPUs of a row."""
        return self.dims[0].npus

    @property
    def rows(self) -> int:
        """Rows, spare ones included."""
        return self.dims[1].npus


@dataclass(frozen=True, slots=True)
class Graph:
    """Directed links one by one; nodes are numbered NPUs first, `names` are the user's names for them.

    `boxes` are the servers or switches that nodes are parts of, where the file tells; `card_bytes_per_s` are the rates
    of network cards from which cables lead out of what the file tells; `note` says what of it is not the file's.
    """

    npus: int
    names: tuple[str, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    bandwidth_bytes_per_s: tuple[float, ...]
    latency_ns: tuple[float, ...]
    boxes: tuple[str, ...] = ()
    card_bytes_per_s: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link, or with an undirected graph two, between nodes by name."""

    ends: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_ns: float


def assemble(kinds: Mapping[str, bool], edges: list[Edge], directed: bool) -> Graph:
    """Number the nodes, NPUs first, and make the links directed."""
    names = sorted(kinds, key=lambda name: not kinds[name])
    number = {name: index for index, name in enumerate(names)}
    pairs = [(edge, edge.ends) for edge in edges]
    if not directed:
        pairs = [both for edge in edges for both in ((edge, edge.ends), (edge, edge.ends[::-1]))]
    pairs = [(edge, ends) for edge, ends in pairs if ends[0] in number and ends[1] in number]
    return Graph(
        sum(kinds.values()),
        tuple(names),
        tuple(number[ends[0]] for _, ends in pairs),
        tuple(number[ends[1]] for _, ends in pairs),
        tuple(edge.bandwidth_bytes_per_s for edge, _ in pairs),
        tuple(edge.latency_ns for edge, _ in pairs),
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """Links (by number) whose bandwidth is `factor` times its own from `begin_ns` until `end_ns`; 0 = they are down."""

    text: str
    links: tuple[int, ...]
    factor: float
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Circuits:
    """What an optical switch makes of a topology: for some collectives another one, in `delay_ns`.

    `numbers` are those of their configurations, 0 = the topology's own, then `others` in order.
    """

    delay_ns: int
    others: tuple[Topology, ...]
    numbers: tuple[tuple[str, int], ...]

    def number(self, kind: str) -> int:
        """Of a collective's configuration."""
        return dict(self.numbers).get(kind, 0)

    def switched(self, own: Topology) -> set[int]:
        """Dimensions that are not the same in all configurations."""
        every = range(len(own.dims))
        apart = own.apart and all(other.apart for other in self.others)
        return {at for at in every if not apart or any(other.dims[at] != own.dims[at] for other in self.others)}


@dataclass(frozen=True, slots=True)
class Topology:
    """A network as the workload sees it: `dims`, of which NPU ids count the first first.

    `name`, `description`, `path` and the files that this one names (`beside`) say where it comes from. With a `graph`
    one dimension of kind "Graph" stands for it. On a `wafer` the dimensions are the logical mesh without the spare
    rows; when dead NPUs have no spare, one dimension of kind "Wafer" counts those that live. One of kind "TwistedTorus"
    stands for the sides of a `twisted` one. `circuits` are those of an optical switch, where the file names some.
    `noise` and `faults` are what a run adds to its links.
    """

    dims: tuple[Dimension, ...]
    name: str = ""
    description: str = ""
    wafer: Wafer | None = None
    graph: Graph | None = None
    twisted: tuple[Dimension, ...] = ()
    circuits: Circuits | None = None
    path: str = field(default="", compare=False)
    beside: tuple[str, ...] = field(default=(), compare=False)
    noise: Noise = QUIET
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.dims, list | tuple) and self.dims):
            raise wrong("dims", "a dimension, or several", self.dims)

    def notes(self) -> list[str]:
        """What is an approximation of it."""
        said = [self.graph.note] if self.graph and self.graph.note else []
        short = ((at, dim) for at, dim in enumerate(self.dims) if dim.npus > 1 and dim.links < dim.ends)
        said += [FEW_LINKS.format(at, dim.links, dim.kind, dim.ends) for at, dim in short]
        return [*said, CIRCUITS] if self.circuits else said

    def __repr__(self) -> str:
        return f"<Topology {self.name}: {' x '.join(f'{dim.kind} of {dim.npus}' for dim in self.dims)}>"

    def replace(
        self,
        bandwidth: float | str | Sequence[float | str] | None = None,
        latency: float | str | Sequence[float | str] | None = None,
    ) -> Topology:
        """The same network with other links, for studies without files.

        `bandwidth` in GB/s or as "400 Gb/s", `latency` in ns or as "1.5 us"; one for all dimensions, or one each.
        InputError for what is no such number, and for networks whose links are written one by one (graphs, wafers).

        >>> Topology((Dimension("Ring", 8, 50e9, 500.0),)).replace(bandwidth="400 Gb/s").dims[0].bandwidth_bytes_per_s
        50000000000.0
        """
        if not self.apart:
            raise InputError.at(
                self.name or "topology", "links of a graph, wafer or twisted torus are varied in its file"
            )
        dims = self.dims
        for name, given, parse in (
            ("bandwidth_bytes_per_s", bandwidth, parse_bytes_per_s),
            ("latency_ns", latency, parse_ns),
        ):
            if given is None:
                continue
            values: list[Any] = [*given] if isinstance(given, list | tuple) else [given] * len(dims)
            if len(values) != len(dims):
                expected = f"one value, or {len(dims)}"
                raise InputError.at(name, "not a value for every dimension", expected=expected, found=str(len(values)))
            try:
                parsed = [parse(value) for value in values]
            except (TypeError, ValueError) as error:
                raise wrong(name, "numbers, or texts with a unit", given) from error
            if min(parsed) < 0 or (name.startswith("bandwidth") and not all(parsed)):
                raise wrong(name, "above 0", given)
            dims = tuple(
                replace(dim, **{name: value})  # type: ignore[arg-type]  # both are floats
                for dim, value in zip(dims, parsed, strict=True)
            )
        return replace(self, dims=dims, path="")

    @property
    def files(self) -> tuple[str, ...]:
        """All that say what it is, its own first."""
        return (self.path, *self.beside) if self.path else ()

    @property
    def apart(self) -> bool:
        """Whether each dimension has links of its own."""
        return not (self.graph or self.wafer or self.twisted)

    @property
    def npus(self) -> int:
        """How many NPUs there are."""
        return prod(dim.npus for dim in self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in NPU ids neighbours of each dimension are."""
        return tuple(prod(dim.npus for dim in self.dims[:index]) for index in range(len(self.dims)))
