"""The corrected step of a stage, operation by operation: as a list, and as Chakra execution traces of its ranks.

A list has every operation of a rank in the order its schedule runs it. In traces operations wait for the one before
them; sends and the collectives of weight gradients let the next ones go ahead, until what needs the sums waits for them
all, and a row's weight gradient does not wait for the collective of its input gradient. Ranks of a stage differ in
their groups and peers only, so what a node says is made once for every operation and rank, and its number and
dependencies once for a stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from simcore.errors import InputError
from simcore.files import write_bytes, write_text
from simcore.generate.aicb.operations import EPOCH_END, Operation
from simcore.model.plan import Plan
from simcore.model.rows import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from simcore.model.steps import Axis
from simcore.workload.chakra.schema import CommType
from simcore.workload.chakra.writer import check_free, frame, metadata, node, varint
from simcore.workload.loops.pipeline import Passage, Pipeline, Transfer, pipeline_of
from simcore.workload.model import Group, Layer, NodeKind, Phase, PhaseName, Role, Workload

PHASES = {"F": (FORWARD,), "B": (INPUT_GRAD, WEIGHT_GRAD), "W": (WEIGHT_GRAD,)}
"""Kind of a cell -> what it computes of every row; where weight gradients have cells of their own, the first."""


def listed_step(
    workload: Workload, plan: Plan, stage: int, *, tied_bytes: int = 0, pipeline: Pipeline | None = None
) -> list[Operation]:
    """Operations of a stage's step: cells with their transfers in the order of the schedule, then the end of the step.

    `workload` is the step of `simcore.model.rows`: the rows of all stages, or of any one. `tied_bytes` are
    all-reduced between the first stage and the last, which rows cannot say. `pipeline`: the workload's, if it is known.
    """
    pipeline = pipeline or pipeline_of(workload)
    first_or_last = stage in (0, plan.pp - 1)
    lister = _Lister(plan, workload, stage, pipeline.schedule.splits_backward, tied_bytes if first_or_last else 0)
    made: list[Operation] = []
    known: dict[tuple[str, tuple[int, ...]], list[Operation]] = {}
    for passage in pipeline.stages[stage]:
        content = (passage.cell.kind, tuple(id(workload.layers[row]) for row in passage.rows))
        if content not in known:
            known[content] = list(lister.cell(passage))
        made += [lister.transfer("irecv", passage, passage.source)] if passage.source else []
        made += known[content]
        made += [lister.transfer("isend", passage, passage.target)] if passage.target else []
    return [*made, *lister.end(pipeline.ends[stage][0]), EPOCH_END]


_ORDER, _TIED = list(Role), Layer("tied_embedding", role=Role.REPLICATED)


@dataclass(frozen=True, slots=True)
class _Lister:
    plan: Plan
    workload: Workload
    stage: int
    splits: bool
    tied_bytes: int

    def cell(self, passage: Passage) -> Iterator[Operation]:
        """A micro-batch's rows downwards, or upwards with their gradients, the last row first."""
        kind = passage.cell.kind
        phases = PHASES[kind][:1] if self.splits else PHASES[kind]
        for row in passage.rows if kind == "F" else reversed(passage.rows):
            for name in phases:
                yield from self._phase(self.workload.layers[row], name)

    def end(self, rows: Sequence[int]) -> Iterator[Operation]:
        """The end of the step, in the order in which a framework gets to its rows."""
        layers = (self.workload.layers[row] for row in rows)
        for layer in sorted(layers, key=lambda layer: _ORDER.index(layer.role)):
            if self.tied_bytes and layer.role is Role.OPTIMIZER:
                where = f"{WEIGHT_GRAD}.{_TIED.name}"
                yield Operation("all_reduce", "embedding_group", 2, self.tied_bytes, where, row=_TIED)
            for name in PhaseName:
                yield from self._phase(layer, name)

    def transfer(self, kind: str, passage: Passage, transfer: Transfer) -> Operation:
        """What a cell waits for, or makes."""
        where = "forward" if passage.cell.kind == "F" else "backward"
        away = transfer.stage - self.stage
        beside = "next" if away in (1, 1 - self.plan.pp) and (self.plan.pp > 2 or away == 1) else "prev"
        what = f"{'recv' if kind == 'irecv' else 'send'}_{beside}"
        size = self.workload.pipeline_bytes
        return Operation(kind, "pp_group", 2, size, where, additional=what, away=away, tag=transfer.tag)

    def _phase(self, layer: Layer, name: PhaseName) -> Iterator[Operation]:
        phase, where = layer.phase(name), f"{name}.{layer.name}"
        if phase.compute_ns:
            yield Operation("computation", stage=where, elapsed_ms=phase.compute_ns / 1e6, row=layer, phase=name)
        if phase.collective is not None:
            group, ranks = self._group(phase, name)
            yield Operation(str(phase.collective), group, ranks, phase.size_bytes, where, row=layer, phase=name)

    def _group(self, phase: Phase, name: PhaseName) -> tuple[str, int]:
        """Name and size of a phase's group; the column decides where none is given."""
        plan = self.plan
        kinds = {Group.EP: "ep_group", Group.DP_EP: "ep_dp_group", Group.CP: "cp_group"}
        kind = kinds.get(phase.group, "dp_group" if name is WEIGHT_GRAD else "tp_group")
        if plan.shard and kind == "ep_group":
            kind = "shard_group"
        elif plan.zero == 3 and kind == "ep_dp_group":
            kind = "replica_group" if plan.shard else "dp_group"
        return kind, layout(plan)[kind][0]


