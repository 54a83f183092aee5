"""The plans of a run's phases, each made once, and what ranks pay beside the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from simcore.errors import InputError, Location, Problem
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.moves import Moves
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.collectives.synthesised import wires
from simcore.system.groups import GroupDim, LogicalDim
from simcore.system.memory import BusCosts
from simcore.system.plans.plan import Plan
from simcore.system.streams import IDLE, Lane, StreamPhase


@dataclass(frozen=True, slots=True)
class Costs:
    """What a rank pays beside the network: an endpoint delay per packet, and reductions by their bytes.

    With a `bus`, packets go over it in place of the endpoint delay. With `rendezvous`, every message is asked for by a
    small one. `links` are for plans that follow them.
    """

    endpoint_ns: int
    reduction_ns: Callable[[int], int]
    options: PlanOptions
    group_endpoint_ns: int = -1
    rendezvous: bool = False
    bus: BusCosts | None = None
    links: LinkGraph | None = None

    def received_ns(self, reduce_bytes: int) -> int:
        """What a rank spends on a message that is here."""
        return self.endpoint_ns + (self.reduction_ns(reduce_bytes) if reduce_bytes else 0)

    def of(self, lane: Lane) -> Costs:
        """The costs on a lane: communicators may have their own endpoint delay, no bus, no way of their own (2.x)."""
        if not lane.local or self.group_endpoint_ns < 0:
            return self
        options = replace(self.options, local_group=True)
        return replace(self, endpoint_ns=self.group_endpoint_ns, options=options, bus=None, links=None)

    def moves(self, dim: GroupDim) -> Moves | None:
        """Those of the fabric that a dimension is the whole of, in its order, where they are of its own kind."""
        if not (self.links and isinstance(dim, LogicalDim)) or dim.backward:
            return None
        own = (axis.fabric for axis in self.links.axes if (axis.fabric.npus, axis.stride) == (dim.size, dim.stride))
        return next((fabric.moves for fabric in own), None)


class Plans:
    """Makes plans: one for every shape of phase, and for every group where the algorithm looks at the network."""

    def __init__(self, costs: Costs):
        self.costs = costs
        self._known: dict[tuple[StreamPhase, int], Plan] = {}

    def of(self, phase: StreamPhase, npu: int) -> Plan:
        """What is sent in the phase of the group that an NPU is in."""
        key = _key(phase, npu)
        if key not in self._known:
            self._known[key] = self._make(phase, npu)
        return self._known[key]

    def know(self, phase: StreamPhase, npu: int, plan: Plan) -> None:
        """Take over a plan that was made elsewhere."""
        self._known[_key(phase, npu)] = plan

    def _make(self, phase: StreamPhase, npu: int) -> Plan:
        algorithm, dim = phase.lane.algorithm, phase.lane.dim
        place = algorithm.location or Location("--system")
        if phase.root == IDLE:
            return Plan(dim.size)
        costs = self.costs.of(phase.lane)
        options = replace(
            costs.options, window=algorithm.window, mirrored=phase.mirrored, root=phase.root, own=costs.moves(dim),
            wires=partial(wires, costs.links, dim.members(npu)) if costs.links else None,
        )  # fmt: skip
        try:
            if algorithm.schedule:
                return algorithm.schedule.plan(phase.kind, dim.size, phase.data_bytes, phase.root)
            return algorithms.get(algorithm.name)(phase.kind, dim.size, phase.data_bytes, options)
        except ValueError as error:
            raise InputError(Problem(place, str(error), hint="use ring or direct", field=algorithm.name)) from error
        except InputError as error:
            moved = [replace(problem, location=place) for problem in error.problems]
            raise InputError(moved) from None  # `play` takes a cause for what was raised first


def uneven(phase: StreamPhase) -> InputError:
    """NPUs that were taken to be alike, from plans of other sizes, are not."""
    algorithm = phase.lane.algorithm
    message = f"{algorithm.name} treats ranks alike for some sizes and not for {phase.data_bytes} B"
    place = algorithm.location or Location("--system")
    return InputError.at(place, message, expected="plans of one symmetry", found=algorithm.name, hint="use --no-fold")


def _key(phase: StreamPhase, npu: int) -> tuple[StreamPhase, int]:
    """A phase and, where the algorithm looks at the network, the first of the group."""
    aware = phase.lane.algorithm.traits.network_aware
    return phase, int(phase.lane.dim.members(npu)[0]) if aware else 0
