"""Whether an explicit plan performs a collective: whose contribution to which chunk is where at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from simcore.system.plans.plan import Explicit, Transfer
from simcore.workload.model import CollectiveKind

_SHOWN = 8


class Claim(Struct, frozen=True):
    """A collective on `size` ranks whose data are cut into `chunks` equal pieces.

    All-reduce, reduce and broadcast cut one vector. All-gather, reduce-scatter, gather and scatter have as many chunks
    of every rank, rank by rank. An all-to-all has as many for every pair, by sender and then by receiver. A barrier is
    an all-gather of nothing.
    """

    kind: CollectiveKind
    size: int
    chunks: int
    root: int = 0

    @property
    def multiple(self) -> int:
        """The number of chunks must be a multiple of this."""
        whole = {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.BROADCAST}
        if self.kind in whole:
            return 1
        return self.size**2 if self.kind == CollectiveKind.ALL_TO_ALL else self.size

    def owner(self, chunk: int) -> int:
        """The rank that a chunk begins at (all-gather, gather, all-to-all) or ends at (reduce-scatter, scatter)."""
        return chunk * self.size // self.chunks

    def wanted(self, rank: int, chunk: int) -> int:
        """Bits of the ranks whose contributions to a chunk a rank must hold at the end, 0 = none."""
        everybody = (1 << self.size) - 1
        match self.kind:
            case CollectiveKind.ALL_REDUCE:
                return everybody
            case CollectiveKind.REDUCE:
                return everybody * (rank == self.root)
            case CollectiveKind.REDUCE_SCATTER:
                return everybody * (rank == self.owner(chunk))
            case CollectiveKind.BROADCAST:
                return 1 << self.root
            case CollectiveKind.SCATTER:
                return (rank == self.owner(chunk)) << self.root
            case CollectiveKind.GATHER:
                return (rank == self.root) << self.owner(chunk)
            case CollectiveKind.ALL_TO_ALL:
                return (rank == chunk * self.multiple // self.chunks % self.size) << self.owner(chunk)
            case _:
                return 1 << self.owner(chunk)

    def held(self, rank: int, chunk: int) -> int:
        """Bits of the contributions to a chunk that a rank has at the beginning: its own, or none."""
        reducing = {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.REDUCE_SCATTER}
        rooted = {CollectiveKind.BROADCAST, CollectiveKind.SCATTER}
        mine = self.kind in reducing or rank == (self.root if self.kind in rooted else self.owner(chunk))
        return mine << rank


class Fault(Struct, frozen=True):
    """What is wrong with a plan, and by which of its transfers (-1: what is missing at the end)."""

    message: str
    transfer: int = -1


def faults(plan: Explicit, claim: Claim) -> Iterator[Fault]:
    """Everything by which a plan does not perform a collective.

    A rank sends what it holds before the step. A chunk that is sent without being there, and a contribution that would
    count twice, are faults of a transfer; a contribution that is missing or too much at the end, of the plan.
    """
    held = {
        (rank, chunk): claim.held(rank, chunk) for rank in range(claim.size) for chunk in range(claim.chunks)
    }  # fmt: skip
    for _, step in groupby(enumerate(plan.transfers), key=lambda pair: pair[1].step):
        sent = [
            (index, entry, chunk, held[entry.src, chunk]) for index, entry in step for chunk in entry.chunks
        ]  # fmt: skip
        for index, entry, chunk, data in sent:
            there = held[entry.dst, chunk] if entry.reduce else 0
            fault = _fault(entry, chunk, data, there)
            if fault:
                yield Fault(fault, index)
            held[entry.dst, chunk] = there | data
    for (rank, chunk), data in held.items():
        wanted = claim.wanted(rank, chunk)
        if wanted & ~data:
            yield Fault(f"rank {rank} misses chunk {chunk}{_of(claim, wanted & ~data)} at the end")
        elif wanted and data & ~wanted:
            yield Fault(f"chunk {chunk} of rank {rank} holds too much at the end: that of {of_whom(data & ~wanted)}")


def _fault(entry: Transfer, chunk: int, data: int, there: int) -> str:
    """What is wrong with sending `data` of a chunk to where `there` is."""
    if not data:
        return f"rank {entry.src} sends chunk {chunk}, which it does not hold in step {entry.step}"
    if data & there:
        return f"chunk {chunk} of {of_whom(data & there)} is reduced a second time into that of rank {entry.dst}"
    return ""


def _of(claim: Claim, missing: int) -> str:
    """Whose contribution is missing, where there are several."""
    return f" of {of_whom(missing)}" if claim.held(0, 0) and claim.held(1 % claim.size, 0) else ""


def of_whom(bits: int) -> str:
    """The ranks of some bits in words."""
    found = [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
    shown = ", ".join(map(str, found[:_SHOWN]))
    return f"rank{'s' if len(found) > 1 else ''} {shown}{', ..' if len(found) > _SHOWN else ''}"
