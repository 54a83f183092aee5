"""What a recorded communication kernel moves: kind, bytes and ranks, as NCCL's arguments tell them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from simcore.workload.kineto import Collective
from simcore.workload.model import CollectiveKind
from simcore.workload.operations import SEND, kind_of

__all__ = ["Transfer", "bus_bytes", "transfer_of"]

UNHEARD_OF_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective of `ranks`, or a transfer from the first of two ranks to the second.

    `size_bytes` is what a rank puts in, 0 = not said; `share` is by how much another group changes it.
    """

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    share: float = 1.0

    @property
    def sized(self) -> bool:
        """Whether a network can time it."""
        return self.size_bytes > 0 or self.kind == CollectiveKind.BARRIER

    @property
    def sent_bytes(self) -> int:
        """What a rank puts in, with the share; at least a byte."""
        return max(round(self.size_bytes * self.share), 1)


@cache
def transfer_of(said: Collective) -> Transfer | None:
    """What a kernel moves; a group of which only the size is known stands on the first ranks. None: not said."""
    kind = kind_of(said.operation)
    ranks = (said.ends or ()) if kind == SEND else said.ranks or tuple(range(said.size))
    known = kind and ranks and len(set(ranks)) == len(ranks)
    size_bytes = said.size_bytes if 0 <= said.size_bytes < UNHEARD_OF_BYTES else 0
    return Transfer(kind, size_bytes, ranks) if known else None


def bus_bytes(transfer: Transfer) -> float:
    """What one rank sends at least, in multiples of `size_bytes`: nccl-tests' convention of bus bandwidth."""
    ranks = len(transfer.ranks)
    factors = {
        CollectiveKind.ALL_REDUCE: 2 * (ranks - 1) / ranks,
        CollectiveKind.REDUCE_SCATTER: (ranks - 1) / ranks,
        CollectiveKind.ALL_TO_ALL: (ranks - 1) / ranks,
        CollectiveKind.ALL_GATHER: ranks - 1,
    }
    return transfer.share * {str(kind): factor for kind, factor in factors.items()}.get(transfer.kind, ranks > 1)
