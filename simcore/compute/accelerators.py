"""Accelerators as data: what the vendor states, one row each. What programs reach of it is measured (`duration`).

Peak rates are dense (no sparsity), a multiply-add counted as two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from simcore.errors import InputError, closest
from simcore.library import table

ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device: peak FLOP/s per data type, memory, and how many cores a kernel's tiles are dealt out to.

    `memory_bytes`: what a program may take, of what it finds there; where nobody told that, what is stated.
    `link_bytes_per_s`: one way, to its peers in the node (NVLink, Infinity Fabric, else PCIe). `power_w`: the limit
    of the board. 0 = not stated. `reach`: what long runs reach of the stated peak, over what those of devices with
    measured tables do. `narrow_slowdown`: how many times as long products of 8 bits and fewer take in long runs as the
    board's power says. `chip`: what kernels are compiled for; `host`: a superchip's processor, which launches them.
    `cache_bytes`: of the last level, which all cores share; where memory is as fast it need not be stated.
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
    chip: str = ""
    host: str = ""
    cache_bytes: int = 0
    reach: float = 1.0
    narrow_slowdown: float = 1.0

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
    def deals_in_waves(self) -> bool:
        """Whether kernels of products deal their tiles out in waves; those for HBM3's generation are persistent."""
        return self.year < 2022 or self.memory_bytes_per_s < 2e12

    def peak(self, dtype: str) -> float:
        """FLOP/s at `dtype`; InputError when the device states none."""
        if dtype not in self.peak_flops_per_s:
            known = closest(dtype, self.peak_flops_per_s)
            raise InputError.at(self.name, f"no peak rate for the data type '{dtype}'", expected=known, found=dtype)
        return self.peak_flops_per_s[dtype]


_DTYPES = "bf16", "fp16", "tf32", "fp32", "fp8", "int8", "fp4"


def _stated(maker: str, name: str, processors: str, *cells: str) -> Accelerator:
    chip, _, host = processors.partition("+")
    *numbers, source = cells
    year, gigabytes, found, terabytes_per_s, cache, cores, link, power_w, *rates, reach, narrow = (
        float(one.replace("-", "") or 0) for one in numbers
    )
    peaks = {dtype: rate * 1e12 for dtype, rate in zip(_DTYPES, rates, strict=True) if rate}
    size = int(found * (1 << 30)) - _CONTEXT_BYTES if found else int(gigabytes * 1e9)
    told = int(year), peaks, size, terabytes_per_s * 1e12, int(cores), source, link * 1e9, power_w, maker, chip, host
    return Accelerator(name, *told, int(cache * (1 << 20)), reach or 1.0, narrow or 1.0)


_CONTEXT_BYTES = 500_000_000  # that the driver takes for a program


_TABLE = {row[1]: _stated(*row) for row in table(__file__, "accelerators.txt")}
_FORM = re.compile(r"-?\b(SXM|PCIe|NVL)\d?\b", re.IGNORECASE)  # of a board
_SIZE = re.compile(r"-?\b(\d+) ?G(?:i?B)?\b", re.IGNORECASE)  # of its memory
_PART = re.compile(r"(?<![a-z])(?:GCD|die|tile|half|MIG)s?(?![a-z])|(?:\w\w|\b1)/\d\b", re.IGNORECASE)  # of a board
_AS_STATED = 0.08  # that sizes of one memory differ by: as sold, as found, in 10^9 and 2^30 bytes
_KINDS = {name: _SIZE.sub("", _FORM.sub("", name)) for name in _TABLE}
_ALSO = {kind: others for kind, *others in table(__file__, "spelled.txt")}


def _spelt(kind: str) -> re.Pattern[str]:
    """A kind's name as a word, its letters and numbers together or apart."""
    parts = re.findall(r"[A-Z]+|[a-z]+|\d+", kind)
    return re.compile(rf"(?<![a-z0-9]){r'[ _(-]*'.join(parts)}(?![a-z0-9])", re.IGNORECASE)


_SPELLINGS = [(_spelt(said), kind) for kind in dict.fromkeys(_KINDS.values()) for said in (kind, *_ALSO.get(kind, ()))]


def names() -> list[str]:
    """Full names of all presets."""
    return list(_TABLE)


