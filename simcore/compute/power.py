"""Watts of a board by what it does, and the energy of a step.

Means of the power that boards were measured to take in runs of 0.3 to 1 s of kernels of 50 us and longer, over their
limit (aiconfigurator's sustained tables of H200 and B200, 16 and 8 bits, 98,000 rows; reference in docs/kernels.md).
Clocks fall where a limit binds: those kernels are slower, see `duration(..., sustained=True)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.kernel import Attention, GroupedProduct, Kernel, MemoryPass, Product
from simcore.compute.measured.parametric import plain_type
from simcore.errors import InputError

__all__ = ["WAITING", "energy_j", "watts"]

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
        return _limit(device) * _PRODUCTS[ELEMENT_BYTES[plain_type(dtype)]]
    return _limit(device) * _SHARES[type(kernel)]


def energy_j(kernels: Iterable[tuple[Kernel, float, str]], step_s: float, device: Accelerator) -> float:
    """Joules of one board in a step of `step_s`: kernels (with their seconds and type), and waiting in between.

    The host, the network and cooling are not in it.
    """
    made = [(watts(kernel, device, dtype), seconds) for kernel, seconds, dtype in kernels]
    busy_s = fsum(seconds for _, seconds in made)
    waiting_j = WAITING * _limit(device) * max(0.0, step_s - busy_s)
    return fsum([*(power * seconds for power, seconds in made), waiting_j])


def _limit(device: Accelerator) -> float:
    if not device.power_w:
        raise InputError.at(device.name, "no power limit is stated", expected="watts of the board", found="none")
    return device.power_w
