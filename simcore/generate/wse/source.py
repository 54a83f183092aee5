"""What `simcore run` plays of this generator: a specification, a folder of node rows, or one of core traces."""

from __future__ import annotations

import hashlib
import re
import sys
from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from msgspec import Struct

from simcore.documents import placed, read
from simcore.errors import InputError, Location, Problems
from simcore.generate.wse.files import HEADER
from simcore.generate.wse.jobs import FILES, is_specification, made, specification
from simcore.generate.wse.operations import MOVEMENT, TOGETHER, Operation, Owner
from simcore.generate.wse.settings import COUNTED
from simcore.generate.wse.traffic import node_step, phases
from simcore.workload.model import PhaseName
from simcore.workload.wafer import CoreStep, Instruction, NodeStep

NODES = ("nodes/*/node_*/*.csv", "*/node_*/*.csv", "node_*/*.csv")
TRACES = ("traces/*/node_*/*/core_*.csv", "*/node_*/*/core_*.csv", "node_*/*/core_*.csv")
LINE = re.compile(r"\d+ ([A-Z]+) ([^\[;\t]*[^\[;\t ]) *(?:\[([\d ]*)\])?\s*(?:;(.*))?")
# Kind of instruction -> how many arguments it has at least.
ARGUMENTS = {"READ": 2, "WRITE": 2, "GEMM": 3, "ADD": 1, "COPY": 3, "MULTICAST": 3, "BARRIER": 1}
MOST_DIGITS = 19  # of a number of 64 bits
_WRONG = ValueError, SyntaxError, TypeError, LookupError, AttributeError, ArithmeticError
_UNREADABLE = (*_WRONG, MemoryError, RecursionError)
STAND_IN = "experts: without expert_counts a log-normal stand-in says how many tokens each gets"
# Ends of names of all-reduces over the nodes with the same sequences, and over those that share their attention.
CLUSTER, ATTENTION = ("_ffn_ar", "_dense_ar", "_head_ar"), ("_ar_tp", "_ar_sp")


class Source(Struct, frozen=True, eq=False):
    """Steps to play, the SHA-256 of what they are from, what to warn about; of a specification its files by option, and
    the grids (columns, rows) that its nodes stand on.
    """

    steps: tuple[NodeStep | CoreStep, ...]
    sha256: str
    warnings: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    grids: tuple[tuple[int, ...], ...] = ()

    def misplaced(self, dims: Sequence[int]) -> Iterator[str]:
        """What to warn about where nodes do not stand as the NPUs of a topology do."""
        for grid in self.grids:
            if [size for size in grid if size > 1] != [size for size in dims if size > 1]:
                (columns, rows), there = grid, " x ".join(map(str, dims))
                told = f"node_grid: [{rows}, {columns}] is {columns} x {rows} and the topology {there} NPUs"
                yield f"{told}: node n is its NPU n, with other neighbours than on the grid"


def is_source(path: Path) -> bool:
    """Whether a path is one of the three."""
    return is_specification(path) or (path.is_dir() and bool(played(path)))


def played(folder: Path) -> list[Path]:
    """What is played of a folder: the rows of nodes where there are any, otherwise traces of cores."""
    return _found(folder, NODES) or _found(folder, TRACES)


