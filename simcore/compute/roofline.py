"""Time of an operation: the larger of its arithmetic and its memory traffic, plus the fixed cost of a kernel.

Products pay for their shape: output tiles are dealt to the cores in waves, the last of which is partly idle; edge tiles
are padded; a short inner dimension does not fill the pipeline. The library picks the best tile and split, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.efficiency import Efficiency, efficiency
from simcore.compute.operations import Kind, Operation

__all__ = ["duration_ns", "duration_s", "padded_flops"]

# Output tile (rows, columns) and the share of a core's rate its inner loop reaches: smaller tiles re-read more
# operands.
_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.78), (64, 64, 0.60))
_SPLITS = (1, 2, 4, 8)  # of the inner dimension over cores, for small outputs


def duration_s(
    operation: Operation, device: Accelerator, dtype: str = "bf16", table: Efficiency | None = None
) -> float:
    """Seconds of one operation on one device; `table` replaces the shipped constants (calibration)."""
    constants = table or efficiency(device.name)
    memory_rate = device.memory_bytes_per_s * constants.memory
    kind = _wide_type(device, dtype) if operation.wide else dtype
    compute_s = _COMPUTE[operation.kind](operation, device, kind, constants)
    casts_s = _cast_bytes(operation) / memory_rate if ELEMENT_BYTES[kind] < _WIDE_BYTES else 0.0
    return max(compute_s, operation.memory_bytes / memory_rate) + casts_s + operation.kernels * constants.kernel_s


_WIDE_BYTES = 2.0


def _wide_type(device: Accelerator, dtype: str) -> str:
    """The type of what stays in 16 bits when products are narrower."""
    if ELEMENT_BYTES[dtype] >= _WIDE_BYTES:
        return dtype
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def _cast_bytes(operation: Operation) -> float:
    """Traffic of quantising both operands of a product: two bytes read, about one written, per element."""
    if operation.kind != "gemm":
        return 0.0
    return 3.0 * operation.batch * (operation.m * operation.k + operation.k * operation.n)


def duration_ns(operation: Operation, device: Accelerator, dtype: str = "bf16") -> int:
    """`duration_s` in whole nanoseconds, rounded up."""
    return ceil(duration_s(operation, device, dtype) * 1e9)


def _product_share(constants: Efficiency, dtype: str) -> float:
    """Share of peak in a large product of this type."""
    if ELEMENT_BYTES[dtype] >= _WIDE_BYTES:
        return constants.gemm
    return constants.gemm_8bit if ELEMENT_BYTES[dtype] == 1 else constants.gemm_4bit


def _gemm_s(operation: Operation, device: Accelerator, dtype: str, constants: Efficiency) -> float:
    shape = (operation.batch, operation.m, operation.n, operation.k)
    if not operation.flops:
        return 0.0
    share = _product_share(constants, dtype) / _loads(operation, dtype)
    return padded_flops(*shape, device.cores, constants.depth) / (device.peak(dtype) * share)


_LOAD_BYTES = 16  # that matrix units are fed with at once


def _loads(operation: Operation, dtype: str) -> float:
    """How many loads take the place of one: where heads begin off its boundary, one for every element.

    Heads of 108 or 150 elements are such; the batched products then fall back to kernels that read element by element.
    """
    width = ELEMENT_BYTES[dtype]
    return _LOAD_BYTES / width if operation.row * width % _LOAD_BYTES else 1.0


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


def _attention_s(operation: Operation, device: Accelerator, dtype: str, constants: Efficiency) -> float:
    """Fused attention deals blocks of 128 queries of each head and sequence to the cores."""
    waves = operation.batch * ceil(operation.m / 128) / device.cores
    idle = _waves(max(1, round(waves * device.cores)), device.cores) / waves
    return operation.flops * idle / (device.peak(dtype) * constants.attention)


_COMPUTE: dict[Kind, Callable[[Operation, Accelerator, str, Efficiency], float]] = {
    "gemm": _gemm_s,
    "attention": _attention_s,
    "memory": lambda *_: 0.0,
}
