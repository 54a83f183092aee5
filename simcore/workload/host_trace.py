"""PyTorch's host execution traces beside profiler traces: the shapes, sizes and groups that only they tell.

Operations are the profile's operators by record-function id, in older profiles by external id where both count from the
same start, else by their names in the order in which each thread began them. A host trace of one iteration describes
every stretch of a longer profile with just its operators.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.workload import kineto
from simcore.workload.archives import documents
from simcore.workload.chakra.pytorch_form import Op, is_host_trace, parse_host
from simcore.workload.kineto import PRODUCTS, TYPES, Collective, HostUse, KinetoTrace, product_of
from simcore.workload.kineto_reader import ranked, read_kineto
from simcore.workload.order import matches

Column = NDArray[np.int64]
ENOUGH = 0.8  # share of the operations that must be operators of the profile
BY_NAME = "names in order"
USER_SCOPE = 7  # ranges that the program names; the profiler keeps them apart from operators
GROUPS = "## process_group:init ##"
NUMBER = re.compile(r"\d+")


class HostTrace(Struct, frozen=True, eq=False):
    """One process's operators in the order of their start, and its process groups by name or backend id."""

    file: str
    process: str
    operations: tuple[Op, ...]
    groups: Mapping[str, Mapping[str, Any]]

    @property
    def number(self) -> int:
        """The last number in the file's name, which is often the rank; -1 without one."""
        found = NUMBER.findall(Path(self.file).name.partition(".")[0])
        return int(found[-1]) if found else -1


def read_host_trace(content: bytes, file: str) -> HostTrace:
    """A host trace from the bytes of its JSON document; InputError names `file` and the node that is wrong."""
    head, operations = parse_host(content, file)
    groups: dict[str, Mapping[str, Any]] = {}
    for op in operations:
        if op.name == GROUPS:
            with suppress(LookupError, TypeError, ValueError):
                said = json.loads(op.inputs["values"][0])
                found = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
                groups |= {str(one[key]): one for one in found for key in ("pg_name", "backend_id") if key in one}
    return HostTrace(file, str(head.get("pid", "")), tuple(started(operations)[0]), groups)


def started(operations: Iterable[Op]) -> tuple[list[Op], list[Op]]:
    """Operators, and ranges that the program names, in the order of their start."""
    found = sorted((op for op in operations if op.attributes.get("rf_id")), key=_started)
    ranges = [op for op in found if op.attributes.get("scope") == USER_SCOPE]
    return [op for op in found if op.attributes.get("scope") != USER_SCOPE], ranges


def _started(op: Op) -> int:
    """Record-function ids count starts."""
    return int(op.attributes["rf_id"])


def read_recorded(
    paths: Iterable[str | Path], hosts: Iterable[str | Path] = ()
) -> tuple[list[KinetoTrace], list[HostTrace]]:
    """Profiler traces ordered by rank, joined with the host traces among them and in `hosts`; those left without one.

    A host trace belongs to the profile of its process; of several, and where `hosts` gives one of another process, to
    the rank in its name. InputError for files that cannot be read, when there is no profile, and when a trace of
    `hosts` fits none.
    """
    traces, found = [], []
    for file, content in (each for path in paths for each in documents(path)):
        if is_host_trace(content):
            found.append(read_host_trace(content, file))
        else:
            traces.append(read_kineto(content, file))
    given = [read_host_trace(content, file) for path in hosts for file, content in documents(path)]
    if found and not traces:
        raise InputError.at(
            found[0].file,
            "a host execution trace says what ran, but not when on the GPU",
            expected='a profiler trace, which has the key "traceEvents", beside it',
            hint="record both in one run: torch.profiler's export_chrome_trace and ExecutionTraceObserver",
        )
    traces, left = ranked(traces), []
    for host in [*given, *found]:
        place = _place(traces, host, given=host in given)
        if place < 0:
            left.append(host)
        else:
            traces[place] = joined(traces[place], host)
    return traces, left


