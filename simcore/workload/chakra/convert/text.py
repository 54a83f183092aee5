"""Text workloads as dependency graphs, the way Chakra's own converter makes them.

Source: `chakra_converter Text` of mlcommons/chakra (main, 2026-05). It takes compute columns, which are nanoseconds,
for microseconds, and ASTRA-sim 2.x plays them so: that stays in Chakra's field, and `duration_ns` beside it tells
simcore what the text means. A communication type it does not know, NONE included, is an all-reduce wherever the loop
communicates at all. All NPUs have one graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from simcore.errors import InputError, Location
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.model import CollectiveKind, Group, Layer, NodeKind, Workload
from simcore.workload.text import SPELLINGS


class TextNode(NamedTuple):
    """Computation of `duration_micros`, or a collective by its attributes; `deps` are indices of steps."""

    name: str
    deps: tuple[int, ...]
    duration_micros: int
    collective: dict[str, Any]


class _Passes(Struct):
    """Steps made so far, and the step of each computation (F G W) and communication (FC GC WC) of each layer.

    A later pass finds what the one before left behind, exactly as the original's layers remember their last nodes.
    `first_dim` names the communications that take the first of `num_dims` dimensions while others take the rest; "" =
    all take all.
    """

    layers: tuple[Layer, ...]
    last_bottom_layer: int
    num_dims: int = 0
    first_dim: str = ""
    label: str = ""
    steps: list[TextNode] = []
    last: dict[tuple[str, int], int] = {}

    def play(self, index: int, program: str) -> None:
        """The steps of a layer, as `LOOPS` writes them."""
        for which, _, waits in (step.partition(":") for step in filter(None, program.split("; "))):
            of_last, _, of_others = waits.partition("|")
            wanted = of_others if of_others and index < len(self.layers) - 1 else of_last
            if index or not which.startswith("!"):
                self.add(which.strip("!"), index, self.after(index, wanted))

    def after(self, index: int, wanted: str) -> tuple[int, ...]:
        """Those of the wanted steps that exist."""
        places = ((name, index + int(offset or 0)) for name, offset in re.findall(r"([A-Z]+)([+-]\d+)?", wanted))
        return tuple(self.last[place] for place in places if place in self.last)

    def add(self, which: str, layer: int, deps: tuple[int, ...]) -> None:
        """A computation or a communication of a layer."""
        phase, name = self.layers[layer].phases["FGW".index(which[0])], self.layers[layer].name
        if which in COMPUTES:
            step = TextNode(f"COMP_NODE_{name}_{COMPUTES[which]}", deps, phase.compute_ns, {})
        else:
            word = SPELLINGS[phase.collective, phase.group]
            comm_type = CommType[phase.collective.name] if phase.collective and phase.group is Group.LOOP else 0
            own = not self.first_dim or which in self.first_dim.split()
            dims = tuple(not self.first_dim or own == (index == 0) for index in range(self.num_dims))
            label = self.label if which == "GC" else ""
            said: dict[str, Any] = {"comm_type": int(comm_type), "comm_size": phase.size_bytes}
            said |= {"involved_dim": dims} if dims else {}
            step = TextNode(f"COMM_COLL_NODE_{name}_{label}{word}", deps, 0, said)
        self.last[which, layer] = len(self.steps)
        self.steps.append(step)


def _dlrm(made: _Passes) -> None:
    """Layer 0 is the embedding: its all-to-alls overlap the bottom layers, whose last one waits for them."""
    bottom, count = made.last_bottom_layer, len(made.layers)
    for index, layer in enumerate(made.layers):
        previous = "WC" if ("WC", index) in made.last else "W"
        made.play(index, f"F: {previous} F-1" + f" FC-{index}" * (index == bottom))
        exchanges = (layer.forward.collective, layer.forward.group) == (CollectiveKind.ALL_TO_ALL, Group.LOOP)
        made.play(index, "FC: F" * exchanges)
    for index in reversed(range(count)):
        made.play(index, "W: F | G+1" + " GC" * (index == 0))
        made.play(index, "WC: W" * (made.layers[index].weight_grad.collective is not None))
        made.play(index, "!G: W")
        if index and index == bottom + 1:
            made.add("GC", 0, made.after(index, "G"))


COMPUTES = {"F": "FWD", "G": "BWD_IG", "W": "BWD_WG"}
HYBRID = "F: WC FC-1; FC: F", "G: FC | W+1 GC+1; !GC: G; W: G; WC: W"
LOOPS: dict[str, tuple[str, str] | Callable[[_Passes], None]] = {
    "MICRO": ("WC:", ""),
    "DATA": ("F: F-1 WC", "W: F | G+1; WC: W; !G: W"),
    "MODEL": ("F: FC-1 W; FC: F", "G: FC | W+1 GC+1; !GC: G; W: G"),
    "HYBRID_DATA_MODEL": HYBRID,
    "HYBRID_MODEL_DATA": HYBRID,
    "HYBRID_DLRM": _dlrm,
    "HYBRID_DLRM_ENHANCED": _dlrm,
}
"""Loop -> the steps of each layer from the first to the last, and of each from the last to the first.

