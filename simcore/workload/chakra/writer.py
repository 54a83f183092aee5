"""Nodes into execution trace files of today's schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simcore.errors import InputError
from simcore.files import read_bytes, write_all
from simcore.library import GROUPS, groups_of
from simcore.workload.chakra.schema import ATTRIBUTE_KINDS, ATTRIBUTES, messages
from simcore.workload.model import NodeKind

VERSION = "0.0.4"
_ONE_BYTE = [bytes([value]) for value in range(128)]


def node(
    number: int,
    name: str,
    kind: NodeKind,
    *,
    data_deps: Iterable[int] = (),
    ctrl_deps: Iterable[int] = (),
    duration_micros: int = 0,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """A Node message; `attributes` get the kinds that their names have (`ATTRIBUTES`).

    A duration_ns among them becomes whole microseconds where none are given, and stays where these differ.
    """
    duration_ns = (attributes or {}).get("duration_ns", 0)
    message = messages()["Node"](
        id=number,
        name=name,
        type=int(kind),
        data_deps=data_deps,
        ctrl_deps=ctrl_deps,
        duration_micros=duration_micros or round(duration_ns / 1000),
    )
    for key, value in (attributes or {}).items():
        if key != "duration_ns" or duration_ns != 1000 * message.duration_micros:
            add_attribute(message, key, value, ATTRIBUTES[key])
    return message


def groups(number: int, ranks_of: Mapping[str, Sequence[int]], name: str = "groups") -> Any:
    """A METADATA node that says which ranks are in each group."""
    message = node(number, name, NodeKind.METADATA)
    message.inputs.values = json.dumps([{"pg_name": group, "ranks": list(ranks)} for group, ranks in ranks_of.items()])
    return message


def add_attribute(message: Any, name: str, value: Any, kind: str, doc: str = "") -> None:
    """Append an attribute; `kind` is one of `ATTRIBUTE_KINDS` or such a kind with '_list' behind it."""
    attribute = message.attr.add(name=name, doc_string=doc)
    if kind in ATTRIBUTE_KINDS:
        setattr(attribute, f"{kind}_val", value)
    else:
        values = getattr(attribute, kind)
        values.SetInParent()
        values.values.extend(value)


def metadata(version: str = VERSION, **attributes: str) -> Any:
    """A GlobalMetadata message with text attributes."""
    message = messages()["GlobalMetadata"](version=version)
    for name, value in attributes.items():
        add_attribute(message, name, value, "string")
    return message


def frame(payload: bytes) -> bytes:
    """A message with its length in front."""
    return varint(len(payload)) + payload


def varint(value: int) -> bytes:
    """A number as protobuf writes it: in base 128, the lowest seven bits first.

    >>> varint(300).hex()
    'ac02'
    """
    if value < 128:
        return _ONE_BYTE[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes((*made, value))


def encode(head: Any, nodes: Iterable[Any]) -> bytes:
    """A whole file: metadata, then nodes.

    Metadata that says nothing would be taken for the end of the file by Chakra's own reader: it gets a version.
    """
    first = head.SerializeToString(deterministic=True) or metadata().SerializeToString()
    return frame(first) + b"".join([frame(message.SerializeToString(deterministic=True)) for message in nodes])


def groups_beside(traces: str, target: str) -> dict[Path, bytes]:
    """The groups that lie beside traces, to lie beside what is made of them; nothing where there are none."""
    found = groups_of(traces)
    return {Path(f"{target}{GROUPS}"): read_bytes(found)} if found else {}


def write_files(files: Mapping[Path, bytes], *, force: bool = True) -> None:
    """Write files, all or none; InputError when some are there and not to be replaced. `.gz` packs."""
    check_free(files, force=force)
    write_all(files)


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """InputError when some of the files are there and are not to be replaced."""
    there = [path for path in paths if path.exists()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InputError.at(str(there[0]), f"the file is already there{more}", hint="--force overwrites")
