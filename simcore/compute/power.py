"""Watts of a board by what it does, and the energy of a step.

Means of the power that boards were measured to take in runs of 0.3 to 1 s of kernels of 50 us and longer, over their
limit (aiconfigurator's sustained tables of H200 and B200, 16 and 8 bits, 98,000 rows; reference in docs/kernels.md).
Clocks fall where a limit binds: those kernels are slower, see `limited`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import fsum, inf, log

import numpy as np

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.kernel import Attention, GroupedProduct, Kernel, MemoryPass, Product
from simcore.compute.measured.curves import Floats
from simcore.compute.measured.parametric import plain_type, stated_peak
from simcore.errors import InputError

# Shares of the board's limit; products by bytes of an element.
_PRODUCTS = {4.0: 0.93, 2.0: 0.93, 1.0: 0.80, 0.5: 0.86}
_SHARES: dict[type, float] = {Attention: 0.76, MemoryPass: 0.72}
WAITING = 0.22  # of a board that has nothing to do between kernels: the least that the runs show


def watts(kernel: Kernel, device: Accelerator, dtype: str) -> float:
    """Watts of a board while this kernel runs; InputError where the device states no limit.

    >>> from simcore.compute.accelerators import accelerator
    >>> round(watts(Product(8192, 8192, 8192), accelerator("H200"), "bf16"))
    651
    """
    if isinstance(kernel, Product | GroupedProduct):
        return limit_w(device) * _PRODUCTS[ELEMENT_BYTES[plain_type(dtype)]]
    return limit_w(device) * _SHARES[type(kernel)]


# Long runs of large 16-bit products over short ones, by the milliseconds of one (H200 and B200 at 95 % of their limits
# and more, medians). Longer kernels meet the limit within a short run, which therefore shows it already.
_LIMITED_MS = np.log([0.02, 0.1, 0.35, 0.75, 2.0, 6.0, 20.0])
_LIMITED = np.array([1.0, 1.16, 1.16, 1.135, 1.07, 1.05, 1.02])
_NARROW = {1.0: 0.06 / 0.13, 0.5: 0.10 / 0.13}  # of 8 and of 4 bits: their excess over that of 16
_FEW_ROWS = 128  # with these and fewer a product waits for memory
# Stated 16-bit FLOP/s per watt of the limit at which boards of a year just keep their clocks: A100's, which no long run
# slows; then what the measured 13 % of H200 and of B200 say, as clocks go with the cube root of power.
_AT_FULL_CLOCKS = ((2020, 0.78e12), (2023, 0.98e12), (2024, 1.56e12))
_MEASURED_EXCESS = 0.13


def limited(kernel: Kernel, seconds: float, device: Accelerator, dtype: str) -> float:
    """How many times as long it takes in a long run at the board's power limit as from cold.

    Attention and passes over memory stay below the limit; grouped products were measured in long runs.
    """
    if not isinstance(kernel, Product) or min(kernel.m, kernel.n, kernel.k) <= _FEW_ROWS:
        return 1.0
    excess = float(np.interp(log(max(seconds * 1e3, 1e-9)), _LIMITED_MS, _LIMITED)) - 1.0
    width = ELEMENT_BYTES[plain_type(dtype)]
    beyond = device.narrow_slowdown if width in _NARROW else 1.0
    return (1.0 + excess * _NARROW.get(width, 1.0) * _bound(device)) * beyond


@lru_cache(maxsize=256)
def _bound(device: Accelerator) -> float:
    """How much a device's limit slows products, over what it does to H200's and B200's; nothing if none is stated."""
    kept = float(np.interp(device.year, *np.array(_AT_FULL_CLOCKS).T))
    asked = stated_peak(device, "bf16") / (device.power_w or inf) / kept
    return float(max(0.0, asked ** (1 / 3) - 1.0)) / _MEASURED_EXCESS


def energy_j(kernels: Iterable[tuple[Kernel, float, str]], step_s: float, device: Accelerator) -> float:
    """Joules of one board in a step of `step_s`: kernels (with their seconds and type), and waiting in between.

    The host, the network and cooling are not in it.
    """
    made = [(watts(kernel, device, dtype), seconds) for kernel, seconds, dtype in kernels]
    busy_s = fsum(seconds for _, seconds in made)
    waiting_j = WAITING * limit_w(device) * max(0.0, step_s - busy_s)
    return fsum([*(power * seconds for power, seconds in made), waiting_j])


def board_w(device: Accelerator, computing: Floats) -> Floats:
    """Watts of a board that computes 16-bit products for such shares of the time, and waits for the rest.

    >>> from simcore.compute.accelerators import accelerator
    >>> board_w(accelerator("H100"), np.array([0.0, 1.0])).round().tolist()
    [154.0, 651.0]
    """
    return limit_w(device) * (WAITING + (_PRODUCTS[2.0] - WAITING) * computing)


def node_w(boards_w: float, limits_w: float) -> float:
    """Watts at the plug of a node whose boards draw `boards_w` together, of `limits_w` that they may.

    The rest of a node is that of NVIDIA's DGX H100 and B200 (data sheets: 10.2 and 14.3 kW at most, eight boards of 700
    and 1,000 W): half of what is left for hosts, network cards and fans, as these too are rarely at their most.
    """
    return (boards_w + _REST * limits_w) / _CONVERTED


_REST = 0.4  # of the boards' limits
_CONVERTED = 0.95  # of the plug's power by the supplies; submitters state 0.94 to 0.96


def limit_w(device: Accelerator) -> float:
    """Watts that a board may draw; InputError where none are stated."""
    if not device.power_w:
        raise InputError.at(device.name, "no power limit is stated", expected="watts of the board", found="none")
    return device.power_w
