"""Micro-benchmarks: one collective on all NPUs, and the small traces of Chakra's generator."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from simcore.library import table
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import ATTRIBUTE_KINDS, NODE_TYPES, CommType
from simcore.workload.model import CollectiveKind, NodeKind


def collective(
    kind: CollectiveKind,
    size_bytes: int,
    *,
    repeat: int = 1,
    compute_ns: int = 0,
    involved: Iterable[bool] = (),
    root: int = 0,
) -> bytes:
    """A trace that every NPU runs: `repeat` collectives, each waiting for the one before and computing first.

    `size_bytes` is per rank, as the trace's `comm_size` (an all-gather's is what each rank gives). `involved` says
    which topology dimensions take part; empty = all. `root`: where broadcasts, scatters start, reduces, gathers end.
    """
    attributes: dict[str, Any] = {"is_cpu_op": False, "comm_type": int(CommType[kind.name]), "comm_size": size_bytes}
    attributes |= {"involved_dim": tuple(involved)} if involved else {}
    attributes |= {"root": root} if root else {}
    each: list[tuple[str, NodeKind, dict[str, Any]]] = [(kind.value, NodeKind.COLLECTIVE, attributes)]
    if compute_ns:
        each.insert(0, ("compute", NodeKind.COMPUTE, {"is_cpu_op": False, "duration_ns": compute_ns}))
    nodes = list[Any]()
    for at, (index, (name, node, said)) in enumerate(product(range(repeat), each)):
        deps = [at - 1] if at else []
        nodes.append(writer.node(at, f"{name}_{index}", node, data_deps=deps, attributes=said))
    return writer.encode(writer.metadata(), nodes)


SAMPLES = {name: cells for name, *cells in table(__file__, "samples.txt")}
"""The small traces of `chakra_generator`, and what their nodes are."""


def samples(npus: int) -> dict[str, list[bytes]]:
    """These traces: name -> file of every rank. Ids count on through ranks and traces, as there."""
    made: dict[str, list[bytes]] = {name: [] for name in SAMPLES}
    number = 0
    for name, (kind, *cells) in SAMPLES.items():
        for _ in range(npus):
            nodes = _every_attribute(number) if kind == "METADATA" else _nodes(number, NodeKind[kind], *cells)
            number += len(nodes)
            made[name].append(writer.encode(writer.metadata("1.0.0"), nodes))
    return made


def _nodes(number: int, kind: NodeKind, comm_type: str, size: str, count: str, waits: str) -> list[Any]:
    """Nodes called as their type, or their collective."""
    attributes: dict[str, Any] = {"is_cpu_op": False}
    if comm_type != "-":
        attributes["comm_type"] = int(CommType[comm_type])
    if size != "-":
        name, _, said = size.partition("=")
        attributes[name] = int(said)
    made: dict[str, Any] = {"duration_micros": 5 if kind == NodeKind.COMPUTE else 0, "attributes": attributes}
    name = NODE_TYPES[kind] if comm_type == "-" else comm_type
    after = [[at - 1] if waits != "-" and at > number else [] for at in range(number, number + int(count))]
    return [writer.node(at, name, kind, data_deps=deps, **made) for at, deps in enumerate(after, number)]


_SMALL, _LARGE, _TEN = (12345, 23456), (9876543210, 1234567890), [str(number) for number in range(12345, 12355)]
# A value of every kind of attribute, and a list.
_VALUES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("double", "float"), (1.2345, [1.2345, 2.3456])),
    **dict.fromkeys(("int32", "uint32", "fixed32"), (_SMALL[0], _SMALL)),
    **dict.fromkeys(("int64", "uint64", "fixed64"), (_LARGE[0], _LARGE)),
    **dict.fromkeys(("sint32", "sfixed32"), (-_SMALL[0], (_SMALL[0], -_SMALL[1]))),
    **dict.fromkeys(("sint64", "sfixed64"), (-_LARGE[0], (_LARGE[0], -_LARGE[1]))),
    "bool": (True, [True, False] * 5),
    "string": (_TEN[0], _TEN),
    "bytes": (_TEN[0].encode(), [text.encode() for text in _TEN]),
}


def _every_attribute(number: int) -> list[Any]:
    """A METADATA node with an attribute of every kind."""
    made = writer.node(number, "METADATA_NODE", NodeKind.METADATA)
    for kind in ATTRIBUTE_KINDS:
        one, several = _VALUES[kind]
        documented = "fixed" not in kind and kind != "bytes"  # these carry their name as documentation, too
        writer.add_attribute(made, kind, one, kind, kind if documented else "")
        writer.add_attribute(made, f"{kind}_list", several, f"{kind}_list")
    return [made]