`STEP: A B+1` waits for A of the layer and B of the next; `X | Y` is X on the last layer and Y on others; `!` leaves the
first layer out.
"""
LABELS = {"HYBRID_DATA_MODEL": "IG_COMM__"}  # in the names of input gradients' collectives

FIRST_DIM = {"HYBRID_DATA_MODEL": "FC GC", "HYBRID_MODEL_DATA": "WC"}
"""Loop -> which communications go through the first dimension, the others through the rest."""


def steps(workload: Workload, iterations: int, *, num_dims: int = 0, compat: bool = False) -> list[TextNode]:
    """The graph of `iterations` passes; InputError for loops the original does not know, and for columns that it would
    misunderstand, unless `compat` asks for just that.

    With `num_dims` collectives say which dimensions they go through, as the converter of 2023 (``--num_dims``) did.
    """
    if workload.loop not in LOOPS:
        raise InputError.at(
            workload.location if workload.location.file else Location(workload.name),
            f"Chakra's text converter has no graph for the loop {workload.loop}",
            expected=", ".join(LOOPS),
            found=workload.loop,
            hint="--native writes the loop itself, any of them",
        )
    if not compat:
        _check_columns(workload)
    first_dim, label = (table.get(workload.loop, "") for table in (FIRST_DIM, LABELS))
    made, loop = _Passes(workload.layers, workload.last_bottom_layer, num_dims, first_dim, label), LOOPS[workload.loop]
    for _ in range(iterations):
        if callable(loop):
            loop(made)
            continue
        forward = range(len(made.layers))
        for order, program in zip((forward, forward[::-1]), loop, strict=True):
            for index in order:
                made.play(index, program)
    return made.steps


def _check_columns(workload: Workload) -> None:
    """InputError at a row that the graph would say wrong: it knows no groups of ranks, and no gathered totals."""
    totals = {CollectiveKind.ALL_GATHER} if workload.dialect == "simai" else set()
    for layer in workload.layers:
        for phase in layer.phases:
            if phase.group is not Group.LOOP or phase.collective in totals:
                what = "a gathered total" if phase.group is Group.LOOP else "groups of ranks"
                message, found = f"Chakra's graph cannot say {what}", repr(SPELLINGS[phase.collective, phase.group])
                expected, hint = "sizes of what each of all ranks gives", "--native writes the loop itself"
                raise InputError.at(layer.location, message, expected=expected, found=found, hint=hint)


def encode(made: Sequence[TextNode], *, first_id: int = 0, compat: bool = False, source: str = "") -> bytes:
    """A rank's file. With `compat` exactly Chakra's: the input text as metadata and no is_cpu_op attribute."""
    head = writer.metadata("", schema="1.0.2-chakra.1.0.0", input_file=source) if compat else writer.metadata()
    nodes = []
    for number, (name, waits, micros, collective) in enumerate(made, first_id):
        kind = NodeKind.COLLECTIVE if collective else NodeKind.COMPUTE
        attributes = collective
        if not compat:  # the column's number is in ns; other readers take the absence of is_cpu_op for true
            attributes = {"is_cpu_op": False, **(collective or {"duration_ns": micros})}
        deps = [first_id + dep for dep in waits]
        nodes.append(writer.node(number, name, kind, data_deps=deps, duration_micros=micros, attributes=attributes))
    return writer.encode(head, nodes)
