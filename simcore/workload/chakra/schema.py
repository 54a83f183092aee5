"""Chakra's protobuf messages as tables, and message classes made from them at run time (no generated file).

Source: et_def.proto of mlcommons/chakra ("0.0.4", package ChakraProtoMsg; storage since May 2026) and, for the older
layouts, its history.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any

from simcore.library import table
from simcore.workload.chakra import wire

_STEMS = "INVALID METADATA MEM_LOAD MEM_STORE COMP COMM_SEND COMM_RECV COMM_COLL STORAGE BATCH CHECKPOINT"
NODE_TYPES = [f"{stem}_NODE" for stem in _STEMS.split()]
"""What today's schema calls each `NodeKind`."""

CommType = IntEnum(
    "CommType",
    "ALL_REDUCE REDUCE ALL_GATHER GATHER SCATTER BROADCAST ALL_TO_ALL REDUCE_SCATTER REDUCE_SCATTER_BLOCK BARRIER",
    start=0,
)
"""Collectives of today's schema (attribute `comm_type`)."""


# Kind of an attribute's value -> number of its scalar field in AttributeProto; its list is the next number.
_KINDS = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes"
ATTRIBUTE_KINDS = {kind: number for number, kind in zip(range(3, 33, 2), _KINDS.split(), strict=True)}

ATTRIBUTES = {name: kind for kind, names in table(__file__, "attributes.txt") for name in names.split()}
"""Attribute -> kind of its value."""

Schema = dict[str, str]
"""Message -> its fields, "number name kind" separated by commas; `*` = repeated, `?` = in the oneof `value`."""

_ONEOF = ", ".join(
    f"{number} {kind}_val {kind}?, {number + 1} {kind}_list {kind.title()}List?"
    for kind, number in ATTRIBUTE_KINDS.items()
)
SCHEMAS: dict[str, Schema] = defaultdict(dict)
for _version, _message, _fields in table(__file__, "schemas.txt", 3):
    SCHEMAS[_version][_message] = _fields
CURRENT: Schema = {
    **{f"{kind.title()}List": f"1 values {kind}*" for kind in ATTRIBUTE_KINDS},
    **SCHEMAS["current"],
    "AttributeProto": f"{SCHEMAS['current']['AttributeProto']}, {_ONEOF}",
}
_STORAGE = {name: (prefix, values) for name, prefix, values in table(__file__, "storage.txt", 3)}

REPEATED = -2
_WIRES = dict.fromkeys(("double", "fixed64", "sfixed64"), wire.FIXED64)
_WIRES |= dict.fromkeys(("float", "fixed32", "sfixed32"), wire.FIXED32)


@cache
def wires(message: str) -> dict[int, tuple[str, int]]:
    """Number -> name and wire type of each field of today's `message`; REPEATED = numbers, packed or one by one."""
    found = {}
    for number, name, kind in (field.split() for field in CURRENT[message].split(", ")):
        base = kind.rstrip("*?")
        is_bytes = base in {"string", "bytes", *CURRENT}
        usual = REPEATED if kind.endswith("*") else wire.VARINT
        found[int(number)] = name, wire.LENGTH if is_bytes else _WIRES.get(base, usual)
    return found


@cache
def messages(version: str = "") -> dict[str, Any]:
    """Message classes by name: those of today's schema, or of an older one."""
    if version:
        return _build(f"chakra_{re.sub('[.-]', '_', version)}", "proto2", SCHEMAS[version], {})
    enums = {"NodeType": {name: number for number, name in enumerate(NODE_TYPES)}} | {
        name: {f"{prefix}_{value}": number for number, value in enumerate(values.split()) if value != "-"}
        for name, (prefix, values) in _STORAGE.items()
    }
    return _build("chakra_current", "proto3", CURRENT, enums)


def parsed(data: bytes) -> Iterator[Any]:
    """The messages of a file of today's schema: metadata, then nodes."""
    starts, ends = wire.frames(data)
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        yield messages()["Node" if index else "GlobalMetadata"].FromString(data[start:end])


def is_known(message: Any) -> bool:
    """Whether a schema has all fields of a message; those it has not are taken out of it."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == size)


def _build(package: str, syntax: str, schema: Schema, enums: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Message classes of a schema; `package` must be used once."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for value_name, number in values.items():
            enum.value.add(name=value_name, number=number)
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for place, label, kind in map(str.split, fields.split(", ")):
            base = kind.rstrip("*?")
            field = message.field.add(name=label, number=int(place), label=3 if kind.endswith("*") else 1)
            if base[0].isupper():
                field.type_name = f".{package}.{base}"
                field.type = field.TYPE_ENUM if base in enums else field.TYPE_MESSAGE
            else:
                field.type = getattr(field, f"TYPE_{base.upper()}")
            if kind.endswith("?"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in schema}
