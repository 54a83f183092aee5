"""What the nodes send to each other in a step, and what they compute in between: rows of operations as phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import prod

import numpy as np

from simcore.errors import InputError
from simcore.generate.wse.exchange import Routed
from simcore.generate.wse.nodes import Job, operations
from simcore.generate.wse.operations import Operation, Step
from simcore.generate.wse.settings import Ints, split
from simcore.workload.wafer import Flows, NodeStep, Phase

Flow = tuple[int, int, int, int]  # source, target, bytes, number of the multicast tree or -1
Within = tuple[str, str]  # layer and pass
Segment = tuple[str, Within, tuple[int, int], list[Operation], tuple[int, ...]]


def node_step(job: Job, step: Step, routed: Routed) -> NodeStep:
    """A step of a job as phases."""
    nodes = job.system.nodes
    rows = [operations(job, step, node, routed, movement=False) for node in range(nodes)]
    return NodeStep(step.name, job.batch * step.queries, nodes, phases(rows))


def phases(rows: Sequence[Iterable[Operation]]) -> list[Phase]:
    """The phases of a step from the rows of every node, in an order that all nodes agree with.

    A phase ends at a barrier or an all-reduce, or where the next layer begins.
    """
    drafts: dict[str, _Draft] = {}
    orders: dict[tuple[str, ...], None] = {}
    for node, held in enumerate(rows):
        names = []
        for name, within, work, sent, group in _segments(held):
            draft = drafts.setdefault(name, _Draft(within, len(rows)))
            draft.macs[node], draft.hbm_bytes[node] = work
            draft.rows += [(node, each) for each in sent]
            draft.groups[group] = None
            names.append(name)
        orders[tuple(names)] = None
    return [drafts[name].phase(name) for name in _merged(list(orders))]


def _merged(orders: list[tuple[str, ...]]) -> Iterator[str]:
    """One order of all names that keeps every node's own."""
    before: TopologicalSorter[str] = TopologicalSorter()
    for names in orders:
        for name in names:
            before.add(name)
        for first, second in pairwise(names):
            before.add(second, first)
    try:
        return iter(tuple(before.static_order()))
    except CycleError as error:
        meeting = " and ".join(dict.fromkeys(error.args[1]))
        message = "nodes meet here in different orders"
        raise InputError.at(meeting, message, expected="one order on all nodes") from error


def _segments(rows: Iterable[Operation]) -> Iterator[Segment]:
    """(name, layer and pass, work, communication, group) of every phase of one node."""
    macs, hbm_bytes, within = 0, 0, ("", "")
    sent: list[Operation] = []
    for each in rows:
        if each.of is None:  # costs nothing
            continue
        before, within = within, (each.of.layer, each.of.phase.value)
        if before != within and (macs or hbm_bytes):
            yield " ".join(before), before, (macs, hbm_bytes), sent, ()
            macs, hbm_bytes, sent = 0, 0, []
        macs, hbm_bytes = macs + each.macs, hbm_bytes + each.hbm_bytes
        if each.group is not None and each.kind != "Barrier":
            sent.append(each)
        if each.kind in {"Barrier", "AllReduce"}:
            yield each.uid, within, (macs, hbm_bytes), sent, each.group or ()
            macs, hbm_bytes, sent = 0, 0, []
    if macs or hbm_bytes or sent:
        yield " ".join(within), within, (macs, hbm_bytes), sent, ()


class _Draft:
    """A phase in the making."""

    def __init__(self, within: Within, nodes: int):
        self.within = within
        self.macs, self.hbm_bytes = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        self.rows: list[tuple[int, Operation]] = []
        self.groups: dict[tuple[int, ...], None] = {}

    def phase(self, name: str) -> Phase:
        """The finished phase."""
        groups = tuple(sorted(group for group in self.groups if len(group) > 1))
        kinds = dict.fromkeys(each.kind for _, each in self.rows)
        return Phase(name, self.macs, self.hbm_bytes, groups, _rounds(self.rows), *self.within, "+".join(kinds))


def _rounds(rows: list[tuple[int, Operation]]) -> tuple[Flows, ...]:
    """The flows of all rows of a phase by round, those of a node to itself left out; rings take several rounds."""
    made: dict[int, list[Flow]] = defaultdict(list)
    gathers: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for number, (node, each) in enumerate(rows):
        group = each.group or ()
        if each.kind == "AllGather":
            gathers[group][node] = each.network_bytes
        elif each.kind == "AllReduce":
            _ring(made, node, each)
        elif each.kind == "AlltoAll":
            made[0] += _exchanged(node, each)
        else:
            tree = number if each.kind == "Multicast" else -1
            made[0] += ((node, other, each.network_bytes, tree) for other in group if other != node)
    for group, held in gathers.items():  # a ring: G - 1 rounds, in each every node passes on the part it got last
        for node in group:
            _passed_on(made, node, group, [held.get(other, 0) for other in group], range(len(group) - 1))
    columns = (np.array(made[number], np.int64).reshape(-1, 4).T for number in sorted(made) if made[number])
    return tuple(Flows(*column) for column in columns)


def _exchanged(node: int, operation: Operation) -> Iterator[Flow]:
    """All-to-all: the vectors for every other node."""
    sent, group = operation.shape[1], operation.group or ()
    others = sum(count for other, count in zip(group, sent, strict=True) if other != node)
    each = operation.network_bytes // max(others, 1)
    for other, count in zip(group, sent, strict=True):
        if count and other != node:
            yield node, other, count * each, -1


def _ring(made: dict[int, list[Flow]], node: int, operation: Operation) -> None:
    """Ring all-reduce: 2 (G - 1) rounds, in each one chunk of the last axis to the next node of the group."""
    group, (*outer, last) = operation.group or (), operation.shape
    element_bytes = operation.network_bytes // max(prod(operation.shape), 1)
    chunks = [len(chunk) * prod(outer) * element_bytes for chunk in split(last, len(group))]
    _passed_on(made, node, group, chunks, (*range(len(group) - 1), *range(-1, len(group) - 2)))


def _passed_on(
    made: dict[int, list[Flow]], node: int, group: tuple[int, ...], parts: Sequence[int], steps: Iterable[int]
) -> None:
    """In every round a node of a ring sends the part of the node so many `steps` before it to the next one."""
    place, count = group.index(node), len(group)
    for number, step in enumerate(steps):
        if size := parts[(place - step) % count]:
            made[number].append((node, group[(place + 1) % count], size, -1))


def matrix(made: Iterable[Phase], nodes: int) -> Ints:
    """Bytes from node to node: shape [source, target]. Every destination of a multicast counts."""
    sums = np.zeros((nodes, nodes), np.int64)
    for each in (each for phase in made for each in phase.rounds):
        np.add.at(sums, (each.source, each.target), each.size_bytes)
    return sums
