"""How long kernels take on an accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, inf

from simcore.compute.accelerators import Accelerator
from simcore.compute.efficiency import Efficiency
from simcore.compute.kernel import Duration, Source
from simcore.compute.roofline import duration_s
from simcore.model.steps import Kernel

__all__ = ["duration", "kernel_s", "seconds"]


def duration(kernel: Kernel, device: Accelerator, dtype: str, constants: Efficiency | None = None) -> Duration:
    """How long a kernel takes and how well that is known."""
    time_s = duration_s(kernel.work, device, dtype, constants, launches=kernel.launches, wide=kernel.wide)
    return Duration(time_s, Source.ROOFLINE, inf, _ROOFLINE_SPREAD)


_ROOFLINE_SPREAD = 0.5  # nothing measured says it


def kernel_s(kernel: Kernel, device: Accelerator, dtype: str, constants: Efficiency | None = None) -> float:
    """Seconds of a kernel."""
    return duration_s(kernel.work, device, dtype, constants, launches=kernel.launches, wide=kernel.wide)


def seconds(kernels: Iterable[Kernel], device: Accelerator, dtype: str, constants: Efficiency | None = None) -> float:
    """Seconds of kernels one after the other."""
    return fsum(kernel_s(kernel, device, dtype, constants) for kernel in kernels)
