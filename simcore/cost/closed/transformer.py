"""Arithmetic and traffic of a whole GPT-like training run on a six-axis grid of clusters, in closed form.

A cluster is one point of the grid data x pipe x expert x sequence x inner tensor x outer tensor. Counts are totals over
the grid: FLOP with multiplications and additions apart, Tx and Rx in elements. Every collective is ideal. Source:
davidsj/ml_par_sim @520dcff (transformer.py), restated from its semantics; figures agree to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import reduce as fold
from operator import add

from simcore.cost.closed.simple import indivisible
from simcore.errors import InputError, Location, Problem

# Thresholds of the source, for an A100 or better: tokens and widths of a matrix product that keep its units busy, and
# the tokens a batch may have before gradient noise wastes them (McCandlish et al. 2018, "critical batch").
WIDTH_FOR_EFFICIENCY = 1024
CRITICAL_BATCH_TOKENS = 4096 * 2048
MICROBATCHES_PER_STAGE = 4


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of the network; `heads` x `d_head` is the attention's width. Experts are whole layers, routing is top-1."""

    layers: int
    d_model: int
    d_ffn: int
    heads: int
    d_head: int = 64
    experts: int = 1
    glu: bool = False
    multi_query: bool = True
    consecutive: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Degrees of the six axes, in the order they are printed."""

    tensor_ext: int = 1
    data: int = 1
    tensor_int: int = 1
    seq: int = 1
    exp: int = 1
    pipe: int = 1

    @property
    def clusters(self) -> int:
        """Points of the grid."""
        return math.prod(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained how: tokens of the data set, sequences of a batch, tokens of a sequence; or run forward only."""

    dataset_tokens: float
    batch_size: int = 2048
    seq_len: int = 2048
    checkpointing: bool = False
    forward_only: bool = False

    @property
    def batches(self) -> int:
        """Whole batches, nearest to the data set."""
        return round(self.dataset_tokens / (self.batch_size * self.seq_len))


@dataclass(frozen=True, slots=True)
class Pass:
    """What one direction costs: operations, elements sent and received."""

    flop: float = 0.0
    sent: float = 0.0
    received: float = 0.0

    def __add__(self, other: Pass) -> Pass:
        return Pass(self.flop + other.flop, self.sent + other.sent, self.received + other.received)

    def times(self, count: float) -> Pass:
        """The cost of `count` repetitions."""
        return Pass(self.flop * count, self.sent * count, self.received * count)


@dataclass(frozen=True, slots=True)
class Cost:
    """Forward and backward pass."""

    forward: Pass = Pass()
    backward: Pass = Pass()

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.forward + other.forward, self.backward + other.backward)

    def times(self, count: float) -> Cost:
        """The cost of `count` repetitions."""
        return Cost(self.forward.times(count), self.backward.times(count))


class Part(StrEnum):
    """What a layer does with tokens, in the order in which it does it."""

    QUERIES = "queries"
    KEYS = "keys and values"
    SCORES = "scores"
    SOFTMAX = "softmax"
    VALUES = "values"
    OUTPUT = "attention output"
    ATTENTION_RESIDUAL = "attention residual"
    UP = "FFN up"
    DOWN = "FFN down"
    RESIDUAL = "residual"


@dataclass(frozen=True, slots=True)
class RunCost:
    """The answer: what is trained on what, and the cost of that by part.

    `weights` are moved once a batch, `of_tokens` is done for every sequence. `microbatch_sizes` are those that keep the
    hardware efficient, None when that was not asked.
    """

    model: Model
    grid: Grid
    training: Training
    microbatch_sizes: tuple[int, ...] | None
    weights: tuple[tuple[str, Cost], ...]
    of_tokens: tuple[tuple[Part, Cost], ...]

    @property
    def parameters(self) -> int:
        """Of the model, all experts counted."""
        return self.model.layers * sum(weight.parameters for weight in matrices(self.model, self.grid))

    @property
    def tokens(self) -> int:
        """Of all batches."""
        return self.training.batches * self.training.batch_size * self.training.seq_len

    @property
    def total(self) -> Cost:
        """Sum of the parts."""
        return fold(add, (cost for _, cost in (*self.weights, *self.of_tokens)), Cost())

    @property
    def done(self) -> Pass:
        """Both passes, or the one that is run."""
        return self.total.forward if self.training.forward_only else self.total.forward + self.total.backward


def multiply(count: int) -> Cost:
    """A pointwise product of `count` index combinations; backward, each operand's gradient is a product and a sum."""
    return Cost(Pass(flop=count), Pass(flop=4 * count))


def reduce(rest: int, size: int, degree: int) -> Cost:
    """Sum over a dimension of `size` that is spread over `degree` clusters; `rest` results."""
    moved = rest * (degree - 1)
    return Cost(Pass(rest * (size - 1), moved, moved), Pass(0, rest * (degree > 1), moved))


