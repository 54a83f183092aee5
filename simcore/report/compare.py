"""Two reports aligned: where the time went, per share, layer, collective and dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from simcore.report.aligned import Comparison, Pair, align, both
from simcore.report.document import Option, PhaseRow, ReportDocument
from simcore.report.table import Table, columns, signed
from simcore.report.tables import per_iteration, phases, sum_of_phases
from simcore.report.text import PHASE_WORDS
from simcore.units import format_bytes, format_ns, format_ratio
from simcore.workload.model import PhaseName


@dataclass(frozen=True, slots=True)
class LayerPair:
    """A phase of a layer in both reports; layers are aligned by name, equal names in order.

    `only` is 'a' or 'b' where the other report has no such layer, '' where both have it.
    """

    name: str
    phase: PhaseName
    only: str
    collective: str
    compute_ns: Pair
    comm_ns: Pair
    exposed_ns: Pair
    size_bytes: Pair

    @property
    def change(self) -> int:
        """How much its times differ, in ns."""
        compute, exposed = abs(self.compute_ns.difference), abs(self.exposed_ns.difference)
        return max(compute + exposed, abs(self.comm_ns.difference))


@dataclass(frozen=True, slots=True)
class CollectivePair:
    """All collectives of a kind in both reports."""

    collective: str
    comm_ns: Pair
    exposed_ns: Pair
    size_bytes: Pair


@dataclass(frozen=True, slots=True)
class DimensionPair:
    """A dimension in both reports, aligned by index; its kind and size, with an arrow where they differ."""

    name: str
    size_bytes: Pair
    busy_ns: Pair


@dataclass(frozen=True, slots=True)
class ReportComparison(Comparison):
    """Two reports aligned.

    Times and traffic are those of a mean iteration. `settings` says what differs in the question: (what, in A, in B).
    """

    SCHEMA: ClassVar[str] = "simcore.compare/1"

    num_iterations: Pair
    settings: tuple[tuple[str, str, str], ...]
    time_ns: Pair
    compute_ns: Pair
    exposed_comm_ns: Pair
    idle_ns: Pair
    layers: tuple[LayerPair, ...]
    collectives: tuple[CollectivePair, ...]
    dims: tuple[DimensionPair, ...]

    def headline(self) -> str:
        """What changed and why."""
        time = self.time_ns
        if not time.difference:
            rows = [pair.difference for layer in self.layers for pair in (layer.compute_ns, layer.comm_ns)]
            changed = any(rows) or any(pair.difference for pair in self._shares().values())
            why = "what changed inside cancels out" if changed else "nothing that is measured changed"
            return f"Both take {format_ns(time.a)} per iteration; {why}."
        faster = time.difference < 0
        shorter, longer = sorted((time.a, time.b))
        factor = longer / shorter if shorter else inf  # of what takes no time, none is told
        verdict = f", {format_ratio(factor)} times as {'fast' if faster else 'slow'} as A" * bool(shorter)
        if factor < 1.1:
            verdict = f", {100 * abs(time.difference) / time.a:.2g}% {'less' if faster else 'more'}"
        times = f"B takes {format_ns(time.b)} per iteration where A takes {format_ns(time.a)}"
        return f"{times}{verdict}: {self._cause()}."

    def _shares(self) -> dict[str, Pair]:
        return {"compute": self.compute_ns, "exposed communication": self.exposed_comm_ns, "idle time": self.idle_ns}

    def _cause(self) -> str:
        """The share of time that changed most in the direction of the whole, and the layer behind it."""
        whole = self.time_ns.difference
        shares = {name: pair.difference for name, pair in self._shares().items()}
        name, change = max(shares.items(), key=lambda share: share[1] * (1 if whole > 0 else -1))
        said = f"{name} {'grew' if change > 0 else 'fell'} by {format_ns(abs(change))}"
        if abs(change) < abs(whole):
            said += f" ({change / whole:.0%} of the difference)"
        layer = self._layer_behind(name, change)
        return f"{said}, above all {layer}" if layer else said

    def _layer_behind(self, share: str, change: int) -> str:
        """The phase of a layer that contributes most to the change of a share."""
        if share == "idle time" or not self.layers:
            return ""
        sign, computing = (1 if change > 0 else -1), share == "compute"
        layer = max(self.layers, key=lambda each: sign * (each.compute_ns if computing else each.exposed_ns).difference)
        by = (layer.compute_ns if computing else layer.exposed_ns).difference
        if sign * by <= 0:
            return ""
        what = f"{PHASE_WORDS[layer.phase]} of {layer.name}"
        if computing:
            return f"in the {what} ({signed(by, 'ns')})"
        return f"the {layer.collective} after the {what} ({signed(by, 'ns')}; {_why(layer)})"

    def about(self) -> str:
        """What differs in the question."""
        return said(self.settings)

    def tables(self) -> Iterator[Table]:
        """Shares of the time, phases of layers that changed, collectives, dimensions."""
        shares = {"time": self.time_ns, **self._shares()}
        rows: list[tuple[object, ...]] = [(name, *pair.sides) for name, pair in shares.items()]
        yield Table("", columns(("share", "rank 0, per iteration", ""), *both("ns")), rows)
        changed = sorted((layer for layer in self.layers if layer.change), key=lambda layer: -layer.change)
        rows = [
            (
                layer.name + f" (only {layer.only.upper()})" * bool(layer.only),
                layer.phase.value,
                *(pair.difference for pair in (layer.compute_ns, layer.comm_ns, layer.exposed_ns)),
                layer.collective,
            )
            for layer in changed
        ]
        figures = [(name, name, "+ns") for name in ("compute", "comm", "exposed")]
        shown = columns(("layer", "layer, B - A"), "phase", *figures, "collective")
        yield Table("", shown, rows, noun="changed phases")
        rows = [
            (one.collective, *one.comm_ns.sides, one.exposed_ns.difference, one.size_bytes.a, one.size_bytes.b)
            for one in self.collectives
        ]
        size, exposed = both("bytes", "size")[:2], ("exposed", "exposed B - A", "+ns")
        yield Table("", columns("collective", *both("ns", "time"), exposed, *size), rows)
        rows = [(dim.name, dim.size_bytes.a, dim.size_bytes.b, *dim.busy_ns.sides) for dim in self.dims]
        yield Table("", columns("dimension", *both("bytes", "sent")[:2], *both("ns", "busy")), rows)


def compare(a: ReportDocument, b: ReportDocument) -> ReportComparison:
    """Align two reports."""
    settings, iterations = tuple(differing(a, b)), Pair(len(a["iterations"]), len(b["iterations"]))
    a, b = per_iteration(a), per_iteration(b)
    shares_a, shares_b = a["breakdown"], b["breakdown"]
    exposed, idle = (_pair(shares_a, shares_b, key) for key in ("exposed_comm_ns", "idle_ns"))
    computing = Pair(*(shares["compute_ns"] + shares["overlapped_ns"] for shares in (shares_a, shares_b)))
    layered = a["layers"] and b["layers"]  # traces name none
    layers, kinds = (tuple(_layers(a, b)), tuple(_collectives(a, b))) if layered else ((), ())
    whole = _pair(a, b, "time_ns"), computing, exposed, idle
    return ReportComparison(iterations, settings, *whole, layers, kinds, tuple(_dims(a, b)))


def _pair(a: Mapping[str, Any], b: Mapping[str, Any], key: str) -> Pair:
    return Pair(a[key], b[key])


def differing(a: ReportDocument, b: ReportDocument) -> Iterable[tuple[str, str, str]]:
    """What differs between the two questions."""
    plain_a, plain_b = ({key: str(value) for key, value in report.items()} for report in (a, b))
    for key in ("version", "profile", "network", "npus"):
        if plain_a[key] != plain_b[key]:
            yield key, plain_a[key], plain_b[key]
    if len(a["iterations"]) != len(b["iterations"]):
        yield "iterations", str(len(a["iterations"])), str(len(b["iterations"]))
    options_a, options_b = (report.get("options", {}) for report in (a, b))
    for key, given_a, given_b in sorted(align(options_a, options_b, None)):
        if given_a != given_b:
            yield key, _given(given_a), _given(given_b)
    files_a, files_b = ({entry["role"]: entry for entry in report["inputs"]} for report in (a, b))
    for role, file_a, file_b in align(files_a, files_b, None):
        if (file_a and file_a["sha256"]) != (file_b and file_b["sha256"]):
            yield role, file_a["path"] if file_a else "none", file_b["path"] if file_b else "none"


def said(settings: Sequence[tuple[str, str, str]]) -> str:
    """What differs, in a sentence."""
    if not settings:
        return "Both have the same inputs and settings."
    return "They differ in " + "; ".join(f"{what} ({a} -> {b})" for what, a, b in settings) + "."


def _given(value: Option | None) -> str:
    if value is None:
        return "none"
    return " ".join(value) if isinstance(value, list) else str(value)


def _by_key(report: ReportDocument) -> dict[tuple[str, int, PhaseName], PhaseRow]:
    """Phases by layer name, how often the name came before, and phase."""
    seen: Counter[str] = Counter()
    rows: dict[tuple[str, int, PhaseName], PhaseRow] = {}
    for layer in report["layers"]:
        name = layer["name"]
        rows |= {(name, seen[name], phase): row for phase, row in phases(layer)}
        seen[name] += 1
    return rows


def _layers(a: ReportDocument, b: ReportDocument) -> Iterable[LayerPair]:
    rows_a, rows_b = _by_key(a), _by_key(b)
    for key, row_a, row_b in align(rows_a, rows_b, sum_of_phases(())):
        only = "b" if key not in rows_a else "a" if key not in rows_b else ""
        kinds = [row["collective"] or "" for row in (row_a, row_b)]  # with an arrow where it changed
        kind = "".join(kinds) if only or not any(kinds) else _arrow(*(each or "none" for each in kinds))
        figures = (_pair(row_a, row_b, figure) for figure in ("compute_ns", "comm_ns", "exposed_ns", "bytes"))
        yield LayerPair(key[0], key[2], only, kind, *figures)


def _arrow(a: str, b: str) -> str:
    return a if a == b else f"{a} -> {b}"


def _collectives(a: ReportDocument, b: ReportDocument) -> Iterable[CollectivePair]:
    """The layers' communication by kind, in alphabetical order."""
    rows_a, rows_b = list(_by_key(a).values()), list(_by_key(b).values())
    for kind in sorted({row["collective"] for row in [*rows_a, *rows_b] if row["collective"]}):
        sum_a, sum_b = (sum_of_phases([row for row in rows if row["collective"] == kind]) for rows in (rows_a, rows_b))
        yield CollectivePair(kind, *(_pair(sum_a, sum_b, figure) for figure in ("comm_ns", "exposed_ns", "bytes")))


def _dims(a: ReportDocument, b: ReportDocument) -> Iterable[DimensionPair]:
    rows_a, rows_b = ({dim["index"]: dim for dim in report["dims"]} for report in (a, b))
    for index, *both_dims in align(rows_a, rows_b, None):
        names = [f"{dim['kind']} of {dim['npus']}" if dim else "none" for dim in both_dims]
        size = Pair(*(dim["bytes_per_npu"] if dim else 0 for dim in both_dims))
        busy = Pair(*(dim["busy_ns"] if dim else 0 for dim in both_dims))
        yield DimensionPair(f"{index}: {_arrow(*names)}", size, busy)


def _why(layer: LayerPair) -> str:
    size = layer.size_bytes
    if layer.only:
        return f"only {layer.only.upper()} has this layer"
    if size.difference:
        return f"its size went from {format_bytes(size.a)} to {format_bytes(size.b)}"
    if layer.comm_ns.difference:
        change = "more" if layer.comm_ns.difference > 0 else "less"
        return f"of the same size, it takes {format_ns(abs(layer.comm_ns.difference))} {change}"
    return "it takes as long, but overlaps differently"
