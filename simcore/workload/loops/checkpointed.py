"""HYBRID_TRANSFORMER_FWD_IN_BCKWD: activations are recomputed from checkpoints in the backward pass (ASTRA-sim 1.0)."""

from simcore.errors import InputError
from simcore.workload.loops import hybrid
from simcore.workload.loops.step import Loop, Span, Step, loops
from simcore.workload.model import PhaseName, Workload


def steps(workload: Workload) -> list[Step]:
    """As HYBRID_TRANSFORMER; an initiating layer's input gradient waits for the forwards since the checkpoint.

    Recomputation starts at the nearest checkpoint at or below the initiating layer and ends before the next initiating
    layer above it, where the backward pass goes on: when that is a lower one, the layers above it are skipped.
    """
    count = len(workload.layers)
    made = [hybrid.forward(i) for i in range(count)]
    waiting = set(workload.checkpoint_initiates)
    layer = count - 1
    while layer >= 0:
        if layer in waiting:
            waiting.discard(layer)
            again, layer = _recomputed(workload, layer)
            made += again
        made += hybrid.backward(layer, send_first=True, reduce_gradients=True)
        layer -= 1
    return made


def _recomputed(workload: Workload, initiator: int) -> tuple[list[Step], int]:
    """The jump down and the forwards that run again; the layer at which the backward pass continues."""
    below = [checkpoint for checkpoint in workload.checkpoints if checkpoint <= initiator]
    if not below:
        raise InputError.at(
            workload.location,
            f"layer {initiator} initiates a recomputation, but no checkpoint is at or below it",
            expected=f"a checkpoint <= {initiator}",
            found=f"checkpoints {list(workload.checkpoints)}",
        )
    first = max(below)
    above = [layer for layer in workload.checkpoint_initiates if layer > first]
    if not above:
        raise InputError.at(
            workload.location,
            f"the recomputation from checkpoint {first} never ends: no layer above it initiates one",
            hint="name the layer whose backward pass needs the recomputed activations",
        )
    last = min(above)
    jump = Step(PhaseName.INPUT_GRAD, initiator, computes=False)
    return [jump, *(hybrid.forward(i) for i in range(first, last))], last


loops.register("HYBRID_TRANSFORMER_FWD_IN_BCKWD")(Loop(steps, Span.MODEL, Span.DATA, staged=True))
