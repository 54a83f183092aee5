"""Dependency graphs by hand: nodes for all NPUs or for some, run as they are or saved as Chakra traces.

The counterpart of Chakra's generator in C++ (``addNode``, ``assignDep``, ``flushEG``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from simcore.errors import InputError, closest
from simcore.units import parse_bytes, parse_ns
from simcore.workload.chakra import json_form, writer
from simcore.workload.chakra.reader import of_ranks
from simcore.workload.chakra.schema import CommType
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind

Npus = int | Collection[int] | None
Depends = Iterable["GraphNode"]


class GraphNode(Struct, frozen=True, eq=False):
    """A node of a graph: its number in the traces and the NPUs that have it."""

    number: int
    name: str
    npus: frozenset[int]


def graph(npus: int) -> GraphBuilder:
    """An empty graph for `npus` NPUs, to be filled by its methods and given to `run`; InputError for none.

    >>> made = graph(npus=2)
    >>> first = made.compute(5)
    >>> second = made.compute(5, depends=[first])
    >>> made.graphs().graphs[0].duration_ns.tolist()
    [5, 5]
    """
    if npus < 1:
        raise InputError.at("graph", "a graph needs an NPU to run on", expected="npus >= 1", found=str(npus))
    return GraphBuilder(npus)


class GraphBuilder:
    """Nodes and what they wait for.

    Every method that makes a node takes `depends` (nodes of the same NPUs that must be done before), `on` (an NPU,
    several, None = all) and a `name`, and gives back the node. Times are nanoseconds, sizes bytes, or texts
    such as "3 us" and "4 MiB".
    """

    def __init__(self, npus: int):
        self.npus = npus
        self._nodes: list[tuple[GraphNode, NodeKind, dict[str, Any], list[int]]] = []  # the last: what it waits for
        self._groups: dict[tuple[int, ...], str] = {}

    def compute(
        self, duration: float | str = 0, *, operations: int = 0, size: float | str = 0, depends: Depends = (),
        on: Npus = None, name: str = "compute",
    ) -> GraphNode:  # fmt: skip
        """Computation that takes `duration`.

        In a run with an accelerator (`npu=`) it takes as long as `operations` FLOPs on `size` bytes take there.
        """
        duration_ns = _quantity(parse_ns, duration, "duration")
        attributes = {"is_cpu_op": False, "duration_ns": duration_ns}
        if operations:
            attributes |= {"num_ops": operations, "tensor_size": _quantity(parse_bytes, size, "size")}
        return self._add(name, NodeKind.COMPUTE, attributes, depends, on)

    def send(
        self, src: int, dst: int, size: float | str, *, tag: int = 0, depends: Depends = (), name: str = "send"
    ) -> GraphNode:
        """A message of `size` bytes from NPU `src` to NPU `dst`, where a `recv` of the same `tag` must take it."""
        return self._transfer(NodeKind.SEND, src, src, dst, size, tag, depends, name)

    def recv(
        self, src: int, dst: int, size: float | str, *, tag: int = 0, depends: Depends = (), name: str = "recv"
    ) -> GraphNode:
        """NPU `dst` waits for the message of `size` bytes and this `tag` that NPU `src` sends."""
        return self._transfer(NodeKind.RECV, dst, src, dst, size, tag, depends, name)

    def collective(
        self, kind: str, size: float | str = 0, *, depends: Depends = (), on: Npus = None, root: int | None = None,
        name: str = "",
    ) -> GraphNode:  # fmt: skip
        """A collective of a `kind` ("all_reduce", ...) among the NPUs it is `on`, in that order.

        `size` is what each of them holds; of an all-gather, what each gives. `root` is the NPU of a broadcast, reduce,
        gather or scatter.
        """
        known = [each.value for each in CollectiveKind]
        if kind not in known:
            raise InputError.at("collective", "no such collective", expected=closest(kind, known), found=repr(kind))
        said = {"comm_type": int(CommType[kind.upper()]), "comm_size": _quantity(parse_bytes, size, "size")}
        attributes: dict[str, Any] = {"is_cpu_op": False, **said}
        ranks = self._ranks(on)
        if len(ranks) < self.npus:
            attributes["pg_name"] = self._groups.setdefault(ranks, str(len(self._groups) + 1))
        if root is not None:
            attributes["root"] = root
        return self._add(name or kind, NodeKind.COLLECTIVE, attributes, depends, ranks)

    def depends(self, node: GraphNode, *on: GraphNode) -> None:
        """Let `node` wait for the nodes `on` as well; InputError where one of them is not of its NPUs."""
        for other in on:
            if not node.npus <= other.npus:
                lost = min(node.npus - other.npus)
                message = f"{_shown(node)} cannot wait for {_shown(other)}, which NPU {lost} does not have"
                raise InputError.at("depends", message, expected="a node of the same NPU", hint="send it a message")
            self._nodes[node.number][-1].append(other.number)

    def graphs(self) -> GraphSet:
        """What `simcore.run` plays; InputError for cycles, peers that do not exist and whatever a file may not hold."""
        return of_ranks([self._encoded(rank) for rank in range(self.npus)], "graph")

    def save(self, target: str | Path, *, force: bool = False) -> list[Path]:
        """Write TARGET.RANK.et for every NPU, or TARGET.RANK.json for a `target` that ends in .json; the paths.

        InputError where a file is there already, unless you `force` it.
        """
        self.graphs()
        path = Path(target)
        as_json = path.suffix == ".json"
        prefix, suffix = (path.with_suffix(""), "json") if as_json else (path, "et")
        made = (json_form.to_json(data).encode() if as_json else data for data in map(self._encoded, range(self.npus)))
        files = {prefix.with_name(f"{prefix.name}.{rank}.{suffix}"): data for rank, data in enumerate(made)}
        writer.write_files(files, force=force)
        return list(files)

    def _transfer(
        self, kind: NodeKind, owner: int, src: int, dst: int, size: float | str, tag: int, depends: Depends, name: str
    ) -> GraphNode:
        """A send or a receive."""
        ends = {"comm_src": src, "comm_dst": dst, "comm_size": _quantity(parse_bytes, size, "size"), "comm_tag": tag}
        return self._add(name, kind, {"is_cpu_op": False, **ends}, depends, owner)

    def _add(self, name: str, kind: NodeKind, attributes: dict[str, Any], depends: Depends, on: Npus) -> GraphNode:
        node = GraphNode(len(self._nodes), name, frozenset(self._ranks(on)))
        self._nodes.append((node, kind, attributes, []))
        self.depends(node, *depends)
        return node

    def _ranks(self, on: Npus) -> tuple[int, ...]:
        """The NPUs that are meant, in their order."""
        ranks: Sequence[int] = range(self.npus) if on is None else (on,) if isinstance(on, int) else tuple(on)
        wrong = [rank for rank in ranks if not 0 <= rank < self.npus]
        if wrong or not ranks or len(set(ranks)) < len(ranks):
            expected = f"each of 0 to {self.npus - 1} at most once"
            raise InputError.at("on", "not NPUs of this graph", expected=expected, found=str(list(ranks)))
        return tuple(ranks)

    def _encoded(self, rank: int) -> bytes:
        """The trace of a rank; a first node tells the communicators."""
        messages = []
        if self._groups:
            known = {name: ranks for ranks, name in self._groups.items()}
            messages.append(writer.groups(len(self._nodes), known, "process_group:init"))
        for node, kind, attributes, depends in self._nodes:
            if rank in node.npus:
                messages.append(writer.node(node.number, node.name, kind, data_deps=depends, attributes=attributes))
        return writer.encode(writer.metadata(), messages)


def _quantity(parse: Callable[[float | str], float], value: float | str, what: str) -> int:
    """A time in ns or a size in bytes."""
    try:
        found = round(parse(value))
    except (ValueError, TypeError) as error:
        raise InputError.at(what, f"no {what}: {error}", found=repr(value)) from error
    if found < 0:
        raise InputError.at(what, f"the {what} is negative", expected=f"a {what} >= 0", found=repr(value))
    return found


def _shown(node: GraphNode) -> str:
    return f"node {node.number} '{node.name}'"
