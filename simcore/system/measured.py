"""Phases that take what NCCL was measured to take: from the last arrival on, whatever lies between the NPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import simpy
from numpy.typing import NDArray

from simcore.system.collectives.nccl import Choice, Fabric, choose, point_to_point_s
from simcore.system.groups import Delay, GroupDim, JointDim, LogicalDim, RankGroup
from simcore.system.plans.maker import Costs
from simcore.system.streams import StreamPhase
from simcore.system.transport import AsymmetryError, Solved
from simcore.units import format_bytes, whole_ns
from simcore.workload.model import CollectiveKind

# Sizes are what one rank has; the measured curves' are those of all ranks together.
_OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}


class Measured(Solved):
    """Transport with `collectives: nccl`: a phase ends everywhere as long after its last arrival as `choose` says.

    A node holds `fabric.node_ranks` consecutive NPUs. Collectives of different groups do not meet.
    """

    def __init__(self, env: simpy.Environment, ranks: Sequence[Sequence[int]], fabric: Fabric, costs: Costs):
        super().__init__(env, ranks, _delay(fabric), costs)
        self._fabric = fabric
        self._chosen: dict[StreamPhase, Choice] = {}
        self._used: dict[tuple[str, int, int, str], list[int]] = defaultdict(list)
        self._per_node = lru_cache(maxsize=None)(self._most_per_node)

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends."""
        return round(self._chosen[phase].wire_bytes)

    def notes(self) -> list[str]:
        """What was chosen, for which collectives and sizes."""
        return [
            f"nccl on {self._fabric.name}: {kind} of {_span(sizes)} on {ranks} ranks, {per_node} a node: {name}"
            for (kind, ranks, per_node, name), sizes in sorted(self._used.items())
        ]

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        per_node = self._per_node(phase.lane.dim, group)
        total_bytes = phase.data_bytes * (len(group) if phase.kind in _OF_ONE_RANK else 1)
        chosen = choose(phase.kind, total_bytes, len(group), per_node, self._fabric)
        self._chosen[phase] = chosen
        sizes = self._used[str(phase.kind), len(group), per_node, str(chosen)]
        sizes[:] = [min([total_bytes, *sizes]), max([total_bytes, *sizes])]
        return np.full_like(arrivals, arrivals.max() + whole_ns(chosen.seconds * 1e9))

    def _most_per_node(self, dim: GroupDim, group: RankGroup) -> int:
        """Ranks of a group in a node; in a folded run all groups must have as many, as one stands for all."""
        if len(self._ranks) < len(self._class_of) and isinstance(dim, LogicalDim | JointDim):
            npus = np.arange(len(self._class_of))
            shares = _first(dim, npus) * len(npus) + npus // self._fabric.node_ranks  # of groups in nodes
            if len(set(np.unique(shares, return_counts=True)[1].tolist())) > 1:
                raise AsymmetryError
        return int(np.unique(group.members // self._fabric.node_ranks, return_counts=True)[1].max())


def _first(dim: LogicalDim | JointDim, npus: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first NPU of the group of every NPU."""
    first = npus.copy()
    for part in dim.dims if isinstance(dim, JointDim) else (dim,):
        first -= npus // part.stride % part.size * part.stride
    return first


def _delay(fabric: Fabric) -> Delay:
    """Of messages between two ranks."""

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        same = src // fabric.node_ranks == dst // fabric.node_ranks
        near, far = (whole_ns(point_to_point_s(size_bytes, fabric, same_node=near) * 1e9) for near in (True, False))
        return np.where(same, near, far)

    return times


def _span(sizes: Sequence[int]) -> str:
    """The sizes from the least to the largest."""
    return " to ".join(dict.fromkeys(map(format_bytes, sizes)))
