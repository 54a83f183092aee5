"""ASTRA-sim 1.0's training loops. Most play a row after the other, forwards and back.

MODEL, the hybrids, HYBRID_TRANSFORMER and HYBRID_CUSTOMIZED send activations: one machine with small differences.
Forward collectives block; a layer's input-gradient collective hides behind its weight-gradient computation only;
weight-gradient collectives hide behind everything up to the next forward.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from simcore.errors import InputError
from simcore.workload.loops.step import Loop, Order, Ref, Span, Step, loops
from simcore.workload.model import CollectiveKind, PhaseName, Workload

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


# Row 0's weight-gradient collective, all at once; nothing is computed, nothing else of the file is used.
_alone = Step(WEIGHT_GRAD, 0, issue=Ref(WEIGHT_GRAD, 0), computes=False, instant=True)
_data = _played(
    lambda row: Step(FORWARD, row, before=Ref(WEIGHT_GRAD, row)),
    # Weight gradients come first; row 0 needs no input gradient.
    lambda row: [Step(WEIGHT_GRAD, row, issue=Ref(WEIGHT_GRAD, row)), Step(INPUT_GRAD, row)][: 1 + (row > 0)],
)
_inference = _played(lambda row: Step(FORWARD, row, issue=Ref(FORWARD, row), blocking=True), lambda row: ())
_both = _hybrid(send_first=False, reduce_gradients=True)  # activations in one group, weight gradients in the other
_transformer = _hybrid(send_first=True, reduce_gradients=True)  # row 0's input gradient is sent too
loops.register("DISTRIBUTED_INFERENCE")(Loop(_inference, activations=Span.ALL, staged=True))
loops.register("MICRO")(Loop(lambda workload: [_alone], gradients=Span.ALL))
loops.register("DATA")(Loop(_data, gradients=Span.ALL))
loops.register("MODEL")(Loop(_hybrid(send_first=False, reduce_gradients=False), activations=Span.ALL))
loops.register("HYBRID_DATA_MODEL")(Loop(_both, Span.FIRST_DIM, Span.OTHER_DIMS))
loops.register("HYBRID_MODEL_DATA")(Loop(_both, Span.OTHER_DIMS, Span.FIRST_DIM))
loops.register("HYBRID_TRANSFORMER")(Loop(_transformer, Span.MODEL, Span.DATA, staged=True))
loops.register("HYBRID_CUSTOMIZED")(Loop(_both))  # every row names the loop whose groups it uses


def _checkpointed(workload: Workload) -> list[Step]:
    """As HYBRID_TRANSFORMER, with activations recomputed from checkpoints in the backward pass.

    An initiating layer's input gradient waits for the forwards since the checkpoint. Recomputation starts at the
    nearest checkpoint at or below that layer and ends before the next initiating layer above it, where the backward
    pass goes on: when that is a lower one, the layers above it are skipped.
    """
    made, waiting = [*map(forward, range(len(workload.layers)))], set(workload.checkpoint_initiates)
    layer = len(workload.layers) - 1
    while layer >= 0:
        if layer in waiting:
            waiting.discard(layer)
            first = max((checkpoint for checkpoint in workload.checkpoints if checkpoint <= layer), default=-1)
            if first < 0:
                text = f"layer {layer} initiates a recomputation, but no checkpoint is at or below it"
                found = f"checkpoints {list(workload.checkpoints)}"
                raise InputError.at(workload.location, text, expected=f"a checkpoint <= {layer}", found=found)
            last = min((above for above in workload.checkpoint_initiates if above > first), default=-1)
            if last < 0:
                text = f"the recomputation from checkpoint {first} never ends: no layer above it initiates one"
                hint = "name the layer whose backward pass needs the recomputed activations"
                raise InputError.at(workload.location, text, hint=hint)
            made += [Step(INPUT_GRAD, layer, computes=False), *map(forward, range(first, last))]
            layer = last
        made += backward(layer, send_first=True, reduce_gradients=True)
        layer -= 1
    return made


loops.register("HYBRID_TRANSFORMER_FWD_IN_BCKWD")(Loop(_checkpointed, Span.MODEL, Span.DATA, staged=True))


def _dlrm(workload: Workload, *, wait_for_input_grad: bool) -> list[Step]:
    """``F0 .. Fn Wn In .. W0``: embeddings exchanged all-to-all, MLPs data parallel.

    Forward all-to-alls are sent first and never block their layer; the last bottom layer waits for the embedding's.
    Above the bottom MLP the embedding's backward all-to-all is sent; only the first row's input gradient is.
    """
    made = []
    for i, layer in enumerate(workload.layers):
        awaited = Ref(FORWARD, 0) if i == workload.last_bottom_layer else None
        step = Step(FORWARD, i, Ref(WEIGHT_GRAD, i), after=awaited)
        if layer.forward.collective == CollectiveKind.ALL_TO_ALL:
            step = Step(FORWARD, i, Ref(WEIGHT_GRAD, i), issue=Ref(FORWARD, i), order=Order.HIGHEST)
        made.append(step)
    for i in reversed(range(len(workload.layers))):
        after = Ref(INPUT_GRAD, i) if wait_for_input_grad else None
        made.append(Step(WEIGHT_GRAD, i, issue=Ref(WEIGHT_GRAD, i), after=after))
        if i > 0:
            first_top = i == workload.last_bottom_layer + 1
            made.append(Step(INPUT_GRAD, i, issue=Ref(INPUT_GRAD, 0) if first_top else None, order=Order.HIGHEST))
    return made


for name, waits in (("HYBRID_DLRM", True), ("HYBRID_DLRM_ENHANCED", False)):
    loops.register(name)(Loop(partial(_dlrm, wait_for_input_grad=waits), Span.NONE, Span.ALL, first_row=Span.ALL))
