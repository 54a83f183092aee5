"""`simcore generate schedule`: what an algorithm sends on a machine, as a file to read, change and run."""

from __future__ import annotations

from functools import partial

import numpy as np

from simcore import files
from simcore.errors import InputError
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Topology
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.collectives.synthesised import wires
from simcore.system.plans.plan import Plan
from simcore.system.plans.schedule import to_text
from simcore.workload.model import CollectiveKind


def schedule(kind: str, algorithm: str, topology: str, size: float, pieces: int, root: int, output: str) -> None:
    """Who sends which chunk to whom, checked; a system file plays it with {schedule: FILE}."""
    machine = load(topology)
    if root >= machine.npus:
        raise InputError.at("--root", "there is no such rank", expected=f"0 to {machine.npus - 1}", found=str(root))
    plan = _plan(CollectiveKind(kind), algorithm, machine, round(size), pieces, root)
    files.write_text(output, to_text(plan, CollectiveKind(kind), root))


def _plan(kind: CollectiveKind, name: str, machine: Topology, size_bytes: int, pieces: int, root: int) -> Plan:
    """The plan of an algorithm; InputError when it is none of these, or cannot."""
    neighbours = partial(wires, LinkGraph(machine), np.arange(machine.npus))
    try:
        made = algorithms.get(name)(kind, machine.npus, size_bytes, PlanOptions(pieces, root=root, wires=neighbours))
    except ValueError as error:
        raise InputError.at("--algorithm", str(error), found=name) from error
    if made.transfers and not made.multicast:
        return made
    message = f"{name} is not made of transfers from rank to rank one by one"
    raise InputError.at("--algorithm", message, expected="binomial, chain, doubleBinaryTree, flat or synthesised")
