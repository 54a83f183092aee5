"""Time of a training run from matrix products, a pipeline and ideal collectives: training-run-cost's roofline.

Two variants of davidsj/ml_par_sim's simple_transformer.py: `readme` (@47632d9, whose figures its README prints) hides
all communication but that of the bubble and of the gradients; `head` (@d9c1248) lets it bound the full pipeline and
scales the hardware by a base utilisation. Times are seconds, rates bytes or FLOP per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from simcore.errors import InputError, Location, Problem, closest
from simcore.library import table

Variant = Literal["readme", "head"]
VARIANTS: tuple[Variant, ...] = ("readme", "head")
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022 ("Chinchilla")
PASSES = 3  # forward, gradient of the input, gradient of the weights
MATRICES = 2
BASE_UTILIZATION: dict[Variant, float] = {"readme": 1.0, "head": 0.6}


@dataclass(frozen=True, slots=True)
class Chip:
    """Peak rates: 8-bit FLOP/s, memory and network in bytes per second (both directions of the network together).

    A pod counts as one with the rates of so many chips.
    """

    flop_per_s: float
    memory_bytes_per_s: float
    network_bytes_per_s: float
    chips: int = 1


CHIPS: dict[str, dict[str, Chip]] = {}
"""Those of either variant, and of the optimiser (`scaling`), by their names."""
for _source, _name, *_rates in table(__file__, "chips.txt"):
    _flop_per_s, _memory, _network = map(float, _rates[:3])
    CHIPS.setdefault(_source, {})[_name] = Chip(_flop_per_s, _memory, _network, *map(int, _rates[3:]))


@dataclass(frozen=True, slots=True)
class Setup:
    """Shape of the model, of a batch and of the machine.

    `experts` is also the degree of expert parallelism; `routed` of them see each token. `microbatch_size` counts
    sequences over all replicas. `tp` splits the internal width (FFN and attention together), `tp2` the residual stream.
    """

    layers: int
    d_model: int
    d_internal_ratio: int = 5
    experts: int = 1
    routed: int = 1
    dataset_tokens: float | None = None
    batch_size: int = 2048
    microbatch_size: int = 1
    seq_len: int = 2048
    precision_bits: float = 8
    pp: int = 1
    interleaving: int = 1
    dp: int = 1
    tp: int = 1
    tp2: int = 1

    @property
    def d_internal(self) -> int:
        """Width of the FFN and the attention."""
        return self.d_internal_ratio * self.d_model

    @property
    def chips(self) -> int:
        """Size of the machine."""
        return self.pp * self.dp * self.tp * self.tp2 * self.experts

    @property
    def parameters_per_expert(self) -> int:
        """Weights of one expert of every layer."""
        return self.layers * MATRICES * self.d_model * self.d_internal

    @property
    def microbatch_tokens(self) -> int:
        """Tokens of a micro-batch over all replicas."""
        return self.microbatch_size * self.seq_len

    @property
    def boundary_interval(self) -> int:
        """Layers a chip runs before the tokens move on."""
        return self.layers // (self.pp * self.interleaving)


def chip(name: str, variant: Variant) -> Chip:
    """A chip of the table as the variant has it; InputError names what there is."""
    if name not in CHIPS[variant]:
        message = f"unknown chip '{name}' in variant {variant}"
        raise InputError.at("--chip_type", message, expected=closest(name, CHIPS[variant]), found=repr(name))
    return CHIPS[variant][name]


def evaluate(setup: Setup, hardware: Chip, variant: Variant, base_utilization: float | None = None) -> SimpleRun:
    """Time of a batch and of the run; InputError lists everything that does not divide."""
    if problems := list(_divisibility(setup)):
        raise InputError(problems)
    utilization = BASE_UTILIZATION[variant] if base_utilization is None else base_utilization
    return SimpleRun(setup, hardware, variant, utilization)


def gradient_bytes(setup: Setup, run: SimpleRun) -> float:
    """Bytes that one replica of the model sends and receives for a batch's gradients; the fabric reduces."""
    return 2 * run.P * setup.precision_bits / 8


