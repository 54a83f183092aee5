"""A collective on n ranks as rounds of transfers, in relative form: every rank does the same with other peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, repeat


class Symmetry(IntEnum):
    """What may be done with the ranks of a plan that then is the same as before: the more the higher."""

    NONE = 0
    """Nothing: every rank has its own part."""
    EXCHANGES = 1
    """All ranks may become rank XOR something."""
    TURNS = 2
    """All ranks may move on by some places."""


@dataclass(frozen=True, slots=True)
class Round:
    """Every rank sends `size_bytes` to the rank `hop` positions on and receives as much from the one behind.

    `reduce_bytes` are reduced into the rank's own data after the receive.
    """

    hop: int
    size_bytes: int
    reduce_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds with their number of repetitions.

    Round k may be sent once `window` rounds are in flight at most: k < window at once, later ones after the receive of
    round k - window. `exchange` pairs rank and rank XOR hop in place of rank + hop. After `half` rounds (0 = none) a
    rank goes on only when it has received all of them.
    """

    size: int
    rounds: tuple[tuple[Round, int], ...]
    window: int = 1
    exchange: bool = False
    half: int = 0

    @property
    def symmetry(self) -> Symmetry:
        """Where two ranks are exchanged, they are turned."""
        return Symmetry.EXCHANGES if self.exchange and self.size > 2 else Symmetry.TURNS

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plans that run at once: itself."""
        return (self,)

    @property
    def num_rounds(self) -> int:
        """Messages that each rank sends."""
        return sum(count for _, count in self.rounds)

    def bytes_of(self, rank: int) -> int:
        """Bytes that a rank sends."""
        return sum(entry.size_bytes * count for entry, count in self.rounds)

    def expanded(self) -> Iterator[Round]:
        """Every round, in order."""
        for entry, count in self.rounds:
            yield from repeat(entry, count)

    def peer(self, rank: int, hop: int) -> int:
        """To whom `rank` sends in a round of `hop`."""
        return rank ^ hop if self.exchange else (rank + hop) % self.size

    def source(self, rank: int, hop: int) -> int:
        """From whom `rank` receives in a round of `hop`."""
        return rank ^ hop if self.exchange else (rank - hop) % self.size

    def __str__(self) -> str:
        arrow = "^" if self.exchange else "+"
        return "  ".join(f"{count}x {arrow}{entry.hop} {entry.size_bytes} B" for entry, count in self.rounds)


def numbered(parts: Sequence[Plan]) -> list[tuple[int, Plan]]:
    """Plans that run at once, each with the number of its first message."""
    return list(zip(accumulate((part.num_rounds for part in parts), initial=0), parts, strict=False))


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Plans of the same ranks that run at once and do not wait for each other; a rank is done when all are."""

    parts: tuple[Plan, ...]

    @property
    def symmetry(self) -> Symmetry:
        """What may be done with all of them."""
        return min(plan.symmetry for plan in self.parts)

    def bytes_of(self, rank: int) -> int:
        """Bytes that a rank sends."""
        return sum(plan.bytes_of(rank) for plan in self.parts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class InNetwork:
    """An all-reduce that a switch does: every rank sends all its `size_bytes` up once, and gets as many down.

    The switch adds `latency_ns`, and reduces no faster than `bytes_per_s` (0: as fast as the bytes come).
    """

    size_bytes: int
    latency_ns: int = 0
    bytes_per_s: float = 0.0
    symmetry = Symmetry.TURNS

    def bytes_of(self, rank: int) -> int:
        """Bytes that a rank sends."""
        return self.size_bytes
