"""The node level's files: one CSV of rows and one of the graph per node and step, as the peer writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.errors import InputError
from simcore.files import write_text
from simcore.generate.wse.operations import Operation

__all__ = ["GRAPH_HEADER", "HEADER", "claim", "dimensions", "graph_row", "row", "write_lines"]

HEADER = "uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);comm. group;Dimensions"
GRAPH_HEADER = "uid;Op Type;Inputs;Outputs;Attributes"
Numbers = tuple[Any, ...]


@lru_cache(maxsize=1 << 16)
def _list(numbers: Numbers) -> str:
    return str(list(numbers))


def _linear(shape: Numbers) -> str:
    rows, inner, outer = shape
    return f"[{rows}, {inner}] x [{inner}, {outer}] -> [{rows}, {outer}]"


def _grouped(shape: Numbers) -> str:
    groups, rows, inner, outer = shape
    return f"[{groups}, {rows}, {inner}] x [{groups}, {inner}, {outer}] -> [{groups}, {rows}, {outer}]"


def _absorbed(shape: Numbers) -> str:
    """The peer shows one query per sequence, with speculative decoding too."""
    batch, heads, cached, latent, rope, _ = shape
    vectors = f"[{batch}, 1, {heads}, {latent}]"
    return f"Q: {vectors}, KV: [{batch}, {cached}, {latent}], PE: [{batch}, {cached}, {rope}] -> {vectors}"


def _naive(shape: Numbers) -> str:
    batch, queries, heads, key, scored, value = shape
    return (
        f"Q: [{batch}, {queries}, {heads}, {key}], K: [{batch}, {scored}, {heads}, {key}], "
        f"V: [{batch}, {scored}, {heads}, {value}] -> [{batch}, {queries}, {heads}, {value}]"
    )


def _grouped_query(shape: Numbers) -> str:
    batch, shown, heads, width, scored, kv_heads, _ = shape
    vectors, cache = f"[{batch}, {shown}, {heads}, {width}]", f"[{batch}, {scored}, {kv_heads}, {width}]"
    return f"Q: {vectors}, K: {cache}, V: {cache} -> {vectors}"


def _transpose(shape: Numbers) -> str:
    axes, dims = shape
    turned = list(dims)
    turned[axes[0]], turned[axes[1]] = turned[axes[1]], turned[axes[0]]
    return f"{_list(axes)} -> {_list(dims)} -> {turned}"


# Kind of operation -> the text of its Dimensions column.
DIMENSIONS: dict[str, Callable[[Numbers], str]] = {
    "Linear": _linear,
    "GroupedLinear": _grouped,
    "MLAAbsorbAttention": _absorbed,
    "MLANaiveAttention": _naive,
    "SelfAttention": _grouped_query,
    "Transpose": _transpose,
    "View": lambda shape: f"{_list(shape[0])} -> {_list(shape[1])}",
    "Split": lambda shape: f"{shape[0]} -> {_list(shape[1])} -> {_list(shape[2])}",
    "Slice": lambda shape: f"{_list(shape[0])} -> {shape[1]} -> {shape[2]}:{shape[3]}",
    "Concat": lambda shape: f"{shape[0]} -> {_list(shape[1])} -> {_list(shape[2])}",
    "Sum": lambda shape: f"{_list(shape[0])} -> {shape[1]} -> {_list(shape[2])}",
    "AlltoAll": lambda shape: " -> ".join(map(_list, shape)),
    "Barrier": lambda _: "N/A",
}


def dimensions(operation: Operation) -> str:
    """The text of the Dimensions column."""
    return DIMENSIONS.get(operation.kind, _list)(operation.shape)


def row(operation: Operation) -> str:
    """One line of a node's CSV."""
    uid, kind, shape, _, _, macs, memory, hbm, network, group, _ = operation
    if kind == "Slice":  # nine rows of ten
        return f"{uid};Slice;0;0;0;0;N/A;{_list(shape[0])} -> {shape[1]} -> {shape[2]}:{shape[3]}"
    members = _list(group) if group is not None else "N/A"
    if kind == "Unicast":
        members = members.strip("[]")
    return f"{uid};{kind};{memory};{macs};{hbm};{network};{members};{dimensions(operation)}"


def graph_row(operation: Operation) -> str:
    """One line of a node's graph: tensors are named "node:uid"."""
    inputs, outputs = ", ".join(operation.inputs), ", ".join(operation.outputs)
    return f"{operation.uid};{operation.kind};[{inputs}];[{outputs}];{dimensions(operation)}"


def claim(path: Path, *, force: bool = False) -> None:
    """Make the folders of a file; InputError when it exists and `force` is not given, or they cannot be made."""
    try:
        if path.exists() and not force:
            raise InputError.at(str(path), "the file exists already", hint="--force overwrites it")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(path.parent), f"cannot be made: {error.strerror or error}") from error


def write_lines(path: Path, lines: Iterable[str], *, force: bool = False) -> None:
    """Write a text file with its folders; InputError as `claim`, or when its place cannot be written."""
    claim(path, force=force)
    write_text(path, "\n".join(lines) + "\n")
