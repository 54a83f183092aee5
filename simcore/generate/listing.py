"""The corrected step of one stage as an operation list: every operation of a rank in the order its schedule runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from simcore.generate.aicb.operations import EPOCH_END, Operation
from simcore.model.plan import Plan
from simcore.model.rows import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from simcore.model.steps import Axis
from simcore.workload.loops.pipeline import Passage, Pipeline, Transfer, pipeline_of
from simcore.workload.model import Group, Layer, Phase, PhaseName, Role, Workload

PHASES = {"F": (FORWARD,), "B": (INPUT_GRAD, WEIGHT_GRAD), "W": (WEIGHT_GRAD,)}
"""Kind of a cell -> what it computes of every row; where weight gradients have cells of their own, the first."""


def listed_step(
    workload: Workload, plan: Plan, stage: int, *, tied_bytes: int = 0, pipeline: Pipeline | None = None
) -> list[Operation]:
    """Operations of a stage's step: cells with their transfers in the order of the schedule, then the end of the step.

    `workload` is the step of `simcore.model.rows`: the rows of all stages, or of any one. `tied_bytes` are
    all-reduced between the first stage and the last, which rows cannot say. `pipeline` is the workload's, where it was
    made for another stage.
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
