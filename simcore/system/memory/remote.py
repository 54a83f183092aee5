"""Remote memory of ASTRA-sim 2.x: loads and stores of MEM nodes, shared by nobody, by a node's NPUs or by all."""

from __future__ import annotations

from msgspec import Struct

from simcore import documents
from simcore.errors import Problems

TYPES = ["NO_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "MEMORY_POOL"]


class RemoteMemory(Struct, frozen=True):
    """Latency and bandwidth of one transfer; `npus_per_node` share a port (0: each has its own, -1: all share one).

    `max_npus` is how many there are ports for (0: no limit).
    """

    latency_ns: int = 0
    bytes_per_ns: float = 1.0
    npus_per_node: int = 0
    max_npus: int = 0

    def transfer_ns(self, size_bytes: int) -> int:
        """Time of one transfer."""
        return int(size_bytes / self.bytes_per_ns) + self.latency_ns

    def port(self, npu: int) -> int:
        """Which port an NPU's transfers queue at."""
        if self.npus_per_node < 0:
            return 0
        return npu // self.npus_per_node if self.npus_per_node else npu


def read(path: str) -> RemoteMemory | None:
    """A remote memory file; None when it says that there is none."""
    with Problems() as problems:
        root = documents.read(path, problems)
        shared = ("remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node")
        root.keys(required=("memory-type",), optional=shared)
        kind = root["memory-type"].choice(TYPES) if "memory-type" in root else None
        if kind is None or kind == "NO_MEMORY_EXPANSION":
            return None
        shares = {"PER_NPU_MEMORY_EXPANSION": 0, "MEMORY_POOL": -1}
        root.keys(required=("memory-type", *(shared[:2] if kind in shares else shared)), optional=shared)
        if problems.found:
            return None
        per_node = shares[kind] if kind in shares else root["num-npus-per-node"].integer(1)
        max_npus = 0 if kind in shares else per_node * root["num-nodes"].integer(1)
        return RemoteMemory(root[shared[0]].integer(), root[shared[1]].number(above=True), per_node, max_npus)
