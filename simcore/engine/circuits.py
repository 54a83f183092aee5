"""Runs whose topology has circuits that are switched: a transport, and a setup, for each of their configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simcore.engine.setup import Setup
from simcore.engine.transports import Choice, Wired
from simcore.errors import InputError
from simcore.network.instant import Environment
from simcore.network.topology.model import Topology
from simcore.system.circuits import Switched
from simcore.system.transport import class_of


def choices_of(setup: Setup) -> list[Choice]:
    """What plays a run; over circuits that are switched, a choice for each configuration."""
    return [Choice(each) for each in _configurations(setup)]


def transport_of(
    env: Environment, ranks: Sequence[Sequence[int]], choices: Sequence[Choice], topology: Topology
) -> Wired | Switched:
    """As `Choice.transport`; over circuits that are switched, with one for each configuration."""
    transports = [choice.transport(env, ranks) for choice in choices]
    return Switched(env, ranks, transports, topology, topology.circuits) if topology.circuits else transports[0]


def parts_of(transport: Wired | Switched) -> Sequence[Wired]:
    """The transports that do the work."""
    return transport.transports if isinstance(transport, Switched) else [transport]


def folded(choices: Sequence[Choice], kinds: NDArray[np.int64]) -> list[Sequence[int]] | None:
    """As `Choice.fold`, where that is the same on all configurations of the circuits."""
    first, *others = [choice.fold(kinds) for choice in choices]
    same = first and all(each and (class_of(each) == class_of(first)).all() for each in others)
    return first if same else None


def _configurations(setup: Setup) -> list[Setup]:
    """The run on the topology itself, and on what its circuits make of it for the collectives that take them."""
    topology, placement, circuits = setup.topology, setup.placement, setup.topology.circuits
    if circuits is None:
        return [setup]
    if not setup.profile.gang or setup.system.fabric or topology.faults:
        message = "circuits are switched between phases, which all NPUs of a group must begin together"
        expected = "profile native, a system file with algorithms, and no --fault"
        raise InputError.at(topology.path or "circuits", message, expected=expected)
    switched, found = circuits.switched(topology), [replace(setup, topology=replace(topology, circuits=None))]
    for number, other in enumerate(circuits.others, 1):
        lanes = {
            kind: tuple(lane for lane in lanes if lane.dim.index in switched)
            for kind, lanes in placement.lanes.items()
            if circuits.number(kind) == number
        }
        wires = replace(other, noise=topology.noise)
        found.append(replace(setup, topology=wires, placement=replace(placement, lanes=lanes)))
    return found
