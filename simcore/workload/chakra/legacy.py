"""Files of older schemas, and the JSON forms, as bytes of today's schema.

2023-01 (proto2, `eg_def`, suffix .eg), 0.0.2 and 0.0.3 (proto2, everything in attributes). Numbers of the first and the
last are those of mlcommons/chakra's history; the value fields of 0.0.2 are those of 0.0.3 without the truth values and
unsigned numbers that 0.0.3 brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from simcore.errors import InputError
from simcore.peers import HEAD, refuse_foreign
from simcore.workload.chakra import json_form, wire, writer
from simcore.workload.chakra.schema import ATTRIBUTES, SCHEMAS, CommType, is_known, messages
from simcore.workload.model import NodeKind

USUAL_MHZ = 1000.0  # the 2023-01 files count cycles; nobody says of which clock
SNIFFED = 64  # messages looked at to tell the schemas apart

OLDER = [version for version in SCHEMAS if version != "current"]  # where several fit a file, the first is meant
# Field of an old attribute -> kind of today's.
VALUES = {"b": "bool", "f": "float", "u": "uint64", "i": "int64", "s": "string"}
VALUES |= {f"{kind.removesuffix('64')}s": f"{kind}_list" for kind in VALUES.values()}
FIRST_COLLECTIVES = {1: CommType.ALL_REDUCE, 2: CommType.ALL_TO_ALL, 3: CommType.ALL_GATHER, 4: CommType.REDUCE_SCATTER}
LATER_COLLECTIVES = {number - 1: kind for number, kind in FIRST_COLLECTIVES.items()} | {4: CommType.BROADCAST}


def to_current(data: bytes, path: str, npu_frequency_mhz: float = USUAL_MHZ) -> bytes:
    """Today's bytes of a file of any schema; InputError when it is of an older one and broken.

    `npu_frequency_mhz` is the clock whose cycles files of 2023-01 count.
    """
    if json_form.is_json(data):
        return json_form.from_json(data, path)
    from google.protobuf.message import DecodeError

    version = detect(data)
    if version == "":
        return data
    of_2023, later = partial(_from_2023, npu_frequency_mhz=npu_frequency_mhz), partial(_from_attributes, version)
    convert: Callable[[Any], Any] = of_2023 if version == "2023-01" else later
    head, nodes = writer.metadata(converted_from=version), []
    try:
        starts, ends = wire.frames(data)
    except wire.WireError as error:
        refuse_foreign(data[:HEAD].decode("latin-1"), path)
        raise error.at(path) from error
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        raw = data[start:end]
        try:
            if index == 0 and version != "2023-01" and _known(version, "GlobalMetadata", raw):
                _copy_attributes(messages(version)["GlobalMetadata"].FromString(raw).attribute, head)
            else:
                nodes.append(convert(messages(version)["Node"].FromString(raw)))
        except (DecodeError, KeyError, TypeError, ValueError) as error:
            text = f"message {index} at byte {start}: no node of Chakra's schema {version}: {error}"
            raise InputError.at(path, text) from error
    return writer.encode(head, nodes)


def detect(data: bytes) -> str:
    """'2023-01', '0.0.2' or '0.0.3'; '' = today's (or nothing that could be told)."""
    try:
        heads, position = list[bytes](), 0
        while position < len(data) and len(heads) < SNIFFED:
            length, start = wire.length_at(data, position)
            position = start + length
            heads.append(data[start:position])
        # Today's metadata begins with a version or with attributes of number 2; an older one's, of number 1, begin with
        # a name. Only a file that does not is looked at closely, which takes time.
        head = heads[0] if heads else b"\x12"
        if head[:1] == b"\x12" or (head[:1] == b"\n" and head[wire.length_at(head, 1)[1] :][:1] != b"\n"):
            return ""
    except (wire.WireError, IndexError):
        return ""

    def fits(version: str, index: int, raw: bytes) -> bool:
        """Whether a schema knows all fields of a message; the first is metadata, which older files may lack."""
        kinds = ("Node",) if index or version == "2023-01" else ("GlobalMetadata", "Node")[: 2 if version else 1]
        return any(_known(version, kind, raw) for kind in kinds)

    return max(("", *OLDER), key=lambda version: sum(fits(version, *head) for head in enumerate(heads)))


def _known(version: str, kind: str, raw: bytes) -> bool:
    from google.protobuf.message import DecodeError

    try:
        return is_known(messages(version)[kind].FromString(raw))
    except DecodeError:
        return False


def _node_type(number: int, shift: int) -> NodeKind:
    """Today's type of a node; the newest ones did not exist."""
    if number + shift > NodeKind.COLLECTIVE:
        raise ValueError(f"{number} is no type of node")
    return NodeKind(number + shift if number else 0)


def _from_2023(old: Any, npu_frequency_mhz: float) -> Any:
    """A node of the first schema; its types have no METADATA, so the numbers above 0 are one less."""
    kind = _node_type(old.node_type, 1)
    duration_ns = round(old.simulated_run_time * 1000 / npu_frequency_mhz)
    attributes: dict[str, Any] = {"is_cpu_op": False, "duration_ns": duration_ns}
    for name in ("num_ops", "tensor_size", "comm_src", "comm_dst", "comm_size", "comm_tag", "comm_priority"):
        if old.HasField(name):
            attributes[name] = getattr(old, name)
    if old.comm_type:
        attributes["comm_type"] = int(FIRST_COLLECTIVES[old.comm_type])
    if old.involved_dim:
        attributes["involved_dim"] = list(old.involved_dim)
    if old.communicator_id:
        attributes["pg_name"] = str(old.communicator_id)
    return writer.node(old.id, old.name, kind, data_deps=old.parent, attributes=attributes)


def _from_attributes(version: str, old: Any) -> Any:
    """A node of 0.0.2 (whose types have no METADATA yet) or 0.0.3."""
    new = writer.node(old.id, old.name, _node_type(old.type, int(version == "0.0.2")), data_deps=old.parent)
    for name in ("inputs", "outputs"):
        texts = (getattr(old, name), getattr(old, f"{name[:-1]}_shapes"), getattr(old, f"{name[:-1]}_types"))
        if any(texts):
            place = getattr(new, name)
            place.values, place.shapes, place.types = texts
    _copy_attributes(old.attribute, new)
    return new


def _copy_attributes(attributes: Iterable[Any], new: Any) -> None:
    """Attributes as today's; `runtime` becomes the duration, `comm_type` is renumbered."""
    for attribute in attributes:
        values = {field.name: value for field, value in attribute.ListFields() if field.name in VALUES}
        if not values:
            continue
        field, value = next(iter(values.items()))
        if attribute.name == "runtime" and hasattr(new, "duration_micros"):
            new.duration_micros = int(value)
            continue
        if attribute.name == "comm_type":
            value = int(LATER_COLLECTIVES[int(value)])
        kind = VALUES[field]
        if kind == "int64_list" and ATTRIBUTES.get(attribute.name) == "bool_list":  # 0.0.2 has no truth values
            kind, value = "bool_list", map(bool, value)
        writer.add_attribute(new, attribute.name, value, kind, attribute.doc_string)
