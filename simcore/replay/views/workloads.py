"""A replayed step as a workload: Chakra execution traces, so that a real trace runs on any topology, or rows of a text.

Of traces host calls, kernels and what they wait for stay; collectives whose kind, size and group NCCL's arguments tell
become collectives that the simulated network times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.errors import InputError
from simcore.replay.session import Replay, StepReplay
from simcore.replay.steps.coupling import communicator, told_apart
from simcore.replay.steps.graph import EdgeKind, NodeKind
from simcore.replay.steps.rank import NOWHERE
from simcore.system.groups import LogicalDim
from simcore.timeline.breakdown import union_ns
from simcore.workload import model
from simcore.workload.chakra.schema import CommType
from simcore.workload.chakra.writer import encode, groups, metadata, node
from simcore.workload.kineto import Collective, KinetoTrace
from simcore.workload.model import CollectiveKind, Layer, Phase, Workload, kind_of
from simcore.workload.text import COLLECTIVES, write

KINDS = set(COLLECTIVES.values())  # what traces and texts have
THREADS, DELAYS = 100_000, 1_000_000  # host threads and delays take stream numbers from here on


class Exported(Struct, frozen=True):
    """Files by rank, and how many communication kernels became collectives or kept their recorded time."""

    files: dict[int, bytes]
    collectives: int
    kept: int


def to_chakra(replay: Replay) -> Exported:
    """The typical step of every rank; a single recorded rank stands for all whose groups are spaced as its own are.

    A collective of ranks for which nobody stands keeps its recorded time. What is started by an earlier step's work is
    free at the start. A delay of an edge is a node of its own.
    """
    made: dict[int, _Rank] = {}
    ranks = _written([prepared.view.trace for prepared in replay.ranks])
    for number, prepared in enumerate(replay.ranks):
        step = replay.typical(number)
        together = {  # the recorded ranks that took part in each collective
            member.task: tuple(sorted(step.source.views[other.rank].trace.rank for other in match.members))
            for match in step.source.matches
            for member in match.members
            if member.rank == step.number
        }
        made[prepared.view.trace.rank] = _Rank(step, together, ranks, alone=len(replay.ranks) == 1)
    only = next(iter(made.values()))
    files = {rank: (made[rank] if len(made) > 1 else only).content(rank) for rank in ranks}
    timed = sum(len(rank.collectives) for rank in made.values())
    return Exported(files, timed, sum(rank.kept for rank in made.values()))


def collectives(trace: KinetoTrace) -> dict[int, tuple[CollectiveKind, Collective]]:
    """The collectives, by row of the tasks, that say what they do and with how many bytes."""
    found = {task: (kind_of(said.operation), said) for task, said in trace.collectives.items() if said.size_bytes}
    return {task: (CollectiveKind(kind), said) for task, (kind, said) in found.items() if kind in KINDS}


def _written(traces: Sequence[KinetoTrace]) -> Sequence[int]:
    """The ranks of an exported step: those recorded; of one alone as many as most of its groups repeat in."""
    if len(traces) > 1:
        return sorted(trace.rank for trace in traces)
    rows = [_row(said.ranks) for _, said in collectives(traces[0]).values() if said.ranks]
    spans = [row.stride * row.size for row in rows]
    return range(max(spans, key=lambda span: (sum(span % other == 0 for other in spans), span), default=1))


def _row(ranks: Sequence[int]) -> LogicalDim:
    """The groups of which evenly spaced ranks are one, and which stand one beside the other."""
    return LogicalDim(0, len(ranks), max(ranks[-1] - ranks[0], 0) // max(len(ranks) - 1, 1) or 1)


class _Rank:
    """One rank's part of a graph; `collectives` are its nodes that the network is to time, `kept` counts the others.

    Files are `written` for some ranks, by a rank that was recorded `alone` for all of them.
    `groups` of ranks have one name in all files, `named` says that of each collective ("": all ranks). `barriers` are
    the groups of nodes at which those that keep their time meet: one for each communicator, and each way of its
    transfers, for they have an order of their own.
    """

    def __init__(
        self, step: StepReplay, together: Mapping[int, tuple[int, ...]], written: Sequence[int], *, alone: bool
    ):
        self.step, self.trace, self.kept = step, step.prepared.view.trace, 0
        self.written, self.alone = written, alone
        self.collectives, known = dict[int, Collective](), collectives(self.trace)
        self.groups, self.barriers = dict[str, tuple[int, ...]](), dict[int, str]()
        self.apart, self.named = told_apart(step.source.views), dict[int, str]()
        nodes, gone = step.graph.ranks[step.number], removed(step)
        waited = set(step.graph.target[step.graph.edge_kind == EdgeKind.COLLECTIVE].tolist())
        for row, begin, end in zip(step.tasks, nodes.begins, nodes.ends, strict=True):
            said, met = known[row][1] if row in known and end not in gone else None, together.get(row, ())
            if said is not None and not said.ranks and len(met) == len(step.source.ranks):
                said = replace(said, group=json.dumps(list(met)), size=len(met))
            if said is not None and said.ranks and self._stood_for(said.ranks):
                self.collectives[end] = said
                continue
            self.kept += bool(step.prepared.view.communication[row]) and end not in gone
            if met and end in waited:
                group = communicator(kept, self.apart) if (kept := self.trace.collectives.get(row)) else ""
                self.barriers[begin] = f"recorded {group}"
                self.groups[self.barriers[begin]] = met

    def _stood_for(self, ranks: tuple[int, ...]) -> bool:
        """Whether somebody is written for all ranks of a group."""
        if not self.alone:
            return set(ranks) <= set(self.written)
        row = _row(ranks)
        fits = len(self.written) % (row.stride * row.size) == 0
        return fits and row.members(self.trace.rank).tolist() == [*ranks]

    def content(self, rank: int) -> bytes:
        """The file of this rank, or of one that it stands for: nodes come behind what they wait for."""
        self.named, members = {}, dict(self.groups)
        for end, said in self.collectives.items():
            ranks = tuple(_row(said.ranks).members(rank).tolist()) if self.alone else said.ranks
            self.named[end] = name = self._name(said, ranks)
            members |= {name: ranks} if name else {}
        return encode(metadata(), self._messages(members))

    def _name(self, said: Collective, ranks: tuple[int, ...]) -> str:
        """A communicator's ranks, and what it is called where others have the same; "" for the only one of all."""
        listed = ",".join(map(str, ranks))
        if said.group in self.apart:
            return f"{listed} {said.communicator}"
        return "" if len(ranks) == len(self.written) else listed

    def _messages(self, members: Mapping[str, tuple[int, ...]]) -> Iterator[Any]:
        graph, number_of_rank = self.step.graph, self.step.number
        own = (graph.rank[graph.target] == number_of_rank) & (graph.rank[graph.source] == number_of_rank)
        waits: dict[int, list[tuple[int, int]]] = {}  # what a node waits for within the step, how long after that
        for edge in (own & (graph.back == 0)).nonzero()[0].tolist():
            lag_ns = int(graph.lag_ns[edge] + graph.residual_ns[edge])
            waits.setdefault(int(graph.target[edge]), []).append((int(graph.source[edge]), lag_ns))
        yield groups(0, members)
        number: dict[int, int] = {}
        free = 1
        for row in graph.order:
            if graph.rank[row] != self.step.number:
                continue
            behind = []
            for source, lag_ns in waits.get(row, ()):
                if lag_ns > 0:
                    yield _lasting(free, "delay", lag_ns, DELAYS + free, [number[source]])
                    behind.append(free)
                    free += 1
                else:
                    behind.append(number[source])
            number[row] = free
            yield self._message(row, free, sorted(set(behind)))
            free += 1

    def _message(self, row: int, number: int, behind: list[int]) -> Any:
        graph, said = self.step.graph, self.collectives.get(row)
        name = self.trace.names[graph.name[row]] if graph.name[row] >= 0 else "host"
        attributes: dict[str, object] = {}
        if said is not None:
            attributes = {"comm_type": int(CommType[kind_of(said.operation).upper()]), "comm_size": said.size_bytes}
            attributes |= {"pg_name": self.named[row]} if self.named[row] else {}
            attributes |= {"is_cpu_op": False, "stream": int(graph.lane[row])}
        elif row in self.barriers:
            attributes = {"comm_type": int(CommType.BARRIER), "comm_size": 0, "is_cpu_op": False}
            attributes |= {"pg_name": self.barriers[row]}
            name = f"arrival {name}"
        if attributes:
            return node(number, name, model.NodeKind.COLLECTIVE, data_deps=behind, attributes=attributes)
        lane = int(graph.lane[row]) + (THREADS if graph.kind[row] == NodeKind.HOST else 0)
        return _lasting(number, name, int(graph.duration_ns[row]), lane, behind)


