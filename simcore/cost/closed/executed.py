"""A closed form on machines: what it leaves out (bubbles, latency, hops, contention), on a topology or as predicted.

A model is rows, each product with the collectives that its split asks for; the axes of its grid become the groups of a
header. Sizes and arithmetic are those of the closed form, the engine gives the time. A sum over an axis that keeps a
part on each rank is a reduce-scatter, one that leaves all of it everywhere an all-reduce; the backward pass mirrors
them. Weights are gathered and their gradients scattered once a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from simcore.cost.closed.simple import Setup, SimpleRun
from simcore.cost.closed.transformer import Cost, Grid, Matrix, Model, Part, RunCost, Training, matrices
from simcore.cost.played import native
from simcore.cost.predict import predict
from simcore.cost.systems import Cluster
from simcore.cost.words import of_size, plan_of
from simcore.errors import InputError
from simcore.model.layer import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from simcore.model.shape import Experts
from simcore.model.shape import Model as Transformer
from simcore.network.topology.model import Topology
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Role, Workload

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
        native(program, topology).time_ns * 1e-9 for program in (batch.workload, _silent(batch.workload))
    )
    return Executed(with_s, without_s, batch.closed_form_s, with_s / batch.closed_form_s - 1)


def _silent(program: Workload) -> Workload:
    """The same without communication; rows that were one object stay one."""
    made = {}
    for row in {id(row): row for row in program.layers}.values():
        ahead, back, weights = (Phase(phase.compute_ns) for phase in row.phases)
        made[id(row)] = Layer(row.name, ahead, back, weights, role=row.role)
    return replace(program, layers=tuple(made[id(layer)] for layer in program.layers), pipeline_bytes=0)


MIRRORED = {ALL_GATHER: REDUCE_SCATTER, REDUCE_SCATTER: ALL_GATHER}
# Parts whose operands are both activations: no gradient of a weight can hide a collective there.
WEIGHTLESS = {Part.SCORES, Part.SOFTMAX, Part.VALUES, Part.ATTENTION_RESIDUAL, Part.RESIDUAL}

Sent = tuple[CollectiveKind, Axis, float]  # a collective and the elements of its buffer


def transformer_batch(
    run: RunCost, *, flop_per_s: float, element_bytes: float, microbatch_size: int | None = None
) -> Batch:
    """The batch of `cost transformer`; `microbatch_size` counts sequences over all replicas.

    The smallest efficient one is taken where none is given, one sequence a replica where none was looked for. Raises
    InputError where it does not divide or the axes need more groups than there are.
    """
    model, grid, training = run.model, run.grid, run.training
    axes = Axes(grid)
    if axes.both_tensor and grid.exp * grid.seq > 1:
        message = "--topology executes both tensor axes, or one of them with experts and sequence"
        expected, found = "1, or --p_exp 1 and --p_seq 1", str(grid.tensor_ext)
        raise InputError.at("--p_tensor_ext", message, expected=expected, found=found)
    size = microbatch_size or (run.microbatch_sizes or (grid.data,))[0]
    if training.batch_size % size or size % grid.data:
        expected = f"a divisor of {training.batch_size} that is a multiple of p_data = {grid.data}"
        raise InputError.at("--microbatch_size", "does not divide", expected=expected, found=str(size))
    count = training.batch_size // size
    sequences = training.batch_size // count // grid.data
    tokens = sequences * training.seq_len // (grid.exp * grid.seq)
    per_stage = model.layers // grid.pipe
    clusters = grid.clusters * flop_per_s * training.batches
    sent = _sent(model, grid, tokens)
    weights = matrices(model, grid)
    split = _Split(axes, 1 / (clusters * per_stage * count), element_bytes, training)
    rows = [row for part, cost in run.of_tokens for row in split.rows(part, cost, sent.get(part, ()))]
    ends = replace(split, seconds_per_flop=1 / clusters).ends(run.weights, weights, per_stage)
    handed = tokens * model.d_model / (grid.tensor_ext * grid.tensor_int) * element_bytes
    return Batch(axes.workload(ends, rows * per_stage, count, handed), grid.clusters, run.done.flop / clusters)


def _sent(model: Model, grid: Grid, tokens: int) -> dict[Part, tuple[Sent, ...]]:
    """The collectives of a micro-batch behind the parts of a layer."""
    heads = model.heads * model.d_head / grid.tensor_int
    keys = 2 * (model.d_head if model.multi_query else heads)
    residual, hidden = tokens * model.d_model / grid.tensor_ext, tokens * model.d_ffn / grid.tensor_int
    read = tokens * grid.exp * grid.seq * keys / grid.tensor_ext
    queries = (ALL_REDUCE, Axis.OUTER, tokens * heads)
    return {
        Part.QUERIES: (queries,),
        Part.KEYS: ((REDUCE_SCATTER, Axis.OUTER, tokens * keys), (ALL_GATHER, Axis.READERS, read)),
        Part.SOFTMAX: ((ALL_REDUCE, Axis.OUTER, tokens * model.heads / grid.tensor_int),),
        Part.VALUES: (queries,),
        Part.ATTENTION_RESIDUAL: ((ALL_REDUCE, Axis.INNER, residual),),
        Part.UP: ((ALL_REDUCE, Axis.OUTER, hidden * (2 if model.glu else 1)),),
        Part.RESIDUAL: ((ALL_REDUCE, Axis.INNER, residual), (ALL_TO_ALL, Axis.EXPERT, residual / grid.tensor_int)),
    }


@dataclass(frozen=True, slots=True)
class _Split:
    """How a cost of the whole run becomes rows of one cluster's micro-batch."""

    axes: Axes
    seconds_per_flop: float
    element_bytes: float
    training: Training

    def rows(self, part: Part, cost: Cost, sent: tuple[Sent, ...]) -> Iterator[Layer]:
        """A part: its arithmetic with the first collective, then a row for every other one.

        Backward, rows run from the last to the first, so that a repeated forward stands behind its part.
        """
        weights_flop = 0.0 if part in WEIGHTLESS else cost.forward.flop
        arithmetic = (cost.forward.flop, cost.backward.flop - weights_flop, weights_flop)
        for index, one in enumerate([one for one in sent if self.axes.size(one[1]) > 1] or [None]):
            flops = arithmetic if index == 0 else (0.0, 0.0, 0.0)
            forward, back = self._phase(flops[0], one), self._phase(flops[1], one, backward=True)
            layer = Layer(part, forward, back, self._phase(flops[2]))
            yield Layer(part, forward) if self.training.forward_only else layer
            if self.training.checkpointing and not self.training.forward_only and forward.collective:
                yield Layer(f"{part} again", input_grad=self._phase(0.0, one))

    def ends(self, parts: tuple[tuple[str, Cost], ...], weights: list[Matrix], layers: int) -> Iterator[Layer]:
        """Weights gathered and gradients scattered by who holds a part; those that tensor ranks share, there too."""
        inner, outside = self.axes.size(Axis.INNER), self.axes.size(Axis.WEIGHTS)
        shared = sum(each.local for each in weights if each.scattered > outside) * layers
        full = sum(each.local for each in weights) * layers - shared
        flop = sum(cost.backward.flop for _, cost in parts)
        for name, role, axis, size, some in (
            ("gradient_reduce", Role.REDUCE, Axis.WEIGHTS, full + shared / inner, flop),
            ("replicated_gradients", Role.REPLICATED, Axis.INNER, float(shared), 0.0),
        ):
            gathered = self._phase(0.0, (ALL_GATHER, axis, size))
            reduced = self._phase(some, (REDUCE_SCATTER, axis, size))
            yield Layer(name, gathered, weight_grad=Phase() if self.training.forward_only else reduced, role=role)

    def _phase(self, flop: float, sent: Sent | None = None, *, backward: bool = False) -> Phase:
        kind, axis, elements = sent or (ALL_REDUCE, Axis.INNER, 0.0)
        kind = MIRRORED.get(kind, kind) if backward else kind
        return self.axes.phase(flop * self.seconds_per_flop, kind, axis, elements * self.element_bytes)


