"""A user's own schedule of a collective, from a YAML or JSON file: steps of transfers, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path

from simcore import documents
from simcore.documents import Node
from simcore.errors import InputError, Location, Problems
from simcore.markup import is_markup
from simcore.system.plans.flow import MOST_PLACES, Claim, apart, faults
from simcore.system.plans.plan import Plan, Transfer
from simcore.workload.model import CollectiveKind

SHOWN_FAULTS = 20
PROGRAM = "MSCCL's programs and plans: protocols, signals, copies and the steps of thread blocks take no time"
_KINDS: dict[str, CollectiveKind] = {kind.value: kind for kind in CollectiveKind if kind != CollectiveKind.BARRIER}


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A plan without sizes, and what it is proven to do; `note` says what of its file is not played."""

    claim: Claim
    transfers: tuple[Transfer, ...]
    location: Location
    note: str = ""

    def plan(self, kind: CollectiveKind, size: int, data_bytes: int, root: int) -> Plan:
        """The plan for so many bytes, as `algorithms` make them; InputError when it is for something else."""
        claim = self.claim
        if (kind, size) != (claim.kind, claim.size):
            raise InputError.at(
                self.location,
                f"schedule {Path(self.location.file).name} cannot be used here",
                expected=f"{claim.kind} on {claim.size} ranks, as it says",
                found=f"{kind} on {size} ranks",
                hint="in several dimensions, collective-optimization baseline all-reduces in each",
            )
        total_bytes = data_bytes * (size if apart(kind) else 1)
        ends = [total_bytes * chunk // claim.chunks for chunk in range(claim.chunks + 1)]
        turned = (root - claim.root) % size
        made = []
        for entry in self.transfers:
            size_bytes = sum(ends[chunk + 1] - ends[chunk] for chunk in entry.chunks)
            src, dst = (entry.src + turned) % size, (entry.dst + turned) % size
            charge_bytes = size_bytes * entry.reduce
            made.append(replace(entry, src=src, dst=dst, size_bytes=size_bytes, charge_bytes=charge_bytes))
        return Plan(size, transfers=tuple(made))


def read(path: str | Path) -> Schedule:
    """A checked schedule: ours, a program of MSCCL (.xml) or a plan of MSCCL++; InputError lists what is wrong."""
    if is_markup(path):
        from simcore.system.plans.msccl import read_program

        return Schedule(*read_program(path), Location(str(path), 1, 1), PROGRAM)
    with Problems() as problems:
        root = documents.read(path, problems)
        if "gpus" in root:
            from simcore.system.plans.msccl import read_plan

            return Schedule(*read_plan(root), root.location, PROGRAM)
        root.keys(required=("collective", "ranks", "chunks", "steps"), optional=("root", "description"))
        if problems.found:
            raise InputError(problems.found)
        claim = _claim(root)
        nodes = list(_transfers(root["steps"], claim))
        transfers = tuple(entry for _, entry in nodes)
        wrong = () if problems.found else islice(faults(Plan(claim.size, transfers=transfers), claim), SHOWN_FAULTS)
        for fault in wrong:
            at_end = fault.transfer < 0
            place = root["steps"] if at_end else nodes[fault.transfer][0]
            found = f"{len(nodes)} transfers" if at_end else str(place.value)
            place.problem(f"this is no {claim.kind}: {fault.message}", found=found)
        return Schedule(claim, transfers, root.location)


def to_text(plan: Plan, kind: CollectiveKind, root: int = 0) -> str:
    """A plan as the YAML that `read` takes; ValueError when it is no such collective."""
    used = 1 + max((chunk for entry in plan.transfers for chunk in entry.chunks), default=0)
    multiple = Claim(kind, plan.size, 1).multiple
    claim = Claim(kind, plan.size, -(-used // multiple) * multiple, root)
    for fault in faults(plan, claim):
        raise ValueError(f"this is no {kind}: {fault.message}")
    lines = [f"collective: {kind}", f"ranks: {plan.size}", f"chunks: {claim.chunks}", f"root: {root}", "steps:"]
    for _, step in groupby(plan.transfers, key=attrgetter("step")):
        for number, entry in enumerate(step):
            chunk = entry.chunks[0] if len(entry.chunks) == 1 else list(entry.chunks)
            reduce = ", reduce: true" if entry.reduce else ""
            bullets = "    - " if number else "  - - "
            lines.append(f"{bullets}{{src: {entry.src}, dst: {entry.dst}, chunk: {chunk}{reduce}}}")
    return "\n".join(lines) + "\n"


def _claim(root: Node) -> Claim:
    """What the schedule says that it does."""
    kind = root["collective"].choice(_KINDS)
    size, chunks = root["ranks"].integer(2), root["chunks"].integer(1)
    start = root["root"].integer(0) if "root" in root else 0
    claim = Claim(kind if isinstance(kind, CollectiveKind) else CollectiveKind.ALL_REDUCE, size, chunks, start)
    if start >= size:
        root["root"].problem("there is no such rank", expected=f"0 to {size - 1}")
    if chunks % claim.multiple:
        root["chunks"].problem(
            f"{claim.kind} on {size} ranks needs a multiple of {claim.multiple} chunks",
            hint="as many chunks for every rank (all-to-all: for every pair), rank by rank",
        )
    if size * chunks > MOST_PLACES:
        root["chunks"].problem(f"ranks times chunks is more than {MOST_PLACES:,}", expected="fewer chunks")
    return claim


def _transfers(steps: Node, claim: Claim) -> Iterator[tuple[Node, Transfer]]:
    """Every transfer with where it stands."""
    for number, step in enumerate(steps.sequence()):
        for node in step.sequence():
            node.keys(required=("src", "dst", "chunk"), optional=("reduce",))
            if all(key in node for key in ("src", "dst", "chunk")):
                src, dst = (_below(node[key], claim.size, "rank") for key in ("src", "dst"))
                if src == dst:
                    node.problem("a rank sends to itself", expected="two ranks")
                reduce = node["reduce"].flag() if "reduce" in node else False
                chunk = node["chunk"]  # or a list of them that go together
                items = chunk.sequence() if isinstance(chunk.value, list) else [chunk]
                chunks = tuple(_below(item, claim.chunks, "chunk") for item in items)
                yield node, Transfer(number, src, dst, chunks, 0, reduce)


def _below(node: Node, end: int, what: str) -> int:
    number = node.integer(0)
    if number >= end:
        node.problem(f"there is no such {what}", expected=f"0 to {end - 1}")
    return number
