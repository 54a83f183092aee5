"""Where collective algorithms are registered, and the options they are made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simcore.errors import InputError
from simcore.registry import Registry
from simcore.system.plan import Plan
from simcore.workload.model import CollectiveKind

__all__ = ["NATIVE_ALGORITHMS", "PlanOptions", "algorithms", "check_kind"]


# Algorithms of the native profile beyond ASTRA-sim's, and the collectives that each can do.
NATIVE_ALGORITHMS: Mapping[str, tuple[CollectiveKind, ...]] = {
    "bruck": (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL),
    "dissemination": (CollectiveKind.BARRIER,),
    "pairwise": (CollectiveKind.ALL_TO_ALL,),
    "recursiveDoubling": (CollectiveKind.ALL_REDUCE,),
}


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is made: `window` of messages in flight (0 = all), and which reductions are charged.

    `alternate_reductions`: a windowed direct collective charges every other batch of receives (ASTRA-sim).
    `late_reductions`: halving-doubling charges the size of the next message, none after the last (ASTRA-sim).
    `local_group`: a communicator group's ring charges batches of (n-1) * window (ASTRA-sim 2.x).
    """

    window: int = 0
    alternate_reductions: bool = False
    late_reductions: bool = False
    local_group: bool = False


algorithms: Registry[Callable[[CollectiveKind, int, int, PlanOptions], Plan]] = Registry("collective algorithm")


def check_kind(name: str, kind: CollectiveKind) -> None:
    """InputError when an algorithm cannot do a collective: chunks may need another one than the workload asked for."""
    possible = NATIVE_ALGORITHMS[name]
    if kind in possible:
        return
    hint = "use ring or direct"
    if CollectiveKind.ALL_REDUCE in possible:
        hint = "with several dimensions set collective-optimization to baseline: then each of them all-reduces"
    raise InputError.at(name, f"{name} cannot do {kind}", expected=" or ".join(possible), found=str(kind), hint=hint)
