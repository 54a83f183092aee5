"""What could be different in a step: every change makes its graph another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError, SimulationError
from simcore.replay.graph import EDGE_COLUMNS, EdgeKind, RankNodes, StepGraph
from simcore.replay.rank import RankView
from simcore.replay.whatif.host import within
from simcore.replay.whatif.layers import LayerStack, find_layers
from simcore.replay.whatif.products import width_factors
from simcore.replay.whatif.repetition import Segment
from simcore.replay.whatif.splice import block_of, spliced
from simcore.units import format_ranks

Factors = NDArray[np.float64]
Mask = NDArray[np.bool_]


class WhatIf(Protocol):
    """A change of a step; its text says it in the answer."""

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """The changed graph of one step of some ranks, `steps` its positions in their windows."""


def without_tasks(graph: StepGraph, factors: Sequence[Factors]) -> StepGraph:
    """The graph with each task lasting its factor times as long; where that is 0, its launch goes with it.

    What a removed task waited for still holds what comes behind it; a call goes when all that it launched goes.
    """
    changed, gone = graph.lasting(factors), np.zeros(len(graph.kind), dtype=bool)
    for nodes, factor in zip(graph.ranks, factors, strict=True):
        for column in (nodes.begins, nodes.ends):
            gone[column] = factor[nodes.tasks] == 0
    if not gone.any():
        return changed
    launch = graph.edge_kind == EdgeKind.LAUNCH
    going = np.setdiff1d(graph.source[launch & gone[graph.target]], graph.source[launch & ~gone[graph.target]])
    durations, behind = changed.duration_ns.copy(), gone[graph.target] & (graph.edge_kind == EdgeKind.STREAM)
    durations[going] = 0
    return replace(
        changed,
        duration_ns=durations,
        lag_ns=np.where(behind, np.minimum(graph.lag_ns, 0), graph.lag_ns),
        residual_ns=np.where(gone[graph.target], 0, graph.residual_ns),
    )


class _Lasting:
    """Tasks that take `_factors` times as long, by their rows in a rank's trace; 0 removes them and their launches."""

    __slots__ = ()

    def _factors(self, rank: RankView) -> Factors:
        """The factor of each task."""
        raise NotImplementedError

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """Every task by its factor."""
        return without_tasks(graph, [self._factors(rank) for rank in ranks])


@dataclass(frozen=True, slots=True)
class Scale(_Lasting):
    """Tasks whose name matches take `factor` times as long; 0 removes them and their launches."""

    pattern: re.Pattern[str]
    factor: float

    def __str__(self) -> str:
        return f"{self.pattern.pattern} x {self.factor:g}"

    def _factors(self, rank: RankView) -> Factors:
        return np.where(matching(self.pattern, rank), self.factor, 1.0)


def matching(pattern: re.Pattern[str], rank: RankView) -> Mask:
    """Which tasks have a name that matches."""
    hit = np.array([bool(pattern.search(name)) for name in rank.trace.names])
    found: Mask = hit[rank.trace.tasks.name]
    return found


@dataclass(frozen=True, slots=True)
class Kinds(_Lasting):
    """Tasks of a category of `kinds.txt` take `factor` times as long."""

    category: str
    factor: float

    def __str__(self) -> str:
        return f"{self.category} x {self.factor:g}"

    def _factors(self, rank: RankView) -> Factors:
        return np.where(rank.of_category(self.category), self.factor, 1.0)


@dataclass(frozen=True, slots=True)
class Fused(_Lasting):
    """Neighbours on a stream that match become one kernel, which takes as long as the longest of them.

    What streams the same data once is bound by its largest pass; the launches of the others go.
    """

    pattern: re.Pattern[str]

    def __str__(self) -> str:
        return f"{self.pattern.pattern} fused"

    def _factors(self, rank: RankView) -> Factors:
        tasks, chosen = rank.trace.tasks, matching(self.pattern, rank)
        factors = np.ones(len(tasks))
        for rows in rank.stream_tasks:
            begins = np.flatnonzero(
                np.diff(chosen[rows], prepend=False) | np.r_[False, np.diff(rank.task_step[rows]) != 0]
            )
            for run in (run for run in np.split(rows, begins) if len(run) > 1 and chosen[run[0]]):
                factors[run] = 0.0
                factors[run[(tasks.end_ns - tasks.start_ns)[run].argmax()]] = 1.0
        return factors


@dataclass(frozen=True, slots=True)
class Straggler(_Lasting):
    """Everything but communication takes `factor` times as long on some ranks."""

    ranks: tuple[range, ...]
    factor: float

    def __str__(self) -> str:
        return f"computation on rank {format_ranks(list(chain(*self.ranks)))} x {self.factor:g}"

    def _factors(self, rank: RankView) -> Factors:
        return np.where(rank.communication | (not within(rank, self.ranks)), 1.0, self.factor)


@dataclass(frozen=True, slots=True)
class Layers:
    """Another number of layers: recorded ones are repeated or left out as a whole (Lumos, MLSys 2025, section 3.4).

    Ordinary ones are chosen: those that launch as many kernels as most do and are nearest to the median kernel time.
    """

    count: int

    def __str__(self) -> str:
        return f"layers = {self.count}"

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """The step's graph with that many layers.

        Raises
        ------
        InputError
            When the traces do not say what a layer is, or ranks say different things.
        """
        stacks = [find_layers(rank, step) for rank, step in zip(ranks, steps, strict=True)]
        chosen = stacks[0].alike[: max(stacks[0].count - self.count, 1)]
        if self.count == stacks[0].count:
            return graph
        if stacks[0].count - self.count > len(chosen):
            least = stacks[0].count - len(chosen)
            what = f"only {len(chosen)} of the {stacks[0].count} layers launch the same kernels"
            raise InputError.at("--set", what, expected=f"layers >= {least}", found=f"layers={self.count}")
        times = max(self.count - stacks[0].count, -1) + 1
        parts = [block for number in chosen for block in _blocks(stacks, number)]
        return spliced(graph, [block_of(graph, dict(enumerate(part))) for part in parts], times)


