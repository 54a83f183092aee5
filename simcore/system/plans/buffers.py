"""Ranks' buffers played symbolically: what programs of MSCCL and MSCCL++ send, and whether it is a collective.

A slot holds a chunk of the data and the ranks whose contributions are in it. Steps of messages are how many messages
came before. What a rank receives into one slot and reduces later counts as reduced when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from simcore.errors import InputError, Location, closest
from simcore.system.plans.flow import MOST_PLACES, Claim, of_whom
from simcore.system.plans.plan import Transfer
from simcore.workload.model import CollectiveKind

SHOWN_FAULTS = 8
KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
OWN = {CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL}  # chunks of the input are a rank's own
Slot = tuple[str, int]
"""Buffer (i, o, s, or io where input and output are one) and place."""


class Place(Protocol):
    """Whatever knows where it stands in a file."""

    @property
    def location(self) -> Location:
        """Where it begins."""
        ...


@dataclass(slots=True)
class Message:
    """What goes from rank to rank, and of each value whether it is reduced into what is there."""

    step: int
    src: int
    dst: int
    values: list[Value]
    reduces: list[bool]

    def transfers(self) -> Iterator[Transfer]:
        """One, or two where only a part is reduced."""
        for reduce in (False, True):
            pairs = zip(self.values, self.reduces, strict=True)
            chunks = tuple(value.chunk for value, each in pairs if each == reduce)
            if chunks:
                yield Transfer(self.step, self.src, self.dst, chunks, 0, reduce)


@dataclass(frozen=True, slots=True)
class Value:
    """A chunk with the contributions of some ranks (bits), there after `level` messages; by which one it came."""

    chunk: int
    ranks: int
    level: int = 0
    message: Message | None = None
    at: int = 0


class Block(Protocol):
    """A thread block: its steps, and how many are done."""

    steps: list[Any]
    done: int


B = TypeVar("B", bound=Block)


def stuck(blocks: Collection[B], do: Callable[[B, Any], bool]) -> B | None:
    """Let all blocks do (or not yet) one step after the other, as far as they go; the first that does not end."""
    before = -1
    while before < (before := sum(block.done for block in blocks)):
        for block in blocks:
            while block.done < len(block.steps) and do(block, block.steps[block.done]):
                block.done += 1
    return next((block for block in blocks if block.done < len(block.steps)), None)


def collective_of(name: str, place: Place) -> CollectiveKind:
    """The collective that a program says it is."""
    known = name.replace("_", "").lower()
    if known not in KINDS:
        raise InputError.at(place.location, "no such collective", expected=closest(known, KINDS), found=repr(name))
    return KINDS[known]


class Buffers:
    """The buffers of all ranks, with `inputs` chunks of input each, and what has been sent so far."""

    def __init__(self, kind: CollectiveKind, size: int, inputs: int, place: Place, *, in_place: bool):
        self.size, self.in_place, self.inputs = size, in_place, inputs
        self.claim = Claim(kind, size, inputs * size if kind in OWN else inputs)
        if not inputs or inputs > MOST_PLACES // size**2 or self.claim.chunks % self.claim.multiple:
            expected = f"a multiple of {self.claim.multiple // (size if kind in OWN else 1)} above 0"
            raise InputError.at(place.location, "chunks of the input do not fit the collective", expected=expected)
        self.per_rank = inputs if kind == CollectiveKind.ALL_GATHER else inputs // size
        self.messages: list[Message] = []
        self._held: dict[tuple[int, Slot], Value] = {}
        for rank in range(size):
            for at in range(inputs):
                chunk = rank * inputs + at if kind in OWN else at
                self._held[rank, self.slot(rank, "i", at)] = Value(chunk, self.claim.held(rank, chunk))

    def slot(self, rank: int, buffer: str, at: int) -> Slot:
        """A slot; in place, input and output are one buffer."""
        kind = self.claim.kind
        if not self.in_place or buffer == "s" or kind == CollectiveKind.ALL_TO_ALL:
            return buffer, at
        part = (buffer, kind) in {("i", CollectiveKind.ALL_GATHER), ("o", CollectiveKind.REDUCE_SCATTER)}
        return "io", at + rank * self.per_rank * part

    def holds(self, rank: int, slot: Slot) -> bool:
        """Whether there is anything in a slot."""
        return (rank, slot) in self._held

    def get(self, rank: int, slot: Slot, place: Place) -> Value:
        """What is in a slot; InputError where nothing is."""
        if (rank, slot) not in self._held:
            text = f"rank {rank} has nothing in slot {slot[1]} of buffer {slot[0]}"
            raise InputError.at(place.location, text, expected="data to use")
        return self._held[rank, slot]

    def put(self, rank: int, slot: Slot, value: Value) -> None:
        """Fill a slot."""
        self._held[rank, slot] = value

    def send(self, step: int, src: int, dst: int, values: Sequence[Value]) -> list[Value]:
        """Send values; what arrives."""
        message = Message(step, src, dst, list(values), [False] * len(values))
        self.messages.append(message)
        return [replace(value, level=step + 1, message=message, at=at) for at, value in enumerate(values)]

    def reduced(self, values: Sequence[Value], place: Place) -> Value:
        """The sum of values of one chunk; InputError for different chunks and for what would count twice."""
        first, ranks, level = values[0], 0, 0
        for value in values:
            if value.chunk != first.chunk:
                found = f"{first.chunk}, {value.chunk}"
                raise InputError.at(place.location, "reduces two different chunks", expected="one", found=found)
            if twice := ranks & value.ranks:
                text = f"this is no {self.claim.kind}: chunk {value.chunk} of {of_whom(twice)} is reduced a second time"
                raise InputError.at(place.location, text)
            ranks, level = ranks | value.ranks, max(level, value.level)
            if value.message:
                value.message.reduces[value.at] = True
        return Value(first.chunk, ranks, level)

    def proven(self, place: Place) -> tuple[Claim, tuple[Transfer, ...]]:
        """What is claimed, and the transfers that do it; InputError for what is missing at the end."""
        wrong = list(islice(self._faults(), SHOWN_FAULTS))
        if wrong:
            said = f"this is no {self.claim.kind}: "
            raise InputError([InputError.at(place.location, said + text).problems[0] for text in wrong])
        ordered = sorted(self.messages, key=lambda message: message.step)
        return self.claim, tuple(transfer for message in ordered for transfer in message.transfers())

    def _faults(self) -> Iterator[str]:
        """What is not where it belongs at the end; what a rank has from the beginning need not be copied."""
        for rank in range(self.size):
            for chunk in range(self.claim.chunks):
                wanted = self.claim.wanted(rank, chunk)
                if not wanted or wanted == self.claim.held(rank, chunk):
                    continue
                at = chunk  # where in the rank's output it belongs
                if self.claim.kind == CollectiveKind.REDUCE_SCATTER:
                    at = chunk - rank * self.per_rank
                elif self.claim.kind == CollectiveKind.ALL_TO_ALL:
                    at = chunk // self.inputs * self.per_rank + chunk % self.per_rank
                found = self._held.get((rank, self.slot(rank, "o", at)))
                ranks = found.ranks if found and found.chunk == chunk else 0
                if wanted & ~ranks:
                    yield f"rank {rank} misses chunk {chunk} of {of_whom(wanted & ~ranks)} at the end"
