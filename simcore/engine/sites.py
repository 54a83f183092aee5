"""How a run on shared links is cut up: the parts of the network, which of them one NPU plays for all, who is alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from simcore.engine.placement import Placement
from simcore.engine.setup import Setup
from simcore.errors import InputError
from simcore.network.parts import Part, parts
from simcore.network.topology.fabric import Fabric
from simcore.network.topology.links import LinkGraph
from simcore.system.collectives import NETWORK_AWARE, AnyPlan
from simcore.system.flights import Site
from simcore.system.groups import GroupDim, LogicalDim
from simcore.system.layouts import playable
from simcore.system.plan import Plan, Symmetry
from simcore.system.plans import Costs, Plans
from simcore.system.streams import Lane, StreamPhase
from simcore.workload.model import CollectiveKind

SAMPLED_RANKS = 256
GATHER, SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


class Ground:
    """What a run stands on: `sites`, and `colours`, a number for every NPU, equal where its place in them is.

    `meets`: some phases may want the same link at once. `playable`: messages of all plans go from one rank to another.
    `placeless`: as of sites, of all of them.
    """

    def __init__(self, sites: Sequence[Site], colours: NDArray[np.int64], *, plain: bool):
        self.sites, self.colours, self.playable = sites, colours, plain
        self.meets = any(site.meets for site in sites)
        self.placeless = all(site.placeless for site in sites)


def survey(setup: Setup, links: LinkGraph, costs: Costs, *, folds: bool) -> Ground:
    """Look at the machine and at what its collectives send.

    `folds`: one NPU may play for others, on links that stand for theirs.
    """
    placement, count = setup.placement, len(setup.topology.dims)
    lanes = [lane for lane in placement.every_lane if lane.dim.size > 1]
    symmetry = _symmetries(placement, costs)
    crossed = _crossed(setup)
    together = [crossed] if crossed else []
    together += [(0, count - 1) for lane in lanes if _spans(lane.dim, links)]
    exclusive = setup.settings.queues_per_dim == 1 and setup.system.active_chunks_per_dimension == 1
    sites, colours = [], np.zeros(links.npus, np.int64)
    for part in parts(links, together):
        own = _used(part, lanes)
        messages = crossed is not None and part.first <= crossed[1] and crossed[0] <= part.last
        stages = _stages(part, setup.stages) if messages else 1
        width = part.stride * part.npus // max(stages, 1)
        dims = [dim for dim in placement.dims if dim.stride < width]
        alike = bool(stages) and _one_for_all(part, own, dims, symmetry, whole=stages == 1)
        alone = exclusive and not messages and len(own) < 2 and all(_whole(part, dim) or alike for dim in own)
        placeless = alike and alone and all(_whole(part, dim) for dim in own)
        if messages and not own:
            placeless = stages == part.npus  # one of each stage, who hands over to the others
        least = min((symmetry[dim][0] for dim in own if dim in symmetry), default=Symmetry.NONE)
        sites.append(Site(part, alike, stages if alike and folds else 0, not alone, placeless, least))
        if alike:
            colours = colours * stages + np.arange(links.npus) // part.stride % part.npus // (part.npus // stages)
        else:
            distinct = part.npus if messages else _distinct(part, placement.dims, symmetry)
            colours = colours * distinct + np.arange(links.npus) // part.stride % distinct
    plain = not costs.rendezvous and all(plan_playable for _, plan_playable in symmetry.values())
    return Ground(sites, colours, plain=plain)


def looks_alike(placement: Placement, links: LinkGraph, costs: Costs) -> bool:
    """Whether all NPUs may change places, with the groups of all dimensions."""
    lanes = [lane for lane in placement.every_lane if lane.dim.size > 1]
    if any(_spans(lane.dim, links) for lane in lanes):
        return False
    symmetry = _symmetries(placement, costs)
    return all(_one_for_all(part, _used(part, lanes), placement.dims, symmetry) for part in parts(links, ()))


def lanes_beyond_neighbours(placement: Placement, costs: Costs) -> Iterator[Lane]:
    """Lanes in which ranks send to others than the next one of their group."""
    for kind, lanes in placement.lanes.items():
        for lane in (lane for lane in lanes if lane.dim.size > 1):
            if not all(map(_to_the_next, _samples(kind, lane, costs))):
                yield lane


def _to_the_next(plan: AnyPlan | None) -> bool:
    return isinstance(plan, Plan) and all(entry.hop == 1 for entry, _ in plan.rounds)


def _used(part: Part, lanes: Iterable[Lane]) -> set[GroupDim]:
    """The groups that are in a part."""
    return {lane.dim for lane in lanes if part.first <= lane.dim.index <= part.last}


def _spans(dim: GroupDim, links: LinkGraph) -> bool:
    """Whether a group takes in several dimensions."""
    return not isinstance(dim, LogicalDim) or (dim.size == links.npus and len(links.topology.dims) > 1)


def _whole(part: Part, dim: GroupDim) -> bool:
    """Whether a place has only one group."""
    return dim.size == part.npus


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


def _symmetries(placement: Placement, costs: Costs) -> dict[GroupDim, tuple[Symmetry, bool]]:
    """What may be done with the ranks of a dimension, whatever they send, and whether all of that is playable."""
    found: dict[GroupDim, tuple[Symmetry, bool]] = {}
    for kind, lanes in placement.lanes.items():
        for lane in (lane for lane in lanes if lane.dim.size > 1):
            for plan in _samples(kind, lane, costs):
                symmetry, fits = found.get(lane.dim, (Symmetry.TURNS, True))
                if plan is not None:
                    found[lane.dim] = min(symmetry, plan.symmetry), fits and playable(plan)
                else:
                    found[lane.dim] = Symmetry.NONE, fits
    return found


def _samples(kind: CollectiveKind, lane: Lane, costs: Costs) -> Iterable[AnyPlan | None]:
    """What the ranks of a dimension send, of some size; None where only the network tells."""
    if lane.algorithm.name in NETWORK_AWARE:
        yield None
        return
    kinds = (kind, SCATTER, GATHER) if kind == CollectiveKind.ALL_REDUCE else (kind,)
    size = _sampled(lane.dim.size)
    here = structs.replace(lane, dim=LogicalDim(0, size, 1))
    for each in kinds:
        try:
            yield Plans(costs).of(StreamPhase(each, here, 1024 * size, 1024 * size, 0), 0)
        except InputError:  # said where it is sent
            continue


def _sampled(size: int) -> int:
    """Few ranks for many: as many as a power of two, even or odd where those are."""
    if size <= SAMPLED_RANKS or not size & (size - 1):
        return min(size, SAMPLED_RANKS)
    return SAMPLED_RANKS - 2 + size % 2


def _stages(part: Part, stages: int) -> int:
    """How many parts of a place are stages of a pipeline, each a row of neighbours; 0 where that cannot be said."""
    width = part.links.npus // stages // part.stride  # NPUs of a place that one stage has
    return part.npus // width if stages > 1 and width > 0 and part.npus % width == 0 else 0


def _one_for_all(
    part: Part,
    used: Iterable[GroupDim],
    dims: Sequence[LogicalDim],
    symmetry: dict[GroupDim, tuple[Symmetry, bool]],
    *,
    whole: bool = True,
) -> bool:
    """Whether all NPUs of a place may change places, groups and all; those of a stage where that is not the `whole`."""
    if not _turns(part):
        return False
    fabric = part.graph.axes[0].fabric
    inside = [dim for dim in dims if dim.index == part.first and dim.size > 1]
    return all(_alike(fabric, dim, inside, symmetry) for dim in used) and (
        fabric.permutes or (whole and (len(inside) < 2 or not set(used)))
    )


def _turns(part: Part) -> bool:
    """Whether links may look the same from several NPUs of a place; where a hash of the ends chooses they do not."""
    topology = part.links.topology
    uneven = topology.noise.links or topology.faults or not topology.apart
    return part.first == part.last and not (uneven or topology.dims[part.first].ports.routing)


def _alike(
    fabric: Fabric, dim: GroupDim, inside: Sequence[LogicalDim], symmetry: dict[GroupDim, tuple[Symmetry, bool]]
) -> bool:
    """Whether ranks of a dimension may change places; of those that cut a ring the outermost alone may."""
    may, _ = symmetry.get(dim, (Symmetry.TURNS, True))
    if may == Symmetry.TURNS:
        return fabric.permutes or (fabric.turns and (not inside or dim == inside[-1]))
    return may == Symmetry.EXCHANGES and fabric.own_links


def _distinct(part: Part, dims: Sequence[LogicalDim], symmetry: dict[GroupDim, tuple[Symmetry, bool]]) -> int:
    """How many NPUs of a place differ: those inside the outermost dimension that cuts it, where that one may turn."""
    if not _turns(part):
        return part.npus
    inside = [dim for dim in dims if dim.index == part.first and dim.size > 1]
    if len(inside) < 2 or not _alike(part.graph.axes[0].fabric, inside[-1], inside, symmetry):
        return part.npus
    return prod(dim.size for dim in inside[:-1])
