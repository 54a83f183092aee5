"""Workloads as plain frozen data: `Workload` (layers driven by a training loop) and `Graph` (nodes with dependencies).

Every format is read into one of the two; nothing here knows about time, networks or processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from simcore.errors import Location, Problem, Problems
from simcore.library import table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class CollectiveKind(StrEnum):
    """What a collective does with its ranks' data."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"


ROOTED = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER)


SEND = "send"
OPERATIONS = [
    (called, kind if kind == SEND else CollectiveKind(kind)) for called, kind in table(__file__, "operations.txt")
]


@lru_cache(1024)
def kind_of(operation: str) -> str:
    """A value of `CollectiveKind`, `SEND` for both sides of a transfer, "" for what is neither.

    >>> kind_of("ncclDevKernel_AllReduce_Sum_f32"), kind_of("all_to_allv"), kind_of("irecv"), kind_of("gemm")
    (<CollectiveKind.ALL_REDUCE: 'all_reduce'>, <CollectiveKind.ALL_TO_ALL: 'all_to_all'>, 'send', '')
    """
    name = operation.lower().replace("_", "")
    return next((kind for known, kind in OPERATIONS if known in name), "")


class PhaseName(StrEnum):
    """The three computations of a layer; values are the keys of the report."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python, and phases are looked up at every step

    FORWARD = "forward"
    INPUT_GRAD = "input_grad"
    WEIGHT_GRAD = "weight_grad"


class Group(StrEnum):
    """Which ranks a column's collective spans; LOOP leaves it to the training loop (the column's usual group)."""

    LOOP = ""
    TP = "tp"
    DP = "dp"
    EP = "ep"
    DP_EP = "dp_ep"
    CP = "cp"
    PP = "pp"


Dialect = Literal["astra-sim", "simai"]


@dataclass(frozen=True, slots=True)
class Phase:
    """One computation of a layer and the collective behind it.

    `size_bytes` of an all-gather is per rank in the astra-sim dialect, the gathered total in SimAI's.
    """

    compute_ns: int = 0
    collective: CollectiveKind | None = None
    size_bytes: int = 0
    group: Group = Group.LOOP


class Role(Enum):
    """What a row is part of: of a micro-batch, as far as its maker says it; those of a step's end stand in the order in
    which a framework gets to them.
    """

    MICRO_BATCH = "a micro-batch"
    EMBEDDING = "embedding"
    ATTENTION = "attention"
    CONTEXT = "what context ranks exchange"
    FEED_FORWARD = "feed-forward"
    EXPERTS = "experts"
    HEAD = "head"
    ENTROPY = "the loss of every micro-batch"
    FURTHER = "modules that predict further tokens"
    SHARDS = "parameters gathered for a pass"
    REPLICAS = "sums of gradients over replicas of what is sharded"
    REDUCE = "sums of gradients over replicas"
    REPLICATED = "sums of the gradients of weights that tensor ranks hold whole"
    NORM = "the norm of all gradients"
    OPTIMIZER = "the optimizer"
    GATHER = "new parameters from those who have them"
    LOSS = "the loss, where a file has it once, behind its micro-batches"
    CLOSING = "the optimizer, where a file has it behind its micro-batches"


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of a text workload: a layer by its `name`.

    `forward`, `input_grad` and `weight_grad` say what each phase computes (nanoseconds) and sends (bytes). `update_ns`
    is the delay after each of its collectives, `reserved` the file's second column, which nothing reads. `loop` is the
    row's own training loop (13th column of HYBRID_CUSTOMIZED), '' elsewhere. `location` is its line in the file,
    `role` whether it belongs to a micro-batch or to the end of a step.
    """

    name: str
    forward: Phase = Phase()
    input_grad: Phase = Phase()
    weight_grad: Phase = Phase()
    update_ns: int = 0
    reserved: int = -1
    loop: str = ""
    location: Location = field(default=Location(""), compare=False)
    role: Role = field(default=Role.MICRO_BATCH, compare=False)

    @property
    def phases(self) -> tuple[Phase, Phase, Phase]:
        """Forward, input gradient, weight gradient."""
        return self.forward, self.input_grad, self.weight_grad

    def figures(self) -> Iterator[tuple[str, int]]:
        """Its durations and sizes, with what they are."""
        yield "update_ns", self.update_ns
        for name, phase in zip(PhaseName, self.phases, strict=True):
            yield f"compute_ns of {name}", phase.compute_ns
            yield f"size_bytes of {name}", phase.size_bytes

    def phase(self, name: PhaseName) -> Phase:
        """The phase called `name`."""
        return {PhaseName.FORWARD: self.forward, PhaseName.INPUT_GRAD: self.input_grad}.get(name, self.weight_grad)


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of the rank groups; 0 = the header does not say, of `expert_tp` (ranks that split an expert): as `tp`."""

    tp: int = 0
    ep: int = 0
    pp: int = 0
    vpp: int = 0
    cp: int = 0
    gradient_accumulation: int = 0
    all_gpus: int = 0
    expert_tp: int = 0

    @property
    def expert_stride(self) -> int:
        """How far apart the ranks of an expert group stand: the ranks that split an expert are side by side."""
        return max(1, self.expert_tp or self.tp)


@dataclass(frozen=True, slots=True)
class Workload:
    """A text workload: its rows, the `layers`, and the training `loop` that drives them (docs/workload-text.md).

    `parallelism` are the sizes of the groups in the header, `dialect` whose text it is. `name`, `location` and
    `warnings` say where it comes from and what was odd there. `last_bottom_layer` belongs to the DLRM loops,
    `checkpoints` and `checkpoint_initiates` (layer indices) to HYBRID_TRANSFORMER_FWD_IN_BCKWD, `pipeline_bytes` is
    what one micro-batch hands to the next stage. `stage_rows` says how many rows each part of a pipelined model has;
    without it the rows are those of any one stage. `schedule` is the order of the pipeline's cells, "" the usual one.
    """

    loop: str
    layers: tuple[Layer, ...]
    parallelism: Parallelism = Parallelism()
    dialect: Dialect = "astra-sim"
    last_bottom_layer: int = -1
    checkpoints: tuple[int, ...] = ()
    checkpoint_initiates: tuple[int, ...] = ()
    pipeline_bytes: int = 0
    stage_rows: tuple[int, ...] = ()
    schedule: str = ""
    name: str = field(default="", compare=False)
    location: Location = field(default=Location(""), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return f"<Workload {self.name}: {self.loop}, {len(self.layers)} layers>"

    def check(self) -> None:
        """InputError for figures of layers that no text could give, as of those made by hand."""
        with Problems() as problems:
            for at, layer in enumerate(self.layers):
                for what, figure in layer.figures():
                    if not (isinstance(figure, int | Integral) and 0 <= figure < 1 << 63):
                        place, expected = Location(f"layer {at} '{layer.name}'"), "a whole number from 0 to 2^63 - 1"
                        problems.add(Problem(place, f"{what} is wrong", expected, repr(figure)))


class NodeKind(IntEnum):
    """What a graph node is; the numbers are Chakra's. Readers make computations of those behind COLLECTIVE."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


