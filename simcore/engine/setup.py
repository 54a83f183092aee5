"""What every run has, whatever it plays: the machine and how a workload lies on it, the rules, the user's settings.

The header's groups cut the dimensions, the columns name the parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from simcore.engine.settings import Settings
from simcore.errors import InputError, Location, Problem
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.topology.tours import TOURS
from simcore.profiles import Profile
from simcore.system.collectives import NCCL, ROOTED, Algorithm
from simcore.system.config import SystemConfig
from simcore.system.groups import Communicator, JointDim, LogicalDim, cut, logical_dims
from simcore.system.streams import Lane
from simcore.workload.loops import Span
from simcore.workload.loops.step import group_axes
from simcore.workload.model import CollectiveKind, Group, Workload

FOLLOWING = (CollectiveKind.BARRIER, *ROOTED)


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs of a run beside its workload, and what is to be known of that.

    The machine has logical dimensions `dims`; `groups` says which of them (by position) each group spans, `lanes` which
    each kind of collective takes, `counts` for how many of them it has algorithms. So many `stages` of the machine run
    programs of their own. `collectives_only`: there are no other messages than those of collectives along the
    dimensions. `uneven`: NPUs of a group may send a collective in sizes of their own, as of experts. `in_turn`: NPUs
    share something beside links, and get it in the order in which they ask for it. `apart`: their order within a
    nanosecond has turned out to decide what cannot be solved (`MeetingError`).
    """

    topology: Topology
    system: SystemConfig
    profile: Profile
    settings: Settings
    dims: Sequence[LogicalDim]
    groups: Mapping[Group | Span, frozenset[int]]
    lanes: Mapping[CollectiveKind, tuple[Lane, ...]]
    counts: Mapping[CollectiveKind, int]
    stages: int = 1
    collectives_only: bool = True
    uneven: bool = False
    in_turn: bool = False
    apart: bool = False

    def lanes_of(self, kind: CollectiveKind, group: Group | Span) -> tuple[Lane, ...]:
        """The lanes of a collective in a group; dimensions of one NPU are left out."""
        positions = self.groups[group]
        return joined(lane for lane in self.lanes[kind] if lane.position in positions and lane.dim.size > 1)

    def unnamed(self, spans: Iterable[tuple[CollectiveKind, Collection[int]]]) -> Iterator[str]:
        """Which dimensions that collectives span they leave out, as their list names no algorithm there, in words."""
        left = defaultdict[CollectiveKind, set[int]](set)
        for kind, positions in spans:
            lanes = {lane.position: lane for lane in self.lanes[kind]}
            if kind not in self.system.custom and not any(lane.algorithm.whole_machine for lane in lanes.values()):
                left[kind] |= {self.dims[at].index for at in positions if at not in lanes and self.dims[at].size > 1}
        for kind in (kind for kind in left if left[kind]):
            key, dims = f"{kind.replace('_', '-')}-implementation", ", ".join(map(str, sorted(left[kind])))
            yield f"{key} names no algorithm for dimension {dims}: nothing of that kind is sent there"


def prepare(
    workload: Workload, topology: Topology, system: SystemConfig | None, profile: Profile, settings: Settings
) -> Setup:
    """The setup of a workload; InputError for algorithms that the profile has not and groups that do not fit."""
    defaults = usual_system(topology, profile)
    system = system or defaults
    if not profile.native_algorithms:
        system.refuse_native(profile.name)
    dims, groups = place(workload, topology, oversized=profile.oversized_groups)
    lanes = _lanes(topology, dims, system, defaults)
    counts = {kind: len(lanes[kind]) for kind in lanes}
    return Setup(topology, profile.heeded(system), profile, settings, dims, groups, lanes, counts)


def usual_system(topology: Topology, profile: Profile) -> SystemConfig:
    """What a profile does without a system file; over circuits each collective takes what is usual on its own."""
    defaults, circuits = profile.system(topology), topology.circuits
    for number, other in enumerate(circuits.others if circuits else (), 1):
        chosen = profile.system(other).implementations
        own = {kind: chosen[kind] for kind in chosen if circuits and circuits.number(kind) == number}
        defaults = replace(defaults, implementations={**defaults.implementations, **own})
    return defaults


def joined(lanes: Iterable[Lane]) -> tuple[Lane, ...]:
    """The lanes of a collective; NCCL takes all its dimensions as one."""
    found = tuple(lanes)
    if len(found) < 2 or found[0].algorithm.name != NCCL:
        return found
    joint = JointDim(tuple(lane.dim for lane in found if isinstance(lane.dim, LogicalDim)))
    return (structs.replace(found[0], dim=joint),)


