"""Where collective algorithms are registered, and the options they are made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simcore.registry import Registry
from simcore.system.explicit import Explicit
from simcore.system.plan import InNetwork, Plan, SideBySide
from simcore.system.wires import Wire
from simcore.workload.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is made: `window` of messages in flight (0 = all), and which reductions are charged.

    `alternate_reductions`: a windowed direct collective charges every other batch of receives (ASTRA-sim).
    `late_reductions`: halving-doubling charges the size of the next message, none after the last (ASTRA-sim).
    `local_group`: a communicator group's ring charges batches of (n-1) * window (ASTRA-sim 2.x).
    `mirrored`: which of two trees. `root`: the rank that a rooted collective starts from or ends at. `wires` tells the
    neighbours in the group and what is between them, to the algorithms of `NETWORK_AWARE`.
    `switch_latency_ns`, `switch_bytes_per_s`: of reductions in a switch (0: as fast as the bytes come).
    """

    window: int = 0
    alternate_reductions: bool = False
    late_reductions: bool = False
    local_group: bool = False
    mirrored: bool = False
    root: int = 0
    wires: Callable[[], Sequence[Wire]] | None = None
    switch_latency_ns: int = 0
    switch_bytes_per_s: float = 0.0


AnyPlan = Plan | SideBySide | InNetwork | Explicit
Maker = Callable[[CollectiveKind, int, int, PlanOptions], AnyPlan]
algorithms: Registry[Maker] = Registry("collective algorithm")

ROOTED = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER)

# Algorithms of the native profile that ASTRA-sim has not, and the collectives that each can do.
NATIVE_ALGORITHMS: Mapping[str, tuple[CollectiveKind, ...]] = {
    "bidirectionalRing": (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
    ),
    "binomial": ROOTED,
    "bruck": (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL),
    "chain": ROOTED,
    "dissemination": (CollectiveKind.BARRIER,),
    "flat": ROOTED,
    "inNetwork": (CollectiveKind.ALL_REDUCE,),
    "multicast": (CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST),
    "pairwise": (CollectiveKind.ALL_TO_ALL,),
    "pat": (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER),
    "recursiveDoubling": (CollectiveKind.ALL_REDUCE,),
    "synthesised": (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER),
}

# Those whose plans depend on the network of their group.
NETWORK_AWARE = frozenset({"synthesised"})


def check_kind(name: str, kind: CollectiveKind) -> None:
    """ValueError when a native algorithm cannot do a collective: chunks may need another one than was asked for."""
    if kind in NATIVE_ALGORITHMS[name]:
        return
    hint = ""
    if CollectiveKind.ALL_REDUCE in NATIVE_ALGORITHMS[name]:
        hint = "; with collective-optimization baseline every dimension all-reduces"
    raise ValueError(f"{name} cannot do {kind}{hint}")
