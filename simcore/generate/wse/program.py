"""Instructions of every core, as the peer's traces hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import md5
from math import prod

from msgspec import Struct

from simcore.workload.wafer import Instruction


class Program(Struct):
    """The lists of instructions of all cores: `lists[node][core]`."""

    nodes: int
    cores: int
    lists: list[list[list[Instruction]]] = []

    def __post_init__(self) -> None:
        self.lists = [[[] for _ in range(self.cores)] for _ in range(self.nodes)]

    def emit(
        self, node: int, core: int, kind: str, arguments: tuple[int, ...], comment: str, after: Iterable[int] = ()
    ) -> int:
        """Append an instruction; its place in the core's list."""
        instructions = self.lists[node][core]
        instructions.append(Instruction(kind, arguments, tuple(after), comment))
        return len(instructions) - 1

    def bank(self, node: int, local: int) -> int:
        """The wafer's number of a node's bank or core."""
        return node * self.cores + local

    def barrier(self, name: str, cores: Iterable[int], comment: str | None = None) -> None:
        """Make the cores, by the wafer's numbers, wait for each other; the identifier follows from name and cores."""
        members = sorted(set(cores))
        identifier = md5((name + "_".join(map(str, members))).encode(), usedforsecurity=False).hexdigest()[:16]
        shown = Instruction("BARRIER", (identifier,), (), comment or name)
        for member in members:
            self.lists[member // self.cores][member % self.cores].append(shown)


def line(number: int, instruction: Instruction) -> str:
    """The line of a trace.

    >>> line(4, Instruction("WRITE", (47, 1152), (3,), "decode0_wkva_gemm_0_7_1"))
    '4 WRITE 47 1152 [3]\\t\\t;decode0_wkva_gemm_0_7_1'
    """
    kind, arguments, after, comment = instruction
    waits = f" [{' '.join(map(str, after))}]" if after else ""
    return f"{number} {kind} {' '.join(map(str, arguments))}{waits}\t\t;{comment}"


def summary(program: Program, nodes: Iterable[int]) -> dict[str, dict[str, int]]:
    """Numbers and bytes of the instructions of some nodes by kind, and the operations (2 M K N) of their products."""
    counts: Counter[str] = Counter()
    size: Counter[str] = Counter()
    flops = 0
    for each in (each for node in nodes for core in program.lists[node] for each in core):
        counts[each.kind] += 1
        if each.kind in {"READ", "WRITE", "COPY", "MULTICAST"}:
            size[each.kind] += int(each.arguments[-1])
        elif each.kind == "GEMM":
            flops += 2 * prod(int(number) for number in each.arguments)
    sums = {"instructions": counts, "bytes": size, "flops": {"GEMM": flops}}
    return {name: dict(sorted(held.items())) for name, held in sums.items()}
