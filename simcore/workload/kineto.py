"""PyTorch profiler (Kineto) traces: what one rank's holds, as columns of calls, kernels and step marks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from simcore.library import table

Column = NDArray[np.int64]
NO_CORRELATION = -1
PRODUCTS = {"aten::mm", "aten::addmm"}  # operators of one matrix product: inputs are matrices [m, k] and [k, n]
COMMUNICATION = "record_param_comms"  # the operator around a collective's launch
COMMUNICATION_KERNEL = re.compile("nccl|rccl", re.IGNORECASE)
ENDS = re.compile(r" (\d+)>(\d+)$")
EXTERNAL_ID, RECORD_ID = "External id", "Record function id"
# What an event is, by the rows of categories.txt; the first three run on a stream.
KERNEL, MEMCPY, MEMSET, CALL, OPERATOR, ANNOTATION, SYNC, PYTHON = range(8)
CATEGORIES = {name: kind for kind, row in enumerate(table(__file__, "categories.txt")) for name in row[1].split()}
MODULE = "nn.Module: "  # how the names of modules begin among the Python functions of a trace with stacks
_ELEMENTS = table(__file__, "elements.txt")
TYPES = {called: nccl for called, nccl, _, _ in _ELEMENTS}
ELEMENT_BYTES = {nccl: int(size) for _, nccl, size, _ in _ELEMENTS}
PRODUCT_TYPES = {called: dtype for called, _, _, dtype in _ELEMENTS if dtype != "-"}


class Intervals(Struct, frozen=True, eq=False):
    """Columns of equal length ordered by start; `lane` indexes the trace's threads or streams, `name` its names."""

    start_ns: Column
    end_ns: Column
    lane: Column
    name: Column
    correlation: Column
    kind: Column

    def __len__(self) -> int:
        return len(self.start_ns)

    def length_ns(self, row: int) -> int:
        """The duration of one interval."""
        return int(self.end_ns[row] - self.start_ns[row])

    @classmethod
    def none(cls) -> Intervals:
        """No rows at all."""
        return cls(*np.zeros((6, 0), np.int64))

    def where(self, chosen: NDArray[np.bool_]) -> Intervals:
        """Some of the rows."""
        return Intervals(*(getattr(self, name)[chosen] for name in Intervals.__struct_fields__))


class StepMark(Struct, frozen=True):
    """One ProfilerStep: its number and its place on the thread that drives the training loop."""

    index: int
    start_ns: int
    end_ns: int
    thread: int

    @property
    def length_ns(self) -> int:
        """The measured time of the step."""
        return self.end_ns - self.start_ns


