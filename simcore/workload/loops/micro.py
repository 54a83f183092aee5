"""MICRO: row 0's weight-gradient collective, once an iteration, all at once: a micro-benchmark (ASTRA-sim 1.0)."""

from simcore.workload.loops.step import Loop, Ref, Span, Step, loops
from simcore.workload.model import PhaseName, Workload


def steps(workload: Workload) -> list[Step]:
    """One collective; nothing is computed, nothing else of the file is used."""
    grad = PhaseName.WEIGHT_GRAD
    return [Step(grad, 0, issue=Ref(grad, 0), computes=False, instant=True)]


loops.register("MICRO")(Loop(steps, gradients=Span.ALL))
