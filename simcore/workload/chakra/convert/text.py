"""Text workloads as dependency graphs, the way Chakra's own converter makes them.

Source: `chakra_converter Text` of mlcommons/chakra (main, 2026-05). It takes compute columns, which are nanoseconds,
for microseconds, and ASTRA-sim 2.x plays them so: that stays in Chakra's field, and `duration_ns` beside it tells
simcore what the text means. A communication type it does not know, NONE included, is an all-reduce wherever the loop
communicates at all. All NPUs have one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simcore.errors import InputError, Location, closest
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType, NodeType
from simcore.workload.model import CollectiveKind, Layer, Phase, Workload

__all__ = ["LOOPS", "TextNode", "encode", "steps"]

TYPES = {
    CollectiveKind.ALL_REDUCE: ("ALLREDUCE", CommType.ALL_REDUCE),
    CollectiveKind.ALL_TO_ALL: ("ALLTOALL", CommType.ALL_TO_ALL),
    CollectiveKind.ALL_GATHER: ("ALLGATHER", CommType.ALL_GATHER),
    CollectiveKind.REDUCE_SCATTER: ("REDUCESCATTER", CommType.REDUCE_SCATTER),
    None: ("NONE", CommType.ALL_REDUCE),
}


@dataclass(frozen=True, slots=True)
class TextNode:
    """One node: computation of `duration_micros`, or a collective of `size_bytes`; `deps` are indices of steps.

    `dims` says of each dimension of the machine whether the collective goes through it; none given = all.
    """

    name: str
    deps: tuple[int, ...]
    duration_micros: int = 0
    comm_type: CommType | None = None
    size_bytes: int = 0
    dims: tuple[bool, ...] = ()


@dataclass(slots=True)
class _Passes:
    """Steps made so far, and the step of each computation (F G W) and communication (FC GC WC) of each layer.

    A later pass finds what the one before left behind, exactly as the original's layers remember their last nodes.
    `first_dim` names the communications that take the first of `num_dims` dimensions while others take the rest; "" =
    all take all.
    """

    layers: tuple[Layer, ...]
    last_bottom_layer: int
    num_dims: int = 0
    first_dim: str = ""
    steps: list[TextNode] = field(default_factory=list)
    last: dict[tuple[str, int], int] = field(default_factory=dict)

    def after(self, *wanted: tuple[str, int]) -> tuple[int, ...]:
        """Those of the wanted steps that exist."""
        return tuple(self.last[key] for key in wanted if key in self.last)

    def compute(self, which: str, layer: int, suffix: str, phase: Phase, deps: tuple[int, ...]) -> None:
        name = f"COMP_NODE_{self.layers[layer].name}_{suffix}"
        self._add(which, layer, TextNode(name, deps, duration_micros=phase.compute_ns))

    def communicate(self, which: str, layer: int, phase: Phase, deps: tuple[int, ...], label: str = "") -> None:
        word, comm_type = TYPES[phase.collective]
        name = f"COMM_COLL_NODE_{self.layers[layer].name}_{label}{word}"
        first = tuple(index == 0 for index in range(self.num_dims))
        dims = tuple(own == (which in self.first_dim.split()) for own in first) if self.first_dim else ()
        whole = (True,) * self.num_dims
        self._add(which, layer, TextNode(name, deps, 0, comm_type, phase.size_bytes, dims or whole))

    def _add(self, which: str, layer: int, step: TextNode) -> None:
        self.last[which, layer] = len(self.steps)
        self.steps.append(step)

    def forward(self, layer: int, deps: tuple[int, ...]) -> None:
        self.compute("F", layer, "FWD", self.layers[layer].forward, deps)

    def input_grad(self, layer: int, deps: tuple[int, ...]) -> None:
        self.compute("G", layer, "BWD_IG", self.layers[layer].input_grad, deps)

    def weight_grad(self, layer: int, deps: tuple[int, ...]) -> None:
        self.compute("W", layer, "BWD_WG", self.layers[layer].weight_grad, deps)

    def backward_order(self) -> Iterable[int]:
        return reversed(range(len(self.layers)))


def _micro(made: _Passes) -> None:
    for index, layer in enumerate(made.layers):
        made.communicate("WC", index, layer.weight_grad, ())


def _data(made: _Passes) -> None:
    for index in range(len(made.layers)):
        made.forward(index, made.after(("F", index - 1), ("WC", index)))
    for index in made.backward_order():
        last = index == len(made.layers) - 1
        made.weight_grad(index, made.after(("F", index) if last else ("G", index + 1)))
        made.communicate("WC", index, made.layers[index].weight_grad, made.after(("W", index)))
        if index:
            made.input_grad(index, made.after(("W", index)))


def _model(made: _Passes, reduce_weights: bool = False, label: str = "") -> None:
    """MODEL, and with the weight gradients' collectives the two HYBRID_*_MODEL_* loops."""
    for index, layer in enumerate(made.layers):
        made.forward(index, made.after(("FC", index - 1), ("WC" if reduce_weights else "W", index)))
        made.communicate("FC", index, layer.forward, made.after(("F", index)))
    for index in made.backward_order():
        layer, last = made.layers[index], index == len(made.layers) - 1
        made.input_grad(index, made.after(("FC", index)) if last else made.after(("W", index + 1), ("GC", index + 1)))
        if index:
            made.communicate("GC", index, layer.input_grad, made.after(("G", index)), label)
        made.weight_grad(index, made.after(("G", index)))
        if reduce_weights:
            made.communicate("WC", index, layer.weight_grad, made.after(("W", index)))


