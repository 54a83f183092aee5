"""`simcore generate schedule`: what an algorithm sends on a machine, as a file to read, change and run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from simcore.cli.command import Target, verb
from simcore.cli.options import options_of
from simcore.errors import InputError
from simcore.workload.model import CollectiveKind

if TYPE_CHECKING:
    from simcore.network.topology.model import Topology
    from simcore.system.plans.plan import Plan

KINDS = [kind.value for kind in CollectiveKind if kind != CollectiveKind.BARRIER]


@verb(params=options_of("generate schedule", kind=click.Choice(KINDS), output=Target()))
def schedule(kind: str, algorithm: str, topology: str, size: float, pieces: int, root: int, output: str) -> None:
    """Who sends which chunk to whom, checked; a system file plays it with {schedule: FILE}.

    \b
    simcore generate schedule --kind all_gather --topology mesh_8x8 -o all_gather.yaml
    """
    from simcore import files
    from simcore.network.topology.load import load
    from simcore.system.plans.schedule import to_text

    machine = load(topology)
    if root >= machine.npus:
        raise InputError.at("--root", "there is no such rank", expected=f"0 to {machine.npus - 1}", found=str(root))
    plan = _plan(CollectiveKind(kind), algorithm, machine, round(size), pieces, root)
    files.write_text(output, to_text(plan, CollectiveKind(kind), root))


def _plan(kind: CollectiveKind, name: str, machine: Topology, size_bytes: int, pieces: int, root: int) -> Plan:
    """The plan of an algorithm; InputError when it is none of these, or cannot."""
    import numpy as np

    from simcore.network.topology.links import LinkGraph
    from simcore.system.collectives import PlanOptions, algorithms
    from simcore.system.collectives.synthesised import wires

    neighbours = partial(wires, LinkGraph(machine), np.arange(machine.npus))
    try:
        made = algorithms.get(name)(kind, machine.npus, size_bytes, PlanOptions(pieces, root=root, wires=neighbours))
    except ValueError as error:
        raise InputError.at("--algorithm", str(error), found=name) from error
    if made.transfers and not made.multicast:
        return made
    message = f"{name} is not made of transfers from rank to rank one by one"
    raise InputError.at("--algorithm", message, expected="binomial, chain, doubleBinaryTree, flat or synthesised")
