"""Programs of MSCCL (XML) as schedules: thread blocks are played symbolically, and what they send is proven.

A slot of a buffer holds a chunk of the data. What a thread block receives into scratch and reduces later counts as
reduced when it arrives; steps are how many messages came before. Source: msccl of Microsoft, its interpreter and
`msccl-tools` (MIT licence).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from simcore.errors import InputError, closest
from simcore.markup import Element, read_markup
from simcore.system.explicit import Explicit, Transfer
from simcore.system.flow import Claim, faults
from simcore.workload.model import CollectiveKind

__all__ = ["read_program"]

KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
RECEIVES, SENDS, REDUCES, WRITES = (
    {*names.split()} for names in ("r rcs rrs rrc rrcs", "s rcs rrs rrcs", "rrs rrc rrcs", "r rcs rrc rrcs")
)
TYPES = (*sorted(RECEIVES | SENDS), "re", "cpy", "nop")
SHOWN_FAULTS = 8
Slot = tuple[str, int]


@dataclass(slots=True)
class _Message:
    """What goes from rank to rank: its chunks, and of each whether it is reduced into what is there."""

    step: int
    src: int
    dst: int
    chunks: list[int]
    reduces: list[bool]
    element: Element

    def transfers(self) -> Iterator[Transfer]:
        """One, or two where only a part is reduced."""
        for reduce in (False, True):
            chunks = tuple(chunk for chunk, each in zip(self.chunks, self.reduces, strict=True) if each == reduce)
            if chunks:
                yield Transfer(self.step, self.src, self.dst, chunks, 0, reduce)


@dataclass(slots=True)
class _Block:
    """A thread block: how many of its steps are done, and after how many messages."""

    rank: int
    steps: list[Element]
    send: int
    recv: int
    channel: int
    done: int = 0
    level: int = 0
    levels: list[int] = field(default_factory=list)


class _Program:
    """All ranks' thread blocks, buffers and messages on their way."""

    def __init__(self, root: Element):
        self.root, self.size = root, root.integer("ngpus", minimum=2)
        name = root.text("coll").replace("_", "").lower()
        if name not in KINDS:
            raise root.error("no such collective", expected=closest(name, KINDS), found=repr(root.text("coll")))
        self.kind, self.in_place = KINDS[name], root.integer("inplace", 1) == 1
        ranks = root.all("gpu")
        if sorted(gpu.integer("id") for gpu in ranks) != list(range(self.size)):
            raise root.error("not a <gpu> for every rank", expected=f"ids 0 to {self.size - 1}", found=f"{len(ranks)}")
        self.inputs = ranks[0].integer("i_chunks")
        self.per_rank = self.inputs if self.kind == CollectiveKind.ALL_GATHER else self.inputs // self.size
        chunks = {
            CollectiveKind.ALL_GATHER: self.inputs * self.size, CollectiveKind.ALL_TO_ALL: self.inputs * self.size,
        }.get(self.kind, self.inputs)  # fmt: skip
        self.claim = Claim(self.kind, self.size, chunks)
        if not chunks or chunks % self.claim.multiple:
            raise ranks[0].error(
                "i_chunks does not fit the collective", expected=f"a multiple of {self.claim.multiple}"
            )
        self.blocks = {
            (gpu.integer("id"), tb.integer("id")): self._block(gpu, tb) for gpu in ranks for tb in gpu.all("tb")
        }
        self.held: dict[tuple[int, Slot], int] = {
            (rank, self._place(rank, "i", at)): self._chunk(rank, at)
            for rank in range(self.size)
            for at in range(self.inputs)
        }
        self.origin: dict[tuple[int, Slot], tuple[_Message, int]] = {}
        self.wires: dict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)
        self.messages: list[_Message] = []

    def _block(self, gpu: Element, tb: Element) -> _Block:
        peers = [tb.integer(key, -1, minimum=-1) for key in ("send", "recv")]
        if max(peers) >= self.size:
            raise tb.error("there is no such rank", expected=f"0 to {self.size - 1}", found=str(max(peers)))
        return _Block(gpu.integer("id"), tb.all("step"), peers[0], peers[1], tb.integer("chan", 0))

    def _chunk(self, rank: int, at: int) -> int:
        """Which chunk an input slot of a rank holds."""
        own = self.kind in {CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL}
        return rank * self.inputs + at if own else at

    def _place(self, rank: int, buffer: str, at: int) -> Slot:
        """A slot; in place, input and output are one buffer."""
        if not self.in_place or buffer == "s" or self.kind == CollectiveKind.ALL_TO_ALL:
            return buffer, at
        gathers, scatters = self.kind == CollectiveKind.ALL_GATHER, self.kind == CollectiveKind.REDUCE_SCATTER
        if (buffer == "i" and gathers) or (buffer == "o" and scatters):
            return "io", rank * self.per_rank + at
        return "io", at

    def play(self) -> list[_Message]:
        """Every step of every block; InputError where none can go on."""
        while sum(self._advance(block) for block in self.blocks.values()):
            pass
        for (rank, number), block in self.blocks.items():
            if block.done < len(block.steps):
                what = f"thread block {number} of rank {rank} never gets past this step: a message or a step is missing"
                raise block.steps[block.done].error(what, expected="a program that ends")
        left = next((wire[0] for wire in self.wires.values() if wire), None)
        if left:
            raise left.element.error(f"rank {left.dst} does not receive this")
        return self.messages

    def _advance(self, block: _Block) -> bool:
        """The steps of a block that can be done now; whether there were any."""
        before = block.done
        while block.done < len(block.steps) and self._do(block, block.steps[block.done]):
            block.levels.append(block.level)
            block.done += 1
        return block.done > before

    def _do(self, block: _Block, step: Element) -> bool:
        """One step, if what it waits for is there."""
        kind = step.text("type")
        if kind not in TYPES:
            raise step.error("no such step", expected=", ".join(TYPES), found=repr(kind))
        awaited = step.integer("depid", -1, minimum=-1)
        if awaited >= 0:
            other, number = self.blocks.get((block.rank, awaited)), step.integer("deps", -1, minimum=-1)
            if other is None or number >= len(other.steps):
                raise step.error("waits for a step that does not exist", found=f"step {number} of block {awaited}")
            if other.done <= number:
                return False
            block.level = max([block.level, *other.levels[: number + 1]])
        wire = self.wires[block.recv, block.rank, block.channel]
        if kind in RECEIVES and not wire:
            return False
        self._move(block, step, kind, wire.popleft() if kind in RECEIVES else None)
        return True

    def _move(self, block: _Block, step: Element, kind: str, message: _Message | None) -> None:
        """What a step does with its slots."""
        count, rank = step.integer("cnt", 1), block.rank
        sources, targets = (
            [self._place(rank, step.text(f"{end}buf"), step.integer(f"{end}off") + at) for at in range(count)]
            for end in ("src", "dst")
        )
        if message:
            if len(message.chunks) != count:
                raise step.error(
                    "receives another number of chunks than was sent", str(len(message.chunks)), str(count)
                )
            block.level = max(block.level, message.step + 1)
            message.reduces = [kind in REDUCES] * count
            for at, target in enumerate(targets if kind in WRITES else ()):
                self.held[rank, target] = message.chunks[at]
                self.origin[rank, target] = message, at
        if kind in {"cpy", "re"}:
            self._local(step, rank, list(zip(sources, targets, strict=True)), reduces=kind == "re")
        if kind in SENDS:
            chunks = message.chunks if message else [self._chunk_in(step, rank, source) for source in sources]
            sent = _Message(block.level, rank, block.send, list(chunks), [False] * len(chunks), step)
            self.messages.append(sent)
            self.wires[rank, block.send, block.channel].append(sent)

    def _local(self, step: Element, rank: int, pairs: list[tuple[Slot, Slot]], *, reduces: bool) -> None:
        """A copy, or a reduction of what has come before into another slot."""
        for source, target in pairs:
            chunk = self._chunk_in(step, rank, source)
            if reduces:
                if self._chunk_in(step, rank, target) != chunk:
                    raise step.error("reduces two different chunks", found=f"{chunk}, {self.held[rank, target]}")
                if origin := self.origin.get((rank, source)):
                    origin[0].reduces[origin[1]] = True
            else:
                self.held[rank, target] = chunk
                if origin := self.origin.get((rank, source)):
                    self.origin[rank, target] = origin

    def _chunk_in(self, step: Element, rank: int, slot: Slot) -> int:
        if (rank, slot) not in self.held:
            raise step.error(f"rank {rank} has nothing in slot {slot[1]} of buffer {slot[0]}", expected="data to use")
        return self.held[rank, slot]


def read_program(path: str | Path) -> tuple[Claim, tuple[Transfer, ...]]:
    """What a program claims to be and what it sends, proven; InputError with line and column of what is wrong."""
    root = read_markup(path)
    if root.name != "algo":
        raise root.error("not a program of MSCCL", expected="<algo ...>", found=f"<{root.name}>")
    program = _Program(root)
    messages = sorted(program.play(), key=lambda message: message.step)
    placed = [(transfer, message.element) for message in messages for transfer in message.transfers()]
    plan = Explicit(program.size, tuple(transfer for transfer, _ in placed))
    wrong = list(islice(faults(plan, program.claim), SHOWN_FAULTS))
    if wrong:
        places = [root if fault.transfer < 0 else placed[fault.transfer][1] for fault in wrong]
        problems = [
            place.error(f"this is no {program.kind}: {fault.message}").problems[0]
            for place, fault in zip(places, wrong, strict=True)
        ]
        raise InputError(problems)
    return program.claim, plan.transfers
