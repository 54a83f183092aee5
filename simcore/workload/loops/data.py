"""DATA: gradients are reduced behind the backward pass; activations are never sent (ASTRA-sim 1.0)."""

from simcore.workload.loops.step import Loop, Ref, Span, Step, loops
from simcore.workload.model import PhaseName, Workload

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD


def steps(workload: Workload) -> list[Step]:
    """``F0 .. Fn Wn In .. W1 I1 W0``: weight gradients come first; layer 0 needs no input gradient."""
    count = len(workload.layers)
    made = [Step(FORWARD, i, before=Ref(WEIGHT_GRAD, i)) for i in range(count)]
    for i in reversed(range(count)):
        made.append(Step(WEIGHT_GRAD, i, issue=Ref(WEIGHT_GRAD, i)))
        if i > 0:
            made.append(Step(INPUT_GRAD, i))
    return made


loops.register("DATA")(Loop(steps, gradients=Span.ALL))
