"""Nodes of graphs: those that a profile cannot run, and collectives that are traces themselves (ASTRA-sim 2.x)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError, Location, Problem, Problems
from simcore.profiles import GraphRules, Profile
from simcore.system.config import SystemConfig
from simcore.system.graph_npu import GraphProgram
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import CollectiveKind, Graph, NodeKind

KINDS = list(CollectiveKind)
_ALLOWED = (NodeKind.INVALID, NodeKind.METADATA, NodeKind.COMPUTE, NodeKind.SEND, NodeKind.RECV)


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


def _note(problems: Problems, graph: Graph, bad: NDArray[np.bool_], text: str, field: str, expected: str) -> None:
    for row in np.flatnonzero(bad).tolist():
        message = f"node {graph.node_id[row]} '{graph.names[row][:80]}': {text}"
        problems.add(Problem(Location(graph.path), message, expected, field=field))


class Customs:
    """The programs that a system file puts in the place of collectives, one for every NPU.

    Sizes, tags and durations are the traces' own; nothing in them waits for anything but its dependencies.
    `rules` say how long a computation takes.
    """

    def __init__(self, system: SystemConfig, npus: int, rules: GraphRules):
        self._system, self._npus, self._rules = system, npus, rules
        self._known: dict[str, Sequence[GraphProgram]] = {}

    def of(self, node_id: int, kind: CollectiveKind) -> Sequence[GraphProgram]:
        """What is played in the place of a node: its own traces come before its collective's; () = nothing special."""
        prefix = self._system.custom_nodes.get(node_id) or self._system.custom.get(kind)
        if prefix and prefix not in self._known:
            found = read_graphs(prefix, self._npus)
            programs = [self._program(graph) for graph in found.graphs]
            self._known[prefix] = [programs[number] for number in found.graph_of_rank.tolist()]
        return self._known[prefix] if prefix else ()

    def _program(self, graph: Graph) -> GraphProgram:
        for row in np.flatnonzero(~np.isin(graph.kind, _ALLOWED)).tolist():
            kind = NodeKind(graph.kind[row]).name
            message = f"node '{graph.names[row]}' cannot be part of a collective"
            expected = "computations, sends and receives"
            raise InputError.at(Location(graph.path), message, expected=expected, found=f"a {kind} node")
        duration_ns = self._rules.durations_ns(graph).tolist()
        return GraphProgram(graph, duration_ns, [""] * len(graph), [False] * len(graph), [0] * len(graph), {})
