"""Nodes of a graph that a profile cannot run, found before the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.errors import Location, Problem, Problems
from simcore.profiles import Profile
from simcore.system.config import SystemConfig
from simcore.workload.model import CollectiveKind, Graph, NodeKind

KINDS = list(CollectiveKind)


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
