"""Accelerators as data: what the vendor states, one row each. What programs reach of it is measured (`duration`).

Peak rates are dense (no sparsity), a multiply-add counted as two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.errors import InputError, closest

ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device: peak FLOP/s per data type, memory, and how many cores a kernel's tiles are dealt out to.

    `link_bytes_per_s`: one way, to its peers in the node (NVLink, Infinity Fabric, else PCIe). `power_w`: the limit
    of the board. 0 = not stated.
    """

    name: str
    year: int
    peak_flops_per_s: dict[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    cores: int
    source: str
    link_bytes_per_s: float = 0.0
    power_w: float = 0.0
    maker: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def wide_dtype(self) -> str:
        """What training keeps in 16 bits."""
        return "bf16" if "bf16" in self.peak_flops_per_s else "fp16"

    @property
    def preset(self) -> str:
        """Its name without what a site states otherwise."""
        return self.name.partition("@")[0]

    @property
    def reach(self) -> float:
        """What long runs reach of the stated peak, over what those of devices with measured tables do."""
        return _REACH.get(self.preset, 1.0)

    @property
    def narrow_slowdown(self) -> float:
        """How many times as long products of 8 bits and fewer take in long runs as the board's power says."""
        return _NARROW_SLOWDOWN.get(self.preset, 1.0)

    @property
    def deals_in_waves(self) -> bool:
        """Whether kernels of products deal their tiles out in waves; those for HBM3's generation are persistent."""
        return self.year < 2022 or self.memory_bytes_per_s < 2e12

    def peak(self, dtype: str) -> float:
        """FLOP/s at `dtype`; InputError when the device states none."""
        if dtype not in self.peak_flops_per_s:
            known = closest(dtype, self.peak_flops_per_s)
            raise InputError.at(self.name, f"no peak rate for the data type '{dtype}'", expected=known, found=dtype)
        return self.peak_flops_per_s[dtype]


# Peak rates are TFLOP/s by data type; cores are SMs, CUs or tensor cores, whatever a kernel's tiles are dealt out to.
# "a measured table" = stas00/ml-engineering accelerator tables; WSE figures are secondary and their peak is derived.
_STATED = """\
maker    name           year   GB  TB/s  cores link watt bf16  fp16  tf32  fp32  fp8 int8   fp4 source
NVIDIA   V100-SXM2-16GB 2017   16   0.9     80  150  300    -   125     -  15.7    -    -     - datasheet
NVIDIA   V100-SXM2-32GB 2018   32   0.9     80  150  300    -   125     -  15.7    -    -     - datasheet
NVIDIA   RTX-2080-Ti    2018   11 0.616     68   16  250    -  53.8     -  13.4    -    -     - Turing whitepaper
NVIDIA   A100-SXM-40GB  2020   40 1.555    108  300  400  312   312   156  19.5    -  624     - datasheet
NVIDIA   A100-SXM-80GB  2020   80 2.039    108  300  400  312   312   156  19.5    -  624     - datasheet
NVIDIA   H100-SXM-80GB  2022   80  3.35    132  450  700  989   989 494.5    67 1979 1979     - datasheet
NVIDIA   H800-SXM-80GB  2023   80  3.35    132  200  700  989   989 494.5    67 1979 1979     - H100, slower NVLink
NVIDIA   H20-SXM        2023   96     4     78  450  400  148   148    74    44  296  296     - secondary
NVIDIA   H200-SXM       2023  141   4.8    132  450  700  989   989 494.5    67 1979 1979     - datasheet
NVIDIA   H200-NVL       2024  141   4.8    132  450  600  835   835 417.5    60 1671 1671     - datasheet
NVIDIA   H100-PCIe      2022   80     2    114   64  350  756   756   378    51 1513 1513     - datasheet
NVIDIA   H100-SXM-96GB  2023   96   2.4    132  450  500  989   989 494.5    67 1979 1979     - torchtitan's fleet
NVIDIA   B200-SXM       2024  180     8    148  900 1000 2250  2250  1125    80 4500 4500  9000 DGX B200 datasheet
NVIDIA   B300-SXM       2025  288     8    148  900 1100 2250     -  1125    80 4500    - 12600 a measured table
NVIDIA   GB200          2024  186     8    148  900 1200 2500  2500  1250    80 5000    - 10000 NVL72 datasheet
NVIDIA   GB300          2025  288     8    148  900 1400 2500     -     -    80 5000    - 15000 a measured table
AMD      MI250X         2021  128  3.28    220  250  560  383   383     -  47.9    -    -     - datasheet
AMD      MI300X         2023  192   5.3    304  448  750 1307  1307     - 163.4 2615 2615     - datasheet
AMD      MI325X         2024  256     6    304  448 1000 1300     -     - 163.4 2610    -     - datasheet
AMD      MI350X         2025  288     8    256  538 1000 2300  2300     - 144.2 4600    -  9200 datasheet
AMD      MI355X         2025  288     8    256  538 1400 2500     -     - 157.3 5000    - 10100 datasheet
Google   TPUv3          2018   32   0.9      2    -    -  123     -     -     -    -    -     - Google Cloud
Google   TPUv4          2020   32   1.2      2    -  192  275     -     -     -    -  275     - jax-ml scaling book
Google   TPUv5e         2023   16  0.81      1    -    -  197     -     -     -    -  394     - jax-ml scaling book
Google   TPUv5p         2023   95  2.76      2    -    -  459     -     -     -    -  918     - jax-ml scaling book
Google   TPUv6e         2024   32   1.6      1    -    -  918     -     -     -    - 1836     - jax-ml scaling book
Google   TPU7x          2025  192   7.4      2    -    - 2307     -     -     - 4614    -     - secondary
AWS      Trainium1      2022   32  0.82      2    -    -  190     -   190  47.5  190    -     - Neuron documentation
AWS      Trainium2      2024   96   2.9      8    -  500  667     -     -   181 1299    -     - Neuron documentation
Intel    Gaudi2         2022   96  2.46      2    -  600  432     -     -     -  865    -     - a measured table
Intel    Gaudi3         2024  128   3.7      8    -  900 1677     -     -   229 1677    -     - a measured table
NVIDIA   L40S           2023   48 0.864    142   32  350  362   362   183  91.6  733  733     - datasheet
NVIDIA   RTX-PRO-6000   2025   96 1.792    188   64  600  504   504   252   126 1008 1008  2015 datasheet
NVIDIA   A100-PCIe-40GB 2020   40 1.555    108   32  250  312   312   156  19.5    -  624     - datasheet
NVIDIA   A100-PCIe-80GB 2021   80 1.935    108   32  300  312   312   156  19.5    -  624     - datasheet
NVIDIA   A40            2020   48 0.696     84   56  300  150   150    75  37.4    -  299     - datasheet
NVIDIA   L4             2023   24   0.3     58   32   72  121   121    60  30.3  242  242     - datasheet
NVIDIA   T4             2018   16  0.32     40   16   70    -    65     -   8.1    -  130     - datasheet
NVIDIA   V100-PCIe      2017   16   0.9     80   16  250    -   112     -    14    -    -     - datasheet
NVIDIA   P100           2016   16 0.732     56   16  250    -  18.7     -   9.3    -    -     - datasheet
NVIDIA   P4             2016    8 0.192     20   16   75    -     -     -   5.5    -   22     - datasheet
AMD      MI100          2020   32 1.229    120   92  300   92   185     -  23.1    -  185     - datasheet
AMD      MI210          2021   64 1.638    104  100  300  181   181     -  22.6    -  181     - datasheet
Intel    Arc-B60        2025   24 0.456     20   16  200   98    98    49  12.3    -  197     - product page
Cerebras WSE-2          2021   40 20000 850000    -    -    -  7500     -     -    -    -     - announced; derived
none     wafer-core     2025 0.05   0.1      1    -    -    -     4     -     -    4    -     - ours, no product
none     wafer-node     2025  1.8   3.6     36    -    -    -   144     -     -  144    -     - 36 wafer-cores
Cerebras WSE-3          2024   44 21000 900000    -    -    - 12500     -     -    -    -     - announced; a tenth
"""


def _read(table: str) -> dict[str, Accelerator]:
    """The devices of a table with a heading, by name."""
    heading, *lines = table.splitlines()
    dtypes = heading.split()[8:-1]
    found = {}
    for line in lines:
        stated = line.split(maxsplit=len(dtypes) + 8)
        maker, name, year, gigabytes, terabytes_per_s, cores, link, power, *rates, source = stated
        peaks = {dtype: float(rate) * 1e12 for dtype, rate in zip(dtypes, rates, strict=True) if rate != "-"}
        size, speed = int(float(gigabytes) * 1e9), float(terabytes_per_s) * 1e12
        link_bytes_per_s, power_w = (0.0 if one == "-" else float(one) for one in (link, power))
        found[name] = Accelerator(
            name, int(year), peaks, size, speed, int(cores), source, link_bytes_per_s * 1e9, power_w, maker
        )
    return found


_TABLE = _read(_STATED)

# From steps of MLPerf Training's 70B adapters in 8 bits by five submitters; 16-bit products (stas00/ml-engineering,
# maximum achievable FLOPS) fall in the same order.
_REACH = {"MI300X": 0.62, "MI325X": 0.84, "MI350X": 0.93}
# From steps, too, as no long runs of it are published: each source alone says 1.21 (Megatron-Bridge's tables), 1.24
# (MLPerf's 405B) and 1.27 (its 70B adapters, three submitters); steps in 16 bits, and the same jobs on B200, say 1.
_NARROW_SLOWDOWN = {"GB200": 1.21}
_SHORT = {name.partition("-SXM")[0]: name for name in _TABLE if "-SXM" in name}  # of several the last
_SHORT |= {"A100-80GB": "A100-SXM-80GB", "A100-40GB": "A100-SXM-40GB", "H100": "H100-SXM-80GB"}


def names() -> list[str]:
    """Full names of all presets."""
    return list(_TABLE)


@lru_cache(maxsize=1024)
def accelerator(name: str) -> Accelerator:
    """The preset called `name`, full or short, in any case; InputError names the nearest.

    Behind an @ each, what a site states otherwise: the board's limit (W), its memory rate (TB/s), its clocks over the
    usual ones (x).

    >>> accelerator("a100").name, accelerator("TPUv4").memory_bytes
    ('A100-SXM-80GB', 32000000000)
    >>> accelerator("H100@500W@2.4TB/s").power_w
    500.0
    """
    name, *stated = name.split("@")
    if stated:
        return _stated_otherwise(accelerator(name), stated)
    wanted = name.lower().replace("_", "-")
    found = next((known for known in (*_TABLE, *_SHORT) if known.lower() == wanted), "")
    if found:
        return _TABLE[_SHORT.get(found, found)]
    raise InputError.at(name, "no such accelerator", expected=closest(name, [*_TABLE, *_SHORT]), found=repr(name))


def _stated_otherwise(device: Accelerator, stated: list[str]) -> Accelerator:
    """A device with other figures, which are part of its name."""
    for one in stated:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(W|TB/s|x)", one)
        if not found or not float(found[1]):
            what = f"{device.name}: what is stated is not understood"
            raise InputError.at(f"@{one}", what, expected="@500W, @2.4TB/s or @0.9x", found=one)
        value, unit = float(found[1]), found[2]
        if unit == "W":
            device = replace(device, power_w=value)
        elif unit == "TB/s":
            device = replace(device, memory_bytes_per_s=value * 1e12)
        else:
            device = replace(
                device, peak_flops_per_s={key: rate * value for key, rate in device.peak_flops_per_s.items()}
            )
    return replace(device, name="@".join((device.name, *stated)))


def variant(device: Accelerator, memory_bytes_per_s: float) -> Accelerator:
    """The preset of a device's kind with this memory rate, the device itself where there is none.

    >>> variant(accelerator("H100"), 2.4e12).name
    'H100-SXM-96GB'
    """
    kind = device.name.split("-")[0]
    alike = (one for name, one in _TABLE.items() if name.split("-")[0] == kind)
    return next((one for one in alike if one.memory_bytes_per_s == memory_bytes_per_s), device)


def recognised(device: str) -> Accelerator | None:
    """The preset that a driver's name of a device says, the one that agrees in most words; None without one.

    >>> recognised("NVIDIA A100-SXM4-40GB").name, recognised("Tesla V100-SXM2-16GB").name, recognised("NVIDIA K80")
    ('A100-SXM-40GB', 'V100-SXM2-16GB', None)
    """
    words = set(re.split(r"[\s-]+", device.lower()))
    known = {name: set(name.lower().split("-")) for name in (*_TABLE, *_SHORT)}
    found = [name for name, parts in known.items() if parts <= words]
    return accelerator(max(found, key=lambda name: len(known[name]))) if found else None
