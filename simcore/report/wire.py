"""Protobuf's wire format, as far as writing needs it (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct
from functools import lru_cache

__all__ = ["double", "fixed", "nested", "number", "text", "varint"]

_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """A non-negative integer in base 128, the lowest seven bits first.

    >>> varint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=4096)  # a trace says the same few things over and over
def number(field: int, value: int) -> bytes:
    """A field that holds a non-negative integer."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field that holds a 64-bit float."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """A field that holds a 64-bit number of fixed length."""
    return varint(field << 3 | 1) + struct.pack("<Q", value)


def nested(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that holds a string."""
    return nested(field, value.encode("utf-8", "replace"))
