"""How far a training run can be spread over devices: the continuous model of training-run-cost's optimiser.

The model follows from the run's arithmetic; all degrees are real numbers. A batch goes through four phases, each bound
by its slowest resource: arithmetic, device memory or network. Source: davidsj/ml_par_sim (run_optimizer2.ipynb),
restated from its semantics. Times are seconds, rates bytes or FLOP per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING

from simcore.cost.closed.simple import TOKENS_PER_PARAMETER, Chip
from simcore.errors import InputError, Location, Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

UTILIZATION = 0.8  # of arithmetic and memory; the network reaches its full rate
HIDDEN_FACTOR = 5
MOST_DEVICES = 15e6
GROWTH = 1.025  # of one degree in a step of the search
AXES = ("pp", "dp", "tp_hidden", "tp_residual")
ROUNDING = 1 + 1e-12
PHASES = ("boundary", "sustained_dp", "sustained_no_dp", "bubble")
RESOURCES = ("flop", "memory", "network")


@dataclass(frozen=True, slots=True)
class Device:
    """Rates of a device (a chip or a pod of them), and whether the network itself sums what it carries."""

    chip: Chip
    network_reduction: bool = True
    utilization: float = UTILIZATION

    @property
    def rates(self) -> tuple[float, float, float]:
        """What is reached of arithmetic, memory and network."""
        reached = self.utilization * self.chip.flop_per_s, self.utilization * self.chip.memory_bytes_per_s
        return *reached, self.chip.network_bytes_per_s

    def summed_words(self, words: float | Array, ranks: float) -> float | Array:
        """Words a device moves in a sum over `ranks`; without reduction on the way, parts come, go and are copied."""
        return (2 if self.network_reduction else 3) * (ranks - 1) * words / ranks


@dataclass(frozen=True, slots=True)
class Model:
    """What a run trains best (Hoffmann et al. 2022): parameters, tokens, tokens of a batch, layers and their width."""

    parameters: float
    tokens: float
    batch_tokens: float
    layers: float
    width: float


@dataclass(frozen=True, slots=True)
class Degrees:
    """Pipeline, data and tensor parallelism (of the hidden width and of the residual stream), and micro-batches."""

    pp: float = 1.0
    dp: float = 1.0
    tp_hidden: float = 1.0
    tp_residual: float = 1.0
    micro_batches: float = 1.0

    @property
    def devices(self) -> float:
        """How many devices work."""
        return self.pp * self.dp * self.tp_hidden * self.tp_residual


@dataclass(frozen=True, slots=True)
class Spread:
    """The answer: seconds of a batch by phase and resource, and the share of the devices' peak that trains."""

    degrees: Degrees
    batch_s: float
    train_s: float
    utilization: float
    phases: dict[str, dict[str, float]]


def model_for(training_flop: float) -> Model:
    """The model that `training_flop` trains best; batch and depth grow with its sixth root. InputError: no layer of it.

    >>> f"{model_for(1e25).parameters:.3e}"
    '2.887e+11'
    """
    parameters, scale = sqrt(training_flop / (6 * TOKENS_PER_PARAMETER)), (training_flop / 1e25) ** (1 / 6)
    layers = 120 * scale
    if layers < 1:
        message, least = f"the model that this trains best has {layers:g} layers", training_flop / layers**6
        raise InputError.at("--training_flop", message, expected=f"at least {least:.3g}", found=f"{training_flop:g}")
    width = sqrt(parameters / (2 * HIDDEN_FACTOR * layers))
    return Model(parameters, TOKENS_PER_PARAMETER * parameters, 2048**2 * scale, layers, width)


def evaluate(model: Model, device: Device, degrees: Degrees, width_bytes: float = 2.0) -> Spread:
    """Times of a batch and of the run; InputError where stages outnumber layers or micro-batches."""
    import numpy as np

    if problems := list(_problems(model, degrees)):
        raise InputError(problems)
    seconds = _phases(model, device, degrees, width_bytes, np.array([degrees.micro_batches]))[..., 0]
    batch_s = float(seconds.max(axis=1).sum())
    ideal_s = 6 * model.parameters * model.batch_tokens * width_bytes / (degrees.devices * device.chip.flop_per_s)
    rows = (dict(zip(RESOURCES, row, strict=True)) for row in seconds.tolist())
    phases = dict(zip(PHASES, rows, strict=True))
    return Spread(degrees, batch_s, model.tokens / model.batch_tokens * batch_s, ideal_s / batch_s, phases)


