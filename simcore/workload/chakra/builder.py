"""Dependency graphs by hand: nodes for all NPUs or for some, run as they are or saved as Chakra traces.

The counterpart of Chakra's generator in C++ (``addNode``, ``assignDep``, ``flushEG``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from simcore.errors import InputError, closest
from simcore.units import parse_bytes, parse_ns
from simcore.workload.chakra import json_form, writer
from simcore.workload.chakra.reader import of_ranks
from simcore.workload.chakra.schema import CommType
from simcore.workload.model import ROOTED, CollectiveKind, GraphSet, NodeKind

Npus = int | Collection[int] | None
MOST = (1 << 62) - 1  # of a number in a trace
MOST_NPUS = 1 << 24


class GraphNode(Struct, frozen=True, eq=False):
    """A node of a graph: its number in the traces and the NPUs that have it."""

    number: int
    name: str
    npus: frozenset[int]


Depends = Iterable[GraphNode] | GraphNode


def graph(npus: int) -> GraphBuilder:
    """An empty graph for `npus` NPUs, to be filled by its methods and given to `run`; InputError for none.

    >>> made = graph(npus=2)
    >>> first = made.compute(5)
    >>> second = made.compute(5, depends=[first])
    >>> made.graphs().graphs[0].duration_ns.tolist()
    [5, 5]
    """
    return GraphBuilder(NPUS.of(npus, "npus", least=1, most=MOST_NPUS))


class GraphBuilder:
    """Nodes and what they wait for.

    Every method that makes a node takes `depends` (a node or several, of the same NPUs, that must be done before),
    `on` (an NPU, several, None = all) and a `name`, and gives back the node. Times are nanoseconds, sizes bytes, or
    texts such as "3 us" and "4 MiB". InputError for what is no such thing; the graph is then as it was.
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
        attributes = {"is_cpu_op": False, "duration_ns": TIME.of(duration, "duration")}
        if num_ops := WHOLE.of(operations, "operations"):
            attributes |= {"num_ops": num_ops, "tensor_size": SIZE.of(size, "size")}
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
        """A collective of a `kind` ("all_reduce", ...) among the NPUs it is `on`, in that order; all go by dimensions.

        `size` is what each of them holds; of an all-gather, what each gives. `root` is the NPU of a broadcast, reduce,
        gather or scatter.
        """
        known = [each.value for each in CollectiveKind]
        if kind not in known:
            expected = closest(str(kind), known)
            raise InputError.at("collective", "no such collective", expected=expected, found=repr(kind))
        said = {"comm_type": int(CommType[kind.upper()]), "comm_size": SIZE.of(size, "size")}
        attributes: dict[str, Any] = {"is_cpu_op": False, **said}
        ranks = self._ranks(on)
        if root is not None:
            if kind not in ROOTED:
                raise InputError.at("root", "has no effect here", expected=", ".join(ROOTED), found=f"an {kind}")
            attributes["root"] = self._npu("root", root)
            if root not in ranks:
                raise InputError.at("root", "not in the collective", expected=f"one of {list(ranks)}", found=str(root))
        if len(ranks) < self.npus:
            attributes["pg_name"] = self._groups.setdefault(ranks, str(len(self._groups) + 1))
        return self._add(name or kind, NodeKind.COLLECTIVE, attributes, depends, ranks)

    def depends(self, node: GraphNode, *on: GraphNode) -> None:
        """Let `node` wait for the nodes `on` as well; InputError where one of them is not of its NPUs."""
        self._own(node)
        self._nodes[node.number][-1].extend(self._awaited(_shown(node), node.npus, on))

    def graphs(self) -> GraphSet:
        """What `simcore.run` plays; InputError for cycles, peers that do not exist and whatever a file may not hold."""
        return of_ranks([self._encoded(rank) for rank in range(self.npus)], "graph")

    def save(self, target: str | Path, *, force: bool = False) -> list[Path]:
        """Write TARGET.RANK.et for every NPU, or TARGET.RANK.json for a `target` that ends in .json; the paths.

        InputError where a file is there already, unless you `force` it.
        """
        self.graphs()
        try:
            path = Path(target)
            path.with_suffix("")  # what has no name has no suffix
        except (TypeError, ValueError) as error:
            raise InputError.at("target", "no place to write to", expected="a path", found=repr(target)) from error
        as_json = path.suffix == ".json"
        prefix, suffix = (path.with_suffix(""), "json") if as_json else (path, "et")
        made = (json_form.to_json(data).encode() if as_json else data for data in map(self._encoded, range(self.npus)))
        files = {prefix.with_name(f"{prefix.name}.{rank}.{suffix}"): data for rank, data in enumerate(made)}
        writer.write_files(files, force=force)
        return list(files)

    def _transfer(
        self, kind: NodeKind, owner: int, src: int, dst: int, size: float | str, tag: int, depends: Depends, name: str
    ) -> GraphNode:
        ends = {"comm_src": self._npu("src", src), "comm_dst": self._npu("dst", dst)}
        said = {"comm_size": SIZE.of(size, "size"), "comm_tag": WHOLE.of(tag, "tag", least=-MOST)}
        return self._add(name, kind, {"is_cpu_op": False, **ends, **said}, depends, owner)

    def _add(self, name: str, kind: NodeKind, attributes: dict[str, Any], depends: Depends, on: Npus) -> GraphNode:
        try:
            name.encode()
        except (AttributeError, UnicodeError) as error:
            raise InputError.at("name", "no name of a node", expected="a text", found=repr(name)) from error
        npus = frozenset(self._ranks(on))
        awaited = self._awaited(f"node {len(self._nodes)} '{name}'", npus, depends)
        node = GraphNode(len(self._nodes), name, npus)
        self._nodes.append((node, kind, attributes, awaited))
        return node

    def _own(self, node: GraphNode) -> GraphNode:
        """The node, if it is one of this graph."""
        known = [one for one, *_ in self._nodes[node.number : node.number + 1]] if isinstance(node, GraphNode) else []
        if node not in known:
            hint = "give nodes that this graph's compute, send, recv or collective gave back"
            raise InputError.at("depends", "no node of this graph", expected="a GraphNode", found=repr(node), hint=hint)
        return node

    def _awaited(self, who: str, npus: frozenset[int], depends: Depends) -> list[int]:
        """The numbers of what somebody on some NPUs waits for."""
        others = [self._own(each) for each in (depends if isinstance(depends, Iterable) else (depends,))]
        for other in others:
            if not npus <= other.npus:
                message = f"{who} cannot wait for {_shown(other)}, which NPU {min(npus - other.npus)} does not have"
                raise InputError.at("depends", message, expected="a node of the same NPU", hint="send it a message")
        return [other.number for other in others]

    def _npu(self, what: str, npu: int) -> int:
        return NPU.of(npu, what, most=self.npus - 1)

    def _ranks(self, on: Npus) -> tuple[int, ...]:
        """The NPUs that are meant, in their order."""
        if on is None:
            return tuple(range(self.npus))
        ranks = tuple(self._npu("on", rank) for rank in (on if isinstance(on, Iterable) else (on,)))
        if not ranks or len(set(ranks)) < len(ranks):
            expected = f"each of 0 to {self.npus - 1} at most once"
            raise InputError.at("on", "not NPUs of this graph", expected=expected, found=str(list(ranks)))
        return ranks

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


class _Number(NamedTuple):
    """A number that somebody gives: what it is called, how it is read, and how it may look."""

    noun: str
    read: Callable[[Any], float] = index
    example: str = ""

    def of(self, value: object, what: str, *, least: int = 0, most: int = MOST) -> int:
        """The number; InputError when it is none, or out of range."""
        with suppress(ValueError, TypeError, OverflowError):
            found = round(self.read(value))
            if least <= found <= most and not isinstance(value, bool):
                return found
        expected = f"{least:,} to {most:,}{self.example}"
        raise InputError.at(what, f"this is not {self.noun}", expected=expected, found=repr(value)[:80])


WHOLE, NPU, NPUS = (_Number(noun) for noun in ("a whole number", "an NPU of the graph", "a number of NPUs"))
TIME = _Number("a time", parse_ns, ", as 5 (ns) or '1.5 us'")
SIZE = _Number("a size", parse_bytes, ", as 5 (bytes) or '64 MiB'")


def _shown(node: GraphNode) -> str:
    return f"node {node.number} '{node.name}'"