def _data_model(made: _Passes) -> None:
    _model(made, reduce_weights=True, label="IG_COMM__")


def _model_data(made: _Passes) -> None:
    _model(made, reduce_weights=True)


def _dlrm(made: _Passes) -> None:
    """Layer 0 is the embedding: its all-to-alls overlap the bottom layers, whose last one waits for them."""
    bottom = made.last_bottom_layer
    for index, layer in enumerate(made.layers):
        previous = "WC" if ("WC", index) in made.last else "W"
        exchange = [("FC", 0)] if index == bottom else []
        made.forward(index, made.after((previous, index), ("F", index - 1), *exchange))
        if layer.forward.collective == CollectiveKind.ALL_TO_ALL:
            made.communicate("FC", index, layer.forward, made.after(("F", index)))
    for index in made.backward_order():
        _dlrm_backward(made, index, bottom)


def _dlrm_backward(made: _Passes, index: int, bottom: int) -> None:
    layer, last = made.layers[index], index == len(made.layers) - 1
    made.weight_grad(
        index, made.after(("F", index)) if last else made.after(("G", index + 1), *[("GC", 0)] * (index == 0))
    )
    if layer.weight_grad.collective:
        made.communicate("WC", index, layer.weight_grad, made.after(("W", index)))
    if index:
        made.input_grad(index, made.after(("W", index)))
        if index == bottom + 1:
            made.communicate("GC", 0, made.layers[0].input_grad, made.after(("G", index)))


LOOPS: dict[str, Callable[[_Passes], None]] = {
    "MICRO": _micro,
    "DATA": _data,
    "MODEL": _model,
    "HYBRID_DATA_MODEL": _data_model,
    "HYBRID_MODEL_DATA": _model_data,
    "HYBRID_DLRM": _dlrm,
    "HYBRID_DLRM_ENHANCED": _dlrm,
}


FIRST_DIM = {"HYBRID_DATA_MODEL": "FC GC", "HYBRID_MODEL_DATA": "WC"}
"""Loop -> which communications go through the first dimension, the others through the rest."""


def steps(workload: Workload, iterations: int, *, num_dims: int = 0) -> list[TextNode]:
    """The graph of `iterations` passes; InputError for loops the original does not know.

    With `num_dims` collectives say which dimensions they go through, as the converter of 2023 (``--num_dims``) did.
    """
    if workload.loop not in LOOPS:
        raise InputError.at(
            workload.location if workload.location.file else Location(workload.name),
            f"Chakra's text converter has no graph for the loop {workload.loop}",
            expected=closest(workload.loop, LOOPS),
            found=workload.loop,
        )
    made = _Passes(workload.layers, workload.last_bottom_layer, num_dims, FIRST_DIM.get(workload.loop, ""))
    for _ in range(iterations):
        LOOPS[workload.loop](made)
    return made.steps


def encode(made: Sequence[TextNode], *, first_id: int = 0, compat: bool = False, source: str = "") -> bytes:
    """A rank's file. With `compat` exactly Chakra's: the input text as metadata and no is_cpu_op attribute."""
    head = writer.metadata("", schema="1.0.2-chakra.1.0.0", input_file=source) if compat else writer.metadata()
    return writer.encode(head, (_node(step, first_id + index, first_id, compat) for index, step in enumerate(made)))


def _node(step: TextNode, number: int, first_id: int, compat: bool) -> Any:
    """A step as a node; is_cpu_op is written because other readers take its absence for true."""
    kind = NodeType.COMP_NODE if step.comm_type is None else NodeType.COMM_COLL_NODE
    attributes: dict[str, Any] = {} if compat else {"is_cpu_op": False}
    if step.comm_type is None:
        attributes |= {} if compat else {"duration_ns": step.duration_micros}  # the column's number, in its true unit
    else:
        attributes |= {"comm_type": int(step.comm_type), "comm_size": step.size_bytes}
        attributes |= {"involved_dim": step.dims} if step.dims else {}
    deps = [first_id + dep for dep in step.deps]
    return writer.node(
        number, step.name, kind, data_deps=deps, duration_micros=step.duration_micros, attributes=attributes
    )
