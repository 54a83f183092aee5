"""Text workloads of every training loop as dependency graphs that take natively as long as the text does.

The loop's own steps are unrolled: a step waits for the collectives it waits for in the loop, computes, and issues its
collective, which nothing but those waits holds up. A pipeline's stages have a graph each: what a cell waits for from
another stage is a receive, what it hands on a send. Priorities are those the loop would give under the scheduling
policy; they count when the system file says `scheduling-policy: EXPLICIT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any

from msgspec import Struct

from simcore.errors import InputError
from simcore.progress import meter
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.loops import Order, Ref, Span, Step, loops
from simcore.workload.loops.pipeline import Passage, Transfer, check_stages, end_steps, pipeline_of, steps_of
from simcore.workload.loops.schedules import Cell
from simcore.workload.loops.step import column_group, group_axes
from simcore.workload.model import CollectiveKind, Layer, NodeKind, PhaseName, Workload

HIGHEST_PRIORITY = 100_000_000
SUFFIX = {PhaseName.FORWARD: "forward", PhaseName.INPUT_GRAD: "input_grad", PhaseName.WEIGHT_GRAD: "weight_grad"}


class Place(Struct, frozen=True):
    """Ranks that differ only in their id's digits from `low` up to `high`; both divide the number of ranks."""

    low: int
    high: int

    @property
    def size(self) -> int:
        """Ranks in a group."""
        return self.high // self.low

    def members(self, rank: int) -> list[int]:
        """The group that `rank` is in."""
        first = rank - rank // self.low % self.size * self.low
        return [first + position * self.low for position in range(self.size)]

    def dims(self, sizes: Sequence[int]) -> list[bool] | None:
        """The topology dimensions that make up the group, None when it ends inside of one."""
        bounds = [prod(sizes[:count]) for count in range(len(sizes) + 1)]
        if self.low not in bounds or self.high not in bounds:
            return None
        return [self.low <= bound < self.high for bound in bounds[:-1]]


class _Unrolled(Struct):
    """Nodes made so far; `cursor` are those the next step waits for, `pending` the collectives under way."""

    workload: Workload
    sizes: tuple[int, ...]
    policy: Order
    stage: int = 0
    nodes: list[dict[str, Any]] = []
    cursor: list[int] = []
    pending: dict[Ref, list[int]] = {}
    counter: int = 0

    def _play(self, step: Step) -> None:
        self._wait(step.before)
        duration_ns = self.workload.layers[step.layer].phase(step.phase).compute_ns
        if step.computes and duration_ns:
            name = f"{self.workload.layers[step.layer].name}_{SUFFIX[step.phase]}"
            self.cursor = [self._add(name, NodeKind.COMPUTE, duration_ns=duration_ns)]
        if step.issue:
            self._issue(step.issue, step.order)
            self._wait(step.issue if step.blocking else None)
        self._wait(step.after)

    def run(self, steps: Iterable[Step], passage: Passage | None = None) -> None:
        """Step by step; of a pipeline's cell, before them what it receives, and behind them what it hands on."""
        if passage and passage.source:
            self.cursor = [self._handover(passage.cell, NodeKind.RECV, passage.source)]
        for step in steps:
            self._play(step)
        if passage and passage.target:
            self._handover(passage.cell, NodeKind.SEND, passage.target)

    def drain(self) -> None:
        """What follows waits for every collective under way."""
        for ref in [*self.pending]:
            self._wait(ref)

    def _handover(self, cell: Cell, kind: NodeKind, to: Transfer) -> int:
        message = {"comm_size": self.workload.pipeline_bytes, "comm_tag": to.tag, "stages": (self.stage, to.stage)}
        return self._add(f"{cell} {kind.name.lower()}", kind, stream=len(self.nodes), **message)

    def _wait(self, ref: Ref | None) -> None:
        if ref:
            self.cursor = sorted({*self.cursor, *self.pending.pop(ref, [])})

    def _add(self, name: str, kind: NodeKind, **attributes: Any) -> int:
        self.nodes.append({"name": name, "kind": kind, "deps": list(self.cursor), "attributes": attributes})
        return len(self.nodes) - 1

    def _issue(self, ref: Ref, order: Order) -> None:
        """Send the collective of a column, if it has one and somebody to send to; its update delay comes behind."""
        layer = self.workload.layers[ref.layer]
        phase = layer.phase(ref.phase)
        if phase.collective is None:
            return
        order = self.policy if order == Order.SYSTEM else order
        priority = HIGHEST_PRIORITY
        if order != Order.HIGHEST:  # ASTRA-sim's counter: LIFO counts up, FIFO down; larger goes first
            priority, self.counter = self.counter, self.counter + (1 if order == Order.LIFO else -1)
        place = _place(self.workload, layer, ref, self.sizes)
        total = self.workload.dialect == "simai" and phase.collective == CollectiveKind.ALL_GATHER
        size_bytes = phase.size_bytes // (place.size if total else 1)  # Chakra's sizes are what each rank gives
        if place.size == 1 or not size_bytes:
            return
        name = f"{layer.name}_{SUFFIX[ref.phase]}_{phase.collective.value}"
        kind = int(CommType[phase.collective.name])
        collective = {"comm_type": kind, "comm_size": size_bytes, "comm_priority": priority, "place": place}
        tail = self._add(name, NodeKind.COLLECTIVE, stream=len(self.nodes), **collective)
        if layer.update_ns:
            before, self.cursor = self.cursor, [tail]
            delay = {"duration_ns": layer.update_ns, "is_delay": True, "stream": len(self.nodes)}
            tail = self._add(f"{layer.name}_update", NodeKind.COMPUTE, **delay)
            self.cursor = before
        self.pending.setdefault(ref, []).append(tail)