def _blocks(stacks: Sequence[LayerStack], number: int) -> list[tuple[Segment, ...]]:
    """The parts of a layer, each on all ranks."""
    parts = [stack.segments.get(number, ()) for stack in stacks]
    if len({stack.count for stack in stacks}) > 1 or len(set(map(len, parts))) > 1:
        found = ", ".join(f"{stack.count} x {stack.title!r}" for stack in stacks)
        hint = "of a pipeline's stages: --set pp=N layers=N --topology T compiles the step anew"
        raise InputError.at(
            "--set", "layers cannot be changed: the ranks recorded different ones", found=found, hint=hint
        )
    return list(zip(*parts, strict=True))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Communication beside computation never ("off"), or wherever only waits between streams prevented it ("full").

    Off: in the order of launches every communication kernel waits for the computation before it, and what is computed
    after it waits for it. Full: no stream waits for another one between communication and computation; the host's
    waits and the order on each stream stay.
    """

    mode: Literal["off", "full"]

    def __str__(self) -> str:
        return f"overlap {self.mode}"

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """The step's graph with other waits between communication and computation."""
        both = list(zip(graph.ranks, ranks, strict=True))
        if self.mode == "off":
            return one_after_another(graph, [_by_launch(nodes, rank) for nodes, rank in both])
        talks = np.zeros(len(graph.kind), dtype=bool)
        for nodes, rank in both:
            for column in (nodes.begins, nodes.ends):
                talks[column] = rank.communication[nodes.tasks]
        waits = np.isin(graph.edge_kind, BETWEEN_STREAMS) & (talks[graph.source] != talks[graph.target])
        return graph.kept(~waits)


def _by_launch(nodes: RankNodes, rank: RankView) -> list[tuple[int, int, bool]]:
    """(first node, last node, communication) of a rank's tasks in the order of their launches."""
    place = {task: number for number, task in enumerate(rank.launch_order.tolist())}
    rows = sorted(range(len(nodes.tasks)), key=lambda row: place[nodes.tasks[row]])
    return [(nodes.begins[row], nodes.ends[row], bool(rank.communication[nodes.tasks[row]])) for row in rows]


@dataclass(frozen=True, slots=True)
class Width(_Lasting):
    """Another hidden or feed-forward size: matrix products are timed anew, other computation keeps its time.

    As in Lumos (MLSys 2025, section 3.4); a product's recorded time changes by the ratio of its kernels' times.
    """

    which: Literal["hidden", "ffn"]
    size: int

    def __str__(self) -> str:
        return f"{self.which} = {self.size}"

    def _factors(self, rank: RankView) -> Factors:
        """The ratio of the kernels' times where a product has the dimension (see `width_factors`)."""
        return width_factors(rank, self.which, self.size)


BETWEEN_STREAMS = (EdgeKind.INTERSTREAM, EdgeKind.INTERSTREAM_INFERRED)


def one_after_another(graph: StepGraph, ranks: Sequence[Sequence[tuple[int, int, bool]]]) -> StepGraph:
    """The graph in which computation and communication take turns.

    `ranks` lists (first node, last node, communication) of each rank's tasks in launch order. A task waits for the
    last one of the other kind on every stream before it; the step's first ones for the previous copy's last. A wait for
    a kernel that was launched later and held the device is left out: it may not hold it any more.
    """
    place = np.zeros(len(graph.kind), dtype=np.int64)
    for tasks in ranks:
        for number, (begin, end, _) in enumerate(tasks):
            place[[begin, end]] = number
    inferred = (graph.edge_kind == EdgeKind.INTERSTREAM_INFERRED) & (graph.back == 0)
    graph = graph.kept(~(inferred & (place[graph.source] > place[graph.target])))
    pairs = [pair for tasks in ranks for pair in _turns(graph, tasks)]
    source, target, back = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    new = dict.fromkeys(EDGE_COLUMNS, np.zeros(len(pairs), dtype=np.int64))
    new |= {"source": source, "target": target, "back": back, "edge_kind": np.full(len(pairs), EdgeKind.INTERSTREAM)}
    longer = {name: np.r_[getattr(graph, name), new[name]] for name in EDGE_COLUMNS}
    changed = replace(graph, **longer).in_order()
    if len(changed.order) < len(graph.kind):
        raise SimulationError(
            "--overlap off: tasks would wait for each other in a circle: launches contradict the streams"
        )
    return changed


def _turns(graph: StepGraph, tasks: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int, int]]:
    """(source, target, copies back) between each task and the last ones of the other kind before it."""
    last: dict[bool, dict[int, tuple[int, int]]] = {False: {}, True: {}}
    for _, end, talks in tasks:
        last[talks][int(graph.lane[end])] = end, 1
    pairs = []
    for begin, end, talks in tasks:
        pairs += [(source, begin, back) for source, back in last[not talks].values()]
        last[talks][int(graph.lane[end])] = end, 0
    return pairs
