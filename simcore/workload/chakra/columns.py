"""Node messages of today's schema into columns, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from msgspec import Struct

from simcore.workload.chakra import wire
from simcore.workload.chakra.schema import ATTRIBUTE_KINDS, ATTRIBUTES, REPEATED, wires
from simcore.workload.chakra.wire import Bytes, Fields, Integers, Unsigned, WireError
from simcore.workload.model import NodeKind

MISSING = int(np.iinfo(np.int64).min)
"""Value of an integer attribute that a node does not have."""

# Texts are kept as a number that stands for their bytes: attribute -> field of its value, and what it is.
TEXTS = {
    "pg_name": (ATTRIBUTE_KINDS["string"], "a string"),
    "involved_dim": (ATTRIBUTE_KINDS["bool"] + 1, "a list of truth values"),
}
_FURTHER = 11  # stands for all fields of a node that have no column
_ANY = -1  # wire type of a field that is not known
_INTEGER_KINDS = [
    number for kind, number in ATTRIBUTE_KINDS.items() if kind not in {"double", "float", "string", "bytes"}
]


class Columns(Struct, frozen=True):
    """Nodes in file order; `start` is the byte where a node's message begins.

    Attributes hold MISSING where absent. `texts` are the distinct values that `pg_name` and `involved_dim` index.
    Dependencies are pairs of a row and the id it waits for. `inputs` holds (row, text) of METADATA nodes' values.
    """

    start: Integers
    node_id: Integers
    kind: Integers
    duration_micros: Integers
    names: list[str]
    attributes: dict[str, Integers]
    texts: list[bytes]
    control: tuple[Integers, Integers]
    data: tuple[Integers, Integers]
    inputs: list[tuple[int, str]]


def decode(data: bytes, starts: Integers, ends: Integers) -> Columns:
    """The nodes between `starts` and `ends`; WireError (row = position among them) at the first fault."""
    buffer, count = np.frombuffer(data + wire.PADDING, np.uint8), len(starts)
    numbers, names = {number: np.zeros(count, np.int64) for number in (1, 3, 7)}, [""] * count
    parts: dict[int, list[Fields]] = {4: [], 5: [], 8: [], 10: []}
    for found in _checked(buffer, starts, ends, "Node"):
        for number in np.flatnonzero(np.bincount(np.minimum(found.number, _FURTHER))).tolist():
            some = found.where(found.number == number)
            if number in numbers:
                numbers[number][some.row] = some.value.view(np.int64)
            elif number == 2:
                for row, start, length in some.spans():
                    names[row] = _text(data, row, start, length)
            elif number in parts:
                parts[number].append(some)
    control, waits, said, given = (Fields.joined(part) for part in parts.values())
    said = said.where(numbers[3][said.row] == NodeKind.METADATA)
    inputs = [
        (int(said.row[row]), _text(data, int(said.row[row]), start, length))
        for field in _inside(buffer, said, "IOInfo")
        for row, start, length in field.where(field.number == 1).spans()
    ]
    attributes, texts = _attributes(data, buffer, given, count)
    pairs = wire.repeated(buffer, control), wire.repeated(buffer, waits)
    return Columns(starts, numbers[1], numbers[3], numbers[7], names, attributes, texts, *pairs, inputs)


def decode_metadata(data: bytes, start: int, end: int) -> dict[str, str]:
    """Version and text attributes of the first message, checked for its structure."""
    data = data[:end]
    buffer = np.frombuffer(data + wire.PADDING, np.uint8)
    found = {}
    for field in _checked(buffer, np.array([start]), np.array([end]), "GlobalMetadata"):
        if field.number[0] == 1:
            found["version"] = _text(data, *next(field.spans()))
        elif field.number[0] == 2:
            texts = {int(part.number[0]): next(part.spans()) for part in _inside(buffer, field, "AttributeProto")}
            if 1 in texts and ATTRIBUTE_KINDS["string"] in texts:  # a name, and a string
                found[_text(data, *texts[1])] = _text(data, *texts[ATTRIBUTE_KINDS["string"]])
    return found


def _checked(buffer: Bytes, starts: Integers, ends: Integers, message: str) -> Iterator[Fields]:
    """As `wire.fields`; WireError where a known field of a message has another wire type than its schema says."""
    known = wires(message)
    expected = np.full(max(known) + 2, _ANY)
    expected[list(known)] = [kind for _, kind in known.values()]
    for found in wire.fields(buffer, starts, ends):
        wanted = expected[np.minimum(found.number, len(expected) - 1)]
        repeatable = (wanted == REPEATED) & ((found.wire == wire.VARINT) | (found.wire == wire.LENGTH))
        bad = np.flatnonzero((wanted != _ANY) & (wanted != found.wire) & ~repeatable)
        if bad.size:
            first = bad[0]
            number = int(found.number[first])
            text = f"field {known[number][0]} ({number}) has the wrong wire type"
            types = (f"wire type {kind}" for kind in (max(0, int(wanted[first])), found.wire[first]))
            raise WireError(int(found.row[first]), int(found.start[first]), text, *types)
        yield found


def _inside(buffer: Bytes, outer: Fields, message: str) -> Iterator[Fields]:
    """As `_checked`, of messages that are fields of others; errors name the rows of those."""
    try:
        yield from _checked(buffer, outer.start, outer.start + outer.value.astype(np.int64), message)
    except WireError as error:
        error.row = int(outer.row[error.row])
        raise


_decoded = lru_cache(1 << 16)(bytes.decode)  # equal texts are one object; those of a rank are often those of another


def _text(data: bytes, row: int, start: int, length: int) -> str:
    try:
        return _decoded(data[start : start + length])
    except UnicodeDecodeError as error:
        at = start + error.start
        raise WireError(row, at, "a text is not UTF-8", found=f"byte {data[at]:#04x}") from error


def _attributes(data: bytes, buffer: Bytes, said: Fields, count: int) -> tuple[dict[str, Integers], list[bytes]]:
    """Columns of the attributes we know, and the texts that some index; where a node has one twice, the last counts."""
    columns, texts = {name: np.full(count, MISSING) for name in ATTRIBUTES}, dict[bytes, int]()
    name, length, kind, at = (np.zeros(len(said.row), np.int64) for _ in range(4))
    value = np.zeros(len(said.row), np.uint64)
    for found in _inside(buffer, said, "AttributeProto"):
        named, valued = found.where(found.number == 1), found.where(found.number > 2)
        name[named.row], length[named.row] = named.start, named.value.astype(np.int64)
        kind[valued.row], value[valued.row], at[valued.row] = valued.number, valued.value, valued.start
    length *= kind > 0  # of those without a value nothing is known
    numbers, whole = _integers(kind, value), np.isin(kind, _INTEGER_KINDS)
    for key, column in columns.items():
        rows = np.flatnonzero(length == len(key))
        called = np.ndarray(len(buffer) - len(wire.PADDING), f"S{len(key)}", buffer, strides=(1,))  # of all offsets
        rows = rows[called[name[rows]] == key.encode()]
        # What we use must be an integer of any width, or the text or list it is defined as.
        wanted, what = TEXTS.get(key, (0, "an integer"))
        for first in rows[kind[rows] != wanted if wanted else ~whole[rows]][:1].tolist():
            found_there = f"field {kind[first]} of the attribute's value"
            text = f"attribute {key} is not {what}"
            raise WireError(int(said.row[first]), int(said.start[first]), text, what, found_there)
        if key in TEXTS:
            spans = zip(at[rows].tolist(), value[rows].tolist(), strict=True)
            column[said.row[rows]] = [texts.setdefault(data[a : a + size], len(texts)) for a, size in spans]
        else:
            column[said.row[rows]] = numbers[rows]
    return columns, list(texts)


def _integers(kind: Integers, value: Unsigned) -> Integers:
    """Signed numbers from what stands on the wire, by the kind of field."""
    number = value.view(np.int64)
    zigzag = (kind == ATTRIBUTE_KINDS["sint32"]) | (kind == ATTRIBUTE_KINDS["sint64"])
    number = np.where(zigzag, (value >> np.uint64(1)).view(np.int64) ^ -(number & 1), number)
    signed: Integers = np.where(kind == ATTRIBUTE_KINDS["sfixed32"], value.astype(np.uint32).view(np.int32), number)
    return signed
