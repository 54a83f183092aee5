"""Micro-benchmarks: one collective on all NPUs, and the small traces of Chakra's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType, NodeType
from simcore.workload.model import CollectiveKind

__all__ = ["SAMPLES", "collective", "samples"]


def collective(
    kind: CollectiveKind,
    size_bytes: int,
    *,
    repeat: int = 1,
    compute_ns: int = 0,
    involved: Iterable[bool] = (),
    root: int = 0,
) -> bytes:
    """A trace that every NPU runs: `repeat` collectives one after the other.

    Parameters
    ----------
    kind, size_bytes
        The collective and its bytes, per rank as the trace's `comm_size` (an all-gather's is what each rank gives).
    repeat
        How many, each waiting for the one before.
    compute_ns
        Computation before each of them; 0 = none.
    involved
        Which topology dimensions take part; empty = all.
    root
        The NPU that a broadcast or scatter starts from, and a reduce or gather ends at.
    """
    attributes: dict[str, Any] = {"is_cpu_op": False, "comm_type": int(CommType[kind.name]), "comm_size": size_bytes}
    attributes |= {"involved_dim": tuple(involved)} if involved else {}
    attributes |= {"root": root} if root else {}
    nodes: list[Any] = []
    for index in range(repeat):
        if compute_ns:
            nodes.append(_compute(len(nodes), compute_ns, f"compute_{index}"))
        name, after = f"{kind.value}_{index}", _after(len(nodes))
        nodes.append(writer.node(len(nodes), name, NodeType.COMM_COLL_NODE, data_deps=after, attributes=attributes))
    return writer.encode(writer.metadata(), nodes)


def _after(number: int) -> list[int]:
    return [number - 1] if number else []


def _compute(number: int, compute_ns: int, name: str) -> Any:
    attributes = {"is_cpu_op": False, "duration_ns": compute_ns}
    return writer.node(number, name, NodeType.COMP_NODE, data_deps=_after(number), attributes=attributes)


def samples(
    npus: int, *, duration_micros: int = 5, tensor_bytes: int = 1024, comm_bytes: int = 65536
) -> dict[str, list[bytes]]:
    """The fourteen traces of `chakra_generator` (mlcommons/chakra, 2026-05): name -> file of every rank.

    Ids count on through ranks and traces, as there.
    """
    sizes = {"duration_micros": duration_micros, "tensor_size": tensor_bytes, "comm_size": comm_bytes}
    made: dict[str, list[bytes]] = {}
    number = 0
    for name, sample in SAMPLES.items():
        made[name] = []
        for _ in range(npus):
            nodes = sample(number, sizes)
            number += len(nodes)
            made[name].append(writer.encode(writer.metadata("1.0.0"), nodes))
    return made


Sample = Callable[[int, dict[str, int]], list[Any]]


def _memory(kind: NodeType) -> Sample:
    def sample(number: int, sizes: dict[str, int]) -> list[Any]:
        attributes = {"is_cpu_op": False, "tensor_size": sizes["tensor_size"]}
        return [writer.node(number, kind.name, kind, attributes=attributes)]

    return sample


def _computes(count: int, dependent: bool) -> Sample:
    def sample(number: int, sizes: dict[str, int]) -> list[Any]:
        return [
            writer.node(
                number + index,
                "COMP_NODE",
                NodeType.COMP_NODE,
                data_deps=[number + index - 1] if dependent and index else [],
                duration_micros=sizes["duration_micros"],
                attributes={"is_cpu_op": False},
            )
            for index in range(count)
        ]

    return sample


def _one(kind: CommType) -> Sample:
    def sample(number: int, sizes: dict[str, int]) -> list[Any]:
        size_bytes = 0 if kind == CommType.BARRIER else sizes["comm_size"]
        attributes = {"is_cpu_op": False, "comm_type": int(kind), "comm_size": size_bytes}
        return [writer.node(number, kind.name, NodeType.COMM_COLL_NODE, attributes=attributes)]

    return sample


# A value of every kind of attribute.
_SIGNED = [12345, -23456]
_TEN = [str(number) for number in range(12345, 12355)]
_ATTRIBUTES: dict[str, Any] = {
    "double": 1.2345,
    "double_list": [1.2345, 2.3456],
    "float": 1.2345,
    "float_list": [1.2345, 2.3456],
    "int32": 12345,
    "int32_list": [12345, 23456],
    "int64": 9876543210,
    "int64_list": [9876543210, 1234567890],
    "uint32": 12345,
    "uint32_list": [12345, 23456],
    "uint64": 9876543210,
    "uint64_list": [9876543210, 1234567890],
    "sint32": -12345,
    "sint32_list": _SIGNED,
    "sint64": -9876543210,
    "sint64_list": [9876543210, -1234567890],
    "fixed32": 12345,
    "fixed32_list": [12345, 23456],
    "fixed64": 9876543210,
    "fixed64_list": [9876543210, 1234567890],
    "sfixed32": -12345,
    "sfixed32_list": _SIGNED,
    "sfixed64": -9876543210,
    "sfixed64_list": [9876543210, -1234567890],
    "bool": True,
    "bool_list": [True, False] * 5,
    "string": "12345",
    "string_list": _TEN,
    "bytes": b"12345",
    "bytes_list": [text.encode() for text in _TEN],
}
# These attributes carry their name as documentation, too.
_DOCUMENTED = {"double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string"}


def _every_attribute(number: int, sizes: dict[str, int]) -> list[Any]:
    """A METADATA node with an attribute of every kind."""
    made = writer.node(number, "METADATA_NODE", NodeType.METADATA_NODE)
    for kind, value in _ATTRIBUTES.items():
        writer.add_attribute(made, kind, value, kind, kind if kind in _DOCUMENTED else "")
    return [made]


SAMPLES: dict[str, Sample] = {
    "one_metadata_node_all_types": _every_attribute,
    "one_remote_mem_load_node": _memory(NodeType.MEM_LOAD_NODE),
    "one_remote_mem_store_node": _memory(NodeType.MEM_STORE_NODE),
    "one_comp_node": _computes(1, dependent=False),
    "two_comp_nodes_independent": _computes(2, dependent=False),
    "two_comp_nodes_dependent": _computes(2, dependent=True),
    "ALL_REDUCE": _one(CommType.ALL_REDUCE),
    "ALL_TO_ALL": _one(CommType.ALL_TO_ALL),
    "ALL_GATHER": _one(CommType.ALL_GATHER),
    "REDUCE_SCATTER": _one(CommType.REDUCE_SCATTER),
    "BROADCAST": _one(CommType.BROADCAST),
    "BARRIER": _one(CommType.BARRIER),
    "one_comm_send_node": _memory(NodeType.COMM_SEND_NODE),
    "one_comm_recv_node": _memory(NodeType.COMM_RECV_NODE),
}
"""The traces in the order in which they take their ids; sends and receives name no peer, as in the original."""
