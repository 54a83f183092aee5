"""Programs of MSCCL (XML) and plans of MSCCL++ (JSON), read as programs of thread blocks that are played and proven.

Sources: msccl of Microsoft, its interpreter and `msccl-tools`; the plans and the executor of microsoft/mscclpp (MIT
licence, both). Puts and gets of MSCCL++ are one-sided: what has been put may be used after a signal of its sender, as
packets when it is there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import lcm
from pathlib import Path
from typing import TypeVar

from simcore.documents import Node
from simcore.errors import InputError, closest
from simcore.markup import Element, read_markup
from simcore.system.plans.flow import MOST_PLACES, Claim
from simcore.system.plans.plan import Transfer
from simcore.system.plans.programs import Area, Block, Op, Program, Signal, collective_of

RECEIVES, SENDS, REDUCING, WRITES = (
    {*names.split()} for names in ("r rcs rrs rrc rrcs", "s rcs rrs rrcs", "rrs rrc rrcs re", "r rcs rrc rrcs re cpy")
)
BUFFERS = ["i", "o", "s"]
TYPES = (*sorted(RECEIVES | SENDS), "re", "cpy", "nop")

MOST_PARTS = 64
MOVES = {"copy", "cpkt", "upkt", "put", "pws", "pwsf", "ppkt", "rppkt", "get"}
REDUCES = {"re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt"}
PACKETS = {"upkt", "rppkt", "repkt", "respkt", "recpkt", "recspkt"}  # a packet says itself when it is there
SIGNALS, WAITS = {"signal", "rlxsignal", "pws", "pwsf"}, {"wait", "rlxwait"}
ORDERS = SIGNALS | WAITS | {"barrier", "sem_acquire", "sem_release", "nop", "flush"}
T = TypeVar("T")
Channels = dict[str, list[tuple[int, Signal, Signal]]]
"""Of a type: to which rank each leads, and the signals that go there and come from there."""
Remote = dict[str, list[tuple[int, str]]]
Wire = tuple[int, int, int]
"""From which rank to which, on which channel."""


def read_program(path: str | Path) -> tuple[Claim, tuple[Transfer, ...]]:
    """What a program claims to be and what it sends, proven; InputError with line and column of what is wrong."""
    root = read_markup(path)
    if root.name != "algo":
        raise root.error("not a program of MSCCL", expected="<algo ...>", found=f"<{root.name}>")
    size, ranks = root.integer("ngpus", minimum=2), root.all("gpu")
    kind = collective_of(root.text("coll"), root.location)
    if len(ranks) != size or sorted(gpu.integer("id") for gpu in ranks) != list(range(size)):
        raise root.error("not a <gpu> for every rank", expected=f"ids 0 to {size - 1}", found=f"{len(ranks)}")
    chunks = [max(gpu.integer(f"{end}_chunks", 0) for end in "io") for gpu in ranks]
    loop = root.integer("nchunksperloop", chunks[0])  # MSCCL cuts the data into so many
    for gpu, count in zip(ranks, chunks, strict=True):
        if count != loop:
            expected = f"i_chunks or o_chunks of {loop}, as nchunksperloop"
            raise gpu.error("the rank has other chunks than a loop", expected=expected, found=f"{count}")
    in_place = root.integer("inplace", 1) == 1
    scratch = [gpu.integer("s_chunks", 0) for gpu in sorted(ranks, key=lambda gpu: gpu.integer("id"))]
    program = Program(kind, size, ranks[0].integer("i_chunks"), ranks[0].location, scratch, in_place=in_place)
    program.play([block for gpu in ranks for block in _xml_blocks(program, gpu)])
    return program.proven(root.location)


def _xml_blocks(program: Program, gpu: Element) -> Iterator[Block]:
    """The thread blocks of a rank."""
    rank = gpu.integer("id")
    tellers = {tb.integer("id"): _tellers(tb.all("step")) for tb in gpu.all("tb")}
    taken = set[str]()
    for tb in gpu.all("tb"):
        send, recv = (tb.integer(key, -1, minimum=-1) for key in ("send", "recv"))
        if max(send, recv) >= program.size or rank in {send, recv}:
            expected, found = f"0 to {program.size - 1}, but for {rank} itself", f"{send}, {recv}"
            raise tb.error("there is no such rank to send to or receive from", expected, found)
        number, channel = tb.integer("id"), tb.integer("chan", 0)
        own = _own(tb, send, recv, channel)
        if twice := own & taken:
            raise tb.error("another thread block of this rank has the same", "one of its own", min(twice))
        taken |= own
        comes, goes = (recv, rank, channel), (rank, send, channel)
        steps = [_step(program, rank, number, step, tellers, comes, goes) for step in tb.all("step")]
        yield Block(rank, number, steps)


def _tellers(steps: Sequence[Element]) -> list[int | None]:
    """For each step of a thread block which one, it or a later one, tells the others that it is done: has `hasdep`."""
    found, following = list[int | None](), None
    for place, step in reversed([*enumerate(steps)]):
        if step.text("type") != "nop" and step.integer("hasdep", 1):
            following = place
        found.append(following)
    return found[::-1]


def _own(tb: Element, send: int, recv: int, channel: int) -> set[str]:
    """What no other thread block of its rank may have: its number, and the ends of channels that it uses."""
    types = {step.text("type") for step in tb.all("step")}
    ends = (("send", send, SENDS), ("recv", recv, RECEIVES))
    return {f'id="{tb.integer("id")}"'} | {f'{end}="{peer}" chan="{channel}"' for end, peer, use in ends if types & use}


def _step(
    program: Program,
    rank: int,
    number: int,
    step: Element,
    tellers: dict[int, list[int | None]],
    comes: Wire,
    goes: Wire,
) -> Op:
    """A step of thread block `number`: what comes from a rank may be reduced, kept, and go on to another."""
    kind = step.text("type")
    if kind not in TYPES:
        raise step.error("no such step", expected=", ".join(TYPES), found=repr(kind))
    awaited, sees = step.integer("depid", -1, minimum=-1), None
    if awaited >= 0:
        place = step.integer("deps", -1, minimum=-1)
        found, told = f"step {place} of block {awaited}", tellers.get(awaited, [])
        if place >= len(told):
            raise step.error("waits for a step that does not exist", found=found)
        if (teller := told[max(place, 0)]) is None:
            expected = 'hasdep="1" there, or at a later step of its block'
            raise step.error("waits for a step of which nobody is told that it is done", expected, found)
        sees = ("step", rank, awaited), teller, teller + 1
    gives: tuple[Signal, ...] = (("step", rank, number),)
    if kind == "nop":
        return Op(step.location, sees=sees, gives=gives)
    count, most = step.integer("cnt", 1), program.claim.chunks
    if not 0 < count <= most:
        raise step.error("no chunks, or more than there are", expected=f"1 to {most}", found=str(count))
    source, target = (_area(program, rank, step, end, count) for end in ("src", "dst"))
    sources = [target] * (kind == "re") + [source] * (kind in REDUCING or kind not in RECEIVES)
    return Op(
        step.location, [comes] * (kind in RECEIVES), sees, sources, [target] * (kind in WRITES), gives,
        (goes[1], goes) if kind in SENDS else None, reduces=kind in REDUCING, receives=kind in RECEIVES,
    )  # fmt: skip


def _area(program: Program, rank: int, step: Element, end: str, count: int) -> Area:
    first, buffer = step.integer(f"{end}off"), step.text(f"{end}buf")
    if buffer not in BUFFERS:
        raise step.error(f"no such {end}buf", expected=", ".join(BUFFERS), found=repr(buffer))
    return rank, [program.slot(rank, buffer, first + at) for at in range(count)]


def read_plan(root: Node) -> tuple[Claim, tuple[Transfer, ...]]:
    """What a plan claims to be and what it sends, proven; InputError with line and column of what is wrong."""
    for key in ("collective", "inplace"):
        if key not in root:
            raise InputError.at(root.location, f"not a plan of MSCCL++: no '{key}'", expected=f'"{key}": ...')
    gpus = root["gpus"].sequence()
    if len(gpus) < 2:
        raise _wrong(root["gpus"], "a collective needs two ranks", expected="an entry for every rank")
    for rank, gpu in enumerate(gpus):
        if gpu["id"].integer() != rank:
            raise _wrong(gpu["id"], "ranks stand in order", expected=str(rank))
    kind = collective_of(root["collective"].text(), root["collective"].location)
    blocks = (block for gpu in gpus for block in gpu["threadblocks"].sequence() if "ops" in block)
    shared = (op["tbg_info"]["tbg_size"] for block in blocks for op in _flat(block["ops"]) if "tbg_info" in op)
    parts = lcm(*(node.integer(1, MOST_PARTS) for node in shared))  # of a chunk, by as many thread blocks
    if parts > MOST_PARTS:
        raise _wrong(root["gpus"], "thread blocks share their work in too many ways", f"{MOST_PARTS} parts")
    inputs = gpus[0]["input_chunks"]
    scratch = [gpu["scratch_chunks"].integer() * parts if "scratch_chunks" in gpu else 0 for gpu in gpus]
    in_place = root["inplace"].flag()
    program = Program(kind, len(gpus), inputs.integer(1) * parts, inputs.location, scratch, in_place=in_place)
    _check_chunks(gpus, inputs.integer(), program.outputs // parts)
    program.play([block for rank, gpu in enumerate(gpus) for block in _Rank(program, parts, rank, gpu).blocks()])
    return program.proven(root["gpus"].location)


def _check_chunks(gpus: list[Node], inputs: int, outputs: int) -> None:
    """Ranks have the chunks of the first; of output as many as the collective leaves, 0 where none are told."""
    for gpu in gpus:
        if "input_chunks" in gpu and (said := gpu["input_chunks"]).value != inputs:
            raise _wrong(said, "ranks have as much input", expected=f"{inputs}, as rank 0")
        if "output_chunks" in gpu and (said := gpu["output_chunks"]).value not in (0, outputs):
            raise _wrong(said, "not the output of this collective", expected=f"{outputs}, or 0")


class _Rank:
    """A rank of MSCCL++ and what its numbers stand for: channels, and buffers of other ranks, by type of channel."""

    def __init__(self, program: Program, parts: int, rank: int, gpu: Node):
        self._program, self._parts, self._rank, self._gpu = program, parts, rank, gpu
        self._channels: Channels = defaultdict(list)
        for node in gpu.listed("channels"):
            key = "type" if "type" in node else "channel_type"  # of plans from before channel_type, and of today's
            kind = node[key].text()
            for peer in node.listed("connected_to"):
                to = _below(peer, program.size, "rank")
                number = sum(other == to for other, *_ in self._channels[kind])
                self._channels[kind].append((to, (kind, rank, to, number), (kind, to, rank, number)))
        there = [(_below(node["rank"], program.size, "rank"), _buffer(node)) for node in gpu.listed("remote_buffers")]
        self._remote: Remote = defaultdict(lambda: there)

    def blocks(self) -> Iterator[Block]:
        """The thread blocks; before them one that releases the semaphores as often as they begin with."""
        first = []
        for number, node in enumerate(self._gpu.listed("semaphores")):
            times = min(node["init_value"].integer(), MOST_PARTS)
            first.append(Op(node.location, gives=[("semaphore", self._rank, number)] * times))
        yield Block(self._rank, -1, first)
        for number, node in enumerate(self._gpu["threadblocks"].sequence()):
            channels = _chosen(node, "channels", "channel_type", "channel_ids", self._channels)
            remote = _chosen(node, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids", self._remote)
            met = Counter[int]()  # how often the block was at each barrier
            ops = [step for op in _flat(node["ops"]) for step in self._steps(op, channels, remote, met)]
            yield Block(self._rank, number, ops)

    def _steps(self, op: Node, channels: Channels, remote: Remote, met: Counter[int]) -> Iterator[Op]:
        """What an operation does; at a barrier, a block says that it is there, then it sees that all are."""
        name = op["name"].text()
        if name in {"glres", "gstore"}:
            hint = "all-reduce-implementation: [inNetwork] reduces in switches"
            raise _wrong(op, "switches reduce and store here, which schedules cannot", "puts and gets", hint=hint)
        if name not in MOVES | REDUCES | ORDERS:
            raise _wrong(op["name"], "no such operation", expected=closest(name, MOVES | REDUCES | ORDERS))
        if name == "barrier":
            number, count = op["barrier_id"].integer(), op["num_threadblocks"].integer(1)
            signal = ("barrier", self._rank, number)
            yield Op(op.location, gives=[signal])
            yield Op(op.location, sees=(signal, met[number] * count, (met[number] + 1) * count))
            met[number] += 1
            return
        signals: list[Signal] = []
        if name.startswith("sem_"):
            signals = [("semaphore", self._rank, each.integer()) for each in op["semaphore_ids"].sequence()]
        elif name in SIGNALS | WAITS:
            known = channels[op["channel_type"].text()]
            chosen = [known[_below(each, len(known), "channel")] for each in op["channel_ids"].sequence()]
            signals = [come if name in WAITS else go for _, go, come in chosen]
        sources, targets = self._areas(op, name, remote) if name in MOVES | REDUCES else ([], [])
        takes, gives = (signals, []) if name in WAITS | {"sem_acquire"} else ([], signals)
        packets, reduces = name in PACKETS, name in REDUCES
        yield Op(op.location, takes, None, sources, targets, gives, reduces=reduces, packets=packets)

    def _areas(self, op: Node, name: str, remote: Remote) -> tuple[list[Area], list[Area]]:
        """What an operation reads and writes."""
        sources, targets = (
            [self._area(op, node, remote) for node in op[key].sequence()] for key in ("src_buff", "dst_buff")
        )
        if not (sources and targets) or (name in MOVES and 1 != len(sources) != len(targets)):
            raise _wrong(op, "moves as much as it is told to", expected="a target for every source")
        return sources, targets

    def _area(self, op: Node, node: Node, remote: Remote) -> Area:
        """The rank and the slots of a source or a target; the part of them that a block of a group does."""
        rank, parts = self._rank, self._parts
        if "buffer_id" in node:
            known = remote[op["channel_type"].text() if "channel_type" in op else ""]
            rank, buffer = known[_below(node["buffer_id"], len(known), "remote buffer")]
        else:
            buffer = _buffer(node)
        most = max(self._program.claim.chunks, parts)
        first, count = (node[key].integer(0, MOST_PLACES) * parts for key in ("index", "size"))
        if "tbg_info" in op:
            blocks = op["tbg_info"]["tbg_size"].integer(1)
            count //= blocks
            first += _below(op["tbg_info"]["tb_id"], blocks, "thread block in the group") * count
        if not 0 < count <= most:
            raise _wrong(node, "nothing to move, or too much", expected=f"a size of 1 to {most // parts}")
        return rank, [self._program.slot(rank, buffer, at) for at in range(first, first + count)]


def _chosen(node: Node, key: str, kind: str, ids: str, there: dict[str, list[T]]) -> dict[str, list[T]]:
    """What a thread block uses of what its rank has, by type of channel."""
    found: dict[str, list[T]] = defaultdict(list)
    for part in (part for part in node.listed(key) if part[kind].text() != "switch"):  # refused where it is used
        known = there[part[kind].text()]
        found[part[kind].text()] += [known[_below(each, len(known), ids)] for each in part[ids].sequence()]
    return found


def _buffer(node: Node) -> str:
    return str(node["type"].choice(BUFFERS))


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
