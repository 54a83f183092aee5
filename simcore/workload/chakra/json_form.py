"""Traces as JSON: protobuf's own form of every message, the flat form that Chakra's C++ feeder reads, and PARAM's.

The first is `{"meta": {...}, "nodes": [...]}` and keeps every attribute with its kind; the second is
`{"workload_graph": [{"Id", "Name", "NodeType", "ctrlDeps", "data_deps", "runtime", "is_cpu_op", ...}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simcore.errors import InputError, Location, Problem, closest
from simcore.workload.chakra import writer
from simcore.workload.chakra.param_form import from_param, is_param
from simcore.workload.chakra.schema import ATTRIBUTES, CommType, NodeType, messages, parsed

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


_UNFIT = (
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
    SystemError,
)
"""What protobuf makes of values that do not fit; SystemError of half a character."""


def from_json(data: bytes, path: str) -> bytes:
    """Any JSON form as a file of today's schema; InputError names the node that does not fit."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        raise InputError.at(Location(path, line, column), f"not well-formed JSON: {error}") from error
    if isinstance(document, list):
        return from_param(document, path)
    if "workload_graph" in document:
        return _from_feeder(document["workload_graph"], path)
    return _from_messages(document, path)


def _from_messages(document: Mapping[str, Any], path: str) -> bytes:
    from google.protobuf.json_format import ParseDict, ParseError

    made = []
    if not isinstance(document["nodes"], list):
        found = type(document["nodes"]).__name__
        raise InputError.at(path, "nodes must be a list", expected="a list of nodes", found=found)
    entries = [("meta", document.get("meta", {}), "GlobalMetadata")]
    entries += [(f"nodes[{index}]", entry, "Node") for index, entry in enumerate(document["nodes"])]
    for place, entry, kind in entries:
        try:
            made.append(ParseDict(entry, messages()[kind]()))
        except (ParseError, *_UNFIT) as error:
            text = f"{place}: {error}"
            raise InputError(Problem(Location(path), text, f"protobuf JSON of a Chakra {kind}", field=place)) from error
    return writer.encode(made[0], made[1:])


def _from_feeder(entries: Any, path: str) -> bytes:
    """The feeder's form; its files come from PyTorch's, so control dependencies are callers."""
    if not isinstance(entries, list):
        raise InputError.at(
            path, "workload_graph must be a list", expected="a list of nodes", found=type(entries).__name__
        )
    nodes = [_feeder_node(entry, index, path) for index, entry in enumerate(entries)]
    return writer.encode(writer.metadata(schema="feeder-json"), nodes)


def _feeder_node(entry: Any, index: int, path: str) -> Any:
    place = f"workload_graph[{index}]"
    folded = {key.replace("_", "").lower(): value for key, value in entry.items()} if isinstance(entry, dict) else {}
    for key in folded:
        if key not in FEEDER_KEYS:
            hint = closest(key, FEEDER_KEYS)
            raise InputError(Problem(Location(path), f"{place}: unknown key '{key}'", hint, repr(key), field=key))
    try:
        kind = NodeType(folded["nodetype"])
        attributes = {
            name: _number(value) if name == "comm_type" else value
            for key, value in folded.items()
            if (name := FEEDER_ATTRIBUTES.get(key))
        }
        return writer.node(
            folded["id"],
            folded.get("name", ""),
            kind,
            ctrl_deps=folded.get("ctrldeps", ()),
            data_deps=folded.get("datadeps", ()),
            duration_micros=folded.get("runtime", folded.get("durationmicros", 0)),
            attributes=attributes,
        )
    except (KeyError, *_UNFIT) as error:
        missing = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(Problem(Location(path), f"{place}: {missing}", "a node of the feeder's JSON form")) from error


def _number(value: Any) -> int:
    """A collective given by its number or name."""
    return int(CommType[value]) if isinstance(value, str) else int(value)
