"""Who holds what: mixed-radix ranks, contiguous splits of batches and experts over nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcore.generate.wse.settings import System

Ints = npt.NDArray[np.int64]


def split(count: int, buckets: int) -> list[range]:
    """`count` items in contiguous buckets; the first `count % buckets` get one more.

    >>> split(5, 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    share, more = divmod(count, buckets)
    starts = [bucket * share + min(bucket, more) for bucket in range(buckets + 1)]
    return [range(first, last) for first, last in pairwise(starts)]


class Groups(NamedTuple):
    """The nodes that are with a node, itself among them, ascending.

    `tp` and `sp` are its tensor and sequence parallel peers in attention, `dp` those in the same place of the other
    data parallel clusters. `replicas` have the same weights of attention in the stage, `cluster` the same batches,
    `stage` is that of the pipeline, `copy` holds the same copy of the experts.
    """

    tp: tuple[int, ...]
    sp: tuple[int, ...]
    dp: tuple[int, ...]
    replicas: tuple[int, ...]
    cluster: tuple[int, ...]
    stage: tuple[int, ...]
    copy: tuple[int, ...]


def groups(system: System, node: int) -> Groups:
    """Those that differ from `node` only in the coordinate of a stride and degree."""

    def along(stride: int, degree: int) -> tuple[int, ...]:
        first = node - (node // stride % degree) * stride
        return tuple(range(first, first + stride * degree, stride))

    tp, sp, dp, cluster = system.tp, system.sp, system.dp, system.cluster_nodes
    larger = along(1, cluster), along(1, system.stage_nodes), along(1, system.replica_nodes)
    return Groups(along(1, tp), along(tp, sp), along(cluster, dp), along(tp, sp * dp), *larger)


def local_batches(system: System, batch: int, node: int) -> range:
    """The sequences that attention on `node` works on."""
    return split(batch, system.dp)[node % system.stage_nodes // system.cluster_nodes]


def own_batches(system: System, batch: int, node: int) -> range:
    """Those of its cluster's sequences that `node` sends to the experts."""
    local = local_batches(system, batch, node)
    own = split(len(local), system.cluster_nodes)[node % system.cluster_nodes]
    return local[own.start : own.stop]


def dispatch_sources(system: System, batch: int) -> Ints:
    """Place in the stage of the node that sends each sequence to the experts: shape [batch]."""
    owned = [len(own_batches(system, batch, node)) for node in range(system.stage_nodes)]
    return np.repeat(np.arange(system.stage_nodes), owned)


def expert_nodes(system: System, experts: int) -> Ints:
    """Place in its copy of the experts of the node that holds each routed expert: shape [experts]."""
    return np.repeat(np.arange(system.ep), [len(held) for held in split(experts, system.ep)])


def shared_nodes(system: System, batch: int) -> Ints:
    """Place among its nodes of the copy of the shared expert that serves each sequence: shape [batch].

    Copies stand `replica_nodes // copies` apart and are chosen by the number of the sequence, not by distance.
    """
    apart = system.replica_nodes // system.shared_copies
    served = [len(served) for served in split(batch, system.shared_copies)]
    return np.repeat(np.arange(system.shared_copies) * apart, served)
