"""What differs between the native model and the peers' profiles: plain fields and small functions the layers take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import simpy

from simcore.network.congested import Network
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.registry import Registry
from simcore.system.collectives import PlanOptions
from simcore.system.config import SystemConfig
from simcore.system.groups import Delay
from simcore.system.phases import QueueChoice
from simcore.workload.model import CollectiveKind

__all__ = ["NetworkMode", "Profile", "profiles"]

NetworkMode = Literal["congestion-free", "congested", "fair"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Timing rules of one model.

    `networks` are the network modes it has, the first is its default. `gigabyte` is what a topology file's GB means
    ("" = as the file says, decimal when it does not). `step_ns` is the cost of a state of the training loop, `barrier`
    makes a chunk wait for the whole machine after every phase. `delay` times a message on an idle network. `chunks`
    cuts a collective of so many bytes on so many NPUs into pieces. `reduction` times a local reduction. `scale` applies
    a scale option to a size or a time. `dimension_bandwidth` weighs dimensions against each other (Themis).
    `total_all_gather` reads all-gather sizes of SimAI files as totals. With `oversized_groups`, a model-parallel group
    larger than the machine means none (ASTRA-sim 1.0). `shared_links` makes the network of the modes whose links are
    shared. With `gang`, a chunk's phase begins on all NPUs of its group at once.
    """

    name: str
    networks: tuple[NetworkMode, ...]
    gigabyte: Literal["", "binary"]
    step_ns: int
    barrier: bool
    first_layer_tail_only: bool
    delay: Callable[[Topology, bool], Delay]
    chunks: Callable[[CollectiveKind, int, int, int], Iterator[int]]
    reduction: Callable[[SystemConfig], Callable[[int], int]]
    queue_choice: QueueChoice
    plan_options: PlanOptions
    scale: Callable[[int, float], int]
    system: Callable[[Topology], SystemConfig]
    dimension_bandwidth: Callable[[Dimension], float]
    shared_links: Mapping[NetworkMode, Callable[[simpy.Environment, LinkGraph], Network]] = field(default_factory=dict)
    total_all_gather: bool = False
    oversized_groups: bool = False
    gang: bool = False


profiles: Registry[Profile] = Registry("profile")