def _place(traces: Sequence[KinetoTrace], host: HostTrace, *, given: bool) -> int:
    """Which of the traces a host trace belongs to; -1 when to none and it was not `given`."""
    free = [place for place, trace in enumerate(traces) if trace.host is None]
    own = [place for place in free if host.process in _processes(traces[place])]
    if len(own) == 1:
        return own[0]
    numbered = [place for place in own or free if traces[place].rank == host.number]
    chosen = numbered if own or (given and len(free) > 1) else free
    if len(chosen) == 1 and (own or given):
        return chosen[0]
    if given:
        processes = sorted({process for place in free for process in _processes(traces[place])})
        message, found = "this host execution trace belongs to no trace here", f"process {host.process}"
        expected = f"one of process {', '.join(processes)}" if processes else "one for each trace"
        raise InputError.at(host.file, message, expected=expected, found=found)
    return -1


def _processes(trace: KinetoTrace) -> set[str]:
    return {trace.threads[lane].partition("/")[0] for lane in np.unique(trace.operators.lane).tolist()}


class Operators(Struct, frozen=True, eq=False):
    """A profile's operators in parallel columns: names, starts, threads, and their numbers, which are what `ids` says;
    `file` is for messages.
    """

    file: str
    ids: str
    names: Sequence[str]
    start_ns: Column
    lane: Column
    number: Column


def joined(trace: KinetoTrace, host: HostTrace) -> KinetoTrace:
    """The trace with what the host trace says of its operators: shapes of products, sizes of collectives; InputError
    when fewer than ENOUGH of the operations are operators of the trace.
    """
    rows = trace.operators
    names = [trace.names[name] for name in rows.name.tolist()]
    profile = Operators(trace.file, trace.operator_ids, names, rows.start_ns, rows.lane, rows.correlation)
    by, pairs = matched(profile, host.operations, host.file)
    found = len({op.number for op in pairs.values()})
    # Matrix products whose shapes the profile does not say; types of inputs without the word Tensor around them.
    products = {
        row: product
        for row, op in pairs.items()
        if op.name in PRODUCTS and row not in trace.products
        for types in ([re.sub(r"^Tensor\((.*)\)$", r"\1", str(kind)) for kind in op.inputs.get("types") or ()],)
        if (product := product_of(op.inputs.get("shapes"), types)) is not None
    }
    collectives, unsized = _collectives(trace, host, pairs)
    stretches = max(np.unique([op.number for op in pairs.values()], return_counts=True)[1])
    added = len(products), len(collectives), unsized
    use = HostUse(host.file, by, len(host.operations), found, len(pairs), int(stretches), *added)
    return replace(trace, products=trace.products | products, collectives=trace.collectives | collectives, host=use)


def matched(profile: Operators, operations: Sequence[Op], file: str) -> tuple[str, dict[int, Op]]:
    """By what the operations of a host trace were found, and row of the operators -> operation; InputError, which names
    its `file`, for fewer than ENOUGH of them.
    """
    by, pairs = profile.ids.lower(), by_number(profile, operations)
    if len(pairs) < ENOUGH * len(operations):
        by, pairs = BY_NAME, by_name(profile, operations)
    found = len({op.number for op in pairs.values()})
    if found < ENOUGH * len(operations) or not found:
        expected = f"at least {ENOUGH:.0%} of its operations among the profiler's operators, by "
        expected += f"{profile.ids.lower()} or by {BY_NAME}"
        message, hint = f"this host execution trace is not of the run in {profile.file}", "record both in one run"
        told = f"{found} of {len(operations)}"
        raise InputError.at(file, message, expected=expected, found=told, hint=hint)
    return by, pairs


def by_number(profile: Operators, operations: Iterable[Op]) -> dict[int, Op]:
    """Row of the operators -> the operation of its number and name."""
    known = {_started(op): op for op in operations}
    numbers = enumerate(profile.number.tolist())
    return {
        row: known[number] for row, number in numbers if number in known and known[number].name == profile.names[row]
    }


