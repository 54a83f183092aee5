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
from simcore.system.plans.flow import Claim, faults
from simcore.system.plans.plan import Explicit, Transfer
from simcore.workload.model import CollectiveKind

MOST_PLACES = 1 << 22  # ranks times chunks: the check holds a number for each
SHOWN_FAULTS = 20
EVERY_RANKS = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER, CollectiveKind.ALL_TO_ALL}  # chunks are of all ranks
_KINDS: dict[str, CollectiveKind] = {kind.value: kind for kind in CollectiveKind if kind != CollectiveKind.BARRIER}


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A plan without sizes, and what it is proven to do."""

    claim: Claim
    transfers: tuple[Transfer, ...]
    location: Location

    def plan(self, kind: CollectiveKind, size: int, data_bytes: int, root: int) -> Explicit:
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
        total_bytes = data_bytes * (size if kind in EVERY_RANKS else 1)
        ends = [total_bytes * chunk // claim.chunks for chunk in range(claim.chunks + 1)]
        turned = (root - claim.root) % size
        return Explicit(size, tuple(_sized(entry, ends, turned, size) for entry in self.transfers))


def _sized(entry: Transfer, ends: list[int], turned: int, size: int) -> Transfer:
    """A transfer with its bytes, its ranks moved on to where the root is."""
    size_bytes = sum(ends[chunk + 1] - ends[chunk] for chunk in entry.chunks)
    src, dst = (entry.src + turned) % size, (entry.dst + turned) % size
    return replace(entry, src=src, dst=dst, size_bytes=size_bytes, charge_bytes=size_bytes * entry.reduce)


def read(path: str | Path) -> Schedule:
    """A checked schedule: ours, a program of MSCCL (.xml) or a plan of MSCCL++; InputError lists what is wrong."""
    if is_markup(path):
        from simcore.system.plans.msccl import read_program

        return Schedule(*read_program(path), Location(str(path), 1, 1))
    with Problems() as problems:
        root = documents.read(path, problems)
        if "gpus" in root:
            from simcore.system.plans.mscclpp import read_plan

            return Schedule(*read_plan(root), root.location)
        root.keys(required=("collective", "ranks", "chunks", "steps"), optional=("root", "description"))
        if problems.found:
            raise InputError(problems.found)
        claim = _claim(root)
        nodes = list(_transfers(root["steps"], claim))
        if not problems.found:
            _check(root["steps"], claim, nodes)
        return Schedule(claim, tuple(entry for _, entry in nodes), root.location)


def to_text(plan: Explicit, kind: CollectiveKind, root: int = 0) -> str:
    """A plan as the YAML that `read` takes; ValueError when it is no such collective."""
    used = 1 + max((chunk for entry in plan.transfers for chunk in entry.chunks), default=0)
    multiple = Claim(kind, plan.size, 1).multiple
    claim = Claim(kind, plan.size, -(-used // multiple) * multiple, root)
    for fault in faults(plan, claim):
        raise ValueError(f"this is no {kind}: {fault.message}")
    lines = [f"collective: {kind}", f"ranks: {plan.size}", f"chunks: {claim.chunks}", f"root: {root}", "steps:"]
    for _, step in groupby(plan.transfers, key=attrgetter("step")):
        entries = [_entry(entry) for entry in step]
        lines += [f"  - - {entries[0]}", *(f"    - {entry}" for entry in entries[1:])]
    return "\n".join(lines) + "\n"


def _entry(entry: Transfer) -> str:
    chunk = entry.chunks[0] if len(entry.chunks) == 1 else list(entry.chunks)
    reduce = ", reduce: true" if entry.reduce else ""
    return f"{{src: {entry.src}, dst: {entry.dst}, chunk: {chunk}{reduce}}}"


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
                yield node, Transfer(number, src, dst, _chunks(node["chunk"], claim), 0, reduce)


def _chunks(node: Node, claim: Claim) -> tuple[int, ...]:
    """One chunk, or a list of them that go together."""
    items = node.sequence() if isinstance(node.value, list) else [node]
    return tuple(_below(item, claim.chunks, "chunk") for item in items)


def _below(node: Node, end: int, what: str) -> int:
    number = node.integer(0)
    if number >= end:
        node.problem(f"there is no such {what}", expected=f"0 to {end - 1}")
    return number


def _check(steps: Node, claim: Claim, nodes: list[tuple[Node, Transfer]]) -> None:
    """Note every way in which the steps do not do what is claimed."""
    plan = Explicit(claim.size, tuple(entry for _, entry in nodes))
    for fault in islice(faults(plan, claim), SHOWN_FAULTS):
        place = steps if fault.transfer < 0 else nodes[fault.transfer][0]
        place.problem(f"this is no {claim.kind}: {fault.message}", found=_shown(place, fault.transfer, nodes))


def _shown(place: Node, transfer: int, nodes: list[tuple[Node, Transfer]]) -> str:
    return f"{len(nodes)} transfers" if transfer < 0 else str(place.value)
