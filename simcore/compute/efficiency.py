"""What programs reach of an accelerator's stated rates: one set of constants per accelerator, in one table.

How they were found: `simcore.cost.published.calibrate` fits those of A100, H100, GB200 and GB300 on measured steps
(docs/validation.md gives the figures and the cross-validation). Devices without a measured step take the constants of
the nearest fitted one; their 16-bit `gemm` is the best matrix product measured on the device (stas00/ml-engineering,
maximum achievable matmul FLOPS), not a fit. H100's 16-bit share is low because its rows are runs on up to 16,384
devices: it holds what power limits and stragglers cost there.
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
    `gemm_8bit`, `gemm_4bit`: as `gemm`, over the peaks of those types.
    """

    gemm: float
    depth: float
    attention: float
    memory: float
    kernel_s: float
    gemm_8bit: float = 0.65
    gemm_4bit: float = 0.42


A100 = Efficiency(gemm=0.838, depth=350.0, attention=0.58, memory=0.92, kernel_s=4.2e-6)

H100 = replace(A100, gemm=0.564, gemm_8bit=0.703, attention=0.454, kernel_s=3.0e-6)
GB200 = replace(A100, gemm=0.729, gemm_8bit=0.532, gemm_4bit=0.444, attention=0.45, kernel_s=3.0e-6)
B200 = replace(GB200, gemm=0.443, attention=0.413)
GB300 = replace(A100, gemm=0.729, gemm_8bit=0.697, gemm_4bit=0.456, attention=0.45, kernel_s=3.0e-6)

_TABLE: dict[str, Efficiency] = {
    "V100-SXM2-16GB": replace(A100, gemm=0.80, attention=0.35),
    "V100-SXM2-32GB": replace(A100, gemm=0.80, attention=0.35),
    "A100-SXM-40GB": A100,
    "A100-SXM-80GB": A100,
    "H100-SXM-80GB": H100,
    "H800-SXM-80GB": H100,
    "H20-SXM": replace(H100, gemm=0.80, gemm_8bit=0.80),
    "H200-SXM": H100,
    "B200-SXM": B200,
    "B300-SXM": replace(GB300, gemm=0.786),
    "GB200": GB200,
    "GB300": GB300,
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
