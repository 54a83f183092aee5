"""A batch of a closed form on a real topology: what the form leaves out (bubbles, latency, hops, contention).

A model is rows with their collectives; the axes of its grid become the groups of a header. Sizes and arithmetic are
those of the closed form, the engine gives the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from simcore.cost.closed.transformer import Grid
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.profiles import profiles
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, PhaseName, Workload

MOST_ROWS = 500_000  # half a minute


class Axis(Enum):
    """What a collective runs along: both tensor axes, experts, readers of the same sequences, holders of a weight."""

    INNER = "inner"
    OUTER = "outer"
    EXPERT = "expert"
    READERS = "readers"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Axes:
    """A grid on the machine: tensor ranks innermost, then experts, sequence, data and pipeline."""

    grid: Grid
    interleaving: int = 1

    @property
    def both_tensor(self) -> bool:
        """Whether tensor ranks form a plane."""
        return self.grid.tensor_int > 1 and self.grid.tensor_ext > 1

    def header(self, micro_batches: int) -> Parallelism:
        """The axes as the groups of a text workload.

        A header nests CP and EP in the rest of DP: here CP holds EP, so that DP without EP is who holds a weight.
        """
        inner, outer = self.grid.tensor_int, self.grid.tensor_ext
        tensor, near = (inner, outer) if self.both_tensor else (inner * outer, self.grid.exp)
        return Parallelism(tensor, near, self.grid.pipe, self.interleaving, near * self.grid.seq, micro_batches)

    def group(self, axis: Axis) -> Group:
        """The group of an axis in the header."""
        if axis is Axis.OUTER:
            return Group.CP if self.both_tensor else Group.TP
        return {Axis.INNER: Group.TP, Axis.EXPERT: Group.EP, Axis.READERS: Group.CP, Axis.WEIGHTS: Group.DP_EP}[axis]

    def size(self, axis: Axis) -> int:
        """Ranks along an axis."""
        grid = self.grid
        sizes = {Axis.INNER: grid.tensor_int, Axis.OUTER: grid.tensor_ext, Axis.EXPERT: grid.exp}
        return sizes.get(axis, grid.seq * (grid.exp if axis is Axis.READERS else grid.data))

    def phase(self, compute_s: float, kind: CollectiveKind, axis: Axis, size_bytes: float) -> Phase:
        """A computation and the collective behind it, where the axis has more than one rank."""
        if self.size(axis) == 1 or round(size_bytes) == 0:
            return Phase(round(compute_s * 1e9))
        return Phase(round(compute_s * 1e9), kind, round(size_bytes), self.group(axis))

    def workload(self, end: Iterable[Layer], stage: Iterable[Layer], count: int, handed_bytes: float) -> Workload:
        """A step of `count` micro-batches: rows of its end, those of a stage, and what it hands to the next."""
        handed, rows = round(handed_bytes) if self.grid.pipe > 1 else 0, tuple(stage)
        if len(rows) * count > MOST_ROWS:
            message = f"--topology executes {count} micro-batches of {len(rows)} rows one by one"
            most = f"at most {MOST_ROWS} rows"
            raise InputError.at("--microbatch_size", message, expected=most, hint="larger micro-batches are fewer")
        rows = (*end, *rows * count)
        return Workload("HYBRID_TRANSFORMER", rows, self.header(count), "simai", pipeline_bytes=handed)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the engine runs it, for so many NPUs, and its seconds in the closed form."""

    workload: Workload
    npus: int
    closed_form_s: float


@dataclass(frozen=True, slots=True)
class Executed:
    """Seconds of a batch: on the topology, there without any communication, and in the closed form.

    `excess` is the executed time over the closed form's, less one.
    """

    batch_time: float
    compute_only: float
    closed_form: float
    excess: float

    def lines(self) -> list[str]:
        """What the cost commands print of it."""
        return [
            "",
            f"on the topology: {self.batch_time:.6g} s per batch, {self.excess:+.1%} against the closed form",
            f"    without communication: {self.compute_only:.6g} s",
        ]


def execute(batch: Batch, topology: Topology) -> Executed:
    """The batch on the topology; InputError when that has another size."""
    if topology.npus != batch.npus:
        message = f"the topology has {topology.npus} NPUs, the setup {batch.npus} chips"
        raise InputError.at("--topology", message, expected=f"{batch.npus} NPUs", found=str(topology.npus))
    with_s, without_s = (
        simulate(program, topology, None, profiles.get("native"), Settings()).time_ns * 1e-9
        for program in (batch.workload, _silent(batch.workload))
    )
    return Executed(with_s, without_s, batch.closed_form_s, with_s / batch.closed_form_s - 1)


def _silent(program: Workload) -> Workload:
    """The same without communication; rows that were one object stay one."""
    made = {id(layer): _quiet(layer) for layer in program.layers}
    return replace(program, layers=tuple(made[id(layer)] for layer in program.layers), pipeline_bytes=0)


def _quiet(layer: Layer) -> Layer:
    forward, input_grad, weight_grad = (Phase(layer.phase(name).compute_ns) for name in PhaseName)
    return replace(layer, forward=forward, input_grad=input_grad, weight_grad=weight_grad)
