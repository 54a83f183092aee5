"""PyTorch's execution traces (host side, with Kineto's device side) as Chakra traces.

Each thread is a chain in the order of a depth-first walk over the calls; a kernel waits for what launched it. What
Chakra's converter leaves out is added: kernels of one stream in order, and what a synchronisation waits for
(`compat` leaves it out, too).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from simcore.errors import InputError
from simcore.places import Steps, fitted
from simcore.workload.chakra import reader, writer
from simcore.workload.chakra.convert.kineto_link import link
from simcore.workload.chakra.pytorch_form import FLAT_ATTRIBUTES, Op, parse_host
from simcore.workload.chakra.schema import ATTRIBUTES, CommType
from simcore.workload.host_trace import operation_of
from simcore.workload.kineto import COMMUNICATION_KERNEL
from simcore.workload.model import SEND, CollectiveKind, NodeKind, kind_of

THREAD_ROOTS = ("[pytorch|profiler|execution_trace|thread]", "[pytorch|profiler|execution_graph|thread]")
ROOTS = "[pytorch|profiler|"  # what operations of the profiler itself begin with
KERNELS = ("nccldevkernel", "ncclkernel", "rccl")


def convert(
    path: str, kineto: str = "", *, compat: bool = False, tell: Callable[[str], None] = lambda text: None
) -> bytes:
    """The Chakra trace of a host trace (joined with Kineto's file when one is given); InputError says what is wrong,
    and `tell` hears what of them cannot be joined.
    """
    source = reader.content(Path(path)), path
    head, ops = parse_host(*source)
    steps: dict[int, Steps] = {op.number: ("nodes", index) for index, op in enumerate(ops)}
    if kineto:
        steps = {}  # operations get new numbers
        ops = link(ops, path, kineto, tell)
    by_number = {op.number: op for op in ops}
    last: dict[int, int] = {}  # device operations of one stream wait for the one before, in order of their start
    on_device = () if compat else (op for op in ops if op.on_device)
    for op in sorted(on_device, key=lambda op: (op.start_ns, op.number)):
        op.waits_for += [last[op.stream]] if op.stream in last else []
        last[op.stream] = op.number
    # Its caller, where that is in the file; Chakra's converter keeps those that stand before only.
    position = {op.number: place for place, op in enumerate(ops)}
    callers = {
        op.number: [op.parent] * (op.parent in position and (not compat or position[op.parent] < place))
        for place, op in enumerate(ops)
    }
    previous = _walk(by_number)
    outside = by_number.keys() - previous.keys()
    if lost := sum(not by_number[number].name.startswith(ROOTS) for number in outside):
        tell(f"{path}: {lost} of {len(ops)} operations are below no thread's root and left out")

    def node(number: int) -> Any:
        return _node(by_number[number], previous[number], callers[number], by_number, path, compat)

    expected = "a node of PyTorch's trace"
    nodes = [fitted(node, number, source, steps.get(number, ()), expected) for number in sorted(previous)]
    return writer.encode(fitted(_head, head, source, (), "the head of PyTorch's trace"), nodes)


def _head(said: Mapping[str, Any]) -> Any:
    """Metadata with the numbers and texts of a host trace's head."""
    made = writer.metadata("")
    for name in said:
        if isinstance(value := said[name], int | str) and not isinstance(value, bool):
            writer.add_attribute(made, name, value, "uint64" if isinstance(value, int) else "string")
    return made


def _walk(ops: Mapping[int, Op]) -> dict[int, list[int]]:
    """Operation -> what it waits for by the walk, for every operation below a thread's root.

    Both host and device operations follow the host operation visited before them on their thread.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for number in sorted(ops):
        if ops[number].parent != number:
            children[ops[number].parent].append(number)
    waits: dict[int, list[int]] = {}
    for root in sorted(number for number, op in ops.items() if op.name in THREAD_ROOTS):
        last_host, pending, seen = list[int](), [root], set[int]()
        while pending:  # depth first
            number = pending.pop()
            if number not in seen:
                seen.add(number)
                waits[number] = last_host
                last_host = last_host if ops[number].on_device else [number]
                pending += reversed(children.get(number, ()))
    return waits


def _node(op: Op, previous: list[int], callers: list[int], ops: Mapping[int, Op], path: str, compat: bool) -> Any:
    kind, comm_type = _kind(op, ops, path, compat)
    waits = list(dict.fromkeys(previous + [number for number in op.waits_for if number in ops]))
    lasts_ns = op.duration_ns
    if compat:
        lasts_ns = 0 if "Optimizer.step" in op.name else lasts_ns // 1000 * 1000
    lasts = {"duration_ns": lasts_ns}
    made = writer.node(op.number, op.name, kind, data_deps=waits, ctrl_deps=callers, attributes=lasts)
    for side, values in (("inputs", op.inputs), ("outputs", op.outputs)):
        place = getattr(made, side)
        place.values, place.shapes, place.types = (str(values.get(key, [])) for key in ("values", "shapes", "types"))
    for name, value in op.attributes.items():
        if compat and name not in FLAT_ATTRIBUTES:
            continue
        writer.add_attribute(made, name, value, "int64" if isinstance(value, int) else "string")
    extra = {"is_cpu_op": not op.on_device, "stream": op.stream}
    if comm_type is not None:
        sent = sum(one[3] * one[4] for _, tensors in op.tensors() for one in tensors)
        extra |= {"comm_type": int(comm_type), "comm_size": sent}
    for name, value in extra.items():
        writer.add_attribute(made, name, value, ATTRIBUTES[name])
    if op.group and "pg_name" not in op.attributes:
        writer.add_attribute(made, "pg_name", op.group, "string")
    return made


def _kind(op: Op, ops: Mapping[int, Op], path: str, compat: bool) -> tuple[NodeKind, CommType | None]:
    """Type of the node, and of the collective if it is one: what its kernel's name says, or else those around it."""
    if "process_group:init" in op.name:
        return NodeKind.METADATA, None
    label = op.name.lower()
    if not op.on_device or not (label.startswith(KERNELS) if compat else COMMUNICATION_KERNEL.search(label)):
        return NodeKind.COMPUTE, None
    if kind_of(label) in ("", SEND):  # kernels of all, and transfers, of which all-to-alls are made, too
        label = next(filter(kind_of, _around(op, ops)), label)
    kind = kind_of(label)
    if kind == SEND and "sendrecv" not in label:
        return NodeKind.SEND if "send" in label else NodeKind.RECV, None
    if kind and kind != SEND:
        return NodeKind.COLLECTIVE, CommType[kind.upper()]
    message = f"operation {op.number}: cannot tell which collective the kernel '{op.name[:60]}' is"
    known = f"a name with {', '.join(CollectiveKind)}"
    raise InputError.at(path, message, expected=known, found=label or op.name[:60])


def _around(op: Op, ops: Mapping[int, Op]) -> Iterator[str]:
    """What the operations around a kernel, the innermost first, say of communication, and what they are called."""
    yield operation_of(op).lower()  # it has the inputs of what launched it
    number, seen = op.parent, set[int]()
    while number in ops and number not in seen:
        seen.add(number)
        yield from (operation_of(ops[number]).lower(), ops[number].name.lower())
        number = ops[number].parent
