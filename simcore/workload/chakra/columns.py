"""Node messages of today's schema into columns, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simcore.workload.chakra import wire
from simcore.workload.chakra.schema import ATTRIBUTE_KINDS, ATTRIBUTES, REPEATED, wires
from simcore.workload.chakra.wire import Bytes, Fields, Integers, Unsigned, WireError

MISSING = int(np.iinfo(np.int64).min)
"""Value of an integer attribute that a node does not have."""

# Texts are kept as a number that stands for their bytes: attribute -> field of its value, and what it is.
TEXTS = {
    "pg_name": (ATTRIBUTE_KINDS["string"], "a string"),
    "involved_dim": (ATTRIBUTE_KINDS["bool"] + 1, "a list of truth values"),
}
CHUNK = 1 << 16  # messages decoded together: keeps the work in the cache and the memory small

_ANY = -1  # wire type of a field that is not known
_INTEGER_KINDS = [
    number for kind, number in ATTRIBUTE_KINDS.items() if kind not in {"double", "float", "string", "bytes"}
]


@dataclass(frozen=True, slots=True)
class Columns:
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


class _Texts:
    """Numbers for distinct byte strings, in order of first use."""

    def __init__(self) -> None:
        self.index: dict[bytes, int] = {}

    def __call__(self, data: bytes, starts: Integers, lengths: Unsigned) -> list[int]:
        index = self.index
        return [
            index.setdefault(data[start : start + length], len(index))
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]


def decode(data: bytes, starts: Integers, ends: Integers) -> Columns:
    """The nodes between `starts` and `ends`; WireError (row = position among them) at the first fault."""
    buffer = np.frombuffer(data + wire.PADDING, np.uint8)
    texts = _Texts()
    names: dict[bytes, str] = {}
    parts: list[Columns] = []
    for first in range(0, max(len(starts), 1), CHUNK):
        try:
            part = _chunk(data, buffer, starts[first : first + CHUNK], ends[first : first + CHUNK], texts, names)
        except WireError as error:
            error.row += first
            raise
        parts.append(part)
    return _join(parts, list(texts.index))


def decode_metadata(data: bytes, start: int, end: int) -> dict[str, str]:
    """Version and text attributes of the first message, checked for its structure."""
    data = data[:end]
    buffer = np.frombuffer(data + wire.PADDING, np.uint8)
    found = {}
    for field in _checked(buffer, np.array([start]), np.array([end]), "GlobalMetadata"):
        at, length = int(field.start[0]), int(field.value[0])
        if field.number[0] == 1:
            found["version"] = _text(data, 0, at, length)
        elif field.number[0] == 2:
            parts = _checked(buffer, np.array([at]), np.array([at + length]), "AttributeProto")
            texts = {int(part.number[0]): (int(part.start[0]), int(part.value[0])) for part in parts}
            if 1 in texts and ATTRIBUTE_KINDS["string"] in texts:  # a name, and a string
                found[_text(data, 0, *texts[1])] = _text(data, 0, *texts[ATTRIBUTE_KINDS["string"]])
    return found


def _chunk(
    data: bytes, buffer: Bytes, starts: Integers, ends: Integers, texts: _Texts, names: dict[bytes, str]
) -> Columns:
    count = len(starts)
    numbers = {1: np.zeros(count, np.int64), 3: np.zeros(count, np.int64), 7: np.zeros(count, np.int64)}
    name_of: list[str] = [""] * count
    attributes, control, waits, inputs = [], [], [], []
    for found in _checked(buffer, starts, ends, "Node"):
        for number, column in numbers.items():
            mask = found.number == number
            column[found.row[mask]] = found.value[mask].view(np.int64)
        named = found.where(found.number == 2)
        for row, start, length in zip(named.row.tolist(), named.start.tolist(), named.value.tolist(), strict=True):
            raw = data[start : start + length]
            if raw not in names:  # equal names are one object
                names[raw] = _text(data, row, start, length)
            name_of[row] = names[raw]
        control.append(wire.repeated(buffer, found.where(found.number == 4)))
        waits.append(wire.repeated(buffer, found.where(found.number == 5)))
        inputs.append(found.where(found.number == 8))
        attributes.append(found.where(found.number == 10))
    return Columns(
        start=starts,
        node_id=numbers[1],
        kind=numbers[3],
        duration_micros=numbers[7],
        names=name_of,
        attributes=_attributes(data, buffer, attributes, count, texts),
        texts=[],
        control=_pairs(control),
        data=_pairs(waits),
        inputs=_metadata_inputs(data, buffer, inputs, numbers[3]),
    )


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


def _text(data: bytes, row: int, start: int, length: int) -> str:
    try:
        return data[start : start + length].decode()
    except UnicodeDecodeError as error:
        at = start + error.start
        raise WireError(row, at, "a text is not UTF-8", found=f"byte {data[at]:#04x}") from error


def _pairs(parts: list[tuple[Integers, Unsigned]]) -> tuple[Integers, Integers]:
    """Row and id of all dependencies."""
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([row for row, _ in parts]), np.concatenate([value for _, value in parts]).view(np.int64)


def _attributes(data: bytes, buffer: Bytes, parts: list[Fields], count: int, texts: _Texts) -> dict[str, Integers]:
    """Columns of the attributes we know; where a node has one twice, the last counts."""
    columns = {name: np.full(count, MISSING) for name in ATTRIBUTES}
    if not parts:
        return columns
    owner = np.concatenate([part.row for part in parts])
    start = np.concatenate([part.start for part in parts])
    end = start + np.concatenate([part.value for part in parts]).astype(np.int64)
    try:
        name, kind, value, at = _name_and_value(buffer, start, end)
    except WireError as error:
        error.row = int(owner[error.row])
        raise
    for key, column in columns.items():
        rows = _called(buffer, name, key.encode())
        rows = rows[kind[rows] > 0]
        # What we use must be an integer of any width, or the text or list it is defined as.
        wanted, what = TEXTS.get(key, (_INTEGER_KINDS, "an integer"))
        for first in rows[~np.isin(kind[rows], wanted)][:1].tolist():
            found = f"field {kind[first]} of the attribute's value"
            raise WireError(int(owner[first]), int(start[first]), f"attribute {key} is not {what}", what, found)
        if key in TEXTS:
            column[owner[rows]] = texts(data, at[rows], value[rows])
        else:
            column[owner[rows]] = _integers(kind[rows], value[rows])
    return columns


def _name_and_value(
    buffer: Bytes, start: Integers, end: Integers
) -> tuple[tuple[Integers, Integers], Integers, Unsigned, Integers]:
    """Name (start, length), number of the value's field, value and start of its bytes of every attribute."""
    name_start, name_length, kind, at = (np.zeros(len(start), np.int64) for _ in range(4))
    value = np.zeros(len(start), np.uint64)
    for found in _checked(buffer, start, end, "AttributeProto"):
        named = found.where(found.number == 1)
        name_start[named.row], name_length[named.row] = named.start, named.value.astype(np.int64)
        valued = found.where(found.number > 2)
        kind[valued.row], value[valued.row], at[valued.row] = valued.number, valued.value, valued.start
    return (name_start, name_length), kind, value, at


