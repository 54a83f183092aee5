"""What could be different in a step: every change makes its graph another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Literal, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.errors import InputError, SimulationError
from simcore.replay.steps.graph import EDGE_COLUMNS, EdgeKind, NodeKind, StepGraph
from simcore.replay.steps.rank import RankView
from simcore.replay.whatif.layers import LayerStack, find_layers
from simcore.replay.whatif.products import width_factors
from simcore.replay.whatif.repetition import Segment
from simcore.replay.whatif.splice import Mask, Stretch, spliced
from simcore.units import format_ranks

Factors = NDArray[np.float64]
HOST_EDGES = (EdgeKind.PROGRAM_ORDER, EdgeKind.CROSS_THREAD)
HOST_TIMES = ("host", "launches", "loader")


class WhatIf(Protocol):
    """A change of a step; its text says it in the answer."""

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int], /) -> StepGraph:
        """The changed graph of one step of some ranks, `steps` its positions in their windows."""


class Edit(Struct, frozen=True, eq=False):
    """A change by its text and what it makes of a graph, of tasks that match a `pattern`, or on some `ranks`."""

    text: str
    edit: Callable[[StepGraph, Sequence[RankView], Sequence[int]], StepGraph]
    pattern: re.Pattern[str] | None = None
    ranks: tuple[range, ...] = ()

    def __str__(self) -> str:
        return self.text


def lasting(
    text: str,
    factors: Callable[[RankView], Factors],
    pattern: re.Pattern[str] | None = None,
    ranks: tuple[range, ...] = (),
) -> Edit:
    """Tasks that take `factors` times as long, by their rows in a rank's trace; 0 removes them and their launches."""
    return Edit(text, lambda graph, views, _: without_tasks(graph, [*map(factors, views)]), pattern, ranks)


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
    waits = np.isin(graph.edge_kind, (EdgeKind.STREAM, EdgeKind.COLLECTIVE))
    durations, behind = changed.duration_ns.copy(), gone[graph.target] & waits
    durations[going] = 0
    return replace(
        changed,
        duration_ns=durations,
        lag_ns=np.where(behind, np.minimum(graph.lag_ns, 0), graph.lag_ns),
        residual_ns=np.where(gone[graph.target], 0, graph.residual_ns),
    )


def scale(pattern: re.Pattern[str], factor: float) -> Edit:
    """Tasks whose name matches take `factor` times as long; 0 removes them and their launches."""
    text = f"{pattern.pattern} x {factor:g}"
    return lasting(text, lambda rank: np.where(matching(pattern, rank), factor, 1.0), pattern)


def matching(pattern: re.Pattern[str], rank: RankView) -> Mask:
    """Which tasks have a name that matches."""
    hit = np.array([bool(pattern.search(name)) for name in rank.trace.names])
    found: Mask = hit[rank.trace.tasks.name]
    return found


def kinds(category: str, factor: float) -> Edit:
    """Tasks of a category of `kinds.txt` take `factor` times as long."""
    return lasting(f"{category} x {factor:g}", lambda rank: np.where(rank.of_category(category), factor, 1.0))


def fused(pattern: re.Pattern[str]) -> Edit:
    """Neighbours on a stream that match become one kernel, which takes as long as the longest of them.

    What streams the same data once is bound by its largest pass; the launches of the others go.
    """

    def factors(rank: RankView) -> Factors:
        tasks, chosen = rank.trace.tasks, matching(pattern, rank)
        found = np.ones(len(tasks))
        for rows in rank.stream_tasks:
            begins = np.flatnonzero(
                np.diff(chosen[rows], prepend=False) | np.r_[False, np.diff(rank.task_step[rows]) != 0]
            )
            for run in (run for run in np.split(rows, begins) if len(run) > 1 and chosen[run[0]]):
                found[run] = 0.0
                found[run[(tasks.end_ns - tasks.start_ns)[run].argmax()]] = 1.0
        return found

    return lasting(f"{pattern.pattern} fused", factors, pattern)


