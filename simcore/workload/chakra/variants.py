"""Traces made of traces: those of few ranks on many, and those without what is nobody's business.

Rescaled, the machine is laid out in blocks of as many ranks as were traced: rank r runs the trace of rank r modulo the
number of traced ranks. Groups and messages stay inside a block, collectives of all ranks span all blocks: more of the
outermost (usually data-parallel) dimension, the same of all others. Groups that were named to grow span the same ranks
of all blocks. Obfuscated, names are hashed, tensors and sources dropped, sizes rounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from simcore.errors import InputError, closest
from simcore.workload.chakra import groups, writer
from simcore.workload.chakra.schema import ATTRIBUTES, NODE_TYPES, messages, parsed
from simcore.workload.model import NodeKind

Groups = Mapping[str, tuple[int, ...]]


def rescale(contents: Sequence[bytes], npus: int, known: Groups, growing: Collection[str] = ()) -> list[bytes]:
    """The traces of `npus` ranks, a multiple, from today's bytes of rank 0, 1, ...

    To the groups `known` beside the traces those of METADATA nodes are added. Groups named in `growing` span all
    blocks, such as the data-parallel ones.
    """
    traced = len(contents)
    if npus % traced or npus < traced:
        text = f"{npus} ranks cannot be laid out in blocks of {traced}"
        raise InputError.at("--npus", text, expected=f"a multiple of {traced}", found=str(npus))
    traces = [list(parsed(content)) for content in contents]
    found: dict[str, tuple[int, ...]] = {}
    names, grown = [], {"", "0"}
    for rank, (_, *nodes) in enumerate(traces):
        own = dict(known)
        for node in (node for node in nodes if node.type == NodeKind.METADATA):
            own |= groups.of_metadata(node.inputs.values, traced, f"the trace of rank {rank}", ())
        names.append(groups.distinct({name: ranks or tuple(range(traced)) for name, ranks in own.items()}, found))
        grown |= {called for name, called in names[-1].items() if not own[name]}  # all ranks, also of more
    unknown = sorted(set(growing) - {name for called in names for name in called})
    if unknown:
        raise InputError.at(
            "--grow", f"no group '{unknown[0]}'", expected=closest(unknown[0], found), found=repr(unknown[0])
        )
    grown |= {called[name] for called in names for name in growing if name in called}
    laid_out: dict[str, list[int]] = {}  # ranks of every group of the larger machine: one a block, or over all blocks
    for name, ranks in found.items():
        for block in range(npus // traced):
            moved = laid_out.setdefault(name if name in grown else f"{name}.{block}", [])
            moved += [rank + block * traced for rank in ranks]
    made = []
    for rank in range(npus):  # a node that defines the groups, then the traced nodes with their groups and peers moved
        head, *nodes = traces[rank % traced]
        first = max((node.id for node in nodes), default=-1) + 1
        defining = [writer.groups(first, laid_out)] if laid_out else []
        moved_nodes = (_moved(node, rank // traced, traced, names[rank % traced], grown) for node in nodes)
        made.append(writer.encode(head, [*defining, *moved_nodes]))
    return made


def _moved(old: Any, block: int, traced: int, names: Mapping[str, str], grown: Collection[str]) -> Any:
    """A node of a block of `traced` ranks, whose trace calls groups by `names`; those `grown` span all blocks.

    METADATA nodes no longer define groups, which all are defined in front.
    """
    new = messages()["Node"]()
    new.CopyFrom(old)
    if new.type == NodeKind.METADATA:
        new.inputs.values = ""
    named = next((attribute.string_val for attribute in new.attr if attribute.name == "pg_name"), "")
    group = names.get(named, named)
    for attribute in new.attr:
        value = attribute.WhichOneof("value")
        # A group that grows has one root for all blocks, also where `comm_src` names it.
        if value and attribute.name in PEERS and not (new.type == NodeKind.COLLECTIVE and group in grown):
            peer = getattr(attribute, value)
            setattr(attribute, value, peer + block * traced if peer >= 0 else peer)  # below 0: nobody
        elif attribute.name == "pg_name" and value == "string_val":
            attribute.string_val = group if group in grown else f"{group}.{block}"
    return new


PEERS = ("comm_src", "comm_dst", "root")
SIZES = ("comm_size", "tensor_size", "num_ops")
MAX_RANKS = 1 << 30


def salt_of(contents: Iterable[bytes]) -> bytes:
    """A salt that only who has the traces can know; one for all ranks, so that equal names stay equal."""
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).digest()


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
    name = _hidden(old.name, salt, NODE_TYPES[old.type].removesuffix("_NODE").lower())
    waits = {"ctrl_deps": old.ctrl_deps, "data_deps": old.data_deps}
    new = writer.node(old.id, name, old.type, **waits, duration_micros=old.duration_micros)
    for attribute in old.attr:
        if attribute.name in ATTRIBUTES:  # one that matters, its size rounded and its group's name hidden
            copied, field = new.attr.add(), attribute.WhichOneof("value")
            copied.CopyFrom(attribute)
            copied.doc_string = ""
            if attribute.name == "pg_name" and field == "string_val":
                copied.string_val = _group(attribute.string_val, salt)
            elif attribute.name in SIZES and not keep_sizes and field:
                setattr(copied, field, _rounded(getattr(attribute, field)))
    found = groups.of_metadata(old.inputs.values, MAX_RANKS, "", ()) if old.type == NodeKind.METADATA else {}
    if found:  # the groups it defines, and nothing else of its values
        hidden = {_group(name, salt): ranks for name, ranks in found.items()}
        new.inputs.CopyFrom(writer.groups(0, hidden).inputs)
    return new


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
