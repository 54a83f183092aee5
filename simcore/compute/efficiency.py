"""What programs reach of an accelerator's stated rates: one set of constants per accelerator, in one table.

How they were found: `simcore.cost.calibrate` fits the A100's on the published measurements (docs/validation.md gives
the figures and the cross-validation). The other accelerators take the A100's shape constants; their product fraction
is the best matrix product measured on the device (stas00/ml-engineering, maximum achievable matmul FLOPS), not a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Efficiency", "efficiency"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the stated rates and fixed costs of a kernel.

    `gemm`: best share of peak in a large product; `depth`: inner dimension at which a product reaches half of that
    (start-up of the tile pipeline); `attention`: share of peak in fused attention; `memory`: share of the stated
    memory rate; `kernel_s`: device time of an empty kernel, gap to the next included.
    """

    gemm: float
    depth: float
    attention: float
    memory: float
    kernel_s: float


A100 = Efficiency(gemm=0.842, depth=291.0, attention=0.58, memory=0.92, kernel_s=4.88e-6)

_TABLE: dict[str, Efficiency] = {
    "A100-SXM-40GB": A100,
    "A100-SXM-80GB": A100,
    "V100-SXM2-16GB": replace(A100, gemm=0.80, attention=0.35),
    "V100-SXM2-32GB": replace(A100, gemm=0.80, attention=0.35),
    "H100-SXM-80GB": replace(A100, gemm=0.80, attention=0.50, kernel_s=3.0e-6),
    "H800-SXM-80GB": replace(A100, gemm=0.80, attention=0.50, kernel_s=3.0e-6),
    "H200-SXM": replace(A100, gemm=0.80, attention=0.50, kernel_s=3.0e-6),
    "B200-SXM": replace(A100, gemm=0.776, attention=0.45, kernel_s=3.0e-6),
    "B300-SXM": replace(A100, gemm=0.786, attention=0.45, kernel_s=3.0e-6),
    "GB200": replace(A100, gemm=0.729, attention=0.45, kernel_s=3.0e-6),
    "GB300": replace(A100, gemm=0.73, attention=0.45, kernel_s=3.0e-6),
    "MI300X": replace(A100, gemm=0.511, attention=0.30, kernel_s=6.0e-6),
    "MI325X": replace(A100, gemm=0.604, attention=0.35, kernel_s=6.0e-6),
    "MI355X": replace(A100, gemm=0.626, attention=0.35, kernel_s=6.0e-6),
    "Gaudi2": replace(A100, gemm=0.969, attention=0.50),
    "Gaudi3": replace(A100, gemm=0.741, attention=0.40),
}
_ELSEWHERE = Efficiency(gemm=0.70, depth=160.0, attention=0.40, memory=0.80, kernel_s=4.0e-6)


def efficiency(accelerator: str) -> Efficiency:
    """The constants of an accelerator by its full name; a device nobody measured gets cautious ones."""
    return _TABLE.get(accelerator, _ELSEWHERE)
