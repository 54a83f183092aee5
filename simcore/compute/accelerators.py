"""Accelerators as data: what the vendor states, one row each. What programs reach of it is in `efficiency`.

Peak rates are dense (no sparsity) multiply-add counted as two; `scale_up` is all links of one device in one direction.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.errors import InputError, closest

__all__ = ["ELEMENT_BYTES", "Accelerator", "accelerator", "names"]

ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device: peak FLOP/s per data type, memory, and how many cores a kernel's tiles are dealt out to."""

    name: str
    year: int
    peak_flops_per_s: dict[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    cores: int
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    source: str

    def peak(self, dtype: str) -> float:
        """FLOP/s at `dtype`; InputError when the device states none."""
        if dtype not in self.peak_flops_per_s:
            known = closest(dtype, self.peak_flops_per_s)
            raise InputError.at(self.name, f"no peak rate for the data type '{dtype}'", expected=known, found=dtype)
        return self.peak_flops_per_s[dtype]


# Name, year, TFLOP/s, memory GB, memory TB/s, cores (SMs, CUs, tensor cores), scale-up GB/s, scale-out GB/s, source.
# "a measured table" = stas00/ml-engineering accelerator tables; WSE figures are secondary and their peak is derived.
_ROWS: tuple[tuple[str, int, dict[str, float], float, float, int, float, float, str], ...] = (
    ("V100-SXM2-16GB", 2017, {"fp16": 125, "fp32": 15.7}, 16, 0.9, 80, 150, 6.25, "NVIDIA V100 datasheet"),
    ("V100-SXM2-32GB", 2018, {"fp16": 125, "fp32": 15.7}, 32, 0.9, 80, 150, 12.5, "NVIDIA V100 datasheet"),
    (
        "A100-SXM-40GB",
        2020,
        {"bf16": 312, "fp16": 312, "tf32": 156, "fp32": 19.5, "int8": 624},
        *(40, 1.555, 108, 300, 25, "NVIDIA A100 datasheet"),
    ),
    (
        "A100-SXM-80GB",
        2020,
        {"bf16": 312, "fp16": 312, "tf32": 156, "fp32": 19.5, "int8": 624},
        *(80, 2.039, 108, 300, 25, "NVIDIA A100 datasheet"),
    ),
    (
        "H100-SXM-80GB",
        2022,
        {"bf16": 989, "fp16": 989, "tf32": 494.5, "fp8": 1979, "int8": 1979, "fp32": 67},
        *(80, 3.35, 132, 450, 50, "NVIDIA H100 datasheet"),
    ),
    (
        "H800-SXM-80GB",
        2023,
        {"bf16": 989, "fp16": 989, "tf32": 494.5, "fp8": 1979, "int8": 1979, "fp32": 67},
        *(80, 3.35, 132, 200, 50, "as H100 with 400 GB/s NVLink (both directions)"),
    ),
    (
        "H20-SXM",
        2023,
        {"bf16": 148, "fp16": 148, "tf32": 74, "fp8": 296, "int8": 296, "fp32": 44},
        *(96, 4.0, 78, 450, 50, "secondary"),
    ),
    (
        "H200-SXM",
        2023,
        {"bf16": 989, "fp16": 989, "tf32": 494.5, "fp8": 1979, "int8": 1979, "fp32": 67},
        *(141, 4.8, 132, 450, 50, "NVIDIA H200 datasheet"),
    ),
    (
        "B200-SXM",
        2024,
        {"bf16": 2250, "fp16": 2250, "tf32": 1125, "fp8": 4500, "int8": 4500, "fp4": 9000, "fp32": 80},
        *(180, 8.0, 148, 900, 50, "NVIDIA DGX B200 datasheet"),
    ),
    (
        "B300-SXM",
        2025,
        {"bf16": 2250, "tf32": 1125, "fp8": 4500, "fp4": 12600, "fp32": 80},
        *(288, 8.0, 148, 900, 100, "a measured table"),
    ),
    (
        "GB200",
        2024,
        {"bf16": 2500, "fp16": 2500, "tf32": 1250, "fp8": 5000, "fp4": 10000, "fp32": 80},
        *(186, 8.0, 148, 900, 50, "NVIDIA GB200 NVL72 datasheet"),
    ),
    (
        "GB300",
        2025,
        {"bf16": 2500, "fp8": 5000, "fp4": 15000, "fp32": 80},
        *(288, 8.0, 148, 900, 100, "a measured table"),
    ),
    (
        "MI250X",
        2021,
        {"bf16": 383, "fp16": 383, "fp32": 47.9},
        *(128, 3.28, 220, 350, 25, "AMD MI250X datasheet"),
    ),
    (
        "MI300X",
        2023,
        {"bf16": 1307, "fp16": 1307, "fp8": 2615, "int8": 2615, "fp32": 163.4},
        *(192, 5.3, 304, 448, 50, "AMD MI300X datasheet"),
    ),
    ("MI325X", 2024, {"bf16": 1300, "fp8": 2610, "fp32": 163.4}, 256, 6.0, 304, 448, 50, "AMD MI325X datasheet"),
    (
        "MI355X",
        2025,
        {"bf16": 2500, "fp8": 5000, "fp4": 10100, "fp32": 157.3},
        *(288, 8.0, 256, 535.5, 50, "AMD MI355X datasheet"),
    ),
    ("TPUv3", 2018, {"bf16": 123}, 32, 0.9, 2, 400, 6.25, "Google Cloud; Patterson et al. 2021"),
    ("TPUv4", 2020, {"bf16": 275, "int8": 275}, 32, 1.2, 2, 270, 6.25, "Google Cloud; jax-ml scaling book"),
    ("TPUv5e", 2023, {"bf16": 197, "int8": 394}, 16, 0.81, 1, 180, 6.25, "Google Cloud; jax-ml scaling book"),
    ("TPUv5p", 2023, {"bf16": 459, "int8": 918}, 95, 2.76, 2, 540, 6.25, "Google Cloud; jax-ml scaling book"),
    ("TPUv6e", 2024, {"bf16": 918, "int8": 1836}, 32, 1.6, 1, 360, 12.5, "Google Cloud; jax-ml scaling book"),
    ("TPU7x", 2025, {"bf16": 2307, "fp8": 4614}, 192, 7.4, 2, 600, 12.5, "secondary"),
    (
        "Trainium1",
        2022,
        {"bf16": 190, "fp8": 190, "tf32": 190, "fp32": 47.5},
        *(32, 0.82, 2, 384, 6.25, "AWS Neuron documentation"),
    ),
    ("Trainium2", 2024, {"bf16": 667, "fp8": 1299, "fp32": 181}, 96, 2.9, 8, 512, 25, "AWS Neuron documentation"),
    ("Gaudi2", 2022, {"bf16": 432, "fp8": 865}, 96, 2.46, 2, 300, 37.5, "a measured table"),
    ("Gaudi3", 2024, {"bf16": 1677, "fp8": 1677, "fp32": 229}, 128, 3.7, 8, 600, 75, "a measured table"),
    ("WSE-2", 2021, {"fp16": 7500}, 40, 20000, 850_000, 27500, 150, "vendor announcement; peak derived"),
    ("wafer-core", 2025, {"fp16": 4, "fp8": 4}, 0.05, 0.1, 1, 100, 100, "round figures of ours, no product"),
    ("wafer-node", 2025, {"fp16": 144, "fp8": 144}, 1.8, 3.6, 36, 100, 100, "36 wafer-cores"),
    ("WSE-3", 2024, {"fp16": 12500}, 44, 21000, 900_000, 26750, 150, "vendor announcement; headline / 10 as dense"),
)

_TABLE = {
    row[0]: Accelerator(
        name=row[0],
        year=row[1],
        peak_flops_per_s={dtype: tera * 1e12 for dtype, tera in row[2].items()},
        memory_bytes=int(row[3] * 1e9),
        memory_bytes_per_s=row[4] * 1e12,
        cores=row[5],
        scale_up_bytes_per_s=row[6] * 1e9,
        scale_out_bytes_per_s=row[7] * 1e9,
        source=row[8],
    )
    for row in _ROWS
}
_SHORT = {
    "V100": "V100-SXM2-32GB",
    "A100": "A100-SXM-80GB",
    "A100-80GB": "A100-SXM-80GB",
    "A100-40GB": "A100-SXM-40GB",
    "H100": "H100-SXM-80GB",
    "H800": "H800-SXM-80GB",
    "H20": "H20-SXM",
    "H200": "H200-SXM",
    "B200": "B200-SXM",
    "B300": "B300-SXM",
}


def names() -> list[str]:
    """Full names of all presets."""
    return list(_TABLE)


def accelerator(name: str) -> Accelerator:
    """The preset called `name`, full or short, in any case; InputError names the nearest.

    >>> accelerator("a100").name, accelerator("TPUv4").memory_bytes
    ('A100-SXM-80GB', 32000000000)
    """
    wanted = name.lower().replace("_", "-")
    for full, short in ((full, full) for full in _TABLE):
        if short.lower() == wanted:
            return _TABLE[full]
    for short, full in _SHORT.items():
        if short.lower() == wanted:
            return _TABLE[full]
    raise InputError.at(name, "no such accelerator", expected=closest(name, [*_TABLE, *_SHORT]), found=repr(name))
