"""Traces as JSON: protobuf's own form of every message, the flat form that Chakra's C++ feeder reads, and PARAM's.

The first is `{"meta": {...}, "nodes": [...]}`, or these objects one behind the other as `chakra_jsonizer` writes them,
and keeps every attribute with its kind; the second is
`{"workload_graph": [{"Id", "Name", "NodeType", "ctrlDeps", "data_deps", "runtime", "is_cpu_op", ...}]}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from simcore.documents import read_json
from simcore.errors import InputError, Location, closest
from simcore.peers import HEAD, refuse_foreign
from simcore.places import Source, Steps, fitted, refuse
from simcore.workload.chakra import writer
from simcore.workload.chakra.param_form import from_param, is_param
from simcore.workload.chakra.schema import ATTRIBUTES, CommType, is_known, messages, parsed
from simcore.workload.model import NodeKind

# Key of the feeder's form, folded (lower case, no underscores) -> field or attribute of a node.
FIELDS = {"id": "id", "name": "name", "nodetype": "type", "ctrldeps": "ctrl_deps", "datadeps": "data_deps"}
FIELDS |= {"runtime": "duration_micros", "durationmicros": "duration_micros"}
FIELDS |= {name.replace("_", ""): name for name in ATTRIBUTES}


# A brace is also the length of a message of 123 bytes, a bracket that of one of 91: what stands behind tells.
_BEGINS = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*("[^"]*"\s*:|\})|\[\s*[\]{])')


# Where one object of `to_jsonizer` ends and the next begins; no other brace stands first in a line.
_BETWEEN = re.compile(rb"(?m)(?:(?<=^\})|(?<=^\{\}))(?=\{)")


def is_json(data: bytes) -> bool:
    """Whether a file is a JSON object, or a list of them."""
    return bool(_BEGINS.match(data))


def to_jsonizer(data: bytes) -> str:
    """The text of `chakra_jsonizer`: one JSON object a message, put together without anything between."""
    from google.protobuf.json_format import MessageToJson

    return "".join(map(MessageToJson, parsed(data)))


def to_json(data: bytes, path: str = "") -> str:
    """A file of today's schema as JSON; whole numbers of 64 bits are strings, as protobuf prescribes.

    InputError where it has fields that the schema has not, which JSON could not name.
    """
    from google.protobuf.json_format import MessageToDict

    found = list(parsed(data))
    unknown = [index for index, message in enumerate(found) if not is_known(message)]
    if unknown:
        more = f", nor of {len(unknown) - 1} others" * (len(unknown) > 1)
        text, hint = f"not all fields of message {unknown[0]}{more} are in Chakra's schema", "a target .et keeps them"
        raise InputError.at(path, text, expected="fields that JSON can name", hint=hint)
    head, *nodes = (MessageToDict(message, preserving_proto_field_name=True) for message in found)
    return json.dumps({"meta": head, "nodes": nodes}, indent=1, sort_keys=True) + "\n"


def from_json(data: bytes, path: str) -> bytes:
    """Any JSON form as a file of today's schema; InputError has the place of the value that does not fit."""
    head, *nodes = _BETWEEN.split(data)
    if nodes:
        data = b'{"meta":%b,"nodes":[%b]}' % (head, b",".join(nodes))
    document, source = read_json(data, path), (data, path)
    if not (is_param(document) if isinstance(document, list) else "workload_graph" in document or _is_own(document)):
        refuse_foreign(data[:HEAD].decode("latin-1"), path)
        expected = 'an object with "nodes" or "workload_graph", or a list of PARAM\'s'
        raise InputError.at(Location(path, 1, 1), "this JSON is no execution trace", expected=expected)
    if isinstance(document, list):
        return from_param(document, source)
    if "workload_graph" in document:
        # The feeder's files come from PyTorch's, so control dependencies are callers.
        head, expected = writer.metadata(schema="feeder-json"), "a node of the feeder's JSON form"
        listed = _listed(document, "workload_graph", source)
        return writer.encode(head, [fitted(_feeder_node, node, source, steps, expected) for steps, node in listed])
    head = _parsed("GlobalMetadata", document.get("meta", {}), source, ("meta",))
    return writer.encode(head, [_parsed("Node", node, source, at) for at, node in _listed(document, "nodes", source)])


def _is_own(document: Mapping[str, Any]) -> bool:
    """Whether this is protobuf's form; many other documents have nodes, too."""
    return "nodes" in document and ("meta" in document or len(document) == 1)


def _listed(document: Mapping[str, Any], key: str, source: Source) -> list[tuple[Steps, Any]]:
    if not isinstance(document[key], list):
        refuse(source, (key,), TypeError("must be a list"), "a list of nodes")
    return [((key, index), node) for index, node in enumerate(document[key])]


def _parsed(kind: str, value: object, source: Source, steps: Steps) -> Any:
    from google.protobuf.json_format import ParseDict, ParseError

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError("this is no object")
        try:
            return ParseDict(value, messages()[kind]())
        except ParseError as error:  # after the names of the fields on the way, which the place tells
            raise ValueError(re.sub(r"Failed to parse \w+ field: |\n.*", "", str(error)).rstrip(".")) from error

    # Of names that are half a character the library raises SystemError.
    return fitted(read, value, source, steps, f"protobuf JSON of a Chakra {kind}", SystemError, RecursionError)


def _feeder_node(node: Mapping[str, Any]) -> Any:
    """A node of the feeder's form; each value is put in when it is looked at."""
    made, said = messages()["Node"](), dict[str, Any]()
    for key in node:
        name = FIELDS.get(key.replace("_", "").lower())
        if name is None:
            raise ValueError(f"unknown key {key!r}, {closest(key.lower(), FIELDS)}")
        said[name] = value = node[key]
        if name.endswith("_deps"):
            for number in value:
                getattr(made, name).append(number)
        elif name in ATTRIBUTES:
            by_name = name == "comm_type" and isinstance(value, str)
            writer.add_attribute(made, name, _collective(value) if by_name else value, ATTRIBUTES[name])
        else:
            setattr(made, name, int(NodeKind(value)) if name == "type" else value)
    if missing := {"id", "type"} - set(said):
        raise KeyError(min(missing))
    made.duration_micros = made.duration_micros or round(said.get("duration_ns", 0) / 1000)
    return made


def _collective(name: str) -> int:
    if name not in CommType.__members__:
        raise ValueError(f"no such collective, {closest(name, CommType.__members__)}")
    return CommType[name]
