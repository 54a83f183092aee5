"""Time of an operation: the larger of its arithmetic and its memory traffic, plus the fixed cost of a kernel.

Products pay for their shape: output tiles are dealt to the cores in waves, the last of which is partly idle; edge tiles
are padded; a short inner dimension does not fill the pipeline. The library picks the best tile and split, and so do we.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.efficiency import Efficiency, efficiency
from simcore.compute.kernel import Attention, Gradient, GroupedProduct, Kernel, Product

__all__ = ["duration_s", "padded_flops"]

# Output tile (rows, columns) and the share of a core's rate its inner loop reaches: smaller tiles re-read more
# operands.
_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.78), (64, 64, 0.60))
_SPLITS = (1, 2, 4, 8)  # of the inner dimension over cores, for small outputs


def duration_s(
    work: Kernel,
    device: Accelerator,
    dtype: str = "bf16",
    table: Efficiency | None = None,
    *,
    launches: int = 1,
    wide: bool = False,
) -> float:
    """Seconds of some work on one device in so many launches; `table` replaces the shipped constants (calibration).

    `wide`: it stays in 16 bits where products run in 8 or 4; so does attention.
    """
    constants = table or efficiency(device.name)
    memory_rate = device.memory_bytes_per_s * constants.memory
    kind = _wide_type(device, dtype) if wide else dtype
    stored = max(_WIDE_BYTES, ELEMENT_BYTES[dtype])
    compute_s = casts_s = 0.0
    if isinstance(work, Product | GroupedProduct):
        summed = work.gradient is Gradient.WEIGHT
        moved = work.moved_bytes(stored, _SUMMED_BYTES if summed else stored)
        batch, m, n, k = _sizes(work)
        compute_s = _product_s(work, (batch, m, n, k), device, kind, constants)
        casts_s = _CAST_BYTES * batch * k * (m + n) / memory_rate if ELEMENT_BYTES[kind] < _WIDE_BYTES else 0.0
    else:
        moved = work.moved_bytes(stored)
        if isinstance(work, Attention):
            compute_s = _attention_s(work, device, _wide_type(device, dtype), constants)
    return max(compute_s, moved / memory_rate) + casts_s + launches * constants.kernel_s


_CAST_BYTES = 3.0  # per element of both operands of a product that is quantised: two read, about one written
_SUMMED_BYTES = 8.0  # per element of a weight's gradient, read and written in 32 bits
_WIDE_BYTES = 2.0


def _wide_type(device: Accelerator, dtype: str) -> str:
    """The type of what stays in 16 bits when products are narrower."""
    if ELEMENT_BYTES[dtype] >= _WIDE_BYTES:
        return dtype
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def _product_share(constants: Efficiency, dtype: str) -> float:
    """Share of peak in a large product of this type."""
    if ELEMENT_BYTES[dtype] >= _WIDE_BYTES:
        return constants.gemm
    return constants.gemm_8bit if ELEMENT_BYTES[dtype] == 1 else constants.gemm_4bit


def _sizes(work: Product | GroupedProduct) -> tuple[int, int, int, int]:
    """Products beside each other, and the sizes of one."""
    if isinstance(work, Product):
        return work.batch, work.m, work.n, work.k
    rows = max(1, work.tokens // work.experts)
    if work.gradient is Gradient.WEIGHT:
        return work.experts, work.n, work.k, rows
    return work.experts, rows, work.n, work.k


def _product_s(
    work: Product | GroupedProduct,
    sizes: tuple[int, int, int, int],
    device: Accelerator,
    dtype: str,
    constants: Efficiency,
) -> float:
    if not work.flops:
        return 0.0
    share = _product_share(constants, dtype)
    if isinstance(work, Product):
        share /= _loads(work.row, dtype)
    return padded_flops(*sizes, device.cores, constants.depth) / (device.peak(dtype) * share)


_LOAD_BYTES = 16  # that matrix units are fed with at once


def _loads(row: int, dtype: str) -> float:
    """How many loads take the place of one: where heads begin off its boundary, one for every element.

    Heads of 108 or 150 elements are such; the batched products then fall back to kernels that read element by element.
    """
    width = ELEMENT_BYTES[dtype]
    return _LOAD_BYTES / width if row * width % _LOAD_BYTES else 1.0


@lru_cache(maxsize=65536)
def padded_flops(batch: int, m: int, n: int, k: int, cores: int, depth: float) -> float:
    """FLOPs a product keeps the device busy for: idle cores, padding and start-up counted; the least over tiles."""
    return min(
        _waves(batch * split * ceil(m / rows) * ceil(n / columns), cores)
        * (cores * 2.0 * rows * columns * (k / split + depth))
        / share
        for rows, columns, share in _TILES
        for split in _SPLITS
    )


def _waves(tiles: int, cores: int) -> float:
    """Rounds of tiles over the cores; beyond four rounds the tail overlaps the next kernel's start and is averaged."""
    return float(ceil(tiles / cores)) if tiles <= 4 * cores else tiles / cores + 0.5


def _attention_s(work: Attention, device: Accelerator, dtype: str, constants: Efficiency) -> float:
    """Fused attention deals blocks of 128 queries of each head and sequence to the cores."""
    waves = work.batch * work.heads * ceil(work.queries / 128) / device.cores
    idle = _waves(max(1, round(waves * device.cores)), device.cores) / waves
    return work.flops * idle / (device.peak(dtype) * constants.attention)