class Collective(Struct, frozen=True):
    """What NCCL says of a communication kernel: operation, process group, element count; texts may be empty.

    `size` is the number of ranks in the group, 0 = not said. The group of a point-to-point transfer ends with its
    source and destination. Of large groups the profiler names few ranks, but the `first` of evenly spaced ones and
    their `stride` (0 = not said). `communicator` is what the process group is called: several may have the same ranks.
    """

    operation: str
    group: str
    elements: int
    size: int = 0
    description: str = ""
    dtype: str = ""
    first: int = 0
    stride: int = 0
    communicator: str = ""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group; () when the profiler does not tell all of them."""
        named = self.group.partition("]")[0] if self.group.startswith(('"[', "[")) else ""
        found = tuple(int(rank) for rank in re.findall(r"\d+", named))
        if len(found) != self.size and self.stride > 0 and self.first >= 0:
            found = tuple(range(self.first, self.first + self.size * self.stride, self.stride))
        return found if len(found) == self.size else ()

    @property
    def ends(self) -> tuple[int, int] | None:
        """Source and destination of a point-to-point transfer."""
        found = ENDS.search(self.group)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def parties(self) -> int:
        """How many ranks take part; 0 = not said."""
        return 2 if self.ends else self.size

    @property
    def size_bytes(self) -> int:
        """Bytes that a rank puts in; 0 = not said."""
        return self.elements * ELEMENT_BYTES.get(self.dtype.lower(), 0)


class Product(Struct, frozen=True):
    """A matrix product [m, k] by [k, n]; `dtype` as accelerators name it, empty when not said."""

    m: int
    k: int
    n: int
    dtype: str


class StreamSync(Struct, frozen=True):
    """One event of category cuda_sync: which call waited, on which stream or recorded event; -1 = not said."""

    kind: str
    stream: int
    wait_stream: int
    record_correlation: int
    device: int


class HostUse(Struct, frozen=True):
    """What a host execution trace gave: `found` of its `operations` are `operators` of the profile.

    There are more operators than operations found where an iteration that it recorded repeats, in so many `stretches`.
    `products` and `collectives` got shapes and sizes from it; of the `unsized` communication kernels none is known.
    """

    file: str
    matched_by: str
    operations: int
    found: int
    operators: int
    stretches: int
    products: int = 0
    collectives: int = 0
    unsized: int = 0


class KinetoTrace(Struct, frozen=True, eq=False):
    """One rank's trace. Times are ns since `base_ns`; `tasks` run on `streams` (device, stream), the rest on `threads`.

    `collectives` maps a row of `tasks`, `syncs` a call's correlation to what the profiler says of it.
    `annotations` are the program's own ranges without the step marks, and PyTorch modules where stacks were recorded;
    `frames` are the Python functions of these stacks. `copied` maps a row of `tasks` to the bytes that a copy moves,
    `multiprocessors` to the share of them that a kernel's blocks reach and that of their warps which it occupies.
    `products` maps a row of `operators` to the matrix product it was asked for, where shapes were recorded, `sequences`
    to a number that it shares with its backward operator. The `correlation` of operators is what `operator_ids` names.
    `endless` events have no duration, or one below 0, and take none; `again` stood in the file twice, in all just so,
    and are here once. `host` tells what a host execution trace added.
    """

    file: str
    rank: int
    rank_known: bool
    base_ns: int
    device: str
    names: tuple[str, ...]
    threads: tuple[str, ...]
    streams: tuple[tuple[int, int], ...]
    calls: Intervals
    operators: Intervals
    tasks: Intervals
    steps: tuple[StepMark, ...]
    collectives: dict[int, Collective] = {}
    syncs: dict[int, StreamSync] = {}
    annotations: Intervals = field(default_factory=Intervals.none)
    frames: Intervals = field(default_factory=Intervals.none)
    products: dict[int, Product] = {}
    copied: dict[int, int] = {}
    multiprocessors: dict[int, tuple[float, float]] = {}
    sequences: dict[int, int] = {}
    operator_ids: str = EXTERNAL_ID
    endless: int = 0
    again: int = 0
    host: HostUse | None = None

    @property
    def span_ns(self) -> tuple[int, int]:
        """From the first call, operator or task to the last."""
        parts = [part for part in (self.calls, self.tasks, self.operators) if len(part)]
        return min(int(part.start_ns.min()) for part in parts), max(int(part.end_ns.max()) for part in parts)


def product_of(shapes: object, types: object) -> Product | None:
    """The product of the last two matrices among an operator's inputs; None when there are no two."""
    matrices = [one for one in shapes if isinstance(one, list) and len(one) == 2] if isinstance(shapes, list) else []
    if len(matrices) < 2 or not all(isinstance(size, int) and size > 0 for one in matrices[-2:] for size in one):
        return None
    (m, k), (_, n) = matrices[-2:]
    said = {PRODUCT_TYPES[one] for one in types if one in PRODUCT_TYPES} if isinstance(types, list) else set()
    return Product(m, k, n, said.pop() if len(said) == 1 else "")


def launched_by(trace: KinetoTrace, rows: Iterable[int]) -> dict[int, int]:
    """Of the communication kernels that do not say what they do the innermost of some operators around their launch;
    -1 where there is none, or it launched another one, too.
    """
    calls, operators, tasks = trace.calls, trace.operators, trace.tasks
    communicate = np.array([bool(COMMUNICATION_KERNEL.search(name)) for name in trace.names], dtype=bool)
    chosen = np.array(sorted(rows), dtype=np.int64)
    starts, ends, lanes = (column[chosen] for column in (operators.start_ns, operators.end_ns, operators.lane))
    launches = dict(zip(calls.correlation[::-1].tolist(), range(len(calls))[::-1], strict=True))
    found = dict[int, int]()
    launches.pop(NO_CORRELATION, None)
    for kernel in sorted(set(np.flatnonzero(communicate[tasks.name]).tolist()) - set(trace.collectives)):
        found[kernel], call = -1, launches.get(int(tasks.correlation[kernel]), -1)
        if call >= 0:
            time_ns = int(calls.start_ns[call])
            inside = np.flatnonzero((lanes == calls.lane[call]) & (starts <= time_ns) & (time_ns <= ends))
            found[kernel] = int(chosen[inside[-1]]) if len(inside) else -1
    often = Counter(found.values())
    return {kernel: row if often[row] == 1 else -1 for kernel, row in found.items()}
