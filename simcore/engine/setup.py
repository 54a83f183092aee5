"""What every run has, whatever it plays: the machine and how a workload lies on it, the rules, the user's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simcore.engine.placement import Placement, place
from simcore.engine.settings import Settings
from simcore.network.topology.model import Topology
from simcore.profiles import Profile
from simcore.system.collectives import NATIVE_ALGORITHMS
from simcore.system.config import NCCL, SystemConfig
from simcore.workload.model import Workload


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs of a run beside its workload."""

    topology: Topology
    system: SystemConfig
    profile: Profile
    settings: Settings
    placement: Placement

    @property
    def stages(self) -> int:
        """How many parts of the machine run programs of their own."""
        return 1

    @property
    def names(self) -> Sequence[str]:
        """Of the communicators of the workload."""
        return ()

    @property
    def collectives_only(self) -> bool:
        """Whether there are no other messages than those of collectives along the dimensions."""
        return True

    @property
    def in_turn(self) -> bool:
        """Whether NPUs share something beside links, and get it in the order in which they ask for it."""
        return False


def prepare(
    workload: Workload, topology: Topology, system: SystemConfig | None, profile: Profile, settings: Settings
) -> Setup:
    """The setup of a workload; InputError for algorithms that the profile has not and groups that do not fit."""
    defaults, circuits = profile.system(topology), topology.circuits
    for number, other in enumerate(circuits.others if circuits else (), 1):  # what the profile does on the circuits
        chosen = profile.system(other).implementations
        own = {kind: chosen[kind] for kind in chosen if circuits and circuits.number(kind) == number}
        defaults = replace(defaults, implementations={**defaults.implementations, **own})
    system = system or defaults
    if not profile.native_algorithms:
        system.refuse_algorithms({*NATIVE_ALGORITHMS, NCCL}, profile.name)
    placement = place(workload, topology, system, defaults, oversized=profile.oversized_groups)
    return Setup(topology, system, profile, settings, placement)
