"""What a recorded communication kernel moves, as NCCL tells it, and how long that takes alone on a machine."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np
from msgspec import Struct

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.profiles import profiles
from simcore.system.collectives import ROOTED
from simcore.system.config import SystemConfig
from simcore.workload.kineto import Collective
from simcore.workload.model import ALL_DIMENSIONS, SEND, CollectiveKind, Graph, GraphSet, NodeKind, kind_of

UNHEARD_OF_BYTES = 1 << 50


class Transfer(Struct, frozen=True):
    """A collective of `ranks`, or a transfer from the first of two ranks to the second.

    `size_bytes` is what a rank puts in, 0 = not said; `share` is by how much another group changes it.
    """

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    share: float = 1.0

    @property
    def sized(self) -> bool:
        """Whether a network can time it."""
        return self.size_bytes > 0 or self.kind == CollectiveKind.BARRIER

    @property
    def sent_bytes(self) -> int:
        """What a rank puts in, with the share; at least a byte."""
        return max(round(self.size_bytes * self.share), 1)


@cache
def transfer_of(said: Collective) -> Transfer | None:
    """What a kernel moves; a group of which only the size is known stands on the first ranks. None: not said."""
    kind = kind_of(said.operation)
    ranks = (said.ends or ()) if kind == SEND else said.ranks or tuple(range(said.size))
    known = kind and ranks and len(set(ranks)) == len(ranks)
    size_bytes = said.size_bytes if 0 <= said.size_bytes < UNHEARD_OF_BYTES else 0
    return Transfer(kind, size_bytes, ranks) if known else None


def bus_bytes(transfer: Transfer) -> float:
    """What one rank sends at least, in multiples of `size_bytes`: nccl-tests' convention of bus bandwidth."""
    ranks = len(transfer.ranks)
    factors = {
        CollectiveKind.ALL_REDUCE: 2 * (ranks - 1) / ranks,
        CollectiveKind.REDUCE_SCATTER: (ranks - 1) / ranks,
        CollectiveKind.ALL_TO_ALL: (ranks - 1) / ranks,
        CollectiveKind.ALL_GATHER: ranks - 1,
    }
    return transfer.share * {str(kind): factor for kind, factor in factors.items()}.get(transfer.kind, ranks > 1)


MEMBERS = "members"
IDLE = Graph.of({"name": "idle", "kind": NodeKind.COMPUTE})  # a computation that takes no time


class Interconnect(Struct, frozen=True, eq=False):
    """A topology with its system settings; rank n of a trace is its NPU n."""

    topology: Topology
    system: SystemConfig | None = None
    played: dict[Transfer, int] = {}

    def time_ns(self, transfer: Transfer) -> int:
        """The time of a transfer that meets no other one; each is played once.

        A group that spans whole dimensions is played as that: by all such groups at once, with those dimensions'
        algorithms. Rooted collectives start from, or end at, the first rank. InputError when the machine has too few
        NPUs.
        """
        if len(transfer.ranks) < 2:
            return 0
        if transfer not in self.played:
            self.played[transfer] = self._play(transfer)
        return self.played[transfer]

    def _play(self, transfer: Transfer) -> int:
        last, npus = max(transfer.ranks), self.topology.npus
        if last >= npus:
            what = f"the trace's ranks do not fit: rank {last} takes part in {transfer.kind} communication"
            expected, found = f"a topology of at least {last + 1} NPUs", f"{npus} NPUs"
            raise InputError.at(self.topology.path or "--topology", what, expected=expected, found=found)
        profile = profiles.get("native")
        runs, said = np.zeros(npus, np.int32), {"name": transfer.kind, "size_bytes": transfer.sent_bytes}
        if transfer.kind == SEND:
            runs[list(transfer.ranks)] = 1, 2
            ends = zip((NodeKind.SEND, NodeKind.RECV), transfer.ranks[::-1], strict=True)
            graphs = GraphSet((IDLE, *(Graph.of(said | {"kind": kind, "peer": peer}) for kind, peer in ends)), runs)
        else:
            kind = CollectiveKind(transfer.kind)
            dims = self._whole_dims(kind, transfer.ranks)
            said |= {"kind": NodeKind.COLLECTIVE, "collective": list(CollectiveKind).index(kind)}
            node = Graph.of(said | {"dims": dims or ALL_DIMENSIONS}, group_names=("" if dims else MEMBERS,))
            runs[list(transfer.ranks)] = 1
            graphs = GraphSet((node,), 0 * runs) if dims else GraphSet((IDLE, node), runs, {MEMBERS: transfer.ranks})
        settings = Settings(network=profile.networks[0])
        return simulate(graphs, self.topology, self.system, profile, settings).time_ns

    def _whole_dims(self, kind: CollectiveKind, ranks: tuple[int, ...]) -> int:
        """The bit mask of the dimensions that a group spans as a whole; 0 when it spans some of them in part."""
        sizes = [dim.npus for dim in self.topology.dims]
        if set(ranks) == set(range(self.topology.npus)):
            return ALL_DIMENSIONS
        chosen = profiles.get("native").system(self.topology).implementations
        chosen = {**chosen, **(self.system.implementations if self.system else {})}
        as_one = any(algorithm.whole_machine for algorithm in chosen.get(kind, ()))
        if kind in ROOTED or as_one or prod(sizes) != self.topology.npus:
            return 0
        places = np.unravel_index(np.array(ranks), sizes, order="F")
        spanned = [index for index, place in enumerate(places) if len(np.unique(place)) > 1]
        whole = prod(sizes[index] for index in spanned) == len(ranks)
        return sum(1 << index for index in spanned) if whole else 0
