"""What is in a workload, whatever its format: bytes by collective and group, message sizes, computation by kind.

All figures are sums over `num_ranks` ranks for one step. Sizes are whole buffers where that is known: traces and the
astra-sim dialect give one rank's part of an all-gather, which is multiplied by the group's size.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from simcore.workload.loops.pipeline import transfers
from simcore.workload.loops.step import Loop, Span, column_group, loops
from simcore.workload.model import SEND, CollectiveKind, Graph, Group, NodeKind, Phase, PhaseName, Workload

PIPELINE = "pp"
KINDS = tuple(CollectiveKind)
PHASES = tuple(str(name) for name in PhaseName)


@dataclass(frozen=True, slots=True)
class Traffic:
    """All messages of one size: collectives of a kind in groups of a kind (`group_size` 0: unknown), or sends."""

    collective: str
    group: str
    group_size: int
    size_bytes: int
    count: int

    @property
    def total_bytes(self) -> int:
        """Bytes of them all."""
        return self.size_bytes * self.count


@dataclass(frozen=True, slots=True)
class Compute:
    """All computation of a kind of layer in a phase ('' where a trace does not say)."""

    kind: str
    phase: str
    count: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Work:
    """One execution of a part of a model: its arithmetic, what it moves in memory, and how long it takes."""

    name: str
    phase: str
    flops: float
    memory_bytes: float
    time_ns: float


@dataclass(frozen=True, slots=True)
class Roof:
    """The bounds of an accelerator in a number format."""

    device: str
    dtype: str
    flops_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Contents:
    """A workload in figures; `work` and `roof` only where a generator knows them."""

    name: str
    num_ranks: int
    traffic: tuple[Traffic, ...]
    compute: tuple[Compute, ...]
    work: tuple[Work, ...] = ()
    roof: Roof | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all messages."""
        return sum(row.total_bytes for row in self.traffic)

    @property
    def compute_ns(self) -> int:
        """Time of all computation."""
        return sum(row.time_ns for row in self.compute)

    def by_group_size(self) -> Contents:
        """The same with groups known by their size: what texts and traces have in common."""
        sizes = (replace(row, group=_of_ranks(row.group_size) or row.group) for row in self.traffic)
        return replace(self, traffic=tuple(sizes))

    def by_group(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Collective and group -> how many and their bytes, most bytes first; sums over the ranks."""
        counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for row in self.traffic:
            counts[row.collective, row.group] += row.count
            sizes[row.collective, row.group] += row.total_bytes
        return {key: (counts[key], sizes[key]) for key in sorted(sizes, key=lambda key: (-sizes[key], key))}

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Kind of layer -> time by phase, the most time first; sums over the ranks."""
        found = defaultdict[str, dict[str, int]](Counter)
        for row in self.compute:
            found[row.kind][row.phase] += row.time_ns
        return dict(sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def _of_ranks(size: int) -> str:
    return f"{size} ranks" if size else ""


def _contents(
    name: str, num_ranks: int, traffic: Counter[Message], compute: Counter[Kernel], runs: Counter[Kernel]
) -> Contents:
    """Rows with most bytes, and most time, first."""
    messages = [Traffic(*key, count) for key, count in traffic.items()]
    computed = [Compute(*key, runs[key], time_ns) for key, time_ns in compute.items()]
    return Contents(
        name,
        num_ranks,
        tuple(sorted(messages, key=lambda row: (-row.total_bytes, row.collective, row.group, row.size_bytes))),
        tuple(sorted(computed, key=lambda row: (-row.time_ns, row.kind, row.phase))),
    )


Message = tuple[str, str, int, int]
Kernel = tuple[str, str]


# --- texts


def of_workload(workload: Workload) -> Contents:
    """What the training loop computes and sends on one rank, or on one rank of every pipeline stage with the transfers
    between stages. Without `stage_rows` all stages run the same rows.
    """
    loop: Loop = loops.get(workload.loop)
    stages = max(1, workload.parallelism.pp) if loop.staged or workload.stage_rows else 1
    copies = 1 if workload.stage_rows else stages
    traffic, compute, runs = Counter[Message](), Counter[Kernel](), Counter[Kernel]()
    kind, message = cache(layer_kind), cache(partial(_message, workload))  # of millions of rows few differ
    for step in loop.steps(workload):
        layer = workload.layers[step.layer]
        time_ns = layer.phase(step.phase).compute_ns
        if step.computes and time_ns:
            kernel = kind(layer.name), str(step.phase)
            compute[kernel] += time_ns * copies
            runs[kernel] += copies
        if step.issue:
            name, row = step.issue
            sender = workload.layers[row]
            if sent := message(row == 0, sender.loop, name, sender.phase(name)):
                traffic[sent] += copies
    if workload.pipeline_bytes and stages > 1:
        traffic[SEND, PIPELINE, 0, workload.pipeline_bytes] += transfers(workload)
    return _contents(workload.name, stages, traffic, compute, runs)


_SPANS: dict[Group | Span, str] = {Span.MODEL: "tp", Span.DATA: "dp"}


def _message(workload: Workload, first: bool, row_loop: str, name: PhaseName, phase: Phase) -> Message | None:
    """Collective, group, its size (0 where the header does not tell) and bytes; None where nothing is sent."""
    sizes = workload.parallelism
    if phase.collective is None:
        return None
    span = column_group(workload, row_loop, first, name, phase.group, from_header=True)  # as SimAI's headers mean it
    if span == Span.NONE:
        return None
    group = _SPANS.get(span, span.value)
    replicas = sizes.all_gpus // (max(1, sizes.tp) * max(1, sizes.pp))
    known = {"tp": sizes.tp, "ep": sizes.ep, "cp": sizes.cp, "pp": sizes.pp, "all": sizes.all_gpus, "dp": replicas}
    known["dp_ep"] = replicas * max(1, sizes.tp) // (max(1, sizes.ep) * sizes.expert_stride)
    size = known.get(group, 0)
    gathered = phase.collective is CollectiveKind.ALL_GATHER and workload.dialect == "astra-sim"
    return str(phase.collective), group, size, phase.size_bytes * (size if gathered and size else 1)


def layer_kind(name: str) -> str:
    """What layers that differ only in their number have in common.

    >>> layer_kind("encoder.layer.11.attention"), layer_kind("layer_64_1_mlp2"), layer_kind("12")
    ('encoder.layer.attention', 'layer_mlp', '12')
    """
    return re.sub(r"[._]?\d+", "", name).strip("._ ") or name


# --- traces


def of_graphs(
    name: str, graphs: Iterable[tuple[int, Graph]], groups: Mapping[str, tuple[int, ...]], num_ranks: int
) -> Contents:
    """Graphs, each with how many ranks run it; a collective without group is one of all `num_ranks`, if several."""
    traffic, compute, runs = Counter[Message](), Counter[Kernel](), Counter[Kernel]()
    for ranks, graph in graphs:
        # Every collective and send; receives are the sends of others.
        for row in np.flatnonzero((graph.kind == NodeKind.COLLECTIVE) | (graph.kind == NodeKind.SEND)).tolist():
            size = int(graph.size_bytes[row])
            if graph.kind[row] == NodeKind.SEND:
                traffic[SEND, PIPELINE, 0, size] += ranks
                continue
            kind, label = KINDS[graph.collective[row]], graph.group_names[graph.group[row]]
            members = len(groups.get(label, ())) if label else num_ranks if num_ranks > 1 else 0
            whole = size * members if kind is CollectiveKind.ALL_GATHER and members else size
            group = _of_ranks(members) or (f"group {label}" if label else "all")
            traffic[str(kind), group, members, whole] += ranks
        for row in np.flatnonzero((graph.kind == NodeKind.COMPUTE) & (graph.duration_ns > 0)).tolist():
            phase, _, rest = graph.names[row].partition(".")  # our own traces name nodes PHASE.LAYER
            ours = phase in PHASES and rest
            kernel = (layer_kind(rest), phase) if ours else (layer_kind(graph.names[row]), "")
            compute[kernel] += int(graph.duration_ns[row]) * ranks
            runs[kernel] += ranks
    return _contents(name, num_ranks, traffic, compute, runs)
