"""The node level's files: one CSV of rows and one of the graph per node and step, as the peer writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.files import make_folder, write_text
from simcore.generate.wse.operations import Operation
from simcore.workload.chakra.writer import check_free

HEADER = "uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);comm. group;Dimensions"
GRAPH_HEADER = "uid;Op Type;Inputs;Outputs;Attributes"
Numbers = tuple[Any, ...]


@lru_cache(maxsize=1 << 16)
def _list(numbers: Numbers) -> str:
    return str(list(numbers))


def _transpose(shape: Numbers) -> str:
    axes, dims = shape
    turned = list(dims)
    turned[axes[0]], turned[axes[1]] = turned[axes[1]], turned[axes[0]]
    return f"{_list(axes)} -> {_list(dims)} -> {turned}"


# Kind of operation -> the text of its Dimensions column, a template or what makes it. The peer shows one query per
# sequence of absorbed attention, with speculative decoding too.
DIMENSIONS: dict[str, str | Callable[[Numbers], str]] = {
    "Linear": "[{0}, {1}] x [{1}, {2}] -> [{0}, {2}]",
    "GroupedLinear": "[{0}, {1}, {2}] x [{0}, {2}, {3}] -> [{0}, {1}, {3}]",
    "MLAAbsorbAttention": "Q: [{0}, 1, {1}, {3}], KV: [{0}, {2}, {3}], PE: [{0}, {2}, {4}] -> [{0}, 1, {1}, {3}]",
    "MLANaiveAttention": "Q: [{0}, {1}, {2}, {3}], K: [{0}, {4}, {2}, {3}], V: [{0}, {4}, {2}, {5}] "
    "-> [{0}, {1}, {2}, {5}]",
    "SelfAttention": "Q: [{0}, {1}, {2}, {3}], K: [{0}, {4}, {5}, {3}], V: [{0}, {4}, {5}, {3}] "
    "-> [{0}, {1}, {2}, {3}]",
    "Transpose": _transpose,
    "View": lambda shape: f"{_list(shape[0])} -> {_list(shape[1])}",
    "Split": lambda shape: f"{shape[0]} -> {_list(shape[1])} -> {_list(shape[2])}",
    "Slice": lambda shape: f"{_list(shape[0])} -> {shape[1]} -> {shape[2]}:{shape[3]}",
    "Concat": lambda shape: f"{shape[0]} -> {_list(shape[1])} -> {_list(shape[2])}",
    "Sum": lambda shape: f"{_list(shape[0])} -> {shape[1]} -> {_list(shape[2])}",
    "AlltoAll": lambda shape: " -> ".join(map(_list, shape)),
    "Barrier": "N/A",
}


def dimensions(operation: Operation) -> str:
    """The text of the Dimensions column."""
    made = DIMENSIONS.get(operation.kind, _list)
    return made.format(*operation.shape) if isinstance(made, str) else made(operation.shape)


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
    make_folder(path.parent, force=True)
    check_free([path], force=force)


def write_lines(path: Path, lines: Iterable[str], *, force: bool = False) -> None:
    """Write a text file with its folders; InputError as `claim`, or when its place cannot be written."""
    claim(path, force=force)
    write_text(path, "\n".join(lines) + "\n")
