"""Dependency graphs made ready to run: collectives and messages, what nodes cost, and the memory that NPUs share.

Nodes that a profile cannot run are refused. Collectives may be traces themselves (ASTRA-sim 2.x).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.engine.classes import even
from simcore.engine.families import Family, families_of, programs_of, row_of, rows_in, stage_width
from simcore.engine.setup import Setup, joined
from simcore.errors import InputError, Location, Problem, Problems
from simcore.network.instant import TimersOfNpus
from simcore.network.topology.model import Topology
from simcore.noise import Noise
from simcore.profiles import Profile
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.collectives import NCCL, ROOTED, Algorithm
from simcore.system.config import SystemConfig
from simcore.system.groups import Communicator, GroupDim, LogicalDim, first_apart
from simcore.system.memory import Port, RemoteMemory
from simcore.system.messages.point_to_point import Mailbox
from simcore.system.npus.graph_npu import COMPUTE, GraphNpu, GraphProgram
from simcore.system.streams import Lane, Request
from simcore.system.transport import Transport
from simcore.timeline.events import EventBuffer, Timeline
from simcore.units import format_ranks
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import ALL_DIMENSIONS, CollectiveKind, Graph, GraphSet, NodeKind, PhaseName

IDLE_MEMORY = "--remote-memory changes nothing: the traces neither load from it nor store to it"
SHOWN_STUCK = 10
KINDS = list(CollectiveKind)
_ALLOWED = (NodeKind.INVALID, NodeKind.METADATA, NodeKind.COMPUTE, NodeKind.SEND, NodeKind.RECV)
OVERLOOKED = "it looks for ready nodes when one finishes, and what made these ready does nothing (ASTRA-sim 2.x)"
BARRIER_BYTES = 1  # of a message that says nothing but that it was sent


class GraphCase:
    """A dependency graph for every NPU, and the memory that they share."""

    def __init__(self, graphs: GraphSet, memory: RemoteMemory | None, setup: Setup):
        """InputError for nodes that cannot run."""
        for graph in graphs.graphs:
            check_nodes(graph, setup.profile, setup.system)
        _check_parts(graphs, setup)
        most_bytes = _most_bytes(graphs, setup.topology)
        if setup.profile.gang:
            graphs = replace(graphs, graphs=tuple(_in_groups(graph, setup.topology) for graph in graphs.graphs))
        self._sent = {pair for graph in graphs.graphs for pair in _sent_in(graph)}
        used = {kind for kind, _ in self._sent}
        lanes = {kind: lanes for kind, lanes in setup.lanes.items() if kind in used}
        shares_memory = memory is not None and memory.npus_per_node != 0
        self._graphs, self._memory = graphs, memory
        self._most_bytes = most_bytes if setup.profile.gang else {}  # others need not agree on chunks
        self._width, families = stage_width(graphs), families_of(graphs, setup.topology)
        fits = self._fits(setup, lanes, families)
        self._families = families if fits else {}
        staged = self._width == setup.topology.npus or (fits and self._width > 1)
        apart = not staged or (not self._families and bool(_parts(graphs, setup.topology.npus)))
        # Those of one graph may fare differently.
        self._told_apart = bool(shares_memory or setup.system.custom or setup.system.custom_nodes or apart)
        self._groups = _groups(graphs, setup, self._families)
        self.setup = replace(
            setup, lanes=lanes, collectives_only=not self._told_apart,
            stages=1 if self._told_apart else setup.topology.npus // self._width,
            uneven=bool(most_bytes), in_turn=shares_memory and not setup.profile.gang,
        )  # fmt: skip

    @property
    def machine(self) -> Setup:
        """The setup, with dimensions cut where families of communicators are rows of them, and the lanes it takes.

        Those of a dimension are only where some collective is not of a family.
        """
        setup, lanes = self.setup, {}
        for kind, own in setup.lanes.items():
            families = {self._families.get(name) for other, name in self._sent if other == kind}
            dims = [family.dim for family in sorted(filter(None, families))]
            rows = (_lane(setup, kind, dim, row=setup.profile.gang) for dim in dims)
            lanes[kind] = (*(own if None in families else ()), *rows)
        return replace(setup, dims=rows_in(setup.dims, self._families.values(), self._width), lanes=lanes)

    def _fits(
        self, setup: Setup, lanes: Mapping[CollectiveKind, Sequence[Lane]], families: Mapping[str, Family]
    ) -> bool:
        """Whether one of a family's groups may stand for the others, and a place of a stage for those of its width.

        All families lie in dimensions in which all kinds of collectives have queues. Where all NPUs of a group begin
        together it makes no difference which group it is, else only where all of its NPUs do the same.
        """
        dims = [dim for _, dim in families.values()]
        queued = all(dim.index < len(own) for dim in dims for own in lanes.values())
        if not (queued and rows_in(setup.dims, families.values(), self._width)):
            return False
        if any(name not in families for _, name in self._sent):
            dims.append(LogicalDim(0, setup.topology.npus, 1))
        return setup.profile.gang or even(programs_of(self._graphs, families, self._width), dims)

    def programs(self) -> NDArray[np.int64] | None:
        """Which graph every NPU runs; None where nobody can stand for another.

        NPUs that run the same graph do the same as long as nothing tells them apart: no point-to-point messages but to
        the same place in other stages, no communicators of some NPUs that are not rows of a dimension, no collectives
        with a root, no memory that they share.
        """
        setup, collectives = self.setup, np.concatenate([graph.collective for graph in self._graphs.graphs])
        rooted = [KINDS.index(kind) for kind in ROOTED if kind in setup.lanes]
        has_roots = bool(np.isin(collectives, rooted).any()) and not setup.system.replay_only
        return None if has_roots or self._told_apart else programs_of(self._graphs, self._families, self._width)

    def npus(
        self, ranks: Sequence[Sequence[int]], transport: Transport, schedulers: Sequence[Scheduler]
    ) -> Sequence[GraphNpu]:
        """The NPUs of every class."""
        setup, timers = self.setup, transport.timers
        self._mailbox = Mailbox(schedulers[0].env, transport.carry, ranks, rendezvous=setup.settings.rendezvous)
        port = partial(Port, schedulers[0].env, gathers=setup.profile.gang)
        access = _memory(timers, self._memory, port)
        customs = Customs(setup)
        program_of = cache(partial(_program, setup, self._graphs, self._groups, schedulers[0].events, customs))
        self._npus = list[GraphNpu]()
        for scheduler, members in zip(schedulers, ranks, strict=True):
            npu = int(members[0])
            number, factor = int(self._graphs.graph_of_rank[npu]), setup.settings.stragglers.get(npu, 1.0)
            program = program_of(number, factor, self._most_bytes.get(npu, b""))
            own = scheduler.events, _noisy(program, setup.settings.noise, npu), timers[npu]
            around, start_ns = (scheduler, self._mailbox, access), self._graphs.start_ns.get(npu, 0)
            self._npus.append(GraphNpu(npu, program, *around, *own, gathers=setup.profile.gang, start_ns=start_ns))
        return self._npus

    def in_turn(self, *_: object) -> None:
        """Who acts first: no program that asks for an order reads graphs."""

    def stuck(self) -> list[str]:
        """Who waits for which nodes, and the messages that are missing."""
        lines = []
        for npu in [npu for npu in self._npus if npu.finish_ns < 0][:SHOWN_STUCK]:
            place = f"NPU {npu.npu} ({Location(npu.program.graph.path)})"
            lines.append(f"{place} waits for {', '.join(npu.running()) or 'nothing that runs'}")
            if nodes := npu.overlooked():
                lines.append(f"{place} never starts {', '.join(nodes)}: {OVERLOOKED}")
        for mail, sent in self._mailbox.waiting()[:SHOWN_STUCK]:
            fault = f"NPU {mail.dst} does not receive it" if sent else f"NPU {mail.src} does not send it"
            lines.append(f"message with tag {mail.tag} from NPU {mail.src} to {mail.dst}, {mail.size_bytes} B: {fault}")
        return lines

    def told(self, played: Timeline) -> Timeline:
        """The timeline: a graph has neither layers nor iterations."""
        whole = {name for name, group in self._groups.items() if not group.dim}
        spans = dict.fromkeys(span for graph in self._graphs.graphs for span in _spans_in(graph, whole))
        every = range(0 if self.setup.system.replay_only else len(self.setup.topology.dims))
        asked = [(KINDS[kind], [at for at in every if mask >> at & 1]) for kind, mask in spans]
        sent = ((kind, dims) for kind, dims in asked if kind in self.setup.lanes)  # others take recorded times
        stored = (np.isin(graph.kind, (NodeKind.MEM_LOAD, NodeKind.MEM_STORE)).any() for graph in self._graphs.graphs)
        idle = (IDLE_MEMORY,) * bool(self._memory and not any(stored))
        return replace(played, notes=(*played.notes, *self.setup.unnamed(sent), *idle))


def _in_groups(graph: Graph, topology: Topology) -> Graph:
    """Collectives of some dimensions as those of communicators, one for each set of dimensions that NPUs lie along."""
    whole = sum(1 << index for index, dim in enumerate(topology.dims) if dim.npus > 1)
    unnamed = ~np.array([bool(name) for name in graph.group_names])[graph.group]
    dims = np.where(unnamed & (graph.collective >= 0), graph.dims & whole, 0)
    masks = sorted({*dims.tolist()} - {0, whole})
    if not masks:
        return graph
    group, number = graph.group.copy(), len(graph.group_names)
    for mask in masks:
        group[dims == mask] = number + masks.index(mask)
    spans = [", ".join(str(at) for at in range(mask.bit_length()) if mask >> at & 1) for mask in masks]
    names = (*graph.group_names, *(f"(dimension {span})" for span in spans))
    return replace(graph, group=group, group_names=names)


def _sent_in(graph: Graph) -> set[tuple[CollectiveKind, str]]:
    """What kinds of collectives are sent in which communicators."""
    rows = np.flatnonzero(graph.collective >= 0)
    pairs = np.unique([graph.collective[rows], graph.group[rows]], axis=1).T.tolist()
    return {(KINDS[kind], graph.group_names[group]) for kind, group in pairs}


def _spans_in(graph: Graph, whole: Collection[str]) -> Iterator[tuple[int, ...]]:
    """Number of a kind of collectives and mask of dimensions of those that go to all NPUs along these."""
    everywhere = np.array([name in whole for name in graph.group_names])
    rows = np.flatnonzero((graph.collective >= 0) & everywhere[graph.group])
    return map(tuple, np.unique([graph.collective[rows], graph.dims[rows]], axis=1).T.tolist())


def _most_bytes(graphs: GraphSet, topology: Topology) -> dict[int, bytes]:
    """Of every rank: the most bytes that a member of the group gives to each of its rows' collectives, as whole numbers
    of 64 bits; {} where all members of every group give the same.
    """
    sent = [_sent(graph) for graph in graphs.graphs] if len(graphs.graphs) > 1 else []
    said = [{group: table[1:].tobytes() for group, table in own.items()} for own in sent]
    if all(own == said[0] for own in said):
        return {}
    groups: defaultdict[Hashable, list[tuple[int, NDArray[np.int64]]]] = defaultdict(list)
    for rank, graph in enumerate(graphs.graph_of_rank.tolist()):
        for (name, dims), table in sent[graph].items():
            at = zip(topology.dims, topology.strides, strict=True)
            outside = (rank // stride % dim.npus for index, (dim, stride) in enumerate(at) if not dims >> index & 1)
            groups[name, dims, *outside].append((rank, table))
    if all(len({table[1:].tobytes() for _, table in members}) == 1 for members in groups.values()):
        return {}
    most = [graphs.graphs[graph].size_bytes.astype(np.int64) for graph in graphs.graph_of_rank.tolist()]
    for members in groups.values():
        if len({table.shape for _, table in members}) == 1:  # others do not run
            largest = np.max([sizes for _, (_, _, sizes) in members], axis=0)
            for rank, (rows, _, _) in members:
                most[rank][rows] = largest
    return {rank: own.tobytes() for rank, own in enumerate(most)}


def _sent(graph: Graph) -> dict[tuple[str, int], NDArray[np.int64]]:
    """Rows, kinds and sizes of a graph's collectives by communicator and dimensions; kinds sorted, rows of one not."""
    rows = np.flatnonzero(graph.collective >= 0)
    named = np.array([bool(name) for name in graph.group_names])[graph.group[rows]]
    dims = np.where(named, ALL_DIMENSIONS, graph.dims[rows])
    table = np.stack([graph.group[rows], dims, rows, graph.collective[rows], graph.size_bytes[rows]]).astype(np.int64)
    table = table[:, np.lexsort(table[[3, 1, 0]])]
    begins = np.flatnonzero((np.diff(table[:2]) != 0).any(axis=0)) + 1
    parts = np.split(table, begins, axis=1) if len(rows) else []
    return {(graph.group_names[int(own[0, 0])], int(own[1, 0])): own[2:] for own in parts}


