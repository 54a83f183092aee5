"""Programs of thread blocks, played symbolically: what ranks send each other, and whether that is a collective.

A slot holds a chunk of the data and the ranks whose contributions are in it. Steps of messages are how many messages
came before. What a rank receives into one slot and reduces later counts as reduced when it arrives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from simcore.errors import InputError, Location, closest
from simcore.system.plans.flow import MOST_PLACES, Claim, apart, of_whom
from simcore.system.plans.plan import Transfer
from simcore.workload.model import CollectiveKind

SHOWN_FAULTS = 8
KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
Slot = tuple[str, int]
"""Buffer (i, o, s, or io where input and output are one) and place."""
Area = tuple[int, Sequence[Slot]]
"""A rank, and slots there."""
Signal = tuple[object, ...]
"""The name of what blocks give, and others wait for."""


@dataclass(slots=True, eq=False)
class Message:
    """What goes from rank to rank, and of each value whether it is reduced into what is there.

    It is sent by a thread block, behind what that has sent to the same rank, when what it `waits` for has come; and has
    come for whoever knows of the step `there`.
    """

    step: int
    src: int
    dst: int
    values: Sequence[Value]
    reduces: list[bool]
    waits: Sequence[Message]
    block: int
    there: _When | None = None

    def transfers(self, waits: tuple[int, ...]) -> Iterator[Transfer]:
        """One, or two where only a part is reduced; `waits` are the numbers of those that it waits for."""
        for reduce in (False, True):
            pairs = zip(self.values, self.reduces, strict=True)
            chunks = tuple(value.chunk for value, each in pairs if each == reduce)
            if chunks:
                yield Transfer(self.step, self.src, self.dst, chunks, 0, reduce, waits=waits, line=self.block)


@dataclass(frozen=True, slots=True)
class Value:
    """A chunk with the contributions of some ranks (bits), there after `level` messages; by which one it came."""

    chunk: int
    ranks: int
    level: int = 0
    message: Message | None = None
    at: int = 0


class Op(Struct, frozen=True):
    """A step of a thread block: it reads sources, reduces them to one where it `reduces`, writes targets, and signals.

    It waits until there is one of each signal that it `takes`, and takes that away, and until those from one number to
    another of what it `sees` were given. What it `receives` with what it takes comes behind its sources. `passes` says
    to which rank it hands on what it has, with which signal. `packets` say themselves when they are there; for all else
    that other blocks write a step must have waited, by signals.
    """

    place: Location
    takes: Sequence[Signal] = ()
    sees: tuple[Signal, int, int] | None = None
    sources: Sequence[Area] = ()
    targets: Sequence[Area] = ()
    gives: Sequence[Signal] = ()
    passes: tuple[int, Signal] | None = None
    reduces: bool = False
    receives: bool = False
    packets: bool = False


class _When(NamedTuple):
    """A step of a block, by their numbers, and what it knew to be done: of other blocks all steps up to a number."""

    block: int
    step: int
    known: Mapping[int, int]


class Block(Struct):
    """A thread block of a rank: its steps, how many are done after how many messages, and when what it put is there.

    It is the `index`-th of all blocks. What it has `known` is replaced where it waits, and never changed.
    """

    rank: int
    number: int
    steps: Sequence[Op]
    done: int = 0
    level: int = 0
    put: int = 0
    index: int = 0
    known: Mapping[int, int] = {}

    def now(self) -> _When:
        """The step that it is at."""
        return _When(self.index, self.done, self.known)

    def last_of(self, block: int) -> int:
        """The last step of a block that was done before, whatever the pace of the blocks: its own, or waited for."""
        return self.done if self.index == block else self.known.get(block, -1)

    def knows(self, other: _When) -> bool:
        """Whether a step was done before."""
        return self.last_of(other.block) >= other.step

    def learn(self, others: Iterable[_When]) -> None:
        """Some steps are waited for, and with each all that it knew."""
        for other in others:
            if not self.knows(other):
                known = {**self.known, other.block: other.step}
                for block, step in other.known.items():
                    known[block] = max(step, known.get(block, -1))
                self.known = known


def _place(message: Message) -> int:
    return message.there.step if message.there else 0


class _Given(NamedTuple):
    """A signal: after how many messages and by which step it was given, and what goes with it, to which rank."""

    level: int
    place: Location
    rank: int
    when: _When
    values: Sequence[Value] = ()


def collective_of(name: str, place: Location) -> CollectiveKind:
    """The collective that a program says it is."""
    known = name.replace("_", "").lower()
    if known not in KINDS:
        raise InputError.at(place, "no such collective", expected=closest(known, KINDS), found=repr(name))
    return KINDS[known]


class Program:
    """The buffers of all ranks, with `inputs` chunks of input each, the signals that were given and what was sent.

    Each rank has `scratch` for so many chunks.
    """

    def __init__(
        self, kind: CollectiveKind, size: int, inputs: int, place: Location, scratch: Sequence[int], *, in_place: bool
    ):
        self.size, self.in_place, self.inputs = size, in_place, inputs
        self.claim = Claim(kind, size, inputs * size if apart(kind) else inputs)
        if not inputs or inputs > MOST_PLACES // size**2 or self.claim.chunks % self.claim.multiple:
            expected = f"a multiple of {self.claim.multiple // (size if apart(kind) else 1)} above 0"
            raise InputError.at(place, "chunks of the input do not fit the collective", expected=expected)
        self.per_rank = inputs if kind == CollectiveKind.ALL_GATHER else inputs // size
        sizes = {CollectiveKind.ALL_GATHER: inputs * size, CollectiveKind.REDUCE_SCATTER: self.per_rank}
        self.outputs = sizes.get(kind, inputs)
        ends = {"i": inputs, "o": self.outputs, "io": max(inputs, self.outputs)}
        self._ends = [{**ends, "s": chunks} for chunks in scratch]
        self._messages: list[Message] = []
        self._lines: dict[int, dict[tuple[int, int], list[Message]]] = defaultdict(lambda: defaultdict(list))
        self._awaited = Counter[tuple[int, ...]]()  # how many of a line those of a block to a rank wait for
        self._given: dict[Signal, deque[_Given]] = defaultdict(deque)
        self._held: dict[tuple[int, Slot], Value] = {}
        self._written: dict[tuple[int, Slot], _When] = {}
        self._used: dict[tuple[int, Slot], list[_When]] = defaultdict(list)  # since it was written
        for rank in range(size):
            for at in range(inputs):
                chunk = rank * inputs + at if apart(kind) else at
                self._held[rank, self.slot(rank, "i", at)] = Value(chunk, self.claim.held(rank, chunk))

    def slot(self, rank: int, buffer: str, at: int) -> Slot:
        """A slot; in place, input and output are one buffer."""
        kind = self.claim.kind
        if not self.in_place or buffer == "s" or kind == CollectiveKind.ALL_TO_ALL:
            return buffer, at
        part = (buffer, kind) in {("i", CollectiveKind.ALL_GATHER), ("o", CollectiveKind.REDUCE_SCATTER)}
        return "io", at + rank * self.per_rank * part

    def play(self, blocks: Sequence[Block]) -> None:
        """Every step of every block, one after the other as far as they go; InputError where one does not end."""
        for index, block in enumerate(blocks):
            block.index = index
        before = -1
        while before < (before := sum(block.done for block in blocks)):
            for block in blocks:
                while block.done < len(block.steps) and self._do(block, block.steps[block.done]):
                    block.done += 1
        for block in blocks:
            if block.done < len(block.steps):
                text = f"thread block {block.number} of rank {block.rank} never gets past this"
                missing = "a message, a signal or a step of another one is missing"
                raise InputError.at(block.steps[block.done].place, f"{text}: {missing}", expected="an end")
        for left in (each for given in self._given.values() for each in given if each.values):
            raise InputError.at(left.place, f"rank {left.rank} does not receive this")

    def _do(self, block: Block, op: Op) -> bool:
        """One step, if what it waits for is there."""
        there = [(self._given[signal], count) for signal, count in Counter(op.takes).items()]
        seen = [] if op.sees is None else [*islice(self._given[op.sees[0]], *op.sees[1:])]
        if any(len(given) < count for given, count in there) or (op.sees and len(seen) < op.sees[2] - op.sees[1]):
            return False
        if op.packets and any((rank, slot) not in self._held for rank, slots in op.sources for slot in slots):
            return False
        taken = [given.popleft() for given, count in there for _ in range(count)]
        block.level = max([block.level, *(each.level for each in (*taken, *seen))])
        block.learn(each.when for each in (*taken, *seen))
        received = [each.values for each in taken] if op.receives else []
        for values in received:
            self._comes(block, values)
        self._move(block, op, received)
        for signal in op.gives:
            self._given[signal].append(_Given(max(block.level, block.put), op.place, block.rank, block.now()))
        return True

    def _move(self, block: Block, op: Op, received: Sequence[Sequence[Value]]) -> None:
        """Read, reduce where it is asked for, write and hand on."""
        counts = [len(each) for each in (*received, *(slots for _, slots in (*op.sources, *op.targets)))]
        if len(set(counts)) > 1:
            text = (
                "receives another number of chunks than was sent" if received else "sources and targets differ in size"
            )
            found = ", ".join(map(str, counts))
            raise InputError.at(op.place, text, expected="as many chunks in all", found=found)
        values = [*(self._read(block, op, *source) for source in op.sources), *received]
        if op.reduces:
            values = [[self._reduced(each, op.place) for each in zip(*values, strict=True)]]
        for at, (rank, slots) in enumerate(op.targets):
            sent = values[at if len(values) > 1 else 0]
            if rank != block.rank:
                sent = self._send(block, block.rank, rank, sent)
                self._comes(block, sent)
                block.put = max(block.put, sent[0].level)
            self._write(block, op, rank, slots)
            self._held |= {(rank, slot): value for slot, value in zip(slots, sent, strict=True)}
        if op.passes:
            rank, signal = op.passes
            sent = self._send(block, block.rank, rank, values[0])
            self._given[signal].append(_Given(sent[0].level, op.place, rank, block.now(), sent))

    def _read(self, block: Block, op: Op, rank: int, slots: Sequence[Slot]) -> list[Value]:
        """What some slots hold, here or, as a message, on another rank."""
        for slot in slots:
            if (rank, slot) not in self._held:
                text = f"rank {rank} has nothing in slot {slot[1]} of buffer {slot[0]}"
                raise InputError.at(op.place, text, expected="data to use")
        written = [self._written[rank, slot] for slot in slots if (rank, slot) in self._written]
        if op.packets:
            block.learn(written)
        elif not all(map(block.knows, written)):
            expected = "a wait for what writes it: a signal, a barrier or a step (depid, deps)"
            raise InputError.at(op.place, "reads what may not have come yet", expected=expected)
        for slot in slots:
            self._used[rank, slot].append(block.now())
        values = [self._held[rank, slot] for slot in slots]
        block.level = max(block.level, *(value.level for value in values))
        if rank != block.rank:
            values = self._send(block, rank, block.rank, values)
            self._comes(block, values)
            block.level += 1
        return values

    def _write(self, block: Block, op: Op, rank: int, slots: Sequence[Slot]) -> None:
        """Slots change; whoever wrote or read them before must be known to be done."""
        for place in ((rank, slot) for slot in slots):
            if (at := place[1][1]) >= (end := self._ends[rank][buffer := place[1][0]]):
                text, expected = f"buffer {buffer} of rank {rank} has no chunk {at}", f"below {end}"
                raise InputError.at(op.place, text, expected=expected, found=str(at))
            before = [*self._used.pop(place, ()), *([self._written[place]] if place in self._written else [])]
            if not all(map(block.knows, before)):
                text = (
                    f"overwrites slot {place[1][1]} of buffer {place[1][0]} of rank {rank}, which may still be in use"
                )
                expected = "a wait for what reads or writes it: a signal, a barrier or a step (depid, deps)"
                raise InputError.at(op.place, text, expected=expected)
            self._written[place] = block.now()

    def _send(self, block: Block, src: int, dst: int, values: Sequence[Value]) -> list[Value]:
        """Send values; what arrives."""
        waits = [*self._waits(block, src, dst)]
        step = max([block.level, *(value.level for value in values), *(each.step + 1 for each in waits)])
        block.level = step
        message = Message(step, src, dst, values, [False] * len(values), waits, block.index)
        self._messages.append(message)
        return [replace(value, level=step + 1, message=message, at=at) for at, value in enumerate(values)]

    def _waits(self, block: Block, src: int, dst: int) -> Iterator[Message]:
        """What has come to a rank as far as a block knows, since it sent from there to another one before."""
        for (taker, giver), line in self._lines[src].items():
            key = block.index, src, dst, taker, giver
            end = bisect_right(line, block.last_of(taker), key=_place)
            yield from line[self._awaited[key] : end]
            self._awaited[key] = end

    def _comes(self, block: Block, values: Sequence[Value]) -> None:
        """The values of a message are there for all who know of this step of a block."""
        if message := values[0].message:
            message.there = block.now()
            self._lines[message.dst][block.index, message.src].append(message)

    def _reduced(self, values: Sequence[Value], place: Location) -> Value:
        """The sum of values of one chunk; InputError for different chunks and for what would count twice."""
        first, ranks, level = values[0], 0, 0
        for value in values:
            if value.chunk != first.chunk:
                found = f"{first.chunk}, {value.chunk}"
                raise InputError.at(place, "reduces two different chunks", expected="one", found=found)
            if twice := ranks & value.ranks:
                text = f"this is no {self.claim.kind}: chunk {value.chunk} of {of_whom(twice)} is reduced a second time"
                raise InputError.at(place, text)
            ranks, level = ranks | value.ranks, max(level, value.level)
            if value.message:
                value.message.reduces[value.at] = True
        return Value(first.chunk, ranks, level)

    def proven(self, place: Location) -> tuple[Claim, tuple[Transfer, ...]]:
        """What is claimed, and the transfers that do it; InputError for what is missing at the end."""
        wrong = list(islice(self._faults(), SHOWN_FAULTS))
        if wrong:
            said = f"this is no {self.claim.kind}: "
            raise InputError([InputError.at(place, said + text).problems[0] for text in wrong])
        found: list[Transfer] = []
        numbers: dict[Message, range] = {}
        for message in sorted(self._messages, key=lambda message: message.step):
            first, waits = len(found), sorted(number for each in message.waits for number in numbers[each])
            found += message.transfers(tuple(waits))
            numbers[message] = range(first, len(found))
        return self.claim, tuple(found)

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
