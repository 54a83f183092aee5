"""Programs of MSCCL (XML) as schedules: thread blocks are played symbolically, and what they send is proven.

Source: msccl of Microsoft, its interpreter and `msccl-tools` (MIT licence).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from simcore.markup import Element, read_markup
from simcore.system.plans.buffers import Buffers, Slot, Value, collective_of, stuck
from simcore.system.plans.flow import Claim
from simcore.system.plans.plan import Transfer

RECEIVES, SENDS, REDUCES, WRITES = (
    {*names.split()} for names in ("r rcs rrs rrc rrcs", "s rcs rrs rrcs", "rrs rrc rrcs re", "r rcs rrc rrcs re cpy")
)
TYPES = (*sorted(RECEIVES | SENDS), "re", "cpy", "nop")


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
    """All ranks' thread blocks, and messages on their way."""

    def __init__(self, root: Element):
        size = root.integer("ngpus", minimum=2)
        kind = collective_of(root.text("coll"), root)
        ranks = root.all("gpu")
        if sorted(gpu.integer("id") for gpu in ranks) != list(range(size)):
            raise root.error("not a <gpu> for every rank", expected=f"ids 0 to {size - 1}", found=f"{len(ranks)}")
        in_place = root.integer("inplace", 1) == 1
        self.buffers = Buffers(kind, size, ranks[0].integer("i_chunks"), ranks[0], in_place=in_place)
        self.blocks: dict[tuple[int, int], _Block] = {}
        self.wires: dict[tuple[int, int, int], deque[tuple[Element, list[Value]]]] = defaultdict(deque)
        for rank, tb in ((gpu.integer("id"), tb) for gpu in ranks for tb in gpu.all("tb")):
            send, recv = (tb.integer(key, -1, minimum=-1) for key in ("send", "recv"))
            if max(send, recv) >= size:
                raise tb.error("there is no such rank", expected=f"0 to {size - 1}", found=str(max(send, recv)))
            self.blocks[rank, tb.integer("id")] = _Block(rank, tb.all("step"), send, recv, tb.integer("chan", 0))

    def play(self) -> None:
        """Every step of every block; InputError where none can go on."""
        if left := stuck(self.blocks.values(), self._do):
            number = next(number for (_, number), block in self.blocks.items() if block is left)
            what = (
                f"thread block {number} of rank {left.rank} never gets past this step: a message or a step is missing"
            )
            raise left.steps[left.done].error(what, expected="a program that ends")
        for (_, rank, _), wire in self.wires.items():
            if wire:
                raise wire[0][0].error(f"rank {rank} does not receive this")

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
        if kind != "nop":
            self._move(block, step, kind, wire.popleft()[1] if kind in RECEIVES else None)
        block.levels.append(block.level)
        return True

    def _move(self, block: _Block, step: Element, kind: str, received: list[Value] | None) -> None:
        """What a step does with its slots."""
        buffers, rank, count = self.buffers, block.rank, step.integer("cnt", 1)
        if count > buffers.claim.chunks:
            raise step.error("more chunks than there are", expected=f"1 to {buffers.claim.chunks}", found=str(count))
        if received is not None and len(received) != count:
            raise step.error("receives another number of chunks than was sent", str(len(received)), str(count))
        sources, targets = self._slots(rank, step, "src", count), self._slots(rank, step, "dst", count)
        values = received if received is not None else [buffers.get(rank, source, step) for source in sources]
        block.level = max([block.level, *(value.level for value in received or ())])
        if kind in REDUCES:
            into = targets if kind == "re" else sources
            values = [
                buffers.reduced([buffers.get(rank, slot, step), value], step)
                for slot, value in zip(into, values, strict=True)
            ]
        if kind in WRITES:
            for target, value in zip(targets, values, strict=True):
                buffers.put(rank, target, value)
        if kind in SENDS:
            sent = buffers.send(block.level, rank, block.send, values)
            self.wires[rank, block.send, block.channel].append((step, sent))

    def _slots(self, rank: int, step: Element, end: str, count: int) -> list[Slot]:
        first = step.integer(f"{end}off")
        return [self.buffers.slot(rank, step.text(f"{end}buf"), first + at) for at in range(count)]


def read_program(path: str | Path) -> tuple[Claim, tuple[Transfer, ...]]:
    """What a program claims to be and what it sends, proven; InputError with line and column of what is wrong."""
    root = read_markup(path)
    if root.name != "algo":
        raise root.error("not a program of MSCCL", expected="<algo ...>", found=f"<{root.name}>")
    program = _Program(root)
    program.play()
    return program.buffers.proven(root)
