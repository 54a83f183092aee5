"""The loops that send activations: MODEL, the hybrids, HYBRID_TRANSFORMER, HYBRID_CUSTOMIZED (ASTRA-sim 1.0).

One machine with small differences: forward collectives block; a layer's input-gradient collective hides behind its
weight-gradient computation only; weight-gradient collectives hide behind everything up to the next forward.
"""

from simcore.workload.loops.step import Loop, Order, Ref, Span, Step, loops
from simcore.workload.model import PhaseName, Workload

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD


def forward(layer: int) -> Step:
    """Compute and send a layer's activations; the next layer waits for them."""
    own = Ref(FORWARD, layer)
    return Step(FORWARD, layer, before=Ref(WEIGHT_GRAD, layer), issue=own, blocking=True)


def backward(layer: int, *, send_first: bool, reduce_gradients: bool) -> list[Step]:
    """Input gradient, then weight gradient, of one layer.

    Row 0's input gradient has nobody to go to: it is sent only when `send_first`.
    """
    sends = layer > 0 or send_first
    input_grad, weight_grad = Ref(INPUT_GRAD, layer), Ref(WEIGHT_GRAD, layer)
    return [
        Step(INPUT_GRAD, layer, issue=input_grad if sends else None, order=Order.LIFO),
        Step(WEIGHT_GRAD, layer, issue=weight_grad if reduce_gradients else None, order=Order.FIFO, after=input_grad),
    ]


def _steps(workload: Workload, send_first: bool, reduce_gradients: bool) -> list[Step]:
    """``F0 .. Fn In Wn .. I0 W0``."""
    count = len(workload.layers)
    made = [forward(i) for i in range(count)]
    for i in reversed(range(count)):
        made += backward(i, send_first=send_first, reduce_gradients=reduce_gradients)
    return made


def model_steps(workload: Workload) -> list[Step]:
    """Weight gradients stay where they are."""
    return _steps(workload, send_first=False, reduce_gradients=False)


def hybrid_steps(workload: Workload) -> list[Step]:
    """Activations in one group, weight gradients in the other."""
    return _steps(workload, send_first=False, reduce_gradients=True)


def transformer_steps(workload: Workload) -> list[Step]:
    """As the hybrids; row 0's input gradient is sent too."""
    return _steps(workload, send_first=True, reduce_gradients=True)


loops.register("MODEL")(Loop(model_steps, activations=Span.ALL))
loops.register("HYBRID_DATA_MODEL")(Loop(hybrid_steps, Span.FIRST_DIM, Span.OTHER_DIMS))
loops.register("HYBRID_MODEL_DATA")(Loop(hybrid_steps, Span.OTHER_DIMS, Span.FIRST_DIM))
loops.register("HYBRID_TRANSFORMER")(Loop(transformer_steps, Span.MODEL, Span.DATA, staged=True))
loops.register("HYBRID_CUSTOMIZED")(Loop(hybrid_steps))  # every row names the loop whose groups it uses
