"""What a run costs beyond its arithmetic: links between sites, failures and checkpoints, energy, money.

Nothing here has a default that changes a result: every figure is given by the user. Typical ones, with their sources:

- mean time between failures: training Llama 3 405B stopped 419 times in 54 days on 16,384 H100 for unexpected causes
  (Grattafiori et al. 2024, section 3.3.4), which is 50,700 hours per GPU;
- power: 400 W an A100 SXM, 700 W an H100 SXM (NVIDIA's data sheets, GPU alone);
- power usage effectiveness: 1.58 in 2023, 1.55 to 1.59 since 2020 (Uptime Institute Intelligence, update 221).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simcore.errors import InputError

HOUR_S = 3600.0
MOST_FAILURES = 50.0  # expected in one stretch of work; more than e^50 attempts are no run


@dataclass(frozen=True, slots=True)
class Operation:
    """How the run is operated; None = not asked. Power is that of a chip with its share of the host."""

    chips: int
    wide_area_bytes_per_s: float | None = None
    chip_watts: float | None = None
    power_usage_effectiveness: float = 1.0
    price_per_chip_hour: float | None = None
    mean_time_between_failures_s: float | None = None
    checkpoint_s: float = 0.0
    restart_s: float = 0.0


class OperationCost:
    """Cost of a run that computes for `ideal_s` while each cluster moves `bytes_per_cluster` over its wide-area link.

    Traffic and arithmetic overlap perfectly, so the slower of the two bounds the run; failures stretch the result. At
    `break_even_bytes_per_s` a cluster's traffic takes as long as its arithmetic.
    """

    def __init__(self, operation: Operation, ideal_s: float, bytes_per_cluster: float | None = None):
        self.ideal_s = self.wall_clock_s = ideal_s
        self.break_even_bytes_per_s = None if bytes_per_cluster is None else bytes_per_cluster / ideal_s
        self.communication_s: float | None = None
        self.checkpoint_interval_s: float | None = None
        self.expected_failures: float | None = None
        if (link := operation.wide_area_bytes_per_s) is not None:
            if bytes_per_cluster is None:
                raise InputError.at("--wan_bandwidth", "this model does not give the traffic of a cluster")
            self.communication_s = bytes_per_cluster / link
            self.wall_clock_s = max(ideal_s, self.communication_s)
        if (mtbf_s := operation.mean_time_between_failures_s) is not None:
            if (writing_s := operation.checkpoint_s) <= 0:
                raise InputError.at("--checkpoint_seconds", "failures need the time that writing a checkpoint takes")
            mtbf_s /= operation.chips
            self.checkpoint_interval_s = each_s = daly_interval_s(writing_s, mtbf_s)
            self.wall_clock_s = wall_clock_s(self.wall_clock_s, each_s, writing_s, operation.restart_s, mtbf_s)
            self.expected_failures = self.wall_clock_s / mtbf_s
        chip_s = self.wall_clock_s * operation.chips
        self.energy_joules = _scaled(operation.chip_watts, chip_s * operation.power_usage_effectiveness)
        self.money = _scaled(operation.price_per_chip_hour, chip_s / HOUR_S)


def _scaled(rate: float | None, amount: float) -> float | None:
    return None if rate is None else rate * amount


def daly_interval_s(checkpoint_s: float, machine_mtbf_s: float) -> float:
    """Time of useful work between checkpoints that costs least.

    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006).

    >>> round(daly_interval_s(60.0, 11_000.0))
    1109
    """
    if checkpoint_s >= 2 * machine_mtbf_s:
        return machine_mtbf_s
    share = checkpoint_s / (2 * machine_mtbf_s)
    return math.sqrt(2 * checkpoint_s * machine_mtbf_s) * (1 + math.sqrt(share) / 3 + share / 9) - checkpoint_s


def wall_clock_s(
    useful_s: float, interval_s: float, checkpoint_s: float, restart_s: float, machine_mtbf_s: float
) -> float:
    """Expected time of a run whose failures come at random (exponentially) and throw it back to its last checkpoint.

    Source: Daly 2006. InputError when a stretch of work between checkpoints practically never comes to its end.
    """
    exponent = (interval_s + checkpoint_s) / machine_mtbf_s
    if exponent + restart_s / machine_mtbf_s > MOST_FAILURES:
        message = "the machine fails too often to make progress"
        raise InputError.at("--mtbf_hours", message, found=f"{machine_mtbf_s:g} s")
    return machine_mtbf_s * math.exp(restart_s / machine_mtbf_s) * math.expm1(exponent) * useful_s / interval_s
