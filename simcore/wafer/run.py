"""A run of wafer steps: every step is played, its intervals become the timeline, its figures its `wafer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.timeline.events import COLUMNS, NO_LAYER, EventBuffer, EventKind, Timeline, WaferRun
from simcore.wafer.cores import CoreTimes, play_cores
from simcore.wafer.steps import Rates, StepTimes, play
from simcore.workload.model import PhaseName
from simcore.workload.wafer import CoreStep, NodeStep

IntArray = NDArray[np.int64]
PARTS = [str(part) for part in ("forward", "input_grad", "weight_grad")]
SLOWEST = 5
UNITS = (EventKind.COMPUTE, EventKind.SEND, EventKind.WAIT)


@dataclass
class _Run:
    """What the steps played so far left."""

    graph: LinkGraph
    rates: Rates
    settings: Settings
    npus: int
    layers: tuple[str, ...]
    events: EventBuffer = field(default_factory=EventBuffer)
    spans: list[tuple[int, int]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    traffic: dict[str, IntArray] = field(default_factory=dict)
    asked: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    link_bytes: IntArray = field(init=False)
    busy_ns: IntArray = field(init=False)
    load_ns: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.link_bytes, self.busy_ns = np.zeros((2, len(self.graph)), np.int64)
        self.load_ns = np.zeros(self.npus, np.int64)

    @property
    def now_ns(self) -> int:
        """When the next step begins."""
        return self.spans[-1][1] if self.spans else 0

    def sent(self, layer: str, nodes: int, source: IntArray, target: IntArray, size_bytes: IntArray) -> None:
        """Count bytes from node to node."""
        matrix = self.traffic.setdefault(layer, np.zeros((nodes, nodes), np.int64))
        np.add.at(matrix, (source, target), size_bytes)

    def add(self, which: NDArray[np.bool_], **columns: IntArray | int) -> None:
        """Append a row of events for each place of `which`; columns have its shape, or are broadcast to it."""
        rows = (np.broadcast_to(columns[key], which.shape)[which] for key in COLUMNS[:-1])
        found = [*rows, np.full(np.count_nonzero(which), len(self.spans))]
        self.events.extend(np.stack(found, axis=1).astype(np.int64))


def simulate_wafer(
    steps: Sequence[NodeStep | CoreStep], topology: Topology, rates: Rates, settings: Settings
) -> Timeline:
    """Play steps one after the other; node, or core, n of the steps is NPU n of the topology (cores: `core_places`).
    InputError when the topology has too few NPUs or is cut in pieces. DeadlockError when cores wait for each other.
    """
    graph = LinkGraph(topology)
    npus = max(each.nodes if isinstance(each, NodeStep) else len(each.traces) for each in steps)
    if graph.npus < npus:
        message = "the topology has fewer NPUs than the workload nodes or cores"
        raise InputError.at(topology.path or "--topology", message, expected=f"{npus}", found=f"{graph.npus}")
    names = (phase.layer for each in steps if isinstance(each, NodeStep) for phase in each.phases)
    run = _Run(graph, rates, settings, npus, tuple(dict.fromkeys(names)))
    for each in steps:
        try:
            if isinstance(each, NodeStep):
                _nodes(run, each)
            else:
                _cores(run, each)
        except ValueError as error:
            raise InputError.at("--topology", f"the wafer is cut in pieces: {error}") from error
    return _timeline(run, topology)


def _nodes(run: _Run, step: NodeStep) -> None:
    """Play the phases of the nodes."""
    queues = run.settings.network != "congestion-free"
    slow = [run.settings.stragglers.get(npu, 1.0) for npu in range(step.nodes)]
    factors = np.array(slow) * run.settings.compute_scale
    times = play(run.graph, step, run.rates, factors=factors, queues=queues)
    _phase_events(run, step, times)
    for phase in step.phases:
        for flows in phase.rounds:
            run.sent(phase.layer, step.nodes, flows.source, flows.target, flows.size_bytes)
    _finish(run, step, times, np.arange(step.nodes), stragglers=_stragglers(times))


def _phase_events(run: _Run, step: NodeStep, times: StepTimes) -> None:
    """COMPUTE, then COLLECTIVE and WAIT, of every phase and node; CHUNK for what a node sends in a dimension."""
    places = {name: number for number, name in enumerate(run.layers)}
    layer = np.array([places[phase.layer] for phase in step.phases])[:, None]
    part = np.array([PARTS.index(phase.part) for phase in step.phases])[:, None]
    computing = np.array([run.events.name(f"{phase.layer} computing") for phase in step.phases])[:, None]
    name = np.array([run.events.name(phase.name) for phase in step.phases])[:, None]
    begin, ready, end = (column + run.now_ns for column in (times.begin_ns, times.ready_ns, times.end_ns))
    sent = _sent_bytes(run.graph, step)
    size = sent[:, :, -1]
    rows = [(EventKind.COMPUTE, 0, computing, begin, ready, 0 * size, ready > begin)]
    rows += [(kind, 0, name, ready, end, size, end > ready) for kind in (EventKind.COLLECTIVE, EventKind.WAIT)]
    for dim in range(sent.shape[2] - 1):
        rows.append((EventKind.CHUNK, 1 + dim, name, ready, end, sent[:, :, dim], sent[:, :, dim] > 0))
    for kind, stream, label, first, last, of, which in rows:
        run.add(which, npu_class=np.arange(step.nodes), stream=stream, start_ns=first, end_ns=last, kind=int(kind),
                name=label, layer=layer, phase=part, size_bytes=of)  # fmt: skip
    for phase, bytes_of_first in zip(step.phases, size[:, 0].tolist(), strict=True):
        if phase.kind:
            key = places[phase.layer], PARTS.index(phase.part)
            asked, before = run.asked.get(key, (phase.kind, 0))
            asked = asked if phase.kind in asked.split("+") else f"{asked}+{phase.kind}"
            run.asked[key] = asked, before + bytes_of_first


def _sent_bytes(graph: LinkGraph, step: NodeStep) -> IntArray:
    """What every node sends in every phase over the links of a dimension, and last in all: shape [phases, nodes,
    dimensions + 1].

    A message counts in every dimension in which its ends differ, and in all once.
    """
    dims = graph.topology.dims
    sent = np.zeros((len(step.phases), step.nodes, len(dims) + 1), np.int64)
    for number, phase in enumerate(step.phases):
        for flows in phase.rounds:
            stride = 1
            for place, dim in enumerate(dims):
                differ = flows.source // stride % dim.npus != flows.target // stride % dim.npus
                np.add.at(sent[number, :, place], flows.source[differ], flows.size_bytes[differ])
                stride *= dim.npus
            apart = flows.source != flows.target
            np.add.at(sent[number, :, -1], flows.source[apart], flows.size_bytes[apart])
    return sent


def _finish(run: _Run, step: NodeStep | CoreStep, times: StepTimes | CoreTimes, npus: IntArray, **more: object) -> None:
    """Count a step of some NPUs in, in numbers; the next begins at its end."""
    time_ns, spent_ns = times.time_ns, times.compute_ns
    compute = {"max": int(spent_ns.max()), "mean": float(spent_ns.mean()), "npu": int(npus[spent_ns.argmax()])}
    tokens_per_s = step.tokens / time_ns * 1e9 if time_ns else 0.0
    figures = {"name": step.name, "time_ns": time_ns, "tokens": step.tokens, "tokens_per_s": tokens_per_s}
    run.figures.append({**figures, "compute_ns": compute, **more})
    run.spans.append((run.now_ns, run.now_ns + time_ns))
    run.link_bytes, run.busy_ns = run.link_bytes + times.link_bytes, run.busy_ns + times.busy_ns
    run.load_ns[npus] += spent_ns


def _stragglers(times: StepTimes) -> list[dict[str, Any]]:
    """The nodes whose computing the others wait for: in how many phases, and how much longer than the mean they
    compute in sum; equally slow nodes share it.
    """
    spent = times.ready_ns - times.begin_ns
    slowest = (spent == spent.max(axis=1, keepdims=True)) & (spent > spent.min(axis=1, keepdims=True))
    over = spent.max(axis=1) - spent.mean(axis=1)
    costs = (slowest * (over / np.maximum(slowest.sum(axis=1), 1))[:, None]).sum(axis=0)
    order = np.argsort(-costs, kind="stable")[:SLOWEST].tolist()
    phases = slowest.sum(axis=0)
    return [{"npu": n, "phases": int(phases[n]), "cost_ns": round(costs[n])} for n in order if round(costs[n]) > 0]


def core_places(step: CoreStep, topology: Topology) -> IntArray:
    """The NPU of every core: nodes row-major on the wafer, cores row-major inside a node.

    On a topology of two dimensions (columns, rows) the cores of a node form the squarest rectangle whose sides divide
    both; on any other, cores are NPUs in order.
    """
    cores, many = step.cores, len(step.traces)
    numbers = np.arange(many)
    if len(topology.dims) != 2:
        return numbers
    columns, rows = (dim.npus for dim in topology.dims)
    sides = [
        (wide, cores // wide)
        for wide in range(1, cores + 1)
        if cores % wide == 0 and columns % wide == 0 and rows % (cores // wide) == 0
    ]
    if not sides or columns * rows != many:
        raise InputError.at(
            topology.path or "--topology", "the cores do not tile this topology",
            expected=f"columns x rows = {many} cores, in rectangles of {cores}", found=f"{columns} x {rows}",
        )  # fmt: skip
    wide, high = min(sides, key=lambda side: abs(side[0] - side[1]))
    node, core = numbers // cores, numbers % cores
    row, column = node // (columns // wide) * high + core // wide, node % (columns // wide) * wide + core % wide
    return row * columns + column


def _cores(run: _Run, step: CoreStep) -> None:
    """Play the instructions of the cores."""
    places = core_places(step, run.graph.topology)
    rates = replace(run.rates, macs_per_s=run.rates.macs_per_s / run.settings.compute_scale)
    queues = run.settings.network != "congestion-free"
    if run.settings.stragglers:
        raise InputError.at("--straggler", "stragglers go with nodes, not with traces of cores")
    times = play_cores(run.graph, places, step.traces, rates, queues=queues)
    core, unit, start, end = np.array(times.spans, np.int64).reshape(-1, 4).T
    kinds, names = np.array(UNITS), np.array([run.events.name(text) for text in ("computing", "moving", "barrier")])
    run.add(end > start, npu_class=places[core], stream=0, start_ns=start + run.now_ns, end_ns=end + run.now_ns,
            kind=kinds[unit], name=names[unit], layer=NO_LAYER, phase=-1, size_bytes=0)  # fmt: skip
    copies = (each for trace in step.traces for each in trace if each.kind in {"COPY", "MULTICAST"})
    moved = [
        (int(each.arguments[0]) // step.cores, int(bank) // step.cores, int(each.arguments[-1]))
        for each in copies
        for bank in each.arguments[1:-1]
    ]  # source, target and bytes, for every target
    run.sent("all", len(step.traces) // step.cores, *np.array(moved, np.int64).reshape(-1, 3).T)
    moving = {"max": int(times.move_ns.max()), "mean": float(times.move_ns.mean())}
    _finish(run, step, times, places, move_ns=moving)


def _timeline(run: _Run, topology: Topology) -> Timeline:
    """Everything that the run left."""
    events, finish = run.events.table(), np.zeros(run.npus, np.int64)
    np.maximum.at(finish, events.npu_class, events.end_ns)
    asked: list[dict[str, tuple[str | None, int]]] = [{} for _ in run.layers]
    for (number, place), (kind, size_bytes) in run.asked.items():
        asked[number][PhaseName(PARTS[place])] = kind, round(size_bytes / len(run.spans))  # of a mean step
    return Timeline(
        events=events,
        time_ns=run.now_ns,
        iterations=tuple(run.spans),
        ranks=tuple(range(npu, npu + 1) for npu in range(run.npus)),
        finish_ns=tuple(finish.tolist()),
        layers=run.layers,
        dims=tuple((dim.kind, dim.npus) for dim in topology.dims) if run.layers else (),
        links=run.graph.table(run.link_bytes, run.busy_ns),
        asked=asked,
        wafer=WaferRun(run.figures, run.load_ns, run.traffic),
    )
