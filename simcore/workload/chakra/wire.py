"""The protobuf wire format of many messages at once, in NumPy columns.

A trace holds millions of small messages of the same few shapes. Their first fields are decoded together, then their
second fields, and so on: the number of Python steps is that of the fields of the longest message, not of the messages.
Every fault is found where it stands; nothing is skipped silently but unknown field numbers, as protobuf demands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from simcore.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_KNOWN = np.isin(np.arange(8), (VARINT, FIXED64, LENGTH, FIXED32))
PADDING = b"\0" * 32  # a varint that starts inside a buffer may run over its end, but never further than this

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


class WireError(Exception):
    """A message that is no protobuf: which row of the arrays, at which byte of the buffer, and why."""

    def __init__(self, row: int, offset: int, message: str, expected: str = "", found: str = ""):
        super().__init__(message)
        self.row, self.offset, self.message, self.expected, self.found = row, offset, message, expected, found

    def at(self, path: str, hint: str = "") -> InputError:
        """The error of a file, whose messages are the rows."""
        text = f"message {self.row} at byte {self.offset}: {self.message}"
        return InputError.at(path, text, expected=self.expected, found=self.found, hint=hint)


class Fields(Struct, frozen=True):
    """One field of each of several messages.

    `value` is the number of a varint or fixed field and the length of a length-delimited one, whose bytes begin at
    `start`; `row` says which message.
    """

    row: Integers
    number: Integers
    wire: Integers
    value: Unsigned
    start: Integers

    def where(self, mask: NDArray[np.bool_]) -> Fields:
        """The fields that `mask` picks."""
        if mask.all():
            return self
        return Fields(self.row[mask], self.number[mask], self.wire[mask], self.value[mask], self.start[mask])

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Row, start and length of each."""
        return zip(self.row.tolist(), self.start.tolist(), self.value.tolist(), strict=True)

    @classmethod
    def joined(cls, parts: Sequence[Fields]) -> Fields:
        """All of them, one behind the other."""
        types = dict.fromkeys(cls.__struct_fields__, np.int64) | {"value": np.uint64}
        columns = ([np.zeros(0, kind), *(getattr(part, name) for part in parts)] for name, kind in types.items())
        return cls(*map(np.concatenate, columns))


def frames(data: bytes) -> tuple[Integers, Integers]:
    """Start and end of every length-delimited message of a file; WireError when the last one is cut off."""
    starts: list[int] = []
    ends: list[int] = []
    position, size = 0, len(data)
    while position < size:
        length, start = data[position], position + 1
        if length > 127:
            length, start = length_at(data, position, len(starts))
        if start + length > size:
            found = f"{size - start} bytes to the end of the file"
            raise WireError(len(starts), position, "the file ends inside a message", f"{length} bytes", found)
        starts.append(start)
        position = start + length
        ends.append(position)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def length_at(data: bytes, position: int, row: int = 0) -> tuple[int, int]:
    """The length that stands at `position` and where its message starts."""
    length = 0
    for count, byte in enumerate(data[position : position + 10]):
        length |= (byte & 127) << 7 * count
        if byte < 128:
            return length, position + count + 1
    raise WireError(row, position, "the length of a message never ends", expected="a varint of at most 10 bytes")


def varints(buffer: Bytes, at: Integers, row: Integers) -> tuple[Unsigned, Integers]:
    """The varints that start at `at` and the positions behind them; `row` names them in errors."""
    first = buffer[at]
    value = (first & 127).astype(np.uint64)
    behind = at + 1
    more = np.flatnonzero(first > 127)
    for shift in range(7, 70, 7):
        if not more.size:
            return value, behind
        byte = buffer[behind[more]]
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[byte > 127]
    if more.size:
        raise WireError(int(row[more[0]]), int(at[more[0]]), "a number never ends", "a varint of at most 10 bytes")
    return value, behind


def fields(buffer: Bytes, starts: Integers, ends: Integers) -> Iterator[Fields]:
    """The first field of every message, then the second of those that have one, and so on.

    `buffer` ends in PADDING. Raises WireError at a field that leaves its message or has no valid tag.
    """
    row = np.flatnonzero(starts < ends)
    at = starts[row]
    while row.size:
        begin = at
        tag, at = varints(buffer, at, row)
        number, wire = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
        for bad in np.flatnonzero((number == 0) | (number >= 1 << 29) | ~_KNOWN[wire])[:1].tolist():
            found = f"field number {number[bad]}, wire type {wire[bad]}"
            raise WireError(int(row[bad]), int(begin[bad]), "this is no protobuf field", "a field number >= 1", found)
        value, start, at = _values(buffer, at, row, wire)
        for bad in np.flatnonzero(at > ends[row])[:1].tolist():
            found = f"{value[bad]} bytes" if wire[bad] == LENGTH else "a number cut off"
            expected = f"at most {max(0, int(ends[row[bad]] - start[bad]))} bytes"
            raise WireError(int(row[bad]), int(begin[bad]), "a field is longer than its message", expected, found)
        yield Fields(row, number, wire, value, start)
        left = at < ends[row]
        row, at = row[left], at[left]


def _values(buffer: Bytes, at: Integers, row: Integers, wire: Integers) -> tuple[Unsigned, Integers, Integers]:
    """Value, start of the payload and position behind each field."""
    is_number = (wire == VARINT) | (wire == LENGTH)
    if is_number.all():
        value, start = varints(buffer, at, row)
    else:
        value, start = np.zeros(len(at), np.uint64), at.copy()
        value[is_number], start[is_number] = varints(buffer, at[is_number], row[is_number])
        for kind, width in ((FIXED64, 8), (FIXED32, 4)):
            fixed = wire == kind
            first = np.minimum(at[fixed], len(buffer) - width)
            octets = buffer[first[:, None] + np.arange(width)].astype(np.uint64)  # little-endian
            value[fixed] = (octets << np.arange(0, 8 * width, 8, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
            start[fixed] += width
    # A length beyond the buffer is cut here and refused by the caller, which still sees it in `value`.
    length = np.where(wire == LENGTH, np.minimum(value, np.uint64(len(buffer))), np.uint64(0))
    return value, start, start + length.astype(np.int64)


def repeated(buffer: Bytes, found: Fields) -> tuple[Integers, Integers]:
    """Row and value of every element of a repeated varint field, packed (one run of bytes) or not."""
    single = found.wire == VARINT
    packed = found.where(~single & (found.value > 0))
    length = packed.value.astype(np.int64)
    owner = np.repeat(packed.row, length)
    ends = np.cumsum(length)
    position = np.arange(ends[-1] if ends.size else 0) + np.repeat(packed.start - (ends - length), length)
    last = buffer[position] < 128
    if ends.size and not last[ends - 1].all():
        first = int(np.flatnonzero(~last[ends - 1])[0])
        raise WireError(int(packed.row[first]), int(packed.start[first]), "the last number of a list is cut off")
    begins = np.ones(len(position), bool)
    begins[1:] = last[:-1]
    value, _ = varints(buffer, position[begins], owner[begins])
    values: Integers = np.concatenate([found.value[single], value]).view(np.int64)
    return np.concatenate([found.row[single], owner[begins]]), values
