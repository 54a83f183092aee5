"""HYBRID_DLRM and HYBRID_DLRM_ENHANCED: embeddings exchanged all-to-all, MLPs data parallel (ASTRA-sim 1.0)."""

from functools import partial

from simcore.workload.loops.step import Loop, Order, Ref, Span, Step, loops
from simcore.workload.model import CollectiveKind, PhaseName, Workload

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD


def steps(workload: Workload, *, wait_for_input_grad: bool) -> list[Step]:
    """``F0 .. Fn Wn In .. W0``.

    Forward all-to-alls are sent first and never block their layer; the last bottom layer waits for the embedding's.
    Above the bottom MLP the embedding's backward all-to-all is sent; only the first row's input gradient is.
    """
    made = [_forward(workload, i) for i in range(len(workload.layers))]
    for i in reversed(range(len(workload.layers))):
        after = Ref(INPUT_GRAD, i) if wait_for_input_grad else None
        made.append(Step(WEIGHT_GRAD, i, issue=Ref(WEIGHT_GRAD, i), after=after))
        if i > 0:
            first_top = i == workload.last_bottom_layer + 1
            made.append(Step(INPUT_GRAD, i, issue=Ref(INPUT_GRAD, 0) if first_top else None, order=Order.HIGHEST))
    return made


def _forward(workload: Workload, layer: int) -> Step:
    before = Ref(WEIGHT_GRAD, layer)
    if workload.layers[layer].forward.collective == CollectiveKind.ALL_TO_ALL:
        return Step(FORWARD, layer, before, issue=Ref(FORWARD, layer), order=Order.HIGHEST)
    return Step(FORWARD, layer, before, after=Ref(FORWARD, 0) if layer == workload.last_bottom_layer else None)


for name, waits in (("HYBRID_DLRM", True), ("HYBRID_DLRM_ENHANCED", False)):
    loops.register(name)(Loop(partial(steps, wait_for_input_grad=waits), Span.NONE, Span.ALL, first_row=Span.ALL))