def _called(buffer: Bytes, name: tuple[Integers, Integers], wanted: bytes) -> Integers:
    """Rows of the attributes called `wanted`."""
    start, length = name
    rows = np.flatnonzero(length == len(wanted))
    for position, octet in enumerate(wanted):
        rows = rows[buffer[start[rows] + position] == octet]
    return rows


def _integers(kind: Integers, value: Unsigned) -> Integers:
    """Signed numbers from what stands on the wire, by the kind of field."""
    number = value.view(np.int64)
    zigzag = (kind == ATTRIBUTE_KINDS["sint32"]) | (kind == ATTRIBUTE_KINDS["sint64"])
    number = np.where(zigzag, (value >> np.uint64(1)).view(np.int64) ^ -(number & 1), number)
    signed: Integers = np.where(kind == ATTRIBUTE_KINDS["sfixed32"], value.astype(np.uint32).view(np.int32), number)
    return signed


def _metadata_inputs(data: bytes, buffer: Bytes, parts: list[Fields], kind: Integers) -> list[tuple[int, str]]:
    """Row and `inputs.values` of the METADATA nodes."""
    found = []
    for part in parts:
        chosen = part.where(kind[part.row] == 1)
        for row, start, length in zip(chosen.row.tolist(), chosen.start.tolist(), chosen.value.tolist(), strict=True):
            found += [
                (row, _text(data, row, int(field.start[0]), int(field.value[0])))
                for field in wire.fields(buffer, np.array([start]), np.array([start + length]))
                if field.number[0] == 1 and field.wire[0] == wire.LENGTH
            ]
    return found


def _join(parts: list[Columns], texts: list[bytes]) -> Columns:
    """One set of columns for the whole file."""
    base = np.cumsum([0] + [len(part.start) for part in parts]).tolist()

    def shifted(pairs: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
        rows = [row + first for first, (row, _) in zip(base, pairs, strict=False)]
        return np.concatenate(rows), np.concatenate([value for _, value in pairs])

    plain = ("start", "node_id", "kind", "duration_micros")
    return Columns(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in plain},
        names=[name for part in parts for name in part.names],
        attributes={key: np.concatenate([part.attributes[key] for part in parts]) for key in parts[0].attributes},
        texts=texts,
        control=shifted([part.control for part in parts]),
        data=shifted([part.data for part in parts]),
        inputs=[(row + first, text) for first, part in zip(base, parts, strict=False) for row, text in part.inputs],
    )