class SimpleRun:
    """The answer; public names are those of the source, times are seconds.

    The `pipeline_full_*` figures but the time, the FLOP totals and the crossing fraction are of variant head only.
    """

    def __init__(self, setup: Setup, hardware: Chip, variant: Variant, utilization: float):
        self._setup, self._hardware, self._later = setup, hardware, variant == "head"
        self.N, self.P = (count * setup.parameters_per_expert for count in (setup.routed, setup.experts))
        self.n_batches, batch_tokens = self._batches(), setup.batch_size * setup.seq_len
        self.D, self.p = self.n_batches * batch_tokens, setup.chips
        self.n_microbatches_per_batch = setup.batch_size // setup.microbatch_size
        self.n_pipeline_steps = setup.pp * setup.interleaving
        self.pipe_boundary_intvl = setup.boundary_interval
        self.pipeline_bubble_layers = (setup.pp - 1) * setup.boundary_interval
        self.flop_per_batch = 6 * self.N * batch_tokens
        self._products(utilization)
        self._moves()
        self._full_pipeline(setup.layers // setup.pp * self.n_microbatches_per_batch)
        self.pipeline_bubble_time = self._bubble_s(self.pipeline_bubble_layers)
        self.gradient_reduction_time = self._all_reduce_s(self.P, setup.chips // setup.dp, setup.dp)
        self.batch_time = self.pipeline_bubble_time + self.pipeline_full_time + self.gradient_reduction_time
        peak = setup.chips * hardware.flop_per_s * (8 / setup.precision_bits)
        self.util, self.cluster_flop_per_sec = self.flop_per_batch / (peak * self.batch_time), peak * utilization
        self.run_time_days = self.batch_time * self.n_batches / 86400
        if self._later:
            self.total_flop, self.flop_per_expert = 6 * self.N * self.D, 6 * self.N * self.D / setup.experts

    @property
    def figures(self) -> dict[str, float]:
        """All of them by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def _batches(self) -> int:
        """How many batches the data set is, whole ones."""
        tokens, asked = self._setup.batch_size * self._setup.seq_len, self._setup.dataset_tokens
        batches = int((TOKENS_PER_PARAMETER * self.P if asked is None else asked) // tokens)
        if batches < 1:
            message = "the data set is smaller than a batch"
            raise InputError.at("--dataset_size", message, expected=f"at least {tokens}")
        return batches

    def _products(self, utilization: float) -> None:
        """One micro-batch on one layer of one chip: a roofline; the source counts elements, not bytes, of memory."""
        setup, hardware = self._setup, self._hardware
        self.experts_per_chip, self.matmuls_per_chip_per_layer = 1, MATRICES
        self.tokens_per_matmul = z = setup.microbatch_tokens * setup.routed // (setup.dp * setup.experts)
        self.d_int_per_matmul = x = setup.d_internal // setup.tp
        self.d_per_matmul = y = setup.d_model // setup.tp2
        flop_s = 2 * x * y * z / (utilization * hardware.flop_per_s) * setup.precision_bits / 8
        self.matmul_time = max(flop_s, (x * y + y * z + x * z) / (utilization * hardware.memory_bytes_per_s))
        self._flop_s = PASSES * MATRICES * self.matmul_time

    def _moves(self) -> None:
        """What its tokens' ways take: sums over both tensor axes, and to the next stage."""
        setup = self._setup
        tokens, across = setup.microbatch_tokens, setup.dp * setup.experts
        internal, residual = tokens * setup.d_internal * setup.routed, tokens * setup.d_model
        self._inner_s = 2 * self._all_reduce_s(internal, across * setup.tp, setup.tp2)
        spread = setup.dp * setup.tp2 * setup.experts // setup.routed
        self._outer_s = 2 * self._all_reduce_s(residual, spread, setup.routed * setup.tp)
        self._stage_s = self._transfer_s(residual, across * setup.tp * setup.tp2)
        self._moves_every_layer = setup.routed * setup.tp == 1 and setup.experts > 1

    def _full_pipeline(self, steps: int) -> None:
        """The time in which every stage works: bounded by FLOP, in head by the network too."""
        self.pipeline_full_time = flop_s = steps * self._flop_s
        if not self._later:
            return
        self.stage_crossing_fraction = 1.0 if self._moves_every_layer else 1 / self._setup.boundary_interval
        net_step_s = self._inner_s + self._outer_s + self.stage_crossing_fraction * 2 * self._stage_s
        self.pipeline_full_steps, self.pipeline_full_flop_time = steps, flop_s
        self.pipeline_full_flop_step_time, self.pipeline_full_net_step_time = self._flop_s, net_step_s
        self.pipeline_full_net_time = steps * net_step_s
        self.pipeline_full_time = max(flop_s, self.pipeline_full_net_time)

    def _transfer_s(self, elements: int, chips: int) -> float:
        """Sent and received one after the other."""
        return 2 * (elements / chips * self._setup.precision_bits / 8) / self._hardware.network_bytes_per_s

    def _all_reduce_s(self, elements: int, chips: int, group: int) -> float:
        """The fabric reduces, so the time does not depend on the group's size."""
        return 0.0 if group == 1 else self._transfer_s(elements, chips)

    def _bubble_s(self, layers: int) -> float:
        """Time of the bubble's layers; communication is never hidden there."""
        boundaries, experts = layers // self.pipe_boundary_intvl, self._setup.experts
        at_boundary = self._stage_s * (1 if self._later else 2)
        between = 2 * (experts - 1) / experts * self._stage_s if self._moves_every_layer else 0.0
        crossings = boundaries * at_boundary + (layers - boundaries) * between
        return layers * (self._flop_s + self._inner_s + self._outer_s) + crossings


def indivisible(pairs: Iterable[tuple[str, int, str, int]]) -> Iterator[Problem]:
    """Of what, its size, an axis (the first word is its option) and its degree, those that do not divide."""
    for what, size, axis, degree in pairs:
        if size % degree:
            message, option = f"{what} = {size} does not divide by {axis} = {degree}", axis.split(" ")[0]
            yield Problem(Location(f"--{option}"), message, f"a divisor of {size}", str(degree), field=option)


def _divisibility(setup: Setup) -> Iterator[Problem]:
    """What must divide what."""
    routed_tokens = setup.microbatch_tokens * setup.routed
    pairs = (
        ("n_experts", setup.experts, "n_routed_experts", setup.routed),
        ("batch_size", setup.batch_size, "microbatch_size", setup.microbatch_size),
        ("microbatch_size * seq_len * n_routed_experts", routed_tokens, "dp * n_experts", setup.dp * setup.experts),
        ("n_layers", setup.layers, "pp * pipeline_interleaving", setup.pp * setup.interleaving),
        ("microbatch_size * seq_len", setup.microbatch_tokens, "dp", setup.dp),
        ("internal width", setup.d_internal, "tp", setup.tp),
        ("d_model", setup.d_model, "tp2", setup.tp2),
    )
    yield from indivisible(pairs)
    if setup.pp == 1 and setup.interleaving > 1:
        message, place = "a single pipeline stage cannot be interleaved", Location("--pipeline_interleaving")
        yield Problem(place, message, "1, or more stages with --pp", str(setup.interleaving))
