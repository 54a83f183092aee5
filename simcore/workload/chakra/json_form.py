"""Traces as JSON: protobuf's own form of every message, the flat form that Chakra's C++ feeder reads, and PARAM's.

The first is `{"meta": {...}, "nodes": [...]}` and keeps every attribute with its kind; the second is
`{"workload_graph": [{"Id", "Name", "NodeType", "ctrlDeps", "data_deps", "runtime", "is_cpu_op", ...}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simcore.documents import element, entry, read_json
from simcore.errors import InputError, closest
from simcore.workload.chakra import writer
from simcore.workload.chakra.param_form import from_param, is_param
from simcore.workload.chakra.schema import ATTRIBUTES, CommType, messages, parsed
from simcore.workload.model import NodeKind

# Key of the feeder's form, folded (lower case, no underscores) -> attribute.
FEEDER_ATTRIBUTES = {name.replace("_", ""): name for name in ATTRIBUTES}
FEEDER_KEYS = {"id", "name", "nodetype", "ctrldeps", "datadeps", "runtime", "durationmicros"} | set(FEEDER_ATTRIBUTES)


def is_json(data: bytes) -> bool:
    """Whether a file is one of the JSON forms (a brace is also the length of a message of 123 bytes)."""
    if not data[:64].lstrip().startswith(b"{"):
        return is_param(data)
    return b'"workload_graph"' in data or (b'"meta"' in data and b'"nodes"' in data)


def to_jsonizer(data: bytes) -> str:
    """The text of `chakra_jsonizer`: one JSON object a message, put together without anything between."""
    from google.protobuf.json_format import MessageToJson

    return "".join(map(MessageToJson, parsed(data)))


def to_json(data: bytes) -> str:
    """A file of today's schema as JSON; whole numbers of 64 bits are strings, as protobuf prescribes."""
    from google.protobuf.json_format import MessageToDict

    head, *nodes = (MessageToDict(message, preserving_proto_field_name=True) for message in parsed(data))
    return json.dumps({"meta": head, "nodes": nodes}, indent=1, sort_keys=True) + "\n"


def from_json(data: bytes, path: str) -> bytes:
    """Any JSON form as a file of today's schema; InputError names the node that does not fit."""
    document = read_json(data, path)
    if isinstance(document, list):
        return from_param(document, path, data)
    if "workload_graph" in document:
        # The feeder's files come from PyTorch's, so control dependencies are callers.
        listed = enumerate(_listed(document, "workload_graph", path))
        return writer.encode(
            writer.metadata(schema="feeder-json"), [_feeder_node(node, index, path, data) for index, node in listed]
        )
    from google.protobuf.json_format import ParseDict, ParseError

    made = []
    parts = [("meta", document.get("meta", {}), "GlobalMetadata")]
    parts += [(f"nodes[{index}]", node, "Node") for index, node in enumerate(_listed(document, "nodes", path))]
    for place, part, kind in parts:
        # Of names that are half a character the library raises SystemError.
        unfit, content = (ParseError, SystemError, RecursionError), data if kind == "Node" else b""
        with entry(path, place, f"protobuf JSON of a Chakra {kind}", *unfit, content=content):
            made.append(ParseDict(part, messages()[kind]()))
    return writer.encode(made[0], made[1:])


def _listed(document: Mapping[str, Any], key: str, path: str) -> list[Any]:
    nodes = document[key]
    if not isinstance(nodes, list):
        raise InputError.at(path, f"{key} must be a list", expected="a list of nodes", found=type(nodes).__name__)
    return nodes


def _feeder_node(node: Any, index: int, path: str, data: bytes) -> Any:
    place = f"workload_graph[{index}]"
    folded = {key.replace("_", "").lower(): value for key, value in node.items()} if isinstance(node, dict) else {}
    for key in [key for key in folded if key not in FEEDER_KEYS]:
        hint = closest(key, FEEDER_KEYS)
        where = element(data, place, path)
        raise InputError.at(where, f"{place}: unknown key '{key}'", expected=hint, found=repr(key), field=key)
    with entry(path, place, "a node of the feeder's JSON form", content=data):
        attributes = {name: folded[key] for key, name in FEEDER_ATTRIBUTES.items() if key in folded}
        if "comm_type" in attributes:  # by its number or name
            kind = attributes["comm_type"]
            attributes["comm_type"] = int(CommType[kind] if isinstance(kind, str) else kind)
        return writer.node(
            folded["id"],
            folded.get("name", ""),
            NodeKind(folded["nodetype"]),
            ctrl_deps=folded.get("ctrldeps", ()),
            data_deps=folded.get("datadeps", ()),
            duration_micros=folded.get("runtime", folded.get("durationmicros", 0)),
            attributes=attributes,
        )