def _found(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files of the first pattern that has any."""
    return next((held for pattern in patterns if (held := sorted(folder.glob(pattern)))), [])


def load(path: Path, only: str = "") -> Source:
    """Read the steps, of traces the `only` one that is named; InputError with the place of what is wrong."""
    if path.is_dir():
        return _folder(path, only)
    options = specification(path)
    try:
        every = [(each.job, node_step(each.job, each.step, each.routed)) for each in made(options)]
    except InputError as error:
        given = read(path, Problems())["options"]
        raise placed(error, given.items, given) from error
    files = tuple((name, options[name]) for name in FILES if options[name] and Path(options[name]).is_file())
    drawn = any(job.system.routing == COUNTED and job.counts is None and not job.routing for job, _ in every)
    steps, notes = tuple(step for _, step in every), (STAND_IN,) * drawn
    grids = dict.fromkeys(job.system.node_grid[::-1] for job, _ in every)
    return Source(steps, hashlib.sha256(path.read_bytes()).hexdigest(), notes, files, (*grids,))


def _folder(path: Path, only: str) -> Source:
    """Node rows where there are any, otherwise traces."""
    rows, traces = _found(path, NODES), [file for file in _found(path, TRACES) if only in {"", file.parent.name}]
    digest = hashlib.sha256()
    for file in rows or traces:
        with file.open("rb") as held:
            digest.update(hashlib.file_digest(held, "sha256").digest())
    if rows:
        both = f"{path} has rows of nodes and traces of cores: the rows are played" if traces else ""
        return Source(tuple(_node_steps(rows)), digest.hexdigest(), (both,) if both else ())
    return Source(tuple(_core_steps(traces)), digest.hexdigest())


def _number(text: str) -> int:
    """The number at the end of a name; -1 where there is none."""
    digits = re.search(r"(\d+)$", text)
    return int(digits.group(1)) if digits else -1


def _by_step(files: list[Path], step: int, unit: int) -> Iterator[tuple[str, list[Path]]]:
    """(name, files by their numbers) of every step; `step` and `unit` are places in a file's path from its end."""
    names = dict.fromkeys(Path(file.parts[-1 - step]).stem for file in files)
    for name in sorted(names, key=lambda name: (name.startswith("decode"), _number(name))):
        held = [file for file in files if Path(file.parts[-1 - step]).stem == name]
        yield name, sorted(held, key=lambda file: (_number(file.parts[-1 - unit]), _number(file.stem)))


def _node_steps(files: list[Path]) -> Iterator[NodeStep]:
    for name, held in _by_step(files, 0, 1):
        _check_numbers(held[0].parent.parent, "node", [_number(file.parent.name) for file in held])
        rows = [list(_rows(file)) for file in held]
        for node, file in enumerate(held):
            _check_groups(file, node, rows[node], len(held))
        yield NodeStep(name, _tokens(rows), len(held), phases(rows))


def _check_numbers(folder: Path, unit: str, numbers: list[int]) -> None:
    """All nodes, or cores of a node, must be there."""
    if numbers != list(range(len(numbers))):
        missing = next(place for place, number in enumerate([*numbers, -1]) if place != number)
        expected = f"{unit}s 0, 1, 2, ... without gaps"
        raise InputError.at(str(folder), f"{unit} {missing} is missing", expected=expected)


def _check_groups(file: Path, node: int, rows: list[Operation], nodes: int) -> None:
    """Groups name nodes that are there, and their own where all take part."""
    for each in rows:
        group = each.group or (0,)
        if max(group, default=0) >= nodes:
            expected, found = f"0 to {nodes - 1}", str(max(group))
            raise InputError.at(str(file), f"{each.uid}: no such node", expected=expected, found=found)
        if each.kind in {*TOGETHER, "AlltoAll"} and node not in group:
            raise InputError.at(str(file), f"{each.uid}: the group lacks its own node", expected=f"{node} in {group}")


def _tokens(rows: list[list[Operation]]) -> int:
    """New positions of the whole batch, from the rows: what nodes multiply first, which a cluster does alike."""
    count = 0.0
    for held in rows:
        first = next((each for each in held if each.kind == "Linear"), None)
        received = held and "_pp_barrier" in held[0].uid
        count += first.shape[0] / _cluster_nodes(held) if first and not received else 0
    return round(count)


def _cluster_nodes(rows: list[Operation]) -> int:
    """How many nodes have the sequences of one, itself counted."""
    sums = [(each.uid, max(len(each.group or ()), 1)) for each in rows if each.kind == "AllReduce"]
    whole = next((nodes for uid, nodes in sums if uid.endswith(CLUSTER)), None)
    return whole or prod(next((nodes for uid, nodes in sums if uid.endswith(end)), 1) for end in ATTENTION)


def _rows(file: Path) -> Iterator[Operation]:
    """The rows of a node that cost something."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        if next(lines, "").strip() != HEADER:
            raise InputError.at(Location(str(file), 1, 1), "not a file of node rows", expected=HEADER)
        for number, text in enumerate(lines, 2):
            columns = text.rstrip("\n").split(";")
            if len(columns) > 1 and columns[1] in MOVEMENT:
                continue
            try:
                yield _row(columns)
            except _UNREADABLE as error:
                place = Location(str(file), number, 1)
                raise InputError.at(place, "not a row of a node", expected=HEADER, found=text.strip()) from error


def _row(columns: list[str]) -> Operation:
    """A row; of its dimensions only what traffic needs: of an all-to-all the splits, of others the sizes."""
    uid, kind, memory, macs, hbm, net, members, dims = columns
    group = None if members == "N/A" else tuple(literal_eval(f"[{members.strip('[]')}]"))
    shape: tuple[object, ...] = ()
    if kind == "AlltoAll":
        shape = tuple(tuple(literal_eval(part)) for part in dims.split(" -> "))
    elif kind == "Linear":
        shape = tuple(literal_eval(dims.partition(" x ")[0]))
    elif group is not None and dims != "N/A":
        shape = tuple(literal_eval(dims))
    parts = (*(part if isinstance(part, tuple) else (part,) for part in (*shape, group or ())),)
    if not all(isinstance(each, int) and each >= 0 for part in parts for each in part):
        raise ValueError(dims)
    costs = _count(macs), _count(memory), _count(hbm), _count(net)
    row = Operation(uid, kind, shape, (), (), *costs, group, _owner(uid))
    if kind == "AlltoAll" and len(row.shape[1]) != len(group or ()):
        raise ValueError(dims)
    if kind == "AllReduce" and row.network_bytes % max(prod(row.shape), 1):
        raise ValueError(dims)
    return row


_LAST = "lm_head"
_GRADIENTS = {"dgrad": PhaseName.INPUT_GRAD, "wgrad": PhaseName.WEIGHT_GRAD}


def _owner(uid: str) -> Owner:
    """Whose a row is: a file says it by the row's name.

    >>> _owner("decode3_moe_gate").layer, _owner("lm_head_head_dgrad").phase.value
    ('decode3', 'input_grad')
    """
    layer = _LAST if uid.startswith(_LAST) else uid.partition("_")[0]
    return Owner(layer, None, _GRADIENTS.get(uid.rpartition("_")[2], PhaseName.FORWARD))


def _count(text: str) -> int:
    """A number of a row, not below zero."""
    if not (text.isascii() and text.isdecimal()) or len(text) >= MOST_DIGITS:
        raise ValueError(text)
    return int(text)


def _core_steps(files: list[Path]) -> Iterator[CoreStep]:
    for name, held in _by_step(files, 1, 2):
        nodes: dict[int, list[Path]] = defaultdict(list)
        for file in held:
            nodes[_number(file.parent.parent.name)].append(file)
        phase = held[0].parent.parent.parent
        _check_numbers(phase, "node", list(nodes))
        for cores in nodes.values():
            _check_numbers(cores[0].parent, "core", [_number(file.stem) for file in cores])
        fewest, *others = sorted({*map(len, nodes.values())})
        if others:
            message, found = "nodes have different numbers of cores", f"{fewest} and {others[0]}"
            raise InputError.at(str(phase), message, expected="as many in each", found=found)
        yield CoreStep(name, 0, fewest, [list(_instructions(file)) for file in held])


def _instructions(file: Path) -> Iterator[Instruction]:
    """The lines of a core."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            found = LINE.fullmatch(text.rstrip("\n"))
            if found is None or found[1] not in ARGUMENTS:
                place = Location(str(file), number, 1)
                line, expected = repr(text.strip()), "<id> READ 4 1024 [0 1]"
                raise InputError.at(place, "not an instruction", expected=expected, found=line)
            yield _instruction(file, number, found)


def _instruction(file: Path, number: int, found: re.Match[str]) -> Instruction:
    """One line; the instructions it waits for come before it."""
    kind, words, after, comment = found.groups()
    waits = tuple(int(word) if len(word) < MOST_DIGITS else sys.maxsize for word in (after or "").split())
    parts = words.split()
    numbers = kind == "BARRIER" or all(part.isdecimal() and len(part) < MOST_DIGITS for part in parts)
    if max(waits, default=-1) >= number - 1 or not numbers:
        place = Location(str(file), number, 1)
        raise InputError.at(place, "an instruction has numbers and waits for earlier ones", found=repr(found[0]))
    if len(parts) < ARGUMENTS.get(kind, 1):
        raise InputError.at(Location(str(file), number, 1), f"{kind} needs more numbers", found=repr(found[0]))
    return Instruction(kind, tuple(parts) if kind == "BARRIER" else tuple(map(int, parts)), waits, comment or "")
