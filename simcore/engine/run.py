"""A run, whatever is played: fold NPUs into classes, build their processes, simulate, hand over the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from simcore.engine.classes import classes_of, kinds_of
from simcore.engine.deadlock import deadlock
from simcore.engine.loops import LoopCase
from simcore.engine.settings import Settings
from simcore.engine.setup import Setup, prepare
from simcore.engine.transports import choices_of, folded, transport_of
from simcore.errors import InputError
from simcore.memory import collection_paused
from simcore.network.core import NEVER
from simcore.network.instant import Environment
from simcore.network.topology.links import rates_bytes_per_s
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.progress import meter
from simcore.system.chunks.apart import Apart
from simcore.system.chunks.cut import Cutting
from simcore.system.chunks.scheduler import GANG_ORDERS, INSERTION, Gang, Gate, LocalGate, Scheduler
from simcore.system.collectives import ROOTED
from simcore.system.config import SystemConfig
from simcore.system.groups import Groups, class_of
from simcore.system.meeting.shared import Shared
from simcore.system.meeting.whole import Wholes
from simcore.system.memory import RemoteMemory
from simcore.system.streams import Stream
from simcore.system.transport import MeetingError
from simcore.timeline.events import EventBuffer, Timeline
from simcore.units import format_ranks
from simcore.workload.model import CollectiveKind, GraphSet, Workload

if TYPE_CHECKING:
    from simcore.engine.graphs import GraphCase


def simulate(
    content: Workload | GraphSet,
    topology: Topology,
    system: SystemConfig | None,
    profile: Profile,
    settings: Settings,
    memory: RemoteMemory | None = None,
) -> Timeline:
    """Run a text workload, or one graph per NPU with a remote `memory`.

    NPUs that do the same are one process. A run of ASTRA-sim in which they must be played one by one begins again.
    Raises InputError when the content does not fit the machine or cannot run, DeadlockError when it cannot finish.
    """
    ready = partial(prepare, topology=topology, system=system, profile=profile, settings=settings)
    made: Callable[[Setup], LoopCase | GraphCase]
    if isinstance(content, Workload):
        setup, made = ready(content), partial(LoopCase, content)
    else:
        from simcore.engine.graphs import GraphCase  # a text workload starts without it

        setup, made = ready(Workload("", ())), partial(GraphCase, content, memory)
    try:
        return _played(made(setup))
    except MeetingError:
        return _played(made(replace(setup, apart=True)))


def _played(case: LoopCase | GraphCase) -> Timeline:
    """What happens in a run."""
    setup, choices = case.setup, choices_of(case.machine)
    topology, profile, settings = setup.topology, setup.profile, setup.settings
    programs = case.programs() if settings.folds else None
    classes = None if programs is None else folded(choices, kinds_of(programs, settings.stragglers))
    ranks = classes or [range(npu, npu + 1) for npu in range(topology.npus)]  # those of a million take 120 MB
    env, events = Environment(), EventBuffer()
    transport = transport_of(env, ranks, choices, topology)
    apart = transport if isinstance(transport, Apart) else None
    gate = make_gate(env, ranks, setup, apart)
    in_turn = case.in_turn(transport, gate)
    endless = set[CollectiveKind]()
    rules = cutting(setup, endless)
    places = apart.places(rules) if apart else repeat(None)
    schedulers = [
        Scheduler(env, npu_class, int(members[0]), rules, transport, events, gate, in_turn, place)
        for (npu_class, members), place in zip(enumerate(ranks), places, strict=False)
    ]
    if isinstance(transport, Shared) and isinstance(gate, Gang):
        gate.whole = Wholes(env, gate, transport, schedulers).send
    npus = case.npus(ranks, transport, schedulers)
    for npu in npus:
        env.process(npu.run())
    env.share = meter().tell = lambda: sum(npu.share() for npu in npus) / len(npus)
    with collection_paused():  # nothing here makes cycles worth collecting
        env.run()
    finish_ns = tuple(npu.finish_ns for npu in npus)
    if min(finish_ns) < 0 and env.calls:  # which is no deadlock
        raise OverflowError(f"{NEVER:,} ns or more")
    if min(finish_ns) < 0:
        lines = *transport.stuck(), *case.stuck()
        raise deadlock(lines, schedulers, ranks, events.table().names, gang=profile.gang)
    notes = (note for choice, each in zip(choices, transport.parts, strict=True) for note in choice.notes(each))
    tiny = "{} of fewer bytes than chunks (preferred-dataset-splits): the original never ends"
    played = Timeline(
        events=events.table(),
        time_ns=max(finish_ns),
        iterations=((0, max(finish_ns)),),
        ranks=tuple(ranks),
        finish_ns=finish_ns,
        dims=tuple((dim.kind, dim.npus) for dim in topology.dims),
        rated_bytes_per_s=rates_bytes_per_s(topology),
        links=transport.links(),
        notes=(*dict.fromkeys(notes), *map(tiny.format, sorted(endless))),
        circuits=transport.told(),
    )
    return case.told(_folded(played) if settings.folds and apart else played)


def _folded(played: Timeline) -> Timeline:
    """As told of NPUs that were played one by one, where those that did the same are one class."""
    events, kinds = played.events, played.events.kinds(played.finish_ns)
    firsts = np.unique(kinds, return_index=True)[1]
    events = events.where(np.isin(events.npu_class, firsts))
    return replace(
        played,
        events=replace(events, npu_class=kinds[events.npu_class]),
        ranks=tuple(classes_of(kinds[class_of(played.ranks)])),
        finish_ns=tuple(played.finish_ns[first] for first in firsts),
    )


def make_gate(env: Environment, ranks: Sequence[Sequence[int]], setup: Setup, apart: Apart | None) -> Gate:
    """What lets chunks begin: of each class for itself, or together with its partners."""
    system, profile = setup.system, setup.profile
    limit = -(-system.active_chunks_per_dimension // setup.settings.queues_per_dim)
    policy = system.intra_dimension_scheduling
    known = GANG_ORDERS if profile.gang else INSERTION
    if policy not in known:
        key = "intra-dimension-scheduling"
        message = f"profile {profile.name} has no {key} '{policy}'"
        raise InputError.at(system.at(key), message, expected=", ".join(known), found=policy)
    if not profile.gang:
        return LocalGate(limit, INSERTION[policy], apart.issued if apart else bool)
    return Gang(env, limit, GANG_ORDERS[policy], Groups(ranks).named, partial(_check_alike, ranks, setup))


def _check_alike(ranks: Sequence[Sequence[int]], setup: Setup, there: Mapping[int, Stream]) -> None:
    """InputError where NPUs of a group send different collectives; of uneven ones, all played, sizes may differ."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for npu_class, stream in there.items():
        request = stream.dataset.request
        said = request.kind, request.root, 0 if setup.uneven else request.size_bytes
        found.setdefault(said, []).extend(ranks[npu_class])
    if len(found) == 1:
        return
    some = next(iter(there.values())).dataset.request
    sent = (
        f"{kind}{f' with root {root}' * (kind in ROOTED)}{f' of {size_bytes:,} bytes' * bool(size_bytes)}"
        f" on NPU {format_ranks(sorted(npus))}"
        for (kind, root, size_bytes), npus in found.items()
    )
    raise InputError.at(
        f"communicator {some.group}" if some.group else "collective",
        "NPUs send different collectives where one is to begin on all of them",
        expected="the same ones, of the same size, in the same order on all NPUs of a communicator",
        found="; ".join(sent),
    )


def cutting(setup: Setup, endless: set[CollectiveKind]) -> Cutting:
    """How the profile and the system file cut collectives; the kinds that the original never ends are added."""
    topology, system, profile, dims = setup.topology, setup.system, setup.profile, setup.dims

    def chunks(kind: CollectiveKind, size_bytes: int, colours: int) -> Iterator[int]:
        splits = -(-system.preferred_dataset_splits // colours) * colours
        if size_bytes < splits and kind in profile.endless:
            endless.add(kind)
        return profile.chunks(kind, size_bytes, splits, topology.npus)

    return Cutting(
        system.inter_dimension_scheduling,
        [dim.size for dim in dims],
        [profile.dimension_bandwidth(topology.dims[dim.index]) for dim in dims],
        chunks,
        profile.queue_choice,
        setup.settings.queues_per_dim,
        decompose=system.collective_optimization == "localBWAware",
        afresh=profile.gang,
        counts=setup.counts,
    )
