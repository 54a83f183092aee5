"""The loops that play a row after the other, forwards and back: ASTRA-sim 1.0's but for DLRM and recomputation.

MODEL, the hybrids, HYBRID_TRANSFORMER and HYBRID_CUSTOMIZED send activations: one machine with small differences.
Forward collectives block; a layer's input-gradient collective hides behind its weight-gradient computation only;
weight-gradient collectives hide behind everything up to the next forward.
"""

from collections.abc import Callable, Iterable
from itertools import chain

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


def _played(ahead: Callable[[int], Step], back: Callable[[int], Iterable[Step]]) -> Callable[[Workload], list[Step]]:
    """A loop that plays every row forwards, then from the last to the first backwards."""

    def steps(workload: Workload) -> list[Step]:
        rows = range(len(workload.layers))
        return [*map(ahead, rows), *chain.from_iterable(map(back, reversed(rows)))]

    return steps


def _hybrid(*, send_first: bool, reduce_gradients: bool) -> Callable[[Workload], list[Step]]:
    """``F0 .. Fn In Wn .. I0 W0``."""
    return _played(forward, lambda row: backward(row, send_first=send_first, reduce_gradients=reduce_gradients))


def _data_backward(row: int) -> list[Step]:
    """Weight gradients come first; row 0 needs no input gradient."""
    sent = Step(WEIGHT_GRAD, row, issue=Ref(WEIGHT_GRAD, row))
    return [sent, Step(INPUT_GRAD, row)] if row else [sent]


def _benchmark(workload: Workload) -> list[Step]:
    """Row 0's weight-gradient collective, all at once; nothing is computed, nothing else of the file is used."""
    return [Step(WEIGHT_GRAD, 0, issue=Ref(WEIGHT_GRAD, 0), computes=False, instant=True)]


_data = _played(lambda row: Step(FORWARD, row, before=Ref(WEIGHT_GRAD, row)), _data_backward)
_inference = _played(lambda row: Step(FORWARD, row, issue=Ref(FORWARD, row), blocking=True), lambda row: ())
_both = _hybrid(send_first=False, reduce_gradients=True)  # activations in one group, weight gradients in the other
_transformer = _hybrid(send_first=True, reduce_gradients=True)  # row 0's input gradient is sent too
loops.register("DISTRIBUTED_INFERENCE")(Loop(_inference, activations=Span.ALL, staged=True))
loops.register("MICRO")(Loop(_benchmark, gradients=Span.ALL))
loops.register("DATA")(Loop(_data, gradients=Span.ALL))
loops.register("MODEL")(Loop(_hybrid(send_first=False, reduce_gradients=False), activations=Span.ALL))
loops.register("HYBRID_DATA_MODEL")(Loop(_both, Span.FIRST_DIM, Span.OTHER_DIMS))
loops.register("HYBRID_MODEL_DATA")(Loop(_both, Span.OTHER_DIMS, Span.FIRST_DIM))
loops.register("HYBRID_TRANSFORMER")(Loop(_transformer, Span.MODEL, Span.DATA, staged=True))
loops.register("HYBRID_CUSTOMIZED")(Loop(_both))  # every row names the loop whose groups it uses
