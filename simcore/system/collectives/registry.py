"""Where collective algorithms are registered, the options they are made with, and those that a dimension takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps

from msgspec import Struct

from simcore.errors import Location
from simcore.network.topology.moves import Moves
from simcore.registry import Registry
from simcore.system.plans.plan import Plan, Switch
from simcore.system.plans.schedule import Schedule
from simcore.workload.model import CollectiveKind

NCCL = "nccl"  # no plan: its times are measured


class Wire(Struct, frozen=True):
    """The way from rank `src` to rank `dst`: the links on it with their bytes per second, and its latency."""

    src: int
    dst: int
    links: tuple[int, ...]
    rates: tuple[float, ...]
    latency_ns: int


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is made: `window` of messages in flight (0 = all), and which reductions are charged.

    `astra_reductions`: as ASTRA-sim does, a windowed direct collective charges every other batch of receives, and
    halving-doubling the size of the next message, none after the last.
    `local_group`: a communicator group's ring charges batches of (n-1) * window (ASTRA-sim 2.x).
    `mirrored`: which of two trees. `root`: the rank that a rooted collective starts from or ends at. `wires` tells the
    neighbours in the group and what is between them, to algorithms that are `network_aware`. `own`: the moves of a
    network that is no ring, for those that send each share straight to its receiver (`Plan`).
    `switch`: the one that reduces, where an algorithm is `in_switch`.
    """

    window: int = 0
    astra_reductions: bool = False
    local_group: bool = False
    mirrored: bool = False
    root: int = 0
    wires: Callable[[], Sequence[Wire]] | None = None
    own: Moves | None = None
    switch: Switch = field(default_factory=Switch)


Maker = Callable[[CollectiveKind, int, int, PlanOptions], Plan]
algorithms: Registry[Maker] = Registry("collective algorithm")

EVERYBODY = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
"""Those in which all ranks do alike; the others have a root."""


class Traits(Struct, frozen=True):
    """What an algorithm says of itself.

    `kinds`: the collectives that it does. `native`: ASTRA-sim has it not. `windowed`: a number behind its name is
    `PlanOptions.window`. `network_aware`: its plans depend on the network of their group. `in_network`: the network
    copies or reduces its messages, no one receiver gets them; `in_switch`: by switches that reduce. `in_trees`: it
    all-reduces over two trees in turns (`PlanOptions.mirrored`), whatever is asked for.
    """

    kinds: tuple[CollectiveKind, ...]
    native: bool = False
    windowed: bool = False
    network_aware: bool = False
    in_network: bool = False
    in_switch: bool = False
    in_trees: bool = False


_PLAIN = Traits(EVERYBODY)


def traits_of(name: str) -> Traits:
    """What an algorithm is like; those that say nothing do what all ranks do alike."""
    return getattr(algorithms.get(name), "traits", _PLAIN) if name in algorithms else _PLAIN


def collective(name: str, *kinds: CollectiveKind, **traits: bool) -> Callable[[Maker], Maker]:
    """Register an algorithm of these kinds (none: `EVERYBODY`) with its `Traits`; for others it raises ValueError.

    Chunks may need another collective than was asked for.
    """
    able = Traits(kinds or EVERYBODY, **traits)
    parts = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER) * (CollectiveKind.ALL_REDUCE in able.kinds)
    hint = "; with collective-optimization baseline every dimension all-reduces"

    def enter(maker: Maker) -> Maker:
        @wraps(maker)
        def checked(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
            if kind not in able.kinds:
                raise ValueError(f"{name} cannot do {kind}{hint * (kind in parts)}")
            return maker(kind, size, data_bytes, options)

        vars(checked)["traits"] = able
        return algorithms.register(name)(checked)

    return enter


native = partial(collective, native=True)  # an algorithm that ASTRA-sim has not


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of one dimension.

    `window` limits direct's messages in flight (0 = all at once), and is the number of pieces of a chain or of what is
    synthesised. `schedule` is a user's own plan.

    `whole_machine` makes one logical dimension of all NPUs (ASTRA-sim's one* variants), in the order of a `tour` if one
    is named; `location` is where a file chose it.
    """

    name: str
    window: int = 0
    whole_machine: bool = False
    schedule: Schedule | None = None
    tour: str = ""
    location: Location | None = field(default=None, compare=False)

    @property
    def traits(self) -> Traits:
        """What the algorithm says of itself."""
        return traits_of(self.name)