def _parts(graphs: GraphSet, npus: int) -> list[str]:
    """Communicators that are not of all NPUs, the largest first."""
    names = {name for graph in graphs.graphs for name in graph.group_names} & graphs.groups.keys()
    parts = (name for name in names if len(graphs.groups[name]) < npus)
    return sorted(parts, key=lambda name: (-len(graphs.groups[name]), name))


def _check_parts(graphs: GraphSet, setup: Setup) -> None:
    """Where all NPUs meet behind every phase (ASTRA-sim 1.0) some of them never end one."""
    for name in _parts(graphs, setup.topology.npus)[:1] if setup.profile.barrier else ():
        if len(graphs.groups[name]) > 1:
            message = f"profile {setup.profile.name} ends a phase when all NPUs of the machine have finished it"
            expected = "communicators of all NPUs, or another profile"
            raise InputError.at("--profile", message, expected=expected, found=f"one of some: {name}")


class _Group(NamedTuple):
    """Who has a collective that a `name` tells: some `ranks`, none = all; `dim` where that is not the whole machine.

    With `row` it is one of a dimension, natively.
    """

    name: str
    turn: int
    ranks: Sequence[int] = ()
    dim: GroupDim | None = None
    row: bool = False


def _groups(graphs: GraphSet, setup: Setup, families: Mapping[str, Family]) -> dict[str, _Group]:
    """The groups by the names that traces give them."""
    found, turns, gang = {}, dict[str, int](), setup.profile.gang
    for name in _in_turn(graphs):
        ranks, told = graphs.groups.get(name, ()), families[name].name if name in families else name
        turn = turns.setdefault(told, len(turns))
        if name in families:
            found[name] = _Group(told, turn, ranks, families[name].dim, row=gang)
        elif 0 < len(ranks) < setup.topology.npus:
            row = gang and row_of(setup.topology, ranks) is not None
            found[name] = _Group(name, turn, ranks, Communicator(ranks, along=first_apart(_dims(setup), ranks)), row)
        else:
            found[name] = _Group(name, turn, ranks)
    return found


