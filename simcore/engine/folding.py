"""Which NPUs do the same, and how a run on shared links is cut up: parts of the network, which one NPU plays for all.

Classes are found by partition refinement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from simcore.engine.setup import Placement, Setup
from simcore.errors import InputError
from simcore.network.parts import Part, parts
from simcore.network.topology.fabric import Fabric
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.moves import Symmetry
from simcore.system.alone.solver import sends_at_once
from simcore.system.groups import Delay, GroupDim, LogicalDim
from simcore.system.meeting.flights import Site
from simcore.system.plans.maker import Costs, Plans
from simcore.system.plans.plan import Plan
from simcore.system.streams import Lane, StreamPhase
from simcore.workload.model import CollectiveKind

SAMPLED_RANKS, LARGE_BYTES, MOST_MESSAGES = 256, 1 << 30, 1 << 22
GATHER, SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER

Symmetries = Mapping[GroupDim, frozenset[Symmetry]]
ASYMMETRIC, TURNING = frozenset({Symmetry.NONE}), frozenset({Symmetry.TURNS})
Ints = NDArray[np.int64]


def fold(dims: Sequence[LogicalDim], kinds: Ints) -> list[Sequence[int]]:
    """The NPUs of every class, ascending; class 0 holds NPU 0.

    `kinds` numbers NPUs by what they compute: equal numbers start in one class. Then classes are split until all
    members of a class meet the same classes in every dimension. That suffices where an NPU's place in its groups makes
    no difference.
    """
    colours, count = np.unique(kinds, return_inverse=True)[1].astype(np.int64), 1
    while colours.max() >= count:
        count = int(colours.max()) + 1
        for dim in dims:
            outer = len(colours) // (dim.stride * dim.size)
            groups = colours.reshape(outer, dim.size, dim.stride).transpose(0, 2, 1).reshape(-1, dim.size)
            met = np.unique(np.sort(groups, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
            seen = np.repeat(met, dim.size).reshape(outer, dim.stride, dim.size).transpose(0, 2, 1).reshape(-1)
            colours = np.unique(colours * (met.max() + 1) + seen, return_inverse=True)[1].astype(np.int64)
    return classes_of(colours)


def classes_of(kinds: Ints) -> list[Sequence[int]]:
    """The NPUs of every kind, ascending, ordered by their first; a class of neighbours is a range."""
    order = np.argsort(kinds, kind="stable")
    found: list[Sequence[int]] = []
    for members in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        first, last = int(members[0]), int(members[-1])
        found.append(range(first, last + 1) if last - first + 1 == len(members) else members)  # type: ignore[arg-type]
    return sorted(found, key=lambda members: int(members[0]))


def kinds_of(stragglers: Mapping[int, float], npus: int) -> Ints:
    """A number for every factor on compute times."""
    if not stragglers:
        return np.zeros(npus, np.int64)
    factors = np.ones(npus)
    factors[list(stragglers)] = list(stragglers.values())
    return np.unique(factors, return_inverse=True)[1].astype(np.int64)


class Ground:
    """What a run stands on: `sites`, and `colours`, a number for every NPU, equal where its place in them is.

    `meets`: some phases may want the same link at once. `playable`: messages of all plans go from one rank to another.
    `placeless`: as of sites, of all of them.
    """

    def __init__(self, sites: Sequence[Site], colours: NDArray[np.int64], *, plain: bool):
        self.sites, self.colours, self.playable = sites, colours, plain
        self.meets = any(site.meets for site in sites)
        self.placeless = all(site.placeless for site in sites)


class Traffic:
    """What ranks send in the dimensions of a run, looked at before it: plans of a small and a large size stand for all.

    `may`: the symmetries of the plans of a dimension. `playable`: as of plans, of all. `far`: where ranks send to
    others than the next one of their group.
    """

    def __init__(self, placement: Placement, costs: Costs):
        self.lanes: list[Lane] = []
        self.may: dict[GroupDim, frozenset[Symmetry]] = {}
        self.playable, self.far, self._costs = True, list[GroupDim](), costs
        self._plans: list[tuple[CollectiveKind, Lane]] = []
        for kind, lanes in placement.lanes.items():
            for lane in (lane for lane in lanes if lane.dim.size > 1):
                plans, dim = [*_samples(kind, lane, costs)], lane.dim
                self.lanes.append(lane)
                self._plans.append((kind, lane))
                own = (plan.symmetries if plan else ASYMMETRIC for plan in plans)
                self.may[dim] = self.may.get(dim, frozenset()).union(*own)
                self.playable &= all(plan is None or plan.playable for plan in plans)
                if not all(plan and plan.plain and all(entry.hop == 1 for entry, _ in plan.rounds) for plan in plans):
                    self.far.append(dim)

    def used(self, part: Part) -> set[GroupDim]:
        """The groups that are in a part."""
        return {lane.dim for lane in self.lanes if part.first <= lane.dim.index <= part.last}

    def looks_alike(self, placement: Placement, links: LinkGraph) -> bool:
        """Whether all NPUs may change places, with the groups of all dimensions."""
        if any(_spans(lane.dim, links) for lane in self.lanes):
            return False
        return all(_one_for_all(part, self.used(part), placement.dims, self.may) for part in parts(links, ()))

    def as_far(self, npus: int, delay: Delay) -> bool:
        """Whether all NPUs send as far as each other in every round, on links that nobody shares.

        Where all is sent at once it is enough that each sends, and receives, as far in any order. Where messages of no
        size and of a large one take as long, so do all.
        """
        if any(own >= ASYMMETRIC for own in self.may.values()):
            return False
        for kind, lane in self._plans:
            costs = self._costs.of(lane.dim)
            for plan in filter(None, _samples(kind, lane, self._costs, lane.dim.size)):
                for _, part in plan.parts:
                    hops = {entry.hop for entry, _ in part.rounds}
                    if len(hops) * npus > MOST_MESSAGES:
                        return False
                    times = np.stack([_times(lane.dim, npus, delay, part.peers(hop)) for hop in hops], axis=1)
                    waits = part.half and costs.received_ns(part.rounds[0][0].reduce_bytes)
                    as_large = len({entry.size_bytes for entry, _ in part.rounds}) == 1
                    if as_large and sends_at_once(part, costs) and not waits:
                        times = np.take_along_axis(times, np.lexsort(times, axis=0)[None], axis=1)
                    if (times != times[..., :1]).any():
                        return False
        return True


def _times(dim: GroupDim, npus: int, delay: Delay, peers: Ints) -> NDArray[np.float64]:
    """Times of a round, [of messages of no size or of large ones, of what is sent or received, by NPU]."""
    ids, members = np.arange(npus), dim.members(0)
    firsts = ids[ids // dim.stride % dim.size == 0] if isinstance(dim, LogicalDim) else ids[:1]
    src, dst = ((firsts[:, None] + own).ravel() for own in (members, members[peers]))
    found = np.empty((2, 2, npus))
    for own, size_bytes in zip(found, (0, LARGE_BYTES), strict=True):
        own[0, src] = own[1, dst] = delay(src, dst, size_bytes)
    return found


def survey(setup: Setup, links: LinkGraph, traffic: Traffic, *, asks: bool) -> Ground:
    """Look at the machine and at what its collectives send; `asks`, receivers ask for it."""
    placement, count = setup.placement, len(setup.topology.dims)
    may, crossed = traffic.may, _crossed(setup)
    together = [crossed] if crossed else []
    together += [(0, count - 1) for lane in traffic.lanes if _spans(lane.dim, links)]
    exclusive = setup.settings.queues_per_dim == 1 and setup.system.active_chunks_per_dimension == 1
    sites, colours = [], np.zeros(links.npus, np.int64)
    for part in parts(links, together):
        own = traffic.used(part)
        messages = crossed is not None and part.first <= crossed[1] and crossed[0] <= part.last
        stages = 1  # of a pipeline, each a row of neighbours of a place; 0 where that cannot be said
        if messages:
            npus_of_stage = links.npus // setup.stages // part.stride
            rows = setup.stages > 1 and npus_of_stage > 0 and part.npus % npus_of_stage == 0
            stages = part.npus // npus_of_stage if rows else 0
        width = part.stride * part.npus // max(stages, 1)
        dims = [dim for dim in placement.dims if dim.stride < width]
        alike = bool(stages) and _one_for_all(part, own, dims, may, whole=stages == 1)
        one_group = all(dim.size == part.npus for dim in own)
        alone = exclusive and not messages and len(own) < 2 and (one_group or alike)
        placeless = alike and alone and one_group
        if messages and not own:
            placeless = stages == part.npus  # one of each stage, who hands over to the others
        sites.append(Site(part, alike, stages if alike else 0, not alone, placeless))
        if alike:
            colours = colours * stages + np.arange(links.npus) // part.stride % part.npus // (part.npus // stages)
        else:
            distinct = part.npus if messages else _distinct(part, placement.dims, may)
            colours = colours * distinct + np.arange(links.npus) // part.stride % distinct
    return Ground(sites, colours, plain=traffic.playable and not asks)


def _spans(dim: GroupDim, links: LinkGraph) -> bool:
    """Whether a group takes in several dimensions."""
    return not isinstance(dim, LogicalDim) or (dim.size == links.npus and len(links.topology.dims) > 1)


def _crossed(setup: Setup) -> tuple[int, int] | None:
    """The first and the last dimension that messages between single NPUs cross."""
    topology = setup.topology
    if not setup.collectives_only:
        return 0, len(topology.dims) - 1
    if setup.stages == 1:
        return None
    width = topology.npus // setup.stages
    crossed = [
        index
        for index, (dim, stride) in enumerate(zip(topology.dims, topology.strides, strict=True))
        if dim.npus > 1 and stride * dim.npus > width
    ]
    return crossed[0], crossed[-1]


def _samples(kind: CollectiveKind, lane: Lane, costs: Costs, most: int = SAMPLED_RANKS) -> Iterator[Plan | None]:
    """What the ranks of a dimension send, a little and much; None where only the network tells."""
    if lane.algorithm.traits.network_aware:
        yield None
        return
    kinds = (kind, SCATTER, GATHER) if kind == CollectiveKind.ALL_REDUCE else (kind,)
    size, here = lane.dim.size, lane  # few ranks for many: as many as a power of two, even or odd where those are
    if not costs.moves(lane.dim):
        if size > most:
            size = most - 2 + size % 2 if size & (size - 1) else most
        here = structs.replace(lane, dim=LogicalDim(0, size, 1))
    for each, data_bytes in product(kinds, (size, LARGE_BYTES * size)):
        try:
            yield Plans(costs).of(StreamPhase(each, here, data_bytes, data_bytes, 0), 0)
        except InputError:  # said where it is sent
            continue


def _cut(part: Part, dims: Iterable[LogicalDim]) -> tuple[Fabric, list[LogicalDim]] | None:
    """The fabric of a part and the dimensions that lie in it; None where its places may not be exchanged at all.

    Where a hash of the ends chooses ways, links do not look the same from several NPUs.
    """
    topology = part.links.topology
    uneven = topology.noise.links or topology.faults or topology.graph or topology.wafer
    if part.first < part.last or uneven or topology.dims[part.first].ports.routing:
        return None
    return part.fabric, [dim for dim in dims if dim.index == part.first and dim.size > 1]


def _one_for_all(
    part: Part, used: Collection[GroupDim], dims: Iterable[LogicalDim], may: Symmetries, *, whole: bool = True
) -> bool:
    """Whether all NPUs of a place may change places, groups and all; those of a stage where that is not the `whole`."""
    found = _cut(part, dims)
    if found is None:
        return False
    fabric, inside = found
    return all(_alike(fabric, dim, inside, may) for dim in used) and (
        fabric.permutes or (whole and (len(inside) < 2 or not used))
    )


def _alike(fabric: Fabric, dim: GroupDim, inside: Sequence[LogicalDim], may: Symmetries) -> bool:
    """Whether ranks of a dimension may change places; of those that cut a ring the outermost alone may."""
    same = may.get(dim, TURNING) <= fabric.symmetries
    return same and (fabric.permutes or not inside or dim == inside[-1])


def _distinct(part: Part, dims: Iterable[LogicalDim], may: Symmetries) -> int:
    """How many NPUs of a place differ: those inside the outermost dimension that cuts it, where that one may turn."""
    fabric, inside = _cut(part, dims) or (None, [])
    if fabric is None or len(inside) < 2 or not _alike(fabric, inside[-1], inside, may):
        return part.npus
    return prod(dim.size for dim in inside[:-1])
