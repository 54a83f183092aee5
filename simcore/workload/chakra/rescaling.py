"""Traces of few ranks on many: the machine is laid out in blocks of as many ranks as were traced.

Rank r runs the trace of rank r modulo the number of traced ranks. Groups and messages stay inside a block, collectives
of all ranks span all blocks: more of the outermost (usually data-parallel) dimension, the same of all others. Groups
that were named to grow span the same ranks of all blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simcore.errors import InputError
from simcore.workload.chakra import groups, writer
from simcore.workload.chakra.schema import NodeType, messages, parsed

__all__ = ["rescale"]

Groups = Mapping[str, tuple[int, ...]]


def rescale(contents: Sequence[bytes], npus: int, known: Groups, growing: Collection[str] = ()) -> list[bytes]:
    """The traces of `npus` ranks from those of fewer.

    Parameters
    ----------
    contents
        Today's bytes of rank 0, 1, ...; one alone stands for every rank of a block of one.
    npus
        A multiple of their number.
    known
        Groups given beside the traces; those of METADATA nodes are added.
    growing
        Names of groups that span all blocks, such as the data-parallel ones.
    """
    traced = len(contents)
    if npus % traced or npus < traced:
        text = f"{npus} ranks cannot be laid out in blocks of {traced}"
        raise InputError.at("--npus", text, expected=f"a multiple of {traced}", found=str(npus))
    traces = [list(parsed(content)) for content in contents]
    found: dict[str, tuple[int, ...]] = {}
    names = [_names({**known, **_defined(nodes, traced)}, found) for _, *nodes in traces]
    unknown = sorted(set(growing) - {name for own in names for name in own})
    if unknown:
        raise InputError.at("--grow", f"no group '{unknown[0]}'", expected=", ".join(sorted(found)), found=unknown[0])
    grown = {own[name] for own in names for name in growing if name in own}
    laid_out = _laid_out(found, grown, traced, npus // traced)
    return [
        _rank(traces[rank % traced], _Block(rank // traced, traced, names[rank % traced], grown), laid_out)
        for rank in range(npus)
    ]


@dataclass(frozen=True, slots=True)
class _Block:
    """Where a rank stands: its block, how many ranks one has, its trace's names for groups, and those that grow."""

    index: int
    traced: int
    names: Mapping[str, str]
    grown: Collection[str]

    def group(self, name: str) -> str:
        """The name that a traced group has in this block."""
        found = self.names.get(name, name)
        return found if self.grows(name) else f"{found}.{self.index}"

    def grows(self, name: str) -> bool:
        """Whether a traced group spans all blocks."""
        found = self.names.get(name, name)
        return found in self.grown or found in {"", "0"}


def _defined(nodes: Sequence[Any], traced: int) -> dict[str, tuple[int, ...]]:
    """The groups of a trace's METADATA nodes."""
    found: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        if node.type == NodeType.METADATA_NODE:
            found |= groups.of_metadata(node.inputs.values, traced, "")
    return found


def _names(own: Groups, found: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """A trace's group names -> names that mean one group in all traces; new groups go into `found`."""
    names = {}
    for name, ranks in own.items():
        taken = found.get(name, ranks) != ranks
        names[name] = f"{name}@{','.join(map(str, ranks))}" if taken else name
        found[names[name]] = ranks
    return names


def _laid_out(found: Groups, growing: Collection[str], traced: int, blocks: int) -> dict[str, list[int]]:
    """Ranks of every group of the larger machine: one a block, or one over all blocks where it grows."""
    made: dict[str, list[int]] = {}
    for name, ranks in found.items():
        if name in growing:
            made[name] = [rank + block * traced for block in range(blocks) for rank in ranks]
            continue
        for block in range(blocks):
            made[f"{name}.{block}"] = [rank + block * traced for rank in ranks]
    return made


def _rank(trace: Sequence[Any], block: _Block, laid_out: Mapping[str, list[int]]) -> bytes:
    """One rank's trace: a node that defines the groups, then the traced nodes with their groups and peers moved."""
    (head, *nodes), made = trace, []
    if laid_out:
        first = max((node.id for node in nodes), default=-1) + 1
        made.append(writer.groups(first, laid_out))
    return writer.encode(head, made + [_moved(node, block) for node in nodes])


def _moved(old: Any, block: _Block) -> Any:
    """A node of a block; METADATA nodes no longer define groups, which all are defined in front."""
    new = messages()["Node"]()
    new.CopyFrom(old)
    if new.type == NodeType.METADATA_NODE:
        new.inputs.values = ""
    named = [attribute.string_val for attribute in new.attr if attribute.name == "pg_name"]
    grows = block.grows(named[0] if named else "")  # one root for all blocks
    for attribute in new.attr:
        value = attribute.WhichOneof("value")
        if value and (attribute.name in {"comm_src", "comm_dst"} or (attribute.name == "root" and not grows)):
            setattr(attribute, value, getattr(attribute, value) + block.index * block.traced)
        elif attribute.name == "pg_name" and value == "string_val":
            attribute.string_val = block.group(attribute.string_val)
    return new
