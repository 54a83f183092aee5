"""What the nodes send to each other in a step, and what they compute in between: plain columns, no clock.

A step is a row of phases. In each, every node computes, then the members of every group exchange and wait for each
other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from simcore.generate.wse.exchange import Exchange
from simcore.generate.wse.nodes import Job, operations
from simcore.generate.wse.operations import Operation
from simcore.generate.wse.ranks import split
from simcore.generate.wse.scope import Step

__all__ = ["Phase", "matrix", "phases"]

Ints = npt.NDArray[np.int64]
END = "end"
Flow = tuple[int, int, int, int]  # source, target, bytes, number of the multicast tree or -1


@dataclass(frozen=True)
class Phase:
    """`macs` and `hbm_bytes` per node, then flows between nodes; the nodes of a group leave the phase together.

    Flows with the same `tree` >= 0 are one multicast: a link shared by several of them carries the bytes once.
    """

    name: str
    macs: Ints
    hbm_bytes: Ints
    groups: tuple[tuple[int, ...], ...]
    source: Ints
    target: Ints
    size_bytes: Ints
    tree: Ints


def phases(job: Job, step: Step, routed: dict[str, Exchange]) -> list[Phase]:
    """The phases of a step, in an order that every node agrees with."""
    nodes = job.system.nodes
    drafts: dict[str, _Draft] = {}
    for node in range(nodes):
        for name, work, rows, group in _segments(node, operations(job, step, node, routed, movement=False)):
            draft = drafts.setdefault(name, _Draft(nodes))
            draft.macs[node], draft.hbm_bytes[node] = work
            draft.rows += [(node, each) for each in rows]
            draft.groups[group] = None
    drafts[END] = drafts.pop(END)  # what a node does last comes after the phases of all pipeline stages
    return [draft.phase(name, job.element_bytes) for name, draft in drafts.items()]


Segment = tuple[str, tuple[int, int], list[Operation], tuple[int, ...]]


def _segments(node: int, rows: Iterable[Operation]) -> Iterator[Segment]:
    """(name, work, communication, group) of every phase of one node: a barrier, an all-reduce or a pipeline
    transfer ends it.
    """
    macs, hbm_bytes = 0, 0
    sent: list[Operation] = []
    for each in rows:
        macs, hbm_bytes = macs + each.macs, hbm_bytes + each.hbm_bytes
        if each.group is None:
            continue
        passed_on = each.kind == "Unicast" and each.uid.endswith("_pp")
        if each.kind != "Barrier":
            sent.append(each)
        if passed_on or each.kind in {"Barrier", "AllReduce"}:
            group = (node, *each.group) if passed_on else each.group
            yield each.uid, (macs, hbm_bytes), sent, group
            macs, hbm_bytes, sent = 0, 0, []
    yield END, (macs, hbm_bytes), sent, ()


class _Draft:
    """A phase in the making."""

    def __init__(self, nodes: int):
        self.macs, self.hbm_bytes = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        self.rows: list[tuple[int, Operation]] = []
        self.groups: dict[tuple[int, ...], None] = {}

    def phase(self, name: str, element_bytes: int) -> Phase:
        """The finished phase."""
        flows = list(_flows(self.rows, element_bytes))
        columns = np.array(flows, np.int64).reshape(-1, 4)
        groups = tuple(sorted(group for group in self.groups if len(group) > 1))
        return Phase(name, self.macs, self.hbm_bytes, groups, *(columns[:, place] for place in range(4)))


def _flows(rows: list[tuple[int, Operation]], element_bytes: int) -> Iterator[Flow]:
    """The flows of all rows of a phase, those of a node to itself left out."""
    gathers: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for number, (node, each) in enumerate(rows):
        group = each.group or ()
        if each.kind == "AllGather":
            gathers[group][node] = each.network_bytes
        elif each.kind == "AllReduce":
            yield from _ring(node, each, element_bytes)
        elif each.kind == "AlltoAll":
            yield from _exchanged(node, each, element_bytes)
        else:
            tree = number if each.kind == "Multicast" else -1
            yield from ((node, other, each.network_bytes, tree) for other in group if other != node)
    for group, held in gathers.items():
        yield from _gathered(group, held)


def _exchanged(node: int, operation: Operation, element_bytes: int) -> Iterator[Flow]:
    """All-to-all: the vectors for every other node."""
    vectors, sent, _ = operation.shape
    for other, count in zip(operation.group or (), sent, strict=True):
        if count and other != node:
            yield node, other, count * vectors[-1] * element_bytes, -1


def _ring(node: int, operation: Operation, element_bytes: int) -> Iterator[Flow]:
    """Ring all-reduce: all chunks but one, twice, to the next node: 2 (G - 1) / G of the vector where G divides it."""
    group = operation.group or ()
    *outer, last = operation.shape
    chunks = [len(chunk) * prod(outer) * element_bytes for chunk in split(last, len(group))]
    place, count = group.index(node), len(group)
    if count > 1:
        passed = 2 * sum(chunks) - chunks[(place + 1) % count] - chunks[(place + 2) % count]
        yield node, group[(place + 1) % count], passed, -1


def _gathered(group: tuple[int, ...], held: dict[int, int]) -> Iterator[Flow]:
    """Ring all-gather: every node passes on all parts but the next node's."""
    for place, node in enumerate(group):
        after = group[(place + 1) % len(group)]
        if after != node:
            yield node, after, sum(held.values()) - held.get(after, 0), -1


def matrix(made: Iterable[Phase], nodes: int) -> Ints:
    """Bytes from node to node: shape [source, target]. Every destination of a multicast counts."""
    sums = np.zeros((nodes, nodes), np.int64)
    for phase in made:
        np.add.at(sums, (phase.source, phase.target), phase.size_bytes)
    return sums
