"""Communicator groups: ASTRA-sim 2.x's JSON file, and the METADATA nodes of PyTorch traces."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

from simcore import documents
from simcore.errors import InputError, Problems

__all__ = ["of_metadata", "read_groups"]

Groups = dict[str, tuple[int, ...]]


def read_groups(path: str, npus: int) -> Groups:
    """Groups of a JSON file `{"id": [npu, ...]}` in ring order as written; ids are > 0 (0 means all NPUs).

    Raises InputError with line and column of ranks that do not exist or stand twice, and of empty groups.
    """
    with Problems() as problems:
        root = documents.read(path, problems)
        return {name: _ranks(name, node, npus) for name, node in root.mapping()}


def _ranks(name: str, node: documents.Node, npus: int) -> tuple[int, ...]:
    """The ranks of one group of the file."""
    if not (name.isascii() and name.isdecimal()) or int(name) < 1:
        node.problem(f"'{name}' is no group id", "a whole number >= 1", repr(name), "0 means all NPUs")
    ranks = [item.integer() for item in node.sequence()]
    for item, rank in zip(node.items, ranks, strict=False):
        if rank >= npus:
            item.problem(f"group {name} names a rank that does not exist", f"ranks 0 to {npus - 1}")
    if len(set(ranks)) < len(ranks):
        node.problem(f"group {name} names a rank twice", "every rank once", str(ranks))
    if not ranks:
        node.problem(f"group {name} has no ranks", "a list of ranks", "nothing")
    return tuple(ranks)


def of_metadata(text: str, npus: int, path: str) -> Groups:
    """Groups in the values of a METADATA node: a JSON list of objects with pg_name and ranks, also quoted once more.

    A group without ranks spans all NPUs and is left out, as are texts that define no groups.
    """
    found: Groups = {}
    for entry in _entries(text):
        name, ranks = str(entry.get("pg_name", "")), entry.get("ranks")
        if name in {"", "0"} or not isinstance(ranks, list) or not ranks:
            continue
        if not all(isinstance(rank, int) and 0 <= rank < npus for rank in ranks) or len(set(ranks)) < len(ranks):
            raise InputError.at(
                path,
                f"group {name} of a METADATA node is wrong",
                expected=f"ranks 0 to {npus - 1}, each once",
                found=str(ranks),
            )
        found[name] = tuple(ranks)
    return found


def _entries(text: str) -> Iterator[dict[str, Any]]:
    """The objects in JSON, or in a Python list of strings of JSON as PyTorch's converter leaves it."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        yield from _objects(value)
        return


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        yield from _entries(value)
