"""What NCCL, PyTorch and PARAM call communication."""

from __future__ import annotations

from simcore.workload.model import CollectiveKind

__all__ = ["SEND", "kind_of"]

SEND = "send"
# Names without underscores; a name holds one of these, the first of them counts.
KINDS: dict[str, str] = {
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "multicast": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "gather": CollectiveKind.GATHER,
    "incast": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
    "barrier": CollectiveKind.BARRIER,
    "send": SEND,
    "recv": SEND,
}


def kind_of(operation: str) -> str:
    """A value of `CollectiveKind`, `SEND` for both sides of a transfer, "" for what is neither.

    >>> kind_of("ncclDevKernel_AllReduce_Sum_f32"), kind_of("all_to_allv"), kind_of("irecv"), kind_of("gemm")
    (<CollectiveKind.ALL_REDUCE: 'all_reduce'>, <CollectiveKind.ALL_TO_ALL: 'all_to_all'>, 'send', '')
    """
    name = operation.lower().replace("_", "")
    return next((kind for known, kind in KINDS.items() if known in name), "")
