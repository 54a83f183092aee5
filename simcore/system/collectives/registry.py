"""Where collective algorithms are registered, and the options they are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simcore.registry import Registry
from simcore.system.plan import Plan
from simcore.workload.model import CollectiveKind

__all__ = ["PlanOptions", "algorithms"]


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