def broadcast(rest: int, held: int, degree: int, crossing: float = 0.0) -> Cost:
    """Give `rest` elements, already on `held` clusters each, to `degree` clusters; a multicast is sent once.

    `crossing` is the probability that an element changes its cluster although it is not multiplied.
    """
    spread = rest * held * (degree + crossing - 1)
    return Cost(Pass(0, rest * max(float(degree > 1), crossing), spread), Pass(spread, spread, spread))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix of all experts of a layer, and over how many clusters each part of it is scattered."""

    name: str
    parameters: int
    local: int
    scattered: int


def matrices(model: Model, grid: Grid) -> list[Matrix]:
    """The weights of a layer."""
    inner, outer, replicas = grid.tensor_int, grid.tensor_ext * grid.exp, grid.data * grid.seq
    attention = model.d_model * model.heads * model.d_head * model.experts
    key, ffn_size = model.d_model * model.d_head * model.experts, model.d_model * model.d_ffn * model.experts
    full = attention, attention // (outer * inner), replicas
    ffn = ffn_size, ffn_size // (outer * inner), replicas
    key_value = (key, key // outer, replicas * inner) if model.multi_query else full
    named = [("Wq", full), ("Wk", key_value), ("Wv", key_value), ("Wo", full), ("W1", ffn), ("W2", ffn)]
    named += [("W1b", ffn)] if model.glu else []
    return [Matrix(name, *sizes) for name, sizes in named]


def evaluate(model: Model, grid: Grid, training: Training, *, efficient: bool = True) -> RunCost:
    """Cost of the run; InputError lists what does not divide and, with `efficient`, what wastes the hardware."""
    if problems := list(_divisibility(model, grid, training)):
        raise InputError(problems)
    sizes = microbatch_sizes(model, grid, training) if efficient else None
    per_stage = model.layers // grid.pipe
    once, each = training.batches * per_stage, training.batches * (training.batch_size // grid.data) * per_stage
    weights = ((one.name, broadcast(grid.pipe * one.parameters, 1, one.scattered)) for one in matrices(model, grid))
    moved = [(name, _counted(cost.times(once), training)) for name, cost in weights]
    of_tokens = [(part, _counted(cost.times(each), training)) for part, cost in _token_costs(model, grid, training)]
    return RunCost(model, grid, training, sizes, tuple(moved), tuple(of_tokens))


def _counted(cost: Cost, training: Training) -> Cost:
    """With checkpoints the forward pass is done once more before the backward."""
    return Cost(cost.forward, cost.backward + cost.forward) if training.checkpointing else cost


def _token_costs(model: Model, grid: Grid, training: Training) -> Iterator[tuple[Part, Cost]]:
    """The operations of one sequence per data replica on one layer per stage, in the order they run."""
    ext, inner, experts = grid.tensor_ext, grid.tensor_int, model.experts
    tokens = training.seq_len // experts
    d, f, h, c = model.d_model, model.d_ffn, model.heads, model.d_head
    x = grid.data * grid.pipe * training.seq_len
    yield Part.QUERIES, multiply(x * d * h * c) + reduce(x * h * c, d, ext) + broadcast(x * h * c, 1, ext)
    copies, repeated = (inner, inner) if model.multi_query else (h, 1)  # every inner rank repeats the projection
    keys = multiply(x * d * c * copies) + reduce(x * c * copies, d, ext)
    moved = x * c if model.multi_query else x * c * h
    yield Part.KEYS, (keys + broadcast(moved, repeated, grid.seq * grid.exp)).times(2)
    yield Part.SCORES, multiply(x * h * c * experts * tokens) + reduce(x * h * experts * tokens, c, 1)
    normaliser = reduce(x * h * tokens, experts, 1) + reduce(x * h, tokens, ext) + broadcast(x * h, 1, ext)
    yield Part.SOFTMAX, normaliser + multiply(x * h * experts * tokens)
    gathered = reduce(x * h * tokens * c, experts, 1) + reduce(x * h * c, tokens, ext)
    yield Part.VALUES, multiply(x * h * experts * tokens * c) + gathered + broadcast(x * h * c, 1, ext)
    yield Part.OUTPUT, multiply(x * d * h * c) + reduce(x * d * h, c, 1)
    if model.consecutive:
        yield Part.ATTENTION_RESIDUAL, reduce(x * d, h, inner) + broadcast(x * d, 1, inner)
    up = multiply(x * d * f) + reduce(x * f, d, ext) + broadcast(x * f, 1, ext)
    yield Part.UP, up.times(2) + multiply(x * f * ext) if model.glu else up
    yield Part.DOWN, multiply(x * d * f)
    summands = f if model.consecutive else h + f
    # How likely a layer's output is needed on another stage or by an expert elsewhere.
    crossing = 1 - (1 - (grid.pipe - 1) / model.layers) / grid.exp
    yield Part.RESIDUAL, reduce(x * d, summands, inner) + broadcast(x * d, 1, inner, crossing)


def _divisibility(model: Model, grid: Grid, training: Training) -> Iterator[Problem]:
    """Every size must divide by the axis it is spread over."""
    tokens = training.seq_len // model.experts
    pairs = (
        ("seq_len", training.seq_len, "num_experts", model.experts),
        ("num_layers", model.layers, "p_pipe", grid.pipe),
        ("batch_size", training.batch_size, "p_data", grid.data),
        ("num_experts", model.experts, "p_exp", grid.exp),
        ("seq_len / num_experts", tokens, "p_seq", grid.seq),
        ("seq_len / num_experts", tokens, "p_tensor_ext", grid.tensor_ext),
        ("d_model", model.d_model, "p_tensor_ext", grid.tensor_ext),
        ("d_ffn", model.d_ffn, "p_tensor_int", grid.tensor_int),
        ("num_heads", model.heads, "p_tensor_int", grid.tensor_int),
    )
    wrong = [*indivisible(pairs)]
    yield from wrong
    if training.batches < 1:
        least = training.batch_size * training.seq_len
        yield _problem("dataset_size", "the data set is less than half a batch", f"at least {least}", 0)
    for name, option, local, clusters in () if wrong else _scattered(model, grid, training):
        if local % clusters:
            message = f"{name}: {local} elements do not divide by the {clusters} clusters they lie on"
            yield _problem(option, message, f"degrees whose product divides {local}", clusters)


def _scattered(model: Model, grid: Grid, training: Training) -> Iterator[tuple[str, str, int, int]]:
    """What several clusters hold a part of each: its name, an option, elements to share out, clusters."""
    for matrix in matrices(model, grid):
        yield matrix.name, "p_data", matrix.local, matrix.scattered
    tokens, heads = training.seq_len // grid.exp, model.heads // grid.tensor_int
    rows, key_width = tokens // grid.seq, model.d_head * (1 if model.multi_query else heads)
    yield Part.SOFTMAX, "p_tensor_ext", rows * heads, grid.tensor_ext
    yield Part.KEYS, "p_seq", tokens // grid.tensor_ext * key_width, grid.seq
    yield Part.UP, "p_tensor_ext", rows * (model.d_ffn // grid.tensor_int), grid.tensor_ext
    yield Part.RESIDUAL, "p_tensor_int", rows * (model.d_model // grid.tensor_ext), grid.tensor_int


def microbatch_sizes(model: Model, grid: Grid, training: Training) -> tuple[int, ...]:
    """Sequences of a micro-batch over all replicas that keep matrix products busy and the pipeline bubble small.

    InputError lists every bound of the source that the configuration breaks.
    """
    batch = training.batch_size
    largest = batch // (MICROBATCHES_PER_STAGE * grid.pipe) if grid.pipe > 1 else batch
    tokens = training.seq_len / model.experts / (grid.data * grid.seq)
    smallest = math.ceil(WIDTH_FOR_EFFICIENCY / tokens / grid.data) * grid.data
    sizes = tuple(size for size in divisors(batch) if smallest <= size <= largest and size % grid.data == 0)
    problems = list(_bounds(model, grid, training))
    if not sizes:
        message = f"no micro-batch from {smallest} to {largest} divides the batch of {batch}"
        expected = f"a divisor of {batch} that is a multiple of p_data = {grid.data}"
        problems.append(_problem("batch_size", message, expected, batch))
    if problems:
        raise InputError(problems)
    return sizes


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*low, *(number // size for size in low)})


def _bounds(model: Model, grid: Grid, training: Training) -> Iterator[Problem]:
    """Bounds from above: (option, quantity, limit, what the limit is)."""
    expert_tokens = training.batch_size * (training.seq_len // model.experts)
    width = model.heads * model.d_head
    per_replica = training.batch_size // grid.data
    limits = (
        ("batch_size", expert_tokens, CRITICAL_BATCH_TOKENS, "tokens of an expert per batch (gradient noise)"),
        ("p_tensor_int", grid.tensor_int, model.d_ffn / WIDTH_FOR_EFFICIENCY, "d_ffn / 1024"),
        ("p_tensor_int", grid.tensor_int, width / WIDTH_FOR_EFFICIENCY, "num_heads * d_head / 1024"),
        ("p_tensor_ext", grid.tensor_ext, model.d_model / WIDTH_FOR_EFFICIENCY, "d_model / 1024"),
    )
    for option, value, limit, what in limits:
        if value > limit:
            yield _problem(option, f"{value:,} is above {limit:,.10g}, {what}", f"at most {limit:,.10g}", value)
    if grid.pipe > 1 and per_replica < MICROBATCHES_PER_STAGE * grid.pipe:
        message = f"{per_replica} micro-batches a replica leave a large bubble on {grid.pipe} stages"
        expected = f"batch_size / p_data of at least {MICROBATCHES_PER_STAGE * grid.pipe}"
        yield _problem("p_pipe", message, expected, per_replica)


def _problem(option: str, message: str, expected: str, found: object) -> Problem:
    hint = "" if "divide" in message else "--skip_efficiency_check computes the cost all the same"
    return Problem(Location(f"--{option}"), message, expected, str(found), hint, field=option)