def _lasting(number: int, name: str, duration_ns: int, stream: int, behind: list[int]) -> Any:
    """A node that takes its time on a stream."""
    attributes = {"is_cpu_op": False, "duration_ns": duration_ns, "stream": stream}
    return node(number, name, model.NodeKind.COMPUTE, data_deps=behind, attributes=attributes)


def to_workload_text(replay: Replay) -> str:
    """Rows of the first rank's typical step, for the data parallel loop: collectives go on behind the computation.

    That loop plays weight gradients from the last row to the first, so the rows stand in reverse order of launch.
    InputError when the trace does not say what its collectives do and how large they are.
    """
    rank, step = replay.ranks[0].view, replay.typical(0)
    trace, nodes, gone = rank.trace, step.graph.ranks[step.number], removed(step)
    known, wanted = collectives(trace), [task for task in nodes.tasks if rank.communication[task]]
    if wanted and not any(task in known for task in wanted):
        message = "the rows of the text cannot be cut: no collective says its kind and size"
        expected = f"NCCL arguments of communication kernels in {trace.file}"
        hint = "recent PyTorch versions record them, a host execution trace has them (--host); "
        hint += "--export-chakra keeps the recorded times instead"
        told = f"{len(wanted)} communication kernels without them"
        raise InputError.at("--export-text", message, expected=expected, found=told, hint=hint)
    layers, start_ns, end_ns = list[Layer](), step.timing.start_ns[-1], step.timing.end_ns[-1]
    own = list[tuple[int, int]]()  # first and last node of what is computed since the last collective
    for task, begin, end in [*_launched(step), (NOWHERE, NOWHERE, NOWHERE)]:
        if end in gone or (task >= 0 and rank.communication[task] and task not in known):
            continue
        if task >= 0 and task not in known:
            own.append((begin, end))
            continue
        first, last = np.array(own, np.int64).reshape(-1, 2).T
        kind, size = (known[task][0], known[task][1].size_bytes) if task >= 0 else (None, 0)
        layers.append(
            Layer(f"segment{len(layers)}", weight_grad=Phase(union_ns(start_ns[first], end_ns[last]), kind, size))
        )
        own = []
    return write(Workload("DATA", tuple(reversed(layers)), name=trace.file))


