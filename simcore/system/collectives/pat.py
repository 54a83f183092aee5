"""PAT: gather down, or reduce up, one tree per rank, all trees at once (Jeaugey, arXiv 2506.20252; NCCL 2.23)."""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms, check_kind
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("pat")
def pat(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """ceil(log2 n) rounds for any n, the farthest partner first and with the least data: Bruck's dimensions reversed.

    All-gather: in the round of hop h, all parts go on by h that lie a multiple of 2 h behind and do not come too far
    round. A reduce-scatter is the same backwards, reducing. With room for all parts (NCCL sends fewer at once when its
    buffers are too small).
    """
    check_kind("pat", kind)
    hops = [1 << level for level in reversed(range((size - 1).bit_length()))]
    parts = [(size - hop + 2 * hop - 1) // (2 * hop) for hop in hops]
    if kind == CollectiveKind.ALL_GATHER:
        return Plan(size, tuple((Round(hop, count * data_bytes), 1) for hop, count in zip(hops, parts, strict=True)))
    share = data_bytes // size
    back = reversed(list(zip(hops, parts, strict=True)))
    return Plan(size, tuple((Round(size - hop, count * share, count * share), 1) for hop, count in back))
