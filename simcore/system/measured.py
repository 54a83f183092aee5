"""Phases that take what NCCL was measured to take: from the last arrival on, whatever lies between the NPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from simcore.network.instant import Environment
from simcore.system.collectives.nccl import Choice, Fabric, choose, point_to_point_s
from simcore.system.groups import Delay, LogicalDim, RankGroup
from simcore.system.plans.maker import Costs
from simcore.system.streams import StreamPhase
from simcore.system.transport import Solved
from simcore.units import format_bytes, whole_ns
from simcore.workload.model import CollectiveKind

# Sizes are what one rank has; the measured curves' are those of all ranks together.
_OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}


class Measured(Solved):
    """Transport with `collectives: nccl`: a phase ends everywhere as long after its last arrival as `choose` says.

    A node holds `fabric.node_ranks` consecutive NPUs. Collectives of different groups do not meet.
    """

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], fabric: Fabric, costs: Costs):
        super().__init__(env, ranks, _delay(fabric), costs)
        self._fabric = fabric
        self._chosen: dict[StreamPhase, Choice] = {}
        self._used: dict[tuple[str, int, int, str], list[int]] = defaultdict(list)

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends."""
        return round(self._chosen[phase].wire_bytes)

    def notes(self) -> list[str]:
        """What was chosen, for which collectives and sizes."""
        lines = []
        for (kind, ranks, per_node, name), sizes in sorted(self._used.items()):
            span = " to ".join(dict.fromkeys(map(format_bytes, sizes)))
            lines.append(f"nccl on {self._fabric.name}: {kind} of {span} on {ranks} ranks, {per_node} a node: {name}")
        return lines

    def _solve(self, group: RankGroup, arrivals: NDArray[np.int64], phase: StreamPhase) -> NDArray[np.int64]:
        per_node = int(np.unique(group.members // self._fabric.node_ranks, return_counts=True)[1].max())
        total_bytes = phase.data_bytes * (len(group) if phase.kind in _OF_ONE_RANK else 1)
        chosen = choose(phase.kind, total_bytes, len(group), per_node, self._fabric)
        self._chosen[phase] = chosen
        sizes = self._used[str(phase.kind), len(group), per_node, str(chosen)]
        sizes[:] = [min([total_bytes, *sizes]), max([total_bytes, *sizes])]
        return np.full_like(arrivals, arrivals.max() + whole_ns(chosen.seconds * 1e9))


def in_equal_nodes(dims: Sequence[LogicalDim], npus: int, node_ranks: int) -> bool:
    """Whether groups of the same dimensions always have as many ranks in a node: one may stand for all then."""
    ids, wide = np.arange(npus), [dim for dim in dims if dim.size > 1]
    for together in chain.from_iterable(combinations(wide, count) for count in range(1, len(wide) + 1)):
        first = ids - sum(ids // dim.stride % dim.size * dim.stride for dim in together)
        shares = np.unique(first * npus + ids // node_ranks, return_counts=True)[1]  # of groups in nodes
        if np.ptp(shares):
            return False
    return True


def _delay(fabric: Fabric) -> Delay:
    """Of messages between two ranks."""

    def times(src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: int) -> NDArray[np.int64]:
        same = src // fabric.node_ranks == dst // fabric.node_ranks
        near, far = (whole_ns(point_to_point_s(size_bytes, fabric, same_node=near) * 1e9) for near in (True, False))
        return np.where(same, near, far)

    return times