def _launched(step: StepReplay) -> list[tuple[int, int, int]]:
    """The tasks of a played step in the order of their launches: row in the trace, first and last node."""
    graph, nodes, start_ns = step.graph, step.graph.ranks[step.number], step.timing.start_ns[-1]
    launches = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    launcher = dict(zip(graph.target[launches].tolist(), graph.source[launches].tolist(), strict=True))
    times_ns = start_ns[[launcher.get(begin, begin) for begin in nodes.begins]]
    place = np.argsort(step.prepared.view.launch_order)[nodes.tasks]  # of those that are launched at once
    rows = list(zip(nodes.tasks, nodes.begins, nodes.ends, strict=True))
    return [rows[at] for at in np.lexsort((place, times_ns)).tolist()]


def _changed(step: StepReplay) -> dict[int, int]:
    """The times of the collectives that say their bytes, by the node of their end, where changes made them others."""
    base, graph, known = step.source.graph, step.graph, collectives(step.prepared.view.trace)
    recorded, nodes = base.ranks[step.number], graph.ranks[step.number]
    before = dict(zip(recorded.tasks, base.duration_ns[recorded.ends].tolist(), strict=True))
    ends = zip(nodes.tasks, nodes.ends, graph.duration_ns[nodes.ends].tolist(), strict=True)
    return {end: time_ns for task, end, time_ns in ends if task in known and time_ns != before[task]}


def removed(step: StepReplay) -> set[int]:
    """The collectives that changes leave no time, by the node of their end."""
    return {end for end, time_ns in _changed(step).items() if not time_ns}


def untold(replay: Replay) -> int:
    """How many collectives of the typical steps changes made take a time that their bytes and ranks do not say."""
    steps = [replay.typical(number) for number in range(len(replay.ranks))]
    return sum(len(_changed(step)) - len(removed(step)) for step in steps)