def _in_turn(graphs: GraphSet) -> list[str]:
    """Communicators by their ranks; of the same ranks those whose first node comes first, whatever they are called."""
    first: dict[str, tuple[int, int]] = {}
    for number, graph in enumerate(graphs.graphs):
        rows = np.flatnonzero(graph.collective >= 0)
        for group, row in zip(*np.unique(graph.group[rows], return_index=True), strict=True):
            first.setdefault(graph.group_names[group], (number, int(row)))
    return sorted(first, key=lambda name: (graphs.groups.get(name, ()), first[name]))


def _program(
    setup: Setup, graphs: GraphSet, members: Mapping[str, _Group], events: EventBuffer, customs: Customs,
    number: int, factor: float, most: bytes,
) -> GraphProgram:  # fmt: skip
    """What the nodes of a graph cost under the profile; `most` bytes are given to collectives where sizes differ."""
    graph = _scaled(graphs.graphs[number], setup)
    names = [events.name(name) for name in graph.names]
    rules, kinds = setup.profile.graph, graph.kind.tolist()
    groups = [graph.group_names[group] for group in graph.group.tolist()]
    slots = [*map(rules.slot, kinds, graph.on_cpu.tolist(), graph.stream.tolist(), groups)]
    requests, played, most_bytes = {}, {}, np.frombuffer(most, np.int64) if most else graph.size_bytes
    if setup.system.replay_only:
        kinds = [COMPUTE] * len(graph)
    elif setup.system.roofline and rules.strict:  # ASTRA-sim 2.x's leaves out computations without data
        nothing = (graph.kind == NodeKind.COMPUTE) & ~graph.on_cpu & (graph.size_bytes == 0)
        kinds = np.where(nothing, NodeKind.INVALID, graph.kind).tolist()
    for row in [row for row, kind in enumerate(kinds) if kind == NodeKind.COLLECTIVE]:
        kind = KINDS[int(graph.collective[row])]
        group = members[groups[row]]
        if custom := customs.of(int(graph.node_id[row]), kind, group.ranks or range(setup.topology.npus)):
            played[row] = custom
        elif kind in setup.lanes:
            requests[row] = _request(setup, graph, row, kind, group, names[row], int(most_bytes[row]))
        else:
            kinds[row] = COMPUTE  # the peers replay what they cannot play
    durations, behind = _durations(setup, graph, factor), _in_order(graph, requests) if rules.ordered else {}
    around = slots, _dims(setup), names
    lifo = _policy(graph, setup) == "LIFO"
    return GraphProgram(graph, kinds, durations, *around, requests, played, behind, lifo, rules.strict)