def _problems(model: Model, degrees: Degrees) -> Iterator[Problem]:
    for name in (*AXES, "micro_batches"):
        if getattr(degrees, name) < 1:
            option = "--n_microbatches" if name == "micro_batches" else f"--{name}"
            yield Problem(Location(option), "a degree below 1", "at least 1", f"{getattr(degrees, name):g}", field=name)
    for limit, what in ((model.layers, "layers"), (degrees.micro_batches, "micro-batches")):
        if degrees.pp > limit:
            message = f"{degrees.pp:g} pipeline stages are more than {limit:g} {what}"
            yield Problem(Location("--pp"), message, f"at most {limit:g}", f"{degrees.pp:g}", field="pp")


def _phases(model: Model, device: Device, degrees: Degrees, width_bytes: float, counts: Array) -> Array:
    """Seconds by phase (rows), resource (columns) and number of micro-batches.

    The sum of gradients hides behind all matrices of a stage but one, and is read from and written to memory, too.
    """
    import numpy as np

    tokens = model.batch_tokens / (counts * degrees.dp)
    hidden, residual = HIDDEN_FACTOR * model.width / degrees.tp_hidden, model.width / degrees.tp_residual
    weights, same = hidden * residual, np.ones_like(counts)
    moved = device.summed_words(hidden * tokens, degrees.tp_residual)
    moved = moved + device.summed_words(residual * tokens, degrees.tp_hidden)
    gradients = device.summed_words(weights, degrees.dp) * same
    scale = (width_bytes / np.array(device.rates))[:, None]
    step = np.stack([6 * weights * tokens, 4 * weights * same, moved * same]) * scale
    summed = np.stack([0 * same, gradients, gradients]) * scale
    matrices = 2 * model.layers / degrees.pp
    sustained = (matrices - 1) * (counts * step + summed)
    return np.stack([step + summed, sustained, (counts - 1) * step, 2 * (degrees.pp - 1) * step])


def search(model: Model, device: Device, most_devices: float = MOST_DEVICES, width_bytes: float = 2.0) -> list[Spread]:
    """From one device on, whichever degree shortens the run most grows by 2.5 %, until there are `most_devices`.

    The number of micro-batches is the best at every step; of equals the first counts.
    """
    found = [evaluate(model, device, _with_best_count(model, device, Degrees(), width_bytes)[1], width_bytes)]
    deepest = min(model.layers, _micro_batches()[-1])
    while (last := found[-1].degrees).devices * GROWTH <= most_devices:
        grown = [replace(last, **{axis: getattr(last, axis) * GROWTH}) for axis in AXES]
        timed = [_with_best_count(model, device, each, width_bytes) for each in grown if each.pp <= deepest]
        _, best = timed[_first_least([batch_s for batch_s, _ in timed])]
        found.append(evaluate(model, device, best, width_bytes))
    return found


def _with_best_count(model: Model, device: Device, degrees: Degrees, width_bytes: float) -> tuple[float, Degrees]:
    """The seconds of a batch with the best number of micro-batches, and the degrees with that number."""
    counts = _micro_batches()
    counts = counts[degrees.pp <= counts]
    seconds = _phases(model, device, degrees, width_bytes, counts).max(axis=1).sum(axis=0).tolist()
    best = _first_least(seconds)
    return seconds[best], replace(degrees, micro_batches=float(counts[best]))


@cache
def _micro_batches() -> Array:
    """Numbers of micro-batches to try, up to 2^22.975."""
    import numpy as np

    return np.asarray(np.exp2(np.arange(920) / 40))


def _first_least(seconds: list[float]) -> int:
    """The first that is as short as the shortest but for rounding."""
    limit = min(seconds) * ROUNDING
    return next(place for place, one in enumerate(seconds) if one <= limit)
