"""FlexFlow's task graphs (Graphviz text) as one execution trace per device.

::

    node0 [label="{device_id=0|Dense_100|Forward|COMP_NODE|simulated_run_time=0.02}",shape=record];
    node1 [label="{device_id=4|Comm|Comm|COMM_SEND_RECV_NODE|src_device_id=0|dst_device_id=1|comm_size=8|run_time=1}"];
    node0 -> node1;

A transfer becomes a send in its source's trace and a receive in its destination's, under one id and one tag of its own.
FlexFlow counts milliseconds; Chakra's first converter took them for seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from simcore.documents import read_text
from simcore.errors import Location, Problem, Problems
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import NODE_TYPES
from simcore.workload.model import NodeKind
from simcore.workload.tokens import MAX_INTEGER

NS_PER_MS = 1_000_000
MOST_DEVICES = 1 << 16  # each becomes a file
_STATEMENT = re.compile(
    r'\s*(?:digraph\s+\w+|[{}]|node(?P<task>\d{1,18})\s*\[[^]]*?label="\{(?P<label>[^{}"]*)\}"[^]]*\]'
    r"|node(?P<parent>\d{1,18})\s*->\s*node(?P<child>\d{1,18})(?:\s*\[[^]]*\])?)\s*;?\s*"
)
_SYNTAX = 'nodeN [label="{device_id=D|name|Forward|COMP_NODE|simulated_run_time=T}"] or nodeA -> nodeB;'


class Task(Struct):
    """A node of the graph; `source` and `target` are devices, equal for computation."""

    number: int
    name: str
    source: int
    target: int
    duration_ns: int
    size_bytes: int
    tag: int
    location: Location
    parents: list[int] = []

    @property
    def is_transfer(self) -> bool:
        """Whether this is a transfer (it has a tag) and not computation."""
        return self.tag >= 0


def convert(path: str, *, ns_per_unit: float = NS_PER_MS) -> list[bytes]:
    """The trace of every device of a graph file, device 0 first; InputError with line and column of what is wrong."""
    with Problems() as problems:
        tasks = _read(read_text(path), path, ns_per_unit, problems)
        for task in tasks.values():  # computation can wait only for what its own device does; a transfer has two ends
            if not 0 <= min(task.source, task.target) <= max(task.source, task.target) < MOST_DEVICES:
                text, found = f"node{task.number} is on a device that cannot be", f"{task.source}, {task.target}"
                problems.add(Problem(task.location, text, f"devices 0 to {MOST_DEVICES - 1}", found, field="device_id"))
            if task.is_transfer and task.source == task.target:
                text = f"node{task.number} transfers from device {task.source} to itself"
                problems.add(Problem(task.location, text, "two devices", str(task.source), field="dst_device_id"))
            for parent in () if task.is_transfer else task.parents:
                if task.source not in (tasks[parent].source, tasks[parent].target):
                    text = f"node{task.number} on device {task.source} waits for node{parent} on another device"
                    problems.add(Problem(task.location, text, "a transfer between the two"))
        if not tasks and not problems.found:
            problems.add(Problem(Location(path, 1, 1), "no task in this graph", _SYNTAX))
    devices = 1 + max((device for task in tasks.values() for device in (task.source, task.target)), default=-1)
    ordered = [tasks[number] for number in sorted(tasks)]
    return [
        writer.encode(
            writer.metadata(converted_from="FlexFlow"),
            (node for task in ordered for node in _nodes(task, tasks, device)),
        )
        for device in range(devices)
    ]


def _statements(text: str, path: str, problems: Problems) -> Iterator[tuple[re.Match[str], Location, str]]:
    """The statements of a graph, where each stands and its line; from what is none on a line is a problem."""
    for number, line in enumerate(map(str.rstrip, text.splitlines()), 1):
        at = 0
        while at < len(line):
            rest = line[at:].lstrip()
            location, match = Location(path, number, len(line) - len(rest) + 1), _STATEMENT.match(line, at)
            if match is None:
                problems.add(Problem(location, "neither a task nor an edge", _SYNTAX, rest, source=line))
                break
            yield match, location, line
            at = match.end()


def _read(text: str, path: str, ns_per_unit: float, problems: Problems) -> dict[int, Task]:
    tasks: dict[int, Task] = {}
    edges: list[tuple[int, int]] = []
    transfers = 0
    for match, location, line in _statements(text, path, problems):
        if match["child"]:
            edges.append((int(match["parent"]), int(match["child"])))
        if not match["task"]:
            continue
        try:
            task = _task(int(match["task"]), match["label"], ns_per_unit, transfers, location)
        except (LookupError, ValueError, OverflowError) as error:
            problems.add(Problem(location, f"not a task: {error}", _SYNTAX, match["label"], source=line))
            continue
        transfers += task.is_transfer
        if tasks.setdefault(task.number, task) is not task:
            problems.add(Problem(location, f"node{task.number} is here twice", "one label a task", source=line))
    for parent, child in edges:
        if parent in tasks and child in tasks:
            tasks[child].parents.append(parent)
        else:
            lost = child if parent in tasks else parent
            message = f"the edge node{parent} -> node{child} has no node{lost}"
            problems.add(Problem(Location(path), message, "its label"))
    return tasks


def _task(number: int, label: str, ns_per_unit: float, tag: int, location: Location) -> Task:
    """A task from its label; KeyError, IndexError or ValueError when it lacks something."""
    words = label.split("|")
    values = dict(word.split("=", 1) for word in words if "=" in word)
    name, kind = words[1], words[3]
    if kind == "COMP_NODE":
        duration_ns, device = round(float(values["simulated_run_time"]) * ns_per_unit), int(values["device_id"])
        return Task(number, f"COMP_NODE_{name}", device, device, _counted(duration_ns), 0, -1, location)
    if kind != "COMM_SEND_RECV_NODE":
        raise ValueError(f"unknown type {kind}")
    ends = int(values["src_device_id"]), int(values["dst_device_id"])
    return Task(number, name, *ends, 0, _counted(int(values["comm_size"])), tag, location)


def _counted(value: int) -> int:
    """A time or size that a trace can hold."""
    if not 0 <= value <= MAX_INTEGER:
        raise ValueError(f"{value} is not between 0 and 2^63 - 1")
    return value


def _nodes(task: Task, tasks: Mapping[int, Task], device: int) -> Iterator[object]:
    """What `task` is on `device`: nothing, computation, a send or a receive."""
    if device not in (task.source, task.target):
        return
    parents = [number for number in task.parents if device in (tasks[number].source, tasks[number].target)]
    if not task.is_transfer:
        lasts = {"is_cpu_op": False, "duration_ns": task.duration_ns}
        yield writer.node(task.number, task.name, NodeKind.COMPUTE, data_deps=parents, attributes=lasts)
        return
    kind = NodeKind.SEND if device == task.source else NodeKind.RECV
    transfer = {"comm_src": task.source, "comm_dst": task.target, "comm_size": task.size_bytes, "comm_tag": task.tag}
    attributes = {"is_cpu_op": False, **transfer}
    yield writer.node(task.number, f"{NODE_TYPES[kind]}_{task.name}", kind, data_deps=parents, attributes=attributes)