@lru_cache(maxsize=64)
def layout(plan: Plan) -> dict[str, tuple[int, int]]:
    """Number of ranks and distance of neighbours of each kind of group."""
    whole = plan.but(shard=0)
    return {
        "tp_group": Axis.TENSOR.layout(plan),
        "cp_group": Axis.CONTEXT.layout(plan),
        "dp_group": Axis.DATA.layout(whole),
        "ep_group": Axis.EXPERT.layout(plan),
        "ep_dp_group": Axis.EXPERT_DATA.layout(whole),
        "shard_group": Axis.DATA.layout(plan) if plan.shard else (1, 1),
        "replica_group": Axis.REPLICAS.layout(plan),
        # Ranks of the first stage with those in their place in the last: both hold a tied word table.
        "embedding_group": (min(plan.pp, 2), plan.world_size // plan.pp * (plan.pp - 1)),
    }


# --- as traces


Skeleton = list[tuple[bytes, Operation]]
"""Of every node its encoded number and dependencies, and its operation."""

_JOINING = (Role.REPLICATED, Role.OPTIMIZER)  # rows that need the sums of gradients
_BEHIND = ("isend", "dp_group", "ep_dp_group", "shard_group", "replica_group")


def write_set(
    workload: Workload, plan: Plan, prefix: Path, ranks: Sequence[int] = (), *, force: bool, tied_bytes: int = 0
) -> list[Path]:
    """Write PREFIX.groups.json and PREFIX.RANK.et of the ranks (none given: all); the paths in this order.

    InputError where a rank does not exist, or a file does and `force` is not set. `workload` and `tied_bytes`
    are those of `listed_step`.
    """
    for rank in ranks:
        if not 0 <= rank < plan.world_size:
            message, expected = "there is no such rank", f"0 to {plan.world_size - 1}"
            raise InputError.at("--ranks", message, expected=expected, found=str(rank))
    wanted = sorted(ranks or range(plan.world_size))
    files = [prefix.with_name(f"{prefix.name}.{what}") for what in ("groups.json", *(f"{rank}.et" for rank in wanted))]
    check_free(files, force=force)
    groups, pipeline, paths = groups_of(plan), pipeline_of(workload), iter(files)
    write_text(next(paths), json.dumps({str(number): list(group) for number, group in groups.members.items()}))
    for stage, ranks_of_stage in groupby(wanted, lambda rank: rank * plan.pp // plan.world_size):
        shared = skeleton(listed_step(workload, plan, stage, tied_bytes=tied_bytes, pipeline=pipeline))
        for rank in ranks_of_stage:
            write_bytes(next(paths), trace(shared, rank, plan, groups))
    return files


def skeleton(operations: Sequence[Operation]) -> Skeleton:
    """What the traces of a stage's ranks share."""
    made: Skeleton = []
    last, hidden, open_nodes = list[int](), list[int](), list[int]()
    summed: Layer | None = None  # whose input gradients are on their way
    for operation in operations:
        if operation.kind == "epoch_end":
            continue
        number = len(made) + 1
        phase, row = operation.phase, operation.row
        joins = row is not None and row.role in _JOINING
        beside = phase is PhaseName.WEIGHT_GRAD and row is not None and row is summed
        # Replicas sum what the ranks beside each other have reduced.
        reduced = open_nodes[-1:] if operation.group == "replica_group" else []
        waits = [*(open_nodes if joins else reduced), *(() if beside else hidden), *last]
        packed = b"".join(varint(other) for other in waits if other)
        # Fields id (1) and data_deps (5, packed) of a node.
        made.append((b"\x08" + varint(number) + (b"\x2a" + frame(packed) if packed else b""), operation))
        if joins:
            open_nodes = []
        # Later operations need not wait for sends, nor for sums of gradients while the backward goes on.
        gathers = row is not None and row.role is Role.GATHER
        summing = phase is PhaseName.WEIGHT_GRAD and operation.group in _BEHIND and not gathers
        if operation.kind == "isend" or summing:
            open_nodes.append(number)
        elif phase is PhaseName.INPUT_GRAD and operation.kind != "computation":
            last, hidden, summed = [*hidden, *last], [number], row
        else:
            last, hidden, summed = [number], hidden if beside else [], summed if beside else None
    return made


def trace(made: Skeleton, rank: int, plan: Plan, groups: Groups) -> bytes:
    """The whole file of a rank."""
    bodies: dict[int, bytes] = {}
    parts = [frame(metadata().SerializeToString(deterministic=True))]
    for head, operation in made:
        if id(operation) not in bodies:
            bodies[id(operation)] = _body(operation, rank, plan, groups)
        parts.append(frame(head + bodies[id(operation)]))
    return b"".join(parts)


def _body(operation: Operation, rank: int, plan: Plan, groups: Groups) -> bytes:
    """Everything a node says but its number and dependencies."""
    time_ns = round((operation.elapsed_ms or 0.0) * 1e6)
    micros, name = max(1, round(time_ns / 1000)) if time_ns else 0, operation.stage
    if operation.kind == "computation":
        kind, said = NodeKind.COMPUTE, {"duration_ns": time_ns}
    else:
        kind, said = _sent(operation, rank, plan, groups)
        name += f".{operation.kind}"
    message = node(0, name, kind, duration_micros=micros, attributes={"is_cpu_op": False, **said})
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def _sent(operation: Operation, rank: int, plan: Plan, groups: Groups) -> tuple[NodeKind, dict[str, Any]]:
    """Type and attributes of a transfer or a collective; an all-gather's size is one rank's part."""
    size = operation.size if isinstance(operation.size, int) else 0
    if operation.kind in {"isend", "irecv"}:
        sends, peer = operation.kind == "isend", rank + plan.world_size // plan.pp * operation.away
        peers = {"comm_src": rank if sends else peer, "comm_dst": peer if sends else rank}
        return NodeKind.SEND if sends else NodeKind.RECV, {**peers, "comm_size": size, "comm_tag": operation.tag}
    if operation.kind == "all_gather":
        size = -(-size // (operation.group_size or 1))
    kind, group = CommType[operation.kind.upper()], str(groups.of(operation.group or "", rank))
    return NodeKind.COLLECTIVE, {"comm_type": int(kind), "comm_size": size, "pg_name": group}


# Ranks stand in Megatron-LM's order: tensor ranks innermost, then context, data and pipeline; of experts their tensor
# ranks innermost, then expert ranks, then the replicas of an expert, all within a stage.


@dataclass(frozen=True, slots=True)
class Groups:
    """Every group of more than one rank by its number, and the number of a rank's group of each kind."""

    members: Mapping[int, tuple[int, ...]]
    number: Mapping[tuple[str, int], int]

    def of(self, kind: str, rank: int) -> int:
        """Number of the group of this kind (as in operation lists) that a rank is in; 0: it is alone."""
        return self.number.get((kind, rank), 0)


def groups_of(plan: Plan) -> Groups:
    """All groups of a plan, numbered from 1 by kind, then by their first rank.

    >>> groups = groups_of(Plan(8, 128, tp=2, pp=2))
    >>> groups.members[groups.of("dp_group", 5)], groups.of("ep_group", 5)
    ((5, 7), 0)
    """
    members: dict[int, tuple[int, ...]] = {}
    number: dict[tuple[str, int], int] = {}
    for kind, (size, stride) in layout(plan).items():
        for rank in range(plan.world_size if size > 1 else 0):
            if (kind, rank) in number or rank + stride * (size - 1) >= plan.world_size:
                continue
            group = tuple(rank + stride * place for place in range(size))
            members[len(members) + 1] = group
            number |= {(kind, member): len(members) for member in group}
    return Groups(members, number)
