"""Two workloads aligned: bytes by collective and group, computation by kind of layer, of a mean rank each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simcore.report.aligned import Comparison, Pair, align, both
from simcore.report.table import Table, columns
from simcore.report.text import PHASE_WORDS
from simcore.units import format_bytes, format_ns, format_ratio
from simcore.workload.contents import Contents
from simcore.workload.model import SEND, PhaseName

Form = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class TrafficPair:
    """Collectives of a kind in a kind of group, in both workloads."""

    collective: str
    group: str
    count: Pair
    size_bytes: Pair


@dataclass(frozen=True, slots=True)
class ComputePair:
    """Computation of a kind of layer in a phase, in both workloads."""

    kind: str
    phase: str
    compute_ns: Pair


@dataclass(frozen=True, slots=True)
class WorkloadComparison(Comparison):
    """Two workloads aligned; all figures are those of a mean rank in one step, rounded."""

    SCHEMA: ClassVar[str] = "simcore.compare_workloads/1"

    names: tuple[str, str]
    num_ranks: Pair
    size_bytes: Pair
    compute_ns: Pair
    traffic: tuple[TrafficPair, ...]
    compute: tuple[ComputePair, ...]

    def headline(self) -> str:
        """What changed, above all."""
        traffic, compute = self.traffic[:1], self.compute[:1]
        sent = [(f"the {row.collective} of {row.group}", row.size_bytes.difference) for row in traffic]
        computed = [
            (f"{PHASE_WORDS[PhaseName(row.phase)]} of {row.kind}" if row.phase else row.kind, row.compute_ns.difference)
            for row in compute
        ]
        said = [
            _said("communicates", self.size_bytes, format_bytes, sent),
            _said("computes", self.compute_ns, format_ns, computed),
        ]
        return f"B {said[0]}, and {said[1]}."

    def about(self) -> str:
        """Which workloads they are."""
        names = "  ".join(f"{side}: {name or 'workload'}" for side, name in zip("AB", self.names, strict=True))
        return f"{names}; figures are those of a mean rank and one step."

    def tables(self) -> Iterator[Table]:
        """Traffic and computation that differ."""
        traffic = [
            (row.collective, row.group, row.count.a, row.count.b, *row.size_bytes.sides)
            for row in self.traffic
            if row.size_bytes.difference or row.count.difference
        ]
        yield Table("", columns("collective", "group", *both("", "count")[:2], *both("bytes", "bytes")), traffic)
        compute = [
            (row.kind, row.phase or "all", *row.compute_ns.sides) for row in self.compute if row.compute_ns.difference
        ]
        yield Table("", columns("layers", "phase", *both("ns", "compute")), compute)


def compare_contents(a: Contents, b: Contents) -> WorkloadComparison:
    """Align two workloads.

    Groups are aligned by their sizes where the names have nothing in common, times without phases where one has none.
    """
    named_a, named_b = ({row.group for row in each.traffic if row.collective != SEND} for each in (a, b))
    if not named_a & named_b:
        a, b = a.by_group_size(), b.by_group_size()
    phased = all(row.phase for row in (*a.compute, *b.compute))
    groups, kinds = (a.by_group(), b.by_group()), (_times(a, phased), _times(b, phased))
    ranks = (a.num_ranks, b.num_ranks)
    sent = align(*groups, (0, 0))
    traffic = (TrafficPair(*key, *(_pair(both, ranks) for both in zip(*sides, strict=True))) for key, *sides in sent)
    compute = (ComputePair(kind, phase, _pair(times, ranks)) for (kind, phase), *times in align(*kinds, 0))
    return WorkloadComparison(
        (a.name, b.name),
        Pair(*ranks),
        _pair([a.total_bytes, b.total_bytes], ranks),
        _pair([a.compute_ns, b.compute_ns], ranks),
        tuple(sorted(traffic, key=lambda row: -abs(row.size_bytes.difference))),
        tuple(sorted(compute, key=lambda row: -abs(row.compute_ns.difference))),
    )


def _pair(figures: Sequence[int], ranks: Sequence[int]) -> Pair:
    return Pair(*(round(figure / count) if count > 1 else figure for figure, count in zip(figures, ranks, strict=True)))


def _times(contents: Contents, phased: bool) -> Mapping[tuple[str, str], int]:
    """Time by kind and, unless a workload has no phases, phase."""
    found = Counter[tuple[str, str]]()
    for row in contents.compute:
        found[row.kind, row.phase if phased else ""] += row.time_ns
    return found


def _said(verb: str, pair: Pair, form: Form, causes: Sequence[tuple[str, int]]) -> str:
    """A total in both workloads and what changed most."""
    cause, change = causes[0] if causes else ("", 0)
    if not change:
        return f"{verb} the same as A, {form(pair.a)}"
    most = f"above all {cause} ({'+' if change > 0 else '-'}{form(abs(change))})"
    if not pair.difference:
        return f"{verb} as much as A in all, {form(pair.a)}, but otherwise: {most}"
    ratio = pair.b / pair.a if pair.a else 0
    shown = format_ratio(ratio)
    times = f", {shown} times as much" if ratio and shown != "1" else ""
    return f"{verb} {form(pair.b)} where A {verb} {form(pair.a)}{times}, {most}"
