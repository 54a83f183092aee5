"""Traces without what is nobody's business: names hashed, tensors and sources dropped, sizes rounded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from simcore.workload.chakra import groups, writer
from simcore.workload.chakra.schema import NodeType, messages, parsed

__all__ = ["obfuscate", "salt_of"]

SIZES = ("comm_size", "tensor_size", "num_ops")
MAX_RANKS = 1 << 30


def salt_of(contents: Iterable[bytes]) -> bytes:
    """A salt that only who has the traces can know; one for all ranks, so that equal names stay equal."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.digest()


def obfuscate(data: bytes, salt: bytes, *, keep_sizes: bool) -> bytes:
    """A trace of today's schema with the same graph, durations, collectives and groups.

    Kept are ids, types, dependencies, durations and the attributes that a simulation reads; with `keep_sizes` it takes
    exactly the same time. Otherwise sizes and operation counts become the nearest power of two.
    """
    head, *nodes = parsed(data)
    said = {attribute.name for attribute in head.attr}
    callers = "schema" in said and "input_file" not in said
    kept = writer.metadata(**({"schema": "obfuscated"} if callers else {}))
    return writer.encode(kept, (_node(node, salt, keep_sizes) for node in nodes))


def _hidden(name: str, salt: bytes, prefix: str) -> str:
    return f"{prefix}_{hashlib.blake2b(name.encode(), key=salt, digest_size=6).hexdigest()}"


def _node(old: Any, salt: bytes, keep_sizes: bool) -> Any:
    new = messages()["Node"](
        id=old.id,
        name=_hidden(old.name, salt, NodeType(old.type).name.removesuffix("_NODE").lower()),
        type=old.type,
        ctrl_deps=old.ctrl_deps,
        data_deps=old.data_deps,
        duration_micros=old.duration_micros,
    )
    for attribute in old.attr:
        if attribute.name in writer.KINDS:
            _copy(attribute, new.attr.add(), salt, keep_sizes)
    if old.type == NodeType.METADATA_NODE:
        _keep_groups(old, new, salt)
    return new


def _copy(old: Any, new: Any, salt: bytes, keep_sizes: bool) -> None:
    """An attribute that matters, its size rounded and its group's name hidden."""
    new.CopyFrom(old)
    new.doc_string = ""
    field = old.WhichOneof("value")
    if old.name == "pg_name" and field == "string_val":
        new.string_val = _group(old.string_val, salt)
    elif old.name in SIZES and not keep_sizes and field:
        setattr(new, field, _rounded(getattr(old, field)))


def _group(name: str, salt: bytes) -> str:
    """A group's name; plain numbers say nothing, and files of groups refer to them."""
    return name if name.isdecimal() or not name else _hidden(name, salt, "group")


def _rounded(value: int) -> int:
    """The nearest power of two (on a scale of ratios); 0 stays.

    >>> [_rounded(value) for value in (0, 1, 5, 6, 1000)]
    [0, 1, 4, 8, 1024]
    """
    if value <= 0:
        return value
    lower = 1 << (value.bit_length() - 1)
    return lower if value * value < 2 * lower * lower else 2 * lower


def _keep_groups(old: Any, new: Any, salt: bytes) -> None:
    """The groups a METADATA node defines, and nothing else of its values."""
    found = groups.of_metadata(old.inputs.values, MAX_RANKS, "")
    if found:
        hidden = {_group(name, salt): ranks for name, ranks in found.items()}
        new.inputs.CopyFrom(writer.groups(0, hidden).inputs)