@lru_cache(maxsize=1024)
def accelerator(name: str) -> Accelerator:
    """The preset that `name` means, in any case and as publications write it; InputError names the nearest.

    Behind an @ each, what a site states otherwise: the board's limit (W), its memory rate (TB/s), its clocks over the
    usual ones (x).

    >>> accelerator("a100").name, accelerator("A40").memory_bytes
    ('A100-SXM-80GB', 48000000000)
    >>> accelerator("H100@500W@2.4TB/s").power_w
    500.0
    """
    name, *stated = name.split("@")
    if stated:
        return _stated_otherwise(accelerator(name), stated)
    found = recognised(name)
    if found and (found.host or not _apart(found, name)):
        return found
    if not found and (part := _PART.search(name)):
        message, whole = "a part of an accelerator is not known by itself", "whole accelerators, and how many these are"
        raise InputError.at(name, message, expected=whole, found=part[0])
    raise InputError.at(
        name, "no such accelerator", expected=closest(name, [*_TABLE, *_KINDS.values()]), found=repr(name)
    )


def _stated_otherwise(device: Accelerator, stated: list[str]) -> Accelerator:
    """A device with other figures, which are part of its name."""
    for one in stated:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(W|TB/s|x)", one)
        if not found or not float(found[1]):
            what = f"{device.name}: what is stated is not understood"
            raise InputError.at(f"@{one}", what, expected="@500W, @2.4TB/s or @0.9x", found=one)
        value, unit = float(found[1]), found[2]
        changes: dict[str, Any] = {"power_w": value} if unit == "W" else {"memory_bytes_per_s": value * 1e12}
        if unit == "x":
            changes = {"peak_flops_per_s": {key: rate * value for key, rate in device.peak_flops_per_s.items()}}
        device = replace(device, **changes)
    return replace(device, name="@".join((device.name, *stated)))


def variant(device: Accelerator, memory_bytes_per_s: float) -> Accelerator:
    """The preset of a device's kind with this memory rate, the device itself where there is none.

    >>> variant(accelerator("H100"), 2.4e12).name
    'H100-SXM-96GB'
    """
    kind = device.name.split("-")[0]
    alike = (one for name, one in _TABLE.items() if name.split("-")[0] == kind)
    return next((one for one in alike if one.memory_bytes_per_s == memory_bytes_per_s), device)


@lru_cache(maxsize=1024)
def recognised(device: str) -> Accelerator | None:
    """The preset that a vendor, a driver or a publication means by a device; None where it names none.

    Of several boards of a kind the one in the form and with the memory that it says, else the usual one; a part of one
    (a tile, a MIG slice) is none unless it stands in the table.

    >>> recognised("NVIDIA A100-SXM4-40GB").name, recognised("H100 SXM5 80GB").name, recognised("NVIDIA K80")
    ('A100-SXM-40GB', 'H100-SXM-80GB', None)
    >>> recognised("TPU v5p-128").name, recognised("AMD Instinct MI300X OAM").name, recognised("A100 PCIe").name
    ('TPUv5p', 'MI300X', 'A100-PCIe-80GB')
    """
    device = device.replace("_", " ")
    said = ((len(found[0]), kind) for spelling, kind in _SPELLINGS if (found := spelling.search(device)))
    kind, forms = max(said, default=(0, ""))[1], _forms(device)
    if (part := _PART.search(device)) and part[0].lower().rstrip("s") not in kind.lower():
        return None
    alike = [one for name, one in _TABLE.items() if _KINDS[name] == kind]

    def fit(one: Accelerator) -> tuple[bool, bool, bool]:
        return bool(forms & _forms(one.name)), not _apart(one, device), "SXM" in one.name

    return max(reversed(alike), key=fit, default=None)  # of boards alike the last


def _forms(name: str) -> set[str]:
    return {found.lower() for found in _FORM.findall(name)}


def _apart(one: Accelerator, name: str) -> float:
    """By what share a device's memory and what a name says of it differ, where that is more than a way of counting.

    Three times as much and more is another memory: "GH200 480GB" has its host's, as "GH200 120GB" has.
    """
    said = _SIZE.search(name)
    share = abs(float(said[1]) * 1e9 / one.memory_bytes - 1) if said else 0.0
    return share if _AS_STATED < share < 2 else 0.0
