"""A batch of `cost simple` or `cost transformer` as rows, each product with the collectives that its split asks for.

A sum over an axis that keeps a part on each rank is a reduce-scatter, one that leaves all of it everywhere an
all-reduce; the backward pass mirrors them. Weights are gathered and their gradients scattered once a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simcore.cost.closed.executed import Axes, Axis, Batch
from simcore.cost.closed.simple import Setup, SimpleRun
from simcore.cost.closed.transformer import Cost, Grid, Matrix, Model, Part, RunCost, matrices
from simcore.errors import InputError
from simcore.workload.model import CollectiveKind, Layer, Phase, Role

ALL_REDUCE, ALL_TO_ALL = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL
ALL_GATHER, REDUCE_SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
MIRRORED = {ALL_GATHER: REDUCE_SCATTER, REDUCE_SCATTER: ALL_GATHER}
# Parts whose operands are both activations: no gradient of a weight can hide a collective there.
WEIGHTLESS = {Part.SCORES, Part.SOFTMAX, Part.VALUES, Part.ATTENTION_RESIDUAL, Part.RESIDUAL}

Sent = tuple[CollectiveKind, Axis, float]  # a collective and the elements of its buffer


def transformer_batch(
    run: RunCost,
    *,
    flop_per_s: float,
    element_bytes: float,
    microbatch_size: int | None = None,
    forward_only: bool = False,
) -> Batch:
    """The batch of `cost transformer`; `microbatch_size` counts sequences over all replicas.

    The smallest efficient one is taken where none is given, one sequence a replica where none was looked for. Raises
    InputError where it does not divide or the axes need more groups than there are.
    """
    model, grid, training = run.model, run.grid, run.training
    axes = Axes(grid)
    if axes.both_tensor and grid.exp * grid.seq > 1:
        message = "--topology executes both tensor axes, or one of them with experts and sequence"
        raise InputError.at(
            "--p_tensor_ext", message, expected="1, or --p_exp 1 and --p_seq 1", found=str(grid.tensor_ext)
        )
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
    split = _Split(axes, 1 / (clusters * per_stage * count), element_bytes, training.checkpointing, forward_only)
    rows = [row for part, cost in run.of_tokens for row in split.rows(part, cost, sent.get(part, ()))]
    ends = replace(split, seconds_per_flop=1 / clusters).ends(run.weights, weights, per_stage)
    handed = tokens * model.d_model / (grid.tensor_ext * grid.tensor_int) * element_bytes
    total = run.total.forward if forward_only else run.total.forward + run.total.backward
    return Batch(axes.workload(ends, rows * per_stage, count, handed), grid.clusters, total.flop / clusters)


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
    recomputes: bool
    forward_only: bool

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
            yield Layer(part, forward) if self.forward_only else layer
            if self.recomputes and not self.forward_only and forward.collective:
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
            yield Layer(name, gathered, weight_grad=Phase() if self.forward_only else reduced, role=role)

    def _phase(self, flop: float, sent: Sent | None = None, *, backward: bool = False) -> Phase:
        kind, axis, elements = sent or (ALL_REDUCE, Axis.INNER, 0.0)
        size_bytes = elements * self.element_bytes
        return self.axes.phase(
            flop * self.seconds_per_flop, MIRRORED.get(kind, kind) if backward else kind, axis, size_bytes
        )


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
    summed = (
        axes.phase(seconds, ALL_REDUCE, Axis.INNER, residual),
        axes.phase(seconds, ALL_REDUCE, Axis.OUTER, internal),
    )
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