ALL_DIMENSIONS = -1
NO_COLLECTIVE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """One rank's dependency graph in columns of length n; row order is ascending node id.

    `collective` indexes `list(CollectiveKind)`, NO_COLLECTIVE where the node is none. `group` names a communicator
    ('' = all NPUs) by index into `group_names`. `dims` is a bit mask of topology dimensions, ALL_DIMENSIONS = all.
    `peer` is the other rank of a send or receive. `deps[dep_offsets[i]:dep_offsets[i + 1]]` are the **rows** (not ids)
    that row i waits for. `stream` is the device stream a native run serialises kernels on, -1 = none given.
    What `delays` computes nothing: it takes as long on a slow NPU.
    `chakra_ns` is the duration as ASTRA-sim 2.x takes it, None = as `duration_ns`. `policy` is the scheduling policy by
    which its collectives go, "" = the run's.
    """

    node_id: NDArray[np.int64]
    kind: NDArray[np.uint8]
    duration_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    collective: NDArray[np.int8]
    group: NDArray[np.int32]
    dims: NDArray[np.int64]
    peer: NDArray[np.int32]
    tag: NDArray[np.int64]
    priority: NDArray[np.int64]
    num_ops: NDArray[np.int64]
    on_cpu: NDArray[np.bool_]
    delays: NDArray[np.bool_]
    stream: NDArray[np.int32]
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int32]
    names: tuple[str, ...]
    group_names: tuple[str, ...] = ("",)
    path: str = ""
    chakra_ns: NDArray[np.int64] | None = None
    policy: str = ""

    def __len__(self) -> int:
        return len(self.node_id)

    @property
    def messages(self) -> NDArray[np.bool_]:
        """Which nodes send or receive."""
        found: NDArray[np.bool_] = (self.kind == NodeKind.SEND) | (self.kind == NodeKind.RECV)
        return found

    @classmethod
    def of(cls, *nodes: Mapping[str, object], group_names: tuple[str, ...] = ("",)) -> Graph:
        """Nodes that wait for nothing, each from its `name` and what is not usual in its columns."""
        import numpy as np

        columns: dict[str, Any] = {
            name: np.array([node.get(name, _USUAL.get(name, 0)) for node in nodes], getattr(np, dtype))
            for name, dtype in NODE_COLUMNS.items()
        }
        columns |= {"node_id": np.arange(len(nodes)), "dep_offsets": np.zeros(len(nodes) + 1, np.int64)}
        names = tuple(str(node.get("name", "")) for node in nodes)
        return cls(**columns, deps=np.zeros(0, np.int32), names=names, group_names=group_names)


# Columns with a value for every node -> their type; `chakra_ns` may be missing.
NODE_COLUMNS = {
    name: kind[11:-1]
    for name, kind in Graph.__annotations__.items()
    if kind.startswith("NDArray") and kind.endswith("]") and "dep" not in name
}
_USUAL = {"collective": NO_COLLECTIVE, "dims": ALL_DIMENSIONS, "peer": -1, "stream": -1}


@dataclass(frozen=True, slots=True, eq=False)
class GraphSet:
    """The graphs of all ranks: `graphs[graph_of_rank[rank]]`; equal contents are one object.

    `groups` maps a communicator's name to its ranks in ring order. `start_ns` says which ranks begin later than at 0.
    """

    graphs: tuple[Graph, ...]
    graph_of_rank: NDArray[np.int32]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    name: str = ""
    warnings: tuple[str, ...] = ()
    start_ns: Mapping[int, int] = field(default_factory=dict)
