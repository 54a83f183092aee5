"""Quantities with units: read from text, printed for people. The only place that converts.

Simulated time is integer nanoseconds, sizes are bytes, rates are float bytes per second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*", re.ASCII)
_TIME_NS = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9}
_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_BYTES = {prefix + "B": factor for prefix, factor in (_PREFIX | _BINARY).items()}
_RATES = {
    f"{prefix}{unit}": factor * share
    for prefix, factor in (_PREFIX | _BINARY).items()
    for unit, share in (("B/s", 1.0), ("b/s", 0.125), ("bps", 0.125), ("Bps", 1.0))
}
EXAMPLES = {"a time": "1.5 us", "a size": "64 MiB", "a bandwidth": "400 Gb/s"}


def _parse(value: float | str, units: dict[str, float], bare: float, what: str) -> float:
    """`value` times its unit's factor; a bare number is in the unit whose factor is `bare`."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise TypeError(f"expected {what}, found {value!r}")
    if isinstance(value, Real):
        number, factor = float(value), bare
    else:
        match = _NUMBER.fullmatch(value)
        if not match:
            raise ValueError(f"expected {what}, found {value!r}")
        number, unit = float(match[1]), match[2]
        if unit and unit not in units:
            raise ValueError(f"expected {what}, for example {EXAMPLES[what]!r}, found the unit {unit!r}")
        factor = units[unit] if unit else bare
    if not math.isfinite(number * factor):
        raise ValueError(f"expected {what}, found {value!r}")
    return number * factor


def unit_of_key(key: str) -> str:
    """What a bare number means in an input file, by the last word of its key; empty where it has no unit.

    >>> unit_of_key("link-latency"), unit_of_key("bandwidth"), unit_of_key("npus_count")
    ('ns', 'GB/s', '')
    """
    return {"latency": "ns", "delay": "ns", "bandwidth": "GB/s", "bw": "GB/s"}.get(re.split("[-_]", key)[-1], "")


def parse_ns(value: float | str) -> float:
    """Nanoseconds from a bare number (ns) or a text with a unit.

    >>> parse_ns("1.5 us"), parse_ns(500)
    (1500.0, 500.0)
    """
    return _parse(value, _TIME_NS, 1.0, "a time")


def parse_bytes(value: float | str) -> int:
    """Bytes from a bare number or a text with a unit; must come out whole (twelve digits are trusted).

    >>> parse_bytes("4 MiB"), parse_bytes("1.001 kB"), parse_bytes(7)
    (4194304, 1001, 7)
    """
    size = _parse(value, _BYTES, 1.0, "a size")
    if not math.isclose(size, round(size), rel_tol=1e-12):
        raise ValueError(f"expected a whole number of bytes, found {value!r}")
    return round(size)


def parse_bytes_per_s(value: float | str, *, gigabyte: float = 1e9) -> float:
    """Bytes per second from a bare number (GB/s, one GB being `gigabyte` bytes) or a text with a unit.

    >>> parse_bytes_per_s("400 Gb/s"), parse_bytes_per_s(50.0)
    (50000000000.0, 50000000000.0)
    """
    return _parse(value, _RATES, gigabyte, "a bandwidth")


def parse_spans(text: str) -> list[range]:
    """Ranges of whole numbers; ValueError for anything else.

    >>> parse_spans("0-3,7")
    [range(0, 4), range(7, 8)]
    """
    ends = [part.strip().split("-") for part in text.split(",")]
    if not text.isascii() or not all(len(pair) < 3 and all(map(str.isdecimal, pair)) for pair in ends):
        raise ValueError(f"not ranges of numbers: {text!r}")
    spans = [range(int(pair[0]), int(pair[-1]) + 1) for pair in ends]
    if not all(spans):
        raise ValueError(f"a range ends before it begins: {text!r}")
    return spans


def transfer_ns(size_bytes: int, bytes_per_s: float) -> int:
    """Time a link is occupied by a transfer: whole nanoseconds, rounded up so that no bound is beaten.

    Twelve significant digits are trusted: a quotient a hair above a whole number is that number.

    >>> transfer_ns(1_000_000, 50e9)
    20000
    """
    return whole_ns(size_bytes / bytes_per_s * 1e9)


def whole_ns(time_ns: float, digits: int = 3) -> int:
    """Rounded up to whole nanoseconds, after so many digits of a fraction; as NumPy rounds columns.

    >>> whole_ns(20.0001), whole_ns(20.01)
    (20, 21)
    """
    scale: int = 10**digits
    return math.ceil(round(time_ns * scale) / scale)


TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
ENERGIES = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"))


def largest_unit(value: float, units: tuple[tuple[float, str], ...] = TIMES) -> tuple[float, str]:
    """The largest unit of which `value` has at least one, otherwise the smallest: its factor and name.

    >>> largest_unit(2_500_000), largest_unit(0.5)
    ((1000000.0, 'ms'), (1.0, 'ns'))
    """
    return next((pair for pair in units if abs(value) >= pair[0]), units[-1])


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """`value` in its largest unit, with four significant digits."""
    factor, unit = largest_unit(value, units)
    number = f"{value / factor:.4g}"
    return f"{value / factor:,.0f} {unit}" if "e+" in number else f"{number} {unit}"


def format_ns(time_ns: float) -> str:
    """A time for people.

    >>> format_ns(172673), format_ns(12), format_ns(0)
    ('172.7 us', '12 ns', '0 ns')
    """
    return _scaled(time_ns, TIMES)


def format_bytes(size_bytes: float) -> str:
    """A size for people, decimal units.

    >>> format_bytes(1048576), format_bytes(0)
    ('1.049 MB', '0 B')
    """
    return _scaled(size_bytes, SIZES)


def format_ratio(ratio: float) -> str:
    """How many times as much.

    >>> format_ratio(1.2345), format_ratio(3687.2)
    ('1.23', '3,687')
    """
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def format_joules(energy_j: float) -> str:
    """Energy for people."""
    return _scaled(energy_j, ENERGIES)


def format_rate(bytes_per_s: float) -> str:
    """A bandwidth for people.

    >>> format_rate(50e9)
    '50 GB/s'
    """
    return format_bytes(bytes_per_s) + "/s"


def format_ranks(ranks: Sequence[int]) -> str:
    """Compact ranges of ascending ranks.

    >>> format_ranks([0, 1, 2, 3, 7, 12, 13])
    '0-3,7,12-13'
    >>> format_ranks(range(64))
    '0-63'
    """
    import numpy as np

    if not len(ranks):
        return ""
    if isinstance(ranks, range) and ranks.step == 1:
        return f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])
    column = np.asarray(ranks)
    breaks = np.flatnonzero(np.diff(column) != 1)
    firsts, lasts = column[np.r_[0, breaks + 1]], column[np.r_[breaks, len(column) - 1]]
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))
