"""How long a collective takes in SimAI-Analytical: bus bandwidths computed from the hardware, or read from a file.

Source: SimAI @f5efb5a9 (1.6) for `Computed`, SimAI @4e66932a (2025-03) for `Measured`. Bandwidths are what SimAI calls
GB/s and computes with as GiB/s, in 32-bit floats.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np

from simcore import library
from simcore.documents import read_text
from simcore.errors import InputError, Location, Problem, Problems, closest
from simcore.options import factor
from simcore.peers import refuse_foreign
from simcore.workload.model import CollectiveKind, Group

GIB, MIB = 1 << 30, 1 << 20
REDUCE, GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
SCATTER, EXCHANGE = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL

# NVLink bandwidth of a GPU: links x GiB/s of one link. NIC bandwidth: GiB/s.
GPUS = {"A100": 12 * 20.0, "A800": 8 * 20.0, "H100": 18 * 20.6, "H800": 8 * 20.6, "H20": 18 * 20.6}
NICS = {"cx6": 23.5, "cx7": 48.5, "bf3": 48.5}
# Rows and columns of `ratios.txt`, efficiencies of collectives.
SIZES = tuple(16 * MIB << step for step in range(11))
SERVERS, MULTI_16 = (1, 2, 4, 8, 16, 32, 64, 128), "multi"  # numbers of servers, and a column of its own
# Any collective of 2 bytes to 1 MiB takes a time that depends on the ranks alone.
SMALL_NS = {2: 10_000, 4: 12_000, 8: 15_000, 16: 66_000, 32: 135_000, 64: 200_000, 128: 320_000}


@dataclass(frozen=True, slots=True)
class Job:
    """Group sizes of a run, and what of a server its groups share."""

    gpus: int
    tp: int
    ep: int
    dp: int
    gpus_per_server: int = 8
    nics_per_server: int = 8
    pp: int = 1
    vpp: int = 1
    gradient_accumulation: int = 1


@dataclass(slots=True)
class Computed:
    """SimAI 1.6: ring formulas over NVLink inside a server and NICs between servers.

    `warnings` collects, once each, where SimAI's own answer would be garbage and the natural one is given.
    """

    job: Job
    nvlink_gib_per_s: float
    nic_gib_per_s: float
    warnings: dict[str, None] = field(default_factory=dict)

    def time_ns(self, kind: CollectiveKind, group: Group, ranks: int, size_bytes: int) -> int:
        """Whole nanoseconds of one collective of `size_bytes` (an all-gather's total) on `ranks` GPUs."""
        if 1 < size_bytes < MIB:
            if ranks not in SMALL_NS and ranks > 1:
                self._warn(f"SimAI has no time for collectives below 1 MiB on {ranks} GPUs and takes 0")
            return SMALL_NS.get(ranks, 0)
        if ranks <= 1 or size_bytes == 0:
            if group is Group.TP and ranks <= 1:
                self._warn("SimAI divides by zero for tensor-parallel collectives at TP = 1; they take no time here")
            return 0
        servers, gpus, nics = self._shape(group, ranks)
        if servers * gpus == 1:
            self._warn(
                f"SimAI divides by a bandwidth of 0 for expert groups of {ranks} beside this TP; they take no time"
            )
            return 0
        bandwidth, nvlink_bound = self._bus(kind, servers, gpus, nics)
        efficiency = self._efficiency(kind, group, ranks, size_bytes, nvlink_bound)
        return _ring_ns(kind, ranks, size_bytes, bandwidth * np.float32(efficiency))

    def _shape(self, group: Group, ranks: int) -> tuple[int, int, float]:
        """Servers of a group, its GPUs in each, NICs each of them can use."""
        tp, ep, in_server = self.job.tp, self.job.ep, self.job.gpus_per_server
        if group is Group.TP:
            inside = tp <= in_server
            return (1, tp, self._nics(1)) if inside else (tp // in_server, in_server, self._nics(1))
        if group is Group.EP:
            if tp * ranks <= in_server:
                return 1, in_server // tp, self._nics(1)
            return tp * ranks // in_server, max(1, in_server // tp), self._nics(min(tp, in_server))
        side = tp if group is Group.DP else tp * ep
        inside = side <= in_server
        return ranks, in_server // side if inside else 1, self._nics(side if inside else in_server)

    def _nics(self, sharing: int) -> float:
        """NICs of a server for one of `sharing` groups; SimAI rounds down and then divides by -1 where none is left."""
        nics = self.job.nics_per_server // sharing
        if nics < 1:
            self._warn(f"{sharing} groups share {self.job.nics_per_server} NICs of a server; SimAI's figure is garbage")
            return self.job.nics_per_server / sharing
        return nics

    def _bus(self, kind: CollectiveKind, servers: int, gpus: int, nics: float) -> tuple[np.float32, bool]:
        """GiB/s of a group and whether NVLink is what bounds it."""
        nvlink, network = np.float32(self.nvlink_gib_per_s), np.float32(self.nic_gib_per_s) * np.float32(nics)
        if servers == 1:
            return nvlink, False
        if kind is EXCHANGE:
            return network / gpus * (servers * gpus - 1) / ((servers - 1) * gpus), False
        if gpus == 1:
            return network, False
        limit = nvlink * gpus / (gpus - 1) if network > nvlink else nvlink
        return min(limit, network), bool(limit < network)

    def _efficiency(self, kind: CollectiveKind, group: Group, ranks: int, size_bytes: int, nvlink_bound: bool) -> float:
        """Share of the bus bandwidth: from the tables where SimAI looks it up, otherwise 1."""
        tp, in_server = self.job.tp, self.job.gpus_per_server
        servers = max(1, tp // in_server)
        if group is Group.TP and kind in (GATHER, SCATTER):
            table, column = "nvlink" if nvlink_bound else "nic", column_of(servers)
        elif group is Group.TP and kind is EXCHANGE:
            table, column = "all_to_all", column_of(servers)
        elif group is Group.EP and kind is EXCHANGE:
            table, column = "all_to_all", column_of(max(1, tp * ranks // in_server))
            if tp >= in_server and tp * ranks > in_server:
                column = MULTI_16
        else:
            return 1.0
        if size_bytes > SIZES[-1]:
            self._warn("SimAI has no efficiency above 16 GiB; that of 16 GiB is taken")
        return efficiency(table, column, size_bytes)

    def _warn(self, text: str) -> None:
        self.warnings[text] = None


@dataclass(frozen=True, slots=True)
class BusBandwidths:
    """The `-busbw` file: GiB/s by group and collective, None where it says null."""

    file: str
    values: Mapping[str, Mapping[str, float | None]]

    def of(self, section: str, key: str) -> float:
        """One figure; InputError where the file has none although it is needed."""
        value = self.values.get(section, {}).get(key)
        if value is None:
            message = f"the workload needs {section} {key}, which the file does not give"
            raise InputError.at(self.file, message, expected=f"a number below '{section}:'", hint=f"{key},: 300")
        return value


@dataclass(slots=True)
class Measured:
    """SimAI of March 2025: bus bandwidths from a file, no efficiency and no fixed times for small messages."""

    job: Job
    bandwidths: BusBandwidths
    warnings: dict[str, None] = field(default_factory=dict)

    def time_ns(self, kind: CollectiveKind, group: Group, ranks: int, size_bytes: int) -> int:
        """Whole nanoseconds of one collective of `size_bytes` (an all-gather's total) on `ranks` GPUs."""
        place = self._place(kind, group)
        if ranks == 0:
            self.warnings["SimAI divides by zero where ep exceeds data parallelism; it takes no time here"] = None
        if ranks <= 1 or size_bytes == 0 or place is None:
            return 0
        return _ring_ns(kind, ranks, size_bytes, np.float32(self.bandwidths.of(*place)))

    def _place(self, kind: CollectiveKind, group: Group) -> tuple[str, str] | None:
        """Section and key that SimAI takes; None = it counts no time."""
        one_server = self.job.tp <= self.job.gpus == self.job.gpus_per_server  # half a server is none
        if group is Group.TP:
            return "TP", {REDUCE: "allreduce", EXCHANGE: "alltoall"}.get(kind, "allgather")
        if group is Group.EP:
            places = {REDUCE: ("TP", "allreduce"), EXCHANGE: ("EP", "alltoall")}
            return places.get(kind) if self.job.tp <= self.job.gpus_per_server else None
        if one_server:
            return ("TP", "allreduce") if kind is REDUCE else None
        return "DP" if group is Group.DP else "EP", "allreduce" if kind is REDUCE else "allgather"


def _ring_ns(kind: CollectiveKind, ranks: int, size_bytes: int, gib_per_s: np.float32) -> int:
    """A ring's time: (n - 1) / n of the size at the bus bandwidth, twice for an all-reduce."""
    passes = 2 if kind is REDUCE else 1
    return math.trunc(size_bytes / GIB / float(gib_per_s) * 1e9 * (ranks - 1) / ranks * passes)


SECTIONS = ("TP", "DP", "EP", "PP")
KEYS = ("allreduce", "allgather", "reducescatter", "alltoall", "busbw")


def read_bus_bandwidths(path: str | Path) -> BusBandwidths:
    """Read a `-busbw` file: a first line that is skipped, then `SECTION:` and `key,: GiB/s | null`; # a comment."""
    values: dict[str, dict[str, float | None]] = {}
    section: dict[str, float | None] | None = None
    text = read_text(path)
    refuse_foreign(text, str(path), ("SimAI's bus bandwidths",))
    with Problems() as problems:
        for number, line in enumerate(text.splitlines()[1:], 2):
            key, _, figure = (part.strip() for part in line.partition("#")[0].partition(":"))
            key = key.removesuffix(",").strip()
            place = Location(str(path), number, len(line) - len(line.lstrip()) + 1)
            owner, known = (section, KEYS) if figure else (values, SECTIONS)
            if key and (wrong := _misplaced(key, owner, known, partial(Problem, place, source=line))):
                problems.add(wrong)
            elif figure and section is not None:
                section[key] = _bandwidth(figure, place, line, problems)
            if key and not figure:
                section = values.setdefault(key, {})
    return BusBandwidths(str(path), values)


def _misplaced(
    key: str, owner: Mapping[str, object] | None, known: Sequence[str], here: Callable[..., Problem]
) -> Problem | None:
    """What is wrong with a word at its place: a section's name, or that of a figure of its `owner`."""
    if key not in known:
        return here(f"unknown {'section' if known is SECTIONS else 'key'} '{key}'", closest(key, known))
    if owner is None:
        hint = "the first line of the file is skipped, whatever it says"
        return here(f"'{key}' stands in no section", "a section above it, for example TP:", hint=hint)
    return here(f"'{key}' stands twice", "one", repr(key)) if key in owner else None


def _bandwidth(text: str, place: Location, line: str, problems: Problems) -> float | None:
    try:
        return None if text == "null" else factor(text)
    except ValueError:
        expected = "a number of GiB/s above 0, or null"
        problems.add(Problem(place, "not a bandwidth", expected, repr(text), source=line))
        return None


@cache
def _tables() -> dict[tuple[str, str], tuple[float, ...]]:
    """(Table, column) -> the shares by size."""
    rows = library.table(__file__, "ratios.txt", 3)
    return {(table, servers): tuple(map(float, shares.split())) for table, servers, shares in rows}


def efficiency(table: str, column: str, size_bytes: float) -> float:
    """Share of the bandwidth reached at 16 GiB, between rows linear in the size; not measured or larger = 1.

    >>> efficiency("nic", "1", 24 * MIB), efficiency("all_to_all", MULTI_16, 1)
    (0.6172839506172839, 0.8958333333333334)
    """
    values = _tables().get((table, column))
    above = bisect_right(SIZES, size_bytes)
    if values is None or above == len(SIZES):
        return 1.0
    if above == 0:
        return values[0] / values[-1]
    share = (size_bytes - SIZES[above - 1]) / (SIZES[above] - SIZES[above - 1])
    return (values[above - 1] + share * (values[above] - values[above - 1])) / values[-1]


def column_of(servers: int) -> str:
    """The column for a number of servers; one that was not measured takes that of 16.

    SimAI asks for the column "Multi 16" by the number 9, so a group of 9 servers gets it, too.
    """
    return MULTI_16 if servers == 9 else str(servers) if servers in SERVERS else "16"