def _policy(graph: Graph, setup: Setup) -> str:
    """By which its collectives go."""
    return graph.policy or setup.system.scheduling_policy


def _scaled(graph: Graph, setup: Setup) -> Graph:
    """With the sizes of messages times the factor, where a profile applies it; collectives have theirs when asked."""
    factor = setup.settings.comm_scale
    messages = np.flatnonzero(graph.messages)
    if factor == 1.0 or not len(messages) or not setup.profile.graph.scales:
        return graph
    sizes = graph.size_bytes.astype(np.int64)
    sizes[messages] = [setup.profile.scale(size, factor) for size in sizes[messages].tolist()]
    return replace(graph, size_bytes=sizes)


def _dims(setup: Setup) -> tuple[int, ...]:
    """How many NPUs lie along each dimension of the machine."""
    return tuple(dim.npus for dim in setup.topology.dims)


def _in_order(graph: Graph, rows: Iterable[int]) -> dict[int, int]:
    """For collectives of a communicator, on no stream, the one before: NCCL's ranks all begin them in the same order.

    That is the order of the trace. Where a node comes before one that it waits for, there is none.
    """
    if (graph.deps >= np.repeat(np.arange(len(graph)), np.diff(graph.dep_offsets))).any():
        return {}
    found, last = {}, dict[int, int]()
    for row, group in ((row, int(graph.group[row])) for row in sorted(rows) if graph.stream[row] < 0):
        if group in last:
            found[row] = last[group]
        last[group] = row
    return found