def by_name(profile: Operators, operations: Iterable[Op]) -> dict[int, Op]:
    """Row of the operators -> operation, thread by thread, the longest first on the profile's thread that fits best.

    Of every stretch that is just the thread's sequence all operators count, else those that most elements match.
    """
    threads: dict[object, list[Op]] = {}
    for op in operations:
        threads.setdefault(op.attributes.get("tid"), []).append(op)
    numbers, pairs = {name: number for number, name in enumerate(dict.fromkeys(profile.names))}, dict[int, Op]()
    coded = np.array([numbers[name] for name in profile.names], dtype=np.int64)
    order = np.lexsort((profile.number, profile.start_ns))
    free = {lane: order[profile.lane[order] == lane] for lane in np.unique(profile.lane).tolist()}
    for own in sorted(threads.values(), key=len, reverse=True):
        wanted = np.array([numbers.get(op.name, -1) for op in own])
        lane = max(free, key=lambda one: (*_likeness(coded[free[one]], wanted), -one), default=-1)
        if lane >= 0:
            rows = free.pop(lane)
            names, starts = coded[rows], _stretches(coded[rows], wanted)
            aligned = [(number, start + number) for start in starts for number in range(len(wanted))]
            if not starts and _likeness(names, wanted)[1] >= ENOUGH * len(wanted):
                aligned = matches(wanted.tolist(), names.tolist())
                within = aligned[-1][1] - aligned[0][1] + 1 if aligned else 0
                aligned *= len(aligned) >= ENOUGH * within  # those scattered over the sequence are none
            pairs |= {int(rows[at]): own[number] for number, at in aligned}
    return pairs


def _likeness(names: Column, wanted: Column) -> tuple[int, int]:
    """How often a sequence has another one in it, and how many names they have in common."""
    common = Counter(names.tolist()) & Counter(wanted.tolist())
    return len(_stretches(names, wanted)), common.total()


def _stretches(names: Column, wanted: Column) -> list[int]:
    """Where a sequence has another one in it, one behind the other."""
    values, counts = np.unique(names, return_counts=True)
    often = dict(zip(values.tolist(), counts.tolist(), strict=True))
    rarest = int(np.argmin([often.get(number, 0) for number in wanted.tolist()]))
    starts: list[int] = []
    for start in (np.flatnonzero(names == wanted[rarest]) - rarest).tolist():
        behind = not starts or start >= starts[-1] + len(wanted)
        if start >= 0 and behind and np.array_equal(names[start : start + len(wanted)], wanted):
            starts.append(start)
    return starts


def _collectives(trace: KinetoTrace, host: HostTrace, pairs: Mapping[int, Op]) -> tuple[dict[int, Collective], int]:
    """Communication kernels that NCCL's arguments do not describe, by row of the tasks; how many stay without size.

    A kernel belongs to the innermost `record_param_comms` around its launch, if that launched no other one.
    """
    said = {
        row: op for row, op in pairs.items() if op.name == kineto.COMMUNICATION and operation_of(op) not in ("", "wait")
    }
    around = kineto.launched_by(trace, said)
    found = {kernel: _collective(said[row], host) for kernel, row in around.items() if row >= 0}
    sized = {kernel: collective for kernel, collective in found.items() if collective.size_bytes}
    return sized, len(around) - len(sized)


def operation_of(op: Op) -> str:
    """The collective of an operation: an attribute, in older schemas the first text among its inputs."""
    texts = (value for value, kind in op.typed_inputs() if kind == "String")
    return str(op.attributes.get("collective_name") or next(texts, ""))


def _collective(op: Op, host: HostTrace) -> Collective:
    """What a rank puts in, and with whom."""
    kind, tensors = next(op.tensors(), ("", []))
    element = TYPES.get(kind, kind)
    elements, size_bytes = sum(int(one[3]) for one in tensors), sum(int(one[3]) * int(one[4]) for one in tensors)
    made = Collective(operation=operation_of(op), group="", elements=elements, dtype=element)
    if made.size_bytes != size_bytes:
        made = replace(made, elements=size_bytes, dtype="byte")
    # Its process group is an attribute, or what an input of these types names.
    named = {"Tuple[String,String]": lambda value: value[0], "Int": lambda value: value}
    called = [named[kind](value) for value, kind in op.typed_inputs() if kind in named]
    names = map(str, (op.attributes.get("pg_name", ""), *called))
    said = next((host.groups[name] for name in names if name in host.groups), None)
    size = int(op.attributes.get("pg_size") or (said or {}).get("group_size") or 0)
    start, stride = (int(op.attributes.get(f"global_rank_{key}", -1)) for key in ("start", "stride"))
    spaced = [start + stride * at for at in range(size)] if start >= 0 and stride > 0 else []
    ranks = list((said or {}).get("ranks") or ()) or spaced or list(range(size if said else 0))
    group = json.dumps(ranks) if len(ranks) == size and size else ""
    description = str(op.attributes.get("pg_desc") or (said or {}).get("pg_desc") or "")
    return replace(made, group=group, size=size, description=description)
