"""The node level's files: one CSV of rows and one of the graph per node and step, as the peer writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.files import make_folder, write_text
from simcore.generate.wse.operations import Operation
from simcore.library import table
from simcore.workload.chakra.writer import check_free

HEADER = "uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);comm. group;Dimensions"
GRAPH_HEADER = "uid;Op Type;Inputs;Outputs;Attributes"
DIMENSIONS = dict(table(__file__, "dimensions.txt", 2))
Numbers = tuple[Any, ...]


@lru_cache(maxsize=1 << 16)
def _list(numbers: Numbers) -> str:
    return str(list(numbers))


def dimensions(operation: Operation) -> str:
    """The text of the Dimensions column."""
    shape = operation.shape
    if operation.kind == "Transpose":
        (first, second), dims = shape
        turned = list(dims)
        turned[first], turned[second] = dims[second], dims[first]
        shape = (*shape, tuple(turned))
    if operation.kind not in DIMENSIONS:
        return _list(shape)
    return DIMENSIONS[operation.kind].format(*(_list(each) if isinstance(each, tuple) else each for each in shape))


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
