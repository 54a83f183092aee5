"""Whether an explicit plan performs a collective: whose contribution to which chunk is where at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from simcore.system.plans.plan import Plan
from simcore.workload.model import CollectiveKind

MOST_PLACES = 1 << 22  # ranks times chunks: a proof holds a number for each
_SHOWN = 8


ALL, ROOT, OWNER, RECEIVER = "all", "root", "owner", "receiver"
# What a collective is: which ranks want a chunk at the end, and whose contributions to it.
WANTED = {
    CollectiveKind.ALL_REDUCE: (ALL, ALL),
    CollectiveKind.REDUCE: (ROOT, ALL),
    CollectiveKind.REDUCE_SCATTER: (OWNER, ALL),
    CollectiveKind.BROADCAST: (ALL, ROOT),
    CollectiveKind.SCATTER: (OWNER, ROOT),
    CollectiveKind.GATHER: (ROOT, OWNER),
    CollectiveKind.ALL_GATHER: (ALL, OWNER),
    CollectiveKind.BARRIER: (ALL, OWNER),
    CollectiveKind.ALL_TO_ALL: (RECEIVER, OWNER),
}


def apart(kind: CollectiveKind) -> bool:
    """Whether ranks begin with data of their own, not with their contributions to the same ones."""
    return WANTED[kind][1] == OWNER


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
        parts = {OWNER, RECEIVER}.intersection(WANTED[self.kind])
        return int(self.size ** len(parts))

    def _ranks(self, who: str, chunk: int) -> int:
        """Bits of the ranks that are meant, of a chunk."""
        if who == ALL:
            return (1 << self.size) - 1
        if who == ROOT:
            return 1 << self.root
        if who == OWNER:
            return 1 << chunk * self.size // self.chunks
        return 1 << chunk * self.multiple // self.chunks % self.size

    def wanted(self, rank: int, chunk: int) -> int:
        """Bits of the ranks whose contributions to a chunk a rank must hold at the end, 0 = none."""
        who, whose = WANTED[self.kind]
        return self._ranks(whose, chunk) if self._ranks(who, chunk) >> rank & 1 else 0

    def held(self, rank: int, chunk: int) -> int:
        """Bits of the contributions to a chunk that a rank has at the beginning: its own, or none."""
        return self._ranks(WANTED[self.kind][1], chunk) & 1 << rank


class Fault(Struct, frozen=True):
    """What is wrong with a plan, and by which of its transfers (-1: what is missing at the end)."""

    message: str
    transfer: int = -1


def faults(plan: Plan, claim: Claim) -> Iterator[Fault]:
    """Everything by which a plan does not perform a collective.

    A rank sends what it holds before the step. A chunk that is sent without being there, and a contribution that would
    count twice, are faults of a transfer; a contribution that is missing or too much at the end, of the plan.
    """
    held = {(rank, chunk): claim.held(rank, chunk) for rank in range(claim.size) for chunk in range(claim.chunks)}
    for _, step in groupby(enumerate(plan.transfers), key=lambda pair: pair[1].step):
        sent = [(index, entry, chunk, held[entry.src, chunk]) for index, entry in step for chunk in entry.chunks]
        for index, entry, chunk, data in sent:
            there = held[entry.dst, chunk] if entry.reduce else 0
            if not data:
                text = f"rank {entry.src} sends chunk {chunk}, which it does not hold in step {entry.step}"
                yield Fault(text, index)
            elif data & there:
                whose = of_whom(data & there)
                text = f"chunk {chunk} of {whose} is reduced a second time into that of rank {entry.dst}"
                yield Fault(text, index)
            held[entry.dst, chunk] = there | data
    several = claim.held(0, 0) and claim.held(1 % claim.size, 0)
    for (rank, chunk), data in held.items():
        wanted = claim.wanted(rank, chunk)
        if wanted & ~data:
            whose = f" of {of_whom(wanted & ~data)}" if several else ""
            yield Fault(f"rank {rank} misses chunk {chunk}{whose} at the end")
        elif wanted and data & ~wanted:
            yield Fault(f"chunk {chunk} of rank {rank} holds too much at the end: that of {of_whom(data & ~wanted)}")


def of_whom(bits: int) -> str:
    """The ranks of some bits in words."""
    found = [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
    shown = ", ".join(map(str, found[:_SHOWN]))
    return f"rank{'s' if len(found) > 1 else ''} {shown}{', ..' if len(found) > _SHOWN else ''}"
