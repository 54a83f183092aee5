"""A collective as a list of transfers: who sends which chunks to whom in which step, rank by rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from simcore.system.plan import Symmetry


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
