"""DISTRIBUTED_INFERENCE: forward passes only (ASTRA-sim 1.0)."""

from simcore.workload.loops.step import Loop, Ref, Span, Step, loops
from simcore.workload.model import PhaseName, Workload


def steps(workload: Workload) -> list[Step]:
    """``F0 .. Fn``: every layer's collective blocks."""
    forward = PhaseName.FORWARD
    return [Step(forward, i, issue=Ref(forward, i), blocking=True) for i in range(len(workload.layers))]


loops.register("DISTRIBUTED_INFERENCE")(Loop(steps, activations=Span.ALL, staged=True))