def within(rank: RankView, ranks: tuple[range, ...]) -> bool:
    """Whether a trace is of one of some ranks."""
    return any(rank.trace.rank in span for span in ranks)


def straggler(ranks: tuple[range, ...], factor: float) -> Edit:
    """Everything but communication takes `factor` times as long on some ranks."""
    return lasting(
        f"computation on rank {format_ranks(list(chain(*ranks)))} x {factor:g}",
        lambda rank: np.where(rank.communication | (not within(rank, ranks)), 1.0, factor),
        ranks=ranks,
    )


def width(which: Literal["hidden", "ffn"], size: int) -> Edit:
    """Another hidden or feed-forward size: matrix products are timed anew, other computation keeps its time.

    As in Lumos (MLSys 2025, section 3.4); a product's recorded time changes by the ratio of its kernels' times (see
    `width_factors`).
    """
    return lasting(f"{which} = {size}", lambda rank: width_factors(rank, which, size))


def layers(count: int) -> Edit:
    """Another number of layers: recorded ones are repeated or left out as a whole (Lumos, MLSys 2025, section 3.4).

    Ordinary ones are chosen: those that launch as many kernels as most do and are nearest to the median kernel time.
    InputError when the traces do not say what a layer is, or ranks say different things.
    """

    def edit(graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        stacks = [find_layers(rank, step) for rank, step in zip(ranks, steps, strict=True)]
        recorded = stacks[0].count
        chosen = stacks[0].alike[: max(recorded - count, 1)]
        if count == recorded:
            return graph
        if recorded - count > len(chosen):
            what = f"only {len(chosen)} of the {recorded} layers launch the same kernels"
            expected, found = f"layers >= {recorded - len(chosen)}", f"layers={count}"
            raise InputError.at("--set", what, expected=expected, found=found)
        parts = [block for number in chosen for block in _blocks(stacks, number)]
        return spliced(graph, [Stretch(graph, dict(enumerate(part))) for part in parts], max(count - recorded, -1) + 1)

    return Edit(f"layers = {count}", edit)


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


def overlap(mode: Literal["off", "full"]) -> Edit:
    """Communication beside computation never ("off"), or wherever only waits between streams prevented it ("full").

    Off: in the order of launches every communication kernel waits for the computation before it, and what is computed
    after it waits for it. Full: no stream waits for another one between communication and computation; the host's
    waits and the order on each stream stay.
    """

    def edit(graph: StepGraph, ranks: Sequence[RankView], _: Sequence[int]) -> StepGraph:
        if mode == "off":
            return _one_after_another(graph, ranks)
        talks = np.zeros(len(graph.kind), dtype=bool)
        for nodes, rank in zip(graph.ranks, ranks, strict=True):
            for column in (nodes.begins, nodes.ends):
                talks[column] = rank.communication[nodes.tasks]
        waits = np.isin(graph.edge_kind, BETWEEN_STREAMS) & (talks[graph.source] != talks[graph.target])
        return graph.kept(~waits)

    return Edit(f"overlap {mode}", edit)


BETWEEN_STREAMS = (EdgeKind.INTERSTREAM, EdgeKind.INTERSTREAM_INFERRED)


def _one_after_another(graph: StepGraph, ranks: Sequence[RankView]) -> StepGraph:
    """The graph in which computation and communication take turns.

    In the order of launches a task waits for the last one of the other kind on every stream before it; the step's first
    ones for the previous copy's last. A wait for a kernel that was launched later and held the device is left out: it
    may not hold it any more.
    """
    place = np.zeros(len(graph.kind), dtype=np.int64)
    pairs = list[tuple[int, int, int]]()  # source, target, copies back
    for nodes, rank in zip(graph.ranks, ranks, strict=True):
        order = np.argsort(np.argsort(rank.launch_order)[nodes.tasks])
        begins, ends = (np.array(column, dtype=np.int64)[order] for column in (nodes.begins, nodes.ends))
        place[begins] = place[ends] = np.arange(len(order))
        columns = (begins, ends, graph.lane[ends], rank.communication[nodes.tasks][order])
        tasks = list(zip(*(column.tolist() for column in columns), strict=True))
        last = {kind: {lane: (end, 1) for _, end, lane, talks in tasks if talks == kind} for kind in (False, True)}
        for begin, end, lane, talks in tasks:
            pairs += [(source, begin, back) for source, back in last[not talks].values()]
            last[talks][lane] = end, 0
    inferred = (graph.edge_kind == EdgeKind.INTERSTREAM_INFERRED) & (graph.back == 0)
    graph = graph.kept(~(inferred & (place[graph.source] > place[graph.target])))
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


def host(which: str, factor: float, ranks: tuple[range, ...] = ()) -> Edit:
    """Host time takes `factor` times as long: all but the data loader ("host"), launching calls, or the data loader.

    `ranks` limits it to some ranks; () is all of them. Waiting for the device is no host time.
    """

    def edit(graph: StepGraph, views: Sequence[RankView], _: Sequence[int]) -> StepGraph:
        chosen = np.array([not ranks or within(rank, ranks) for rank in views])
        calls = (graph.kind == NodeKind.HOST) & chosen[graph.rank]
        if which == "launches":
            calls &= np.isin(np.arange(len(calls)), graph.source[graph.edge_kind == EdgeKind.LAUNCH])
        between = np.isin(graph.edge_kind, HOST_EDGES) & chosen[graph.rank[graph.target]] & (graph.lag_ns > 0)
        loader = np.where(between, np.minimum(graph.loader_ns, graph.lag_ns), 0)
        own = {"host": np.where(between, graph.lag_ns - loader, 0), "loader": loader}.get(which, 0 * loader)
        less, idle = np.rint(own * (1 - factor)).astype(np.int64), np.minimum(graph.idle_ns, own)
        durations = graph.duration_ns
        if which != "loader":
            durations = np.where(calls, np.rint(durations * factor).astype(np.int64), durations)
        return replace(
            graph,
            duration_ns=durations,
            lag_ns=graph.lag_ns - less,
            idle_ns=graph.idle_ns - np.rint(idle * (1 - factor)).astype(np.int64),
            loader_ns=graph.loader_ns - (less if which == "loader" else 0),
        )

    names = {"host": "host time", "launches": "launch calls", "loader": "the data loader"}
    where = f" on rank {format_ranks(list(chain(*ranks)))}" if ranks else ""
    return Edit(f"{names[which]}{where} x {factor:g}", edit, ranks=ranks)


def cuda_graphs() -> Edit:
    """One launch in place of many: behind each wait of a thread, and each stay in the data loader, one call is left.

    The host time between launches goes with them: launching calls that follow another one, and the way to them, take
    no time.
    """

    def edit(graph: StepGraph, *_: object) -> StepGraph:
        nodes = np.arange(len(graph.kind))
        launching = np.isin(nodes, graph.source[graph.edge_kind == EdgeKind.LAUNCH])
        waiting = np.isin(nodes, graph.target[graph.edge_kind == EdgeKind.SYNC])
        order = (graph.edge_kind == EdgeKind.PROGRAM_ORDER) & (graph.back == 0)
        way = order & (graph.loader_ns == 0) & launching[graph.source] & launching[graph.target]
        way &= ~waiting[graph.source] & ~waiting[graph.target]
        durations, nothing = graph.duration_ns.copy(), np.int64(0)
        durations[graph.target[way]] = 0
        lag = np.where(way, np.minimum(graph.lag_ns, nothing), graph.lag_ns)
        return replace(graph, duration_ns=durations, lag_ns=lag, idle_ns=np.where(way, nothing, graph.idle_ns))

    return Edit("CUDA graphs", edit)


def unsynchronised() -> Edit:
    """The host waits for nothing that the device does; its launch queue still has an end."""
    return Edit("no synchronisation", lambda graph, *_: graph.kept(graph.edge_kind != EdgeKind.SYNC))
