"""The backward pass of a training step on one node: derived from the rows of the forward pass, layer by layer.

Input gradients run first (the next layer waits for them), then weight gradients and their sum over the nodes that hold
the same weights. A product costs its multiply-accumulates twice more, an attention likewise. Gradients of replicated
tensors are kept replicated: where the forward pass sums partial outputs of a block, the backward pass sums the partial
gradients of its input (Megatron-LM's f and g, arXiv 1909.08053, section 3). Tokens and results of experts travel back
the way they came. Nothing is recomputed, and the optimizer is not part of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from math import prod

import numpy as np

from simcore.errors import SimulationError
from simcore.generate.wse.exchange import Exchange
from simcore.generate.wse.experts import backward_exchange
from simcore.generate.wse.operations import ATTENTION, LINEAR, Block, Operation, Owner, Part, Scope, tensor
from simcore.generate.wse.settings import shared_nodes
from simcore.workload.model import PhaseName

EXPERTS = {Part.EXPERT, Part.SHARED}


def backward(scope: Scope, rows: list[Operation], routed: dict[str, Exchange]) -> Iterator[Operation]:
    """Rows of the backward pass of the layers whose forward rows are given, last layer first."""
    layers = [(name, list(held)) for name, held in groupby(rows, lambda each: _owner(each).layer)]
    source = tensor(scope.node, "loss_gradient")
    for name, held in reversed(layers):
        one = partial(_attends, beside=scope.beside(name))
        blocks = [(attends, list(part)) for attends, part in groupby(held, one)]
        for attends, part in reversed(blocks):
            made = list(_input_gradients(scope, name, part, None if attends else routed.get(name)))
            whose = Owner(name, None, PhaseName.INPUT_GRAD)
            for each in made:
                yield each._replace(of=whose, inputs=() if each.kind == "Barrier" else (source,))
                source = each.outputs[0] if each.outputs else source
        whose = Owner(name, None, PhaseName.WEIGHT_GRAD)
        yield from (each._replace(of=whose) for each in _weight_gradients(scope, name, held, source))


def _owner(row: Operation) -> Owner:
    """The part of a layer that a row is of."""
    if row.of is None:
        raise SimulationError(f"{row.uid} says not whose it is")
    return row.of


def _attends(row: Operation, *, beside: bool = False) -> bool:
    """Whether a row is of a layer's attention, or of what stands beside it."""
    return beside or _owner(row).part is Part.ATTENTION


def _input_gradients(scope: Scope, layer: str, rows: list[Operation], exchange: Exchange | None) -> Iterator[Operation]:
    """Attention, or what follows it, backwards; sums over tensor parallel nodes come last."""
    if exchange is not None and scope.system.tp_ffn == 1:
        yield from _expert_gradients(scope, f"{layer}_moe", rows, exchange)
        return
    yield from (_again(scope, each) for each in rows if each.kind in {"AllGather", "Barrier"})
    for each in reversed(rows):
        if each.kind in LINEAR:
            yield _product(scope, each)
        elif each.kind in ATTENTION:
            yield from _attention(scope, f"{layer}_attn", each, rows)
    for each in rows:
        if each.kind == "AllReduce" and not _joins(scope, each):  # of a block's partial input gradients [.., hidden]
            shape = (*each.shape[:-1], scope.model.hidden)
            yield Block(scope, each.uid).collective("dgrad", "AllReduce", shape, each.group or (), "")


def _joins(scope: Scope, row: Operation) -> bool:
    """Whether a row joins what sequence parallel nodes made of the scores."""
    return row.kind == "AllReduce" and _attends(row) and row.group == scope.groups.sp


def _expert_gradients(scope: Scope, block: str, rows: list[Operation], exchange: Exchange) -> Iterator[Operation]:
    """Gradients of the outputs go to the experts, those of their inputs come back and to the whole cluster."""
    yield from backward_exchange(scope, exchange, block, "combine")
    products = [each for each in reversed(rows) if each.kind in LINEAR]
    yield from (_product(scope, each) for each in products if _owner(each).part in EXPERTS)
    yield from backward_exchange(scope, exchange, block, "dispatch")
    yield from (_product(scope, each) for each in products if _owner(each).part not in EXPERTS)
    kinds = {"Multicast", "Barrier"}
    yield from (_again(scope, each) for each in rows if _owner(each).part is Part.REJOINED and each.kind in kinds)


def _again(scope: Scope, row: Operation) -> Operation:
    """The same row for gradients."""
    uid = f"{row.uid}_dgrad"
    if row.kind == "Multicast":
        outputs = tuple(tensor(node, f"{uid}_{scope.node}") for node in row.group or ())
    else:
        outputs = () if row.kind == "Barrier" else (tensor(scope.node, uid),)
    return row._replace(uid=uid, outputs=outputs)


def _product(scope: Scope, row: Operation) -> Operation:
    """The gradient of a product's input: weights are read once more."""
    *groups, rows, inner, outer = row.shape
    return _again(scope, row)._replace(shape=(*groups, rows, outer, inner), memory_bytes=0)


def _attention(scope: Scope, block: str, row: Operation, rows: list[Operation]) -> Iterator[Operation]:
    """Gradients of queries, keys and values: twice the products. Every node of sp has a part of the queries'."""
    yield _again(scope, row)._replace(macs=2 * row.macs)
    if scope.system.sp > 1:
        sums = next(each for each in rows if _joins(scope, each))
        heads, width = row.shape[2:4]
        shape, group = (*sums.shape[:2], heads * width), sums.group or ()
        yield Block(scope, block).collective("ar_sp_dgrad", "AllReduce", shape, group, "")


def _copies(scope: Scope) -> tuple[int, ...]:
    """The nodes with a copy of the shared expert that has tokens."""
    places = [] if scope.system.tp_ffn > 1 else np.unique(shared_nodes(scope.system, scope.batch)).tolist()
    return tuple(scope.groups.stage[0] + place for place in places)


Members = Callable[[Scope], tuple[int, ...]]
# Part of a layer -> what the sum of its weights' gradients is called, and who has the same; experts have no copies.
SAME_WEIGHTS: dict[Part | None, tuple[str, Members]] = {
    Part.ATTENTION: ("attention", lambda scope: scope.groups.replicas),
    Part.SHARED: ("shared", _copies),
    Part.EXPERT: ("", lambda _: ()),
    **dict.fromkeys((Part.DENSE, Part.MIXTURE), ("dense", lambda scope: scope.groups.dp)),
}


def _weight_gradients(scope: Scope, layer: str, rows: list[Operation], source: str) -> Iterator[Operation]:
    """The weight gradients of a layer, then their sums."""
    sizes: dict[str, int] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for each in (each for each in reversed(rows) if each.kind in LINEAR):
        *many, count, inner, outer = each.shape
        uid = f"{each.uid}_wgrad"
        inputs, outputs = (*each.inputs, source), (tensor(scope.node, uid),)
        yield each._replace(uid=uid, shape=(*many, inner, count, outer), inputs=inputs, outputs=outputs)
        name, members = SAME_WEIGHTS[_owner(each).part]
        sizes[name] = sizes.get(name, 0) + prod(many) * inner * outer
        groups[name] = members(scope)
    for name, group in groups.items():
        if len(group) > 1:
            yield Block(scope, f"{layer}_sync_{name}").collective("wgrad", "AllReduce", (sizes[name],), group, source)
