"""How a run is put together, with gates and phases for every NPU, and played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import simpy
from msgspec import Struct

from simcore.engine.folding import GroupNames
from simcore.engine.setup import Setup
from simcore.engine.transports import Wired
from simcore.errors import InputError
from simcore.memory import collection_paused
from simcore.network.instant import Environment
from simcore.system.circuits import Switched
from simcore.system.gates import GANG_ORDERS, Gang, Gate, LocalGate, Owner
from simcore.system.inter_dimension import DimensionOrder
from simcore.system.phases import PhaseMaker
from simcore.system.played import Played
from simcore.system.queues import INSERTION
from simcore.system.shared import Shared
from simcore.system.streams import Stream
from simcore.system.whole import Wholes
from simcore.timeline.events import EventBuffer
from simcore.units import format_ranks
from simcore.workload.model import CollectiveKind


class Scene(Struct, frozen=True):
    """What a run has before its NPUs; `ranks[c]` are the NPUs of class c."""

    env: simpy.Environment
    ranks: Sequence[Sequence[int]]
    events: EventBuffer
    transport: Wired | Switched


def make_gates(
    env: Environment, ranks: Sequence[Sequence[int]], setup: Setup, transport: Wired | Switched
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
    check = partial(_check_alike, ranks, isinstance(transport, Played))
    gang = Gang(env, limit, GANG_ORDERS[policy], GroupNames(ranks).of, check)
    if isinstance(transport, Shared):
        gang.wholes = Wholes(env, gang, transport)
    return gang.gate


def _check_alike(ranks: Sequence[Sequence[int]], played: bool, there: Mapping[int, Stream]) -> None:
    """InputError where NPUs of a group send different collectives; if every message is `played`, sizes may differ."""
    found: dict[tuple[str, int], list[int]] = {}
    for npu_class, stream in there.items():
        request = stream.dataset.request
        said = request.kind, 0 if played else request.size_bytes
        found.setdefault(said, []).extend(ranks[npu_class])
    if len(found) == 1:
        return
    some = next(iter(there.values())).dataset.request
    sent = (
        f"{kind}{f' of {size_bytes:,} bytes' * bool(size_bytes)} on NPU {format_ranks(sorted(npus))}"
        for (kind, size_bytes), npus in found.items()
    )
    raise InputError.at(
        f"communicator {some.group}" if some.group else "collective",
        "NPUs send different collectives where one is to begin on all of them",
        expected="the same ones, of the same size, in the same order on all NPUs of a communicator",
        found="; ".join(sent),
    )


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
