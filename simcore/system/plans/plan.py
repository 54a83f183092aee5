"""What a collective on n ranks sends: rounds that every rank does alike with other peers, or transfers rank by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.network.topology.moves import Exchanges, Moves, Symmetry, Turns


@dataclass(frozen=True, slots=True)
class Round:
    """Every rank sends `size_bytes` to the rank `hop` positions on and receives as much from the one behind.

    `reduce_bytes` are reduced into the rank's own data after the receive.
    """

    hop: int
    size_bytes: int
    reduce_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """In `step`, rank `src` sends what it holds of `chunks` to rank `dst`, `size_bytes` in all.

    With `reduce` it is reduced into what `dst` holds, otherwise it takes its place. `charge_bytes` are those whose
    reduction costs time. `waits` numbers the transfers to `src` of earlier steps that must have come, where not those
    that bring its chunks. What goes from one rank to another in one `line` keeps its order.
    """

    step: int
    src: int
    dst: int
    chunks: tuple[int, ...]
    size_bytes: int
    reduce: bool = False
    charge_bytes: int = 0
    waits: tuple[int, ...] | None = None
    line: int = 0

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


class Switch(NamedTuple):
    """A switch that reduces: it adds `latency_ns`, and is no faster than `bytes_per_s` (0: as fast as bytes come)."""

    latency_ns: int = 0
    bytes_per_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Plan:
    """What `size` ranks send, written in one of two ways: as `rounds` that all do alike, or as `transfers` of each.

    Rounds are given with their number of repetitions. Round k may be sent once `window` rounds are in flight at most:
    k < window at once, later ones after the receive of round k - window. `exchange` pairs rank and rank XOR hop in
    place of rank + hop; with the `own` moves of a network, a hop is where the move goes that brings rank 0 there. After
    `half` rounds (0 = none) a rank goes on only when it has received all of them. Plans
    `beside` run at once and do not wait for each other; a rank is done when all are. With a `switch`, it reduces the
    one message of every rank and sends as much back.

    Transfers stand by ascending step; `of` sorts them. Steps say what follows what, not when: a transfer begins as soon
    as its sender holds what earlier steps bring of its chunks, and those before it in its line are sent.
    With `multicast`, a step's transfers of the same chunks by the same rank are one message to many.
    """

    size: int
    rounds: tuple[tuple[Round, int], ...] = ()
    window: int = 1
    exchange: bool = False
    own: Moves | None = None
    half: int = 0
    beside: tuple[Plan, ...] = ()
    switch: Switch | None = None
    transfers: tuple[Transfer, ...] = ()
    multicast: bool = False

    @classmethod
    def of(cls, size: int, transfers: Iterable[Transfer]) -> Plan:
        """A plan of transfers in any order."""
        return cls(size, transfers=tuple(sorted(transfers, key=attrgetter("step"))))

    @cached_property
    def moves(self) -> Moves:
        """What a hop does; where two are exchanged, they are turned."""
        return self.own or (Exchanges() if self.exchange and self.size > 2 else Turns(self.size))

    @property
    def symmetries(self) -> frozenset[Symmetry]:
        """The moves of ranks after which each of its parts is the same as before."""
        return frozenset(part.moves.symmetry if part.rounds else Symmetry.NONE for _, part in self.parts)

    @property
    def playable(self) -> bool:
        """Whether messages go from one rank to one other, at times that ranks alone decide."""
        return not (self.multicast or self.switch)

    @property
    def plain(self) -> bool:
        """Whether it is nothing but rounds, one after the other."""
        return bool(self.rounds) and self.playable and not self.beside

    @cached_property
    def parts(self) -> tuple[tuple[int, Plan], ...]:
        """The plans that run at once, each with the number of its first message."""
        plans = (replace(self, beside=()), *self.beside) if self.beside else (self,)
        return tuple(zip(accumulate((plan.num_rounds for plan in plans), initial=0), plans, strict=False))

    @property
    def num_rounds(self) -> int:
        """Messages that each rank sends of these rounds."""
        return sum(count for _, count in self.rounds)

    def bytes_of(self, rank: int) -> int:
        """Bytes that a rank sends."""
        if self.transfers:
            return sum(self.transfers[index].size_bytes for index in self.sends[rank])
        return sum(entry.size_bytes * count for _, part in self.parts for entry, count in part.rounds)

    @property
    def least_bytes(self) -> int:
        """The size of its smallest message."""
        sizes = [entry.size_bytes for _, part in self.parts for entry, _ in part.rounds]
        return min([*sizes, *(entry.size_bytes for entry in self.transfers)], default=0)

    @cached_property
    def expanded(self) -> list[Round]:
        """Every round, in order."""
        return [entry for entry, count in self.rounds for _ in range(count)]

    def peer(self, rank: int, hop: int) -> int:
        """To whom `rank` sends in a round of `hop`."""
        return self.moves.on(rank, hop)

    def source(self, rank: int, hop: int) -> int:
        """From whom `rank` receives in a round of `hop`."""
        return self.moves.back(rank, hop)

    def peers(self, hop: int | NDArray[np.int64], count: int | None = None) -> NDArray[np.int64]:
        """To whom ranks send: the first `count`, or all; a row for each of several hops, which are a column."""
        return self.moves.on(np.arange(self.size if count is None else count), np.asarray(hop))

    def ends(self, count: int) -> NDArray[np.int64]:
        """Senders and receivers of messages, each pair at least once; of rounds those that the first `count` send."""
        pairs = sorted({(entry.src, entry.dst) for entry in self.transfers})
        found = [np.array(pairs, np.int64).reshape(-1, 2).T]
        for _, part in self.parts:
            hops = dict.fromkeys(entry.hop for entry, _ in part.rounds)
            found += [np.stack([np.arange(count), part.peers(hop, count)]) for hop in hops]
        return np.concatenate(found, axis=1)

    def comes(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """From whom a rank receives a message of which size, and its number, in the order of the numbers."""
        for index in self.receives[rank] if self.transfers else ():
            yield self.transfers[index].src, self.transfers[index].size_bytes, index
        for first, part in self.parts:
            for number, entry in enumerate(part.expanded, first):
                yield part.source(rank, entry.hop), entry.size_bytes, number

    def asks(self, rank: int, number: int) -> Iterator[tuple[int, int]]:
        """Whom a rank asks for which messages under rendezvous once it has sent message `number` (-1: at first)."""
        for index in self.receives[rank] if self.transfers else ():
            if self._asked_after[index] == number:
                yield self.transfers[index].src, index
        for first, part in self.parts:
            if 0 <= number - first < len(part.expanded):
                yield part.source(rank, part.expanded[number - first].hop), number

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """For every transfer, those to its sender that made its chunks what they are: a copy, and reductions since.

        Or those that it says it waits for.
        """
        made: dict[tuple[int, int], list[int]] = {}
        found: list[tuple[int, ...]] = []
        for _, step in groupby(enumerate(self.transfers), key=lambda pair: pair[1].step):
            together = list(step)
            for _, entry in together:
                sources = {index for chunk in entry.chunks for index in made.get((entry.src, chunk), ())}
                found.append(tuple(sorted(sources)) if entry.waits is None else entry.waits)
            for index, entry in together:
                for chunk in entry.chunks:
                    before = made.get((entry.dst, chunk), []) if entry.reduce else []
                    made[entry.dst, chunk] = [*before, index]
        return tuple(found)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """For every transfer, those that wait for it."""
        return _turned(self.after, len(self.transfers))

    @cached_property
    def behind(self) -> dict[int, int]:
        """Which transfer follows each one in its line."""
        found: dict[int, int] = {}
        last: dict[tuple[int, int, int], int] = {}
        for index, entry in enumerate(self.transfers):
            line = entry.src, entry.dst, entry.line
            if line in last:
                found[last[line]] = index
            last[line] = index
        return found

    @cached_property
    def waits(self) -> tuple[int, ...]:
        """For every transfer, how many others it waits for: those that must have come, and the one before it."""
        followers = set(self.behind.values())
        return tuple(len(after) + (index in followers) for index, after in enumerate(self.after))

    @cached_property
    def _asked_after(self) -> tuple[int, ...]:
        """For every transfer, the last one that its receiver sends in an earlier step, -1 where there is none."""
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
        return _turned(((entry.src,) for entry in self.transfers), self.size)

    @cached_property
    def receives(self) -> tuple[tuple[int, ...], ...]:
        """The transfers that each rank receives, in order."""
        return _turned(((entry.dst,) for entry in self.transfers), self.size)

    def __str__(self) -> str:
        if self.rounds:
            arrows = ("^" if part.exchange else "+" for _, part in self.parts)
            return "\n".join(
                "  ".join(f"{count}x {arrow}{entry.hop} {entry.size_bytes} B" for entry, count in part.rounds)
                for arrow, (_, part) in zip(arrows, self.parts, strict=True)
            )
        steps = groupby(self.transfers, key=attrgetter("step"))
        return "\n".join(f"{step}: {'  '.join(map(str, entries))}" for step, entries in steps)


def _turned(rows: Iterable[Iterable[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """For each of so many numbers, the places of the rows that it is in, in order."""
    found: list[list[int]] = [[] for _ in range(count)]
    for place, numbers in enumerate(rows):
        for number in numbers:
            found[number].append(place)
    return tuple(map(tuple, found))
