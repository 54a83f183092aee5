"""A time from stated rates alone: arithmetic beside memory traffic, after a fixed part, and bytes over a link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.measured.curves import Columns, Floats
from simcore.compute.measured.operations import Operation, Work
from simcore.errors import InputError, closest


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the stated rates, fixed and per-message microseconds, and how sharply the larger of two times wins."""

    arithmetic: float = 0.75
    memory: float = 0.8
    fixed_us: float = 3.0
    sharpness: float = 3.0
    step_us: float = 2.0
    link: float = 0.7


_RATES = {
    "gemm": Rates(),
    "attention": Rates(arithmetic=0.6, memory=0.7, fixed_us=8.0, sharpness=2.0),
    "mla": Rates(arithmetic=0.6, memory=0.7, fixed_us=8.0, sharpness=2.0),
    "moe": Rates(arithmetic=0.6, memory=0.7, fixed_us=20.0, sharpness=2.0),
}

_PLAIN = {"fp8_block": "fp8", "fp8_static": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "w4a8_mxfp4_mxfp8": "fp8"}


def plain_type(dtype: str) -> str:
    """The arithmetic that a type of the tables runs in."""
    return _PLAIN.get(dtype, dtype)


def element_bytes(dtype: str) -> float:
    """Bytes of an operand's element; InputError names the nearest type."""
    plain = plain_type(dtype)
    if plain not in ELEMENT_BYTES:
        known = closest(dtype, [*ELEMENT_BYTES, *_PLAIN])
        raise InputError.at(dtype, "no such data type", expected=known, found=repr(dtype))
    return ELEMENT_BYTES[plain]


@lru_cache(maxsize=1024)
def stated_peak(device: Accelerator, dtype: str) -> float:
    """FLOP/s stated for a type, or for the widest type near it that the device states.

    Of 4 bits no more than twice that of 8: products of B300 and GB300, which state 2.8 and 3 times as much, are 1.05
    and 1.19 times as fast as B200's in 4 bits, and 1.06 and 1.23 times in 8.
    """
    wanted, rates = element_bytes(dtype), device.peak_flops_per_s
    found = rates.get(plain_type(dtype))
    if found is None:
        found = rates[min(rates, key=lambda name: (abs(np.log2(ELEMENT_BYTES[name] / wanted)), -rates[name]))]
    return min(found, 2 * rates["fp8"]) if wanted < ELEMENT_BYTES["fp8"] and "fp8" in rates else found


def log_us(operation: Operation, work: Work, sizes: Columns, device: Accelerator, dtype: str) -> Floats:
    """log(us) of the work of each row of an operation of such sizes."""
    rates, work = _rates(operation), _from_cache(operation, work, device)
    link_bytes_per_s = (device.link_bytes_per_s or _PCIE_BYTES_PER_S) * rates.link
    link_us = work.steps * rates.step_us + work.link_bytes / link_bytes_per_s * 1e6
    if device.deals_in_waves and element_bytes(dtype) <= _MATRIX_BYTES:
        work = replace(work, flops=work.flops * dealt_out(sizes, device) ** _SEEN)
    alone_us = work.alone_bytes / (device.memory_bytes_per_s * rates.memory) * 1e6
    found: Floats = np.log(_kernel_us(work, rates, device, dtype) + link_us + alone_us)
    return found


def _from_cache(operation: Operation, work: Work, device: Accelerator) -> Work:
    """Less traffic for work whose data stay in a cache that is faster than the memory."""
    faster = device.cores * _CORE_BYTES_PER_S / device.memory_bytes_per_s
    if not operation.warm or faster <= 1:
        return work
    fits = np.asarray(work.memory_bytes) <= device.cache_bytes
    return replace(work, memory_bytes=work.memory_bytes / np.where(fits, faster, 1.0))


_CORE_BYTES_PER_S = 14e9  # that a core has of the cache, as tables of L40S and RTX PRO 6000 say; HBM is as fast
_PCIE_BYTES_PER_S = 32e9  # between devices that state no link
_MATRIX_BYTES = 2.0  # of elements that go to matrix units
# Rows and columns of the tiles that libraries choose from, and how long one takes over a large one's, per element.
_TILES = np.array([[256, 128, 128, 128, 64, 64], [128, 256, 128, 64, 128, 64], [1.0, 1.0, 1.1, 1.4, 1.4, 2.0]])
_SEEN = 0.5  # power of the ideal loss that times show, as libraries split over k where waves would be empty


def dealt_out(sizes: Columns, device: Accelerator) -> Floats:
    """How much longer products take because tiles reach over their edges and the last wave leaves cores idle."""
    if not {"m", "n"} <= set(sizes):
        return np.ones(())
    m, n = (np.asarray(sizes[name], float) for name in ("m", "n"))
    many = np.asarray(sizes.get("batch", sizes.get("groups", 1.0)), float)
    rows, columns, longer = _TILES.reshape(3, -1, *(1 for _ in np.broadcast_shapes(m.shape, n.shape, many.shape)))
    waves = np.ceil(many * np.ceil(m / rows) * np.ceil(n / columns) / device.cores)
    found: Floats = (waves * device.cores * (rows * columns * longer)).min(0) / (many * m * n)
    return found


def seconds(operation: Operation, flops: float, memory_bytes: float, device: Accelerator, dtype: str) -> float:
    """Seconds of one kernel of this kind whose work is known."""
    return float(_kernel_us(Work(flops, memory_bytes), _rates(operation), device, dtype)) * 1e-6


def least_log_us(operation: Operation, work: Work, device: Accelerator, dtype: str) -> Floats:
    """log(us) at the full stated rates, of arithmetic or of memory: no kernel is faster, unless from a cache."""
    found: Floats = np.log(_kernel_us(_from_cache(operation, work, device), _IDEAL, device, dtype))
    return found


_IDEAL = Rates(arithmetic=1.0, memory=1.0, fixed_us=1e-3, sharpness=16.0)


def _rates(operation: Operation) -> Rates:
    return _RATES.get(operation.name.partition("_")[0], Rates())


def _kernel_us(work: Work, rates: Rates, device: Accelerator, dtype: str) -> Floats | float:
    arithmetic_us = work.flops / (stated_peak(device, dtype) * device.reach * rates.arithmetic) * 1e6
    memory_us = work.memory_bytes / (device.memory_bytes_per_s * rates.memory) * 1e6
    longer, shorter = np.maximum(arithmetic_us, memory_us), np.minimum(arithmetic_us, memory_us)
    overlap = shorter / np.maximum(longer, _LEAST_US)  # a power of the times themselves would leave what a float holds
    return rates.fixed_us + longer * (1 + overlap**rates.sharpness) ** (1 / rates.sharpness)


_LEAST_US = 1e-300
