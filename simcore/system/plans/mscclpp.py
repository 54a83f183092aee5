"""Execution plans of MSCCL++ (JSON) as schedules: thread blocks are played symbolically, and what they send is proven.

Puts and gets are one-sided: what has been put may be used after a signal of its sender, as packets when it is there.
Source: the plans and the executor of microsoft/mscclpp (MIT licence).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import TypeVar

from simcore.documents import Node
from simcore.errors import InputError, closest
from simcore.system.plans.buffers import Buffers, Slot, Value, collective_of, stuck
from simcore.system.plans.flow import MOST_PLACES, Claim
from simcore.system.plans.plan import Transfer

MOST_PARTS = 64
MOVES = {"copy", "cpkt", "upkt", "put", "pws", "pwsf", "ppkt", "rppkt", "get"}
REDUCES = {"re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt"}
PACKETS = {"upkt", "rppkt", "repkt", "respkt", "recpkt", "recspkt"}  # a packet says itself when it is there
SIGNALS, WAITS = {"signal", "rlxsignal", "pws", "pwsf"}, {"wait", "rlxwait"}
ORDERS = SIGNALS | WAITS | {"barrier", "sem_acquire", "sem_release", "nop", "flush"}
T = TypeVar("T")
Line = tuple[object, ...]


@dataclass(slots=True)
class _Block:
    """A thread block: its operations, where its channels and remote buffers lead; what is done, after what."""

    rank: int
    steps: list[Node]
    channels: dict[str, list[tuple[int, Line, Line]]]
    remote: dict[str, list[tuple[int, str]]]
    done: int = 0
    level: int = 0
    put: int = 0
    turn: int = -1


class _Plan:
    """All ranks' thread blocks, signals and semaphores."""

    def __init__(self, root: Node):
        gpus = root["gpus"].sequence()
        self.size = len(gpus)
        if self.size < 2:
            raise _wrong(root["gpus"], "a collective needs two ranks", expected="an entry for every rank")
        for rank, gpu in enumerate(gpus):
            if gpu["id"].integer() != rank:
                raise _wrong(gpu["id"], "ranks stand in order", expected=str(rank))
        kind = collective_of(root["collective"].text(), root["collective"])
        ops = (
            op
            for gpu in gpus
            for block in gpu["threadblocks"].sequence()
            if "ops" in block
            for op in _flat(block["ops"])
        )
        shared = (op["tbg_info"]["tbg_size"] for op in ops if "tbg_info" in op)  # by so many thread blocks
        self.parts = lcm(*(node.integer(1, MOST_PARTS) for node in shared))
        inputs = gpus[0]["input_chunks"]
        if self.parts > MOST_PARTS:
            raise _wrong(root["gpus"], "thread blocks share their work in too many ways", f"{MOST_PARTS} parts")
        count, in_place = inputs.integer(1) * self.parts, root["inplace"].flag()
        self.buffers = Buffers(kind, self.size, count, inputs, in_place=in_place)
        self.lines: dict[Line, deque[int]] = defaultdict(deque)
        self.met: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.blocks = [block for rank, gpu in enumerate(gpus) for block in self._blocks(rank, gpu)]

    def _blocks(self, rank: int, gpu: Node) -> Iterator[_Block]:
        """The thread blocks of a rank, their numbers looked up in what the rank has."""
        channels: dict[str, list[tuple[int, Line, Line]]] = defaultdict(list)
        for node in gpu.listed("channels"):
            key = "type" if "type" in node else "channel_type"  # of plans from before channel_type, and of today's
            kind = node[key].text()
            for peer in node.listed("connected_to"):
                to = _below(peer, self.size, "rank")
                number = sum(other == to for other, *_ in channels[kind])
                channels[kind].append((to, (kind, rank, to, number), (kind, to, rank, number)))
        there = [(_below(node["rank"], self.size, "rank"), _buffer(node)) for node in gpu.listed("remote_buffers")]
        for number, semaphore in enumerate(gpu.listed("semaphores")):
            self.lines["semaphore", rank, number].extend([0] * min(semaphore["init_value"].integer(), MOST_PARTS))
        buffers: dict[str, list[tuple[int, str]]] = defaultdict(lambda: there)
        for node in gpu["threadblocks"].sequence():
            own = _chosen(node, "channels", "channel_type", "channel_ids", channels)
            remote = _chosen(node, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids", buffers)
            yield _Block(rank, list(_flat(node["ops"])), own, remote)

    def play(self) -> None:
        """Every operation of every block; InputError where none can go on."""
        if left := stuck(self.blocks, self._do):
            text = f"rank {left.rank} never gets past this: a signal, a packet or a thread block is missing"
            raise _wrong(left.steps[left.done], text, expected="a plan that ends")

    def _do(self, block: _Block, op: Node) -> bool:
        """One operation, if what it waits for is there."""
        name = op["name"].text()
        if name in {"glres", "gstore"}:
            hint = "all-reduce-implementation: [inNetwork] reduces in switches"
            raise _wrong(op, "switches reduce and store here, which schedules cannot", "puts and gets", hint=hint)
        if name not in MOVES | REDUCES | ORDERS:
            raise _wrong(op["name"], "no such operation", expected=closest(name, MOVES | REDUCES | ORDERS))
        if name == "barrier":
            return self._barrier(block, op)
        if name in WAITS or name == "sem_acquire":
            lines = [self.lines[line] for line in dict.fromkeys(self._lines(block, op, name))]
            if not all(lines):
                return False
            block.level = max([block.level, *(line.popleft() for line in lines)])
        if name in MOVES | REDUCES and not self._move(block, op, name):
            return False
        if name in SIGNALS or name == "sem_release":
            for line in self._lines(block, op, name):
                self.lines[line].append(max(block.level, block.put))
        return True

    def _lines(self, block: _Block, op: Node, name: str) -> list[Line]:
        """Where an operation signals, or what it waits for."""
        if name.startswith("sem_"):
            return [("semaphore", block.rank, each.integer()) for each in op["semaphore_ids"].sequence()]
        known = block.channels[op["channel_type"].text()]
        chosen = [known[_below(each, len(known), "channel")] for each in op["channel_ids"].sequence()]
        return [come if name in WAITS else go for _, go, come in chosen]

    def _barrier(self, block: _Block, op: Node) -> bool:
        """Whether all blocks that meet here have come as often as this one."""
        met, count = self.met[block.rank, op["barrier_id"].integer()], op["num_threadblocks"].integer(1)
        if block.turn < 0:
            block.turn = len(met) // count
            met.append(max(block.level, block.put))
        last = (block.turn + 1) * count
        if len(met) < last:
            return False
        block.level, block.turn = max(met[last - count : last]), -1
        return True

    def _move(self, block: _Block, op: Node, name: str) -> bool:
        """Read, reduce where it is asked for, and write; False where a packet is not there yet."""
        ends = [[self._slots(block, op, node) for node in op[key].sequence()] for key in ("src_buff", "dst_buff")]
        sources, targets = ends
        if not all(ends) or (name in MOVES and 1 != len(sources) != len(targets)):
            raise _wrong(op, "moves as much as it is told to", expected="a target for every source")
        if len({len(slots) for _, slots in (*sources, *targets)}) > 1:
            raise _wrong(op, "sources and targets differ in size", expected="as many chunks in all")
        there = all(self.buffers.holds(rank, slot) for rank, slots in sources for slot in slots)
        if name in PACKETS and not there:
            return False
        values = [self._read(block, op, rank, slots, packets=name in PACKETS) for rank, slots in sources]
        if name in REDUCES:
            values = [[self.buffers.reduced(each, op) for each in zip(*values, strict=True)]]
        if len(values) == 1:
            values *= len(targets)
        for (rank, slots), read in zip(targets, values, strict=True):
            step = max(block.level, *(value.level for value in read))
            sent = read if rank == block.rank else self.buffers.send(step, block.rank, rank, read)
            block.put = max(block.put, step + (rank != block.rank))
            for slot, value in zip(slots, sent, strict=True):
                self.buffers.put(rank, slot, value)
        return True

    def _read(self, block: _Block, op: Node, rank: int, slots: list[Slot], *, packets: bool) -> list[Value]:
        """What some slots hold, here or, as a message, on another rank."""
        values = [self.buffers.get(rank, slot, op) for slot in slots]
        level = max(value.level for value in values)
        if level > block.level and not packets:
            raise _wrong(op, "reads what may not have come yet", "a wait for a signal, or a barrier, before it")
        block.level = max(block.level, level)
        if rank == block.rank:
            return values
        block.level += 1
        return self.buffers.send(block.level - 1, rank, block.rank, values)

    def _slots(self, block: _Block, op: Node, node: Node) -> tuple[int, list[Slot]]:
        """The rank and the slots of a source or a target; the part of them that a block of a group does."""
        if "buffer_id" in node:
            known = block.remote[op["channel_type"].text() if "channel_type" in op else ""]
            rank, buffer = known[_below(node["buffer_id"], len(known), "remote buffer")]
        else:
            rank, buffer = block.rank, _buffer(node)
        most = max(self.buffers.claim.chunks, self.parts)
        first, count = (node[key].integer(0, MOST_PLACES) * self.parts for key in ("index", "size"))
        if "tbg_info" in op:
            blocks = op["tbg_info"]["tbg_size"].integer(1)
            count //= blocks
            first += _below(op["tbg_info"]["tb_id"], blocks, "thread block in the group") * count
        if not 0 < count <= most:
            raise _wrong(node, "nothing to move, or too much", expected=f"a size of 1 to {most // self.parts}")
        return rank, [self.buffers.slot(rank, buffer, at) for at in range(first, first + count)]


def _chosen(node: Node, key: str, kind: str, ids: str, there: dict[str, list[T]]) -> dict[str, list[T]]:
    """What a thread block uses of what its rank has, by type of channel."""
    found: dict[str, list[T]] = defaultdict(list)
    for part in node.listed(key):
        known = there[part[kind].text()]
        found[part[kind].text()] += [known[_below(each, len(known), ids)] for each in part[ids].sequence()]
    return found


def _buffer(node: Node) -> str:
    return str(node["type"].choice(["i", "o", "s"]))


def _below(node: Node, end: int, what: str) -> int:
    number = node.integer()
    if number >= end:
        raise _wrong(node, f"there is no such {what}", expected=f"0 to {end - 1}" if end else "none")
    return number


def _wrong(node: Node, text: str, expected: str = "", hint: str = "") -> InputError:
    return InputError.at(node.location, text, expected=expected, hint=hint)


def _flat(ops: Node) -> Iterator[Node]:
    """The operations of a thread block; those of a pipeline once, for all its pieces."""
    for op in ops.sequence():
        if "ops" in op:
            yield from _flat(op["ops"])
        else:
            yield op


def read_plan(root: Node) -> tuple[Claim, tuple[Transfer, ...]]:
    """What a plan claims to be and what it sends, proven; InputError with line and column of what is wrong."""
    for key in ("collective", "inplace"):
        if key not in root:
            raise InputError.at(root.location, f"not a plan of MSCCL++: no '{key}'", expected=f'"{key}": ...')
    plan = _Plan(root)
    plan.play()
    return plan.buffers.proven(root["gpus"])
