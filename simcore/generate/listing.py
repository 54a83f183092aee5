"""The corrected step of one stage as an operation list: every operation of a rank in the order its schedule runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simcore.errors import InputError
from simcore.generate.aicb.operations import EPOCH_END, Operation
from simcore.generate.plan import Plan
from simcore.generate.training import END_ROWS
from simcore.workload.loops.schedules import make
from simcore.workload.model import Group, Layer, Phase, PhaseName, Workload

__all__ = ["listed_step"]

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD


def listed_step(workload: Workload, plan: Plan, stage: int) -> list[Operation]:
    """Operations of a stage's step under 1F1B: micro-batches with their transfers, then the end of the step.

    The rows of a workload of `simcore.generate.training` are the end of the step, then as many equal blocks as there
    are micro-batches; the first block is the last micro-batch, whose gradients are complete.
    """
    if plan.virtual_stages > 1:
        raise InputError.at(
            "--virtual_pipeline_model_parallel_size",
            "operation lists and traces follow 1F1B without interleaving",
            expected="1, or --format text",
            found=str(plan.virtual_stages),
        )
    count = plan.micro_batches
    each = sum(1 for layer in workload.layers if layer.name not in END_ROWS) // count
    layers = workload.layers
    end, last, other = layers[: -each * count], layers[-each * count :][:each], layers[-each:]
    lister = _Lister(plan, stage, workload.pipeline_bytes)
    passes = {
        (kind, final): list(run(rows))
        for kind, run in (("F", lister.forward), ("B", lister.backward))
        for final, rows in ((True, last), (False, other))
    }
    made: list[Operation] = []
    for cell in make("1f1b", plan.pp, count).order[stage]:
        made += passes[cell.kind, cell.micro_batch == count - 1]
    return [*made, *lister.end(end), EPOCH_END]


@dataclass(frozen=True, slots=True)
class _Lister:
    plan: Plan
    stage: int
    handed_bytes: int

    def forward(self, layers: Sequence[Layer]) -> Iterator[Operation]:
        """One micro-batch downwards, between its transfers."""
        if self.stage > 0:
            yield self._transfer("irecv", "forward", "recv_prev")
        for layer in layers:
            yield from self._phase(layer, FORWARD)
        if self.stage < self.plan.pp - 1:
            yield self._transfer("isend", "forward", "send_next")

    def backward(self, layers: Sequence[Layer]) -> Iterator[Operation]:
        """One micro-batch upwards, between its transfers."""
        if self.stage < self.plan.pp - 1:
            yield self._transfer("irecv", "backward", "recv_next")
        yield from self.upwards(layers)
        if self.stage > 0:
            yield self._transfer("isend", "backward", "send_prev")

    def upwards(self, layers: Sequence[Layer]) -> Iterator[Operation]:
        """Both gradients of every row, the last row first."""
        for layer in reversed(layers):
            yield from self._phase(layer, INPUT_GRAD)
            yield from self._phase(layer, WEIGHT_GRAD)

    def end(self, layers: Sequence[Layer]) -> Iterator[Operation]:
        """The end of the step, in the order in which a framework gets to its rows."""
        for layer in sorted(layers, key=lambda layer: END_ROWS.index(layer.name)):
            for name in PhaseName:
                yield from self._phase(layer, name)

    def _transfer(self, kind: str, where: str, what: str) -> Operation:
        return Operation(kind, "pp_group", 2, self.handed_bytes, where, additional=what)

    def _phase(self, layer: Layer, name: PhaseName) -> Iterator[Operation]:
        phase, where = layer.phase(name), f"{name}.{layer.name}"
        if phase.compute_ns:
            yield Operation("computation", stage=where, elapsed_ms=phase.compute_ns / 1e6)
        if phase.collective is not None:
            group, ranks = self._group(phase, name)
            yield Operation(str(phase.collective), group, ranks, phase.size_bytes, where)

    def _group(self, phase: Phase, name: PhaseName) -> tuple[str, int]:
        """Name and size of a phase's group; the column decides where none is given."""
        plan = self.plan
        if phase.group is Group.DP_EP and plan.zero == 3:
            return "dp_group", plan.replicas
        usual = ("dp_group", plan.replicas) if name is WEIGHT_GRAD else ("tp_group", plan.tp)
        groups = {
            Group.EP: ("ep_group", plan.ep),
            Group.DP_EP: ("ep_dp_group", plan.expert_replicas),
            Group.CP: ("cp_group", plan.cp),
        }
        return groups.get(phase.group, usual)