def simple_batch(setup: Setup, run: SimpleRun) -> Batch:
    """The batch of `cost simple`; InputError for several experts a token, whose sum has no group, and too many axes."""
    if setup.routed > 1:
        message = "--topology executes routing to one expert"
        raise InputError.at("--n_routed_experts", message, expected="1", found=str(setup.routed))
    grid = Grid(setup.tp2, setup.dp, setup.tp, exp=setup.experts, pipe=setup.pp)
    axes = Axes(grid, setup.interleaving)
    if axes.both_tensor and setup.experts > 1:
        message = "--topology executes experts beside one tensor axis"
        raise InputError.at("--tp2", message, expected="--tp, --tp2 or --n_experts of 1", found=str(setup.tp2))
    width, seconds, tokens = setup.precision_bits / 8, run.matmul_time, run.tokens_per_matmul
    internal, residual = (tokens * size * width for size in (run.d_int_per_matmul, run.d_per_matmul))
    sizes = (Axis.INNER, residual), (Axis.OUTER, internal)
    summed = [axes.phase(seconds, ALL_REDUCE, axis, size) for axis, size in sizes]
    weights = Phase(round(seconds * 1e9))
    rows = [Layer("up", summed[1], summed[0], weights), Layer("down", summed[0], summed[1], weights)]
    if setup.tp == 1 and setup.experts > 1:
        moved = axes.phase(0, ALL_TO_ALL, Axis.EXPERT, residual)
        rows.append(Layer("routing", moved, moved))
    gradients = setup.parameters_per_expert * setup.experts / (setup.chips // setup.dp) * width
    end = Layer("gradient_reduce", weight_grad=axes.phase(0, ALL_REDUCE, Axis.WEIGHTS, gradients), role=Role.REDUCE)
    stage = rows * (setup.layers // setup.pp)
    program = axes.workload([end], stage, run.n_microbatches_per_batch, residual / setup.tp)
    return Batch(program, setup.chips, run.batch_time)


# --- a run of `cost transformer` on accelerators that are there


@dataclass(frozen=True, slots=True)
class Utilised:
    """Seconds of a batch and of the run, and the share of the accelerators' peak that its arithmetic is.

    What is computed again does not count there.
    """

    step_s: float
    runtime_s: float
    utilisation: float


def utilised(run: RunCost, cluster: Cluster, microbatch_size: int | None) -> Utilised:
    """A point of the grid is an accelerator; `microbatch_size` counts sequences over all replicas.

    As `transformer_batch` it takes the smallest efficient one where none is given and it divides, else one each.
    Embedding and head, which the count leaves out, have next to no vocabulary. InputError where degrees do not divide.
    """
    model, grid, training = run.model, run.grid, run.training
    experts = Experts(model.experts, 1, model.d_ffn) if model.experts > 1 else None
    heads = 1 if model.multi_query else model.heads
    norms = 2 if model.consecutive else 1
    shape = Transformer(
        "counted", model.layers, model.d_model, model.heads, model.d_ffn, 1, heads, model.d_head, gated=model.glu,
        tied=True, norms=norms, experts=experts, parallel_block=not model.consecutive,
    )  # fmt: skip
    tp, replicas = grid.tensor_int * grid.tensor_ext, grid.data * grid.exp
    efficient = (size for size in run.microbatch_sizes or () if size % replicas == 0)
    each, rest = divmod(microbatch_size or next(efficient, replicas), replicas)
    if rest:
        raise InputError.at("--microbatch_size", "does not divide", expected=f"a multiple of {replicas}")
    system = of_size(cluster, grid.clusters)
    plan = plan_of(shape, system, grid.clusters, {
        "seq": training.seq_len, "global_batch": training.batch_size, "dp": replicas, "tp": tp, "cp": grid.seq,
        "ep": grid.exp, "pp": grid.pipe, "micro_batch": each, "sequence_parallel": tp > 1,
        "recompute": "full" if training.checkpointing else "none", **({"expert_tp": tp} if experts else {}),
    })  # fmt: skip
    step_s = predict(shape, plan, system).step_s
    runtime_s = step_s * training.batches
    peak = grid.clusters * cluster.device.peak(plan.dtype)
    needed = run.done.flop - training.checkpointing * run.total.forward.flop
    return Utilised(step_s, runtime_s, needed / (runtime_s * peak))
