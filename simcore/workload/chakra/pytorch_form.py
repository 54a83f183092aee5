"""PyTorch's execution traces of the host: which operations ran, of every schema.

Schemas 1.0.1 (flat keys) and 1.0.2-chakra.0.0.4 to 1.1.1 and later, and files that `chakra_trace_link` joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from simcore.documents import read_json
from simcore.errors import InputError
from simcore.places import fitted

PARTS = ("values", "shapes", "types")
FLAT_ATTRIBUTES = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")


class Op(Struct):
    """One operation; times in ns, -1 = not measured. `category` is Kineto's for device operations, '' on the host."""

    number: int
    name: str
    parent: int
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    attributes: dict[str, Any]
    duration_ns: int = 0
    start_ns: int = -1
    category: str = ""
    stream: int = 0
    waits_for: list[int] = []
    group: str = ""

    @property
    def on_device(self) -> bool:
        """Whether this runs on a stream of the device."""
        return bool(self.category)

    def typed_inputs(self) -> Iterator[tuple[Any, str]]:
        """Value and type of every input."""
        return zip(self.inputs.get("values") or (), map(str, self.inputs.get("types") or ()), strict=False)

    def tensors(self) -> Iterator[tuple[str, list[Any]]]:
        """Element type and tensors [id, storage, offset, elements, bytes each, device] of each input that has any."""
        for value, kind in self.typed_inputs():
            if inner := re.match(r"(GenericList\[)?Tensor\(([^)]*)\)", kind):
                tensors = value if inner[1] else [value]
                yield inner[2], [one for one in tensors if isinstance(one, list) and len(one) > 4]


def is_host_trace(data: bytes) -> bool:
    """Whether a file is PyTorch's JSON execution trace."""
    return bool(re.match(rb'\s*\{[\s\S]{,4096}?"schema"\s*:', data)) and b'"nodes"' in data


def parse_host(content: bytes, path: str) -> tuple[dict[str, Any], list[Op]]:
    """Header and operations of a host trace of any schema; `path` is for messages."""
    document = read_json(content, path, "a PyTorch execution trace")
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise InputError.at(path, "no PyTorch execution trace", expected="an object with a list 'nodes'")
    expected = "a node of PyTorch's trace"
    ops = [fitted(_op, node, (content, path), ("nodes", index), expected) for index, node in enumerate(nodes)]
    if len({op.number for op in ops}) < len(ops):
        raise InputError.at(path, "two operations have one id", expected="one operation per id")
    return {key: value for key, value in document.items() if key != "nodes"}, ops


def _op(node: Mapping[str, Any]) -> Op:
    """A node of schema 1.0.1 (without `attrs`) or of those since 1.0.2, with what `chakra_trace_link` adds: durations,
    the stream of device operations, waits between host threads.
    """
    sides = ("inputs", "outputs")
    if "attrs" in node:
        attributes = {attribute["name"]: attribute["value"] for attribute in node["attrs"]}
        inputs, outputs = (node[side] for side in sides)
        parent = int(node["ctrl_deps"])
    else:
        attributes = {name: node[name] for name in FLAT_ATTRIBUTES if name in node}
        parts = [(side, f"{side[:-1]}_shapes", f"{side[:-1]}_types") for side in sides]
        inputs, outputs = (dict(zip(PARTS, map(node.__getitem__, each), strict=True)) for each in parts)
        parent = int(node["parent"])
    op = Op(int(node["id"]), str(node["name"]), parent, inputs, outputs, attributes)
    op.duration_ns = round(1000 * float(node.get("exclusive_dur") or 0))
    op.start_ns = round(1000 * float(node["ts"])) if "ts" in node else -1
    op.category, op.stream = str(node.get("cat", "")), int(node.get("stream") or 0)
    if node.get("inter_thread_dep") is not None and not op.on_device:
        op.waits_for.append(int(node["inter_thread_dep"]))
    op.waits_for += [int(number) for number in node.get("sync_dep") or ()]
    op.group = str(node.get("pg_name", attributes.get("pg_name", "")))
    return op