def place(
    workload: Workload, topology: Topology, *, oversized: bool = False
) -> tuple[list[LogicalDim], dict[Group | Span, frozenset[int]]]:
    """Cut the machine for a workload: the dimensions, and which each group spans; InputError where they do not fit.

    With `oversized`, a model-parallel group that is larger than the machine counts as none.
    """
    dims, sizes = logical_dims([dim.npus for dim in topology.dims]), workload.parallelism
    if oversized and sizes.tp > topology.npus:
        sizes = replace(sizes, tp=1)
    axes = group_axes(sizes, topology.npus)
    (ranks, inside), (data, model) = axes[Group.EP], axes[Group.DP]
    if sizes.pp > 1 and inside * ranks > model * data:
        expected, found = f"at most {model * data // inside} of them", f"ep: {sizes.ep}"
        raise InputError.at(workload.location, "expert ranks reach over stages", expected=expected, found=found)
    del axes[Group.PP]  # its stages play programs of their own
    cuts = [axes[group] for group in (Group.TP, Group.CP, Group.EP, Group.DP)]
    for product in (edge for count, apart in cuts for edge in (apart, apart * count)):
        try:
            dims = cut(dims, product)
        except ValueError as error:
            raise InputError.at(
                workload.location,
                f"the groups of the header do not fit the topology: {error}",
                expected=f"group sizes that divide {' x '.join(str(dim.npus) for dim in topology.dims)} from the left",
                found=f"a group of {product} NPUs",
                hint="change the header's group sizes or the order of the topology's dimensions",
            ) from error
    span = frozenset(range(len(dims)))
    spans = {Span.NONE: frozenset[int](), Span.ALL: span, Span.FIRST_DIM: frozenset({0}), Span.OTHER_DIMS: span - {0}}
    return dims, spans | {
        group: frozenset(at for at, dim in enumerate(dims) if apart <= dim.stride < apart * count)
        for group, (count, apart) in axes.items()
    }


def _lanes(
    topology: Topology, dims: Sequence[LogicalDim], system: SystemConfig, defaults: SystemConfig
) -> dict[CollectiveKind, tuple[Lane, ...]]:
    """The dimensions that each kind of collective may use, with their algorithms."""
    found = {}
    for kind, chosen in {**defaults.implementations, **system.implementations}.items():
        if len(chosen) > len(topology.dims):
            key = f"{kind.replace('_', '-')}-implementation"
            raise InputError.at(
                system.at(key),
                f"{key} names more algorithms than the topology has dimensions",
                expected=f"at most {len(topology.dims)}",
                found=str(len(chosen)),
            )
        found[kind] = _lanes_of_kind(topology, dims, chosen)
    # Where all others take the machine as one dimension, so do barriers and rooted collectives.
    if all(lane.algorithm.whole_machine for kind in found if kind not in FOLLOWING for lane in found[kind]):
        for kind in (kind for kind in FOLLOWING if kind in found and kind not in system.implementations):
            algorithm = replace(found[kind][0].algorithm, whole_machine=True)
            found[kind] = _lanes_of_kind(topology, (), (algorithm,))
    return found


def _lanes_of_kind(topology: Topology, dims: Sequence[LogicalDim], chosen: Sequence[Algorithm]) -> tuple[Lane, ...]:
    if chosen[0].name == NCCL:
        return tuple(Lane(at, dim, chosen[0]) for at, dim in enumerate(dims))
    if chosen[0].whole_machine:
        dim = _toured(topology, chosen[0]) if chosen[0].tour else LogicalDim(0, topology.npus, 1)
        return (Lane(0, dim, chosen[0]),)
    for shape, algorithm in zip(topology.dims, chosen, strict=False):
        if algorithm.traits.in_switch and shape.kind != "Switch":
            place, message = algorithm.location or Location("--system"), f"{algorithm.name} needs a switch that reduces"
            raise InputError.at(place, message, expected="a dimension of kind Switch", found=shape.kind)
    return tuple(Lane(at, dim, chosen[dim.index]) for at, dim in enumerate(dims) if dim.index < len(chosen))


def _toured(topology: Topology, algorithm: Algorithm) -> Communicator:
    """All NPUs in the order of a tour; InputError where there is none."""
    try:
        return Communicator(TOURS[algorithm.tour](LinkGraph(topology)))
    except ValueError as error:
        place = algorithm.location or Location("--system")
        hint = "snakeRing goes round any mesh, torus or wafer, over longer ways where it must"
        raise InputError(Problem(place, str(error), hint=hint, field=algorithm.tour)) from error
