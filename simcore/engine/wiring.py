"""How a run is put together, with gates and phases for every NPU, and played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import simpy
from msgspec import Struct

from simcore.engine.folding import GroupNames
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.memory import collection_paused
from simcore.network.instant import Environment
from simcore.system.gates import GANG_ORDERS, Gang, Gate, LocalGate, Owner
from simcore.system.inter_dimension import DimensionOrder
from simcore.system.phases import PhaseMaker
from simcore.system.queues import INSERTION
from simcore.system.shared import Shared
from simcore.system.transport import Transport
from simcore.system.whole import Wholes
from simcore.timeline.events import EventBuffer
from simcore.workload.model import CollectiveKind


class Scene(Struct, frozen=True):
    """What a run has before its NPUs; `ranks[c]` are the NPUs of class c."""

    env: simpy.Environment
    ranks: Sequence[Sequence[int]]
    events: EventBuffer
    transport: Transport


def make_gates(
    env: Environment, ranks: Sequence[Sequence[int]], setup: Setup, transport: Transport
) -> Callable[[int, Owner], Gate]:
    """Makes the gate of each class: for itself, or together with its partners."""
    system, profile = setup.system, setup.profile
    limit = -(-system.active_chunks_per_dimension // setup.settings.queues_per_dim)
    policy = system.intra_dimension_scheduling
    if not profile.gang:
        insertion = INSERTION[policy]
        return lambda npu_class, owner: LocalGate(npu_class, owner, limit, insertion)
    if policy not in GANG_ORDERS:
        key = "intra-dimension-scheduling"
        message = f"profile {profile.name} has no {key} '{policy}'"
        raise InputError.at(system.at(key), message, expected=", ".join(GANG_ORDERS), found=policy)
    gang = Gang(env, limit, GANG_ORDERS[policy], GroupNames(ranks).of)
    if isinstance(transport, Shared):
        gang.wholes = Wholes(env, gang, transport)
    return gang.gate


def make_phases(npu: int, setup: Setup) -> PhaseMaker:
    """Cuts an NPU's collectives into chunks and phases."""
    topology, system, profile, dims = setup.topology, setup.system, setup.profile, setup.placement.dims
    bandwidths = [profile.dimension_bandwidth(topology.dims[dim.index]) for dim in dims]

    def chunks(kind: CollectiveKind, size_bytes: int, colours: int) -> Iterator[int]:
        splits = -(-system.preferred_dataset_splits // colours) * colours
        return profile.chunks(kind, size_bytes, splits, topology.npus)

    return PhaseMaker(
        npu=npu,
        chunks=chunks,
        order=DimensionOrder(
            system.inter_dimension_scheduling, [dim.size for dim in dims], bandwidths, afresh=profile.gang
        ),
        decompose=system.collective_optimization == "localBWAware",
        num_queues=setup.settings.queues_per_dim,
        queue_choice=profile.queue_choice,
    )


def play(env: simpy.Environment) -> None:
    """Run to the end, without the garbage collector: nothing here makes cycles worth collecting."""
    with collection_paused():
        try:
            env.run()
        except InputError as error:
            if isinstance(error.__cause__, InputError):  # SimPy raises a copy made of the text of what a process raised
                raise error.__cause__ from None
            raise