def convert(workload: Workload, sizes: Sequence[int], iterations: int, *, policy: str = "LIFO") -> list[bytes]:
    """The file of every rank of a machine with dimensions `sizes` (innermost first).

    Groups that are whole dimensions become `involved_dim`; others become communicators, whose collectives run in one
    phase where the text's take the parts of the dimensions one by one: there the times differ. InputError when the
    header's groups or stages do not divide the machine.
    """
    stages = _unrolled(workload, tuple(sizes), iterations, Order[policy])
    places = {node["attributes"].get("place") for stage in stages for node in stage} - {None}
    split = sorted((place for place in places if place.dims(sizes) is None), key=lambda place: (place.low, place.high))
    npus = prod(sizes)
    if not split and len(stages) == 1:
        return [_encode(stages[0], sizes, {}, 0, npus)] * npus
    names: dict[tuple[Place, int], str] = {}  # of every group, by its place and first rank
    for place, rank in product(split, range(npus)):
        names.setdefault((place, place.members(rank)[0]), str(len(names) + 1))
    width = npus // len(stages)
    return [_encode(stages[rank // width], sizes, names, rank, width) for rank in meter().over(range(npus))]


def _unrolled(workload: Workload, sizes: tuple[int, ...], iterations: int, policy: Order) -> list[list[dict[str, Any]]]:
    if workload.parallelism.pp <= 1:
        loop = _Unrolled(workload, sizes, policy)
        loop.run(list(loops.get(workload.loop).steps(workload)) * iterations)
        return [loop.nodes]
    check_stages(workload, prod(sizes))
    pipeline, made = pipeline_of(workload), []
    for number, (passages, ends) in enumerate(zip(pipeline.stages, pipeline.ends, strict=True)):
        stage = _Unrolled(workload, sizes, policy, number)
        for _ in range(iterations):
            for passage in passages:
                stage.run(steps_of(passage, splits=pipeline.schedule.splits_backward), passage)
            reducing, closing = end_steps(*ends)
            stage.run(reducing)
            stage.drain()
            stage.run(closing)
        made.append(stage.nodes)
    return made


def _place(workload: Workload, layer: Layer, ref: Ref, sizes: Sequence[int]) -> Place:
    """Which ranks the collective of a column spans."""
    own = column_group(workload, layer.loop, ref.layer == 0, ref.phase, layer.phase(ref.phase).group, from_header=True)
    npus = prod(sizes)
    groups = {group: Place(low, low * count) for group, (count, low) in group_axes(workload.parallelism, npus).items()}
    edges = (edge for group in groups.values() for edge in (group.low, group.high))
    first = min([sizes[0], *(edge for edge in edges if edge > 1)])  # groups of the header cut dimensions of the machine
    spans = {Span.NONE: (1, 1), Span.ALL: (1, npus), Span.FIRST_DIM: (1, first), Span.OTHER_DIMS: (first, npus)}
    place = (groups | {span: Place(*ends) for span, ends in spans.items()})[own]
    if place.high % place.low or npus % place.high:
        found = f"a group of {place.high} NPUs on {npus}"
        raise InputError.at(workload.location, "the header's groups do not divide the machine", found=found)
    return place


def _encode(
    nodes: Sequence[dict[str, Any]], sizes: Sequence[int], names: dict[tuple[Place, int], str], rank: int, width: int
) -> bytes:
    """A rank's file; with communicators, a first node defines them. Stages are `width` ranks."""
    messages = []
    if names:
        messages.append(writer.groups(0, {name: place.members(first) for (place, first), name in names.items()}))
    shift = len(messages)
    for index, node in enumerate(nodes):
        attributes = {"is_cpu_op": False, **node["attributes"]}
        if place := attributes.pop("place", None):  # which NPUs take part; nothing says that all do
            dims = place.dims(sizes)
            if dims is None:
                attributes["pg_name"] = names[place, place.members(rank)[0]]
            elif not all(dims):
                attributes["involved_dim"] = dims
        if stages := attributes.pop("stages", None):
            ends = "comm_src" if node["kind"] == NodeKind.RECV else "comm_dst"
            attributes[ends] = rank + (stages[1] - stages[0]) * width
        deps = [dep + shift for dep in node["deps"]]
        messages.append(writer.node(index + shift, node["name"], node["kind"], data_deps=deps, attributes=attributes))
    return writer.encode(writer.metadata(), messages)
