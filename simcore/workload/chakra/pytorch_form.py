"""PyTorch's execution traces of the host: which operations ran, of every schema.

Schemas 1.0.1 (flat keys) and 1.0.2-chakra.0.0.4 to 1.1.1 and later, and files that `chakra_trace_link` joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simcore.documents import entry, read_json
from simcore.errors import InputError

FLAT_ATTRIBUTES = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")


@dataclass(slots=True)
class Op:
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
    waits_for: list[int] = field(default_factory=list)
    group: str = ""

    @property
    def on_device(self) -> bool:
        """Whether this runs on a stream of the device."""
        return bool(self.category)


def is_host_trace(data: bytes) -> bool:
    """Whether a file is PyTorch's JSON execution trace."""
    return data[:64].lstrip().startswith(b"{") and b'"schema"' in data[:4096] and b'"nodes"' in data


def parse_host(content: bytes, path: str) -> tuple[dict[str, Any], list[Op]]:
    """Header and operations of a host trace of any schema; `path` is for messages."""
    document = read_json(content, path, "a PyTorch execution trace")
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise InputError.at(path, "no PyTorch execution trace", expected="an object with a list 'nodes'")
    ops = []
    for index, node in enumerate(nodes):
        with entry(path, f"nodes[{index}]", "a node of PyTorch's trace"):
            ops.append(_linked(node, _flat(node) if "attrs" not in node else _nested(node)))
    if len({op.number for op in ops}) < len(ops):
        raise InputError.at(path, "two operations have one id", expected="one operation per id")
    return {key: value for key, value in document.items() if key != "nodes"}, ops


def _flat(node: Mapping[str, Any]) -> Op:
    """A node of schema 1.0.1."""
    sides = [
        {"values": node[side], "shapes": node[f"{side[:-1]}_shapes"], "types": node[f"{side[:-1]}_types"]}
        for side in ("inputs", "outputs")
    ]
    attributes = {name: node[name] for name in FLAT_ATTRIBUTES if name in node}
    return Op(int(node["id"]), str(node["name"]), int(node["parent"]), sides[0], sides[1], attributes)


def _nested(node: Mapping[str, Any]) -> Op:
    """A node of the schemas since 1.0.2."""
    attributes = {attribute["name"]: attribute["value"] for attribute in node["attrs"]}
    parent = int(node["ctrl_deps"])
    op = Op(int(node["id"]), str(node["name"]), parent, node["inputs"], node["outputs"], attributes)
    op.group = str(attributes.get("pg_name", ""))
    return op


def _linked(node: Mapping[str, Any], op: Op) -> Op:
    """What `chakra_trace_link` adds: durations, the stream of device operations, waits between host threads."""
    op.duration_ns = round(1000 * float(node.get("exclusive_dur") or 0))
    op.start_ns = round(1000 * float(node["ts"])) if "ts" in node else -1
    op.category, op.stream = str(node.get("cat", "")), int(node.get("stream") or 0)
    if node.get("inter_thread_dep") is not None and not op.on_device:
        op.waits_for.append(int(node["inter_thread_dep"]))
    op.waits_for += [int(number) for number in node.get("sync_dep") or ()]
    op.group = str(node.get("pg_name", op.group))
    return op