def _durations(setup: Setup, graph: Graph, factor: float) -> list[int]:
    """How long every node takes that takes a time of its own."""
    duration_ns = setup.profile.graph.durations_ns(graph)
    if setup.system.roofline and not setup.system.replay_only:
        duration_ns = _by_roofline(graph, setup.system, duration_ns)
    for scale in (setup.settings.compute_scale if setup.profile.graph.scales else 1.0, factor):  # as those of rows
        if scale != 1.0:
            duration_ns = np.where(_computing(graph), np.round(duration_ns * scale), duration_ns).astype(np.int64)
    durations: list[int] = duration_ns.tolist()
    return durations


def _computing(graph: Graph) -> NDArray[np.bool_]:
    """Which nodes take longer on a slow NPU: neither those that only wait, nor communication that is replayed."""
    found: NDArray[np.bool_] = (graph.kind == NodeKind.COMPUTE) & ~graph.delays
    return found


def on_roofline(graph: Graph) -> NDArray[np.bool_]:
    """Which nodes take what a roofline says of their operations."""
    found: NDArray[np.bool_] = (graph.kind == NodeKind.COMPUTE) & ~graph.on_cpu & (graph.num_ops > 0)
    return found


def _by_roofline(graph: Graph, system: SystemConfig, duration_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Durations where computations take what ASTRA-sim 2.x's roofline says; those without data the peak's alone."""
    found = duration_ns.copy()
    for row in np.flatnonzero(on_roofline(graph)).tolist():
        num_ops, size_bytes = int(graph.num_ops[row]), int(graph.size_bytes[row])
        memory_flops = system.local_memory_bytes_per_s * (num_ops / size_bytes) if size_bytes else inf
        found[row] = int(num_ops / min(memory_flops, system.peak_flops) * 1e9)
    return found


def _noisy(program: GraphProgram, noise: Noise, npu: int) -> list[int]:
    """The durations of one NPU's nodes, those of computations each with a factor of its own."""
    if not noise.compute:
        return program.duration_ns
    computes = np.flatnonzero(_computing(program.graph))
    durations = np.array(program.duration_ns, np.int64)
    factors = noise.compute_factors(npu, 0, len(PhaseName), computes)
    durations[computes] = np.round(durations[computes] * factors).astype(np.int64)
    found: list[int] = durations.tolist()
    return found


def _request(
    setup: Setup, graph: Graph, row: int, kind: CollectiveKind, group: _Group, name: int, most: int
) -> Request:
    """What a collective node sends, to which some NPU gives the `most` bytes."""
    sizes = [int(graph.size_bytes[row]), most]
    if setup.profile.graph.scales:
        sizes = [setup.profile.scale(size, setup.settings.comm_scale) for size in sizes]
    size_bytes, most_bytes = sizes if kind != CollectiveKind.BARRIER else (BARRIER_BYTES, 0)
    priority = int(graph.priority[row]) if _policy(graph, setup) == "EXPLICIT" else 0
    if group.dim:
        lanes: tuple[Lane, ...] = (_lane(setup, kind, group.dim, row=group.row),) if group.dim.size > 1 else ()
    else:
        mask = ALL_DIMENSIONS if group.ranks else int(graph.dims[row])  # who is in a communicator, takes part
        wanted = [mask == ALL_DIMENSIONS or mask >> index & 1 for index in range(len(setup.topology.dims))]
        usable = (lane for lane in setup.lanes[kind] if lane.dim.size > 1)
        lanes = joined(lane for lane in usable if lane.algorithm.whole_machine or wanted[lane.dim.index])
    root = _root(graph, row, group.ranks or range(setup.topology.npus)) if kind in ROOTED else 0
    told = partial(Request, name=name, group=group.name, turn=group.turn, row=row)
    return told(kind, size_bytes, lanes, priority, root=root, most_bytes=most_bytes)


def _lane(setup: Setup, kind: CollectiveKind, dim: GroupDim, *, row: bool) -> Lane:
    """How a communicator of some NPUs sends a kind of collective: in the first queue that it may lie in.

    A `row` of a dimension does what its dimension does.
    """
    lanes = setup.lanes[kind]
    queue = 0 if setup.profile.graph.one_queue else min(dim.along, len(lanes) - 1)
    own = (lane.algorithm for lane in lanes if lane.dim.index == dim.along and not lane.algorithm.whole_machine)
    return Lane(queue, dim, (next(own, None) if row else None) or _group_algorithm(setup, kind), local=not row)


def _root(graph: Graph, row: int, ranks: Sequence[int]) -> int:
    """The NPU that a collective starts from or ends at: the node's, or the first of the group."""
    root = int(graph.peer[row])
    if root < 0:
        return ranks[0]
    if root not in ranks:
        message = f"the root of node '{graph.names[row]}' is not in its group"
        expected = f"one of NPUs {format_ranks(sorted(ranks))}"
        raise InputError.at(Location(graph.path), message, expected=expected, found=f"NPU {root}")
    return root


def _group_algorithm(setup: Setup, kind: CollectiveKind) -> Algorithm:
    """A communicator's algorithm: the configured one where there is one, else one for any number of ranks."""
    lanes = setup.lanes[kind]
    if lanes[0].algorithm.name == NCCL:
        return lanes[0].algorithm
    if kind == CollectiveKind.BARRIER:
        return replace(lanes[0].algorithm, whole_machine=False)
    fallback = Algorithm("binomial" if kind in ROOTED else "ring")
    if kind == CollectiveKind.ALL_TO_ALL and setup.profile.native_algorithms:
        fallback = Algorithm("direct")  # a ring hands on what is not its own
    if lanes[0].algorithm.whole_machine:  # as one dimension, unless the list of the system file goes on
        single = not setup.profile.native_algorithms and len(setup.system.implementations.get(kind, ())) == 1
        return replace(lanes[0].algorithm, whole_machine=False) if single else fallback
    return lanes[0].algorithm if len(lanes) == 1 else fallback


def _memory(
    timers: TimersOfNpus, memory: RemoteMemory | None, port: Callable[[], Port]
) -> Callable[[int, int, Callable[[], None]], None]:
    """Loads and stores, one at a time at every port."""
    ports = defaultdict[int, Port](port)

    def access(npu: int, size_bytes: int, done: Callable[[], None]) -> None:
        if memory is None:
            message = "the trace loads or stores remote memory, but there is none"
            raise InputError.at("--remote-memory", message, expected="a remote memory file")
        if 0 < memory.max_npus <= npu:
            message = f"NPU {npu} loads or stores remote memory, but its node has none"
            raise InputError.at("--remote-memory", message, expected="nodes for all NPUs", found=str(memory.max_npus))
        serve = partial(timers[npu].after, memory.transfer_ns(size_bytes))
        if memory.npus_per_node:
            ports[memory.port(npu)].ask(npu, serve, done)
        else:
            serve(done)

    return access


def check_nodes(graph: Graph, profile: Profile, system: SystemConfig) -> None:
    """InputError that names the nodes at fault; nodes that only replay their durations can always run."""
    if system.replay_only:
        return
    with Problems() as problems:
        if profile.graph.strict:
            on_host = graph.on_cpu & (graph.kind >= NodeKind.SEND)
            text = f"communication on the host, which profile {profile.name} does not have"
            _note(problems, graph, on_host, text, "is_cpu_op", "false, or --profile native")
        for refused in profile.graph.refused:
            there = (graph.kind == NodeKind.COLLECTIVE) & (graph.collective == KINDS.index(refused))
            text = f"profile {profile.name} has no {refused}"
            _note(problems, graph, there, text, "comm_type", "all_reduce, .. all_to_all, or --profile native")
        if system.roofline and profile.graph.strict:
            computes = (graph.kind == NodeKind.COMPUTE) & ~graph.on_cpu
            lost = computes & (graph.num_ops == 0) & ((graph.size_bytes > 0) | (graph.duration_ns > 0))
            _note(problems, graph, lost, "no operations for the roofline", "num_ops", "operations > 0")
        rates = system.peak_flops and system.local_memory_bytes_per_s
        if system.roofline and not rates and graph.num_ops[~graph.on_cpu].any():
            message, expected = "a roofline needs two rates", "peak-perf and local-mem-bw in the file"
            problems.add(Problem(system.at("roofline-enabled"), message, expected))


def _note(problems: Problems, graph: Graph, bad: NDArray[np.bool_], text: str, field: str, expected: str) -> None:
    for row in np.flatnonzero(bad).tolist():
        message = f"node {graph.node_id[row]} '{graph.names[row][:80]}': {text}"
        problems.add(Problem(Location(graph.path), message, expected, field=field))


class Customs:
    """The programs that a system file puts in the place of collectives, one for every NPU.

    Sizes, tags and durations are the traces' own; nothing in them waits for anything but its dependencies. Their ranks
    are places in the communicator.
    """

    def __init__(self, setup: Setup):
        self._system, self._rules, self._dims = setup.system, setup.profile.graph, _dims(setup)
        self._known: dict[tuple[str, Sequence[int]], dict[int, GraphProgram]] = {}

    def of(self, node_id: int, kind: CollectiveKind, members: Sequence[int]) -> Mapping[int, GraphProgram]:
        """What NPUs play in the place of a node: its own traces come before its collective's; {} = nothing special."""
        prefix = self._system.custom_nodes.get(node_id) or self._system.custom.get(kind)
        if prefix and (prefix, members) not in self._known:
            found = read_graphs(prefix, len(members))
            programs = [self._program(graph, members) for graph in found.graphs]
            numbers = zip(members, found.graph_of_rank.tolist(), strict=True)
            self._known[prefix, members] = {npu: programs[number] for npu, number in numbers}
        return self._known[prefix, members] if prefix else {}

    def _program(self, graph: Graph, members: Sequence[int]) -> GraphProgram:
        for row in np.flatnonzero(~np.isin(graph.kind, _ALLOWED)).tolist():
            kind = NodeKind(graph.kind[row]).name
            message = f"node '{graph.names[row]}' cannot be part of a collective"
            expected = "computations, sends and receives"
            raise InputError.at(Location(graph.path), message, expected=expected, found=f"a {kind} node")
        duration_ns = self._rules.durations_ns(graph).tolist()
        graph = replace(graph, peer=np.asarray(members, np.int32)[graph.peer])
        slots, names = [""] * len(graph), [0] * len(graph)
        return GraphProgram(graph, graph.kind.tolist(), duration_ns, slots, self._dims, names, {})
