"""How long kernels take on an accelerator: as measured from cold, and what a training loop makes of that, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from operator import attrgetter

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.duration import durations
from simcore.compute.kernel import Attention, Duration, GroupedProduct, MemoryPass, Product, Touch
from simcore.compute.kernel import Kernel as Work
from simcore.compute.measured.tables import remembered
from simcore.compute.power import limited
from simcore.hashed import Hashed
from simcore.model.steps import Kernel, Part, in_phase
from simcore.units import whole_ns
from simcore.workload.model import PhaseName


@dataclass(frozen=True)
class Loop(Hashed):
    """What a training loop makes of kernels whose short runs are measured: factors on their times.

    `products`: of 16 bits and more; `narrow_products`: of 8 and 4 bits, quantising included, and `narrowest_products`
    of 4 on top; `attention`; `passes` over memory, `copies` of them that bring tokens in order; `gap_s`: from the end
    of a kernel to the start of the next. `power_limited`: products are slower in long runs at the board's power limit
    (`simcore.compute.power.limited`). `attention_for`: the year of the newest devices that the attention is written
    for, `attention_behind` how many times as long its authors say it takes as the best of its time.
    """

    __hash__ = Hashed.__hash__

    products: float = 1.0
    narrow_products: float = 1.0
    narrowest_products: float = 1.0
    attention: float = 1.0
    passes: float = 1.0
    copies: float = 1.0
    gap_s: float = 1.5e-6
    power_limited: bool = True
    attention_for: int = 0
    attention_behind: float = 1.0

    def factor(self, work: Work, dtype: str, year: int) -> float:
        """On the time of a kernel on a device of a year; grouped products are measured in training loops as it is."""
        if isinstance(work, Attention):
            older = _OLDER_ATTENTION if 0 < self.attention_for < year else 1.0
            return self.attention * self.attention_behind * older
        if isinstance(work, MemoryPass):
            return self.passes * (self.copies if work.operation is Touch.COPY else 1.0)
        if isinstance(work, GroupedProduct):
            return 1.0
        if ELEMENT_BYTES[dtype] >= _WIDE_BYTES:
            return self.products
        return self.narrow_products * (self.narrowest_products if ELEMENT_BYTES[dtype] < 1 else 1.0)


LOOP = Loop()
COLD = Loop(gap_s=0.0, power_limited=False)  # short runs as they were measured
_WIDE_BYTES = 2.0
# FlashAttention 2, written for A100, on H100 over FlashAttention 3: 1.5 to 2 times as long forward, 1.5 to 1.75 times
# backward (Shah et al. 2024, arXiv 2407.08608, section 4.1), which takes three quarters of the time.
_OLDER_ATTENTION = 0.25 * 1.75 + 0.75 * 1.625


def duration(kernel: Kernel, device: Accelerator, dtype: str, loop: Loop = LOOP) -> Duration:
    """How long a kernel takes and how well that is known."""
    return _duration(kernel.work, kernel.launches, device, computed_in(kernel, device, dtype), loop)


@remembered(1 << 17)
def _duration(work: Work, launches: int, device: Accelerator, dtype: str, loop: Loop) -> Duration:
    found = min(durations([(work, kind) for kind in _kinds(work, dtype)], device), key=attrgetter("seconds"))
    slower = limited(work, found.seconds, device, dtype) if loop.power_limited else 1.0
    factor = slower * loop.factor(work, dtype, device.year)
    return found.lasting(found.seconds * factor + launches * loop.gap_s)


def _kinds(work: Work, dtype: str) -> tuple[str, ...]:
    """The scalings of a type that were measured: training takes the fastest for its shape."""
    return _SCALINGS.get(dtype, (dtype,)) if isinstance(work, Product | GroupedProduct) else (dtype,)


_SCALINGS = {"fp8": ("fp8", "fp8_static", "fp8_block")}


def computed_in(kernel: Kernel, device: Accelerator, dtype: str) -> str:
    """What it is computed in: what is `wide` stays in 16 bits where products are narrower, attention has 8 at least."""
    narrow = ELEMENT_BYTES[dtype] < _WIDE_BYTES
    if narrow and isinstance(kernel.work, Attention) and not kernel.wide and "fp8" in device.peak_flops_per_s:
        return "fp8"
    if not narrow or not kernel.wide:
        return dtype
    return device.wide_dtype


def prepare(kernels: Iterable[Kernel], device: Accelerator, dtype: str) -> None:
    """Look up the times of many kernels together, which is much faster than one by one."""
    computed = ((one.work, computed_in(one, device, dtype)) for one in kernels)
    durations([(work, kind) for work, name in computed for kind in _kinds(work, name)], device)


class KernelTimer(ABC):
    """Adds up the times of kernels that `kernel_s` knows: the `Timer` of all steps that nobody measured."""

    __slots__ = ()

    @abstractmethod
    def kernel_s(self, kernel: Kernel) -> float:
        """Seconds of a kernel."""

    def seconds(self, kernels: Iterable[Kernel]) -> float:
        """Seconds of kernels one after the other."""
        return fsum(map(self.kernel_s, kernels))

    def phase_s(self, kernels: Iterable[Kernel], phase: PhaseName) -> float:
        """Seconds of kernels in a phase."""
        return self.seconds(one for kernel in kernels for one in in_phase(kernel, phase))

    def time_ns(self, part: Part, kernels: Sequence[Kernel], phase: PhaseName) -> int:
        """As `Timer.time_ns`."""
        del part
        return whole_ns(1e9 * self.phase_s(kernels, phase))
