"""What a collective on n ranks sends: rounds that every rank does alike with other peers, or transfers rank by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate, groupby, repeat
from operator import attrgetter


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


@dataclass(frozen=True, slots=True)
class Transfer:
    """In `step`, rank `src` sends what it holds of `chunks` to rank `dst`, `size_bytes` in all.

    With `reduce` it is reduced into what `dst` holds, otherwise it takes its place. `charge_bytes` are those whose
    reduction costs time.
    """

    step: int
    src: int
    dst: int
    chunks: tuple[int, ...]
    size_bytes: int
    reduce: bool = False
    charge_bytes: int = 0

    def __str__(self) -> str:
        chunks = ",".join(map(str, self.chunks))
        return f"{self.src}{'+' if self.reduce else '-'}>{self.dst} [{chunks}] {self.size_bytes} B"


def backwards(transfers: Sequence[Transfer], *, reduce: bool) -> list[Transfer]:
    """The same transfers the other way, the last first; they are reduced where they go together, if that is wanted."""
    last = max((entry.step for entry in transfers), default=0)
    return [
        Transfer(last - entry.step, entry.dst, entry.src, entry.chunks, entry.size_bytes, reduce,
                 entry.size_bytes * reduce)
        for entry in reversed(transfers)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Explicit:
    """Transfers between ranks 0 .. size-1, by ascending step; `ordered` sorts them.

    Steps say what follows what, not when: a transfer begins as soon as its sender holds what earlier steps bring of its
    chunks. Transfers between the same two ranks keep their order. With `multicast`, a step's transfers of the same
    chunks by the same rank are one message to many.
    """

    size: int
    transfers: tuple[Transfer, ...] = ()
    multicast: bool = False
    symmetry = Symmetry.NONE

    @classmethod
    def ordered(cls, size: int, transfers: Iterable[Transfer]) -> Explicit:
        """A plan of transfers in any order."""
        return cls(size, tuple(sorted(transfers, key=attrgetter("step"))))

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """For every transfer, those to its sender that made its chunks what they are: a copy, and reductions since."""
        made: dict[tuple[int, int], list[int]] = {}
        found: list[tuple[int, ...]] = []
        for _, step in groupby(enumerate(self.transfers), key=lambda pair: pair[1].step):
            together = list(step)
            for _, entry in together:
                sources = {index for chunk in entry.chunks for index in made.get((entry.src, chunk), ())}
                found.append(tuple(sorted(sources)))
            for index, entry in together:
                for chunk in entry.chunks:
                    before = made.get((entry.dst, chunk), []) if entry.reduce else []
                    made[entry.dst, chunk] = [*before, index]
        return tuple(found)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """For every transfer, those that wait for it."""
        found: list[list[int]] = [[] for _ in self.transfers]
        for index, sources in enumerate(self.after):
            for source in sources:
                found[source].append(index)
        return tuple(map(tuple, found))

    @cached_property
    def asked_after(self) -> tuple[int, ...]:
        """For every transfer, the last one that its receiver sends in an earlier step, -1 where there is none.

        Under rendezvous the receiver asks for the transfer then.
        """
        found = []
        last = [-1] * self.size
        for _, step in groupby(enumerate(self.transfers), key=lambda pair: pair[1].step):
            together = list(step)
            found += [last[entry.dst] for _, entry in together]
            for index, entry in together:
                last[entry.src] = index
        return tuple(found)

    @cached_property
    def copies(self) -> dict[int, tuple[int, ...]]:
        """The transfers that are one multicast, under the first of them."""
        together: dict[tuple[object, ...], list[int]] = {}
        for index, entry in enumerate(self.transfers):
            together.setdefault((entry.step, entry.src, entry.chunks), []).append(index)
        return {indexes[0]: tuple(indexes) for indexes in together.values()}

    @cached_property
    def sends(self) -> tuple[tuple[int, ...], ...]:
        """The transfers that each rank sends, in order."""
        return self._by_rank([entry.src for entry in self.transfers])

    @cached_property
    def receives(self) -> tuple[tuple[int, ...], ...]:
        """The transfers that each rank receives, in order."""
        return self._by_rank([entry.dst for entry in self.transfers])

    def bytes_of(self, rank: int) -> int:
        """Bytes that a rank sends."""
        return sum(self.transfers[index].size_bytes for index in self.sends[rank])

    def _by_rank(self, ranks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.size)]
        for index, rank in enumerate(ranks):
            found[rank].append(index)
        return tuple(map(tuple, found))

    def __str__(self) -> str:
        steps = groupby(self.transfers, key=attrgetter("step"))
        return "\n".join(f"{step}: {'  '.join(map(str, entries))}" for step, entries in steps)
